//! Responses other than rows. Every encoder appends one whole envelope to the output buffer.

use std::net::IpAddr;

use bytes::{BufMut, BytesMut};

use super::{
    columns::{ColumnsMetadata, metadata_flags},
    consistency::Consistency,
    envelope::{EnvelopeWriter, Prefix, begin_result, result_kind},
    error::{DecodeError, FrameError},
    error_code::ErrorCode,
    event::SchemaChange,
    header::Opcode,
    version::ProtocolVersion,
    wire,
};

/// Write type reported to the client for a write that timed out or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WriteType {
    Simple,
    Batch,
    UnloggedBatch,
    Counter,
    BatchLog,
    Cas,
    View,
    Cdc,
}

impl WriteType {
    /// The name on the wire. Drivers reject any other.
    pub fn name(self) -> &'static str {
        match self {
            Self::Simple => "SIMPLE",
            Self::Batch => "BATCH",
            Self::UnloggedBatch => "UNLOGGED_BATCH",
            Self::Counter => "COUNTER",
            Self::BatchLog => "BATCH_LOG",
            Self::Cas => "CAS",
            Self::View => "VIEW",
            Self::Cdc => "CDC",
        }
    }
}

/// The kind of an error, with the details that follow its message. Counts are of replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    Server,
    Protocol,
    BadCredentials,
    Unavailable {
        consistency: Consistency,
        required: i32,
        alive: i32,
    },
    Overloaded,
    Bootstrapping,
    Truncate,
    WriteTimeout {
        consistency: Consistency,
        received: i32,
        required: i32,
        write_type: WriteType,
        /// Contended rounds of a lightweight transaction (sent in v5 for [`WriteType::Cas`]).
        contentions: u16,
    },
    ReadTimeout {
        consistency: Consistency,
        received: i32,
        required: i32,
        data_present: bool,
    },
    ReadFailure {
        consistency: Consistency,
        received: i32,
        required: i32,
        /// The replicas that failed, with the reason code of each.
        failures: Vec<(IpAddr, u16)>,
        data_present: bool,
    },
    FunctionFailure {
        keyspace: String,
        function: String,
        argument_types: Vec<String>,
    },
    WriteFailure {
        consistency: Consistency,
        received: i32,
        required: i32,
        /// As in [`ErrorKind::ReadFailure`].
        failures: Vec<(IpAddr, u16)>,
        write_type: WriteType,
    },
    CdcWriteFailure,
    CasWriteUnknown {
        consistency: Consistency,
        received: i32,
        required: i32,
    },
    Syntax,
    Unauthorized,
    Invalid,
    Config,
    /// `table` is empty for a keyspace.
    AlreadyExists {
        keyspace: String,
        table: String,
    },
    /// The unknown id.
    Unprepared {
        id: Vec<u8>,
    },
    /// More requests than are allowed. Only for clients that have negotiated ScyllaDB's extension `SCYLLA_RATE_LIMIT_ERROR`.
    RateLimit {
        is_write: bool,
        /// Otherwise by a replica.
        rejected_by_coordinator: bool,
    },
}

