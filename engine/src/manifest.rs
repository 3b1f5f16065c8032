//! The manifest: the tables of a shard, the files of each table, the log position up to which those files contain the commit log,
//! and what earlier changes may have left behind on the disk and in the log.
//!
//! The manifest is one small file that is replaced as a whole and kept in two copies, `manifest` and `manifest.copy`
//! ([`TwoCopies`]). A flush, compaction, truncation or drop takes effect when both are replaced. The number of the copies is
//! [`Manifest::sequence`].
//!
//! Invariants:
//! * A file that the manifest names is complete and synced.
//! * What a change makes useless is listed by the same change: files as obsolete, tables as dropped. An entry leaves its list when
//!   it is gone from the disk, durably, and (a table) from the needed part of the log. So whatever is found and is neither named nor
//!   listed is unknown, and nothing unknown is ever deleted.
//! * The log is released only up to [`Manifest::log_needed_from`].
//!
//! ```text
//! magic "HLMF" | version u8 (2) | CRC32 of the version and of what follows, u32 little endian
//! | sequence | next generation | log needed from | directories | count of tables | tables
//! | count of dropped tables | their ids, 16 bytes each
//! directories := count | path, as its length and UTF-8, of each
//! table       := id 16 bytes | flushed to: segment, offset | count of files | files | count of obsolete files | obsolete files
//! file        := generation | level | second of its creation | directory
//!                | 0, or 1 and the lowest and the highest token, i64 little endian each
//! obsolete    := generation | directory
//! ```
//! Numbers are varints. A file's directory is 0 for that of the shard, else the number of one of `directories`, from 1 on. Version 1 began
//! with the next generation, had no directories, no tokens, no dropped tables and no obsolete files, and its checksum left the version
//! out. It had one copy. It is read, and written as version 2 by the same start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::codec::{DecodeError, Reader, put_bytes, put_unsigned};
use crate::commit_log::LogPosition;
use crate::io::{Disk, DiskError, LoadError, ReplaceError, TwoCopies, Unusable};
use crate::mutation::TableId;

const MAGIC: [u8; 4] = *b"HLMF";
const VERSION: u8 = 2;
const VERSION_WITHOUT_COPY: u8 = 1;
pub(crate) const FILE_NAME: &str = "manifest";

/// Why the manifest could not be read or replaced.
#[derive(Debug, Clone, Error)]
pub enum ManifestError {
    #[error("manifest: {0}")]
    Disk(#[from] DiskError),
    #[error("manifest {}: {reason}", path.display())]
    Damaged { path: PathBuf, reason: DecodeError },
    #[error("manifest {}: the checksum is wrong", path.display())]
    Checksum { path: PathBuf },
    #[error(
        "manifest {} has version {version}; this program knows versions up to {VERSION}: run a newer one",
        path.display()
    )]
    Version { path: PathBuf, version: u8 },
    #[error(
        "manifest {} and its copy are missing, and without them the shard's files mean nothing; nothing was changed: restore either \
         from a backup",
        path.display()
    )]
    Missing { path: PathBuf },
    #[error("manifest: {0}; it is unknown which one is right: remove the wrong one")]
    Differ(String),
    #[error(
        "manifest {} is older than the commit log: it does not know table {table}, which {position} of the log belongs to; restore \
         the newest manifest",
        path.display()
    )]
    Older { path: PathBuf, table: TableId, position: LogPosition },
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
    /// The tokens that the file has data of. `None`: not known, in a file that was made under version 1.
    pub tokens: Option<TokenSpan>,
}

/// All tokens from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenSpan {
    pub first: i64,
    pub last: i64,
}

impl ManifestFile {
    pub fn id(&self) -> FileId {
        FileId { generation: self.generation, directory: self.directory }
    }
}

/// Which file of a table. The generation alone names it; the directory says where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId {
    pub generation: u64,
    /// The number of its directory.
    pub directory: u32,
}

