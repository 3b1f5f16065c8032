//! What becomes of files that are not encrypted.
//!
//! Where they are refused, none of their bytes is ever returned, so that nobody puts one of his own in the place of an encrypted file:
//! * A file that begins otherwise than an encrypted one is an error.
//! * One whose header is damaged reads as damage: what reads it finds that its checksums are wrong, as with every other damage.
//! * One with nothing but zeros where the header would be reads as zeros. A crash leaves such files, in which nothing was synced.

use std::io;
use std::path::PathBuf;

use helenus_io::{CompleteFile, DiskError};

use crate::error::KeyError;
use crate::frame::DAMAGE;
use crate::header::Beginning;

/// What becomes of files that are not encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainFiles {
    /// They are read as they are.
    Accepted,
    /// They are errors.
    Refused,
}

/// What is read of a file that has no whole header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Substitute {
    /// Its bytes as they are.
    None,
    /// This byte in the place of each of them.
    Byte(u8),
}

impl PlainFiles {
    /// What is read of a file that begins like this, which is not a whole header.
    pub(crate) fn substitute(self, beginning: &Beginning) -> Result<Substitute, KeyError> {
        match (self, beginning) {
            (Self::Accepted, _) => Ok(Substitute::None),
            (Self::Refused, Beginning::Unwritten) => Ok(Substitute::Byte(0)),
            (Self::Refused, Beginning::Damaged) => Ok(Substitute::Byte(DAMAGE)),
            (Self::Refused, _) => Err(KeyError::Plain),
        }
    }
}

/// A file that has one byte everywhere.
pub(crate) struct Uniform {
    pub(crate) byte: u8,
    pub(crate) length: u64,
    pub(crate) path: PathBuf,
}

impl CompleteFile for Uniform {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.length) {
            let end = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(DiskError::new("read a part of", &self.path, end));
        }
        buffer.fill(self.byte);
        Ok(())
    }
}
