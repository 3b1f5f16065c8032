//! Which members gain ranges by a change of the members or of replication. Every member must find the same, whatever its version: a change of
//! placements, or of the keyspaces that programs bring with them, needs a feature level.

use std::collections::BTreeSet;
use std::sync::Arc;

use helenus_query::schema::catalog::{Catalog, Keyspace, Replication};

use crate::member::HostId;
use crate::placement::Placement;
use crate::topology::Topology;

/// The members that would gain ranges of any keyspace if this one were not there. They have given up just these if it has come.
pub(super) fn gain_without(topology: &Topology, catalog: &Catalog, host_id: &HostId) -> BTreeSet<HostId> {
    let mut without = topology.clone();
    without.members.remove(host_id);
    let mut seen: Vec<&Replication> = Vec::new();
    let mut gaining = BTreeSet::new();
    for replication in catalog.keyspaces.values().filter_map(replication_of) {
        if !seen.contains(&replication) {
            seen.push(replication);
            let [before, after] = [topology, &without].map(|members| Placement::new(members, replication));
            gaining.extend(gainers(&before, &after));
        }
    }
    gaining
}

/// The members that gain ranges of any keyspace because its replication is another one in `new`.
pub(super) fn gain_by_replication(topology: &Topology, old: &Catalog, new: &Catalog) -> BTreeSet<HostId> {
    let changed = new.keyspaces.iter().filter_map(|(name, keyspace)| {
        let (before, after) = (replication_of(old.keyspaces.get(name)?)?, replication_of(keyspace)?);
        (before != after).then_some([before, after])
    });
    let gained = changed.map(|sides| {
        let [before, after] = sides.map(|replication| Placement::new(topology, replication));
        gainers(&before, &after)
    });
    gained.flatten().collect()
}

fn replication_of(keyspace: &Arc<Keyspace>) -> Option<&Replication> {
    Some(&keyspace.replication)
        .filter(|replication| !keyspace.is_virtual && **replication != Replication::Local)
}

/// The members that are replicas of a token after a change and not before it.
fn gainers(before: &Placement, after: &Placement) -> BTreeSet<HostId> {
    let ends: BTreeSet<i64> = before.ranges().chain(after.ranges()).map(|(range, _)| range.end).collect();
    let mut gaining = BTreeSet::new();
    for end in ends {
        let old = before.replicas(end);
        gaining.extend(
            after
                .replicas(end)
                .read
                .iter()
                .map(|member| member.host_id)
                .filter(|host_id| !old.contains(host_id)),
        );
    }
    gaining
}
