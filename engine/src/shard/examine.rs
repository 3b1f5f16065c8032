//! Verification of table files at an operator's wish, and scrubbing of those that are damaged.
//!
//! A verification reads files as a whole, at the pace of compactions, from the disk and not from a cache. A scrub verifies, and then
//! * takes a file that could not be opened into use, if it can be read now (the operator has put it back);
//! * where the operator gives up what is lost: copies the blocks of a damaged file that can be read into a new file, which takes its
//!   place; a file that cannot be opened at all leaves the manifest. The damaged file goes to the quarantine.
//!
//! Invariant: rows are given up only where the operator has said so, and never without a copy of the file in the quarantine, if there
//! is a file.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::compact::Busy;
use super::damaged_file::{DamagedFile, is_damage};
use super::edit::Edited;
use super::examination::{Examination, ExaminationProgress, ExaminationState, FileFinding, FileOutcome};
use super::files::discard_output;
use super::index_files::discard_indexes_of;
use super::running_compactions::CompactionKind;
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use crate::compaction::{Compacted, KeySample, LargeRows, Merge, Output, Split};
use crate::error::EngineError;
use crate::io::{BackgroundError, JobKind, run_in_background, yield_now};
use crate::manifest::{FileId, ManifestEdit, ManifestFile};
use crate::mutation::TableId;
use crate::table::{Salvaged, TableError, TableReader, TableWriter, WrittenTable, salvage, verify};

/// Ends an examination also when it is given up.
struct Running<'s>(&'s ExaminationState);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.progress.borrow_mut().is_running = false;
    }
}

impl Shard {
    /// The progress of the examination that runs, or ran last.
    pub fn examination(&self) -> ExaminationProgress {
        let mut progress = self.examination.progress.borrow().clone();
        progress.bytes_done = self.examination.read_bytes.load(Ordering::Relaxed).min(progress.bytes);
        progress
    }

    /// Examines the files that these tables have now. Returns the files that were or are damaged. Only one examination of a shard runs at
    /// a time; another one is refused.
    pub async fn examine(
        &self,
        tables: &[TableId],
        examination: Examination,
    ) -> Result<Vec<FileFinding>, EngineError> {
        self.check_open()?;
        if self.examination.progress.borrow().is_running {
            return Err(EngineError::ExaminationRuns);
        }
        let mut files: Vec<(Rc<TableState>, Rc<LiveFile>)> = Vec::new();
        let mut damaged: Vec<(Rc<TableState>, DamagedFile)> = Vec::new();
        for id in tables {
            let table = self.table(*id)?;
            files.extend(table.files.borrow().iter().map(|file| (Rc::clone(&table), Rc::clone(file))));
            damaged.extend(table.damaged.borrow().iter().map(|file| (Rc::clone(&table), file.clone())));
        }
        let bytes = files.iter().map(|(_, file)| file.reader.file_bytes()).sum();
        self.examination.begin((files.len() + damaged.len()) as u64, bytes);
        let _running = Running(&self.examination);
        for (table, file) in damaged {
            let finding = self.examine_damaged(&table, &file, examination).await?;
            self.examination.note_file(finding);
        }
        for (table, file) in files {
            let finding = self.examine_live(&table, &file, examination).await?;
            self.examination.note_file(finding);
        }
        Ok(self.examination.progress.borrow().findings.clone())
    }

    /// Opens a file anew and reads all of it. The inner error: the file is damaged. Any other error says nothing of the file.
    async fn read_through(
        &self,
        table: &TableState,
        place: &ManifestFile,
    ) -> Result<Result<Arc<TableReader>, TableError>, EngineError> {
        match self.try_to_read(table, place).await? {
            Err(error) if !is_damage(&error) => Err(error.into()),
            read => Ok(read),
        }
    }

    async fn try_to_read(
        &self,
        table: &TableState,
        place: &ManifestFile,
    ) -> Result<Result<Arc<TableReader>, TableError>, BackgroundError> {
        let (disk, path) = (&*self.environment.disk, table.path(place.id()));
        // All of its filters and its index are looked into, so they are loaded, whatever memory there is for files in use.
        let opened = TableReader::open_file(disk, &path, place.generation).await;
        let reader = match opened {
            Ok(reader) => reader,
            Err(error) => return Ok(Err(error)),
        };
        let mut limiter = self.compaction_rate().clone();
        let read_bytes = Arc::clone(&self.examination.read_bytes);
        let verified = run_in_background(&*self.environment.background, JobKind::Long, move |context| {
            Box::pin(async move {
                let statistics = reader.statistics().clone();
                let pause = async |bytes| {
                    read_bytes.fetch_add(bytes, Ordering::Relaxed);
                    limiter.spend(bytes, &*context.clock).await;
                    yield_now().await;
                };
                verify(&reader, &statistics, pause).await
            })
        });
        Ok(match verified.await? {
            Ok(()) => TableReader::open_file_within(disk, &path, place.generation, &table.resident).await,
            Err(error) => Err(error),
        })
    }

