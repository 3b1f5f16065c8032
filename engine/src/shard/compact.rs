//! Compaction in the shard: choosing inputs, running the task in the background, installing the result.
//!
//! One compaction runs at a time, and the tables take turns. While that is a large one, or files are examined, small ones of other tables run
//! beside it, one at a time. A table that is so far behind that writers will be slowed ([`super::write_pressure`]) comes first, the one that
//! holds them up most before all; and it does not wait for the end of long work: it gets relief, a merge of a few of its small files, also beside a
//! large compaction of its own. A large one has several threads, where the node has some to spare ([`super::shared_compaction`]). All share one rate. A compaction that fails is tried again after a pause that grows
//! ([`super::compaction_failures`]); other tables, and other files of the table, go on meanwhile.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::candidates::LOOK_PAUSE;
use super::compaction_choice::{Lane, Next, raw_bytes};
use super::compaction_counters::EndedCompaction;
use super::compaction_failures::Failure;
use super::compaction_report::Subject;
use super::edit::Edited;
use super::file_index::FileIndex;
use super::files::{discard_output, entry_of, give_name, open_aside};
use super::index_files::discard_indexes_of;
use super::running_compactions::{CompactionKind, RunningCompaction};
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use super::write_pressure::Change;
use crate::compaction::{
    Choice, Compacted, CompactionProgress, CompactionTask, LeftOut, Merge, OldPartitions, Output,
    OutputNames, Purging, Situation, Split,
};
use crate::error::EngineError;
use crate::invariant::{broken, invariant};
use crate::io::{JobKind, run_in_background};
use crate::manifest::{FileId, ManifestEdit, ManifestFile};
use crate::mutation::TableId;
use crate::table::{ROW_BYTES_MAX, TableError, TableReader};

/// Marks files as busy (a compaction is reading them) until it is dropped.
pub(super) struct Busy {
    pub files: Vec<Rc<LiveFile>>,
}

impl Busy {
    pub fn new(files: Vec<Rc<LiveFile>>) -> Self {
        for file in &files {
            file.is_busy.set(true);
        }
        Self { files }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for file in &self.files {
            file.is_busy.set(false);
        }
    }
}

/// A file that takes the place of others.
struct Successor {
    place: ManifestFile,
    reader: Arc<TableReader>,
    /// `None`: the file itself stays, at another level.
    output: Option<Output>,
    indexes: Vec<FileIndex>,
}

/// What files are rewritten for.
pub(super) struct Rewrite {
    pub kind: CompactionKind,
    pub left_out: LeftOut,
    /// The threads for it. `None`: as its size asks for.
    pub job: Option<JobKind>,
}

impl Rewrite {
    pub fn of(kind: CompactionKind) -> Self {
        Self { kind, left_out: LeftOut::default(), job: None }
    }
}

impl Shard {
    /// Flushes the table and merges all its files that no other compaction is reading: into one, or into as many as the strategy
    /// cuts them.
    pub async fn compact(&self, id: TableId) -> Result<(), EngineError> {
        self.flush(id).await?;
        let table = self.table(id)?;
        let merge = self.with_situation(&table, |situation| {
            let mut tables = situation.tables.to_vec();
            // Files that the strategies leave alone take part.
            for (summary, file) in tables.iter_mut().zip(table.files.borrow().iter()) {
                summary.is_busy = file.is_busy.get();
            }
            table.options.borrow().compaction.choose_all(&tables)
        });
        let Some(merge) = merge else { return Ok(()) };
        let outcome = self.run_compaction(&table, Choice::Merge(merge), None).await;
        self.look_at_backlog(&table, Change::Other);
        outcome
    }

