//! Why a file cannot be advised on.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The reason why a command fails.
#[derive(Debug, Error)]
pub enum AdviseError {
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("line {line}: {reason}")]
    File { line: usize, reason: String },
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl AdviseError {
    pub fn at(line: usize, reason: impl Into<String>) -> Self {
        Self::File { line, reason: reason.into() }
    }
}
