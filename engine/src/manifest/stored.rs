//! The files of the manifest.
//!
//! | file | |
//! |---|---|
//! | `manifest`, `manifest.copy` | the manifest as a whole ([`TwoCopies`]). Its number is its sequence. |
//! | `manifest.changes-<number>`, `….copy` | the changes since the manifest of that number ([`RecordLog`]), one a record |
//!
//! The manifest is written as a whole
//! 1. by making the changes of its number, which are empty, and syncing the directory,
//! 2. by replacing `manifest`,
//! 3. by removing all other changes.
//!
//! While a full disk keeps the second copy from being replaced, step 3 belongs to what must be durable: with its changes, that copy would be a
//! valid earlier manifest if the first one were lost.
//!
//! So wherever a crash comes, the manifest that a start finds has its changes beside it. A change that has no room there, and the first one after
//! each start, writes the manifest as a whole. So does every one while a full disk keeps one of the copies from being replaced, and one that
//! the disk does not take there for another reason than want of room: another file may lie on a better part of it.
//!
//! What a change leads to is in memory as soon as it has taken effect on the disk: nothing is awaited between the two. After a change that was
//! given up, or whose outcome is unknown, memory and disk may differ. No other change follows until the next start has read the disk.
//!
//! A start reads what may be in the memory of the system only. So it mends the changes ([`Loaded::mend`]) before it depends on them: what a
//! crash might take back is durable then, the names of the files too, and both copies are equal. That needs no room. It does not write the manifest
//! as a whole unless there is more to be mended.
//!
//! If it must and the disk is full, one copy of each file is enough ([`ManifestFiles::rely_on_one_copy`]). As after the renaming of one copy, the
//! other one must then not be a valid earlier manifest, so all other changes are removed first. That is no help against a copy of an
//! earlier version, which needs no changes: with one the start is refused.
//!
//! A manifest that is older than what the shard has done must not be used: it would take files in use for unknown ones. A start refuses
//! * a manifest whose changes are missing: later changes were there, or it would have them;
//! * changes of a higher number that has records, or is not the next one: a later manifest was there. Without records and with the next number
//!   they are what a crash in step 1 has left.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::change::{Change, ChangeError};
use super::contents::Manifest;
use super::error::ManifestError;
use super::format::{self, Decoded};
use crate::invariant::{BrokenInvariant, broken};
use crate::io::{
    Defect, Disk, DiskError, LoadError, RecordLog, RecordLogError, RecordLogKind, RecordLogPlace, Records,
    ReplaceError, Replaced, TwoCopies,
};

const FILE_NAME: &str = "manifest";
const CHANGES_PREFIX: &str = "manifest.changes-";
const CHANGES: RecordLogKind = RecordLogKind { magic: *b"HLMC", version: 1 };
/// The room for changes is half of what the manifest has, within these bounds: then they cost about as much as writing it as a whole.
pub(super) const CHANGES_BYTES_MIN: u64 = 16 << 10;
const CHANGES_BYTES_MAX: u64 = 1 << 20;

/// The files of a shard's manifest.
pub(crate) struct ManifestFiles {
    directory: PathBuf,
    /// The changes of the manifest on the disk. `None`: the next change writes it as a whole.
    changes: Option<RecordLog>,
}

/// What [`ManifestFiles::load`] has found.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub manifest: Manifest,
    /// The copy of the manifest as a whole that is missing, damaged or older, if one is.
    pub defect: Option<Defect>,
    /// The copy of the log of changes that is missing, damaged or older, if one is.
    pub defect_of_changes: Option<Defect>,
    /// The version is old.
    pub is_old: bool,
    directory: PathBuf,
    /// The number of the manifest as a whole.
    number: u64,
    /// A copy of the manifest as a whole may be of an old version.
    may_have_old_copy: bool,
    /// The changes that were applied to the manifest as a whole.
    changes: Option<(RecordLogPlace, Records)>,
    /// No crash takes back what was read.
    is_durable: bool,
}

impl Loaded {
    /// What is wrong with copies.
    pub fn defects(&self) -> impl Iterator<Item = &Defect> {
        self.defect.iter().chain(&self.defect_of_changes)
    }