impl ErrorKind {
    /// The code of the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Server => ErrorCode::ServerError,
            Self::Protocol => ErrorCode::Protocol,
            Self::BadCredentials => ErrorCode::BadCredentials,
            Self::Unavailable { .. } => ErrorCode::Unavailable,
            Self::Overloaded => ErrorCode::Overloaded,
            Self::Bootstrapping => ErrorCode::Bootstrapping,
            Self::Truncate => ErrorCode::Truncate,
            Self::WriteTimeout { .. } => ErrorCode::WriteTimeout,
            Self::ReadTimeout { .. } => ErrorCode::ReadTimeout,
            Self::ReadFailure { .. } => ErrorCode::ReadFailure,
            Self::FunctionFailure { .. } => ErrorCode::FunctionFailure,
            Self::WriteFailure { .. } => ErrorCode::WriteFailure,
            Self::CdcWriteFailure => ErrorCode::CdcWriteFailure,
            Self::CasWriteUnknown { .. } => ErrorCode::CasWriteUnknown,
            Self::Syntax => ErrorCode::Syntax,
            Self::Unauthorized => ErrorCode::Unauthorized,
            Self::Invalid => ErrorCode::Invalid,
            Self::Config => ErrorCode::Config,
            Self::AlreadyExists { .. } => ErrorCode::AlreadyExists,
            Self::Unprepared { .. } => ErrorCode::Unprepared,
            Self::RateLimit { .. } => ErrorCode::RateLimit,
        }
    }

    /// The closest error of `version`, if the version does not have this one.
    fn fallback(&self, version: ProtocolVersion) -> Option<Self> {
        match *self {
            Self::CasWriteUnknown { consistency, received, required } if version < ProtocolVersion::V5 => {
                let write_type = WriteType::Cas;
                Some(Self::WriteTimeout { consistency, received, required, write_type, contentions: 0 })
            }
            _ if version > ProtocolVersion::V3 => None,
            Self::ReadFailure { consistency, received, required, data_present, .. } => {
                Some(Self::ReadTimeout { consistency, received, required, data_present })
            }
            Self::WriteFailure { consistency, received, required, write_type, .. } => {
                Some(Self::WriteTimeout { consistency, received, required, write_type, contentions: 0 })
            }
            Self::FunctionFailure { .. } | Self::CdcWriteFailure => Some(Self::Invalid),
            _ => None,
        }
    }

    /// Appends the details after the message. `version` must have this kind of error.
    fn encode_details(&self, body: &mut BytesMut, version: ProtocolVersion) {
        match self {
            Self::Unavailable { consistency, required, alive } => {
                put_counts(body, *consistency, *required, *alive);
            }
            Self::WriteTimeout { consistency, received, required, write_type, contentions } => {
                put_counts(body, *consistency, *received, *required);
                wire::put_string(body, write_type.name());
                if version >= ProtocolVersion::V5 && *write_type == WriteType::Cas {
                    body.put_u16(*contentions);
                }
            }
            Self::ReadTimeout { consistency, received, required, data_present } => {
                put_counts(body, *consistency, *received, *required);
                body.put_u8(u8::from(*data_present));
            }
            Self::ReadFailure { consistency, received, required, failures, data_present } => {
                put_counts(body, *consistency, *received, *required);
                put_failures(body, failures, version);
                body.put_u8(u8::from(*data_present));
            }
            Self::WriteFailure { consistency, received, required, failures, write_type } => {
                put_counts(body, *consistency, *received, *required);
                put_failures(body, failures, version);
                wire::put_string(body, write_type.name());
            }
            Self::FunctionFailure { keyspace, function, argument_types } => {
                wire::put_string(body, keyspace);
                wire::put_string(body, function);
                wire::put_string_list(body, argument_types);
            }
            Self::CasWriteUnknown { consistency, received, required } => {
                put_counts(body, *consistency, *received, *required);
            }
            Self::AlreadyExists { keyspace, table } => {
                wire::put_string(body, keyspace);
                wire::put_string(body, table);
            }
            Self::Unprepared { id } => wire::put_short_bytes(body, id),
            Self::RateLimit { is_write, rejected_by_coordinator } => {
                body.put_u8(u8::from(*is_write));
                body.put_u8(u8::from(*rejected_by_coordinator));
            }
            Self::Server
            | Self::Protocol
            | Self::BadCredentials
            | Self::Overloaded
            | Self::Bootstrapping
            | Self::Truncate
            | Self::CdcWriteFailure
            | Self::Syntax
            | Self::Unauthorized
            | Self::Invalid
            | Self::Config => {}
        }
    }
}

fn put_counts(body: &mut BytesMut, consistency: Consistency, first: i32, second: i32) {
    body.put_u16(consistency.code());
    body.put_i32(first);
    body.put_i32(second);
}

fn put_failures(body: &mut BytesMut, failures: &[(IpAddr, u16)], version: ProtocolVersion) {
    body.put_i32(failures.len() as i32);
    if version >= ProtocolVersion::V5 {
        for &(address, reason) in failures {
            wire::put_inet_address(body, address);
            body.put_u16(reason);
        }
    }
}

/// An error sent to a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", kind.code())]
pub struct ErrorResponse {
    pub kind: ErrorKind,
    pub message: String,
}

impl ErrorResponse {
    /// An error with its text.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl From<DecodeError> for ErrorResponse {
    fn from(error: DecodeError) -> Self {
        Self::new(ErrorKind::Protocol, error.to_string())
    }
}

impl From<FrameError> for ErrorResponse {
    fn from(error: FrameError) -> Self {
        let kind = match error {
            FrameError::TooLarge { .. } => ErrorKind::Invalid,
            _ => ErrorKind::Protocol,
        };
        Self::new(kind, error.to_string())
    }
}

/// Appends ERROR. An error that the version does not have is replaced by the closest one.
pub fn encode_error(
    out: &mut BytesMut,
    version: ProtocolVersion,
    stream: i16,
    error: &ErrorResponse,
    prefix: &Prefix<'_>,
) {
    let fallback = error.kind.fallback(version);
    let kind = fallback.as_ref().unwrap_or(&error.kind);
    let mut envelope = EnvelopeWriter::begin(out, version, stream, Opcode::Error);
    let body = envelope.body();
    body.put_i32(kind.code().number());
    wire::put_string(body, &error.message);
    kind.encode_details(body, version);
    envelope.finish(prefix);
}

/// Appends the ERROR that makes drivers downgrade to a supported version. It is sent in an envelope of the highest
/// version, outside segments, and the connection is closed after it.
pub fn write_unsupported_version(out: &mut BytesMut, stream: i16, number: u8) {
    let error = ErrorResponse::new(
        ErrorKind::Protocol,
        FrameError::UnsupportedVersion { number, stream }.to_string(),
    );
    encode_error(out, ProtocolVersion::HIGHEST, stream, &error, &Prefix::default());
}

