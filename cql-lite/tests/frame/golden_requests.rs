//! Requests, byte for byte as drivers send them.

use bytes::BytesMut;
use cql_lite::frame::{
    Batch, BatchKind, BatchQuery, Consistency, DecodeError, Execute, Flags, Prepare, ProtocolVersion, Query,
    QueryParameters, Request, Value, client, decode_request,
};

use super::{hex, split, unhex};

/// The request encodes to these bytes, and these bytes decode to the request (encoding it again proves that).
fn check(version: ProtocolVersion, request: &Request<'_>, golden: &str) {
    let encode = |request: &Request<'_>| {
        let mut out = BytesMut::new();
        client::encode_request(&mut out, version, 1, Flags::NONE, &[], request);
        hex(&out)
    };
    assert_eq!(encode(request), golden);
    let bytes = unhex(golden);
    let (header, body) = split(&bytes);
    let decoded = decode_request(&header, body, false).unwrap();
    assert_eq!(encode(&decoded.request), golden);
    assert_eq!(format!("{:?}", decoded.request), format!("{request:?}"));
    assert!(!decoded.tracing);
    assert!(decoded.custom_payload.is_empty());
}

fn query(statement: &'static str, parameters: QueryParameters<'static>) -> Request<'static> {
    Request::Query(Query { statement, parameters })
}

fn decode_error(golden: &str) -> DecodeError {
    let bytes = unhex(golden);
    let (header, body) = split(&bytes);
    decode_request(&header, body, false).unwrap_err()
}

#[test]
fn options_startup_and_authentication() {
    use ProtocolVersion::V4;
    check(V4, &Request::Options, "040000010500000000");
    check(
        V4,
        &Request::Startup(vec![("CQL_VERSION", "3.4.7")]),
        "0400000101000000160001000b43514c5f56455253494f4e0005332e342e37",
    );
    check(V4, &Request::AuthResponse(Some(b"\0u\0p")), "040000010f000000080000000400750070");
}

#[test]
fn queries() {
    use ProtocolVersion::{V4, V5};
    let plain = query("SELECT 1", QueryParameters::new(Consistency::One));
    check(V4, &plain, "04000001070000000f0000000853454c4543542031000100");
    check(V5, &plain, "0500000107000000120000000853454c4543542031000100000000");
    let full = QueryParameters {
        page_size: Some(100),
        serial_consistency: Some(Consistency::LocalSerial),
        timestamp_us: Some(1),
        ..QueryParameters::new(Consistency::Quorum)
    };
    check(
        V4,
        &query("SELECT 1", full),
        "04000001070000001d0000000853454c45435420310004340000006400090000000000000001",
    );
    let keyspace = QueryParameters { keyspace: Some("ks"), ..QueryParameters::new(Consistency::One) };
    check(V5, &query("SELECT 1", keyspace), "0500000107000000160000000853454c454354203100010000008000026b73");
}

#[test]
fn prepare() {
    let request = |keyspace| Request::Prepare(Prepare { statement: "SELECT 1", keyspace });
    check(ProtocolVersion::V4, &request(None), "04000001090000000c0000000853454c4543542031");
    check(
        ProtocolVersion::V5,
        &request(Some("ks")),
        "0500000109000000140000000853454c45435420310000000100026b73",
    );
}

#[test]
fn execute() {
    let request = |result_metadata_id| {
        Request::Execute(Execute {
            id: &[1, 2],
            result_metadata_id,
            parameters: QueryParameters {
                values: [Value::Bytes(&[0, 0, 0, 1]), Value::Null, Value::Unset].into_iter().collect(),
                page_size: Some(5000),
                timestamp_us: Some(1),
                ..QueryParameters::new(Consistency::One)
            },
        })
    };
    check(
        ProtocolVersion::V4,
        &request(None),
        "040000010a000000250002010200012500030000000400000001fffffffffffffffe000013880000000000000001",
    );
    check(
        ProtocolVersion::V5,
        &request(Some(&[0xee, 0xff])),
        "050000010a0000002c000201020002eeff00010000002500030000000400000001fffffffffffffffe000013880000000000000001",
    );
}

#[test]
fn batches() {
    let mut batch = Batch::new(BatchKind::Unlogged, Consistency::One);
    batch.push(BatchQuery::Text("Q"), &[]);
    batch.push(BatchQuery::Prepared(&[1]), &[Value::Bytes(b"v")]);
    batch.timestamp_us = Some(1);
    let request = Request::Batch(batch);
    check(
        ProtocolVersion::V4,
        &request,
        "040000010d00000021010002000000000151000001000101000100000001760001200000000000000001",
    );
    check(
        ProtocolVersion::V5,
        &request,
        "050000010d00000024010002000000000151000001000101000100000001760001000000200000000000000001",
    );
    let mut empty = Batch::new(BatchKind::Logged, Consistency::One);
    empty.keyspace = Some("ks");
    check(ProtocolVersion::V5, &Request::Batch(empty), "050000010d0000000d00000000010000008000026b73");
}

