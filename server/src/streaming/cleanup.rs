//! Cleanup: removes the data of ranges that this node does not own any more, as `nodetool cleanup` does, and the state of transactions
//! on them.
//!
//! Invariant: data of a range that this node owns, or is about to own, or that has no replica at all, is never removed. The ranges are computed, and
//! the files to clean are chosen, in one turn in which no member is in a transition. Later data is in other files.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::table::TableError;
use helenus_engine::{EngineError, TableId};
use helenus_query::error::RequestError;
use helenus_query::schema::catalog::Replication;
use helenus_ring::HostId;
use helenus_ring::metadata::by_replication_of;
use helenus_ring::placement::Placement;
use helenus_ring::topology::Topology;

use super::replicated_tables;
use helenus_execution::coordinator::paxos;
use helenus_execution::shard::context::ShardContext;
use helenus_ring::intervals::{complement, difference, intervals};

/// The reason why a cleanup was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    #[error("keyspace '{0}' does not exist")]
    UnknownKeyspace(String),
    #[error("Node is involved in cluster membership changes. Not safe to run cleanup.")]
    RingIsChanging,
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Node(#[from] RequestError),
}

type Result<T> = std::result::Result<T, CleanupError>;

/// Pause before files that a compaction was reading are tried again: starts with the first one and grows up to the second one.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The ranges that a cleanup removes.
#[derive(Debug, Clone)]
pub enum Extent {
    /// All that this node does not own.
    NotOwned,
    /// What it owned without these members, and does not own at this epoch. What it does not own for another reason stays: where a
    /// keyspace got fewer replicas before that was a transition, its rows may be nowhere else, and an operator decides.
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
    let unowned = UnownedRanges::new(&context, extent);
    let catalog = context.catalog();
    let wanted = || {
        let all = catalog.keyspaces.iter();
        all.filter(|(name, _)| keyspace.as_ref().is_none_or(|wanted| wanted == *name))
    };
    let mut outcome = Outcome::default();
    // First the transactions: without their state rows are like others, and state without its rows would be wrong. It is all in one
    // table, which is gone through once for each way of replication.
    let view = context.cluster();
    let replication_of = |name: &String| view.placement(name).map(|placement| placement.replication());
    let group_of = |name: &String| Some((replication_of(name)?, unowned.is_all_unowned(name)));
    let (mut seen, mut failed) = (Vec::new(), Vec::new());
    for group in wanted().filter_map(|(name, _)| group_of(name)) {
        if !seen.contains(&group) {
            seen.push(group);
            let (replication, is_all) = group;
            let state = Removed::Transactions { replication, is_all, keyspace: keyspace.as_deref() };
            if !outcome.note(unowned.remove(state).await)? {
                failed.push(group);
            }
        }
    }
    let has_failed = |name: &String| group_of(name).is_some_and(|group| failed.contains(&group));
    for (name, keyspace) in wanted().filter(|(name, _)| !has_failed(name)) {
        for table in replicated_tables(keyspace) {
            outcome.note(unowned.remove(Removed::Rows { keyspace: name, table }).await)?;
        }
    }
    outcome.first_error.map_or(Ok(outcome.files), Err)
}

/// What has come of a cleanup so far. One table that cannot be cleaned up does not hold up the others.
#[derive(Debug, Default)]
struct Outcome {
    files: usize,
    first_error: Option<CleanupError>,
}

impl Outcome {
    /// Returns whether that succeeded. An error if it makes no sense to go on.
    fn note(&mut self, cleaned: Result<usize>) -> Result<bool> {
        match cleaned {
            Ok(files) => {
                self.files += files;
                Ok(true)
            }
            // The ring is another one, or an operator has stopped all of it.
            Err(
                error @ (CleanupError::RingIsChanging
                | CleanupError::Engine(EngineError::Table(TableError::Stopped))),
            ) => Err(error),
            Err(error) => {
                self.first_error.get_or_insert(error);
                Ok(false)
            }
        }
    }
}

/// Removes from one table on this shard all that this node does not own. Returns the number of files that were rewritten or removed.
pub(crate) async fn clean_table(context: &Rc<ShardContext>, keyspace: &str, table: TableId) -> Result<usize> {
    UnownedRanges::new(context, Extent::NotOwned).remove(Removed::Rows { keyspace, table }).await
}

/// What is removed of ranges.
#[derive(Debug, Clone, Copy)]
enum Removed<'r> {
    /// The rows of a table.
    Rows { keyspace: &'r str, table: TableId },
    /// The state of transactions on all tables that are replicated so, of one keyspace or all. `is_all`: of those of which all is removed
    /// that is not owned ([`UnownedRanges::is_all_unowned`]).
    Transactions { replication: &'r Replication, is_all: bool, keyspace: Option<&'r str> },
}

/// The ranges that are removed on one shard.
struct UnownedRanges<'c> {
    context: &'c ShardContext,
    extent: Extent,
    /// Those that are known, by the epoch, the replication of a keyspace, and whether all is removed that is not owned.
    known: RefCell<Vec<(u64, Replication, bool, Tokens)>>,
}