    /// Runs compactions as long as the strategy of any table chooses one. Returns the time until which there is nothing to do, unless
    /// a signal comes.
    pub(super) async fn compact_if_needed(&self, lane: Lane) -> Result<Duration, EngineError> {
        let mut last = None;
        let mut without_room: BTreeSet<TableId> = BTreeSet::new();
        loop {
            self.check_open()?;
            if lane == Lane::Small && !self.has_long_work() {
                return Ok(LOOK_PAUSE);
            }
            let Some(Next { table, choice, job }) = self.choose_next(lane, last, &without_room) else {
                // Another one may have had room.
                if lane == Lane::All {
                    self.compaction_lacks_room.set(!without_room.is_empty());
                }
                return Ok(self.pause_to_next_look());
            };
            last = Some(table.id);
            table.merging.borrow_mut().extend(choice.inputs());
            let outcome = self.run_compaction(&table, choice.clone(), job).await;
            table.merging.borrow_mut().retain(|generation| !choice.inputs().contains(generation));
            // A shard that has stopped needs no retries.
            self.check_open()?;
            if let Err(EngineError::NoRoom(reason)) = outcome {
                tracing::debug!(table = %table.id, reason, "a compaction waits for room on the disk");
                table.lacks_room.set(true);
                without_room.insert(table.id);
            } else {
                self.note_outcome(&table, &choice, outcome);
            }
            self.look_at_backlog(&table, Change::Other);
            if lane == Lane::Small {
                // Writes may be stopped, so no flush says that the table can be chosen again.
                self.signals.want_compaction();
            }
        }
    }

    /// Deletes the files in which everything has expired. Returns the pause until it should be called again.
    ///
    /// This is no part of the compaction task: a compaction can take hours, and the disk may need the space.
    pub(super) async fn drop_expired(&self) -> Result<Duration, EngineError> {
        let now_seconds = self.environment.clock.now_seconds();
        let mut pause = LOOK_PAUSE;
        for table in self.all_tables() {
            self.check_open()?;
            if table.files.borrow().is_empty() {
                continue;
            }
            // Expired data may shadow data in a file that cannot be read.
            if !table.is_configured.get() || !table.is_auto_compacted.get() || table.has_damage() {
                continue;
            }
            let every = table.options.borrow().compaction.expired_check_seconds;
            pause = pause.min(Duration::from_secs(u64::from(every.max(1))));
            let is_due = |checked: u32| now_seconds.abs_diff(checked) >= every;
            if !table.expired_checked.get().is_none_or(is_due) {
                continue;
            }
            table.expired_checked.set(Some(now_seconds));
            let chosen = self.with_situation(&table, |situation| {
                let situation = Situation { seeks_expired: true, ..situation };
                table.options.borrow().compaction.choose_expired(&situation)
            });
            if let Some(choice) = chosen {
                let outcome = self.run_compaction(&table, choice.clone(), None).await;
                self.check_open()?;
                self.note_outcome(&table, &choice, outcome);
                self.look_at_backlog(&table, Change::Other);
            }
        }
        Ok(pause)
    }

    /// Keeps the failure of a compaction, so that it is not tried again at once.
    fn note_outcome(&self, table: &TableState, choice: &Choice, outcome: Result<(), EngineError>) {
        let Err(error) = outcome else {
            // Files that were removed unread say nothing of merges.
            if !matches!(choice, Choice::Drop { .. }) {
                table.failure.take();
            }
            return;
        };
        let now = self.environment.clock.monotonic();
        if matches!(error, EngineError::Table(TableError::Stopped)) {
            table.failure.replace(Some(Failure::stopped(now)));
            return;
        }
        self.compaction_counters.note(|counts| counts.failed += 1);
        let subject = table.note_failure(choice.inputs(), &error, now);
        let which = match subject {
            Subject::Table => "all of them",
            Subject::Files => "the files that cause it",
        };
        tracing::error!(table = %table.id, %error, left_alone = which, "a compaction has failed");
    }

    async fn run_compaction(
        &self,
        table: &TableState,
        choice: Choice,
        job: Option<JobKind>,
    ) -> Result<(), EngineError> {
        let is_input = |file: &&Rc<LiveFile>| choice.inputs().contains(&file.place.generation);
        let busy = Busy::new(table.files.borrow().iter().filter(is_input).cloned().collect());
        invariant!(
            busy.files.len() == choice.inputs().len(),
            "a compaction chooses from the files of the table"
        );
        match choice {
            Choice::Merge(merge) => {
                let purpose = Rewrite { job, ..Rewrite::of(CompactionKind::Compaction) };
                self.rewrite(table, &merge, busy, purpose).await.map(|_| ())
            }
            Choice::Drop { .. } => self.drop_files(table, busy).await,
            Choice::Move { level, .. } => self.move_file(table, &busy, level).await,
        }
    }

