//! Requests, decoded into structs that borrow from the message body.
//!
//! Decoding an EXECUTE with up to eight positional values does not allocate. Counts are not trusted: memory is reserved
//! only for as many items as the rest of the body can contain. As in Cassandra, bytes after the last field are ignored.

use smallvec::SmallVec;

use super::{
    consistency::Consistency,
    error::DecodeError,
    event::EventType,
    header::{Flags, Header, Opcode},
    version::ProtocolVersion,
    wire::{BytesMap, Reader},
};

/// Flags of the query parameters and of BATCH.
pub(super) mod query_flags {
    pub const VALUES: u32 = 0x01;
    pub const SKIP_METADATA: u32 = 0x02;
    pub const PAGE_SIZE: u32 = 0x04;
    pub const PAGING_STATE: u32 = 0x08;
    pub const SERIAL_CONSISTENCY: u32 = 0x10;
    pub const TIMESTAMP: u32 = 0x20;
    pub const NAMES: u32 = 0x40;
    pub const KEYSPACE: u32 = 0x80;
    pub const NOW_IN_SECONDS: u32 = 0x100;
}

/// The flag of a v5 PREPARE with a keyspace.
pub(super) const PREPARE_KEYSPACE: u32 = 0x01;

/// Number of values that are stored without an allocation.
const INLINE_VALUES: usize = 8;
/// Length of the shortest `[value]`: its length field.
const VALUE_BYTES_MIN: usize = 4;
/// Length of the shortest statement of a BATCH: kind, empty id, no values.
const BATCH_STATEMENT_BYTES_MIN: usize = 5;

/// A bound value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    Null,
    /// Leaves the column unchanged (since v4).
    Unset,
    /// The value in the wire format of its type.
    Bytes(&'a [u8]),
}

/// Bound values, in the order they were sent.
pub type Values<'a> = SmallVec<[Value<'a>; INLINE_VALUES]>;

/// A request with the prefix of its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedRequest<'a> {
    /// Whether the client has requested tracing.
    pub tracing: bool,
    /// Key-value pairs for custom query handlers (since v4).
    pub custom_payload: BytesMap<'a>,
    pub request: Request<'a>,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "boxing EXECUTE would allocate on the hot path")]
pub enum Request<'a> {
    /// The options in the order sent. The server must ignore unknown options.
    Startup(Vec<(&'a str, &'a str)>),
    Options,
    /// The SASL token.
    AuthResponse(Option<&'a [u8]>),
    Register(Vec<EventType>),
    Query(Query<'a>),
    Prepare(Prepare<'a>),
    Execute(Execute<'a>),
    Batch(Batch<'a>),
}

/// QUERY: executes a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query<'a> {
    pub statement: &'a str,
    pub parameters: QueryParameters<'a>,
}

/// PREPARE: registers a statement under an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepare<'a> {
    pub statement: &'a str,
    /// Overrides the keyspace of the connection (v5).
    pub keyspace: Option<&'a str>,
}

/// EXECUTE: executes a prepared statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execute<'a> {
    pub id: &'a [u8],
    /// Id of the result metadata known to the client (v5, or v4 with the metadata id extension).
    pub result_metadata_id: Option<&'a [u8]>,
    pub parameters: QueryParameters<'a>,
}

/// The parameters of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryParameters<'a> {
    pub consistency: Consistency,
    /// The client does not need the metadata of the rows.
    pub skip_metadata: bool,
    pub values: Values<'a>,
    /// The names of the values, one for each value; empty if the values are positional.
    pub names: Vec<&'a str>,
    /// Rows per page; all rows at once if absent or not positive.
    pub page_size: Option<i32>,
    /// The paging state of the previous page.
    pub paging_state: Option<&'a [u8]>,
    pub serial_consistency: Option<Consistency>,
    /// Default timestamp of writes, in microseconds since the epoch.
    pub timestamp_us: Option<i64>,
    /// Overrides the keyspace of the connection (v5).
    pub keyspace: Option<&'a str>,
    /// Overrides the server's clock for expiry, in seconds since the epoch (v5).
    pub now_in_seconds: Option<i32>,
}

impl QueryParameters<'_> {
    /// Parameters with only a consistency.
    pub fn new(consistency: Consistency) -> Self {
        Self {
            consistency,
            skip_metadata: false,
            values: Values::new(),
            names: Vec::new(),
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp_us: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }
}

/// How a batch is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BatchKind {
    Logged = 0,
    Unlogged = 1,
    Counter = 2,
}

