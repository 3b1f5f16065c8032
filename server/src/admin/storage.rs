//! Reports of what lies on the disk: snapshots, and tables that the schema does not name.

use std::collections::BTreeMap;

use helenus_admin::reports::{SnapshotReport, UnknownTableReport};

use super::{NodeAdmin, failed};
use crate::cluster::unknown_tables;
use crate::observe::AdminError;
use crate::shard::context::run_on;
use crate::shard::snapshots;

impl NodeAdmin {
    pub(super) async fn snapshot_reports(&self) -> Result<Vec<SnapshotReport>, AdminError> {
        let shards =
            self.on_every_shard(|context| Box::pin(async move { snapshots::list(&context).await })).await?;
        let mut reports: BTreeMap<(String, String), SnapshotReport> = BTreeMap::new();
        for listed in shards.into_iter().flatten() {
            let (name, table_id) = (listed.entry.name, listed.entry.table.to_string());
            let report = reports.entry((name.clone(), table_id.clone())).or_insert(SnapshotReport {
                name,
                table_id,
                keyspace: listed.keyspace,
                table: listed.table,
                created_at: listed.created_at,
                expires_at: listed.expires_at,
                disk_bytes: 0,
            });
            report.disk_bytes += listed.bytes;
        }
        Ok(reports.into_values().collect())
    }

    pub(super) async fn unknown_table_reports(&self) -> Result<Vec<UnknownTableReport>, AdminError> {
        let found = run_on(&self.node.links[0], |context| {
            Box::pin(async move { unknown_tables::find(&context).await })
        });
        let found = found.await.and_then(|found| found).map_err(|error| failed(&error))?;
        let report =
            |(id, table): (helenus_engine::TableId, unknown_tables::UnknownTable)| UnknownTableReport {
                id: id.to_string(),
                file_count: table.file_count,
                disk_bytes: table.disk_bytes,
                memtable_bytes: table.memtable_bytes,
                row_versions: table.row_versions,
            };
        Ok(found.into_iter().map(report).collect())
    }
}
