//! Behaviour of the native protocol codec, as its users see it.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod decoding;
mod golden_requests;
mod golden_responses;
mod properties;
mod segments;

use cql_lite::frame::{HEADER_BYTES, Header, Opcode, ProtocolVersion, header};

/// Bytes of hex digits; blanks are skipped.
fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|digit| !digit.is_whitespace())
        .map(|digit| digit.to_digit(16).unwrap() as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The header and body of the one envelope in `bytes`.
fn split(bytes: &[u8]) -> (Header, &[u8]) {
    let header = header::parse(bytes).unwrap().unwrap().header.unwrap();
    assert_eq!(bytes.len(), HEADER_BYTES + header.body_bytes);
    (header, &bytes[HEADER_BYTES..])
}

#[test]
fn opcodes_and_versions_map_to_their_numbers_and_back() {
    for number in 0..=u8::MAX {
        if let Some(opcode) = Opcode::from_number(number) {
            assert_eq!(opcode as u8, number);
        }
        if let Some(version) = ProtocolVersion::from_number(number) {
            assert_eq!(version.number(), number);
        }
    }
    assert_eq!((0..=u8::MAX).filter_map(Opcode::from_number).count(), 16);
}
