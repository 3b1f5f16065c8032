//! Responses, byte for byte as drivers decode them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::BytesMut;
use cql_lite::{
    frame::{
        ColumnSpec, ColumnsMetadata, Consistency, ErrorCode, ErrorKind, ErrorResponse, Event, Flags, Prefix,
        ProtocolVersion, RowsWriter, SchemaChange, SchemaChangeKind, SchemaTarget, client,
        client::Response,
        envelope::EnvelopeWriter,
        response,
        response::{Prepared, WriteType},
        rows::SendMetadata,
    },
    types::CqlType,
};

use super::{hex, split, unhex};

use ProtocolVersion::{V3, V4, V5};

const NO_PREFIX: Prefix<'static> = Prefix { tracing_id: None, warnings: &[], custom_payload: &[] };

fn table_columns(version: ProtocolVersion) -> ColumnsMetadata {
    let column = |name, cql_type| ColumnSpec { keyspace: "ks", table: "t", name, cql_type };
    ColumnsMetadata::new(version, &[column("pk", &CqlType::Int), column("v", &CqlType::Text)])
}

/// The output of an encoder, as hexadecimal digits.
fn encoded(encode: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    encode(&mut out);
    hex(&out)
}

#[test]
fn void_and_set_keyspace() {
    assert_eq!(encoded(|out| response::encode_void(out, V4, 1, &NO_PREFIX)), "84000001080000000400000001");
    assert_eq!(
        encoded(|out| response::encode_set_keyspace(out, V4, 1, "ks", &NO_PREFIX)),
        "8400000108000000080000000300026b73"
    );
}

#[test]
fn one_row() {
    let golden = "84000001080000002f00000002000000010000000200026b730001740002706b0009000176000d0000000100000004000000010000000161";
    let rows = encoded(|out| {
        let mut rows = RowsWriter::begin(out, V4, 1, &table_columns(V4), SendMetadata::Full);
        rows.write_value(Some(&[0, 0, 0, 1]));
        rows.write_value_with(|out| out.extend_from_slice(b"a"));
        rows.finish(1, None, &NO_PREFIX);
    });
    assert_eq!(rows, golden);

    let bytes = unhex(golden);
    let (header, body) = split(&bytes);
    let Response::Rows(rows) = client::decode_response(&header, body, false).unwrap().response else {
        panic!()
    };
    assert_eq!(rows.metadata.columns[1].name, "v");
    assert_eq!(rows.metadata.columns[1].cql_type, CqlType::Text);
    assert_eq!(rows.rows().unwrap(), [[Some(&[0, 0, 0, 1][..]), Some(&b"a"[..])]]);
}

#[test]
fn a_page_with_more_to_come() {
    let page = encoded(|out| {
        let rows = RowsWriter::begin(out, V4, 1, &table_columns(V4), SendMetadata::Full);
        rows.finish(0, Some(&[0xab, 0xcd]), &NO_PREFIX);
    });
    assert_eq!(
        page,
        "84000001080000002800000002000000030000000200000002abcd00026b730001740002706b0009000176000d00000000"
    );
}

#[test]
fn changed_metadata_comes_with_its_new_id() {
    let rows = encoded(|out| {
        let columns = table_columns(V5);
        let send = SendMetadata::Changed { new_id: &[0xee, 0xff] };
        RowsWriter::begin(out, V5, 1, &columns, send).finish(0, None, &NO_PREFIX);
    });
    assert_eq!(
        rows,
        "8500000108000000260000000200000009000000020002eeff00026b730001740002706b0009000176000d00000000"
    );
}

#[test]
fn skipped_metadata_keeps_count_paging_state_and_rows() {
    let mut out = BytesMut::new();
    let mut rows = RowsWriter::begin(&mut out, V4, 1, &table_columns(V4), SendMetadata::Skip);
    rows.write_value(Some(b"k"));
    rows.write_value(None);
    let warnings = ["careful".to_owned()];
    rows.finish(1, Some(b"state"), &Prefix { warnings: &warnings, ..NO_PREFIX });
    let (header, body) = split(&out);
    assert!(header.flags.contains(Flags::WARNING));
    let decoded = client::decode_response(&header, body, false).unwrap();
    assert_eq!(decoded.warnings, ["careful"]);
    let Response::Rows(rows) = decoded.response else { panic!() };
    assert!(rows.metadata.columns.is_empty());
    assert_eq!(rows.metadata.column_count, 2);
    assert_eq!(rows.metadata.paging_state, Some(&b"state"[..]));
    assert_eq!(rows.rows().unwrap(), [[Some(&b"k"[..]), None]]);
}

