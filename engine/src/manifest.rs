//! The manifest: the tables of a shard, the files of each table, and the log position up to which those files contain the
//! commit log.
//!
//! The manifest is one small file that is replaced as a whole: written under a temporary name, synced, renamed, and the
//! directory synced. So there is always exactly one valid manifest. A flush, compaction, truncation or drop takes effect at the
//! moment of the replacement.
//!
//! ```text
//! magic "HLMF" | version u8 (1 or 2) | CRC32 of the rest, u32 little endian
//! | next generation | directories | count of tables | tables
//! directories := count | path, as its length and UTF-8, of each          only in version 2
//! table       := id 16 bytes | flushed to: segment, offset | count of files | files
//! file        := generation | level | second of its creation | directory  (the last only in version 2)
//! ```
//! Numbers are varints. A file's directory is 0 for that of the shard, else the number of one of `directories`, from 1 on. Version 1 is
//! written while there are no such directories.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::codec::{DecodeError, Reader, put_bytes, put_unsigned};
use crate::commit_log::LogPosition;
use crate::io::{Disk, DiskError};
use crate::mutation::TableId;

const MAGIC: [u8; 4] = *b"HLMF";
const VERSION: u8 = 1;
/// The version whose table files may lie in several directories.
const DIRECTORIES_VERSION: u8 = 2;
const FILE_NAME: &str = "manifest";
const TEMPORARY_NAME: &str = "manifest.tmp";

/// Why the manifest could not be read or replaced.
#[derive(Debug, Clone, Error)]
pub enum ManifestError {
    #[error("manifest: {0}")]
    Disk(#[from] DiskError),
    #[error("manifest {}: {reason}", path.display())]
    Damaged { path: PathBuf, reason: DecodeError },
    #[error("manifest {}: the checksum is wrong", path.display())]
    Checksum { path: PathBuf },
}

/// A file of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ManifestFile {
    pub generation: u64,
    pub level: u32,
    /// Seconds since the epoch.
    pub created_seconds: u32,
    /// 0: the shard's own directory; else the number of one of [`Manifest::directories`], from 1 on.
    pub directory: u32,
}

/// A table of the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestTable {
    pub id: TableId,
    /// Log records of this table before this position are in the files (or were truncated).
    pub flushed_to: LogPosition,
    pub files: Vec<ManifestFile>,
}

/// The contents of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    /// Greater than the generation of any file so far.
    pub next_generation: u64,
    /// Further directories of table files. One that was named once keeps its number.
    pub directories: Vec<PathBuf>,
    pub tables: Vec<ManifestTable>,
}

/// The effect of a failed replacement.
pub(crate) enum ReplaceError {
    /// The old manifest is valid.
    Unchanged(DiskError),
    /// The old or the new manifest is valid. It is not known before the next start.
    Unknown(DiskError),
}

