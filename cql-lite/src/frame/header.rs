//! The envelope header: nine bytes in every supported version.
//!
//! ```text
//! version (1; bit 0x80: a response) | flags (1) | stream (i16) | opcode (1) | body length (i32)
//! ```
//!
//! All numbers are big endian. The version is checked first, because a client of an unknown version must receive an
//! answer that makes it downgrade (`write_unsupported_version` in `response`).

use bytes::{BufMut, BytesMut};

use super::{error::FrameError, version::ProtocolVersion};

/// Length of an envelope header.
pub const HEADER_BYTES: usize = 9;

/// Header length of versions 1 and 2, whose stream id is one byte.
const LEGACY_HEADER_BYTES: usize = 8;

/// The bit of the version byte that marks a response.
pub(super) const RESPONSE_BIT: u8 = 0x80;

/// The kind of a message, numbered as in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    Error = 0x00,
    Startup = 0x01,
    Ready = 0x02,
    Authenticate = 0x03,
    Options = 0x05,
    Supported = 0x06,
    Query = 0x07,
    Result = 0x08,
    Prepare = 0x09,
    Execute = 0x0A,
    Register = 0x0B,
    Event = 0x0C,
    Batch = 0x0D,
    AuthChallenge = 0x0E,
    AuthResponse = 0x0F,
    AuthSuccess = 0x10,
}

impl Opcode {
    /// The opcode with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0x00 => Self::Error,
            0x01 => Self::Startup,
            0x02 => Self::Ready,
            0x03 => Self::Authenticate,
            0x05 => Self::Options,
            0x06 => Self::Supported,
            0x07 => Self::Query,
            0x08 => Self::Result,
            0x09 => Self::Prepare,
            0x0A => Self::Execute,
            0x0B => Self::Register,
            0x0C => Self::Event,
            0x0D => Self::Batch,
            0x0E => Self::AuthChallenge,
            0x0F => Self::AuthResponse,
            0x10 => Self::AuthSuccess,
            _ => return None,
        })
    }

    /// The name in the protocol specification.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Startup => "STARTUP",
            Self::Ready => "READY",
            Self::Authenticate => "AUTHENTICATE",
            Self::Options => "OPTIONS",
            Self::Supported => "SUPPORTED",
            Self::Query => "QUERY",
            Self::Result => "RESULT",
            Self::Prepare => "PREPARE",
            Self::Execute => "EXECUTE",
            Self::Register => "REGISTER",
            Self::Event => "EVENT",
            Self::Batch => "BATCH",
            Self::AuthChallenge => "AUTH_CHALLENGE",
            Self::AuthResponse => "AUTH_RESPONSE",
            Self::AuthSuccess => "AUTH_SUCCESS",
        }
    }
}

