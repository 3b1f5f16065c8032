//! Statements on their way to the replica that leads a write: requests and answers.

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_internode::byte_string;
use helenus_query::error::{FailureReason, ReplicaFailure, RequestError};
use serde::{Deserialize, Serialize};

/// A bind value on its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ForwardedValue {
    Null,
    Unset,
    Bytes(#[serde(with = "byte_string")] Vec<u8>),
}

/// A statement on its way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForwardedStatement {
    pub text: String,
    /// For names without a keyspace.
    pub keyspace: Option<String>,
    /// Which statement of a BATCH text is meant; `None`: the text is one statement.
    pub index: Option<u32>,
    pub values: Vec<ForwardedValue>,
}

/// Statements about one partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForwardRequest {
    pub epoch: u64,
    /// Of the partition: what the statements change elsewhere is not meant.
    pub token: i64,
    pub statements: Vec<ForwardedStatement>,
    /// The code of the client's level.
    pub consistency: u16,
    /// The coordinator's or the client's, in microseconds.
    pub timestamp: i64,
    pub now_seconds: Option<u32>,
    /// The time of the request, for CQL functions.
    pub now_micros: i64,
    pub kind: ForwardedKind,
    /// What is left of the client's time.
    pub timeout_ms: u64,
}

impl ForwardRequest {
    /// About as much memory as it takes.
    pub fn size_bytes(&self) -> u64 {
        let of_statement = |statement: &ForwardedStatement| {
            let of_value = |value: &ForwardedValue| match value {
                ForwardedValue::Bytes(bytes) => bytes.len(),
                ForwardedValue::Null | ForwardedValue::Unset => 0,
            };
            statement.text.len() + statement.values.iter().map(of_value).sum::<usize>()
        };
        self.statements.iter().map(of_statement).sum::<usize>() as u64
    }
}

/// What the client is told that it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ForwardedKind {
    Counter,
    Simple,
    LoggedBatch,
    UnloggedBatch,
}

impl ForwardedKind {
    pub fn write_type(self) -> WriteType {
        match self {
            Self::Counter => WriteType::Counter,
            Self::Simple => WriteType::Simple,
            Self::LoggedBatch => WriteType::Batch,
            Self::UnloggedBatch => WriteType::UnloggedBatch,
        }
    }
}

/// The leader's error, for the client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ForwardedError {
    Invalid(String),
    Unavailable { required: u32, alive: u32 },
    TimedOut { received: u32, required: u32 },
    Failed { received: u32, required: u32, failures: Vec<(std::net::IpAddr, FailureReason)> },
    Overloaded(String),
    Server(String),
}

impl ForwardedError {
    pub fn of(error: RequestError) -> Self {
        match error {
            RequestError::Invalid(message) | RequestError::Syntax(message) => Self::Invalid(message),
            RequestError::Unavailable { required, alive, .. } => Self::Unavailable { required, alive },
            RequestError::WriteTimeout { received, required, .. } => Self::TimedOut { received, required },
            RequestError::WriteFailure { received, required, failures, .. } => Self::Failed {
                received,
                required,
                failures: failures.iter().map(|failure| (failure.address, failure.reason)).collect(),
            },
            RequestError::Overloaded(message) => Self::Overloaded(message),
            error => Self::Server(error.to_string()),
        }
    }

    pub fn into_request_error(self, consistency: Consistency, write_type: WriteType) -> RequestError {
        match self {
            Self::Invalid(message) => RequestError::Invalid(message),
            Self::Unavailable { required, alive } => {
                RequestError::Unavailable { consistency, required, alive }
            }
            Self::TimedOut { received, required } => {
                RequestError::WriteTimeout { consistency, received, required, write_type, contentions: 0 }
            }
            Self::Failed { received, required, failures } => RequestError::WriteFailure {
                consistency,
                received,
                required,
                write_type,
                failures: failures
                    .into_iter()
                    .map(|(address, reason)| ReplicaFailure { address, reason })
                    .collect(),
            },
            Self::Overloaded(message) => RequestError::Overloaded(message),
            Self::Server(message) => RequestError::Server(message),
        }
    }
}