/// A table of the shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestTable {
    pub id: TableId,
    /// Log records of this table before this position are in the files (or were truncated).
    pub flushed_to: LogPosition,
    pub files: Vec<ManifestFile>,
    /// Files that the table had. They may still be on the disk.
    pub obsolete: Vec<FileId>,
}

/// The contents of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Manifest {
    /// The number of replacements so far. 0: read from version 1.
    pub sequence: u64,
    /// Greater than the generation of any file so far.
    pub next_generation: u64,
    /// The lowest log segment that may hold a record which is in no file. 0: unknown (version 1).
    pub log_needed_from: u64,
    /// Further directories of table files. One that was named once keeps its number.
    pub directories: Vec<PathBuf>,
    pub tables: Vec<ManifestTable>,
    /// Tables that were dropped. Their directories may still be on the disk, and their records in the log.
    pub dropped: Vec<TableId>,
}

/// What [`Manifest::load`] has found.
pub(crate) struct Loaded {
    pub manifest: Manifest,
    /// Whether it must be written again: a copy is missing, damaged or older, or the version is.
    pub must_be_written: bool,
}

impl Manifest {
    /// The manifest of a new shard.
    pub fn new() -> Self {
        Self { next_generation: 1, ..Self::default() }
    }

    pub fn table(&mut self, id: TableId) -> Option<&mut ManifestTable> {
        self.tables.iter_mut().find(|table| table.id == id)
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put_unsigned(&mut body, self.sequence);
        put_unsigned(&mut body, self.next_generation);
        put_unsigned(&mut body, self.log_needed_from);
        put_unsigned(&mut body, self.directories.len() as u64);
        for directory in &self.directories {
            put_bytes(&mut body, directory.as_os_str().as_encoded_bytes());
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
                put_unsigned(&mut body, u64::from(file.directory));
                body.push(u8::from(file.tokens.is_some()));
                for token in file.tokens.iter().flat_map(|tokens| [tokens.first, tokens.last]) {
                    body.extend_from_slice(&token.to_le_bytes());
                }
            }
            put_unsigned(&mut body, table.obsolete.len() as u64);
            for file in &table.obsolete {
                put_unsigned(&mut body, file.generation);
                put_unsigned(&mut body, u64::from(file.directory));
            }
        }
        put_unsigned(&mut body, self.dropped.len() as u64);
        for id in &self.dropped {
            body.extend_from_slice(&id.0);
        }
        let mut out = Vec::with_capacity(body.len() + 9);
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&checksum(VERSION, &body).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Self, Unusable<ManifestError>> {
        let damaged = |reason| Unusable::Damaged(ManifestError::Damaged { path: path.to_path_buf(), reason });
        let mut reader = Reader::new(bytes);
        let magic: [u8; 4] = reader.array("the magic").map_err(damaged)?;
        if magic != MAGIC {
            return Err(damaged(DecodeError::Invalid {
                what: "magic",
                value: u64::from(u32::from_le_bytes(magic)),
            }));
        }
        let version = reader.byte("the version").map_err(damaged)?;
        let expected = u32::from_le_bytes(reader.array("the checksum").map_err(damaged)?);
        if checksum(version, reader.rest()) != expected {
            return Err(Unusable::Damaged(ManifestError::Checksum { path: path.to_path_buf() }));
        }
        if version > VERSION {
            return Err(Unusable::Refused(ManifestError::Version { path: path.to_path_buf(), version }));
        }
        Self::decode_body(reader, version).map_err(damaged)
    }

