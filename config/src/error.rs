//! What is wrong with settings.

use std::path::PathBuf;

/// The reason why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}: {message}")]
    Parse { path: PathBuf, message: String },
    #[error("{path}: unknown setting '{key}'{suggestion}")]
    UnknownKey { path: PathBuf, key: String, suggestion: String },
    #[error("{path}: '{alias}' is Cassandra's name of '{key}', which is set too")]
    Twice { path: PathBuf, alias: &'static str, key: &'static str },
    #[error("setting '{key}': {message}")]
    Value { key: &'static str, message: String },
}
