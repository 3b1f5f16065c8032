//! Requests and responses for statements that are forwarded to the leader of a write.

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_internode::byte_string;
use helenus_query::error::{FailureReason, ReplicaFailure, RequestError};
use serde::{Deserialize, Serialize};

/// A bind value of a forwarded statement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ForwardedValue {
    Null,
    Unset,
    Bytes(#[serde(with = "byte_string")] Vec<u8>),
}

/// A forwarded statement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForwardedStatement {
    pub text: String,
    /// Default keyspace for names without one.
    pub keyspace: Option<String>,
    /// Index of the statement within a BATCH text; `None`: the text is one statement.
    pub index: Option<u32>,
    pub values: Vec<ForwardedValue>,
}

/// Forwarded statements on one partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForwardRequest {
    pub epoch: u64,
    /// Token of the partition. Changes of other partitions are not executed.
    pub token: i64,
    pub statements: Vec<ForwardedStatement>,
    /// Protocol code of the client's consistency level.
    pub consistency: u16,
    /// Timestamp of the coordinator or the client, in microseconds.
    pub timestamp: i64,
    pub now_seconds: Option<u32>,
    /// Time of the request, for CQL functions, in microseconds since the epoch.
    pub now_micros: i64,
    pub kind: ForwardedKind,
    /// The remaining time of the client's request, in milliseconds.
    pub timeout_ms: u64,
}

impl ForwardRequest {
    /// The approximate size in memory, in bytes.
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

/// Write type reported to the client.
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

/// An error of the leader, for the client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ForwardedError {
    Invalid(String),
    Unavailable {
        required: u32,
        alive: u32,
    },
    TimedOut {
        received: u32,
        required: u32,
    },
    Failed {
        received: u32,
        required: u32,
        failures: Vec<(std::net::IpAddr, FailureReason)>,
    },
    Overloaded(String),
    Server(String),
    /// Nothing was written: the leader cannot read the rows. Another one may.
    Unreadable(String),
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
            RequestError::Unreadable(message) => Self::Unreadable(message),
            error @ RequestError::NoRoom(_) => Self::Invalid(error.to_string()),
            // Nothing was written, and another node may lead.
            error @ RequestError::StreamsUnconfirmed { .. } => Self::Overloaded(error.to_string()),
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
            Self::Unreadable(message) => RequestError::Unreadable(message),
        }
    }
}
