//! Engine tables that neither the catalog nor the metadata log nor the node itself names.
//!
//! They are kept and not served. A table is created in the engines before the catalog that names it is stored, so after a crash the
//! replayed log may still name it. Tables that are still unknown when the log has been replayed are reported at each start.

use crate::cluster::raft::MetadataLog;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::{TableId, TableStatistics};
use helenus_query::error::Result;
use helenus_query::schema::system_keyspaces::SYSTEM_AUTH;

use super::drops::table_ids;
use super::propose::catch_up_with_leader;
use helenus_execution::shard::context::ShardContext;

/// Pause before the state of the metadata log is looked at again.
const POLL_PAUSE: Duration = Duration::from_secs(1);
/// Time limit for catching up with the leader, after which it is tried again.
const CATCH_UP_DEADLINE: Duration = Duration::from_secs(30);

/// A table that nothing names, summed over the shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnknownTable {
    pub file_count: u64,
    pub disk_bytes: u64,
    pub memtable_bytes: u64,
    pub row_versions: u64,
}

impl UnknownTable {
    fn add(&mut self, statistics: &TableStatistics) {
        self.file_count += statistics.file_count as u64;
        self.disk_bytes += statistics.disk_bytes;
        self.memtable_bytes += statistics.memtable_bytes as u64;
        self.row_versions += statistics.row_versions;
    }
}

/// The tables of this node that nothing names. Call on the first shard.
pub async fn find(context: &Rc<ShardContext>) -> Result<BTreeMap<TableId, UnknownTable>> {
    let mut found: BTreeMap<TableId, UnknownTable> = BTreeMap::new();
    for shard in 0..context.node.shard_count() {
        let tables = context.run_on(shard, |context| {
            Box::pin(async move {
                let catalog = context.catalog();
                let mut known = table_ids(&catalog);
                // Earlier versions stored tables of the system that are computed now.
                let system = [SYSTEM_AUTH].into_iter().filter_map(|name| catalog.keyspace(name));
                known.extend(
                    system.flat_map(|keyspace| keyspace.tables.values()).map(|table| table.engine_id()),
                );
                let is_unknown =
                    |id: &TableId| !known.contains(id) && !context.node.private_tables.contains(id);
                let unknown = context.shard.table_ids().into_iter().filter(is_unknown);
                let sized = unknown.filter_map(|id| Some((id, context.shard.statistics(id).ok()?)));
                sized.collect::<Vec<_>>()
            })
        });
        for (id, statistics) in tables.await? {
            found.entry(id).or_default().add(&statistics);
        }
    }
    if let Ok(log) = MetadataLog::of(context) {
        let dropped = log.drops.tables();
        found.retain(|id, _| !dropped.contains(id));
    }
    Ok(found)
}

/// Starts the task that reports the tables which nothing names once the metadata log has been replayed. Call on the first shard.
pub fn report_when_replayed(context: &Rc<ShardContext>) {
    let context = context.clone();
    tokio::task::spawn_local(async move {
        let mut stopping = context.node.stopping.subscribe();
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => {}
            () = report(&context) => {}
        }
    });
}

async fn report(context: &Rc<ShardContext>) {
    while !is_replayed(context).await {
        context.clock.sleep(POLL_PAUSE).await;
    }
    match find(context).await {
        Ok(tables) => {
            for (id, table) in tables {
                tracing::warn!(
                    table = %id, disk_bytes = table.disk_bytes, memtable_bytes = table.memtable_bytes, files = table.file_count,
                    "the schema does not name this table; it is kept and not served (helenus admin unknowntables)"
                );
            }
        }
        Err(error) => tracing::warn!(%error, "tables that the schema does not name could not be looked for"),
    }
}

/// Whether this node has applied what the leader has, and what its own log holds.
async fn is_replayed(context: &Rc<ShardContext>) -> bool {
    let Ok(log) = MetadataLog::of(context) else { return false };
    catch_up_with_leader(context, CATCH_UP_DEADLINE).await.is_ok() && log.has_applied_all()
}
