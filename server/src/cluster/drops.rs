//! Drops of tables: from the entry of the metadata log to the engines of this node.
//!
//! Invariants:
//! * A table leaves an engine only because the metadata log has dropped it. Its drop is stored with the first applied state that does
//!   not name the table, and stays there until every shard has carried it out.
//! * A shard takes the snapshot that is due before it drops the table. If it cannot, the table stays in the engines, unknown to
//!   queries, and the drop is tried again: the other members have applied the same entry, so it cannot be refused any more.
//! * No drop names a table of the catalog: a table that is created again under its old id has its drop carried out before.

use std::cell::{LazyCell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_engine::TableId;
use helenus_query::error::Result;
use helenus_query::schema::catalog::{Catalog, Keyspace, Table, TableKind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use helenus_execution::shard::context::{ShardContext, on_every_shard};
use helenus_execution::shard::snapshots::{self, Occasion, SnapshotPlan};

/// Pause before drops that failed are tried again.
const DROP_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// A table that was dropped and may still be in the engines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingDrop {
    table: Uuid,
    /// The snapshot that each shard takes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<SnapshotPlan>,
}

impl PendingDrop {
    pub fn table(&self) -> TableId {
        TableId(self.table.into_bytes())
    }
}

/// The drops that this node has not carried out. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct PendingDrops {
    drops: Rc<RefCell<Vec<PendingDrop>>>,
    /// Held while drops are carried out.
    turn: Rc<tokio::sync::Mutex<()>>,
}

/// The stored tables of a catalog with their keyspaces.
fn stored_tables(catalog: &Catalog) -> impl Iterator<Item = (&Keyspace, &Table)> {
    catalog.keyspaces.values().flat_map(|keyspace| {
        let stored = keyspace.tables.values().filter(|table| table.kind == TableKind::Stored);
        stored.map(|table| (&**keyspace, &**table))
    })
}

/// The ids of the stored tables of a catalog.
pub fn table_ids(catalog: &Catalog) -> BTreeSet<TableId> {
    stored_tables(catalog).map(|(_, table)| table.engine_id()).collect()
}

/// Whether a catalog has a table of these drops.
pub fn is_any_named(drops: &[PendingDrop], catalog: &Catalog) -> bool {
    !drops.is_empty() && {
        let named = table_ids(catalog);
        drops.iter().any(|drop| named.contains(&drop.table()))
    }
}

/// The tables of one catalog that are not in another, with their keyspaces.
fn dropped_tables<'a>(
    old: &'a Catalog,
    new: &Catalog,
) -> impl Iterator<Item = (&'a Keyspace, &'a Table)> + use<'a> {
    let named = LazyCell::new(|| table_ids(new));
    let mut gone = Vec::new();
    for keyspace in old.keyspaces.values() {
        let present = new.keyspaces.get(&keyspace.name);
        if present.is_some_and(|present| Arc::ptr_eq(present, keyspace)) {
            continue;
        }
        for (table, present) in Keyspace::table_differences(Some(keyspace), present.map(AsRef::as_ref)) {
            let stored = table.filter(|table| table.kind == TableKind::Stored);
            let replaced = |table: &&Arc<Table>| present.is_none_or(|present| present.id != table.id);
            // A table may have come back under another name.
            let left = stored.filter(replaced).filter(|table| !named.contains(&table.engine_id()));
            gone.extend(left.map(|table| (&**keyspace, &**table)));
        }
    }
    gone.into_iter()
}

/// The drops that lead from one catalog to another, in effect now.
pub fn between(context: &ShardContext, old: &Catalog, new: &Catalog) -> Result<Vec<PendingDrop>> {
    dropped_tables(old, new)
        .map(|(keyspace, table)| {
            let snapshot = snapshots::plan(context, keyspace, table, Occasion::Drop)?;
            Ok(PendingDrop { table: table.id, snapshot })
        })
        .collect()
}

/// Writes the tables whose drop begins with a snapshot to files, on all shards. If that fails, so would the snapshots, and the drop must not
/// be proposed.
pub async fn rehearse(context: &Rc<ShardContext>, old: &Catalog, new: &Catalog) -> Result<()> {
    let config = &context.node.config;
    let tables: Vec<TableId> = dropped_tables(old, new)
        .filter(|(_, table)| snapshots::is_wanted(config, table))
        .map(|(_, table)| table.engine_id())
        .collect();
    if tables.is_empty() {
        return Ok(());
    }
    on_every_shard(context, move |context| {
        let tables = tables.clone();
        Box::pin(async move {
            for table in tables {
                context.shard.flush(table).await?;
            }
            Ok(())
        })
    })
    .await
}

impl PendingDrops {
    pub fn new(drops: Vec<PendingDrop>) -> Self {
        Self { drops: Rc::new(RefCell::new(drops)), turn: Rc::default() }
    }

    pub fn add(&self, drops: Vec<PendingDrop>) {
        self.drops.borrow_mut().extend(drops);
    }

    /// The drops that belong to a state with this catalog.
    pub fn under(&self, catalog: &Catalog) -> Vec<PendingDrop> {
        if self.drops.borrow().is_empty() {
            return Vec::new();
        }
        let named = table_ids(catalog);
        self.drops.borrow().iter().filter(|drop| !named.contains(&drop.table())).cloned().collect()
    }

    /// The tables of all drops.
    pub fn tables(&self) -> BTreeSet<TableId> {
        self.drops.borrow().iter().map(PendingDrop::table).collect()
    }

    /// Carries the drops out on all shards. Those that fail stay, and the first error is returned.
    pub async fn carry_out(&self, context: &Rc<ShardContext>) -> Result<()> {
        let _turn = self.turn.lock().await;
        let mut outcome = Ok(());
        let waiting = self.drops.borrow().clone();
        for drop in waiting {
            let (table, snapshot) = (drop.table(), drop.snapshot.clone());
            let dropped = on_every_shard(context, move |context| {
                let snapshot = snapshot.clone();
                Box::pin(async move { drop_here(&context, table, snapshot.as_ref()).await })
            });
            match dropped.await {
                Ok(()) => self.drops.borrow_mut().retain(|other| *other != drop),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// As [`PendingDrops::carry_out`]. A failure is logged, and the task of [`PendingDrops::keep_trying`] tries again.
    pub async fn try_to_carry_out(&self, context: &Rc<ShardContext>) {
        if let Err(error) = self.carry_out(context).await {
            let tables = self.drops.borrow().len();
            tracing::error!(%error, tables, "dropped tables are kept, because they could not be dropped; it will be tried again");
        }
    }

    /// Starts the task that carries out what has failed before.
    pub fn keep_trying(&self, context: &Rc<ShardContext>) {
        let drops = self.clone();
        context.repeat(DROP_RETRY_PAUSE, async move |context: &Rc<ShardContext>| {
            if !drops.drops.borrow().is_empty() {
                drops.try_to_carry_out(context).await;
            }
        });
    }
}

/// Takes the snapshot of a table on this shard, and drops it.
async fn drop_here(context: &ShardContext, table: TableId, snapshot: Option<&SnapshotPlan>) -> Result<()> {
    if !context.shard.has_table(table) {
        return Ok(());
    }
    if let Some(snapshot) = snapshot {
        snapshots::take(context, table, snapshot).await?;
    }
    Ok(context.shard.drop_table(table).await?)
}