#[test]
fn columns_of_several_tables_name_their_table_each() {
    let int = CqlType::Int;
    let columns = [
        ColumnSpec { keyspace: "a", table: "t", name: "x", cql_type: &int },
        ColumnSpec { keyspace: "b", table: "t", name: "y", cql_type: &int },
    ];
    let mut out = BytesMut::new();
    RowsWriter::begin(&mut out, V4, 1, &ColumnsMetadata::new(V4, &columns), SendMetadata::Full)
        .finish(0, None, &NO_PREFIX);
    let (header, body) = split(&out);
    let Response::Rows(rows) = client::decode_response(&header, body, false).unwrap().response else {
        panic!()
    };
    let keyspaces: Vec<_> = rows.metadata.columns.iter().map(|column| column.keyspace).collect();
    assert_eq!(keyspaces, ["a", "b"]);
}

#[test]
fn an_unfinished_response_leaves_no_trace() {
    let mut out = BytesMut::from(&b"before"[..]);
    let mut rows = RowsWriter::begin(&mut out, V4, 1, &table_columns(V4), SendMetadata::Full);
    rows.write_value(Some(b"cell"));
    drop(rows);
    assert_eq!(&out[..], b"before");
}

#[test]
fn prepared() {
    let prepared = |version, result_metadata_id| {
        encoded(|out| {
            let bind = table_columns(version);
            let prepared = Prepared {
                id: &[1, 2],
                result_metadata_id,
                bind: &bind,
                bind_flags: 0,
                partition_key_indexes: &[0],
                result: None,
            };
            response::encode_prepared(out, version, 1, &prepared, &NO_PREFIX);
        })
    };
    assert_eq!(
        prepared(V3, None),
        "83000001080000002a0000000400020102000000010000000200026b730001740002706b0009000176000d0000000400000000"
    );
    assert_eq!(
        prepared(V4, None),
        "8400000108000000300000000400020102000000010000000200000001000000026b730001740002706b0009000176000d0000000400000000"
    );
    assert_eq!(
        prepared(V5, Some(&[0xee, 0xff])),
        "85000001080000003400000004000201020002eeff000000010000000200000001000000026b730001740002706b0009000176000d0000000400000000"
    );
}

#[test]
fn prepared_select_without_variables() {
    let mut out = BytesMut::new();
    let (bind, result) = (ColumnsMetadata::new(V4, &[]), table_columns(V4));
    let prepared = Prepared {
        id: b"id",
        result_metadata_id: None,
        bind: &bind,
        bind_flags: 0x8000_0000,
        partition_key_indexes: &[],
        result: Some(&result),
    };
    response::encode_prepared(&mut out, V4, 1, &prepared, &NO_PREFIX);
    let (header, body) = split(&out);
    let Response::Prepared(decoded) = client::decode_response(&header, body, false).unwrap().response else {
        panic!()
    };
    assert_eq!(decoded.bind_flags, 0x8000_0000);
    assert!(decoded.bind.is_empty());
    assert_eq!(decoded.result.columns.len(), 2);
}

#[test]
fn schema_changes() {
    let change = |version, kind, target| {
        let change = SchemaChange { kind, keyspace: "ks".to_owned(), target };
        encoded(|out| response::encode_schema_change(out, version, 1, &change, &NO_PREFIX))
    };
    assert_eq!(
        change(V4, SchemaChangeKind::Created, SchemaTarget::Table { name: "t".to_owned() }),
        "84000001080000001b0000000500074352454154454400055441424c4500026b73000174"
    );
    let function = || SchemaTarget::Function { name: "f".to_owned(), argument_types: vec!["int".to_owned()] };
    assert_eq!(
        change(V4, SchemaChangeKind::Dropped, function()),
        "84000001080000002500000005000744524f50504544000846554e4354494f4e00026b7300016600010003696e74"
    );
    assert_eq!(
        change(V3, SchemaChangeKind::Dropped, function()),
        change(V3, SchemaChangeKind::Updated, SchemaTarget::Keyspace)
    );
}

#[test]
fn events() {
    let address = SocketAddr::from(([127, 0, 0, 1], 9042));
    assert_eq!(
        encoded(|out| Event::NodeUp(address).encode(out, V4)),
        "8400ffff0c0000001c000d5354415455535f4348414e474500025550047f00000100002352"
    );
    let change = SchemaChange {
        kind: SchemaChangeKind::Updated,
        keyspace: "ks".to_owned(),
        target: SchemaTarget::Aggregate { name: "a".to_owned(), argument_types: vec!["int".to_owned()] },
    };
    let events = [
        Event::NodeAdded(address),
        Event::NodeRemoved(address),
        Event::NodeUp(address),
        Event::NodeDown(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 9042))),
        Event::SchemaChange(change),
    ];
    for event in events {
        let mut out = BytesMut::new();
        event.encode(&mut out, V4);
        let (header, body) = split(&out);
        assert_eq!(header.stream, -1);
        assert_eq!(Event::decode(body).unwrap(), event);
    }
}