#[test]
fn the_statements_of_a_batch_come_with_their_own_values() {
    let mut batch = Batch::new(BatchKind::Logged, Consistency::One);
    batch.push(BatchQuery::Text("A"), &[Value::Null, Value::Bytes(b"a")]);
    batch.push(BatchQuery::Text("B"), &[]);
    batch.push(BatchQuery::Prepared(b"C"), &[Value::Unset]);
    let statements: Vec<_> = batch.statements().collect();
    assert_eq!(statements[0], (BatchQuery::Text("A"), &[Value::Null, Value::Bytes(b"a")][..]));
    assert_eq!(statements[1], (BatchQuery::Text("B"), &[][..]));
    assert_eq!(statements[2], (BatchQuery::Prepared(b"C"), &[Value::Unset][..]));
    assert_eq!(batch.len(), 3);
}

#[test]
fn an_execute_with_the_values_flag_and_no_values_is_accepted() {
    let bytes = unhex("040000010a00000009 00020102 0001 01 0000");
    let (header, body) = split(&bytes);
    let Request::Execute(execute) = decode_request(&header, body, false).unwrap().request else { panic!() };
    assert!(execute.parameters.values.is_empty());
}

#[test]
fn with_the_metadata_id_extension_a_v4_execute_carries_the_id() {
    let bytes = unhex("040000010a0000000b 00020102 0002eeff 0001 00");
    let (header, body) = split(&bytes);
    let Request::Execute(execute) = decode_request(&header, body, true).unwrap().request else { panic!() };
    assert_eq!(execute.result_metadata_id, Some(&[0xee, 0xff][..]));
}

#[test]
fn tracing_and_custom_payload_are_decoded() {
    let bytes = unhex("040600010700000019 0001 0001 6b 00000001 76 00000008 53454c4543542031 0001 00");
    let (header, body) = split(&bytes);
    let decoded = decode_request(&header, body, false).unwrap();
    assert!(decoded.tracing);
    assert_eq!(decoded.custom_payload, [("k", Some(&b"v"[..]))]);
}

#[test]
fn fields_of_later_versions_are_rejected_in_v3() {
    let unset = decode_error("030000010700000009 00000000 0001 01 0001");
    assert!(matches!(unset, DecodeError::Truncated { .. }));
    let unset = decode_error("03000001070000000d 00000000 0001 01 0001 fffffffe");
    assert_eq!(unset.to_string(), "Unset values require protocol version 4 or higher");
    let payload = decode_error("030400010500000000");
    assert_eq!(payload, DecodeError::PayloadInV3);
}

#[test]
fn flags_that_mean_nothing_are_passed_over() {
    let parameters = |text: &str| {
        let bytes = unhex(text);
        let (header, body) = split(&bytes);
        let Request::Query(query) = decode_request(&header, body, false).unwrap().request else { panic!() };
        assert!(query.parameters.values.is_empty() && query.parameters.names.is_empty());
        query.parameters.keyspace.map(str::to_owned)
    };
    // Names without values.
    assert_eq!(parameters("040000010700000007 00000000 0001 40"), None);
    assert_eq!(
        parameters("050000010700000012 00000000 0001 fffffe80 0002 6b73 00000000"),
        Some("ks".to_owned())
    );
    // The keyspace is not only for v5.
    assert_eq!(parameters("04000001070000000b 00000000 0001 80 0002 6b73"), Some("ks".to_owned()));
    let prepare = unhex("05000001090000000b 00000003 414243 fffffffe");
    let (header, body) = split(&prepare);
    let Request::Prepare(prepare) = decode_request(&header, body, false).unwrap().request else { panic!() };
    assert_eq!((prepare.statement, prepare.keyspace), ("ABC", None));
    // A batch has the same parameters; only its statements have values.
    let batch = unhex("040000010d0000000c 00 0000 0001 45 0000 00000005");
    let (header, body) = split(&batch);
    let Request::Batch(batch) = decode_request(&header, body, false).unwrap().request else { panic!() };
    assert!(batch.is_empty());
}

#[test]
fn malformed_fields_are_named() {
    assert_eq!(
        decode_error("040000010700000007 00000000 00ff 00").to_string(),
        "Unknown code 255 for a consistency level"
    );
    assert_eq!(
        decode_error("04000001070000000f 00000000 0001 20 8000000000000000").to_string(),
        "Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807] (got -9223372036854775808)"
    );
    assert!(matches!(
        decode_error("040000010700000007 7fffffff 0001 00"),
        DecodeError::Truncated { what: "the statement", .. }
    ));
    assert!(matches!(
        decode_error("040000010700000009 00000002 fffe 0001 00"),
        DecodeError::InvalidUtf8 { .. }
    ));
    assert!(matches!(
        decode_error("04000001070000000d 00000000 0001 01 0001 fffffffd"),
        DecodeError::InvalidLength { length: -3, .. }
    ));
    assert_eq!(decode_error("040000010d00000006 03 0000 0001 00"), DecodeError::UnknownBatchType { kind: 3 });
    assert!(matches!(
        decode_error("040000010b00000007 0001 0003 424144"),
        DecodeError::UnknownEventType { .. }
    ));
    assert_eq!(decode_error("040000010200000000"), DecodeError::UnexpectedOpcode { opcode: "READY" });
}