    /// Removes files that hold nothing that is needed, without reading them.
    async fn drop_files(&self, table: &TableState, busy: Busy) -> Result<(), EngineError> {
        let bytes: u64 = busy.files.iter().map(|file| file.reader.file_bytes()).sum();
        let restores = table.restores.get();
        let installed = self.install(table, &busy, Vec::new(), restores).await?;
        if installed {
            let count = busy.files.len() as u64;
            tracing::info!(table = %table.id, files = count, bytes, "files of expired data are removed");
            self.compaction_counters.note(|counts| counts.dropped_files += count);
        }
        self.let_go(busy).await;
        Ok(())
    }

    /// Changes the level of a file.
    async fn move_file(&self, table: &TableState, busy: &Busy, level: u32) -> Result<(), EngineError> {
        let [file] = busy.files.as_slice() else {
            return Err(broken!("one file is moved at a time").into());
        };
        let successor = Successor {
            place: ManifestFile { level, ..file.place },
            reader: Arc::clone(&file.reader),
            output: None,
            indexes: file.indexes.borrow().clone(),
        };
        if self.install(table, busy, vec![successor], table.restores.get()).await? {
            self.compaction_counters.note(|counts| counts.moved_files += 1);
        }
        Ok(())
    }

    /// Merges the chosen files, without what is left out, into one or more. The caller has marked them busy. False: as for [`Shard::install`].
    pub(super) async fn rewrite(
        &self,
        table: &TableState,
        merge: &Merge,
        busy: Busy,
        purpose: Rewrite,
    ) -> Result<bool, EngineError> {
        let Rewrite { kind, left_out, job } = purpose;
        let input_bytes = busy.files.iter().map(|file| file.reader.file_bytes()).sum();
        let room = self.room_for_compaction(input_bytes).await?;
        if table.lacks_room.replace(false) {
            self.look_at_backlog(table, Change::Other);
        }
        let directory = self.directories.choose(&self.environment).await;
        let reserved = self.reserve_outputs(merge, &busy.files, directory);
        let names = reserved.iter().map(|id| (id.generation, table.temporary_path(*id))).collect();
        let restores = table.restores.get();
        let mut task = self.compaction_task(table, merge, &busy.files, names);
        task.left_out = left_out;
        task.room = Some(room);
        let progress = Arc::clone(&task.progress);
        let is_small = progress.total_bytes() <= self.small_bytes();
        let job = job.unwrap_or(if is_small { JobKind::Short } else { JobKind::Long });
        let begun = self.environment.clock.monotonic();
        let listed =
            self.running_compactions.list(RunningCompaction { table: table.id, kind, progress, job, begun });
        // If this is a large one, small ones may begin.
        self.signals.want_compaction();
        let outcome = match self.carry_out(task, job).await {
            Ok(compacted) => {
                self.install_compaction(table, merge, &busy, compacted, (directory, job, kind), restores)
                    .await
            }
            Err(error) => Err(error),
        };
        // Others may begin only now: the indexes of the outputs are part of the work.
        drop(listed);
        if let Err(error) = &outcome {
            self.note_disk_failure(error);
        }
        if outcome.is_err() && self.failure.borrow().is_none() {
            for id in reserved {
                discard_indexes_of(&self.environment, table, id).await;
                discard_output(&self.environment, table, id, false).await;
            }
        }
        self.let_go(busy).await;
        outcome
    }

    /// Drops readers on another thread. When the last mapping of a removed file goes, the system frees its pages and its disk
    /// space. For a large file this takes as long as hundreds of requests.
    pub(super) async fn let_go(&self, busy: Busy) {
        let mut readers: Vec<_> = busy.files.iter().map(|file| Arc::clone(&file.reader)).collect();
        for file in &busy.files {
            readers.extend(file.indexes.borrow().iter().map(|index| Arc::clone(&index.reader)));
        }
        drop(busy);
        let dropped = run_in_background(&*self.environment.background, JobKind::Soon, move |_| {
            Box::pin(async move { drop(readers) })
        });
        if let Err(error) = dropped.await {
            tracing::debug!(%error, "readers of removed files were dropped on the shard's thread");
        }
    }

