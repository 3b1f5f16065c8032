//! The records of the full query log. `docs/formats.md` describes them for others.
//!
//! A file begins with [`HEAD`]. Then come records: length of the body (u32), CRC-32 of the body (u32), body; numbers are big endian. The
//! first byte of a body says its kind. A request is kept as a QUERY or BATCH of version 5 of the native protocol, whatever the client has
//! sent: with the texts of prepared statements, its values, levels and times, and the keyspace of names without one.
//!
//! Invariant: decoding never trusts a length or a number of a file.

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BytesMut};
use cql_lite::frame::client::encode_request;
use cql_lite::frame::{Flags, HEADER_BYTES, Header, Opcode, ProtocolVersion, Request, decode_request};
use thiserror::Error;

/// What a file begins with: a name, and the version of the format.
pub const HEAD: &[u8; 8] = b"HELFQL\x00\x01";
/// Length and checksum of a record.
pub const RECORD_HEAD_BYTES: usize = 8;
/// The longest body that is read.
pub const BODY_BYTES_MAX: usize = 320 << 20;

const KIND_GAP: u8 = 0;
const KIND_REQUEST: u8 = 1;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Without rows.
    Done,
    /// It returned a page with this number of rows.
    Rows(u64),
    /// With this error of the protocol.
    Error(u32),
}

/// A request, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRequest {
    /// When it arrived, in microseconds since the epoch.
    pub started_micros: i64,
    pub duration_micros: u64,
    /// The client's address.
    pub source: SocketAddr,
    /// The version in which the client has sent it.
    pub version: u8,
    /// Empty: the client has not logged in.
    pub user: String,
    pub outcome: Outcome,
    pub opcode: Opcode,
    /// QUERY or BATCH, version 5.
    pub body: Vec<u8>,
}

/// A record of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Request(RecordedRequest),
    /// So many requests are missing.
    Gap(u64),
}

/// What is wrong with the body of a record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecordError {
    #[error("the record ends early")]
    Short,
    #[error("the kind of record {0} is not known")]
    Kind(u8),
    #[error("the record is not valid: {0}")]
    Invalid(&'static str),
    #[error("the request cannot be read: {0}")]
    Request(String),
}

/// The body of a request, version 5.
pub fn request_body(request: &Request<'_>) -> Vec<u8> {
    let mut envelope = BytesMut::new();
    encode_request(&mut envelope, ProtocolVersion::V5, 0, Flags::NONE, &[], request);
    envelope.advance(HEADER_BYTES);
    envelope.to_vec()
}

impl RecordedRequest {
    /// The request.
    pub fn request(&self) -> Result<Request<'_>, RecordError> {
        let header = Header {
            version: ProtocolVersion::V5,
            is_response: false,
            flags: Flags::NONE,
            stream: 0,
            opcode: self.opcode,
            body_bytes: self.body.len(),
        };
        let decoded = decode_request(&header, &self.body, true);
        decoded.map(|decoded| decoded.request).map_err(|error| RecordError::Request(error.to_string()))
    }
}

