//! Restore: the files of a snapshot join those of a table.
//!
//! Invariants:
//! * The table gets all files of the snapshot in one change of the manifest, or none. The snapshot stays what it is.
//! * The files keep their contents: the table must have the columns, with the ids, that the snapshot's table had. What was written or
//!   deleted since with newer timestamps wins over what comes back, as everywhere.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::edit::Edited;
use super::files::{discard_output, entry_of, give_name};
use super::names::Name;
use super::remains::list;
use super::snapshot::SnapshotEntry;
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use super::write_pressure::Change;
use crate::error::EngineError;
use crate::invariant::broken;
use crate::manifest::{FileId, ManifestEdit, ManifestFile};
use crate::mutation::TableId;
use crate::table::TableReader;

/// The files that a table got back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    pub files: usize,
    pub bytes: u64,
}

/// A file of a snapshot.
struct Source {
    path: PathBuf,
    generation: u64,
    /// The number of the directory that it lies in.
    directory: u32,
}

impl Shard {
    /// Takes the files of a snapshot into use as files of the table `into`. Those that the table still has are left out. An error names the
    /// file that cannot be read, and then the table gets none.
    pub async fn restore_snapshot(
        &self,
        entry: &SnapshotEntry,
        into: TableId,
    ) -> Result<Restored, EngineError> {
        self.check_open()?;
        let table = self.table(into)?;
        let all = self.snapshot_files(entry).await?;
        let is_present = |source: &Source| {
            let files = table.files.borrow();
            entry.table == into && files.iter().any(|file| file.place.generation == source.generation)
        };
        let (present, missing): (Vec<_>, Vec<_>) = all.iter().partition(|source| is_present(source));
        if missing.is_empty() {
            return Ok(Restored::default());
        }
        let present: Vec<u64> = present.iter().map(|source| source.generation).collect();
        if let Some(restored) = self.restore_files(&table, &missing, &present).await? {
            return Ok(restored);
        }
        // A truncation or a compaction has removed some of them meanwhile.
        let restored = self.restore_files(&table, &all.iter().collect::<Vec<_>>(), &[]).await?;
        Ok(restored.ok_or_else(|| broken!("a restore of all files depends on none that is there"))?)
    }

    /// Puts files into use. `None`: some of the `present` ones are gone, and nothing was done.
    async fn restore_files(
        &self,
        table: &Rc<TableState>,
        sources: &[&Source],
        present: &[u64],
    ) -> Result<Option<Restored>, EngineError> {
        let mut ids = Vec::with_capacity(sources.len());
        let linked = self.link_sources(table, sources, &mut ids).await;
        let installed = match linked {
            Ok(files) => self.install_files(table, files, present).await,
            Err(error) => Err(error),
        };
        let is_unknown = installed.is_err() && self.failure.borrow().is_some();
        if !is_unknown {
            for id in ids {
                discard_output(&self.environment, table, id, matches!(installed, Ok(Some(_)))).await;
            }
        }
        self.signals.want_compaction();
        installed
    }

    /// The files of a snapshot, those with older data first.
    async fn snapshot_files(&self, entry: &SnapshotEntry) -> Result<Vec<Source>, EngineError> {
        let mut sources = Vec::new();
        for (directory, root) in (0..).zip(self.snapshot_roots()) {
            let path = root.join(&entry.name).join(entry.table.to_string());
            for file in list(&*self.environment.disk, &path).await? {
                if let Some(Name::File(generation)) = Name::parse(&file.name) {
                    sources.push(Source { path: path.join(&file.name), generation, directory });
                }
            }
        }
        sources.sort_by_key(|source| source.generation);
        Ok(sources)
    }

    /// Gives each file a name of the table. `ids`: those of all names that may be there, also after an error.
    async fn link_sources(
        &self,
        table: &TableState,
        sources: &[&Source],
        ids: &mut Vec<FileId>,
    ) -> Result<Vec<(ManifestFile, Arc<TableReader>)>, EngineError> {
        let disk = &*self.environment.disk;
        let created_seconds = self.environment.clock.now_seconds();
        let mut files = Vec::with_capacity(sources.len());
        for Source { path: source, directory, .. } in sources {
            let id = FileId { generation: self.new_generation(), directory: *directory };
            ids.push(id);
            disk.hard_link(source, &table.temporary_path(id)).await?;
            give_name(&self.environment, table, id).await?;
            let (path, resident) = (table.path(id), &table.resident);
            let reader = TableReader::open_file_within(disk, &path, id.generation, resident).await;
            let reader = reader.map_err(|error| unreadable(source, error.into()))?;
            files.push((entry_of(id, 0, created_seconds, &reader), reader));
        }
        for (number, directory) in (0..).zip(&table.directories) {
            if sources.iter().any(|source| source.directory == number) {
                disk.sync_directory(directory).await?;
            }
        }
        Ok(files)
    }

    async fn install_files(
        &self,
        table: &Rc<TableState>,
        files: Vec<(ManifestFile, Arc<TableReader>)>,
        present: &[u64],
    ) -> Result<Option<Restored>, EngineError> {
        let mut manifest = self.manifest.lock().await;
        let mut edit = ManifestEdit::default();
        let entry = edit.table(&manifest, table.id).ok_or(EngineError::UnknownTable(table.id))?;
        if !present.iter().all(|generation| entry.files.iter().any(|file| file.generation == *generation)) {
            return Ok(None);
        }
        entry.files.extend(files.iter().map(|(place, _)| *place));
        let edited = Edited { table: table.id, released_memtables: 0 };
        self.edit_manifest(&mut manifest, edit, &[edited]).await?;
        // Compactions under way have decided what to purge without these files.
        table.restores.set(table.restores.get() + 1);
        let mut restored = Restored::default();
        for (place, reader) in files {
            restored.files += 1;
            restored.bytes += reader.file_bytes();
            self.add_live_file(table, LiveFile::new(place, reader, None));
        }
        self.look_at_backlog(table, Change::Other);
        Ok(Some(restored))
    }
}

#[cold]
fn unreadable(path: &Path, error: EngineError) -> EngineError {
    EngineError::SnapshotFile { path: path.to_owned(), error: Box::new(error) }
}
