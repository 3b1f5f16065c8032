//! An edit of the manifest, and the change that it makes.
//!
//! An edit has its own copies of the tables that it concerns. When it is finished, what is different becomes a [`Change`]. The change is
//! what is stored, and the same change is applied to the manifest in memory, and by a start to the manifest that it has read.
//!
//! ```text
//! change  := sequence | next generation | log needed from | count of tables | tables
//!            | count of tables dropped | their ids | count of dropped tables that are forgotten | their ids
//! table   := id, 16 bytes | kind u8 | unless it is removed: flushed to: segment, offset
//!            | count | generations of the files that go | count | files that come
//!            | count | obsolete files that are forgotten | count | new obsolete files
//! kind    := 0: removed | 1: changed | 2: new
//! ```
//! Numbers are varints; files and obsolete files are those of `format`. A file that changes goes and comes.
//!
//! Invariant: a change fits the manifest that it is applied to: its sequence follows, what goes is there, and what comes is not. A change
//! that does not fit, of whatever kind, is refused, and changes nothing. One exception: the drop of a table that is there fits also if an
//! earlier table with its id is still listed as dropped. Its entry is the same one, and to refuse it would cost the shard.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::contents::{FileId, Manifest, ManifestFile, ManifestTable};
use super::format::{
    put_all, put_file, put_file_id, put_position, take_all, take_file, take_file_id, take_id, take_map,
    take_position, take_set,
};
use crate::codec::{DecodeError, Reader, put_unsigned};
use crate::commit_log::LogPosition;
use crate::mutation::TableId;

const REMOVED: u8 = 0;
const CHANGED: u8 = 1;
const NEW: u8 = 2;

/// Changes that are being made to a manifest.
#[derive(Debug, Default)]
pub(crate) struct ManifestEdit {
    /// Tables as they will be. `None`: removed.
    tables: BTreeMap<TableId, Option<ManifestTable>>,
    dropped: BTreeSet<TableId>,
    forgotten: BTreeSet<TableId>,
}

impl ManifestEdit {
    /// A table as it will be, to be changed; `None` if there is none.
    pub fn table(&mut self, manifest: &Manifest, id: TableId) -> Option<&mut ManifestTable> {
        match self.tables.entry(id) {
            Entry::Occupied(entry) => entry.into_mut().as_mut(),
            Entry::Vacant(entry) => entry.insert(Some(manifest.tables.get(&id)?.clone())).as_mut(),
        }
    }

    /// Whether there will be a table with this id.
    pub fn has_table(&self, manifest: &Manifest, id: TableId) -> bool {
        self.tables.get(&id).map_or_else(|| manifest.tables.contains_key(&id), Option::is_some)
    }

    pub fn add_table(&mut self, id: TableId, table: ManifestTable) {
        self.tables.insert(id, Some(table));
    }

    /// Removes a table and lists it as dropped.
    pub fn drop_table(&mut self, id: TableId) {
        self.tables.insert(id, None);
        self.dropped.insert(id);
    }

    /// Takes a table out of the list of dropped ones.
    pub fn forget_dropped(&mut self, id: TableId) {
        self.forgotten.insert(id);
    }

    /// What is different. The manifest is the one that the tables are copies of.
    pub fn finish(self, manifest: &Manifest, next_generation: u64, log_needed_from: u64) -> Change {
        let tables = self.tables.into_iter().filter_map(|(id, after)| {
            let before = manifest.tables.get(&id);
            let changed = match (before, after) {
                (_, Some(after)) => TableChange::Changed(TableDifference::between(before, &after)),
                (Some(_), None) => TableChange::Removed,
                (None, None) => return None,
            };
            Some((id, changed))
        });
        Change {
            sequence: manifest.sequence + 1,
            next_generation,
            log_needed_from,
            tables: tables.collect(),
            dropped: self.dropped,
            forgotten: self.forgotten,
        }
    }
}