    /// Makes the changes and the names of the files durable, and mends a copy of the changes where it lies. Nothing may depend on the manifest
    /// before that.
    pub async fn mend(&mut self, disk: &dyn Disk) -> Result<(), DiskError> {
        // A process that has ended may have given the files their names, and not have synced them.
        disk.sync_directory(&self.directory).await?;
        if let Some((place, records)) = &self.changes {
            let mended = place.mend(disk, records).await?;
            self.defect_of_changes = mended.defect;
            self.is_durable = mended.is_durable;
        }
        Ok(())
    }

    /// Whether the manifest must be written as a whole before anything else is.
    pub fn must_be_written(&self) -> bool {
        self.is_old || self.defects().next().is_some()
    }

    /// Whether it may be used, though it must be written, until there is room for that. The manifest as a whole must have changes, and so must
    /// its other copy, which might be what a later start finds.
    pub fn can_wait_for_room(&self) -> bool {
        self.is_durable && !self.may_have_old_copy
    }
}

/// Why a change was not made.
#[derive(Debug)]
pub(crate) enum EditError {
    Replace(ReplaceError),
    Broken(BrokenInvariant),
}

impl From<ReplaceError> for EditError {
    fn from(error: ReplaceError) -> Self {
        Self::Replace(error)
    }
}

