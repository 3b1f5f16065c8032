//! The client side of the protocol: encoding of requests and decoding of responses, for tests, load generators and
//! fuzzing. No I/O.

use bytes::{BufMut, BytesMut};

use super::{
    columns::metadata_flags,
    compression::Compression,
    consistency::Consistency,
    envelope::result_kind,
    error::DecodeError,
    event::{Event, SchemaChange, put_event_types},
    header::{self, Flags, Header, Opcode},
    request::{
        Batch, BatchQuery, Execute, PREPARE_KEYSPACE, Prepare, Query, QueryParameters, Request, Value,
        query_flags,
    },
    type_codes,
    version::ProtocolVersion,
    wire::{self, BytesMap, Reader},
};
use crate::types::CqlType;

/// Appends a request envelope. `flags` may contain [`Flags::TRACING`]; the payload flag is set automatically.
pub fn encode_request(
    out: &mut BytesMut,
    version: ProtocolVersion,
    stream: i16,
    flags: Flags,
    custom_payload: &[(&str, Option<&[u8]>)],
    request: &Request<'_>,
) {
    let start = out.len();
    let (opcode, flags) = (opcode_of(request), flags.without(Flags::CUSTOM_PAYLOAD));
    if custom_payload.is_empty() {
        header::write_request_header(out, version, flags, stream, opcode);
    } else {
        header::write_request_header(out, version, flags.with(Flags::CUSTOM_PAYLOAD), stream, opcode);
        wire::put_bytes_map(out, custom_payload);
    }
    match request {
        Request::Startup(options) => wire::put_string_map(out, options),
        Request::Options => {}
        Request::AuthResponse(token) => wire::put_bytes(out, *token),
        Request::Register(event_types) => put_event_types(out, event_types),
        Request::Query(Query { statement, parameters }) => {
            wire::put_long_string(out, statement);
            put_parameters(out, version, parameters);
        }
        Request::Prepare(prepare) => put_prepare(out, version, prepare),
        Request::Execute(Execute { id, result_metadata_id, parameters }) => {
            wire::put_short_bytes(out, id);
            if let Some(id) = result_metadata_id {
                wire::put_short_bytes(out, id);
            }
            put_parameters(out, version, parameters);
        }
        Request::Batch(batch) => put_batch(out, version, batch),
    }
    header::patch_body_length(out, start);
}

/// Compresses the request at `start`, the last in `out` (v3, v4).
pub fn compress_request(out: &mut BytesMut, start: usize, compression: Compression) {
    super::compression::compress_envelope(out, start, compression);
}

fn opcode_of(request: &Request<'_>) -> Opcode {
    match request {
        Request::Startup(_) => Opcode::Startup,
        Request::Options => Opcode::Options,
        Request::AuthResponse(_) => Opcode::AuthResponse,
        Request::Register(_) => Opcode::Register,
        Request::Query(_) => Opcode::Query,
        Request::Prepare(_) => Opcode::Prepare,
        Request::Execute(_) => Opcode::Execute,
        Request::Batch(_) => Opcode::Batch,
    }
}

fn put_flags(out: &mut BytesMut, version: ProtocolVersion, flags: u32) {
    if version >= ProtocolVersion::V5 {
        out.put_u32(flags);
    } else {
        out.put_u8(flags as u8);
    }
}

fn flag_if(condition: bool, flag: u32) -> u32 {
    if condition { flag } else { 0 }
}

fn put_prepare(out: &mut BytesMut, version: ProtocolVersion, prepare: &Prepare<'_>) {
    wire::put_long_string(out, prepare.statement);
    if version >= ProtocolVersion::V5 {
        out.put_u32(flag_if(prepare.keyspace.is_some(), PREPARE_KEYSPACE));
        if let Some(keyspace) = prepare.keyspace {
            wire::put_string(out, keyspace);
        }
    }
}

