//! Errors of decoding: [`FrameError`] for envelopes and segments, [`DecodeError`] for message bodies. Both are sent to
//! the client as PROTOCOL errors with these texts.

use super::version::ProtocolVersion;

/// A malformed envelope or segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Drivers match on this text to downgrade.
    #[error(
        "Invalid or unsupported protocol version ({number}); supported versions are ({})",
        supported_versions()
    )]
    UnsupportedVersion { number: u8, stream: i16 },
    #[error("Beta version of the protocol used ({}), but USE_BETA flag is unset", version.name())]
    BetaNotRequested { version: ProtocolVersion, stream: i16 },
    #[error(
        "Invalid message version. Got {got} but previous messages on this connection had version {expected}",
        got = got.number(), expected = expected.number()
    )]
    VersionChanged { got: ProtocolVersion, expected: ProtocolVersion, stream: i16 },
    #[error("Wrong protocol direction, expected a {expected} but got the opposite")]
    WrongDirection { expected: &'static str, version: ProtocolVersion, stream: i16 },
    #[error("Unknown opcode {opcode}")]
    UnknownOpcode { opcode: u8, version: ProtocolVersion, stream: i16 },
    #[error("Invalid message length {length}")]
    NegativeLength { length: i32, version: ProtocolVersion, stream: i16 },
    /// The body is skipped as it arrives; the connection stays usable.
    #[error("Request is too big: length {length} exceeds maximum allowed length {limit}.")]
    TooLarge { length: usize, limit: usize, version: ProtocolVersion, stream: i16 },
    #[error("Received a compressed frame but compression was not negotiated")]
    CompressionNotNegotiated { version: ProtocolVersion, stream: i16 },
    #[error("Could not decompress the frame: {reason}")]
    BodyDecompression { reason: DecompressError, version: ProtocolVersion, stream: i16 },
    #[error("Corrupt segment header: CRC24 is {read:06x}, should be {computed:06x}")]
    SegmentHeaderCorrupt { read: u32, computed: u32 },
    #[error("Corrupt segment payload: CRC32 is {read:08x}, should be {computed:08x}")]
    SegmentPayloadCorrupt { read: u32, computed: u32 },
    #[error("Could not decompress the segment: {0}")]
    SegmentDecompression(DecompressError),
    #[error("A self-contained segment ends within an envelope")]
    EnvelopeCut,
    #[error("Self-contained segment within a split envelope")]
    SegmentInterleaved,
    #[error("Unexpected bytes after the end of a split envelope")]
    SplitEnvelopeOverrun,
    #[error("Empty segment")]
    EmptySegment,
    #[error("Segment of {length} bytes exceeds the maximum allowed length {limit}")]
    SegmentTooLarge { length: usize, limit: usize },
}

fn supported_versions() -> String {
    ProtocolVersion::ALL.map(ProtocolVersion::name).join(", ")
}

impl FrameError {
    /// Version and stream id to answer with; `None` if no envelope could be identified.
    pub fn reply_to(&self) -> Option<(ProtocolVersion, i16)> {
        match *self {
            Self::UnsupportedVersion { stream, .. } => Some((ProtocolVersion::HIGHEST, stream)),
            Self::VersionChanged { expected, stream, .. } => Some((expected, stream)),
            Self::BetaNotRequested { version, stream }
            | Self::WrongDirection { version, stream, .. }
            | Self::UnknownOpcode { version, stream, .. }
            | Self::NegativeLength { version, stream, .. }
            | Self::TooLarge { version, stream, .. }
            | Self::CompressionNotNegotiated { version, stream }
            | Self::BodyDecompression { version, stream, .. } => Some((version, stream)),
            Self::SegmentHeaderCorrupt { .. }
            | Self::SegmentPayloadCorrupt { .. }
            | Self::SegmentDecompression(_)
            | Self::EnvelopeCut
            | Self::SegmentInterleaved
            | Self::SplitEnvelopeOverrun
            | Self::EmptySegment
            | Self::SegmentTooLarge { .. } => None,
        }
    }

    /// Whether the decoder cannot find the next envelope, so that the connection must be closed.
    pub fn is_fatal(&self) -> bool {
        !matches!(
            self,
            Self::UnknownOpcode { .. }
                | Self::TooLarge { .. }
                | Self::CompressionNotNegotiated { .. }
                | Self::BodyDecompression { .. }
        )
    }
}

/// Error of decompressing a body or a segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    #[error("the length prefix is missing")]
    NoLength,
    #[error("the uncompressed length {length} exceeds the limit of {limit} bytes")]
    TooLarge { length: usize, limit: usize },
    #[error("{compressed} compressed bytes cannot hold {length} bytes")]
    ImplausibleRatio { compressed: usize, length: usize },
    #[error("the data is corrupt")]
    Corrupt,
    #[error("the data has {actual} bytes, but {declared} were declared")]
    LengthMismatch { declared: usize, actual: usize },
}

/// A malformed message body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("Not enough bytes to read {what}: {needed} needed, {remaining} left")]
    Truncated { what: &'static str, needed: usize, remaining: usize },
    #[error("Invalid length {length} of {what}")]
    InvalidLength { what: &'static str, length: i64 },
    #[error("Cannot decode {what} as UTF-8")]
    InvalidUtf8 { what: &'static str },
    #[error("Unknown code {code} for a consistency level")]
    UnknownConsistency { code: u16 },
    #[error("Unset values require protocol version 4 or higher")]
    UnsetInV3,
    #[error("Custom payloads and warnings require protocol version 4 or higher")]
    PayloadInV3,
    #[error("Out of bound timestamp, must be in [{}, {}] (got {timestamp})", i64::MIN + 1, i64::MAX)]
    TimestampOutOfRange { timestamp: i64 },
    #[error("Invalid batch type {kind}")]
    UnknownBatchType { kind: u8 },
    #[error("Invalid query kind in BATCH messages. Must be 0 or 1 but got {kind}")]
    UnknownBatchQueryKind { kind: u8 },
    #[error("Invalid value '{name}' for Type")]
    UnknownEventType { name: String },
    #[error("Unexpected message of type {opcode}")]
    UnexpectedOpcode { opcode: &'static str },
    #[error("Unknown result kind {kind}")]
    UnknownResultKind { kind: i32 },
    #[error("Unknown type code {code:#06x}")]
    UnknownTypeCode { code: u16 },
    #[error("Cannot parse the type class '{class}'")]
    UnknownTypeClass { class: String },
    #[error("Types are nested more than {limit} deep")]
    TypesNestedTooDeep { limit: usize },
    #[error("Invalid {what} '{value}'")]
    UnknownName { what: &'static str, value: String },
}
