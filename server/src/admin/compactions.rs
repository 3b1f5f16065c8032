//! Compactions at run time: what is under way, stopping it, keeping tables from being compacted, the rate, the format of files.

use std::collections::BTreeSet;

use helenus_admin::reports::{CompactionsReport, RunningCompactionReport};
use helenus_engine::TableId;
use helenus_engine::compaction::Granularity;
use helenus_engine::shard::{CompactionKind, RunningCompaction};
use helenus_observe::AdminError;
use helenus_query::error::Result;

use super::NodeAdmin;

/// The compactions of one shard.
struct OfShard {
    running: Vec<RunningCompactionReport>,
    pending: u64,
    /// The tables whose strategy chooses none.
    disabled: Vec<TableId>,
}

/// As nodetool names it.
pub(super) fn kind_name(kind: CompactionKind) -> &'static str {
    match kind {
        CompactionKind::Compaction => "Compaction",
        CompactionKind::Cleanup => "Cleanup",
        CompactionKind::Upgrade => "Upgrade sstables",
        CompactionKind::GarbageCollection => "Remove deleted data",
        CompactionKind::IndexBuild => "Secondary index build",
        CompactionKind::Scrub => "Scrub",
    }
}

impl NodeAdmin {
    pub(super) async fn compactions_report(&self) -> Result<CompactionsReport, AdminError> {
        let names = self.names().await?;
        let named = names.clone();
        let shards = self
            .on_every_shard(move |context| {
                let names = named.clone();
                Box::pin(async move {
                    let shard = &context.shard;
                    let now = context.clock.monotonic();
                    let report = |running: RunningCompaction| RunningCompactionReport {
                        shard: context.index,
                        kind: kind_name(running.kind).to_owned(),
                        table: names
                            .get(&running.table)
                            .cloned()
                            .unwrap_or_else(|| running.table.to_string()),
                        read_bytes: running.progress.read_bytes(),
                        total_bytes: running.progress.total_bytes(),
                        seconds: now.saturating_sub(running.begun).as_secs(),
                    };
                    let (mut pending, mut disabled) = (0, Vec::new());
                    for id in shard.table_ids() {
                        pending += u64::from(shard.compaction_report(id)?.is_pending);
                        if !shard.has_auto_compaction(id)? {
                            disabled.push(id);
                        }
                    }
                    Ok(OfShard {
                        running: shard.running_compactions().into_iter().map(report).collect(),
                        pending,
                        disabled,
                    })
                })
            })
            .await?;
        let mut report = CompactionsReport {
            bytes_per_second: self.node.common.compaction_rate.bytes_per_second(),
            ..CompactionsReport::default()
        };
        let mut disabled = BTreeSet::new();
        for shard in shards {
            report.pending += shard.pending;
            report.compactions.extend(shard.running);
            let name = |id: TableId| names.get(&id).cloned().unwrap_or_else(|| id.to_string());
            disabled.extend(shard.disabled.into_iter().map(name));
        }
        report.disabled_tables = disabled.into_iter().collect();
        Ok(report)
    }

    pub(super) async fn stop_running(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
    ) -> Result<(), AdminError> {
        let targets = self.selected(keyspace.as_deref(), table.as_deref()).await?;
        self.on_every_shard(move |context| {
            let targets = targets.clone();
            Box::pin(async move {
                let stopped = match targets {
                    None => context.shard.stop_compactions(None),
                    Some(tables) => {
                        tables.into_iter().map(|table| context.shard.stop_compactions(Some(table))).sum()
                    }
                };
                if stopped > 0 {
                    tracing::info!(
                        shard = context.index,
                        compactions = stopped,
                        "an operator stops compactions"
                    );
                }
                Ok(())
            })
        })
        .await
        .map(drop)
    }

    pub(super) async fn set_auto(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        is_enabled: bool,
    ) -> Result<(), AdminError> {
        let targets = self.targets(keyspace.as_deref(), table.as_deref()).await?;
        self.for_each_table(targets, move |context, id| {
            Box::pin(async move { Ok(context.shard.set_auto_compaction(id, is_enabled)?) })
        })
        .await
    }

    pub(super) async fn upgrade(
        &self,
        keyspace: Option<String>,
        table: Option<String>,
        all: bool,
    ) -> Result<(), AdminError> {
        let targets = self.targets(keyspace.as_deref(), table.as_deref()).await?;
        self.for_each_table(targets, move |context, id| {
            Box::pin(async move {
                context.shard.upgrade_files(id, all).await?;
                Ok(())
            })
        })
        .await
    }

    pub(super) async fn collect(
        &self,
        keyspace: Option<String>,
        tables: Vec<String>,
        granularity: Granularity,
    ) -> Result<(), AdminError> {
        // All names are checked before anything is rewritten.
        let mut targets = Vec::new();
        for table in &tables {
            targets.extend(self.targets(keyspace.as_deref(), Some(table)).await?);
        }
        if tables.is_empty() {
            targets = self.targets(keyspace.as_deref(), None).await?;
        }
        self.for_each_table(targets, move |context, id| {
            Box::pin(async move {
                context.shard.collect_garbage(id, granularity).await?;
                Ok(())
            })
        })
        .await
    }
}