fn put_parameters(out: &mut BytesMut, version: ProtocolVersion, parameters: &QueryParameters<'_>) {
    let named = !parameters.names.is_empty();
    let flags = flag_if(!parameters.values.is_empty(), query_flags::VALUES)
        | flag_if(named, query_flags::NAMES)
        | flag_if(parameters.skip_metadata, query_flags::SKIP_METADATA)
        | flag_if(parameters.page_size.is_some(), query_flags::PAGE_SIZE)
        | flag_if(parameters.paging_state.is_some(), query_flags::PAGING_STATE)
        | trailing_flags(
            version,
            parameters.serial_consistency,
            parameters.timestamp_us,
            parameters.keyspace,
            parameters.now_in_seconds,
        );
    out.put_u16(parameters.consistency.code());
    put_flags(out, version, flags);
    if !parameters.values.is_empty() {
        out.put_u16(parameters.values.len() as u16);
        for (index, value) in parameters.values.iter().enumerate() {
            if named {
                debug_assert!(index < parameters.names.len(), "every value has a name, or none has");
                wire::put_string(out, parameters.names.get(index).copied().unwrap_or_default());
            }
            put_value(out, *value);
        }
    }
    if let Some(page_size) = parameters.page_size {
        out.put_i32(page_size);
    }
    if let Some(state) = parameters.paging_state {
        wire::put_bytes(out, Some(state));
    }
    put_trailing(
        out,
        version,
        parameters.serial_consistency,
        parameters.timestamp_us,
        parameters.keyspace,
        parameters.now_in_seconds,
    );
}

fn trailing_flags(
    version: ProtocolVersion,
    serial_consistency: Option<Consistency>,
    timestamp_us: Option<i64>,
    keyspace: Option<&str>,
    now_in_seconds: Option<i32>,
) -> u32 {
    let v5 = version >= ProtocolVersion::V5;
    flag_if(serial_consistency.is_some(), query_flags::SERIAL_CONSISTENCY)
        | flag_if(timestamp_us.is_some(), query_flags::TIMESTAMP)
        | flag_if(v5 && keyspace.is_some(), query_flags::KEYSPACE)
        | flag_if(v5 && now_in_seconds.is_some(), query_flags::NOW_IN_SECONDS)
}

fn put_trailing(
    out: &mut BytesMut,
    version: ProtocolVersion,
    serial_consistency: Option<Consistency>,
    timestamp_us: Option<i64>,
    keyspace: Option<&str>,
    now_in_seconds: Option<i32>,
) {
    if let Some(consistency) = serial_consistency {
        out.put_u16(consistency.code());
    }
    if let Some(timestamp) = timestamp_us {
        out.put_i64(timestamp);
    }
    if version >= ProtocolVersion::V5 {
        if let Some(keyspace) = keyspace {
            wire::put_string(out, keyspace);
        }
        if let Some(seconds) = now_in_seconds {
            out.put_i32(seconds);
        }
    }
}

fn put_value(out: &mut BytesMut, value: Value<'_>) {
    match value {
        Value::Null => out.put_i32(-1),
        Value::Unset => out.put_i32(-2),
        Value::Bytes(bytes) => wire::put_bytes(out, Some(bytes)),
    }
}

fn put_batch(out: &mut BytesMut, version: ProtocolVersion, batch: &Batch<'_>) {
    out.put_u8(batch.kind as u8);
    out.put_u16(batch.len() as u16);
    for (query, values) in batch.statements() {
        match query {
            BatchQuery::Text(statement) => {
                out.put_u8(0);
                wire::put_long_string(out, statement);
            }
            BatchQuery::Prepared(id) => {
                out.put_u8(1);
                wire::put_short_bytes(out, id);
            }
        }
        out.put_u16(values.len() as u16);
        for value in values {
            put_value(out, *value);
        }
    }
    out.put_u16(batch.consistency.code());
    let (serial, timestamp, now) = (batch.serial_consistency, batch.timestamp_us, batch.now_in_seconds);
    put_flags(out, version, trailing_flags(version, serial, timestamp, batch.keyspace, now));
    put_trailing(out, version, serial, timestamp, batch.keyspace, now);
}