#[test]
fn a_prefix_precedes_the_body() {
    let tracing_id = std::array::from_fn(|index| index as u8);
    let prefix = Prefix {
        tracing_id: Some(tracing_id),
        warnings: &["careful".to_owned()],
        custom_payload: &[("k".to_owned(), Some(b"v".to_vec()))],
    };
    let void = |version| encoded(|out| response::encode_void(out, version, 1, &prefix));
    assert_eq!(
        void(V4),
        "840e00010800000029000102030405060708090a0b0c0d0e0f000100076361726566756c000100016b000000017600000001"
    );
    // v3 sends only the tracing id.
    assert_eq!(void(V3), "830200010800000014000102030405060708090a0b0c0d0e0f00000001");
}

#[test]
fn supported() {
    let list = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
    let options = [
        ("CQL_VERSION".to_owned(), list(&["3.4.7"])),
        ("COMPRESSION".to_owned(), list(&["lz4", "snappy"])),
        ("PROTOCOL_VERSIONS".to_owned(), list(&["3/v3", "4/v4", "5/v5"])),
    ];
    assert_eq!(
        encoded(|out| response::encode_supported(out, V4, 1, &options)),
        "84000001060000005b0003000b43514c5f56455253494f4e00010005332e342e37000b434f4d5052455353494f4e000200036c7a340006736e61707079001150524f544f434f4c5f56455253494f4e5300030004332f76330004342f76340004352f7635"
    );
}

#[test]
fn handshake_answers() {
    assert_eq!(encoded(|out| response::encode_ready(out, V4, 1)), "840000010200000000");
    assert_eq!(encoded(|out| response::encode_ready(out, ProtocolVersion::V6, 1)), "861000010200000000");
    assert_eq!(encoded(|out| response::encode_authenticate(out, V4, 1, "A")), "840000010300000003000141");
    assert_eq!(encoded(|out| response::encode_auth_success(out, V5, 1, None)), "850000011000000004ffffffff");
    assert_eq!(
        encoded(|out| response::encode_auth_challenge(out, V5, 1, Some(b"x"))),
        "850000010e000000050000000178"
    );
}

#[test]
fn an_unknown_version_is_answered_so_that_drivers_downgrade() {
    assert_eq!(
        encoded(|out| response::write_unsupported_version(out, 0, 66)),
        "8500000000000000680000000a0062496e76616c6964206f7220756e737570706f727465642070726f746f636f6c2076657273696f6e20283636293b20737570706f727465642076657273696f6e73206172652028332f76332c20342f76342c20352f76352c20362f76362d6265746129"
    );
}

fn error(version: ProtocolVersion, kind: ErrorKind, message: &str) -> String {
    encoded(|out| response::encode_error(out, version, 1, &ErrorResponse::new(kind, message), &NO_PREFIX))
}

#[test]
fn errors_with_details() {
    assert_eq!(
        error(V4, ErrorKind::Unprepared { id: vec![1, 2] }, "not prepared"),
        "84000001000000001600002500000c6e6f7420707265706172656400020102"
    );
    let consistency = Consistency::One;
    assert_eq!(
        error(V4, ErrorKind::ReadTimeout { consistency, received: 0, required: 1, data_present: false }, "m"),
        "8400000100000000120000120000016d0001000000000000000100"
    );
    let failures = vec![(IpAddr::V4(Ipv4Addr::LOCALHOST), 2)];
    let failure =
        ErrorKind::ReadFailure { consistency, received: 0, required: 1, failures, data_present: false };
    assert_eq!(
        error(V5, failure.clone(), "m"),
        "85000001000000001d0000130000016d0001000000000000000100000001047f000001000200"
    );
    assert_eq!(error(V4, failure, "m"), "8400000100000000160000130000016d000100000000000000010000000100");
    assert_eq!(
        error(V4, ErrorKind::AlreadyExists { keyspace: "ks".to_owned(), table: String::new() }, "m"),
        "84000001000000000d0000240000016d00026b730000"
    );
    assert_eq!(
        error(V4, ErrorKind::Unavailable { consistency, required: 2, alive: 1 }, "m"),
        "8400000100000000110000100000016d00010000000200000001"
    );
}