    /// Reserves as many files as the outputs can need.
    fn reserve_outputs(&self, merge: &Merge, inputs: &[Rc<LiveFile>], directory: u32) -> Vec<FileId> {
        let sum = |of: fn(&LiveFile) -> u64| inputs.iter().map(|file| of(file)).sum::<u64>();
        let partitions = sum(|file| {
            let statistics = file.reader.statistics();
            statistics.partitions + statistics.range_tombstones
        });
        let of_split = match merge.split {
            Split::Never => 1,
            Split::Bytes(limit) => 2 + sum(|file| file.reader.file_bytes()) / limit.max(1),
            Split::Parts(parts) => u64::from(parts).min(partitions) + 1,
        };
        // A row that is cut needs a file for each part, and the files around it end.
        let of_rows = 5 * (sum(|file| file.reader.statistics().raw_bytes) / (ROW_BYTES_MAX as u64 / 2));
        let first = self.next_generation.get();
        let end = first + of_split + of_rows;
        self.next_generation.set(end);
        (first..end).map(|generation| FileId { generation, directory }).collect()
    }

    fn compaction_task(
        &self,
        table: &TableState,
        merge: &Merge,
        inputs: &[Rc<LiveFile>],
        outputs: OutputNames,
    ) -> CompactionTask {
        let options = table.options.borrow();
        let purge = table.purge(self.environment.clock.now_seconds());
        // Without the table's real grace period nothing may be purged, nor if there may be older data that cannot be read.
        let purge = Some(purge).filter(|_| table.is_configured.get() && !table.has_damage());
        let newest = inputs.iter().map(|file| file.reader.statistics().max_timestamp).max();
        let mut old_partitions = OldPartitions::default();
        if let Some(newest) = newest.filter(|_| purge.is_some()) {
            table.visit_old_partitions(newest, |prefix, oldest| old_partitions.add(prefix, oldest));
        }
        let files = table.files.borrow();
        // Where nothing can be purged their filters need not be asked: these may be on the disk.
        let mut of_inputs = inputs.iter().map(|file| file.reader.statistics());
        let can_purge = of_inputs.any(|statistics| statistics.tombstones > 0 || statistics.expiring > 0);
        let others = files.iter().filter(|file| can_purge && !merge.inputs.contains(&file.place.generation));
        CompactionTask {
            inputs: inputs.iter().map(|file| Arc::clone(&file.reader)).collect(),
            left_out: LeftOut::default(),
            dropped_columns: options.dropped_columns.clone(),
            purging: Purging {
                purge,
                old_partitions,
                others: others.map(|file| Arc::clone(&file.reader)).collect(),
                writes_once: options.writes_once,
            },
            outputs,
            split: merge.split.clone(),
            file_options: options.writer.clone(),
            row_bytes_max: ROW_BYTES_MAX,
            limiter: self.compaction_rate().clone(),
            progress: Arc::new(CompactionProgress::of(raw_bytes(inputs))),
            room: None,
        }
    }