/// A response with the prefix of its body.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedResponse<'a> {
    pub tracing_id: Option<[u8; 16]>,
    pub warnings: Vec<&'a str>,
    pub custom_payload: BytesMap<'a>,
    pub response: Response<'a>,
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub enum Response<'a> {
    /// `details` are the bytes after the message.
    Error {
        code: i32,
        message: &'a str,
        details: &'a [u8],
    },
    Ready,
    Authenticate {
        class: &'a str,
    },
    Supported(Vec<(&'a str, Vec<&'a str>)>),
    AuthChallenge(Option<&'a [u8]>),
    AuthSuccess(Option<&'a [u8]>),
    Event(Event),
    Void,
    SetKeyspace(&'a str),
    SchemaChange(SchemaChange),
    Prepared(PreparedResponse<'a>),
    Rows(RowsResponse<'a>),
}

/// RESULT Prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedResponse<'a> {
    pub id: &'a [u8],
    pub result_metadata_id: Option<&'a [u8]>,
    /// Flags of the bind metadata, with any extension bits.
    pub bind_flags: u32,
    pub partition_key_indexes: Vec<u16>,
    pub bind: Vec<Column<'a>>,
    pub result: ResultMetadata<'a>,
}

/// A column of a result, or a bind variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Column<'a> {
    pub keyspace: &'a str,
    pub table: &'a str,
    pub name: &'a str,
    pub cql_type: CqlType,
}

/// The metadata of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultMetadata<'a> {
    pub column_count: usize,
    /// The paging state to request the next page with, if there are more pages.
    pub paging_state: Option<&'a [u8]>,
    /// The new id of the metadata, if it has changed.
    pub new_metadata_id: Option<&'a [u8]>,
    /// Empty if the metadata was skipped.
    pub columns: Vec<Column<'a>>,
}

/// RESULT Rows.
#[derive(Debug, Clone, PartialEq)]
pub struct RowsResponse<'a> {
    pub metadata: ResultMetadata<'a>,
    pub row_count: usize,
    cells: &'a [u8],
}

impl<'a> RowsResponse<'a> {
    /// The cells, row by row. After an error the iteration ends.
    pub fn cells(&self) -> Cells<'a> {
        let remaining = self.row_count.saturating_mul(self.metadata.column_count);
        Cells { reader: Reader::new(self.cells), remaining }
    }

    /// All rows, each a vector of cells.
    pub fn rows(&self) -> Result<Vec<Vec<Option<&'a [u8]>>>, DecodeError> {
        let mut cells = self.cells();
        let mut rows = Vec::new();
        for _ in 0..self.row_count {
            rows.push(cells.by_ref().take(self.metadata.column_count).collect::<Result<_, _>>()?);
        }
        Ok(rows)
    }
}

/// Iterates over the cells of a result.
#[derive(Debug, Clone)]
pub struct Cells<'a> {
    reader: Reader<'a>,
    remaining: usize,
}

impl<'a> Iterator for Cells<'a> {
    type Item = Result<Option<&'a [u8]>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        let cell = self.reader.bytes("a cell");
        if cell.is_err() {
            self.remaining = 0;
        }
        Some(cell)
    }
}

/// Decodes the body of a response. See [`super::decode_request`] for `metadata_ids`.
pub fn decode_response<'a>(
    header: &Header,
    body: &'a [u8],
    metadata_ids: bool,
) -> Result<DecodedResponse<'a>, DecodeError> {
    let mut reader = Reader::new(body);
    let has = |flag| header.flags.contains(flag);
    if header.version == ProtocolVersion::V3 && (has(Flags::WARNING) || has(Flags::CUSTOM_PAYLOAD)) {
        return Err(DecodeError::PayloadInV3);
    }
    let tracing_id = if has(Flags::TRACING) { Some(reader.array("the tracing id")?) } else { None };
    let warnings = if has(Flags::WARNING) { reader.string_list("the warnings")? } else { Vec::new() };
    let custom_payload =
        if has(Flags::CUSTOM_PAYLOAD) { reader.bytes_map("the custom payload")? } else { Vec::new() };
    let response = match header.opcode {
        Opcode::Error => Response::Error {
            code: reader.i32("the error code")?,
            message: reader.string("the error message")?,
            details: reader.remaining(),
        },
        Opcode::Ready => Response::Ready,
        Opcode::Authenticate => Response::Authenticate { class: reader.string("the authenticator")? },
        Opcode::Supported => Response::Supported(reader.string_multimap("the supported options")?),
        Opcode::AuthChallenge => Response::AuthChallenge(reader.bytes("the token")?),
        Opcode::AuthSuccess => Response::AuthSuccess(reader.bytes("the token")?),
        Opcode::Event => Response::Event(Event::decode(reader.remaining())?),
        Opcode::Result => decode_result(&mut reader, header.version, metadata_ids)?,
        other => return Err(DecodeError::UnexpectedOpcode { opcode: other.name() }),
    };
    Ok(DecodedResponse { tracing_id, warnings, custom_payload, response })
}

