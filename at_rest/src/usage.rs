//! Which master key a file needs, so that keys that no file needs can be given up.

use std::io;
use std::path::Path;

use helenus_io::{Disk, DiskError};

use crate::header::{Beginning, HEADER_AREA_BYTES};

/// How the contents of a file are protected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// By the master key of this name.
    Key(String),
    /// It is not encrypted.
    Plain,
    /// It was encrypted, and its header is damaged: no key opens it.
    Damaged,
}

/// A file as it is on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    pub protection: Protection,
    pub bytes: u64,
}

/// Looks at a file; `None`: it is gone, or nothing was written to it. `disk` is the one below the encrypted one.
pub async fn look_at(disk: &dyn Disk, path: &Path) -> Result<Option<StoredFile>, DiskError> {
    let file = match disk.open_complete(path).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut area = vec![0; file.length().min(HEADER_AREA_BYTES as u64) as usize];
    file.read_at(0, &mut area)?;
    let protection = match Beginning::read(&area) {
        Beginning::Encrypted(header) => Protection::Key(header.key_id()),
        Beginning::Plain => Protection::Plain,
        Beginning::Damaged => Protection::Damaged,
        Beginning::Unwritten => return Ok(None),
    };
    Ok(Some(StoredFile { protection, bytes: file.length() }))
}
