//! The partitions that are asked for most, and those with the heaviest requests, over all shards of the node.

use std::collections::BTreeMap;

use helenus_admin::top_partitions::TopPartition;
use helenus_engine::TableId;
use helenus_execution::coordinator::local_work::LocalWork;
use helenus_execution::coordinator::top_partitions::{Figures, Period, Sampler};
use helenus_execution::shard::partition_names::PartitionNames;
use helenus_observe::AdminError;

use super::NodeAdmin;

/// Most partitions of a table that are told of each sampler.
const PARTITIONS_MAX: usize = 10;

impl NodeAdmin {
    /// Ordered by keyspace, table, period, sampler and rank. `period`: by its name; `None`: all.
    pub(super) async fn top_partition_reports(
        &self,
        keyspace: Option<&str>,
        table: Option<&str>,
        period: Option<&str>,
    ) -> Result<Vec<TopPartition>, AdminError> {
        let is_asked = |known: &Period| period.is_none_or(|name| name == known.name());
        let periods: Vec<Period> = Period::ALL.into_iter().filter(is_asked).collect();
        if let (Some(name), true) = (period, periods.is_empty()) {
            let message = format!("the period is minutes or hours, not '{name}'");
            return Err(AdminError::Unknown(message));
        }
        let mut targets = self.targets(keyspace, table).await?;
        targets.sort_by(|a, b| (&a.keyspace, &a.name).cmp(&(&b.keyspace, &b.name)));
        let mut by_period = Vec::new();
        for period in periods {
            by_period.push((period, self.figures(period).await?));
        }
        let mut reports = Vec::new();
        for table in &targets {
            let names = PartitionNames::of(table);
            for (period, tables) in &by_period {
                let Some(figures) = tables.get(&table.engine_id()) else { continue };
                for sampler in Sampler::ALL {
                    let top = figures.top(sampler).into_iter().take(PARTITIONS_MAX);
                    reports.extend((1..).zip(top).map(|(rank, top)| TopPartition {
                        keyspace: table.keyspace.clone(),
                        table: table.name.clone(),
                        period: period.name().to_owned(),
                        sampler: sampler.name().to_owned(),
                        rank,
                        partition_key: names.text_of(&top.key.bytes),
                        value: top.value,
                        error: top.error,
                    }));
                }
            }
        }
        Ok(reports)
    }

    /// Of all shards together, by table.
    async fn figures(&self, period: Period) -> Result<BTreeMap<TableId, Figures>, AdminError> {
        let shards = self
            .on_every_shard(move |context| {
                Box::pin(std::future::ready(Ok(LocalWork::top_partitions(&context, period))))
            })
            .await?;
        let mut tables: BTreeMap<TableId, Figures> = BTreeMap::new();
        for (id, of_shard) in shards.into_iter().flatten() {
            tables.entry(id).or_default().join(&of_shard);
        }
        Ok(tables)
    }
}
