//! Compaction in the shard: choosing inputs, running the task in the background, installing the result.

use std::rc::Rc;
use std::sync::Arc;

use super::edit::Edited;
use super::files::{discard_output, give_name};
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use crate::compaction::{Choice, CompactionTask, DroppedRanges, RateLimiter};
use crate::error::EngineError;
use crate::invariant::invariant;
use crate::io::{JobKind, run_in_background};
use crate::manifest::ManifestFile;
use crate::mutation::TableId;
use crate::reconcile::Purge;
use crate::table::TableReader;

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

impl Shard {
    /// Flushes the table and merges all its files that no other compaction is reading into one.
    pub async fn compact(&self, id: TableId) -> Result<(), EngineError> {
        self.flush(id).await?;
        let table = self.table(id)?;
        let inputs: Vec<u64> = table
            .files
            .borrow()
            .iter()
            .filter(|file| !file.is_busy.get())
            .map(|file| file.place.generation)
            .collect();
        if inputs.is_empty() {
            return Ok(());
        }
        self.run_compaction(&table, Choice { inputs, output_level: 0, max_output_bytes: None }).await
    }

    /// Runs compactions as long as the strategy of any table chooses one.
    pub(super) async fn compact_if_needed(&self) -> Result<(), EngineError> {
        loop {
            self.check_open()?;
            let now_seconds = self.environment.clock.now_seconds();
            let chosen =
                self.all_tables().into_iter().filter(|table| table.is_configured.get()).find_map(|table| {
                    let options = table.options.borrow().clone();
                    let purge_before = now_seconds.saturating_sub(options.gc_grace_seconds);
                    let choice = options.compaction.choose(&table.summaries(purge_before), now_seconds)?;
                    Some((table, choice))
                });
            let Some((table, choice)) = chosen else { return Ok(()) };
            self.run_compaction(&table, choice).await?;
        }
    }

    async fn run_compaction(&self, table: &TableState, choice: Choice) -> Result<(), EngineError> {
        let is_input = |file: &&Rc<LiveFile>| choice.inputs.contains(&file.place.generation);
        let busy = Busy::new(table.files.borrow().iter().filter(is_input).cloned().collect());
        invariant!(
            busy.files.len() == choice.inputs.len(),
            "a compaction chooses from the files of the table"
        );
        self.rewrite(table, &choice, busy, DroppedRanges::default()).await
    }

    /// Merges the chosen files, without the dropped ranges, into one or more. The caller has marked them busy.
    pub(super) async fn rewrite(
        &self,
        table: &TableState,
        choice: &Choice,
        busy: Busy,
        dropped: DroppedRanges,
    ) -> Result<(), EngineError> {
        let (first, count) = self.reserve_generations(choice, &busy.files);
        let mut task = self.compaction_task(table, choice, &busy.files, first, count);
        task.dropped = dropped;
        let built = run_in_background(&*self.environment.background, JobKind::Long, move |context| {
            Box::pin(async move { task.run(context).await })
        })
        .await;
        let outcome = match built {
            Ok(Ok(generations)) => self.install_compaction(table, choice, &busy, &generations).await,
            Ok(Err(error)) => Err(error.into()),
            Err(error) => Err(error.into()),
        };
        if outcome.is_err() && self.failure.borrow().is_none() {
            for generation in first..first + count {
                discard_output(&self.environment, table, generation, false).await;
            }
        }
        let readers = busy.files.iter().map(|file| Arc::clone(&file.reader)).collect();
        drop(busy);
        self.let_go(readers).await;
        outcome
    }

    /// Drops readers on another thread. When the last mapping of a removed file goes, the system frees its pages and its disk
    /// space. For a large file this takes as long as hundreds of requests.
    async fn let_go(&self, readers: Vec<Arc<TableReader>>) {
        let dropped = run_in_background(&*self.environment.background, JobKind::Soon, move |_| {
            Box::pin(async move { drop(readers) })
        });
        if let Err(error) = dropped.await {
            tracing::debug!(%error, "readers of removed files were dropped on the shard's thread");
        }
    }