    /// Gives outputs their names and indexes, by the threads of this job, and installs them. False: as for [`Shard::install`].
    pub(super) async fn install_compaction(
        &self,
        table: &TableState,
        merge: &Merge,
        busy: &Busy,
        compacted: Compacted,
        (directory, job, kind): (u32, JobKind, CompactionKind),
        restores: u64,
    ) -> Result<bool, EngineError> {
        let Compacted { outputs, output_bytes, duration, verification, large_rows } = compacted;
        let created_seconds = self.environment.clock.now_seconds();
        let output_count = outputs.len();
        let mut successors = Vec::with_capacity(output_count);
        for output in outputs {
            let id = FileId { generation: output.generation, directory };
            give_name(&self.environment, table, id).await?;
            let reader = open_aside(&self.environment, table, id).await?;
            // Parts of a row overlap each other, so they belong to the level where tables may.
            let level = if output.is_part { 0 } else { merge.output_level };
            let place = entry_of(id, level, created_seconds, &reader);
            let indexes = self.index_output(table, id, &reader, job).await;
            successors.push(Successor { place, reader, output: Some(output), indexes });
        }
        if output_count > 0 {
            self.environment.disk.sync_directory(table.directory(directory)).await?;
        }
        if !self.install(table, busy, successors, restores).await? {
            return Ok(false);
        }
        let input_bytes: u64 = busy.files.iter().map(|file| file.reader.file_bytes()).sum();
        let ended_micros = self.environment.clock.now_micros();
        let ended = EndedCompaction { table: table.id, kind, ended_micros, input_bytes, output_bytes };
        self.compaction_counters.remember(ended);
        self.compaction_counters.note(|counts| {
            counts.merges += 1;
            counts.input_bytes += input_bytes;
            counts.output_bytes += output_bytes;
            counts.duration += duration;
            counts.verification += verification;
            counts.large_rows += large_rows.count;
        });
        large_rows.warn(table.id);
        if table.options.borrow().compaction.logs_all {
            tracing::info!(
                table = %table.id, inputs = ?merge.inputs, outputs = output_count, level = merge.output_level,
                input_bytes, output_bytes, milliseconds = duration.as_millis() as u64, "compacted"
            );
        }
        Ok(true)
    }

    /// Replaces the busy files by their successors, and removes those that are not needed any more. `restores`: those of the
    /// table when it was decided what to purge. False: the table was truncated or dropped meanwhile, or got files from a snapshot; then
    /// the successors are removed.
    async fn install(
        &self,
        table: &TableState,
        busy: &Busy,
        successors: Vec<Successor>,
        restores: u64,
    ) -> Result<bool, EngineError> {
        let is_input = |generation: u64| busy.files.iter().any(|file| file.place.generation == generation);
        let mut manifest = self.manifest.lock().await;
        let mut edit = ManifestEdit::default();
        let entry = edit.table(&manifest, table.id).filter(|entry| {
            let left = entry.files.iter().filter(|file| is_input(file.generation)).count();
            // Files of a snapshot that have come since may need deletions that the outputs do not have.
            left == busy.files.len() && table.restores.get() == restores
        });
        let Some(entry) = entry else {
            drop(manifest);
            for successor in successors.iter().filter(|successor| successor.output.is_some()) {
                discard_indexes_of(&self.environment, table, successor.place.id()).await;
                discard_output(&self.environment, table, successor.place.id(), false).await;
            }
            return Ok(false);
        };
        let stays = |generation: u64| successors.iter().any(|it| it.place.generation == generation);
        entry.files.retain(|file| !is_input(file.generation));
        entry.files.extend(successors.iter().map(|successor| successor.place));
        let gone: Vec<Rc<LiveFile>> =
            busy.files.iter().filter(|file| !stays(file.place.generation)).cloned().collect();
        entry.obsolete.extend(gone.iter().map(|file| file.place.id()));
        let edited = Edited { table: table.id, released_memtables: 0 };
        self.edit_manifest(&mut manifest, edit, &[edited]).await?;
        table.files.borrow_mut().retain(|file| !is_input(file.place.generation));
        let mut named = Vec::new();
        for Successor { place, reader, output, indexes } in successors {
            let file = if let Some(output) = output {
                named.push(place.id());
                let file = LiveFile::new(place, reader, Some(Arc::new(output.sample)));
                file.is_left_alone.set(output.is_part);
                file
            } else {
                let before = busy.files.iter().find(|file| file.place.generation == place.generation);
                LiveFile::new(place, reader, before.and_then(|file| file.sample.clone()))
            };
            self.add_live_file(table, file.with_indexes(indexes));
        }
        self.look_at_backlog(table, Change::Other);
        drop(manifest);
        self.retire_files(gone.iter());
        for id in named {
            discard_output(&self.environment, table, id, true).await;
        }
        self.remove_obsolete_files(table, gone.iter().map(|file| file.place.id())).await;
        Ok(true)
    }
}