#[test]
fn write_errors_name_the_kind_of_write() {
    let timeout = |write_type| ErrorKind::WriteTimeout {
        consistency: Consistency::One,
        received: 0,
        required: 1,
        write_type,
        contentions: 3,
    };
    let simple = "0000110000016d00010000000000000001000653494d504c45";
    assert_eq!(error(V5, timeout(WriteType::Simple), "m"), format!("850000010000000019{simple}"));
    let cas = "0000110000016d000100000000000000010003434153";
    assert_eq!(error(V4, timeout(WriteType::Cas), "m"), format!("840000010000000016{cas}"));
    assert_eq!(error(V5, timeout(WriteType::Cas), "m"), format!("850000010000000018{cas}0003"));
}

#[test]
fn older_versions_get_the_closest_error() {
    let code = |version, kind| {
        let mut out = BytesMut::new();
        response::encode_error(&mut out, version, 1, &ErrorResponse::new(kind, "m"), &NO_PREFIX);
        let (header, body) = split(&out);
        match client::decode_response(&header, body, false).unwrap().response {
            Response::Error { code, .. } => ErrorCode::from_number(code).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let consistency = Consistency::Quorum;
    let (received, required, failures) = (1, 2, Vec::new());
    let read = || ErrorKind::ReadFailure {
        consistency,
        received,
        required,
        failures: failures.clone(),
        data_present: true,
    };
    let write = || ErrorKind::WriteFailure {
        consistency,
        received,
        required,
        failures: failures.clone(),
        write_type: WriteType::Simple,
    };
    let function = || ErrorKind::FunctionFailure {
        keyspace: "ks".to_owned(),
        function: "f".to_owned(),
        argument_types: vec!["int".to_owned()],
    };
    let unknown = || ErrorKind::CasWriteUnknown { consistency, received, required };
    assert_eq!(
        [read(), write(), function()].map(|kind| code(V3, kind)),
        [ErrorCode::ReadTimeout, ErrorCode::WriteTimeout, ErrorCode::Invalid]
    );
    assert_eq!(
        [read(), write(), function()].map(|kind| code(V4, kind)),
        [ErrorCode::ReadFailure, ErrorCode::WriteFailure, ErrorCode::FunctionFailure]
    );
    assert_eq!(code(V3, ErrorKind::CdcWriteFailure), ErrorCode::Invalid);
    assert_eq!(
        [V3, V4, V5].map(|version| code(version, unknown())),
        [ErrorCode::WriteTimeout, ErrorCode::WriteTimeout, ErrorCode::CasWriteUnknown]
    );
}

#[test]
fn a_message_longer_than_a_string_is_cut_at_a_character() {
    let message = format!("{}é", "x".repeat(65_534));
    let mut out = BytesMut::new();
    let error = ErrorResponse::new(ErrorKind::Invalid, message);
    response::encode_error(&mut out, V4, 1, &error, &NO_PREFIX);
    let (header, body) = split(&out);
    let Response::Error { message, .. } = client::decode_response(&header, body, false).unwrap().response
    else {
        panic!()
    };
    assert_eq!(message.len(), 65_534);
}

#[test]
fn types_missing_in_a_version_are_sent_as_class_names() {
    let types_sent = |version, cql_type: &CqlType| {
        let mut out = BytesMut::new();
        cql_lite::frame::type_codes::put_type(&mut out, version, cql_type);
        out
    };
    let class = |name: &str| {
        let mut bytes = vec![0, 0, 0, name.len() as u8];
        bytes.extend_from_slice(name.as_bytes());
        bytes
    };
    let cases = [
        (CqlType::Date, 0x11, "SimpleDateType"),
        (CqlType::Time, 0x12, "TimeType"),
        (CqlType::Smallint, 0x13, "ShortType"),
        (CqlType::Tinyint, 0x14, "ByteType"),
    ];
    for (cql_type, code, name) in cases {
        let name = format!("org.apache.cassandra.db.marshal.{name}");
        assert_eq!(types_sent(V3, &cql_type), class(&name));
        assert_eq!(types_sent(V4, &cql_type)[..], [0, code]);
    }
    assert_eq!(types_sent(V4, &CqlType::Duration), class("org.apache.cassandra.db.marshal.DurationType"));
    assert_eq!(types_sent(V5, &CqlType::Duration)[..], [0, 0x15]);
    let vector = CqlType::vector(CqlType::Float, 3);
    let name = "org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType, 3)";
    assert_eq!(types_sent(V5, &vector), class(name));
}

#[test]
fn the_envelope_writer_counts_body_bytes() {
    let mut out = BytesMut::from(&b"before"[..]);
    let mut envelope = EnvelopeWriter::begin(&mut out, V4, 7, cql_lite::frame::Opcode::Result);
    envelope.body().extend_from_slice(&[1, 2, 3]);
    assert_eq!(envelope.body_bytes(), 3);
    assert_eq!(envelope.version(), V4);
    envelope.finish(&NO_PREFIX);
    assert_eq!(hex(&out[6..]), "840000070800000003010203");
}