    fn decode_body(mut reader: Reader<'_>, version: u8) -> Result<Self, DecodeError> {
        let is_old = match version {
            VERSION => false,
            VERSION_WITHOUT_COPY => true,
            other => return Err(DecodeError::Invalid { what: "version", value: u64::from(other) }),
        };
        let mut manifest = Self::default();
        if !is_old {
            manifest.sequence = reader.unsigned("the sequence")?;
        }
        manifest.next_generation = reader.unsigned("the next generation")?;
        if !is_old {
            manifest.log_needed_from = reader.unsigned("a log segment")?;
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
                let (directory, tokens) = if is_old {
                    (0, None)
                } else {
                    (manifest.decode_directory(&mut reader)?, decode_tokens(&mut reader)?)
                };
                files.push(ManifestFile { generation, level, created_seconds, directory, tokens });
            }
            let mut obsolete = Vec::new();
            if !is_old {
                for _ in 0..reader.unsigned("the count of obsolete files")? {
                    let generation = reader.unsigned("a generation")?;
                    obsolete.push(FileId { generation, directory: manifest.decode_directory(&mut reader)? });
                }
            }
            let flushed_to = LogPosition { segment, offset };
            manifest.tables.push(ManifestTable { id, flushed_to, files, obsolete });
        }
        if !is_old {
            for _ in 0..reader.unsigned("the count of dropped tables")? {
                manifest.dropped.push(TableId(reader.array("a table id")?));
            }
        }
        if !reader.is_empty() {
            return Err(DecodeError::Trailing { what: "the tables", count: reader.rest().len() });
        }
        Ok(manifest)
    }

    /// The number of a directory that the manifest names.
    fn decode_directory(&self, reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
        let number = reader.unsigned32("a directory")?;
        if number as usize > self.directories.len() {
            return Err(DecodeError::Invalid { what: "a directory", value: u64::from(number) });
        }
        Ok(number)
    }

    fn file(directory: &Path) -> TwoCopies {
        TwoCopies::new(directory, FILE_NAME)
    }

    /// The path that messages name.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join(FILE_NAME)
    }

    /// Whether the directory has either copy.
    pub async fn exists(disk: &Arc<dyn Disk>, directory: &Path) -> Result<bool, DiskError> {
        Self::file(directory).exists(&**disk).await
    }

    /// Reads the manifest of the shard in `directory`; `None` if there is neither copy. Nothing is changed on the disk.
    pub async fn load(disk: &Arc<dyn Disk>, directory: &Path) -> Result<Option<Loaded>, ManifestError> {
        let decode = |path: &Path, bytes: &Bytes| {
            let manifest = Self::decode(bytes, path)?;
            Ok((manifest.sequence, manifest))
        };
        let loaded = Self::file(directory).load(&**disk, decode).await.map_err(|error| match error {
            LoadError::Disk(error) => ManifestError::Disk(error),
            LoadError::Contents(error) => error,
            LoadError::Differ { .. } => ManifestError::Differ(error.to_string()),
        })?;
        let Some(newest) = loaded else { return Ok(None) };
        let manifest = newest.value;
        let is_old = manifest.sequence == 0;
        if let Some(defect) = newest.defect.as_ref().filter(|_| !is_old) {
            tracing::warn!(%defect, "a copy of the manifest is not as it was left; the other one is used, and both are written again");
        }
        Ok(Some(Loaded { manifest, must_be_written: is_old || newest.defect.is_some() }))
    }

    /// Makes this the manifest of the shard in `directory`. Its sequence must be above that of the present one.
    pub async fn replace(&self, disk: &Arc<dyn Disk>, directory: &Path) -> Result<(), ReplaceError> {
        Self::file(directory).replace(&**disk, Bytes::from(self.encode())).await
    }
}

fn decode_tokens(reader: &mut Reader<'_>) -> Result<Option<TokenSpan>, DecodeError> {
    match reader.byte("a flag")? {
        0 => Ok(None),
        1 => {
            let first = i64::from_le_bytes(reader.array("a token")?);
            Ok(Some(TokenSpan { first, last: i64::from_le_bytes(reader.array("a token")?) }))
        }
        other => Err(DecodeError::Invalid { what: "a flag", value: u64::from(other) }),
    }
}

