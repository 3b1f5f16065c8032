//! Tells the shards up to when all replicas have a table's deletions (`tombstone_gc` with the mode `repair`): those from before the oldest
//! of the last repairs of its ranges on this node, less the delay that a write may have.

use std::collections::BTreeMap;
use std::rc::Rc;

use helenus_engine::{EngineError, TableId};
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::TableKind;
use helenus_query::schema::options::TombstoneGcMode;
use helenus_ring::intervals::intervals;

use super::history::{self, RepairHistory};
use crate::shard::context::{ShardContext, on_every_shard};

/// What the shards have been told, on the first shard: the second, by table.
pub type Told = BTreeMap<TableId, u32>;

/// Tells the shards what has changed. Call on the first shard.
pub async fn tell(context: &Rc<ShardContext>) -> Result<()> {
    // Nobody forgets a table meanwhile ([`forget`]).
    let mut told = context.repair().told.lock().await;
    {
        let view = context.catalog_view();
        told.retain(|table, _| view.table(*table).is_some());
    }
    let changed = changed(context, &told);
    if changed.is_empty() {
        return Ok(());
    }
    let to_tell = changed.clone();
    on_every_shard(context, move |context| {
        let to_tell = to_tell.clone();
        Box::pin(async move {
            for (table, seconds) in to_tell {
                match context.shard.set_known_everywhere(table, seconds) {
                    // It was dropped meanwhile.
                    Ok(()) | Err(EngineError::UnknownTable(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    })
    .await?;
    told.extend(changed);
    Ok(())
}

fn changed(context: &ShardContext, told: &Told) -> Vec<(TableId, u32)> {
    let (catalog, view) = (context.catalog(), context.cluster());
    let history = RepairHistory::of(&context.node);
    let own = context.node.host_id;
    let mut changed = Vec::new();
    for (name, keyspace) in &catalog.keyspaces {
        let Some(placement) = view.placement(name) else { continue };
        let replica_count = keyspace.replication.replica_count();
        let held = placement.ranges().filter(|(_, replicas)| replicas.contains(&own));
        let mut held_alone = true;
        let held: Vec<_> = held
            .inspect(|(_, replicas)| held_alone &= replicas.all().count() < 2)
            .map(|(range, _)| range)
            .collect();
        let held = intervals(&held);
        for table in keyspace.tables.values().filter(|table| table.kind == TableKind::Stored) {
            let option = table.options.tombstone_gc(replica_count);
            if option.mode != TombstoneGcMode::Repair {
                continue;
            }
            let seconds = if held_alone {
                // There is nobody who could have missed a deletion.
                u32::MAX
            } else {
                let oldest = history.with(table.engine_id(), |segments| segments.oldest(&held));
                let seconds = oldest.map_or(0, |micros| u32::try_from(micros / 1_000_000).unwrap_or(0));
                seconds.saturating_sub(option.propagation_delay_seconds)
            };
            if told.get(&table.engine_id()) != Some(&seconds) {
                changed.push((table.engine_id(), seconds));
            }
        }
    }
    changed
}

/// Forgets that a table was repaired, on this node, and purges no deletion of it before it is repaired again: its rows are replaced by others. Call
/// on the first shard.
pub async fn forget(context: &Rc<ShardContext>, table: TableId) -> Result<()> {
    let mut told = context.repair().told.lock().await;
    history::forget(context, table).await.map_err(|error| RequestError::Server(error.to_string()))?;
    told.remove(&table);
    on_every_shard(context, move |context| {
        Box::pin(async move { Ok(context.shard.set_known_everywhere(table, 0)?) })
    })
    .await
}
