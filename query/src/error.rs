//! Errors of a request, as they are reported to the client.
//!
//! Every layer of the server returns a `RequestError`; `session::errors` maps it to a protocol error in one place.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_engine::commit_log::CommitLogError;
use helenus_engine::error::EngineError;
use helenus_engine::table::TableError;

/// The reason why a request was not executed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The text is not CQL. Starts with `line L:C`.
    #[error("{0}")]
    Syntax(String),
    /// Correct CQL that requests something impossible.
    #[error("{0}")]
    Invalid(String),
    /// Wrong options of a keyspace or table.
    #[error("{0}")]
    Configuration(String),
    #[error("{0}")]
    Unauthorized(String),
    /// The keyspace (`table` empty) or table exists already.
    #[error("{}", already_exists(keyspace, table))]
    AlreadyExists { keyspace: String, table: String },
    #[error(
        "Prepared query with ID {} not found (either the query was not prepared on this host (maybe the host has been \
         restarted?) or you have prepared too many queries and it has been evicted from the internal cache)",
        Hex(id)
    )]
    Unprepared { id: Vec<u8> },
    /// The frame does not follow the protocol.
    #[error("{0}")]
    Protocol(String),
    /// Fewer replicas are alive than the consistency level requires.
    #[error("Cannot achieve consistency level {}", consistency.name())]
    Unavailable { consistency: Consistency, required: u32, alive: u32 },
    /// Too few replicas acknowledged a write in time; it may still be applied.
    #[error("Operation timed out - received only {received} responses.")]
    WriteTimeout {
        consistency: Consistency,
        received: u32,
        required: u32,
        write_type: WriteType,
        /// Lost rounds of a lightweight transaction.
        contentions: u16,
    },
    /// Too many replicas refused a write: the level cannot be reached; other replicas may have applied it.
    #[error("Operation failed - received {received} responses and {} failures: {}", failures.len(), listed(failures))]
    WriteFailure {
        consistency: Consistency,
        received: u32,
        required: u32,
        write_type: WriteType,
        failures: Vec<ReplicaFailure>,
    },
    /// Too few replicas answered a read in time.
    #[error("Operation timed out - received only {received} responses.")]
    ReadTimeout {
        consistency: Consistency,
        received: u32,
        required: u32,
        /// Whether a replica has sent rows and not only a digest.
        data_present: bool,
    },
    /// Too many replicas failed to read: the level cannot be reached.
    #[error("Operation failed - received {received} responses and {} failures: {}", failures.len(), listed(failures))]
    ReadFailure {
        consistency: Consistency,
        received: u32,
        required: u32,
        failures: Vec<ReplicaFailure>,
        data_present: bool,
    },
    /// A read has met or found more than a threshold of the settings allows.
    #[error("{message}")]
    ReadAborted {
        message: String,
        consistency: Consistency,
        reason: FailureReason,
        /// The address that clients use for this node.
        address: IpAddr,
    },
    /// A lightweight transaction was proposed, and it is unknown whether it takes effect.
    #[error("CAS operation result is unknown - proposal accepted by {received} but not a quorum.")]
    CasWriteUnknown { consistency: Consistency, received: u32, required: u32 },
    /// The node rejects the request because it is overloaded.
    #[error("{0}")]
    Overloaded(String),
    /// The node does not know whether its roles are the newest: what was revoked may not have reached it. Nothing was done.
    #[error(
        "This node cannot confirm that it knows the newest roles, and those that it knows may be older than {} s: it is cut off from the other \
         nodes, or was just started. Another node may execute the request",
        limit.as_secs_f64()
    )]
    RolesUnconfirmed { limit: Duration },
    /// The node does not know whether its streams of change feeds are the newest: consumers may not read where it would write. Nothing was
    /// written.
    #[error(
        "This node cannot confirm that it knows the newest streams of change feeds, and those that it knows may be older than {} s: it is cut \
         off from the other nodes, or was just started. Another node may execute the request",
        limit.as_secs_f64()
    )]
    StreamsUnconfirmed { limit: Duration },
    /// A client makes more requests than it may.
    #[error("{message}")]
    RateLimited { message: String, is_write: bool },
    /// A write is refused because disks have no room for it. Nothing was written. The text begins as that of Cassandra's guardrail.
    #[error(
        "Guardrail replica_disk_usage violated: Write request failed because disk usage exceeds failure threshold. {0}"
    )]
    NoRoom(String),
    /// A function refused its arguments.
    #[error("{message}")]
    Function { keyspace: String, function: String, arguments: Vec<String>, message: String },
    #[error("{0}")]
    Truncate(String),
    /// Rows of this node cannot be read: a file that may hold them is missing or damaged, or its medium fails. Other replicas may have
    /// them.
    #[error("{0}")]
    Unreadable(String),
    /// An index of this node is not built yet, or is being made again. Other replicas may have theirs.
    #[error("{0}")]
    IndexIncomplete(String),
    /// A search on this node would ask more files of indexes than a guardrail allows.
    #[error("{0}")]
    TooManyIndexFiles(String),
    /// A search by an index has taken longer than a read may.
    #[error("{0}")]
    SearchTooLong(String),
    /// A fault of the node itself: disk, damage, shutdown.
    #[error("{0}")]
    Server(String),
}