/// A statement of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchQuery<'a> {
    Text(&'a str),
    /// The id of a prepared statement.
    Prepared(&'a [u8]),
}

/// BATCH: executes several modifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<'a> {
    pub kind: BatchKind,
    /// Each statement with the end of its values in `values`.
    statements: Vec<(BatchQuery<'a>, usize)>,
    /// The values of all statements, back to back, in one allocation.
    values: Vec<Value<'a>>,
    pub consistency: Consistency,
    pub serial_consistency: Option<Consistency>,
    /// As in [`QueryParameters`].
    pub timestamp_us: Option<i64>,
    /// As in [`QueryParameters`].
    pub keyspace: Option<&'a str>,
    /// As in [`QueryParameters`].
    pub now_in_seconds: Option<i32>,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    pub fn new(kind: BatchKind, consistency: Consistency) -> Self {
        Self {
            kind,
            statements: Vec::new(),
            values: Vec::new(),
            consistency,
            serial_consistency: None,
            timestamp_us: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }

    /// Adds a statement.
    pub fn push(&mut self, query: BatchQuery<'a>, values: &[Value<'a>]) {
        self.values.extend_from_slice(values);
        self.statements.push((query, self.values.len()));
    }

    /// Number of statements.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether there is no statement.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// The statements with their values, in order.
    pub fn statements(&self) -> impl Iterator<Item = (BatchQuery<'a>, &[Value<'a>])> {
        let mut start = 0;
        self.statements.iter().map(move |&(query, end)| {
            debug_assert!(
                start <= end && end <= self.values.len(),
                "the values of a statement are among all"
            );
            let values = self.values.get(start..end).unwrap_or_default();
            start = end;
            (query, values)
        })
    }
}

/// Decodes the body of a request. `metadata_ids`: whether EXECUTE in v4 contains a result metadata id, because the client
/// has requested the extension `SCYLLA_USE_METADATA_ID`. In v5 it always does.
pub fn decode_request<'a>(
    header: &Header,
    body: &'a [u8],
    metadata_ids: bool,
) -> Result<DecodedRequest<'a>, DecodeError> {
    let version = header.version;
    let mut reader = Reader::new(body);
    let custom_payload = if !header.flags.contains(Flags::CUSTOM_PAYLOAD) {
        Vec::new()
    } else if version == ProtocolVersion::V3 {
        return Err(DecodeError::PayloadInV3);
    } else {
        reader.bytes_map("the custom payload")?
    };
    let request = match header.opcode {
        Opcode::Startup => Request::Startup(reader.string_map("the options of STARTUP")?),
        Opcode::Options => Request::Options,
        Opcode::AuthResponse => Request::AuthResponse(reader.bytes("the authentication token")?),
        Opcode::Register => Request::Register(
            reader
                .string_list("event types")?
                .into_iter()
                .map(EventType::from_name)
                .collect::<Result<_, _>>()?,
        ),
        Opcode::Query => {
            let statement = reader.long_string("the statement")?;
            Request::Query(Query { statement, parameters: decode_parameters(&mut reader, version)? })
        }
        Opcode::Prepare => Request::Prepare(decode_prepare(&mut reader, version)?),
        Opcode::Execute => {
            let id = reader.short_bytes("the id of a prepared statement")?;
            let result_metadata_id = if version >= ProtocolVersion::V5 || metadata_ids {
                Some(reader.short_bytes("the result metadata id")?)
            } else {
                None
            };
            let parameters = decode_parameters(&mut reader, version)?;
            Request::Execute(Execute { id, result_metadata_id, parameters })
        }
        Opcode::Batch => Request::Batch(decode_batch(&mut reader, version)?),
        other => return Err(DecodeError::UnexpectedOpcode { opcode: other.name() }),
    };
    Ok(DecodedRequest { tracing: header.flags.contains(Flags::TRACING), custom_payload, request })
}

fn decode_prepare<'a>(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Prepare<'a>, DecodeError> {
    let statement = reader.long_string("the statement")?;
    if version < ProtocolVersion::V5 {
        return Ok(Prepare { statement, keyspace: None });
    }
    let flags = reader.u32("the flags of PREPARE")?;
    let keyspace = if flags & PREPARE_KEYSPACE != 0 { Some(reader.string("the keyspace")?) } else { None };
    Ok(Prepare { statement, keyspace })
}

