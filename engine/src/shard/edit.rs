//! Edits of the manifest, and what they leave behind: obsolete files on the disk, records of dropped tables in the log.
//!
//! Invariants:
//! * An edit states up to which segment the log is needed once it has taken effect, and the log is released up to there only.
//! * A table that is being dropped is out of the shard's tables before the edit: no record of it enters the log any more.
//! * An obsolete file or dropped table leaves the manifest in a later edit than the one that listed it, when its removal is durable and
//!   (a table) the needed log has no record of it.
//! * After an edit whose outcome is unknown the shard refuses all work until it is opened anew, which reads what is on the disk. That is
//!   so too after an edit whose future was dropped before its end.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::files::discard_file;
use super::index_files::discard_indexes_of;
use super::state::Shard;
use super::table_state::TableState;
use crate::commit_log::LogPosition;
use crate::error::EngineError;
use crate::io::ReplaceError;
use crate::manifest::{EditError, FileId, Manifest, ManifestEdit, ManifestError, StoredManifest};
use crate::mutation::TableId;

/// Removed directories of dropped tables above which an edit makes their removal durable, so that they leave the manifest. Creating a
/// table does it anyway.
const UNSYNCED_DIRECTORIES_MAX: usize = 16;

/// A table that an edit changes. It exists before and after the edit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edited {
    pub table: TableId,
    /// The number of its oldest frozen memtables that are not needed any more once the edit has taken effect.
    pub released_memtables: usize,
}

/// An edit that is being made. Dropped before its end, it leaves a manifest on the disk that may not be the one in memory.
struct UnderWay<'s> {
    shard: &'s Shard,
    has_ended: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            tracing::error!(
                "an edit of the manifest was given up: its outcome is not known before the next start"
            );
            self.shard.refuse_work(&"an edit of the manifest was given up");
        }
    }
}

impl Shard {
    /// Makes an edit of the manifest, which is the one behind the lock that the caller holds.
    pub(super) async fn edit_manifest(
        &self,
        manifest: &mut StoredManifest,
        mut edit: ManifestEdit,
        edited: &[Edited],
    ) -> Result<(), EngineError> {
        self.check_open()?;
        let log_needed_from = self.log_needed_from(edited);
        for edited in edited {
            self.leave_out_removed_files(manifest, &mut edit, edited.table).await;
        }
        self.leave_out_dropped_tables(manifest, &mut edit, log_needed_from).await;
        let change = edit.finish(manifest, self.next_generation.get(), log_needed_from);
        let mut under_way = UnderWay { shard: self, has_ended: false };
        let outcome = manifest.change(&*self.environment.disk, &change).await;
        under_way.has_ended = true;
        match outcome {
            Ok(()) => {
                self.leftovers.note_edit(manifest);
                Ok(())
            }
            // Nothing is taken back that the manifest may name.
            Err(EditError::Broken(error)) => {
                self.refuse_work(&error);
                Err(error.into())
            }
            Err(EditError::Replace(ReplaceError::Unchanged(error))) => Err(ManifestError::Disk(error).into()),
            Err(EditError::Replace(ReplaceError::Unknown(error))) => {
                self.refuse_work(&error);
                Err(ManifestError::Disk(error).into())
            }
        }
    }

    /// Refuses all work from now on, for this reason unless there is one already.
    fn refuse_work(&self, reason: &dyn Display) {
        self.failure.borrow_mut().get_or_insert_with(|| reason.to_string());
        self.signals.space.notify_waiters();
    }

    /// The first log segment that must be there once the edit has taken effect, with all later ones.
    fn log_needed_from(&self, edited: &[Edited]) -> u64 {
        self.log.lowest_needed(self.lowest_needed_position(edited))
    }

    /// Removes files that are gone from the list of a table's obsolete files.
    async fn leave_out_removed_files(&self, manifest: &Manifest, edit: &mut ManifestEdit, id: TableId) {
        let removed = self.leftovers.take_removed_files(id);
        let entry = edit.table(manifest, id);
        let (Some(removed), Ok(table), Some(entry)) = (removed, self.table(id), entry) else {
            return;
        };
        for number in removed.iter().map(|file| file.directory).collect::<BTreeSet<_>>() {
            match self.environment.disk.sync_directory(table.directory(number)).await {
                Ok(()) => entry.obsolete.retain(|file| file.directory != number || !removed.contains(file)),
                // They stay listed until the next start, which finds that they are gone.
                Err(error) => tracing::warn!(%error, "the removal of unused files may not be durable"),
            }
        }
    }

    /// Removes tables from the list of dropped ones if they have left neither a directory nor a record that would be replayed.
    async fn leave_out_dropped_tables(
        &self,
        manifest: &Manifest,
        edit: &mut ManifestEdit,
        log_needed_from: u64,
    ) {
        if self.leftovers.unsynced_directories() > UNSYNCED_DIRECTORIES_MAX {
            match self.directories.sync(&self.environment.disk).await {
                Ok(()) => self.leftovers.note_directories_synced(),
                Err(error) => tracing::warn!(%error, "the removal of dropped tables may not be durable"),
            }
        }
        for id in &manifest.dropped {
            if self.leftovers.is_over(*id, log_needed_from) {
                edit.forget_dropped(*id);
            }
        }
    }

    /// Removes files that the manifest lists as obsolete.
    pub(super) async fn remove_obsolete_files(
        &self,
        table: &TableState,
        files: impl Iterator<Item = FileId>,
    ) {
        for file in files {
            discard_indexes_of(&self.environment, table, file).await;
            if discard_file(&self.environment, &table.path(file)).await {
                self.leftovers.note_removed_file(table.id, file);
            }
        }
    }

    /// Releases the part of the log that the manifest on the disk does not need.
    pub(super) fn discard_log(&self) {
        self.log.discard_before(LogPosition { segment: self.leftovers.log_needed_from(), offset: 0 });
    }
}
