//! When the ranges of a node's tables were last repaired, among all of their replicas.
//!
//! Each replica keeps it ([`super::kept`]): a row for each table, named by its id, whose value are [`Segments`].
//!
//! Invariants:
//! * The time of a segment is the begin of its repair: all that a replica had acknowledged by then, all replicas have.
//! * What cannot be read counts as never repaired.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::LocalBoxFuture;
use helenus_engine::TableId;
use helenus_internode::service::Failure;
use helenus_ring::intervals::intervals;
use helenus_ring::placement::TokenRange;
use helenus_ring::repaired::Segments;

use tokio::sync::OnceCell;

use super::kept;
use crate::shard::context::{NodeShared, ShardContext};

const PARTITION: &[u8] = b"repaired";

/// The history of a node, shared by its shards.
#[derive(Debug, Default)]
pub struct RepairHistory {
    tables: Mutex<BTreeMap<TableId, Segments>>,
    /// Set when what the last run has noted is known.
    loaded: OnceCell<()>,
    late_tables: AtomicUsize,
}

impl RepairHistory {
    /// The history of a node.
    pub fn of(node: &NodeShared) -> &Self {
        node.layers.get()
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<TableId, Segments>> {
        // Each change of the map is a whole one: a panic of another holder of the lock leaves it usable.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of tables whose repair was late when the schedule last looked ([`super::ages`]).
    pub fn late_tables(&self) -> usize {
        self.late_tables.load(Ordering::Relaxed)
    }

    pub(super) fn set_late_tables(&self, count: usize) {
        self.late_tables.store(count, Ordering::Relaxed);
    }

    /// When the tokens of a table were repaired.
    pub fn with<T>(&self, table: TableId, look: impl FnOnce(&Segments) -> T) -> T {
        let tables = self.tables();
        match tables.get(&table) {
            Some(segments) => look(segments),
            None => look(&Segments::default()),
        }
    }
}

/// Loads what the last run has noted, unless that was done. What cannot be read counts as never repaired. Call on the first shard.
pub async fn load(context: &Rc<ShardContext>) {
    let history = RepairHistory::of(&context.node);
    let read = async || match kept::load(context, PARTITION).await {
        Ok(rows) => {
            for (name, value) in rows {
                let id = <[u8; 16]>::try_from(name.as_slice()).ok();
                if let (Some(id), Some(segments)) = (id, Segments::decode(&value)) {
                    history.tables().insert(TableId(id), segments);
                } else {
                    tracing::warn!(
                        "a row of the history of repairs cannot be read: its table counts as never repaired"
                    );
                }
            }
        }
        Err(error) => {
            tracing::warn!(%error, "the history of repairs cannot be read: its ranges count as never repaired");
        }
    };
    history.loaded.get_or_init(read).await;
}

/// Notes a repair of a table's ranges. May be called on any shard; resolves when it is durable.
pub async fn note(
    context: &Rc<ShardContext>,
    table_id: u128,
    ranges: &[TokenRange],
    began_micros: i64,
) -> Result<(), Failure> {
    let table = TableId(table_id.to_be_bytes());
    let repaired = intervals(ranges);
    let job = move |context: Rc<ShardContext>| -> LocalBoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move { note_here(&context, table, &repaired, began_micros).await })
    };
    context.run_on(0, job).await.map_err(|error| Failure::Internal(error.to_string()))?
}

async fn note_here(
    context: &Rc<ShardContext>,
    table: TableId,
    repaired: &[RangeInclusive<i64>],
    began_micros: i64,
) -> Result<(), Failure> {
    load(context).await;
    context.shard.admit_internal().await.map_err(Failure::from)?;
    // A coordinator whose clock is ahead has not repaired what will be written.
    let began_micros = began_micros.min(context.clock.now_micros());
    // Others note repairs of the same table at the same time: nothing is awaited between the change in memory and in the engine.
    let encoded = {
        let mut tables = RepairHistory::of(&context.node).tables();
        let segments = tables.entry(table).or_default();
        segments.note(repaired, began_micros);
        segments.encode()
    };
    kept::set(context, PARTITION, &table.0, Some(&encoded)).await.map_err(Failure::from)
}

/// Forgets when a table was repaired. Call on the first shard.
pub async fn forget(context: &Rc<ShardContext>, table: TableId) -> Result<(), Failure> {
    load(context).await;
    context.shard.admit_internal().await.map_err(Failure::from)?;
    RepairHistory::of(&context.node).tables().remove(&table);
    kept::set(context, PARTITION, &table.0, None).await.map_err(Failure::from)
}

/// Forgets tables that do not exist any more. Call on the first shard.
pub async fn forget_dropped(context: &Rc<ShardContext>) -> Result<(), Failure> {
    let history = RepairHistory::of(&context.node);
    let dropped: Vec<TableId> = {
        let view = context.catalog_view();
        let tables = history.tables();
        tables.keys().filter(|id| view.table(**id).is_none()).copied().collect()
    };
    for table in dropped {
        forget(context, table).await?;
    }
    Ok(())
}
