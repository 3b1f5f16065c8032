//! The encoding of the whole manifest, and of its parts.
//!
//! ```text
//! magic "HLMF" | version u8 (3) | CRC32 of the version and of what follows, u32 little endian
//! | sequence | next generation | log needed from | directories | count of tables | tables
//! | count of dropped tables | their ids, 16 bytes each
//! directories := count | path, as its length and UTF-8, of each
//! table       := id 16 bytes | flushed to: segment, offset | count of files | files | count of obsolete files | obsolete files
//! file        := generation | level | second of its creation | directory
//!                | 0, or 1 and the lowest and the highest token, i64 little endian each
//! obsolete    := generation | directory
//! ```
//! Numbers are varints. Tables, files, obsolete files and dropped tables are in ascending order. A file's directory is 0 for that of the
//! shard, else the number of one of `directories`, from 1 on.
//!
//! Version 3 has its changes in a file beside it, without which it is not used. Version 2 had none, and no order. Version 1 began
//! with the next generation, had no directories, no tokens, no dropped tables and no obsolete files, and its checksum left the version
//! out. It had one copy. Both are read, and written as version 3 by the same start.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::contents::{FileId, Manifest, ManifestFile, ManifestTable, TokenSpan};
use super::error::ManifestError;
use crate::codec::{DecodeError, Reader, put_bytes, put_unsigned};
use crate::commit_log::LogPosition;
use crate::io::Unusable;
use crate::mutation::TableId;

const MAGIC: [u8; 4] = *b"HLMF";
const VERSION: u8 = 3;
const VERSION_WITHOUT_CHANGES: u8 = 2;
const VERSION_WITHOUT_COPY: u8 = 1;

/// A whole manifest as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decoded {
    pub manifest: Manifest,
    /// Its changes are in a file beside it. False: the version is old.
    pub has_changes: bool,
}

pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    let mut body = Vec::new();
    put_unsigned(&mut body, manifest.sequence);
    put_unsigned(&mut body, manifest.next_generation);
    put_unsigned(&mut body, manifest.log_needed_from);
    put_all(&mut body, &manifest.directories, |out, directory| {
        put_bytes(out, directory.as_os_str().as_encoded_bytes());
    });
    put_all(&mut body, &manifest.tables, |out, (id, table)| {
        out.extend_from_slice(&id.0);
        put_position(out, table.flushed_to);
        put_all(out, &table.files, put_file);
        put_all(out, &table.obsolete, put_file_id);
    });
    put_all(&mut body, &manifest.dropped, |out, id| out.extend_from_slice(&id.0));
    let mut out = Vec::with_capacity(body.len() + 9);
    out.extend_from_slice(&MAGIC);
    out.push(VERSION);
    out.extend_from_slice(&checksum(VERSION, &body).to_le_bytes());
    out.extend_from_slice(&body);
    out
}

/// Whether this may be a copy of an old version, also a damaged one.
pub(super) fn may_be_old(bytes: &[u8]) -> bool {
    bytes.strip_prefix(&MAGIC).is_some_and(|rest| rest.first().is_some_and(|version| *version < VERSION))
}

pub(super) fn decode(bytes: &[u8], path: &Path) -> Result<Decoded, Unusable<ManifestError>> {
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
        let path = path.to_path_buf();
        return Err(Unusable::Refused(ManifestError::Version { path, version, known: VERSION }));
    }
    let manifest = decode_body(reader, version).map_err(damaged)?;
    Ok(Decoded { manifest, has_changes: version == VERSION })
}

fn decode_body(mut reader: Reader<'_>, version: u8) -> Result<Manifest, DecodeError> {
    let reader = &mut reader;
    let is_first = match version {
        VERSION | VERSION_WITHOUT_CHANGES => false,
        VERSION_WITHOUT_COPY => true,
        other => return Err(DecodeError::Invalid { what: "version", value: u64::from(other) }),
    };
    let mut manifest = Manifest::default();
    if !is_first {
        manifest.sequence = reader.unsigned("the sequence")?;
    }
    manifest.next_generation = reader.unsigned("the next generation")?;
    if !is_first {
        manifest.log_needed_from = reader.unsigned("a log segment")?;
        manifest.directories = take_all(reader, take_path)?;
    }
    let tables = take_all(reader, |reader| {
        let id = take_id(reader)?;
        let flushed_to = take_position(reader)?;
        let files = take_all(reader, if is_first { take_first_file } else { take_file })?;
        let obsolete = if is_first { Vec::new() } else { take_all(reader, take_file_id)? };
        Ok((id, flushed_to, files, obsolete))
    })?;
    let dropped = if is_first { Vec::new() } else { take_all(reader, take_id)? };
    if !reader.is_empty() {
        return Err(DecodeError::Trailing { what: "the tables", count: reader.rest().len() });
    }
    let is_ordered = version == VERSION;
    for (id, flushed_to, files, obsolete) in tables {
        if is_ordered && manifest.tables.last_key_value().is_some_and(|(last, _)| *last >= id) {
            return Err(DecodeError::Disorder { what: "tables" });
        }
        if let Some(file) = files.iter().find(|file| !manifest.has_directory(file.directory)) {
            return Err(unknown_directory(file.directory));
        }
        if let Some(file) = obsolete.iter().find(|file| !manifest.has_directory(file.directory)) {
            return Err(unknown_directory(file.directory));
        }
        let files = ordered("files", is_ordered, files, |file| file.generation)?;
        let obsolete = ordered("obsolete files", is_ordered, obsolete, |file| *file)?;
        let table = ManifestTable { flushed_to, files, obsolete: obsolete.into_iter().collect() };
        if manifest.tables.insert(id, table).is_some() {
            return Err(DecodeError::Disorder { what: "tables" });
        }
    }
    manifest.dropped = ordered("dropped tables", is_ordered, dropped, |id| *id)?.into_iter().collect();
    Ok(manifest)
}