/// The flags byte of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The body is compressed (v3 and v4; ignored in v5).
    pub(crate) const COMPRESSED: Self = Self(0x01);
    /// In a request: enable tracing. In a response: the body starts with a tracing id.
    pub const TRACING: Self = Self(0x02);
    /// The body contains a custom payload (since v4).
    pub(crate) const CUSTOM_PAYLOAD: Self = Self(0x04);
    /// The body of a response contains warnings (since v4).
    pub const WARNING: Self = Self(0x08);
    /// The client agrees to a beta version; in each message of such a version.
    pub const USE_BETA: Self = Self(0x10);

    /// No flag.
    pub const NONE: Self = Self(0);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without the bits of `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A parsed header of a known version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub version: ProtocolVersion,
    /// Whether the response bit was set.
    pub is_response: bool,
    pub flags: Flags,
    /// The stream id, which links a response to its request; -1 for events.
    pub stream: i16,
    pub opcode: Opcode,
    /// Length of the body as sent (before decompression).
    pub body_bytes: usize,
}

/// A header whose opcode may be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsed {
    pub header: Result<Header, u8>,
    pub version: ProtocolVersion,
    pub stream: i16,
    pub body_bytes: usize,
}

/// Reads the header at the start of `input`. `None` if more bytes are needed. An unknown opcode is an error only in
/// [`Parsed::header`]: the length is still known, so that the reader can skip the body.
pub fn parse(input: &[u8]) -> Result<Option<Parsed>, FrameError> {
    let Some(&version_byte) = input.first() else { return Ok(None) };
    let number = version_byte & !RESPONSE_BIT;
    let Some(version) = ProtocolVersion::from_number(number) else { return unsupported(number, input) };
    let Some(&[_, flags, stream_high, stream_low, opcode, l0, l1, l2, l3]) =
        input.first_chunk::<HEADER_BYTES>()
    else {
        return Ok(None);
    };
    let stream = i16::from_be_bytes([stream_high, stream_low]);
    if version.is_beta() && !Flags(flags).contains(Flags::USE_BETA) {
        return Err(FrameError::BetaNotRequested { version, stream });
    }
    let length = i32::from_be_bytes([l0, l1, l2, l3]);
    let body_bytes =
        usize::try_from(length).map_err(|_| FrameError::NegativeLength { version, stream, length })?;
    let header = Opcode::from_number(opcode).ok_or(opcode).map(|opcode| Header {
        version,
        is_response: version_byte & RESPONSE_BIT != 0,
        flags: Flags(flags),
        stream,
        opcode,
        body_bytes,
    });
    Ok(Some(Parsed { header, version, stream, body_bytes }))
}

/// Returns the error for an unknown version, as soon as the stream id has arrived.
fn unsupported(number: u8, input: &[u8]) -> Result<Option<Parsed>, FrameError> {
    let legacy = number == 1 || number == 2;
    let needed = if legacy { LEGACY_HEADER_BYTES } else { HEADER_BYTES };
    match *input {
        [_, _, high, low, ..] if input.len() >= needed => {
            let stream = if legacy { i16::from(high as i8) } else { i16::from_be_bytes([high, low]) };
            Err(FrameError::UnsupportedVersion { number, stream })
        }
        _ => Ok(None),
    }
}

/// Appends a header with a body length of zero. [`patch_body_length`] sets the length after the body is written.
pub(crate) fn write_response_header(
    out: &mut BytesMut,
    version: ProtocolVersion,
    flags: Flags,
    stream: i16,
    opcode: Opcode,
) {
    write_header(out, version.number() | RESPONSE_BIT, with_beta(flags, version), stream, opcode);
}

/// Like [`write_response_header`], for a request.
pub(crate) fn write_request_header(
    out: &mut BytesMut,
    version: ProtocolVersion,
    flags: Flags,
    stream: i16,
    opcode: Opcode,
) {
    write_header(out, version.number(), with_beta(flags, version), stream, opcode);
}

fn with_beta(flags: Flags, version: ProtocolVersion) -> Flags {
    if version.is_beta() { flags.with(Flags::USE_BETA) } else { flags }
}

fn write_header(out: &mut BytesMut, version_byte: u8, flags: Flags, stream: i16, opcode: Opcode) {
    let [high, low] = stream.to_be_bytes();
    out.put_slice(&[version_byte, flags.0, high, low, opcode as u8, 0, 0, 0, 0]);
}

/// Sets the body length in the header at `start` to the number of bytes that follow the header.
pub(crate) fn patch_body_length(out: &mut BytesMut, start: usize) {
    let length = out.len().saturating_sub(start + HEADER_BYTES);
    debug_assert!(i32::try_from(length).is_ok(), "a body of 2 GiB");
    let length = length as u32;
    if let Some(field) = out.get_mut(start + 5..start + HEADER_BYTES) {
        field.copy_from_slice(&length.to_be_bytes());
    }
}

/// Adds a flag to the header at `start`.
pub(super) fn add_flags(out: &mut BytesMut, start: usize, flags: Flags) {
    if let Some(byte) = out.get_mut(start + 1) {
        *byte |= flags.0;
    }
}
