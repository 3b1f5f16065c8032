//! What can end a soak run early.

use std::path::Path;

/// A broken promise, or a reason why promises could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// The node lost, invented or tore a write.
    #[error("VIOLATION: {0}")]
    Violation(String),
    /// The node did not start, did not stop as it should, or refused a request it has to serve.
    #[error("{0}")]
    Refused(String),
    /// The machine did not let us.
    #[error("{context}: {source}")]
    Io { context: String, source: std::io::Error },
}

impl SoakError {
    /// For `map_err`: an input or output error with what was being done.
    pub fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }

    /// A task of ours that ended by itself.
    #[allow(clippy::needless_pass_by_value, reason = "the form that map_err takes")]
    pub fn task(error: tokio::task::JoinError) -> Self {
        Self::Refused(format!("a task of the soak program ended: {error}"))
    }

    /// Adds the end of the node's log.
    pub fn with_log(self, path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(20)..].join("\n");
        match self {
            Self::Violation(message) => {
                Self::Violation(format!("{message}\nthe node's log ends with\n{tail}"))
            }
            Self::Refused(message) => Self::Refused(format!("{message}\nthe node's log ends with\n{tail}")),
            Self::Io { .. } => self,
        }
    }
}