impl Manifest {
    pub fn table(&mut self, id: TableId) -> Option<&mut ManifestTable> {
        self.tables.iter_mut().find(|table| table.id == id)
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let has_directories = !self.directories.is_empty();
        put_unsigned(&mut body, self.next_generation);
        if has_directories {
            put_unsigned(&mut body, self.directories.len() as u64);
            for directory in &self.directories {
                put_bytes(&mut body, directory.as_os_str().as_encoded_bytes());
            }
        }
        put_unsigned(&mut body, self.tables.len() as u64);
        for table in &self.tables {
            body.extend_from_slice(&table.id.0);
            put_unsigned(&mut body, table.flushed_to.segment);
            put_unsigned(&mut body, table.flushed_to.offset);
            put_unsigned(&mut body, table.files.len() as u64);
            for file in &table.files {
                put_unsigned(&mut body, file.generation);
                put_unsigned(&mut body, u64::from(file.level));
                put_unsigned(&mut body, u64::from(file.created_seconds));
                if has_directories {
                    put_unsigned(&mut body, u64::from(file.directory));
                }
            }
        }
        let mut out = Vec::with_capacity(body.len() + 9);
        out.extend_from_slice(&MAGIC);
        out.push(if has_directories { DIRECTORIES_VERSION } else { VERSION });
        out.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Self, ManifestError> {
        let damaged = |reason| ManifestError::Damaged { path: path.to_path_buf(), reason };
        let mut reader = Reader::new(bytes);
        let magic: [u8; 4] = reader.array("the magic").map_err(damaged)?;
        let version = reader.byte("the version").map_err(damaged)?;
        if magic != MAGIC || !(VERSION..=DIRECTORIES_VERSION).contains(&version) {
            return Err(damaged(DecodeError::Invalid { what: "version", value: u64::from(version) }));
        }
        let checksum = u32::from_le_bytes(reader.array("the checksum").map_err(damaged)?);
        if crc32fast::hash(reader.rest()) != checksum {
            return Err(ManifestError::Checksum { path: path.to_path_buf() });
        }
        Self::decode_body(reader, version == DIRECTORIES_VERSION).map_err(damaged)
    }

    fn decode_body(mut reader: Reader<'_>, has_directories: bool) -> Result<Self, DecodeError> {
        let next_generation = reader.unsigned("the next generation")?;
        let mut manifest = Self { next_generation, ..Self::default() };
        if has_directories {
            for _ in 0..reader.unsigned("the count of directories")? {
                let path = std::str::from_utf8(reader.bytes("a directory")?);
                let path = path.map_err(|_| DecodeError::Invalid { what: "a directory", value: 0 })?;
                manifest.directories.push(PathBuf::from(path));
            }
        }
        for _ in 0..reader.unsigned("the count of tables")? {
            let id = TableId(reader.array("a table id")?);
            let segment = reader.unsigned("a log position")?;
            let offset = reader.unsigned("a log position")?;
            let mut files = Vec::new();
            for _ in 0..reader.unsigned("the count of files")? {
                let generation = reader.unsigned("a generation")?;
                let level = reader.unsigned32("a level")?;
                let created_seconds = reader.unsigned32("a time")?;
                let directory = if has_directories { reader.unsigned32("a directory")? } else { 0 };
                if directory as usize > manifest.directories.len() {
                    return Err(DecodeError::Invalid { what: "a directory", value: u64::from(directory) });
                }
                files.push(ManifestFile { generation, level, created_seconds, directory });
            }
            manifest.tables.push(ManifestTable { id, flushed_to: LogPosition { segment, offset }, files });
        }
        if !reader.is_empty() {
            return Err(DecodeError::Trailing { what: "the tables", count: reader.rest().len() });
        }
        Ok(manifest)
    }

    /// Reads the manifest of the shard in `directory`. It is empty if there is no file yet.
    pub async fn read(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Self, ManifestError> {
        let path = directory.join(FILE_NAME);
        match disk.read(&path).await {
            Ok(bytes) => Self::decode(&bytes, &path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self { next_generation: 1, ..Self::default() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes this the manifest of the shard in `directory`.
    pub async fn replace(&self, disk: &Arc<dyn Disk>, directory: &Path) -> Result<(), ReplaceError> {
        let temporary = directory.join(TEMPORARY_NAME);
        self.write(disk, &temporary).await.map_err(ReplaceError::Unchanged)?;
        disk.rename(&temporary, &directory.join(FILE_NAME)).await.map_err(ReplaceError::Unknown)?;
        disk.sync_directory(directory).await.map_err(ReplaceError::Unknown)
    }

    async fn write(&self, disk: &Arc<dyn Disk>, path: &Path) -> Result<(), DiskError> {
        match disk.remove(path).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = disk.create(path).await?;
        file.write_and_sync_at(0, Bytes::from(self.encode())).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let file = ManifestFile { generation: 300, level: 1, created_seconds: 5, directory: 0 };
        let flushed_to = LogPosition { segment: 3, offset: 77 };
        let table = ManifestTable { id: TableId([9; 16]), flushed_to, files: vec![file] };
        Manifest { next_generation: 301, directories: Vec::new(), tables: vec![table] }
    }

    fn with_directories() -> Manifest {
        let mut manifest = sample();
        manifest.directories = vec![PathBuf::from("/a"), PathBuf::from("/bc")];
        manifest.tables[0].files[0].directory = 2;
        manifest
    }

    #[test]
    fn a_manifest_survives_a_round_trip() {
        let path = Path::new("manifest");
        for manifest in [sample(), with_directories()] {
            assert_eq!(Manifest::decode(&manifest.encode(), path).unwrap(), manifest);
        }
    }

    #[test]
    fn golden_bytes() {
        let encoded = sample().encode();
        assert_eq!(encoded[..5], *b"HLMF\x01");
        let mut body = vec![0xAD, 2, 1];
        body.extend([9; 16]);
        body.extend([3, 77, 1, 0xAC, 2, 1, 5]);
        assert_eq!(encoded[9..], body);

        let encoded = with_directories().encode();
        assert_eq!(encoded[..5], *b"HLMF\x02");
        let mut body = vec![0xAD, 2, 2, 2, b'/', b'a', 3, b'/', b'b', b'c', 1];
        body.extend([9; 16]);
        body.extend([3, 77, 1, 0xAC, 2, 1, 5, 2]);
        assert_eq!(encoded[9..], body);
        let mut unknown = with_directories();
        unknown.directories.pop();
        assert!(
            Manifest::decode(&unknown.encode(), Path::new("m")).is_err(),
            "a directory that is not named"
        );
    }

    #[test]
    fn damage_is_noticed() {
        let encoded = sample().encode();
        for index in 0..encoded.len() {
            let mut damaged = encoded.clone();
            damaged[index] ^= 1;
            assert!(Manifest::decode(&damaged, Path::new("m")).is_err(), "byte {index}");
            assert!(Manifest::decode(&encoded[..index], Path::new("m")).is_err());
        }
    }
}
