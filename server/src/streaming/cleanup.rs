//! Cleanup: removes the data of ranges that this node does not own any more, as `nodetool cleanup` does, and the state of transactions
//! on them.
//!
//! Invariant: data of a range that this node owns, or is about to own, is never removed. The ranges are computed, and
//! the files to clean are chosen, in one turn in which no member is in a transition. Later data is in other files.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::{EngineError, TableId};
use helenus_query::error::RequestError;
use helenus_query::schema::catalog::Replication;
use helenus_ring::HostId;
use helenus_ring::placement::Placement;
use helenus_ring::topology::Topology;

use super::ranges::{complement, difference, intervals};
use super::replicated_tables;
use helenus_execution::coordinator::paxos;
use helenus_execution::shard::context::ShardContext;

/// The reason why a cleanup was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    #[error("keyspace '{0}' does not exist")]
    UnknownKeyspace(String),
    #[error("Node is involved in cluster membership changes. Not safe to run cleanup.")]
    RingIsChanging,
    #[error(transparent)]
    Node(#[from] RequestError),
}

type Result<T> = std::result::Result<T, CleanupError>;

/// Pause before files that a compaction was reading are tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// The ranges that a cleanup removes.
#[derive(Debug, Clone)]
pub enum Extent {
    /// All that this node does not own.
    NotOwned,
    /// What it owned without these members, and does not own at this epoch. What it does not own for another reason stays: where a
    /// keyspace got fewer replicas, its rows may be nowhere else, and an operator decides.
    GivenUp { because_of: BTreeSet<HostId>, epoch: u64 },
}

/// Cleans up one keyspace, or all replicated ones. Call from any shard. Returns the number of files that were
/// rewritten or removed.
pub async fn cleanup(context: &Rc<ShardContext>, keyspace: Option<String>, extent: Extent) -> Result<usize> {
    if let Some(name) = &keyspace
        && context.catalog().keyspace(name).is_none()
    {
        return Err(CleanupError::UnknownKeyspace(name.clone()));
    }
    let jobs = (0..context.node.shard_count()).map(|shard| {
        let (keyspace, extent) = (keyspace.clone(), extent.clone());
        context.run_on(shard, move |context| Box::pin(clean_shard(context, keyspace, extent)))
    });
    let mut files = 0;
    for cleaned in futures::future::join_all(jobs).await {
        files += cleaned??;
    }
    Ok(files)
}

async fn clean_shard(context: Rc<ShardContext>, keyspace: Option<String>, extent: Extent) -> Result<usize> {
    let catalog = context.catalog();
    let unowned = UnownedRanges::new(&context, extent);
    let is_wanted = |name: &String| keyspace.as_ref().is_none_or(|wanted| wanted == name);
    // The state of transactions on all tables is in one table, which is gone through once for each way of replication.
    let mut by_replication: Vec<(String, &Replication, Vec<TableId>)> = Vec::new();
    let mut files = 0;
    for (name, keyspace) in catalog.keyspaces.iter().filter(|(name, _)| is_wanted(name)) {
        let tables = replicated_tables(keyspace);
        for table in &tables {
            files += unowned.remove(name, Removed::Rows(*table)).await?;
        }
        match by_replication.iter_mut().find(|(_, known, _)| **known == keyspace.replication) {
            Some((.., known)) => known.extend(tables),
            None => by_replication.push((name.clone(), &keyspace.replication, tables)),
        }
    }
    for (name, _, tables) in &by_replication {
        files += unowned.remove(name, Removed::Transactions(tables)).await?;
    }
    Ok(files)
}

/// Removes from one table on this shard all that this node does not own. Returns the number of files that were rewritten or removed.
pub(crate) async fn clean_table(context: &Rc<ShardContext>, keyspace: &str, table: TableId) -> Result<usize> {
    UnownedRanges::new(context, Extent::NotOwned).remove(keyspace, Removed::Rows(table)).await
}

/// What is removed of ranges.
#[derive(Debug, Clone, Copy)]
enum Removed<'t> {
    /// The rows of a table.
    Rows(TableId),
    /// The state of transactions on these tables.
    Transactions(&'t [TableId]),
}