type Tokens = Rc<[RangeInclusive<i64>]>;

impl<'c> UnownedRanges<'c> {
    fn new(context: &'c ShardContext, extent: Extent) -> Self {
        Self { context, extent, known: RefCell::default() }
    }

    /// Whether all of a keyspace is removed that this node does not own: what an operator asks for, or what has been streamed to other
    /// replicas because the keyspace's replication has changed.
    fn is_all_unowned(&self, keyspace: &str) -> bool {
        match &self.extent {
            Extent::NotOwned => true,
            Extent::GivenUp { because_of, .. } => because_of.contains(&by_replication_of(keyspace)),
        }
    }

    /// Removes what this shard has of the ranges. Returns the number of files that were rewritten or removed.
    async fn remove(&self, removed: Removed<'_>) -> Result<usize> {
        let shard = &self.context.shard;
        let stored_in = match removed {
            Removed::Rows { table, .. } => table,
            Removed::Transactions { .. } => paxos::store::TABLE,
        };
        // There may be 10,000 tables, most of them with nothing to remove.
        tokio::task::yield_now().await;
        if self.of(removed)?.is_empty() {
            return Ok(0);
        }
        let (mut files, mut pause) = (0, BUSY_PAUSE);
        let cleaned = async {
            // What is written later is of ranges that this node owns.
            shard.flush(stored_in).await?;
            loop {
                // One turn from here to the choice of the files: nothing else of the shard runs.
                let ranges = self.of(removed)?;
                let dropped = match removed {
                    Removed::Rows { table, .. } => shard.drop_ranges(table, &ranges).await,
                    Removed::Transactions { .. } => {
                        paxos::store::discard(shard, &self.tables_of(removed), &ranges).await
                    }
                }?;
                files += dropped.rewritten_files;
                if dropped.busy_files == 0 {
                    return Ok(());
                }
                self.context.clock.sleep(pause).await;
                pause = (2 * pause).min(BUSY_PAUSE_MAX);
            }
        };
        match cleaned.await {
            // The table was dropped meanwhile.
            Ok(()) | Err(CleanupError::Engine(EngineError::UnknownTable(_))) => Ok(files),
            Err(error) => Err(error),
        }
    }

    /// The tables whose transactions are meant, in this turn.
    fn tables_of(&self, removed: Removed<'_>) -> Vec<TableId> {
        let Removed::Transactions { replication, is_all, keyspace } = removed else { return Vec::new() };
        let (catalog, view) = (self.context.catalog(), self.context.cluster_view());
        let keyspaces = catalog.keyspaces.iter().filter(|(name, _)| {
            view.placement(name).is_some_and(|placement| placement.replication() == replication)
                && keyspace.is_none_or(|wanted| wanted == name.as_str())
                && self.is_all_unowned(name) == is_all
        });
        keyspaces.flat_map(|(_, keyspace)| replicated_tables(keyspace)).collect()
    }

    /// The ranges that are removed of this, in this turn.
    fn of(&self, removed: Removed<'_>) -> Result<Tokens> {
        let view = self.context.cluster_view();
        let topology = &view.topology;
        let is_other = matches!(self.extent, Extent::GivenUp { epoch, .. } if epoch != topology.epoch);
        if !topology.is_settled() || is_other {
            return Err(CleanupError::RingIsChanging);
        }
        let (replication, is_all) = match removed {
            Removed::Rows { keyspace, .. } => {
                let placement = view.placement(keyspace);
                (placement.map(|placement| placement.replication()), self.is_all_unowned(keyspace))
            }
            Removed::Transactions { replication, is_all, .. } => (Some(replication), is_all),
        };
        // A keyspace that was dropped meanwhile has none, nor has a node that owns everything.
        let Some(replication) = replication.filter(|_| !view.is_alone()) else { return Ok(Rc::default()) };
        let mut known = self.known.borrow_mut();
        let is_known = |(epoch, of, all, _): &&(u64, Replication, bool, Tokens)| {
            *epoch == topology.epoch && of == replication && *all == is_all
        };
        if let Some((_, _, _, ranges)) = known.iter().find(is_known) {
            return Ok(Rc::clone(ranges));
        }
        let own = &self.context.node.host_id;
        let owned_now = owned(&Placement::new(topology, replication), own);
        let ranges = match &self.extent {
            Extent::GivenUp { because_of, .. } if !is_all => {
                difference(&owned_without(topology, because_of, replication, own), &owned_now)
            }
            _ => complement(&owned_now),
        };
        let ranges: Tokens = ranges.into();
        known.push((topology.epoch, replication.clone(), is_all, Rc::clone(&ranges)));
        Ok(ranges)
    }
}

/// The tokens of which a member is a replica, as sorted, disjoint intervals. Where nobody is one, whoever has rows keeps them.
fn owned(placement: &Placement, host_id: &HostId) -> Vec<RangeInclusive<i64>> {
    let owned: Vec<_> = placement
        .ranges()
        .filter(|(_, replicas)| replicas.contains(host_id) || replicas.all().next().is_none())
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
