//! What can go wrong with a request, as the client will be told.
//!
//! Every layer of the server returns a `RequestError`; `session::errors` maps it to a protocol error in one place.

use std::fmt;

use cql_lite::frame::Consistency;

/// Why a request was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The text is not CQL. Starts with `line L:C`.
    #[error("{0}")]
    Syntax(String),
    /// Correct CQL that asks for something impossible.
    #[error("{0}")]
    Invalid(String),
    /// Wrong options of a keyspace or table.
    #[error("{0}")]
    Configuration(String),
    #[error("{0}")]
    Unauthorized(String),
    /// The keyspace (`table` empty) or table is there already.
    #[error("{}", already_exists(keyspace, table))]
    AlreadyExists { keyspace: String, table: String },
    #[error("no prepared statement with id {}", Hex(id))]
    Unprepared { id: Vec<u8> },
    /// The frame does not follow the protocol.
    #[error("{0}")]
    Protocol(String),
    /// Fewer replicas live than the consistency level asks for.
    #[error("Cannot achieve consistency level {}", consistency.name())]
    Unavailable { consistency: Consistency, required: u32, alive: u32 },
    /// The node sheds load.
    #[error("{0}")]
    Overloaded(String),
    /// A function refused its arguments.
    #[error("{message}")]
    Function { keyspace: String, function: String, arguments: Vec<String>, message: String },
    #[error("{0}")]
    Truncate(String),
    /// A fault of the node itself: disk, damage, shutdown.
    #[error("{0}")]
    Server(String),
}

impl RequestError {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}

impl From<helenus_engine::error::EngineError> for RequestError {
    fn from(error: helenus_engine::error::EngineError) -> Self {
        Self::Server(error.to_string())
    }
}

/// Shorthand for the result of everything on the way of a request.
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
