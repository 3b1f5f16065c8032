//! Bare envelopes: chunks, limits, versions, and compressed bodies of v3 and v4.

use bytes::BytesMut;
use cql_lite::frame::{
    Compression, Decoder, FrameError, ProtocolVersion, Role,
    compression::{compress_envelope, decompress_body},
    error::DecompressError,
};

use super::{hex, unhex};

fn next_error(decoder: &mut Decoder, text: &str) -> FrameError {
    decoder.next(&mut BytesMut::from(&unhex(text)[..])).unwrap_err()
}

fn server() -> Decoder {
    Decoder::new(Role::Server, 1_000)
}

#[test]
fn envelopes_come_out_whatever_the_chunks() {
    let bytes = unhex("0400000105000000000400000207000000020a0b040000030500000000");
    for chunk in 1..=bytes.len() {
        let (mut decoder, mut input, mut streams) = (server(), BytesMut::new(), Vec::new());
        for part in bytes.chunks(chunk) {
            input.extend_from_slice(part);
            while let Some(envelope) = decoder.next(&mut input).unwrap() {
                streams.push((envelope.header.stream, envelope.body.to_vec()));
            }
        }
        assert_eq!(streams, [(1, vec![]), (2, vec![10, 11]), (3, vec![])]);
        assert_eq!(decoder.version(), Some(ProtocolVersion::V4));
    }
}

#[test]
fn an_unknown_version_is_told_with_the_stream_to_answer_on() {
    let error = next_error(&mut server(), "420000070500000000");
    assert_eq!(error, FrameError::UnsupportedVersion { number: 66, stream: 7 });
    assert_eq!(error.reply_to(), Some((ProtocolVersion::V5, 7)));
    assert!(error.is_fatal());
    // The headers of the first two versions are a byte shorter.
    let error = next_error(&mut server(), "0200070500000000");
    assert_eq!(error, FrameError::UnsupportedVersion { number: 2, stream: 7 });
}

#[test]
fn a_beta_version_is_refused_unless_the_client_asks_for_it() {
    let error = next_error(&mut server(), "060000070500000000");
    assert_eq!(error, FrameError::BetaNotRequested { version: ProtocolVersion::V6, stream: 7 });
    assert_eq!(
        error.to_string(),
        "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset"
    );
    assert_eq!(error.reply_to(), Some((ProtocolVersion::V6, 7)));
    assert!(error.is_fatal());
    let mut decoder = server();
    assert!(decoder.next(&mut BytesMut::from(&unhex("061000070500000000")[..])).unwrap().is_some());
    assert_eq!(decoder.version(), Some(ProtocolVersion::V6));
}

#[test]
fn unknown_flags_of_a_header_mean_nothing() {
    let mut input = BytesMut::from(&unhex("04e000010500000000")[..]);
    assert!(server().next(&mut input).unwrap().is_some());
}

#[test]
fn the_version_of_a_connection_does_not_change() {
    let mut decoder = server();
    let mut input = BytesMut::from(&unhex("040000010500000000 030000010500000000")[..]);
    assert!(decoder.next(&mut input).unwrap().is_some());
    assert_eq!(
        decoder.next(&mut input).unwrap_err().to_string(),
        "Invalid message version. Got 3 but previous messages on this connection had version 4"
    );
}

#[test]
fn responses_are_refused_by_a_server_and_requests_by_a_client() {
    assert!(matches!(next_error(&mut server(), "840000010500000000"), FrameError::WrongDirection { .. }));
    let mut client = Decoder::new(Role::Client, 1_000);
    assert!(matches!(next_error(&mut client, "040000010500000000"), FrameError::WrongDirection { .. }));
}

#[test]
fn a_negative_length_is_fatal() {
    let error = next_error(&mut server(), "0400000105ffffffff");
    assert!(matches!(error, FrameError::NegativeLength { length: -1, .. }));
    assert!(error.is_fatal());
}