fn decode_result<'a>(
    reader: &mut Reader<'a>,
    version: ProtocolVersion,
    metadata_ids: bool,
) -> Result<Response<'a>, DecodeError> {
    match reader.i32("the kind of the result")? {
        result_kind::VOID => Ok(Response::Void),
        result_kind::ROWS => {
            let metadata = decode_metadata(reader)?;
            let row_count = reader.length("the number of rows")?;
            // Each cell takes at least four bytes; a result without columns has no rows.
            let cells_max = reader.remaining().len() / 4;
            if row_count.saturating_mul(metadata.column_count.max(1)) > cells_max {
                return Err(DecodeError::InvalidLength { what: "the rows", length: row_count as i64 });
            }
            Ok(Response::Rows(RowsResponse { metadata, row_count, cells: reader.remaining() }))
        }
        result_kind::SET_KEYSPACE => Ok(Response::SetKeyspace(reader.string("the keyspace")?)),
        result_kind::PREPARED => decode_prepared(reader, version, metadata_ids).map(Response::Prepared),
        result_kind::SCHEMA_CHANGE => SchemaChange::decode_body(reader).map(Response::SchemaChange),
        kind => Err(DecodeError::UnknownResultKind { kind }),
    }
}

fn decode_prepared<'a>(
    reader: &mut Reader<'a>,
    version: ProtocolVersion,
    metadata_ids: bool,
) -> Result<PreparedResponse<'a>, DecodeError> {
    let id = reader.short_bytes("the id of a prepared statement")?;
    let result_metadata_id = if version >= ProtocolVersion::V5 || metadata_ids {
        Some(reader.short_bytes("the result metadata id")?)
    } else {
        None
    };
    let bind_flags = reader.u32("the flags of the bind metadata")?;
    let column_count = reader.length("the number of bind variables")?;
    let partition_key_indexes = if version >= ProtocolVersion::V4 {
        let count = reader.length("the number of partition key indexes")?;
        reader.repeat(count, 2, |reader| reader.u16("a partition key index"))?
    } else {
        Vec::new()
    };
    let bind = decode_columns(reader, bind_flags, column_count)?;
    let result = decode_metadata(reader)?;
    Ok(PreparedResponse { id, result_metadata_id, bind_flags, partition_key_indexes, bind, result })
}

fn decode_metadata<'a>(reader: &mut Reader<'a>) -> Result<ResultMetadata<'a>, DecodeError> {
    let flags = reader.u32("the flags of the result metadata")?;
    let column_count = reader.length("the number of columns")?;
    let paging_state =
        if flags & metadata_flags::HAS_MORE_PAGES != 0 { reader.bytes("the paging state")? } else { None };
    let new_metadata_id = if flags & metadata_flags::METADATA_CHANGED != 0 {
        Some(reader.short_bytes("the result metadata id")?)
    } else {
        None
    };
    let columns = if flags & metadata_flags::NO_METADATA != 0 {
        Vec::new()
    } else {
        decode_columns(reader, flags, column_count)?
    };
    Ok(ResultMetadata { column_count, paging_state, new_metadata_id, columns })
}

fn decode_columns<'a>(
    reader: &mut Reader<'a>,
    flags: u32,
    column_count: usize,
) -> Result<Vec<Column<'a>>, DecodeError> {
    const KEYSPACE: &str = "the keyspace of a column";
    const TABLE: &str = "the table of a column";
    let global = if flags & metadata_flags::GLOBAL_TABLE != 0 {
        Some((reader.string(KEYSPACE)?, reader.string(TABLE)?))
    } else {
        None
    };
    reader.repeat(column_count, 4, |reader| {
        let (keyspace, table) = match global {
            Some(names) => names,
            None => (reader.string(KEYSPACE)?, reader.string(TABLE)?),
        };
        let name = reader.string("the name of a column")?;
        Ok(Column { keyspace, table, name, cql_type: type_codes::read_type(reader)? })
    })
}