impl Record {
    /// The record with length and checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; RECORD_HEAD_BYTES];
        match self {
            Self::Gap(missing) => {
                bytes.push(KIND_GAP);
                bytes.extend(missing.to_be_bytes());
            }
            Self::Request(request) => {
                bytes.push(KIND_REQUEST);
                bytes.extend(request.started_micros.to_be_bytes());
                bytes.extend(request.duration_micros.to_be_bytes());
                match request.source.ip() {
                    IpAddr::V4(address) => {
                        bytes.push(4);
                        bytes.extend(address.octets());
                    }
                    IpAddr::V6(address) => {
                        bytes.push(16);
                        bytes.extend(address.octets());
                    }
                }
                bytes.extend(request.source.port().to_be_bytes());
                bytes.push(request.version);
                let user = &request.user.as_bytes()[..request.user.len().min(usize::from(u16::MAX))];
                bytes.extend((user.len() as u16).to_be_bytes());
                bytes.extend(user);
                let (kind, number) = match request.outcome {
                    Outcome::Done => (0, 0),
                    Outcome::Rows(rows) => (1, rows),
                    Outcome::Error(code) => (2, u64::from(code)),
                };
                bytes.push(kind);
                bytes.extend(number.to_be_bytes());
                bytes.push(request.opcode as u8);
                bytes.extend(&request.body);
            }
        }
        let body = &bytes[RECORD_HEAD_BYTES..];
        let (length, checksum) = (body.len() as u32, crc32fast::hash(body));
        bytes[..4].copy_from_slice(&length.to_be_bytes());
        bytes[4..RECORD_HEAD_BYTES].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// Decodes a body whose checksum was right.
    pub fn decode(mut body: &[u8]) -> Result<Self, RecordError> {
        let short = |_| RecordError::Short;
        let input = &mut body;
        match input.try_get_u8().map_err(short)? {
            KIND_GAP => return input.try_get_u64().map(Self::Gap).map_err(short),
            KIND_REQUEST => {}
            kind => return Err(RecordError::Kind(kind)),
        }
        let started_micros = input.try_get_i64().map_err(short)?;
        let duration_micros = input.try_get_u64().map_err(short)?;
        let address: IpAddr = match input.try_get_u8().map_err(short)? {
            4 => input.try_get_u32().map_err(short)?.to_be_bytes().into(),
            16 => input.try_get_u128().map_err(short)?.to_be_bytes().into(),
            _ => return Err(RecordError::Invalid("the length of an address is 4 or 16")),
        };
        let source = SocketAddr::new(address, input.try_get_u16().map_err(short)?);
        let version = input.try_get_u8().map_err(short)?;
        let length = usize::from(input.try_get_u16().map_err(short)?);
        let (user, rest) = input.split_at_checked(length).ok_or(RecordError::Short)?;
        *input = rest;
        let user = String::from_utf8_lossy(user).into_owned();
        let kind = input.try_get_u8().map_err(short)?;
        let number = input.try_get_u64().map_err(short)?;
        let outcome = match kind {
            0 => Outcome::Done,
            1 => Outcome::Rows(number),
            2 => Outcome::Error(
                u32::try_from(number).map_err(|_| RecordError::Invalid("a code of an error has 32 bits"))?,
            ),
            _ => return Err(RecordError::Invalid("the kind of an outcome is 0, 1 or 2")),
        };
        let opcode = Opcode::from_number(input.try_get_u8().map_err(short)?);
        let Some(opcode @ (Opcode::Query | Opcode::Batch)) = opcode else {
            return Err(RecordError::Invalid("a request is QUERY or BATCH"));
        };
        let body = input.to_vec();
        let request =
            RecordedRequest { started_micros, duration_micros, source, version, user, outcome, opcode, body };
        request.request()?;
        Ok(Self::Request(request))
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use cql_lite::frame::{Consistency, Query, QueryParameters, Value};

    use super::*;

    /// A request with one value.
    pub fn request(started_micros: i64, port: u16, text: &str) -> RecordedRequest {
        let mut parameters = QueryParameters::new(Consistency::Quorum);
        parameters.values.push(Value::Bytes(&[0, 0, 0, 7]));
        parameters.timestamp_us = Some(5);
        parameters.keyspace = Some("ks");
        let query = Request::Query(Query { statement: text, parameters });
        RecordedRequest {
            started_micros,
            duration_micros: 250,
            source: SocketAddr::from(([10, 0, 0, 7], port)),
            version: 4,
            user: "alice".to_owned(),
            outcome: Outcome::Rows(3),
            opcode: Opcode::Query,
            body: request_body(&query),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex_digits(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |bits: u8| char::from(DIGITS[usize::from(bits)]);
        bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }

    #[test]
    fn the_format_has_these_bytes() {
        let record =
            Record::Request(samples::request(1_700_000_000_000_000, 4711, "SELECT v FROM t WHERE k = ?"));
        let hex = hex_digits(&record.encode());
        let expected = concat!(
            "00000065",
            "f47a1be3", // length, checksum
            "01",
            "00060a24181e4000",
            "00000000000000fa", // a request, its start, its duration
            "04",
            "0a000007",
            "1267",
            "04", // from 10.0.0.7:4711, in version 4
            "0005",
            "616c696365", // alice
            "01",
            "0000000000000003", // three rows
            "07",               // QUERY
            "0000001b",
            "53454c45435420762046524f4d2074205748455245206b203d203f", // its text
            "0004",
            "000000a1",
            "0001",
            "00000004",
            "00000007", // QUORUM, flags, one value
            "0000000000000005",
            "0002",
            "6b73", // timestamp, keyspace
        );
        assert_eq!(hex, expected);
        assert_eq!(Record::decode(&record.encode()[RECORD_HEAD_BYTES..]).unwrap(), record);
        let gap = Record::Gap(5);
        assert_eq!(gap.encode()[8..], [0, 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(Record::decode(&gap.encode()[RECORD_HEAD_BYTES..]).unwrap(), gap);
    }

    #[test]
    fn damaged_bodies_are_errors() {
        let whole = Record::Request(samples::request(1, 1, "SELECT")).encode();
        let body = &whole[RECORD_HEAD_BYTES..];
        for length in 0..body.len() {
            assert!(Record::decode(&body[..length]).is_err(), "{length}");
        }
        for index in 0..body.len() {
            let mut changed = body.to_vec();
            changed[index] ^= 0xff;
            // Whatever it says: it ends.
            let _ = Record::decode(&changed);
        }
        assert_eq!(Record::decode(&[9]), Err(RecordError::Kind(9)));
    }
}
