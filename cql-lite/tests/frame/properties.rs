//! Whatever is encoded decodes to the same; whatever arrives, nothing panics.

use bytes::BytesMut;
use cql_lite::{
    frame::{
        Batch, BatchKind, BatchQuery, ColumnSpec, ColumnsMetadata, Compression, Consistency, Decoder,
        EventType, Execute, Flags, Opcode, Prefix, Prepare, ProtocolVersion, Query, QueryParameters, Request,
        Role, RowsWriter, Value, client,
        client::Response,
        decode_request,
        header::Header,
        rows::SendMetadata,
        segment::{SegmentEncoder, SegmentFormat},
        type_codes,
        wire::Reader,
    },
    types::CqlType,
};
use proptest::prelude::*;

/// An owned request, because a [`Request`] borrows.
#[derive(Debug, Clone)]
enum Owned {
    Startup(Vec<(String, String)>),
    Options,
    AuthResponse(Option<Vec<u8>>),
    Register(Vec<EventType>),
    Query(String, Parameters),
    Prepare(String, Option<String>),
    Execute(Vec<u8>, Vec<u8>, Parameters),
    Batch(BatchKind, Vec<(bool, String, Vec<OwnedValue>)>, Parameters),
}

type OwnedValue = Result<Vec<u8>, bool>;

#[derive(Debug, Clone)]
struct Parameters {
    consistency: Consistency,
    skip_metadata: bool,
    values: Vec<(String, OwnedValue)>,
    named: bool,
    page_size: Option<i32>,
    paging_state: Option<Vec<u8>>,
    serial: Option<Consistency>,
    timestamp: Option<i64>,
    keyspace: Option<String>,
    now: Option<i32>,
}

fn value(version: ProtocolVersion, owned: &OwnedValue) -> Value<'_> {
    match owned {
        Ok(bytes) => Value::Bytes(bytes),
        Err(true) if version >= ProtocolVersion::V4 => Value::Unset,
        Err(_) => Value::Null,
    }
}

impl Parameters {
    fn borrow(&self, version: ProtocolVersion) -> QueryParameters<'_> {
        let v5 = version >= ProtocolVersion::V5;
        QueryParameters {
            skip_metadata: self.skip_metadata,
            values: self.values.iter().map(|(_, owned)| value(version, owned)).collect(),
            names: if self.named {
                self.values.iter().map(|(name, _)| &name[..]).collect()
            } else {
                Vec::new()
            },
            page_size: self.page_size,
            paging_state: self.paging_state.as_deref(),
            serial_consistency: self.serial,
            timestamp_us: self.timestamp,
            keyspace: self.keyspace.as_deref().filter(|_| v5),
            now_in_seconds: self.now.filter(|_| v5),
            ..QueryParameters::new(self.consistency)
        }
    }
}

impl Owned {
    fn borrow(&self, version: ProtocolVersion) -> Request<'_> {
        let v5 = version >= ProtocolVersion::V5;
        match self {
            Self::Startup(options) => {
                Request::Startup(options.iter().map(|(key, value)| (&key[..], &value[..])).collect())
            }
            Self::Options => Request::Options,
            Self::AuthResponse(token) => Request::AuthResponse(token.as_deref()),
            Self::Register(event_types) => Request::Register(event_types.clone()),
            Self::Query(statement, parameters) => {
                Request::Query(Query { statement, parameters: parameters.borrow(version) })
            }
            Self::Prepare(statement, keyspace) => {
                Request::Prepare(Prepare { statement, keyspace: keyspace.as_deref().filter(|_| v5) })
            }
            Self::Execute(id, metadata_id, parameters) => Request::Execute(Execute {
                id,
                result_metadata_id: v5.then_some(metadata_id),
                parameters: parameters.borrow(version),
            }),
            Self::Batch(kind, statements, parameters) => {
                let mut batch = Batch::new(*kind, parameters.consistency);
                for (prepared, query, values) in statements {
                    let values: Vec<_> = values.iter().map(|owned| value(version, owned)).collect();
                    let query = if *prepared {
                        BatchQuery::Prepared(query.as_bytes())
                    } else {
                        BatchQuery::Text(query)
                    };
                    batch.push(query, &values);
                }
                batch.serial_consistency = parameters.serial;
                batch.timestamp_us = parameters.timestamp;
                batch.keyspace = parameters.keyspace.as_deref().filter(|_| v5);
                batch.now_in_seconds = parameters.now.filter(|_| v5);
                Request::Batch(batch)
            }
        }
    }
}

