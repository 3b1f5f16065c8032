//! Why keys cannot be had, or do not open a file.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use helenus_io::invariant::BrokenInvariant;
use thiserror::Error;

/// Why keys cannot be had, or do not open a file. No variant contains a part of a key.
#[derive(Debug, Error)]
pub enum KeyError {
    #[error(
        "the file is encrypted with the master key {id:?}, which is not among the keys that are configured"
    )]
    Unknown { id: String },
    #[error(
        "the file is encrypted with a master key {id:?}, and the configured key of that name does not open it"
    )]
    Wrong { id: String },
    #[error(
        "the file is encrypted in version {version} of the format, which this program does not know: run a newer one"
    )]
    Version { version: u16 },
    #[error("the file is not encrypted, and plain_files = \"refuse\" is set for encryption at rest")]
    Plain,
    #[error("cannot read the file of master keys {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot run the command for master keys {command:?}: {source}")]
    Command { command: String, source: io::Error },
    #[error("the command for master keys {command:?} has failed: {status}{}", told(said))]
    CommandFailed { command: String, status: String, said: String },
    #[error("the command for master keys {command:?} was ended: it took longer than {} ms{}", limit.as_millis(), told(said))]
    CommandTime { command: String, limit: Duration, said: String },
    #[error("the command for master keys {command:?} was ended: it printed more than {bytes_max} bytes")]
    CommandOutput { command: String, bytes_max: usize },
    #[error("line {line} of the master keys: {reason}")]
    Line { line: usize, reason: &'static str },
    #[error("the name {id:?} is used for two master keys")]
    Twice { id: String },
    #[error("the master key {id:?} has changed: a new key needs a new name")]
    Changed { id: String },
    #[error("there is no master key")]
    None,
    #[error(transparent)]
    Broken(#[from] BrokenInvariant),
    #[error("the system has no random numbers for a key: {0}")]
    Random(io::Error),
}

/// What a command wrote to its standard error, for a message.
fn told(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!("; it said: {said:?}") }
}

impl From<KeyError> for io::Error {
    fn from(error: KeyError) -> Self {
        Self::other(error)
    }
}
