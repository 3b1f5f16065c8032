//! The errors of the shell, worded for its user.

use std::{io, path::PathBuf};

use cql_lite::frame::Consistency;
use scylla::errors::{
    DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError, UseKeyspaceError,
};
use scylla::frame::types::Consistency as DriverConsistency;

/// Exit code after a failed statement.
pub const EXIT_STATEMENT_FAILED: u8 = 1;
/// Exit code without a connection.
pub const EXIT_NO_CONNECTION: u8 = 2;
/// Exit code after Ctrl-C, as of a program that it ended.
pub const EXIT_INTERRUPTED: u8 = 130;

/// A failure that is shown to the user.
#[derive(Debug, thiserror::Error)]
pub enum ShellError {
    /// The server refused a statement, or it could not be run.
    #[error("{0}")]
    Statement(String),
    /// There is no connection, or it broke.
    #[error("Connection error: {0}")]
    Connection(String),
    /// A command of the shell was used wrongly.
    #[error("{0}")]
    Usage(String),
    #[error("Cannot access '{}': {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// Standard output is gone or full.
    #[error("Cannot write the output: {0}")]
    Output(#[from] io::Error),
    #[error("Cannot start: {0}")]
    Startup(io::Error),
    /// The user pressed Ctrl-C.
    #[error("Interrupted")]
    Interrupted,
}

impl ShellError {
    /// The exit code of a shell that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Connection(_) => EXIT_NO_CONNECTION,
            Self::Interrupted => EXIT_INTERRUPTED,
            _ => EXIT_STATEMENT_FAILED,
        }
    }

    /// Whether standard output was closed by its reader, which is no error to report.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<ExecutionError> for ShellError {
    fn from(error: ExecutionError) -> Self {
        match error {
            ExecutionError::LastAttemptError(attempt) => attempt.into(),
            ExecutionError::PrepareError(prepare) => prepare.into(),
            ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_) => {
                Self::Connection(error.to_string())
            }
            ExecutionError::RequestTimeout(timeout) => {
                Self::Statement(format!("OperationTimedOut: no answer within {} seconds", timeout.as_secs()))
            }
            other => Self::Statement(other.to_string()),
        }
    }
}

impl From<PrepareError> for ShellError {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::AllAttemptsFailed { first_attempt } => first_attempt.into(),
            PrepareError::ConnectionPoolError(pool) => Self::Connection(pool.to_string()),
            other => Self::Statement(other.to_string()),
        }
    }
}

impl From<RequestAttemptError> for ShellError {
    fn from(error: RequestAttemptError) -> Self {
        match error {
            RequestAttemptError::DbError(error, message) => Self::Statement(server_error(&error, &message)),
            RequestAttemptError::BrokenConnectionError(broken) => Self::Connection(broken.to_string()),
            other => Self::Statement(other.to_string()),
        }
    }
}

impl From<NewSessionError> for ShellError {
    fn from(error: NewSessionError) -> Self {
        match error {
            NewSessionError::UseKeyspaceError(UseKeyspaceError::RequestError(attempt)) => attempt.into(),
            other => Self::Connection(other.to_string()),
        }
    }
}