fn any_version() -> impl Strategy<Value = ProtocolVersion> {
    prop::sample::select(&ProtocolVersion::ALL)
}

fn any_consistency() -> impl Strategy<Value = Consistency> {
    prop::sample::select(&Consistency::ALL)
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..40)
}

fn any_value() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![3 => any_bytes().prop_map(Ok), 1 => any::<bool>().prop_map(Err)]
}

fn any_parameters() -> impl Strategy<Value = Parameters> {
    let values = prop::collection::vec((".{0,8}", any_value()), 0..12);
    let page = (any::<Option<i32>>(), prop::option::of(any_bytes()));
    let timestamp = prop::option::of(i64::MIN + 1..);
    let tail = (
        prop::option::of(any_consistency()),
        timestamp,
        prop::option::of("[a-z]{1,8}"),
        any::<Option<i32>>(),
    );
    (any_consistency(), any::<bool>(), values, any::<bool>(), page, tail).prop_map(
        |(consistency, skip_metadata, values, named, (page_size, paging_state), tail)| {
            let (serial, timestamp, keyspace, now) = tail;
            let named = named && !values.is_empty();
            Parameters {
                consistency,
                skip_metadata,
                values,
                named,
                page_size,
                paging_state,
                serial,
                timestamp,
                keyspace,
                now,
            }
        },
    )
}

fn any_request() -> impl Strategy<Value = Owned> {
    let kind = prop::sample::select(vec![BatchKind::Logged, BatchKind::Unlogged, BatchKind::Counter]);
    let statements =
        prop::collection::vec((any::<bool>(), ".{0,20}", prop::collection::vec(any_value(), 0..5)), 0..6);
    prop_oneof![
        prop::collection::vec((".{0,10}", ".{0,10}"), 0..4).prop_map(Owned::Startup),
        Just(Owned::Options),
        prop::option::of(any_bytes()).prop_map(Owned::AuthResponse),
        prop::sample::subsequence(EventType::ALL.to_vec(), 0..=3).prop_map(Owned::Register),
        (".{0,40}", any_parameters()).prop_map(|(statement, parameters)| Owned::Query(statement, parameters)),
        (".{0,40}", prop::option::of("[a-z]{1,8}"))
            .prop_map(|(text, keyspace)| Owned::Prepare(text, keyspace)),
        (any_bytes(), any_bytes(), any_parameters())
            .prop_map(|(id, meta, rest)| Owned::Execute(id, meta, rest)),
        (kind, statements, any_parameters()).prop_map(|(kind, list, rest)| Owned::Batch(kind, list, rest)),
    ]
}

fn any_type() -> impl Strategy<Value = CqlType> {
    let natives = prop::sample::select(CqlType::natives().collect::<Vec<_>>());
    natives.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|element| CqlType::list(element, false)),
            inner.clone().prop_map(|element| CqlType::set(element, false)),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| CqlType::map(key, value, false)),
            prop::collection::vec(inner, 1..3).prop_map(CqlType::tuple),
        ]
    })
}