    /// Reserves generations, as many as the outputs can need: the first one and their number.
    fn reserve_generations(&self, choice: &Choice, inputs: &[Rc<LiveFile>]) -> (u64, u64) {
        let input_bytes: u64 = inputs.iter().map(|file| file.reader.file_bytes()).sum();
        let count = choice.max_output_bytes.map_or(1, |limit| 2 + input_bytes / limit.max(1));
        let first = self.next_generation.get();
        self.next_generation.set(first + count);
        (first, count)
    }

    fn compaction_task(
        &self,
        table: &TableState,
        choice: &Choice,
        inputs: &[Rc<LiveFile>],
        first_generation: u64,
        generation_count: u64,
    ) -> CompactionTask {
        let options = table.options.borrow();
        let now_seconds = self.environment.clock.now_seconds();
        let purge = Purge {
            now_seconds,
            deleted_before_seconds: now_seconds.saturating_sub(options.gc_grace_seconds),
            max_purgeable_timestamp: table.min_memtable_timestamp().unwrap_or(i64::MAX),
        };
        // Without the table's real grace period nothing may be purged.
        let purge = Some(purge).filter(|_| table.is_configured.get());
        let files = table.files.borrow();
        let others = files.iter().filter(|file| !choice.inputs.contains(&file.place.generation));
        CompactionTask {
            inputs: inputs.iter().map(|file| Arc::clone(&file.reader)).collect(),
            others: others.map(|file| Arc::clone(&file.reader)).collect(),
            dropped: DroppedRanges::default(),
            purge,
            outputs: (0..generation_count)
                .map(|index| (first_generation + index, table.temporary_path(first_generation + index)))
                .collect(),
            max_output_bytes: choice.max_output_bytes,
            file_options: options.writer.clone(),
            limiter: RateLimiter::new(self.options.compaction_bytes_per_second),
        }
    }

    async fn install_compaction(
        &self,
        table: &TableState,
        choice: &Choice,
        busy: &Busy,
        generations: &[u64],
    ) -> Result<(), EngineError> {
        let mut opened: Vec<(ManifestFile, Arc<TableReader>)> = Vec::new();
        for &generation in generations {
            let path = table.path(generation);
            give_name(&self.environment, table, generation).await?;
            let reader = TableReader::open_file(&*self.environment.disk, &path, generation).await?;
            let created_seconds = self.environment.clock.now_seconds();
            opened.push((ManifestFile { generation, level: choice.output_level, created_seconds }, reader));
        }
        let is_input = |generation: u64| busy.files.iter().any(|file| file.place.generation == generation);
        let mut manifest = self.manifest.lock().await;
        let mut changed = manifest.clone();
        let entry = changed.table(table.id).filter(|entry| {
            let left = entry.files.iter().filter(|file| is_input(file.generation)).count();
            left == busy.files.len()
        });
        let Some(entry) = entry else {
            // The table was truncated or dropped meanwhile.
            drop(manifest);
            for (file, _) in opened {
                discard_output(&self.environment, table, file.generation, false).await;
            }
            return Ok(());
        };
        entry.files.retain(|file| !is_input(file.generation));
        entry.files.extend(opened.iter().map(|(file, _)| *file));
        entry.obsolete.extend(busy.files.iter().map(|file| file.place.generation));
        if !generations.is_empty() {
            self.environment.disk.sync_directory(&table.directory).await?;
        }
        let edited = Edited { table: table.id, released_memtables: 0 };
        self.replace_manifest(&mut manifest, changed, Some(edited)).await?;
        table.files.borrow_mut().retain(|file| !is_input(file.place.generation));
        for (file, reader) in opened {
            table.add_file(LiveFile::new(file, reader));
        }
        drop(manifest);
        self.retire_files(busy.files.iter());
        for generation in generations {
            discard_output(&self.environment, table, *generation, true).await;
        }
        self.remove_obsolete_files(table, busy.files.iter().map(|file| file.place.generation)).await;
        Ok(())
    }
}