#[test]
fn an_envelope_over_the_limit_is_skipped_as_it_arrives() {
    let mut decoder = server();
    let mut input = BytesMut::from(&unhex("040000050700002710")[..]);
    let error = decoder.next(&mut input).unwrap_err();
    assert_eq!(error.to_string(), "Request is too big: length 10000 exceeds maximum allowed length 1000.");
    assert_eq!(error.reply_to(), Some((ProtocolVersion::V4, 5)));
    assert!(!error.is_fatal());
    for _ in 0..10 {
        input.extend_from_slice(&[0; 1_000]);
        assert_eq!(decoder.next(&mut input), Ok(None));
        assert!(input.is_empty());
    }
    input.extend_from_slice(&unhex("040000060500000000"));
    assert_eq!(decoder.next(&mut input).unwrap().unwrap().header.stream, 6);
}

#[test]
fn an_unknown_opcode_is_skipped() {
    let mut decoder = server();
    let mut input = BytesMut::from(&unhex("04000001 04 00000002 0a0b 040000020500000000")[..]);
    assert!(matches!(decoder.next(&mut input), Err(FrameError::UnknownOpcode { opcode: 4, stream: 1, .. })));
    assert_eq!(decoder.next(&mut input).unwrap().unwrap().header.stream, 2);
}

#[test]
fn the_lz4_vector_decompresses() {
    let mut output = Vec::new();
    decompress_body(Compression::Lz4, &unhex("00000008802c20576f726c6421"), 100, &mut output).unwrap();
    assert_eq!(output, b", World!");
}

#[test]
fn compressed_envelopes_come_out_as_they_went_in() {
    for compression in [Compression::Lz4, Compression::Snappy] {
        let body = b"0123456789".repeat(50);
        let mut out = BytesMut::from(&b"before"[..]);
        let mut envelope = unhex("0400000107");
        envelope.extend_from_slice(&(body.len() as u32).to_be_bytes());
        envelope.extend_from_slice(&body);
        out.extend_from_slice(&envelope);
        compress_envelope(&mut out, 6, compression);
        assert!(out.len() < envelope.len() / 2);

        let mut input = out.split_off(6);
        let mut decoder = server();
        decoder.set_compression(compression);
        assert_eq!(decoder.next(&mut input).unwrap().unwrap().body, body);
        assert_eq!(decoder.next(&mut input), Ok(None));
    }
}

#[test]
fn short_bodies_stay_as_they_are() {
    let envelope = unhex("04000001070000000400000000");
    let mut out = BytesMut::from(&envelope[..]);
    compress_envelope(&mut out, 0, Compression::Lz4);
    assert_eq!(hex(&out), hex(&envelope));
}

#[test]
fn compression_must_be_negotiated() {
    let mut decoder = server();
    let mut input = BytesMut::from(&unhex("04010001070000000400000000 040000020500000000")[..]);
    let error = decoder.next(&mut input).unwrap_err();
    assert!(matches!(error, FrameError::CompressionNotNegotiated { stream: 1, .. }));
    assert!(!error.is_fatal());
    assert_eq!(decoder.next(&mut input).unwrap().unwrap().header.stream, 2);
}

#[test]
fn bombs_are_refused_before_memory_is_taken() {
    let mut output = Vec::new();
    let mut refuse = |compression, body: &str| {
        let error = decompress_body(compression, &unhex(body), 1 << 20, &mut output).unwrap_err();
        assert!(output.capacity() < 4096);
        error
    };
    assert!(matches!(refuse(Compression::Lz4, "7fffffff00"), DecompressError::TooLarge { .. }));
    assert!(matches!(refuse(Compression::Lz4, "000fffff00"), DecompressError::ImplausibleRatio { .. }));
    assert!(matches!(refuse(Compression::Snappy, "ffffffff0700"), DecompressError::TooLarge { .. }));
    assert!(matches!(refuse(Compression::Snappy, "ffff3f00"), DecompressError::ImplausibleRatio { .. }));
    assert_eq!(refuse(Compression::Lz4, "0000"), DecompressError::NoLength);
    assert!(matches!(
        refuse(Compression::Lz4, "00000009802c20576f726c6421"),
        DecompressError::LengthMismatch { declared: 9, actual: 8 }
    ));
}

#[test]
fn names_of_compression_are_matched_in_any_case() {
    assert_eq!(Compression::from_name("LZ4"), Some(Compression::Lz4));
    assert_eq!(Compression::from_name("snappy"), Some(Compression::Snappy));
    assert_eq!(Compression::from_name("zstd"), None);
}
