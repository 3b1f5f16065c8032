//! Which members gain or give up ranges by a change of the members or of replication. Every member must find the same, whatever its
//! version: a change of placements, or of the keyspaces that programs bring with them, needs a feature level.

use std::collections::BTreeSet;

use helenus_query::schema::catalog::{Catalog, Keyspace, Replication};

use crate::member::HostId;
use crate::placement::{Placement, TokenRange};
use crate::replication_change::ReplicationChange;
use crate::topology::Topology;

/// The members that would gain ranges of any keyspace if these were not there. They have given up just these if they have come.
pub(super) fn gain_without(
    topology: &Topology,
    catalog: &Catalog,
    host_ids: &BTreeSet<HostId>,
) -> BTreeSet<HostId> {
    let mut without = topology.clone();
    without.members.retain(|host_id, _| !host_ids.contains(host_id));
    let mut seen: Vec<&Replication> = Vec::new();
    let mut gaining = BTreeSet::new();
    for keyspace in catalog.keyspaces.values().filter(|keyspace| is_replicated(keyspace)) {
        let replication = topology.replication_of(keyspace);
        if !seen.contains(&replication) {
            seen.push(replication);
            let [before, after] = [topology, &without].map(|members| Placement::new(members, replication));
            gaining.extend(gainers(&before, &after));
        }
    }
    gaining
}

/// The members that gain ranges by a change of replication.
pub(super) fn gain_by(topology: &Topology, change: &ReplicationChange) -> BTreeSet<HostId> {
    let [before, after] =
        [&change.before, &change.after].map(|replication| Placement::new(topology, replication));
    gainers(&before, &after)
}

/// Whether ranges would have no replica any more after a change of replication.
pub(super) fn leaves_ranges_alone(topology: &Topology, change: &ReplicationChange) -> bool {
    let [before, after] =
        [&change.before, &change.after].map(|replication| Placement::new(topology, replication));
    let is_alone = |end| after.replicas(end).read.is_empty() && !before.replicas(end).read.is_empty();
    before.common_ranges(&after).into_iter().any(|range| is_alone(range.end))
}

/// The members that were written to as replicas of ranges of any keyspace, and are not in the second state.
pub(super) fn given_up(before: (&Topology, &Catalog), after: (&Topology, &Catalog)) -> BTreeSet<HostId> {
    let mut seen: Vec<[Side<'_>; 2]> = Vec::new();
    let mut losing = BTreeSet::new();
    for (name, keyspace) in &before.1.keyspaces {
        let Some(later) = after.1.keyspaces.get(name) else { continue };
        if !is_replicated(keyspace) || !is_replicated(later) {
            continue;
        }
        let sides = [Side::of(before.0, keyspace), Side::of(after.0, later)];
        if !seen.contains(&sides) {
            let [earlier, later] = [sides[0].placement(before.0), sides[1].placement(after.0)];
            seen.push(sides);
            losing.extend(losers(&earlier, &later));
        }
    }
    losing.retain(|host_id| after.0.members.contains_key(host_id));
    losing
}

/// What the placement of a keyspace follows from, beside the members.
#[derive(PartialEq, Eq)]
enum Side<'s> {
    Still(&'s Replication),
    Changing(&'s ReplicationChange),
}

impl<'s> Side<'s> {
    fn of(topology: &'s Topology, keyspace: &'s Keyspace) -> Self {
        match topology.replication_changes.get(&keyspace.name) {
            Some(change) => Self::Changing(change),
            None => Self::Still(&keyspace.replication),
        }
    }

    fn placement(&self, topology: &Topology) -> Placement {
        match self {
            Self::Still(replication) => Placement::new(topology, replication),
            Self::Changing(change) => Placement::of_change(topology, change),
        }
    }
}

fn is_replicated(keyspace: &Keyspace) -> bool {
    !keyspace.is_virtual && keyspace.replication != Replication::Local
}

/// The members that get the writes of a token before a change and not after it.
fn losers(before: &Placement, after: &Placement) -> BTreeSet<HostId> {
    let mut losing = BTreeSet::new();
    for TokenRange { end, .. } in before.common_ranges(after) {
        let new = after.replicas(end);
        if new.all().next().is_none() {
            // Whoever has its rows keeps them.
            continue;
        }
        let old = before.replicas(end).all().map(|member| member.host_id);
        losing.extend(old.filter(|host_id| !new.contains(host_id)));
    }
    losing
}

/// The members that are read for a token in the second placement, and get no writes of it in the first one.
fn gainers(first: &Placement, second: &Placement) -> BTreeSet<HostId> {
    let mut gaining = BTreeSet::new();
    for TokenRange { end, .. } in first.common_ranges(second) {
        let old = first.replicas(end);
        let new = second.replicas(end).read.iter().map(|member| member.host_id);
        gaining.extend(new.filter(|host_id| !old.contains(host_id)));
    }
    gaining
}
