//! Bytes from a socket: decoding must not panic, and a decoded request must decode the same after encoding.
//!
//! The first byte selects the setup of the connection (segments, compression, size of the chunks); the rest is input.

#![no_main]

use bytes::BytesMut;
use cql_lite::frame::{
    Compression, Decoder, Envelope, Execute, Flags, HEADER_BYTES, ProtocolVersion, Query, Request, Role,
    client::{self, Response},
    decode_request, header, sasl_plain,
    segment::SegmentFormat,
};
use libfuzzer_sys::fuzz_target;

const BODY_BYTES_MAX: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&setup, bytes)) = data.split_first() else { return };
    let role = if setup & 0x80 == 0 { Role::Server } else { Role::Client };
    let mut decoder = Decoder::new(role, BODY_BYTES_MAX);
    match setup & 0x03 {
        1 => decoder.start_segments(SegmentFormat::Plain),
        2 => decoder.start_segments(SegmentFormat::Lz4),
        3 => decoder.set_compression(if setup & 0x04 == 0 { Compression::Lz4 } else { Compression::Snappy }),
        _ => {}
    }
    let mut input = BytesMut::new();
    for chunk in bytes.chunks(usize::from(setup >> 3 & 0x0F) * 16 + 1) {
        input.extend_from_slice(chunk);
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(envelope)) => decode(role, &envelope),
                Err(error) if error.is_fatal() => return,
                Err(_) => {}
            }
        }
    }
});

fn decode(role: Role, envelope: &Envelope<'_>) {
    if role == Role::Client {
        if let Ok(decoded) = client::decode_response(&envelope.header, envelope.body, false)
            && let Response::Rows(rows) = decoded.response
        {
            let _ = rows.rows();
        }
        return;
    }
    let Ok(mut decoded) = decode_request(&envelope.header, envelope.body, false) else { return };
    if let Request::AuthResponse(token) = &decoded.request {
        log_in(token.unwrap_or_default());
    }
    let mut again = BytesMut::new();
    let version = envelope.header.version;
    if version < ProtocolVersion::V5 {
        // As in Cassandra, the keyspace is read in every version, and written from v5 on.
        match &mut decoded.request {
            Request::Query(Query { parameters, .. }) | Request::Execute(Execute { parameters, .. }) => {
                parameters.keyspace = None;
            }
            Request::Batch(batch) => batch.keyspace = None,
            _ => {}
        }
    }
    let flags = if decoded.tracing { Flags::TRACING } else { Flags::NONE };
    client::encode_request(&mut again, version, 0, flags, &decoded.custom_payload, &decoded.request);
    let parsed = header::parse(&again).expect("a known version").expect("a whole header");
    let header = parsed.header.expect("a known opcode");
    let second = decode_request(&header, &again[HEADER_BYTES..], false).expect("it decoded before");
    assert_eq!(format!("{decoded:?}"), format!("{second:?}"));
}

/// What a token says is what it would say if a client wrote it anew.
fn log_in(token: &[u8]) {
    let Ok(credentials) = sasl_plain::decode(token) else { return };
    assert!(!credentials.role.is_empty() && !credentials.password.is_empty());
    let written = format!("\0{}\0{}", credentials.role, credentials.password);
    let again = sasl_plain::decode(written.as_bytes()).expect("it has a name and a password");
    assert_eq!((credentials.role, credentials.password), (again.role, again.password));
}