proptest! {
    #[test]
    fn requests_survive_the_wire(
        version in any_version(),
        owned in any_request(),
        tracing in any::<bool>(),
        compression in prop::option::of(prop::sample::select(vec![Compression::Lz4, Compression::Snappy])),
        segments in prop::option::of(prop::sample::select(vec![SegmentFormat::Plain, SegmentFormat::Lz4])),
    ) {
        let mut decoder = Decoder::new(Role::Server, 1 << 20);
        let mut bytes = BytesMut::new();
        let request = owned.borrow(version);
        let flags = if tracing { Flags::TRACING } else { Flags::NONE };
        client::encode_request(&mut bytes, version, 77, flags, &[], &request);
        if version >= ProtocolVersion::V5 {
            if let Some(format) = segments {
                let envelope = bytes.split();
                SegmentEncoder::new(format).encode(&envelope, &mut bytes);
                decoder.start_segments(format);
            }
        } else if let Some(compression) = compression {
            client::compress_request(&mut bytes, 0, compression);
            decoder.set_compression(compression);
        }
        let envelope = decoder.next(&mut bytes).unwrap().unwrap();
        prop_assert_eq!(envelope.header.stream, 77);
        let decoded = decode_request(&envelope.header, envelope.body, false).unwrap();
        prop_assert_eq!(decoded.tracing, tracing);
        prop_assert_eq!(decoded.request, request);
    }

    #[test]
    fn rows_survive_the_wire(
        version in any_version(),
        columns in prop::collection::vec(("[a-z]{1,8}", any_type()), 1..5),
        row_count in 0_usize..4,
        cell in prop::option::of(any_bytes()),
        paging_state in prop::option::of(any_bytes()),
        warnings in prop::collection::vec(".{0,10}", 0..2),
    ) {
        let specs: Vec<_> = columns
            .iter()
            .map(|(name, cql_type)| ColumnSpec { keyspace: "ks", table: "t", name, cql_type })
            .collect();
        let mut out = BytesMut::new();
        let metadata = ColumnsMetadata::new(version, &specs);
        let mut writer = RowsWriter::begin(&mut out, version, 1, &metadata, SendMetadata::Full);
        for _ in 0..row_count * columns.len() {
            writer.write_value(cell.as_deref());
        }
        let prefix = Prefix { warnings: &warnings, ..Prefix::default() };
        writer.finish(row_count as i32, paging_state.as_deref(), &prefix);

        let mut decoder = Decoder::new(Role::Client, 1 << 20);
        let envelope = decoder.next(&mut out).unwrap().unwrap();
        let decoded = client::decode_response(&envelope.header, envelope.body, false).unwrap();
        if version > ProtocolVersion::V3 {
            prop_assert_eq!(decoded.warnings, warnings);
        }
        let Response::Rows(rows) = decoded.response else { panic!("no rows") };
        prop_assert_eq!(rows.metadata.paging_state, paging_state.as_deref());
        prop_assert_eq!(rows.rows().unwrap(), vec![vec![cell.as_deref(); columns.len()]; row_count]);
        for (column, (name, cql_type)) in rows.metadata.columns.iter().zip(&columns) {
            prop_assert_eq!(column.name, name);
            prop_assert_eq!(&column.cql_type, cql_type);
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), opcode in 0_u8..0x11, flags: u8) {
        let Some(opcode) = Opcode::from_number(opcode) else { return Ok(()) };
        for version in ProtocolVersion::ALL {
            let header = Header {
                version,
                is_response: false,
                flags: Flags(flags),
                stream: 0,
                opcode,
                body_bytes: bytes.len(),
            };
            let _ = decode_request(&header, &bytes, true);
            if let Ok(decoded) = client::decode_response(&header, &bytes, true)
                && let Response::Rows(rows) = decoded.response
            {
                let _ = rows.rows();
            }
        }
        let _ = type_codes::read_type(&mut Reader::new(&bytes));
        for segments in [None, Some(SegmentFormat::Plain), Some(SegmentFormat::Lz4)] {
            let mut decoder = Decoder::new(Role::Server, 1 << 16);
            decoder.set_compression(Compression::Snappy);
            if let Some(format) = segments {
                decoder.start_segments(format);
            }
            let mut input = BytesMut::from(&bytes[..]);
            for _ in 0..100 {
                match decoder.next(&mut input) {
                    Ok(None) => break,
                    Err(error) if error.is_fatal() => break,
                    Ok(Some(_)) | Err(_) => {}
                }
            }
        }
    }

    #[test]
    fn a_damaged_request_never_panics(version in any_version(), owned in any_request(), at: prop::sample::Index, bits: u8) {
        let mut bytes = BytesMut::new();
        client::encode_request(&mut bytes, version, 1, Flags::NONE, &[], &owned.borrow(version));
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        if let Ok(Some(envelope)) = Decoder::new(Role::Server, 1 << 16).next(&mut bytes) {
            let _ = decode_request(&envelope.header, envelope.body, false);
        }
    }
}