/// Appends READY.
pub fn encode_ready(out: &mut BytesMut, version: ProtocolVersion, stream: i16) {
    EnvelopeWriter::begin(out, version, stream, Opcode::Ready).finish(&Prefix::default());
}

/// Appends AUTHENTICATE with the class name of the authenticator.
pub fn encode_authenticate(out: &mut BytesMut, version: ProtocolVersion, stream: i16, class: &str) {
    let mut envelope = EnvelopeWriter::begin(out, version, stream, Opcode::Authenticate);
    wire::put_string(envelope.body(), class);
    envelope.finish(&Prefix::default());
}

/// Appends `AUTH_CHALLENGE` with a SASL token.
pub fn encode_auth_challenge(
    out: &mut BytesMut,
    version: ProtocolVersion,
    stream: i16,
    token: Option<&[u8]>,
) {
    let mut envelope = EnvelopeWriter::begin(out, version, stream, Opcode::AuthChallenge);
    wire::put_bytes(envelope.body(), token);
    envelope.finish(&Prefix::default());
}

/// Appends `AUTH_SUCCESS` with a SASL token.
pub fn encode_auth_success(out: &mut BytesMut, version: ProtocolVersion, stream: i16, token: Option<&[u8]>) {
    let mut envelope = EnvelopeWriter::begin(out, version, stream, Opcode::AuthSuccess);
    wire::put_bytes(envelope.body(), token);
    envelope.finish(&Prefix::default());
}

/// Appends SUPPORTED.
pub fn encode_supported(
    out: &mut BytesMut,
    version: ProtocolVersion,
    stream: i16,
    options: &[(String, Vec<String>)],
) {
    let mut envelope = EnvelopeWriter::begin(out, version, stream, Opcode::Supported);
    let body = envelope.body();
    for (key, values) in wire::counted(body, options) {
        wire::put_string(body, key);
        wire::put_string_list(body, values);
    }
    envelope.finish(&Prefix::default());
}

/// Appends RESULT Void.
pub fn encode_void(out: &mut BytesMut, version: ProtocolVersion, stream: i16, prefix: &Prefix<'_>) {
    begin_result(out, version, stream, result_kind::VOID).finish(prefix);
}

/// Appends RESULT `SetKeyspace`.
pub fn encode_set_keyspace(
    out: &mut BytesMut,
    version: ProtocolVersion,
    stream: i16,
    keyspace: &str,
    prefix: &Prefix<'_>,
) {
    let mut envelope = begin_result(out, version, stream, result_kind::SET_KEYSPACE);
    wire::put_string(envelope.body(), keyspace);
    envelope.finish(prefix);
}

/// Appends RESULT `SchemaChange`.
pub fn encode_schema_change(
    out: &mut BytesMut,
    version: ProtocolVersion,
    stream: i16,
    change: &SchemaChange,
    prefix: &Prefix<'_>,
) {
    let mut envelope = begin_result(out, version, stream, result_kind::SCHEMA_CHANGE);
    change.encode_body(envelope.body(), version);
    envelope.finish(prefix);
}

/// The response to PREPARE.
#[derive(Debug, Clone, Copy)]
pub struct Prepared<'a> {
    pub id: &'a [u8],
    /// Must be set in v5, and in v4 if the client has requested the extension; otherwise `None`.
    pub result_metadata_id: Option<&'a [u8]>,
    /// The bind variables.
    pub bind: &'a ColumnsMetadata,
    /// Additional flags of the bind metadata (the flag of lightweight transactions), usually 0.
    pub bind_flags: u32,
    /// Index of the bind variable of each partition key column; empty unless each column has one.
    pub partition_key_indexes: &'a [u16],
    /// The columns of the result; `None` if the statement returns no rows.
    pub result: Option<&'a ColumnsMetadata>,
}

/// Appends RESULT Prepared.
pub fn encode_prepared(
    out: &mut BytesMut,
    version: ProtocolVersion,
    stream: i16,
    prepared: &Prepared<'_>,
    prefix: &Prefix<'_>,
) {
    let mut envelope = begin_result(out, version, stream, result_kind::PREPARED);
    let body = envelope.body();
    wire::put_short_bytes(body, prepared.id);
    if let Some(id) = prepared.result_metadata_id {
        wire::put_short_bytes(body, id);
    }
    body.put_u32(prepared.bind.flags() | prepared.bind_flags);
    body.put_i32(prepared.bind.column_count());
    if version >= ProtocolVersion::V4 {
        body.put_i32(prepared.partition_key_indexes.len() as i32);
        for &index in prepared.partition_key_indexes {
            body.put_u16(index);
        }
    }
    body.put_slice(prepared.bind.encoded());
    if let Some(columns) = prepared.result {
        body.put_u32(columns.flags());
        body.put_i32(columns.column_count());
        body.put_slice(columns.encoded());
    } else {
        body.put_u32(metadata_flags::NO_METADATA);
        body.put_i32(0);
    }
    envelope.finish(prefix);
}
