//! Verification and scrubbing of table files.

use std::collections::BTreeMap;

use helenus_admin::reports::{Check, CheckProgress, CheckedFile, CheckedFileState};
use helenus_engine::TableId;
use helenus_engine::shard::{Examination, FileFinding, FileOutcome};
use helenus_observe::AdminError;

use super::NodeAdmin;

/// The names of tables by their ids in the engine.
type Names = BTreeMap<TableId, String>;

fn checked_file(shard: usize, names: &Names, finding: FileFinding) -> CheckedFile {
    let (state, kept_rows, lost_blocks) = match finding.outcome {
        FileOutcome::Damaged => (CheckedFileState::Damaged, 0, 0),
        FileOutcome::Mended => (CheckedFileState::Mended, 0, 0),
        FileOutcome::Salvaged { rows, lost_blocks } => (CheckedFileState::Salvaged, rows, lost_blocks),
        FileOutcome::GivenUp => (CheckedFileState::GivenUp, 0, 0),
    };
    CheckedFile {
        shard,
        table: names.get(&finding.table).cloned().unwrap_or_else(|| finding.table.to_string()),
        path: finding.path.display().to_string(),
        state,
        reason: finding.reason,
        kept_rows,
        lost_blocks,
    }
}

impl NodeAdmin {
    /// The names of all stored tables of the schema.
    pub(super) async fn names(&self) -> Result<Names, AdminError> {
        let targets = self.targets(None, None).await?;
        Ok(targets.into_iter().map(|it| (it.engine_id(), it.full_name())).collect())
    }

    /// Examines the files of the selected tables on all shards. It goes on if the client gives up.
    pub(super) async fn check(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        check: Check,
    ) -> Result<Vec<CheckedFile>, AdminError> {
        let examination = match check {
            Check::Verify => Examination::Verify,
            Check::Scrub { skips_corrupted: false } => Examination::Scrub,
            Check::Scrub { skips_corrupted: true } => Examination::ScrubAndGiveUp,
        };
        let selected = self.selected(keyspace.as_deref(), table.as_deref()).await?;
        let names = self.names().await?;
        let shards = self.on_every_shard(move |context| {
            let selected = selected.clone();
            Box::pin(async move {
                let tables = selected.unwrap_or_else(|| context.shard.table_ids());
                Ok(context.shard.examine(&tables, examination).await?)
            })
        });
        let found = shards.await?.into_iter().enumerate();
        let of_shard = |(shard, findings): (usize, Vec<FileFinding>)| {
            findings.into_iter().map(|finding| checked_file(shard, &names, finding)).collect::<Vec<_>>()
        };
        Ok(found.flat_map(of_shard).collect())
    }

    pub(super) async fn progress_of_checks(&self) -> Result<Vec<CheckProgress>, AdminError> {
        let names = self.names().await?;
        let shards = self.on_every_shard(|context| Box::pin(async move { Ok(context.shard.examination()) }));
        let progress = shards.await?.into_iter().enumerate().map(|(shard, progress)| CheckProgress {
            shard,
            is_running: progress.is_running,
            files: progress.files,
            files_done: progress.files_done,
            bytes: progress.bytes,
            bytes_done: progress.bytes_done,
            found: progress.findings.into_iter().map(|it| checked_file(shard, &names, it)).collect(),
        });
        Ok(progress.collect())
    }
}