/// Reads the flags of the query parameters: one byte before v5, four bytes since.
#[inline]
fn read_flags(
    reader: &mut Reader<'_>,
    version: ProtocolVersion,
    what: &'static str,
) -> Result<u32, DecodeError> {
    if version >= ProtocolVersion::V5 { reader.u32(what) } else { reader.u8(what).map(u32::from) }
}

/// Reads the parameters of a statement or of a batch. As in Cassandra, flags that mean nothing are passed over.
fn decode_parameters<'a>(
    reader: &mut Reader<'a>,
    version: ProtocolVersion,
) -> Result<QueryParameters<'a>, DecodeError> {
    let mut parameters = QueryParameters::new(decode_consistency(reader)?);
    let flags = read_flags(reader, version, "the flags of the query parameters")?;
    let has = |flag: u32| flags & flag != 0;

    if has(query_flags::VALUES) {
        let count = usize::from(reader.u16("the number of values")?);
        let room = count.min(reader.remaining().len() / VALUE_BYTES_MIN);
        parameters.values.reserve(room);
        let named = has(query_flags::NAMES);
        if named {
            parameters.names.reserve(room);
        }
        for _ in 0..count {
            if named {
                parameters.names.push(reader.string("the name of a value")?);
            }
            parameters.values.push(decode_value(reader, version)?);
        }
    }
    parameters.skip_metadata = has(query_flags::SKIP_METADATA);
    if has(query_flags::PAGE_SIZE) {
        parameters.page_size = Some(reader.i32("the page size")?);
    }
    if has(query_flags::PAGING_STATE) {
        parameters.paging_state = reader.bytes("the paging state")?;
    }
    if has(query_flags::SERIAL_CONSISTENCY) {
        parameters.serial_consistency = Some(decode_consistency(reader)?);
    }
    if has(query_flags::TIMESTAMP) {
        let timestamp = reader.i64("the timestamp")?;
        // As in Cassandra, `i64::MIN` is reserved for "no timestamp".
        if timestamp == i64::MIN {
            return Err(DecodeError::TimestampOutOfRange { timestamp });
        }
        parameters.timestamp_us = Some(timestamp);
    }
    if has(query_flags::KEYSPACE) {
        parameters.keyspace = Some(reader.string("the keyspace")?);
    }
    if has(query_flags::NOW_IN_SECONDS) {
        parameters.now_in_seconds = Some(reader.i32("now in seconds")?);
    }
    Ok(parameters)
}

fn decode_consistency(reader: &mut Reader<'_>) -> Result<Consistency, DecodeError> {
    Consistency::from_code(reader.u16("the consistency level")?)
}

#[inline]
fn decode_value<'a>(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Value<'a>, DecodeError> {
    const WHAT: &str = "a value";
    let length = reader.i32(WHAT)?;
    match usize::try_from(length) {
        Ok(length) => reader.take(length, WHAT).map(Value::Bytes),
        Err(_) => match length {
            -1 => Ok(Value::Null),
            -2 if version >= ProtocolVersion::V4 => Ok(Value::Unset),
            -2 => Err(DecodeError::UnsetInV3),
            length => Err(DecodeError::InvalidLength { what: WHAT, length: i64::from(length) }),
        },
    }
}

fn decode_batch<'a>(reader: &mut Reader<'a>, version: ProtocolVersion) -> Result<Batch<'a>, DecodeError> {
    let kind = match reader.u8("the batch type")? {
        0 => BatchKind::Logged,
        1 => BatchKind::Unlogged,
        2 => BatchKind::Counter,
        kind => return Err(DecodeError::UnknownBatchType { kind }),
    };
    let count = usize::from(reader.u16("the number of statements")?);
    let mut values = Vec::new();
    let statements = reader.repeat(count, BATCH_STATEMENT_BYTES_MIN, |reader| {
        let query = match reader.u8("the kind of a statement")? {
            0 => BatchQuery::Text(reader.long_string("a statement of a batch")?),
            1 => BatchQuery::Prepared(reader.short_bytes("the id of a prepared statement")?),
            kind => return Err(DecodeError::UnknownBatchQueryKind { kind }),
        };
        for _ in 0..reader.u16("the number of values")? {
            values.push(decode_value(reader, version)?);
        }
        Ok((query, values.len()))
    })?;
    let parameters = decode_parameters(reader, version)?;
    Ok(Batch {
        kind,
        statements,
        values,
        consistency: parameters.consistency,
        serial_consistency: parameters.serial_consistency,
        timestamp_us: parameters.timestamp_us,
        keyspace: parameters.keyspace,
        now_in_seconds: parameters.now_in_seconds,
    })
}