    async fn examine_live(
        &self,
        table: &TableState,
        file: &Rc<LiveFile>,
        examination: Examination,
    ) -> Result<Option<FileFinding>, EngineError> {
        let finding = |reason: String, outcome| {
            Some(FileFinding { table: table.id, path: file.reader.path().to_path_buf(), reason, outcome })
        };
        let read = self.read_through(table, &file.place).await?;
        // Another reader may have been put in its place, and a compaction or a truncation may have removed it meanwhile.
        let generation = file.place.generation;
        let live = || table.files.borrow().iter().find(|it| it.place.generation == generation).cloned();
        let Some(file) = &live() else { return Ok(None) };
        let is_live = || live().is_some();
        let error = match read {
            Ok(reader) => {
                let Some(reason) = file.damage.borrow().clone() else {
                    if examination != Examination::Verify {
                        self.renew_reader(table, file, reader);
                    }
                    return Ok(None);
                };
                if self.renew_reader(table, file, reader) {
                    return Ok(finding(String::new(), FileOutcome::Mended));
                }
                return Ok(is_live().then(|| finding(reason, FileOutcome::Damaged)).flatten());
            }
            Err(error) => error,
        };
        let reason = error.to_string();
        tracing::error!(table = %table.id, path = %file.reader.path().display(), %error, "a table file is damaged");
        file.damage.replace(Some(reason.clone()));
        self.disk_failures.note(&error.into());
        if examination != Examination::ScrubAndGiveUp || file.is_busy.get() {
            return Ok(finding(reason, FileOutcome::Damaged));
        }
        let Salvaged { rows, lost_blocks } = self.salvage_file(table, file).await?;
        Ok(finding(reason, FileOutcome::Salvaged { rows, lost_blocks: lost_blocks.len() as u64 }))
    }

    /// Reads a file with another reader from now on. If another file was put in its place, the previous reader still reads the
    /// old one. Returns false if the file is gone, or if a compaction is reading it.
    fn renew_reader(&self, table: &TableState, file: &Rc<LiveFile>, reader: Arc<TableReader>) -> bool {
        if !table.replace_reader(file, reader) {
            return false;
        }
        self.retire_files(std::iter::once(file));
        // What kept the file from being compacted, or indexed, may be over.
        self.candidates.add(table.id);
        self.signals.indexes_wanted.notify_one();
        true
    }

    /// Puts a file with the readable rows of a damaged one in its place.
    async fn salvage_file(&self, table: &TableState, file: &Rc<LiveFile>) -> Result<Salvaged, EngineError> {
        let busy = Busy::new(vec![Rc::clone(file)]);
        let _room = self.room_for_compaction(file.reader.file_bytes()).await?;
        self.keep_in_quarantine(&file.place, file.reader.path()).await?;
        let directory = self.directories.choose(&self.environment).await;
        let id = FileId { generation: self.new_generation(), directory };
        let merge = Merge {
            inputs: vec![file.place.generation],
            output_level: file.place.level,
            split: Split::Never,
        };
        let outcome = match self.write_salvaged(table, &file.reader, id).await {
            Ok((compacted, salvaged)) => self
                .install_compaction(
                    table,
                    &merge,
                    &busy,
                    compacted,
                    (directory, JobKind::Long, CompactionKind::Scrub),
                    table.restores.get(),
                )
                .await
                .map(|_| salvaged),
            Err(error) => Err(error),
        };
        if outcome.is_err() && self.failure.borrow().is_none() {
            discard_indexes_of(&self.environment, table, id).await;
            discard_output(&self.environment, table, id, false).await;
        }
        self.let_go(busy).await;
        if let Ok(Salvaged { rows, lost_blocks }) = &outcome {
            tracing::warn!(
                table = %table.id, path = %file.reader.path().display(), rows, ?lost_blocks,
                "a damaged file was replaced by what can be read of it"
            );
        }
        outcome
    }

