//! The change feeds of tables: what their logs hold on this node.

use std::sync::Arc;

use cql_lite::types::time::format_timestamp;
use helenus_admin::feeds::FeedReport;
use helenus_engine::{TableId, TableStatistics};
use helenus_observe::AdminError;
use helenus_query::error::Result;
use helenus_query::schema::catalog::Table;

use super::NodeAdmin;

impl NodeAdmin {
    /// Ordered by keyspace and table.
    pub(super) async fn feed_reports(
        &self,
        keyspace: Option<&str>,
        table: Option<&str>,
    ) -> Result<Vec<FeedReport>, AdminError> {
        let mut bases = self.targets(keyspace, table).await?;
        bases.sort_by(|a, b| (&a.keyspace, &a.name).cmp(&(&b.keyspace, &b.name)));
        let catalog = self.catalog().await?;
        let log = |base: &Arc<Table>| {
            catalog.keyspace(&base.keyspace)?.feed_log(&base.name).map(|log| log.engine_id())
        };
        let (bases, logs): (Vec<Arc<Table>>, Vec<TableId>) =
            bases.into_iter().filter_map(|base| log(&base).map(|log| (base, log))).unzip();
        let now_micros = self.on_first_shard(|context| Ok(context.clock.now_micros())).await?;
        let shards = self
            .on_every_shard(move |context| {
                let statistics = logs.iter().map(|log| Ok(context.shard.statistics(*log)?));
                Box::pin(std::future::ready(statistics.collect::<Result<Vec<TableStatistics>>>()))
            })
            .await?;
        let mut reports: Vec<(FeedReport, Option<i64>)> =
            bases.iter().map(|base| (report(base), None)).collect();
        for shard in shards {
            for ((report, oldest_micros), statistics) in reports.iter_mut().zip(shard) {
                add(report, oldest_micros, &statistics);
            }
        }
        let reports = reports.into_iter().map(|(mut report, oldest_micros)| {
            // What is older has expired.
            let kept_micros = match report.ttl_seconds {
                0 => i64::MIN,
                seconds => now_micros - i64::from(seconds) * 1_000_000,
            };
            let oldest = oldest_micros.map(|oldest| format_timestamp(oldest.max(kept_micros) / 1_000));
            report.oldest_at = oldest.unwrap_or_default();
            report
        });
        Ok(reports.collect())
    }
}

fn report(base: &Table) -> FeedReport {
    FeedReport {
        keyspace: base.keyspace.clone(),
        table: base.name.clone(),
        is_enabled: base.options.feed().is_some(),
        ttl_seconds: base.options.cdc.map_or(0, |feed| feed.ttl_seconds),
        ..FeedReport::default()
    }
}

fn add(report: &mut FeedReport, oldest_micros: &mut Option<i64>, statistics: &TableStatistics) {
    report.disk_bytes += statistics.disk_bytes + statistics.index_bytes;
    report.memtable_bytes += statistics.memtable_bytes as u64;
    report.entries += statistics.row_versions;
    let known = [*oldest_micros, statistics.min_timestamp];
    *oldest_micros = known.into_iter().flatten().min();
}