impl ManifestFiles {
    /// The files of the shard in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_path_buf(), changes: None }
    }

    /// The path that messages name.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join(FILE_NAME)
    }

    /// Whether the directory has either copy of a manifest.
    pub async fn exists(disk: &dyn Disk, directory: &Path) -> Result<bool, DiskError> {
        TwoCopies::new(directory, FILE_NAME).exists(disk).await
    }

    /// Whether the directory has changes of any manifest.
    pub async fn has_changes(disk: &dyn Disk, directory: &Path) -> Result<bool, DiskError> {
        for number in numbers_of_changes(disk, directory).await? {
            if changes(directory, number).has_records(disk).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the manifest of the shard in `directory`; `None` if there is neither copy. Nothing is changed on the disk.
    pub async fn load(disk: &dyn Disk, directory: &Path) -> Result<Option<Loaded>, ManifestError> {
        // Copies that are nothing without their changes.
        let with_changes = RefCell::new(BTreeSet::new());
        let decode = |path: &Path, bytes: &Bytes| {
            if !format::may_be_old(bytes) {
                with_changes.borrow_mut().insert(path.to_path_buf());
            }
            let decoded = format::decode(bytes, path)?;
            Ok((decoded.manifest.sequence, decoded))
        };
        let whole = TwoCopies::new(directory, FILE_NAME);
        let loaded = whole.load(disk, decode).await.map_err(|error| match error {
            LoadError::Disk(error) => ManifestError::Disk(error),
            LoadError::Contents(error) => error,
            LoadError::Differ { .. } => ManifestError::Differ(error.to_string()),
        })?;
        let Some(newest) = loaded else { return Ok(None) };
        let Decoded { mut manifest, has_changes } = newest.value;
        let number = manifest.sequence;
        let changes_of_it =
            if has_changes { Some(load_changes(disk, directory, &mut manifest).await?) } else { None };
        for other in numbers_of_changes(disk, directory).await? {
            let place = changes(directory, other);
            if other > manifest.sequence + 1 || (other > number && place.has_records(disk).await?) {
                let changes = place.path().to_path_buf();
                return Err(ManifestError::OlderThanChanges { path: Self::path(directory), changes });
            }
        }
        let defect_of_changes = changes_of_it.as_ref().and_then(|(_, records)| records.defect.clone());
        let (defect, is_old) = (newest.defect, !has_changes);
        let with_changes = with_changes.into_inner();
        let may_be_old = |defect: &Defect| !defect.is_missing && !with_changes.contains(&defect.path);
        let may_have_old_copy = is_old || defect.as_ref().is_some_and(may_be_old);
        Ok(Some(Loaded {
            manifest,
            defect,
            defect_of_changes,
            is_old,
            directory: directory.to_path_buf(),
            number,
            may_have_old_copy,
            changes: changes_of_it,
            is_durable: false,
        }))
    }

    /// Makes sure that no later start falls back to the other copy of what was read, which
    /// [can wait for room](Loaded::can_wait_for_room).
    pub async fn rely_on_one_copy(&self, disk: &dyn Disk, loaded: &Loaded) -> Result<(), DiskError> {
        if loaded.defect.is_none() {
            return Ok(());
        }
        self.remove_other_changes(disk, loaded.number).await?;
        disk.sync_directory(&self.directory).await
    }

    /// Makes this the manifest of the shard. Its sequence must follow that of the present one.
    pub async fn write(&mut self, disk: &dyn Disk, manifest: &Manifest) -> Result<(), ReplaceError> {
        self.replace(disk, manifest).await?;
        self.remove_unneeded_changes(disk, manifest.sequence).await;
        Ok(())
    }

    /// As [`ManifestFiles::write`], but the changes of earlier manifests may still be there.
    async fn replace(&mut self, disk: &dyn Disk, manifest: &Manifest) -> Result<(), ReplaceError> {
        // None while this goes on, and after it was given up: which manifest is on the disk is unknown then.
        let present = self.changes.take();
        let (number, bytes) = (manifest.sequence, Bytes::from(format::encode(manifest)));
        let room = (bytes.len() as u64 / 2).clamp(CHANGES_BYTES_MIN, CHANGES_BYTES_MAX);
        let mut replaced = self.replace_with_room(disk, number, &bytes, room).await;
        if matches!(&replaced, Err(ReplaceError::Unchanged(error)) if error.is_full()) {
            // It may be the room for changes that the manifest lacks.
            replaced = self.replace_with_room(disk, number, &bytes, 0).await;
        }
        match replaced {
            Ok((log, Replaced::Both)) => self.changes = Some(log),
            Ok((_, Replaced::FirstAlone)) => {
                self.remove_other_changes(disk, number).await.map_err(ReplaceError::Unknown)?;
                disk.sync_directory(&self.directory).await.map_err(ReplaceError::Unknown)?;
            }
            Err(error) => {
                if matches!(error, ReplaceError::Unchanged(_)) {
                    self.changes = present;
                    remove_changes(disk, &changes(&self.directory, number)).await;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes the changes of a manifest, with so much room, and then replaces the manifest.
    async fn replace_with_room(
        &self,
        disk: &dyn Disk,
        number: u64,
        bytes: &Bytes,
        room_bytes: u64,
    ) -> Result<(RecordLog, Replaced), ReplaceError> {
        let place = changes(&self.directory, number);
        let log = place.create(disk, room_bytes).await.map_err(ReplaceError::Unchanged)?;
        disk.sync_directory(&self.directory).await.map_err(ReplaceError::Unchanged)?;
        let replaced = TwoCopies::new(&self.directory, FILE_NAME).replace(disk, bytes.clone()).await?;
        Ok((log, replaced))
    }

    /// As [`ManifestFiles::remove_other_changes`], where nothing depends on it.
    async fn remove_unneeded_changes(&self, disk: &dyn Disk, number: u64) {
        if let Err(error) = self.remove_other_changes(disk, number).await {
            tracing::warn!(%error, "earlier changes of the manifest could not be removed");
        }
    }

    /// Removes the changes of all manifests but that of this number. They mean nothing any more. The removal is not durable. The error is
    /// the first one.
    async fn remove_other_changes(&self, disk: &dyn Disk, number: u64) -> Result<(), DiskError> {
        let mut outcome = Ok(());
        for other in numbers_of_changes(disk, &self.directory).await? {
            if other != number {
                let removed = changes(&self.directory, other).remove(disk).await;
                outcome = outcome.and(removed);
            }
        }
        outcome
    }
}

/// The place of the changes of the manifest with this number.
fn changes(directory: &Path, number: u64) -> RecordLogPlace {
    RecordLogPlace::new(directory, &format!("{CHANGES_PREFIX}{number}"), CHANGES, number)
}

/// The numbers of the manifests that have changes in a directory, each at least once.
async fn numbers_of_changes(disk: &dyn Disk, directory: &Path) -> Result<Vec<u64>, DiskError> {
    let entries = match disk.list(directory).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let numbers = entries.into_iter().filter_map(|entry| {
        let digits = entry.name.strip_prefix(CHANGES_PREFIX)?;
        let digits = digits.strip_suffix(".copy").unwrap_or(digits);
        digits.parse().ok().filter(|number: &u64| number.to_string() == digits)
    });
    Ok(numbers.collect())
}

/// Nothing depends on the removal.
async fn remove_changes(disk: &dyn Disk, place: &RecordLogPlace) {
    if let Err(error) = place.remove(disk).await {
        tracing::warn!(%error, "unneeded changes of the manifest could not be removed");
    }
}

/// Applies the changes of a manifest to it.
async fn load_changes(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &mut Manifest,
) -> Result<(RecordLogPlace, Records), ManifestError> {
    let place = changes(directory, manifest.sequence);
    let path = place.path();
    let loaded = place.load(disk).await.map_err(|error| match error {
        RecordLogError::Disk(error) => ManifestError::Disk(error),
        RecordLogError::Differ { .. } => ManifestError::Differ(error.to_string()),
        RecordLogError::Version { path, version, known } => ManifestError::Version { path, version, known },
        RecordLogError::Damaged { .. } | RecordLogError::OlderCopy { .. } => {
            ManifestError::DamagedChanges { reason: error.to_string() }
        }
    })?;
    let Some(records) = loaded else {
        return Err(ManifestError::MissingChanges { path: path.to_path_buf() });
    };
    for record in &records.contents {
        let sequence = manifest.sequence + 1;
        let applied = Change::decode(record).map_err(ChangeError::from).and_then(|it| it.apply(manifest));
        applied.map_err(|error| ManifestError::DamagedChange {
            path: path.to_path_buf(),
            sequence,
            reason: error.to_string(),
        })?;
    }
    Ok((place, records))
}

/// The manifest of an open shard, as it is on the disk.
pub(crate) struct StoredManifest {
    contents: Manifest,
    files: ManifestFiles,
    /// Not while a change is being made, nor after one that was given up or whose outcome is unknown.
    is_known: bool,
}

impl StoredManifest {
    /// `contents`: as `files` have it.
    pub fn new(contents: Manifest, files: ManifestFiles) -> Self {
        Self { contents, files, is_known: true }
    }

    /// Makes a change, durably.
    pub async fn change(&mut self, disk: &dyn Disk, change: &Change) -> Result<(), EditError> {
        if !self.is_known {
            return Err(EditError::Broken(broken!("no change follows one whose outcome is unknown")));
        }
        self.is_known = false;
        let outcome = self.make(disk, change).await;
        self.is_known = !matches!(outcome, Err(EditError::Replace(ReplaceError::Unknown(_))));
        outcome
    }

    async fn make(&mut self, disk: &dyn Disk, change: &Change) -> Result<(), EditError> {
        change.check_fits(&self.contents).map_err(|error| does_not_fit(&error))?;
        let record = change.encode();
        let log = self.files.changes.as_mut();
        let mut failure = None;
        if let Some(log) = log.filter(|log| log.has_room(record.len())) {
            let (number, count) = log.number_and_count();
            if number + count != self.contents.sequence {
                return Err(EditError::Broken(broken!("the changes on the disk lead to the manifest")));
            }
            match log.append(disk, &record).await {
                Ok(()) => return change.apply(&mut self.contents).map_err(|error| does_not_fit(&error)),
                Err(ReplaceError::Unchanged(error)) if error.is_full() => {
                    return Err(ReplaceError::Unchanged(error).into());
                }
                Err(error) => {
                    tracing::warn!(%error, "a change of the manifest could not be appended: all of it is written");
                    failure = Some(error);
                }
            }
        }
        let mut changed = self.contents.clone();
        change.apply(&mut changed).map_err(|error| does_not_fit(&error))?;
        match (self.files.replace(disk, &changed).await, failure) {
            (Ok(()), _) => self.contents = changed,
            // The manifest before is valid, and whether the change is among its changes is unknown.
            (Err(ReplaceError::Unchanged(_)), Some(failure)) => return Err(failure.into()),
            (Err(error), _) => return Err(error.into()),
        }
        self.files.remove_unneeded_changes(disk, self.contents.sequence).await;
        Ok(())
    }
}

#[cold]
fn does_not_fit(error: &ChangeError) -> EditError {
    tracing::error!(%error, "a change of the manifest was made from another manifest");
    EditError::Broken(broken!("a change fits the manifest that it was made from"))
}

impl Deref for StoredManifest {
    type Target = Manifest;

    fn deref(&self) -> &Manifest {
        &self.contents
    }
}