/// A change of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Of the manifest that it leads to.
    pub sequence: u64,
    next_generation: u64,
    log_needed_from: u64,
    tables: BTreeMap<TableId, TableChange>,
    /// Tables that are listed as dropped from now on.
    dropped: BTreeSet<TableId>,
    /// Dropped tables that are not listed any more.
    forgotten: BTreeSet<TableId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TableChange {
    Removed,
    Changed(TableDifference),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TableDifference {
    is_new: bool,
    flushed_to: LogPosition,
    removed_files: BTreeSet<u64>,
    /// By generation.
    added_files: Vec<ManifestFile>,
    removed_obsolete: BTreeSet<FileId>,
    added_obsolete: BTreeSet<FileId>,
}

/// Why a change does not lead anywhere.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub(crate) enum ChangeError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("it follows change {expected}, not {found}")]
    Sequence { expected: u64, found: u64 },
    #[error("{what} of table {table} does not fit the manifest")]
    Misfit { what: &'static str, table: TableId },
}

impl TableDifference {
    fn between(before: Option<&ManifestTable>, after: &ManifestTable) -> Self {
        let none = ManifestTable::new(after.flushed_to);
        let (is_new, before) = (before.is_none(), before.unwrap_or(&none));
        let by_generation = |table: &ManifestTable| -> BTreeMap<u64, ManifestFile> {
            table.files.iter().map(|file| (file.generation, *file)).collect()
        };
        let (old, new) = (by_generation(before), by_generation(after));
        let stays = |file: &ManifestFile| {
            old.get(&file.generation) == Some(file) && new.get(&file.generation) == Some(file)
        };
        Self {
            is_new,
            flushed_to: after.flushed_to,
            removed_files: old.values().filter(|file| !stays(file)).map(|file| file.generation).collect(),
            added_files: new.values().filter(|file| !stays(file)).copied().collect(),
            removed_obsolete: before.obsolete.difference(&after.obsolete).copied().collect(),
            added_obsolete: after.obsolete.difference(&before.obsolete).copied().collect(),
        }
    }

    fn check_fits(&self, id: TableId, manifest: &Manifest) -> Result<(), ChangeError> {
        let misfit = |what| Err(ChangeError::Misfit { what, table: id });
        let added = self.added_files.iter().map(|file| file.directory);
        let mut directories = added.chain(self.added_obsolete.iter().map(|file| file.directory));
        if !directories.all(|number| manifest.has_directory(number)) {
            return misfit("a directory");
        }
        let none = ManifestTable::new(self.flushed_to);
        let table = match (manifest.tables.get(&id), self.is_new) {
            (Some(table), false) => table,
            (None, true) => &none,
            _ => return misfit("the existence"),
        };
        let goes = |file: &&ManifestFile| self.removed_files.contains(&file.generation);
        if table.files.iter().filter(goes).count() != self.removed_files.len() {
            return misfit("a file that goes");
        }
        let coming: BTreeSet<u64> = self.added_files.iter().map(|file| file.generation).collect();
        let is_there = |file: &ManifestFile| !goes(&file) && coming.contains(&file.generation);
        if coming.len() != self.added_files.len() || table.files.iter().any(is_there) {
            return misfit("a file that comes");
        }
        if !self.removed_obsolete.is_subset(&table.obsolete) {
            return misfit("an obsolete file that is forgotten");
        }
        let is_listed = |file| table.obsolete.contains(file) && !self.removed_obsolete.contains(file);
        if self.added_obsolete.iter().any(is_listed) {
            return misfit("a new obsolete file");
        }
        Ok(())
    }

    /// `table`: what it fits.
    fn apply(&self, table: &mut ManifestTable) {
        table.files.retain(|file| !self.removed_files.contains(&file.generation));
        table.files.extend(&self.added_files);
        table.files.sort_by_key(|file| file.generation);
        table.obsolete.retain(|file| !self.removed_obsolete.contains(file));
        table.obsolete.extend(&self.added_obsolete);
        table.flushed_to = self.flushed_to;
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(if self.is_new { NEW } else { CHANGED });
        put_position(out, self.flushed_to);
        put_all(out, &self.removed_files, |out, generation| put_unsigned(out, *generation));
        put_all(out, &self.added_files, put_file);
        put_all(out, &self.removed_obsolete, put_file_id);
        put_all(out, &self.added_obsolete, put_file_id);
    }

    fn decode(reader: &mut Reader<'_>, is_new: bool) -> Result<Self, DecodeError> {
        Ok(Self {
            is_new,
            flushed_to: take_position(reader)?,
            removed_files: take_set(reader, |reader| reader.unsigned("a generation"))?,
            added_files: take_all(reader, take_file)?,
            removed_obsolete: take_set(reader, take_file_id)?,
            added_obsolete: take_set(reader, take_file_id)?,
        })
    }
}

impl Change {
    /// An error if it was made from another manifest than this one.
    pub fn check_fits(&self, manifest: &Manifest) -> Result<(), ChangeError> {
        if self.sequence != manifest.sequence + 1 {
            return Err(ChangeError::Sequence { expected: manifest.sequence + 1, found: self.sequence });
        }
        let misfit = |what, id: &TableId| Err(ChangeError::Misfit { what, table: *id });
        for (id, table) in &self.tables {
            match table {
                TableChange::Removed if manifest.tables.contains_key(id) => {}
                TableChange::Removed => return misfit("the removal", id),
                TableChange::Changed(difference) => difference.check_fits(*id, manifest)?,
            }
        }
        if let Some(id) = self.forgotten.difference(&manifest.dropped).next() {
            return misfit("an earlier drop", id);
        }
        let is_listed = |id: &&TableId| manifest.dropped.contains(id) && !self.forgotten.contains(id);
        let is_there = |id: &&TableId| manifest.tables.contains_key(id);
        if let Some(id) = self.dropped.iter().find(|id| is_listed(id) && !is_there(id)) {
            return misfit("the drop", id);
        }
        Ok(())
    }

    /// Changes a manifest, if it fits.
    pub fn apply(&self, manifest: &mut Manifest) -> Result<(), ChangeError> {
        self.check_fits(manifest)?;
        for (id, table) in &self.tables {
            match table {
                TableChange::Removed => {
                    manifest.tables.remove(id);
                }
                TableChange::Changed(difference) => {
                    let new = || ManifestTable::new(difference.flushed_to);
                    difference.apply(manifest.tables.entry(*id).or_insert_with(new));
                }
            }
        }
        for id in &self.forgotten {
            manifest.dropped.remove(id);
        }
        manifest.dropped.extend(&self.dropped);
        manifest.sequence = self.sequence;
        manifest.next_generation = self.next_generation;
        manifest.log_needed_from = self.log_needed_from;
        Ok(())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_unsigned(&mut out, self.sequence);
        put_unsigned(&mut out, self.next_generation);
        put_unsigned(&mut out, self.log_needed_from);
        put_all(&mut out, &self.tables, |out, (id, table)| {
            out.extend_from_slice(&id.0);
            match table {
                TableChange::Removed => out.push(REMOVED),
                TableChange::Changed(difference) => difference.encode(out),
            }
        });
        for ids in [&self.dropped, &self.forgotten] {
            put_all(&mut out, ids, |out, id| out.extend_from_slice(&id.0));
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let reader = &mut reader;
        let change = Self {
            sequence: reader.unsigned("the sequence")?,
            next_generation: reader.unsigned("the next generation")?,
            log_needed_from: reader.unsigned("a log segment")?,
            tables: take_map(reader, take_table)?,
            dropped: take_set(reader, take_id)?,
            forgotten: take_set(reader, take_id)?,
        };
        if !reader.is_empty() {
            return Err(DecodeError::Trailing { what: "a change", count: reader.rest().len() });
        }
        Ok(change)
    }
}

fn take_table(reader: &mut Reader<'_>) -> Result<(TableId, TableChange), DecodeError> {
    let id = take_id(reader)?;
    let change = match reader.byte("a kind of change")? {
        REMOVED => TableChange::Removed,
        kind @ (CHANGED | NEW) => TableChange::Changed(TableDifference::decode(reader, kind == NEW)?),
        other => {
            return Err(DecodeError::Invalid { what: "a kind of change", value: u64::from(other) });
        }
    };
    Ok((id, change))
}