impl RequestError {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}

impl From<EngineError> for RequestError {
    fn from(error: EngineError) -> Self {
        match error {
            // The mutation is from another node, which has a higher limit. It is the client's error although a replica finds it:
            // another coordinator could not execute the request either.
            EngineError::CommitLog(CommitLogError::RecordTooLarge { bytes, limit })
            | EngineError::MutationTooLarge { bytes, limit } => {
                Self::Invalid(format!("Rejected an oversized mutation ({bytes}/{limit})"))
            }
            EngineError::Backlog { .. } => Self::Overloaded(error.to_string()),
            EngineError::NoRoom(reason) => Self::NoRoom(format!("The disk of this node is full: {reason}")),
            EngineError::DamagedFile { .. }
            | EngineError::Table(TableError::Damaged { .. } | TableError::Disk(_)) => {
                Self::Unreadable(error.to_string())
            }
            EngineError::IndexIncomplete { .. } => Self::IndexIncomplete(error.to_string()),
            EngineError::SearchTooLong { .. } => Self::SearchTooLong(error.to_string()),
            error => Self::Server(error.to_string()),
        }
    }
}

/// A replica that did not execute its part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaFailure {
    /// The address that clients use for the replica.
    pub address: IpAddr,
    pub reason: FailureReason,
}

/// The reason why a replica failed: the codes of the protocol (v5), Cassandra's `RequestFailureReason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[repr(u16)]
pub enum FailureReason {
    Unknown = 0,
    TooManyTombstones = 1,
    TimedOut = 2,
    IncompatibleSchema = 3,
    NodeDown = 5,
    IndexNotAvailable = 6,
    TooManyIndexes = 7,
    ReadTooLarge = 4,
}

impl FailureReason {
    /// The code on the wire.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// Cassandra's name of the reason.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::TooManyTombstones => "READ_TOO_MANY_TOMBSTONES",
            Self::TimedOut => "TIMEOUT",
            Self::IncompatibleSchema => "INCOMPATIBLE_SCHEMA",
            Self::NodeDown => "NODE_DOWN",
            Self::IndexNotAvailable => "INDEX_NOT_AVAILABLE",
            Self::TooManyIndexes => "READ_TOO_MANY_INDEXES",
            Self::ReadTooLarge => "READ_SIZE",
        }
    }
}

/// The failures in the format of Cassandra's messages.
fn listed(failures: &[ReplicaFailure]) -> String {
    let texts: Vec<String> = failures
        .iter()
        .map(|failure| format!("{} from {}", failure.reason.name(), failure.address))
        .collect();
    texts.join(", ")
}

/// The result of every step of a request.
pub type Result<T, E = RequestError> = std::result::Result<T, E>;

fn already_exists(keyspace: &str, table: &str) -> String {
    if table.is_empty() {
        format!("Cannot add existing keyspace \"{keyspace}\"")
    } else {
        format!("Cannot add already existing table \"{table}\" to keyspace \"{keyspace}\"")
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}