    /// Writes what can be read of a file, and reads it back as the output of a compaction is.
    async fn write_salvaged(
        &self,
        table: &TableState,
        reader: &Arc<TableReader>,
        id: FileId,
    ) -> Result<(Compacted, Salvaged), EngineError> {
        let (reader, path) = (Arc::clone(reader), table.temporary_path(id));
        let options = table.options.borrow().writer.clone();
        let written = run_in_background(&*self.environment.background, JobKind::Long, move |context| {
            Box::pin(async move {
                let begun = context.clock.monotonic();
                let mut writer = TableWriter::create(&*context.disk, &path, options).await?;
                let salvaged = salvage(&reader, &mut writer).await?;
                let WrittenTable { statistics, row_hashes } = writer.finish().await?;
                let copied = context.clock.monotonic();
                let copy = TableReader::open_file(&*context.disk, &path, id.generation).await?;
                verify(&copy, &statistics, async |_| yield_now().await).await?;
                let end = context.clock.monotonic();
                let sample = KeySample::of(row_hashes);
                let compacted = Compacted {
                    outputs: vec![Output { generation: id.generation, sample, is_part: false }],
                    output_bytes: copy.file_bytes(),
                    duration: end.saturating_sub(begun),
                    verification: end.saturating_sub(copied),
                    large_rows: LargeRows::default(),
                };
                Ok::<_, TableError>((compacted, salvaged))
            })
        });
        Ok(written.await??)
    }

    async fn examine_damaged(
        &self,
        table: &TableState,
        file: &DamagedFile,
        examination: Examination,
    ) -> Result<Option<FileFinding>, EngineError> {
        let finding = |reason: String, outcome| {
            Some(FileFinding { table: table.id, path: file.path.clone(), reason, outcome })
        };
        let generation = file.place.generation;
        let is_listed = || table.damaged.borrow().iter().any(|it| it.place.generation == generation);
        let reason = match self.read_through(table, &file.place).await? {
            _ if !is_listed() => return Ok(None),
            Ok(_) if examination == Examination::Verify => {
                let reason = "it can be read again, and a scrub takes it into use".to_owned();
                return Ok(finding(reason, FileOutcome::Damaged));
            }
            Ok(reader) => {
                let is_used = self.use_damaged(table, file, reader).await;
                return Ok(is_used.then(|| finding(String::new(), FileOutcome::Mended)).flatten());
            }
            Err(error) => error.to_string(),
        };
        if examination != Examination::ScrubAndGiveUp {
            return Ok(finding(reason, FileOutcome::Damaged));
        }
        if !self.give_up(table, file).await? {
            return Ok(None);
        }
        tracing::warn!(table = %table.id, path = %file.path.display(), reason, "the rows of a damaged file were given up");
        Ok(finding(reason, FileOutcome::GivenUp))
    }

    /// Takes a file that could not be opened out of the manifest, and keeps it in the quarantine. False: it is not damaged any more, or gone.
    pub(super) async fn give_up(&self, table: &TableState, file: &DamagedFile) -> Result<bool, EngineError> {
        let generation = file.place.generation;
        self.keep_in_quarantine(&file.place, &file.path).await?;
        let mut manifest = self.manifest.lock().await;
        let mut edit = ManifestEdit::default();
        let is_listed = table.damaged.borrow().iter().any(|it| it.place.generation == generation);
        // It may have been dropped or truncated meanwhile, or taken into use.
        let named = edit.table(&manifest, table.id).filter(|entry| entry.files.contains(&file.place));
        let Some(entry) = named.filter(|_| is_listed) else { return Ok(false) };
        entry.files.retain(|it| it.generation != generation);
        entry.obsolete.insert(file.place.id());
        let edited = Edited { table: table.id, released_memtables: 0 };
        self.edit_manifest(&mut manifest, edit, &[edited]).await?;
        table.damaged.borrow_mut().retain(|it| it.place.generation != generation);
        drop(manifest);
        self.remove_obsolete_files(table, std::iter::once(file.place.id())).await;
        Ok(true)
    }

    /// Links a damaged file into the quarantine; nothing happens if it does not exist.
    async fn keep_in_quarantine(
        &self,
        place: &ManifestFile,
        path: &std::path::Path,
    ) -> Result<(), EngineError> {
        let quarantines = self.directories.quarantines(&self.options.quarantine);
        let Some(quarantine) = quarantines.get(place.directory as usize) else {
            return Err(crate::invariant::broken!("a file's directory is one of the shard's").into());
        };
        let now_millis = self.environment.clock.now_micros() / 1_000;
        quarantine.keep(&*self.environment.disk, path, now_millis, "it is damaged").await
    }
}