#[cold]
fn unknown_directory(number: u32) -> DecodeError {
    DecodeError::Invalid { what: "a directory", value: u64::from(number) }
}

/// Items in ascending order, in which they must be if `is_ordered`. None may be there twice.
fn ordered<T, K: Ord>(
    what: &'static str,
    is_ordered: bool,
    mut items: Vec<T>,
    key: impl Fn(&T) -> K,
) -> Result<Vec<T>, DecodeError> {
    if !is_ordered {
        items.sort_by_key(&key);
    }
    if !items.is_sorted_by(|one, next| key(one) < key(next)) {
        return Err(DecodeError::Disorder { what });
    }
    Ok(items)
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

/// A count and that many items.
pub(super) fn put_all<I>(out: &mut Vec<u8>, items: I, put: impl Fn(&mut Vec<u8>, I::Item))
where
    I: IntoIterator<IntoIter: ExactSizeIterator>,
{
    let items = items.into_iter();
    put_unsigned(out, items.len() as u64);
    for item in items {
        put(out, item);
    }
}

/// Reads what [`put_all`] has written.
pub(super) fn take_all<T>(
    reader: &mut Reader<'_>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut items = Vec::new();
    for _ in 0..reader.unsigned("a count")? {
        items.push(take(reader)?);
    }
    Ok(items)
}

/// As [`take_all`], of items in ascending order.
pub(super) fn take_set<T: Ord>(
    reader: &mut Reader<'_>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<BTreeSet<T>, DecodeError> {
    let mut items = BTreeSet::new();
    for _ in 0..reader.unsigned("a count")? {
        let item = take(reader)?;
        if items.last().is_some_and(|last| *last >= item) {
            return Err(DecodeError::Disorder { what: "items" });
        }
        items.insert(item);
    }
    Ok(items)
}

/// As [`take_all`], of items with keys in ascending order.
pub(super) fn take_map<K: Ord, T>(
    reader: &mut Reader<'_>,
    take: impl Fn(&mut Reader<'_>) -> Result<(K, T), DecodeError>,
) -> Result<BTreeMap<K, T>, DecodeError> {
    let mut items = BTreeMap::new();
    for _ in 0..reader.unsigned("a count")? {
        let (key, item) = take(reader)?;
        if items.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return Err(DecodeError::Disorder { what: "items" });
        }
        items.insert(key, item);
    }
    Ok(items)
}

pub(super) fn put_file(out: &mut Vec<u8>, file: &ManifestFile) {
    put_unsigned(out, file.generation);
    put_unsigned(out, u64::from(file.level));
    put_unsigned(out, u64::from(file.created_seconds));
    put_unsigned(out, u64::from(file.directory));
    out.push(u8::from(file.tokens.is_some()));
    for token in file.tokens.iter().flat_map(|tokens| [tokens.first, tokens.last]) {
        out.extend_from_slice(&token.to_le_bytes());
    }
}

pub(super) fn take_file(reader: &mut Reader<'_>) -> Result<ManifestFile, DecodeError> {
    let file = take_first_file(reader)?;
    let directory = reader.unsigned32("a directory")?;
    Ok(ManifestFile { directory, tokens: take_tokens(reader)?, ..file })
}

/// A file as version 1 had it.
fn take_first_file(reader: &mut Reader<'_>) -> Result<ManifestFile, DecodeError> {
    Ok(ManifestFile {
        generation: reader.unsigned("a generation")?,
        level: reader.unsigned32("a level")?,
        created_seconds: reader.unsigned32("a time")?,
        directory: 0,
        tokens: None,
    })
}

fn take_tokens(reader: &mut Reader<'_>) -> Result<Option<TokenSpan>, DecodeError> {
    match reader.byte("a flag")? {
        0 => Ok(None),
        1 => {
            let first = i64::from_le_bytes(reader.array("a token")?);
            Ok(Some(TokenSpan { first, last: i64::from_le_bytes(reader.array("a token")?) }))
        }
        other => Err(DecodeError::Invalid { what: "a flag", value: u64::from(other) }),
    }
}

pub(super) fn put_file_id(out: &mut Vec<u8>, file: &FileId) {
    put_unsigned(out, file.generation);
    put_unsigned(out, u64::from(file.directory));
}

pub(super) fn take_file_id(reader: &mut Reader<'_>) -> Result<FileId, DecodeError> {
    let generation = reader.unsigned("a generation")?;
    Ok(FileId { generation, directory: reader.unsigned32("a directory")? })
}

pub(super) fn put_position(out: &mut Vec<u8>, position: LogPosition) {
    put_unsigned(out, position.segment);
    put_unsigned(out, position.offset);
}

pub(super) fn take_position(reader: &mut Reader<'_>) -> Result<LogPosition, DecodeError> {
    let segment = reader.unsigned("a log position")?;
    Ok(LogPosition { segment, offset: reader.unsigned("a log position")? })
}

pub(super) fn take_id(reader: &mut Reader<'_>) -> Result<TableId, DecodeError> {
    Ok(TableId(reader.array("a table id")?))
}

fn take_path(reader: &mut Reader<'_>) -> Result<PathBuf, DecodeError> {
    let path = std::str::from_utf8(reader.bytes("a directory")?);
    Ok(PathBuf::from(path.map_err(|_| DecodeError::Invalid { what: "a directory", value: 0 })?))
}
