//! Changes of the replication of keyspaces: how they begin, advance and end ([`crate::replication_change`]).
//!
//! * A change waits while a member is in a transition, while another change is under way, while a member that would gain ranges by it may
//!   have old data of them, and while ranges would have no replica at all after it. It begins with the entry of the log that ends the last of these reasons.
//! * The catalog has the replication that was requested last. What holds for reads and writes is in the topology until the change ends.
//! * A change that is altered again before its new replicas are read begins anew; afterwards it ends first.

use std::collections::BTreeMap;
use std::sync::Arc;

use helenus_query::schema::catalog::{Catalog, Replication};

use super::command::CommandOutcome;
use super::gains::leaves_ranges_alone;
use super::outcome::Changed;
use super::state::{ClusterState, with_losers_uncleaned, with_topology};
use super::uncleaned::by_replication_of;
use crate::member::TransitionPhase;
use crate::replication_change::ReplicationChange;
use crate::topology::Topology;

/// The state with a new catalog, in which the changes of replication are noted and wait for their turn.
pub(super) fn with_catalog(state: &ClusterState, index: u64, catalog: Catalog) -> ClusterState {
    let mut changes = state.topology.replication_changes.clone();
    changes.retain(|name, _| catalog.keyspaces.contains_key(name));
    for (name, change) in ReplicationChange::between(&state.catalog, &catalog) {
        request(&mut changes, name, change);
    }
    let gives_up = phases(&changes) != phases(&state.topology.replication_changes);
    let mut changed =
        with_topology(state, index, gives_up, |topology| topology.replication_changes = changes);
    changed.catalog = Arc::new(catalog);
    if gives_up { with_causes_noted(state, changed) } else { changed }
}

/// Notes that a keyspace is to have another replication.
fn request(changes: &mut BTreeMap<String, ReplicationChange>, name: String, mut change: ReplicationChange) {
    if let Some(begun) = changes.get(&name) {
        if begun.phase == Some(TransitionPhase::ReadNew) {
            // What the catalog says by then is done when this has ended.
            return;
        }
        change.before = begun.before.clone();
    }
    if change.before == change.after {
        changes.remove(&name);
    } else {
        changes.insert(name, change);
    }
}

fn phases(
    changes: &BTreeMap<String, ReplicationChange>,
) -> BTreeMap<&String, (&Replication, TransitionPhase)> {
    let begun = changes.iter().filter_map(|(name, change)| Some((name, (&change.after, change.phase?))));
    begun.collect()
}

/// `after`, in which those that have given up ranges of keyspaces are noted: the keyspaces whose changes were under way before.
fn with_causes_noted(before: &ClusterState, mut after: ClusterState) -> ClusterState {
    for (name, change) in &before.topology.replication_changes {
        let is_over = after.topology.replication_changes.get(name) != Some(change);
        if change.phase.is_some() && is_over {
            after = with_losers_uncleaned(before, after, by_replication_of(name));
        }
    }
    after
}

/// Begins the changes that wait for nothing any more.
pub(super) fn begun(state: ClusterState, index: u64) -> ClusterState {
    if state.topology.replication_changes.is_empty() || !state.topology.is_settled() {
        return state;
    }
    let is_free = |change: &ReplicationChange| {
        state.cleanup_due_by([change]).is_empty() && !leaves_ranges_alone(&state.topology, change)
    };
    let mut changes = state.topology.replication_changes.clone();
    let mut any = false;
    for change in changes.values_mut().filter(|change| is_free(change)) {
        change.phase = Some(TransitionPhase::WriteBoth);
        any = true;
    }
    if any {
        with_topology(&state, index, true, |topology| topology.replication_changes = changes)
    } else {
        state
    }
}

/// Advances the changes that are under way.
pub(super) fn advance(state: &ClusterState, index: u64, from: TransitionPhase, epoch: u64) -> Changed {
    let topology = &state.topology;
    if topology.epoch != epoch || topology.replication_phase() != Some(from) {
        return Err(CommandOutcome::Conflict { version: topology.version });
    }
    match from {
        TransitionPhase::WriteBoth => Ok(Some(with_topology(state, index, true, |topology| {
            for change in topology.replication_changes.values_mut().filter(|change| change.phase.is_some()) {
                change.phase = Some(TransitionPhase::ReadNew);
            }
        }))),
        TransitionPhase::ReadNew => {
            let changed = with_topology(state, index, true, |topology| end(topology, &state.catalog));
            Ok(Some(with_causes_noted(state, changed)))
        }
    }
}

/// Ends the changes that are under way. Where another replication was requested meanwhile, the change to it waits for its turn.
fn end(topology: &mut Topology, catalog: &Catalog) {
    let changes = std::mem::take(&mut topology.replication_changes);
    for (name, change) in changes {
        let Some(wanted) = catalog.keyspace(&name).map(|keyspace| keyspace.replication.clone()) else {
            continue;
        };
        if change.phase.is_none() {
            topology.replication_changes.insert(name, change);
        } else if wanted != change.after {
            let next = ReplicationChange { before: change.after, after: wanted, phase: None };
            topology.replication_changes.insert(name, next);
        }
    }
}
