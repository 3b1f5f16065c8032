//! Encryption at rest: a disk whose files are encrypted on the disk below it.
//!
//! [`EncryptedDisk`] implements [`helenus_io::Disk`] over another disk. Above it nothing changes: its files have the same contents, and
//! keep the contract of `Disk` under crashes, full disks and flipped bits. `docs/formats.md` describes the files and argues why no nonce
//! is used twice.
//!
//! * `keys`: the master keys, and where they come from.
//! * `header`: the first bytes of a file, with its own key wrapped by a master key.
//! * `frame`: the encrypted pieces of a file.
//! * `contents`: reading a file: which piece holds which bytes.
//! * `file`: writing a file.
//! * `disk`: the disk.
//! * `usage`: which master keys the files of a directory need.

mod contents;
mod disk;
mod error;
mod file;
mod frame;
mod header;
mod keys;
mod usage;

pub use disk::{EncryptedDisk, Randomness};
pub use error::KeyError;
pub use keys::{KeySource, MasterKeys};
pub use usage::{KeyUse, usage};

#[cfg(test)]
mod tests;
