//! Dead members that have the only copy of ranges: they are removed or replaced only with consent.

use std::collections::BTreeSet;
use std::sync::Arc;

use helenus_execution::shard::context::ShardContext;
use helenus_query::schema::system_keyspaces;
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::metadata::Refusal;
use helenus_ring::placement::Replicas;

use crate::streaming::replicated_tables;

/// Refuses that members go that have the only copy of a range. What the system keeps with one replica does not count.
pub fn check_other_copies(context: &ShardContext, leaving: &BTreeSet<HostId>) -> Result<(), Refusal> {
    let (view, catalog) = (context.cluster_view(), context.catalog());
    let others_leave = |host_id: &HostId| {
        let leaves = |member: &Arc<Member>| matches!(member.state, MemberState::Leaving(_));
        let is_leaving = view.topology.member(host_id).is_some_and(leaves);
        !view.is_alive(host_id) && (is_leaving || view.topology.given_up.contains(host_id))
    };
    for keyspace in catalog.keyspaces.values() {
        let Some(placement) = view.placement(&keyspace.name) else { continue };
        if system_keyspaces::is_system(&keyspace.name) || replicated_tables(keyspace).is_empty() {
            continue;
        }
        let is_only_copy = |replicas: &Replicas| {
            let goes =
                |member: &Arc<Member>| leaving.contains(&member.host_id) || others_leave(&member.host_id);
            !replicas.read.is_empty() && replicas.read.iter().all(goes)
        };
        let ranges = placement.ranges().filter(|(_, replicas)| is_only_copy(replicas)).count();
        if ranges > 0 {
            return Err(Refusal::OnlyCopy { keyspace: keyspace.name.clone(), ranges: ranges as u64 });
        }
    }
    Ok(())
}