/// An ERROR of the server, as cqlsh words it.
fn server_error(error: &DbError, message: &str) -> String {
    let (name, code, title) = match error {
        DbError::ServerError => ("ServerError", 0x0000, "Server error"),
        DbError::ProtocolError => ("ProtocolException", 0x000A, "Protocol error"),
        DbError::AuthenticationError => ("AuthenticationFailed", 0x0100, "Bad credentials"),
        DbError::Unavailable { .. } => ("Unavailable", 0x1000, "Unavailable exception"),
        DbError::Overloaded => ("OverloadedErrorMessage", 0x1001, "Coordinator node overloaded"),
        DbError::IsBootstrapping => {
            ("IsBootstrappingErrorMessage", 0x1002, "Coordinator node is bootstrapping")
        }
        DbError::TruncateError => ("TruncateError", 0x1003, "Error during truncate"),
        DbError::WriteTimeout { .. } => {
            ("WriteTimeout", 0x1100, "Coordinator node timed out waiting for replica nodes' responses")
        }
        DbError::ReadTimeout { .. } => {
            ("ReadTimeout", 0x1200, "Coordinator node timed out waiting for replica nodes' responses")
        }
        DbError::ReadFailure { .. } => ("ReadFailure", 0x1300, "Replica(s) failed to execute read"),
        DbError::FunctionFailure { .. } => ("FunctionFailure", 0x1400, "User Defined Function failure"),
        DbError::WriteFailure { .. } => ("WriteFailure", 0x1500, "Replica(s) failed to execute write"),
        DbError::SyntaxError => ("SyntaxException", 0x2000, "Syntax error in CQL query"),
        DbError::Unauthorized => ("Unauthorized", 0x2100, "Unauthorized"),
        DbError::Invalid => ("InvalidRequest", 0x2200, "Invalid query"),
        DbError::ConfigError => {
            ("ConfigurationException", 0x2300, "Query invalid because of configuration issue")
        }
        DbError::AlreadyExists { .. } => ("AlreadyExists", 0x2400, "Item already exists"),
        DbError::Unprepared { .. } => ("PreparedQueryNotFound", 0x2500, "Query with ID not found"),
        DbError::Other(code) => ("ErrorMessage", *code, "Unknown"),
        other => return format!("{other}: {message}"),
    };
    let info = info(error).map_or_else(String::new, |info| format!(" info={{{info}}}"));
    format!("{name}: Error from server: code={code:04x} [{title}] message=\"{message}\"{info}")
}

/// The numbers of replicas in an ERROR, under the names that cqlsh gives them.
fn info(error: &DbError) -> Option<String> {
    let of = |level: &DriverConsistency| {
        let name = Consistency::from_code(*level as u16)
            .map_or_else(|_| level.to_string(), |known| known.to_string());
        format!("'consistency': '{name}'")
    };
    let responses = |required: &i32, received: &i32| {
        format!("'required_responses': {required}, 'received_responses': {received}")
    };
    Some(match error {
        DbError::Unavailable { consistency, required, alive } => {
            format!("{}, 'required_replicas': {required}, 'alive_replicas': {alive}", of(consistency))
        }
        DbError::ReadTimeout { consistency, received, required, .. } => {
            format!("{}, {}", of(consistency), responses(required, received))
        }
        DbError::WriteTimeout { consistency, received, required, write_type } => {
            let (of, responses) = (of(consistency), responses(required, received));
            format!("{of}, {responses}, 'write_type': '{}'", write_type.as_str())
        }
        DbError::ReadFailure { consistency, received, required, numfailures, .. } => {
            format!("{}, {}, 'failures': {numfailures}", of(consistency), responses(required, received))
        }
        DbError::WriteFailure { consistency, received, required, numfailures, write_type } => {
            let (of, responses) = (of(consistency), responses(required, received));
            format!("{of}, {responses}, 'failures': {numfailures}, 'write_type': '{}'", write_type.as_str())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use scylla::errors::WriteType;

    use super::*;

    #[test]
    fn errors_about_replicas_say_how_many() {
        let unavailable =
            DbError::Unavailable { consistency: DriverConsistency::LocalQuorum, required: 2, alive: 1 };
        assert_eq!(
            server_error(&unavailable, "Cannot achieve consistency level LOCAL_QUORUM"),
            "Unavailable: Error from server: code=1000 [Unavailable exception] \
             message=\"Cannot achieve consistency level LOCAL_QUORUM\" \
             info={'consistency': 'LOCAL_QUORUM', 'required_replicas': 2, 'alive_replicas': 1}"
        );
        let late = DbError::WriteTimeout {
            consistency: DriverConsistency::One,
            received: 0,
            required: 1,
            write_type: WriteType::Simple,
        };
        assert!(server_error(&late, "late").ends_with(
            " message=\"late\" info={'consistency': 'ONE', 'required_responses': 1, 'received_responses': 0, \
             'write_type': 'SIMPLE'}"
        ));
        assert!(server_error(&DbError::Invalid, "no").ends_with("[Invalid query] message=\"no\""));
    }
}
