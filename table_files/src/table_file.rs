//! The file of a table, and errors that name it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::error::TableError;
use super::format::{Section, checksum_matches};
use crate::io::{CompleteFile, DiskError};

/// An open file, of which parts are read.
pub struct TableFile {
    /// For error messages.
    pub path: PathBuf,
    pub file: Arc<dyn CompleteFile>,
}

impl TableFile {
    pub fn damaged(&self, offset: u64, reason: &'static str) -> TableError {
        TableError::damaged(&self.path, offset, reason)
    }

    /// Reads a part on the calling thread. A file that has been cut short is damaged.
    pub fn read(&self, offset: u64, length: u64) -> Result<Box<[u8]>, TableError> {
        let end = offset.checked_add(length).filter(|end| *end <= self.file.length());
        let Some((_, length)) = end.zip(usize::try_from(length).ok()) else {
            return Err(self.damaged(offset, "a part of the table lies outside the file"));
        };
        let mut bytes = vec![0; length].into_boxed_slice();
        self.file.read_at(offset, &mut bytes).map_err(|error| self.cut_short(error, offset))?;
        Ok(bytes)
    }

    /// Reads a part without holding up the thread.
    pub async fn read_later(&self, offset: u64, length: usize) -> Result<Box<[u8]>, TableError> {
        let bytes = Arc::clone(&self.file).read_later(offset, length).await;
        bytes.map_err(|error| self.cut_short(error, offset))
    }

    /// Reads a section whose checksum covers all of it.
    pub fn load_section(&self, section: &Section) -> Result<Box<[u8]>, TableError> {
        let bytes = self.read(section.offset, section.length)?;
        if checksum_matches(&bytes, section.crc32) {
            Ok(bytes)
        } else {
            Err(self.damaged(section.offset, "the checksum of a section is wrong"))
        }
    }

    /// The error of a failed read. A file that ends before is damaged.
    fn cut_short(&self, error: DiskError, offset: u64) -> TableError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(offset, "the file ends before"),
            _ => error.into(),
        }
    }
}