/// The ranges that are removed on one shard.
struct UnownedRanges<'c> {
    context: &'c ShardContext,
    extent: Extent,
    /// Those that are known, by the epoch and the replication of a keyspace.
    known: RefCell<Vec<(u64, Replication, Tokens)>>,
}

type Tokens = Rc<[RangeInclusive<i64>]>;

impl<'c> UnownedRanges<'c> {
    fn new(context: &'c ShardContext, extent: Extent) -> Self {
        Self { context, extent, known: RefCell::default() }
    }

    /// Removes what this shard has of the ranges. Returns the number of files that were rewritten or removed.
    async fn remove(&self, keyspace: &str, removed: Removed<'_>) -> Result<usize> {
        let failed = |error| CleanupError::Node(RequestError::from(error));
        let shard = &self.context.shard;
        let table = match removed {
            Removed::Rows(table) => table,
            Removed::Transactions(_) => paxos::store::TABLE,
        };
        let mut files = 0;
        // There may be 10,000 tables, most of them with nothing to remove.
        tokio::task::yield_now().await;
        loop {
            if self.of(keyspace)?.is_empty() {
                return Ok(files);
            }
            match shard.flush(table).await {
                Ok(()) => {}
                // Dropped meanwhile.
                Err(EngineError::UnknownTable(_)) => return Ok(files),
                Err(error) => return Err(failed(error)),
            }
            // One turn from here to the choice of the files: nothing else of the shard runs.
            let ranges = self.of(keyspace)?;
            let dropped = match removed {
                Removed::Rows(table) => shard.drop_ranges(table, &ranges).await,
                Removed::Transactions(tables) => paxos::store::discard(shard, tables, &ranges).await,
            };
            let dropped = dropped.map_err(failed)?;
            files += dropped.rewritten_files;
            if dropped.busy_files == 0 {
                return Ok(files);
            }
            self.context.clock.sleep(BUSY_PAUSE).await;
        }
    }

    /// The ranges of a keyspace in this turn.
    fn of(&self, keyspace: &str) -> Result<Tokens> {
        let view = self.context.cluster_view();
        let topology = &view.topology;
        let is_other = matches!(self.extent, Extent::GivenUp { epoch, .. } if epoch != topology.epoch);
        if topology.in_transition().is_some() || is_other {
            return Err(CleanupError::RingIsChanging);
        }
        let catalog = self.context.catalog();
        let replication = catalog.keyspace(keyspace).map(|keyspace| &keyspace.replication);
        let placement = view.placement(keyspace).filter(|_| !view.is_alone());
        let (Some(replication), Some(placement)) = (replication, placement) else {
            return Ok(Rc::default());
        };
        let mut known = self.known.borrow_mut();
        let is_known =
            |(epoch, of, _): &&(u64, Replication, Tokens)| *epoch == topology.epoch && of == replication;
        if let Some((_, _, ranges)) = known.iter().find(is_known) {
            return Ok(Rc::clone(ranges));
        }
        let own = &self.context.node.host_id;
        let owned = owned(placement, own);
        let ranges = match &self.extent {
            Extent::NotOwned => complement(&owned),
            Extent::GivenUp { because_of, .. } => {
                difference(&owned_without(topology, because_of, replication, own), &owned)
            }
        };
        let ranges: Tokens = ranges.into();
        known.push((topology.epoch, replication.clone(), Rc::clone(&ranges)));
        Ok(ranges)
    }
}

/// The tokens of which a member is a replica, as sorted, disjoint intervals.
fn owned(placement: &Placement, host_id: &HostId) -> Vec<RangeInclusive<i64>> {
    let owned: Vec<_> = placement
        .ranges()
        .filter(|(_, replicas)| replicas.contains(host_id))
        .map(|(range, _)| range)
        .collect();
    intervals(&owned)
}

/// The tokens of which a member would be a replica without these other members.
fn owned_without(
    topology: &Topology,
    others: &BTreeSet<HostId>,
    replication: &Replication,
    host_id: &HostId,
) -> Vec<RangeInclusive<i64>> {
    let mut topology = topology.clone();
    topology.members.retain(|member, _| !others.contains(member));
    owned(&Placement::new(&topology, replication), host_id)
}