/// The checksum of a body. A flipped bit of the version must not pass for a newer program's file.
fn checksum(version: u8, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    if version != VERSION_WITHOUT_COPY {
        hasher.update(&[version]);
    }
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId([9; 16]);

    fn sample() -> Manifest {
        let tokens = Some(TokenSpan { first: -2, last: 1 });
        let file = ManifestFile { generation: 300, level: 1, created_seconds: 5, directory: 2, tokens };
        let flushed_to = LogPosition { segment: 3, offset: 77 };
        let obsolete = [(299, 0), (4, 2)].map(|(generation, directory)| FileId { generation, directory });
        let table = ManifestTable { id: TABLE, flushed_to, files: vec![file], obsolete: obsolete.to_vec() };
        Manifest {
            sequence: 6,
            next_generation: 301,
            log_needed_from: 2,
            directories: vec![PathBuf::from("/a"), PathBuf::from("/bc")],
            tables: vec![table],
            dropped: vec![TableId([8; 16])],
        }
    }

    fn decode(bytes: &[u8]) -> Result<Manifest, Unusable<ManifestError>> {
        Manifest::decode(bytes, Path::new("manifest"))
    }

    #[test]
    fn a_manifest_survives_a_round_trip() {
        assert_eq!(decode(&sample().encode()).unwrap(), sample());
    }

    #[test]
    fn golden_bytes() {
        let encoded = sample().encode();
        assert_eq!(encoded[..5], *b"HLMF\x02");
        let mut body = vec![6, 0xAD, 2, 2, 2, 2, b'/', b'a', 3, b'/', b'b', b'c', 1];
        body.extend([9; 16]);
        body.extend([3, 77, 1, 0xAC, 2, 1, 5, 2, 1]);
        body.extend([0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0, 0, 0, 0, 0]);
        body.extend([2, 0xAB, 2, 0, 4, 2, 1]);
        body.extend([8; 16]);
        assert_eq!(encoded[9..], body);
        let covered = [&[2][..], &body].concat();
        assert_eq!(encoded[5..9], crc32fast::hash(&covered).to_le_bytes());
    }

    #[test]
    fn version_1_is_read() {
        let mut body = vec![0xAD, 2, 1];
        body.extend([9; 16]);
        body.extend([3, 77, 1, 0xAC, 2, 1, 5]);
        let mut bytes = b"HLMF\x01".to_vec();
        bytes.extend(crc32fast::hash(&body).to_le_bytes());
        bytes.extend(body);
        let mut expected = Manifest { sequence: 0, log_needed_from: 0, dropped: Vec::new(), ..sample() };
        expected.directories.clear();
        expected.tables[0].obsolete.clear();
        expected.tables[0].files[0].directory = 0;
        expected.tables[0].files[0].tokens = None;
        assert_eq!(decode(&bytes).unwrap(), expected);
    }

    #[test]
    fn a_directory_that_is_not_named_is_damage() {
        let mut unknown = sample();
        unknown.directories.pop();
        assert!(matches!(decode(&unknown.encode()), Err(Unusable::Damaged(_))));
    }

    #[test]
    fn damage_is_noticed() {
        let encoded = sample().encode();
        for index in 0..encoded.len() {
            let mut damaged = encoded.clone();
            damaged[index] ^= 1;
            // Also in the version: the other copy must be used.
            assert!(matches!(decode(&damaged), Err(Unusable::Damaged(_))), "byte {index}");
            assert!(matches!(decode(&encoded[..index]), Err(Unusable::Damaged(_))));
        }
    }

    #[test]
    fn a_newer_version_is_refused_by_its_number() {
        let mut newer = sample().encode();
        newer[4] = 3;
        let crc32 = checksum(3, &newer[9..]).to_le_bytes();
        newer[5..9].copy_from_slice(&crc32);
        let Err(Unusable::Refused(error)) = decode(&newer) else { panic!("read") };
        assert!(error.to_string().contains("manifest manifest has version 3"), "{error}");
    }
}
