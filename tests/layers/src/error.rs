//! Why the check could not be made.

use std::path::Path;

/// A file of the tree that the check cannot use.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("{path}: {error}")]
    Read { path: String, error: std::io::Error },
    #[error("{path}: {error}")]
    Parse { path: String, error: syn::Error },
    #[error("docs/layers.txt line {line}: {reason}")]
    Order { line: usize, reason: String },
    #[error("{path}: the module {module} has no file")]
    NoFile { path: String, module: String },
    #[error("{path}: nothing stands after `{expected}`")]
    Manifest { path: String, expected: &'static str },
}

impl CheckError {
    /// A file or folder that cannot be read; its path is from the root of the tree.
    pub fn read(path: &Path, error: std::io::Error) -> Self {
        Self::Read { path: path.display().to_string(), error }
    }
}
