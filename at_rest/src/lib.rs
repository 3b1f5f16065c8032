//! Encryption at rest: a disk whose files are encrypted on the disk below it.
//!
//! [`EncryptedDisk`] implements [`helenus_io::Disk`] over another disk. Above it nothing changes: its files have the same contents, and
//! keep the contract of `Disk` under crashes, full disks and flipped bits. `docs/formats.md` describes the files and argues why no nonce
//! is used twice.
//!
//! * `source`: where the text of the master keys comes from.
//! * `keys`: the master keys.
//! * `header`: the first bytes of a file, with its own key wrapped by a master key.
//! * `frame`: the encrypted pieces of a file.
//! * `plain`: what becomes of files that are not encrypted.
//! * `scope`: which files are encrypted, where not all are.
//! * `contents`: reading a file: which piece holds which bytes.
//! * `file`: writing a file.
//! * `disk`: the disk.
//! * `usage`: which master key a file needs.

mod contents;
mod disk;
mod error;
mod file;
mod frame;
mod header;
mod keys;
mod plain;
mod scope;
mod source;
mod usage;

pub use disk::{EncryptedDisk, Randomness, Update};
pub use error::KeyError;
pub use keys::MasterKeys;
pub use plain::PlainFiles;
pub use scope::Scope;
pub use source::KeySource;
pub use usage::{Protection, StoredFile, look_at};

#[cfg(test)]
mod tests;
