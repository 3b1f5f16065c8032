//! Which members must have applied a step of a transition before the next one is taken.
//!
//! A coordinator that has not applied a step still asks the former replicas. A replica that has applied the step refuses (fencing by epoch).
//! If `n - q + 1` of the `n` former replicas of a range have applied it, the others are fewer than a quorum `q`, and no stale quorum is
//! possible. The failure detector does not decide this: behind a partition, replicas and coordinators may serve each other.
//!
//! * The same holds for the local quorums of each data center in which replicas change. One that is given up cannot be waited for: it may be
//!   lost.
//! * Members that others remove, or want to remove, are dead: an operator says so. Of the other owners all are enough.

use std::collections::BTreeSet;
use std::sync::Arc;

use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::metadata::ClusterState;

use crate::cluster::raft::MetadataLog;
use crate::streaming::fetch_plan::{Replications, enough, scopes};
use crate::streaming::plan::Sides;
use helenus_execution::shard::context::ShardContext;

/// The owners whose agreement is missing, where these members have applied the present step.
pub(super) fn missing(state: &ClusterState, applied: &BTreeSet<HostId>) -> BTreeSet<HostId> {
    disagreeing(state, |host_id| applied.contains(host_id))
}

/// The members for whose agreement the present transition waits, as far as this node knows. Call on the first shard.
pub fn waited_for(context: &ShardContext) -> Vec<HostId> {
    let Ok(state) = MetadataLog::of(context).map(|log| log.state()) else { return Vec::new() };
    let (own, epoch) = (context.node.host_id, state.topology.epoch);
    let has_applied = |host_id: &HostId| {
        let announced = context.node.status.of(host_id);
        *host_id == own || announced.is_some_and(|status| status.topology_version >= epoch)
    };
    disagreeing(&state, has_applied).into_iter().collect()
}

/// The owners that have not applied the present step, of all ranges of which too few have.
fn disagreeing(state: &ClusterState, has_applied: impl Fn(&HostId) -> bool) -> BTreeSet<HostId> {
    let Some(sides) = Sides::of(&state.topology) else { return BTreeSet::new() };
    let given_up = &state.topology.given_up;
    let lasts =
        |member: &&Arc<Member>| !state.is_removal(&member.host_id) && !given_up.contains(&member.host_id);
    let mut seen: Vec<Replications> = Vec::new();
    let mut missing = BTreeSet::new();
    for replications in state.catalog.keyspaces.values().filter_map(|keyspace| sides.replications(keyspace)) {
        if seen.contains(&replications) {
            continue;
        }
        let [before, after] = sides.placements(&replications);
        for range in before.common_ranges(&after) {
            let (old, new) = (&before.replicas(range.end).read, &after.replicas(range.end).read);
            let is_same = |member: &Arc<Member>| new.iter().any(|known| known.host_id == member.host_id);
            let is_still = old.len() == new.len() && old.iter().all(is_same);
            if is_still && replications.before == replications.after {
                continue;
            }
            for (center, factor) in scopes(&replications.before) {
                let is_within = |member: &&Arc<Member>| center.is_none_or(|name| member.data_center == *name);
                let owners: Vec<&Arc<Member>> = old.iter().filter(is_within).collect();
                let later: Vec<&Arc<Member>> = new.iter().filter(is_within).collect();
                let is_owner_still =
                    |member: &&Arc<Member>| owners.iter().any(|known| known.host_id == member.host_id);
                let is_same_factor = replications.before == replications.after;
                let is_still = owners.len() == later.len() && later.iter().all(is_owner_still);
                if center.is_some() && (later.is_empty() || (is_still && is_same_factor)) {
                    continue;
                }
                let lasting: Vec<HostId> =
                    owners.iter().copied().filter(lasts).map(|member| member.host_id).collect();
                let needed = enough(owners.len(), factor).min(lasting.len());
                let absent = lasting.iter().copied().filter(|host_id| !has_applied(host_id));
                let absent: Vec<HostId> = absent.collect();
                if lasting.len() - absent.len() < needed {
                    missing.extend(absent);
                }
            }
        }
        seen.push(replications);
    }
    missing
}

#[cfg(test)]
mod tests {
    use helenus_query::schema::document::CatalogDocument;
    use helenus_ring::member::{MemberState, TransitionPhase};
    use helenus_ring::metadata::{Command, CommandOutcome, FEATURE_VERSION, apply};
    use helenus_testing::catalog_of;
    use uuid::Uuid;

    use super::*;

    fn member(number: u128) -> Member {
        Member {
            host_id: Uuid::from_u128(number),
            internode_address: format!("10.0.0.{number}:7000").parse().unwrap(),
            native_address: format!("10.0.0.{number}:9042").parse().unwrap(),
            shard_aware_port: 19042,
            shard_count: 1,
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            tokens: vec![number as i64 * 100],
            state: MemberState::Normal,
            release_version: String::new(),
            protocol_version: 1,
            feature_version: FEATURE_VERSION,
            encrypts_tables: false,
        }
    }

    fn done(state: &ClusterState, command: &Command) -> ClusterState {
        let (state, outcome) = apply(state, state.topology.version + 1, command);
        assert!(matches!(outcome, CommandOutcome::Applied { .. }), "{command}: {outcome:?}");
        state
    }

    /// Five members, whose only replicated keyspaces with another number of replicas than three are without rows.
    fn five() -> ClusterState {
        let three = "{'class': 'SimpleStrategy', 'replication_factor': 3}";
        let alters = ["system_auth", "system_distributed", "system_traces"]
            .map(|name| format!("ALTER KEYSPACE {name} WITH replication = {three}"));
        let mut statements: Vec<&str> = alters.iter().map(String::as_str).collect();
        let create = format!("CREATE KEYSPACE ks WITH replication = {three}");
        statements.push(&create);
        let catalog = CatalogDocument::of(&catalog_of(&statements).catalog);
        let mut state = done(&ClusterState::empty(), &Command::Found { member: member(1), catalog });
        for number in 2..=5 {
            let host_id = Uuid::from_u128(number);
            state = done(&state, &Command::Join { member: member(number) });
            for phase in [TransitionPhase::WriteBoth, TransitionPhase::ReadNew] {
                state = done(&state, &Command::Advance { host_id, from: MemberState::Joining(phase) });
            }
        }
        state
    }

    fn missing_without(state: &ClusterState, absent: &[u128]) -> Vec<u128> {
        let absent: Vec<HostId> = absent.iter().map(|number| Uuid::from_u128(*number)).collect();
        let applied = state.topology.members.keys().copied().filter(|host_id| !absent.contains(host_id));
        missing(state, &applied.collect()).into_iter().map(|host_id| host_id.as_u128()).collect()
    }

    #[test]
    fn two_of_three_owners_must_have_heard_of_a_step() {
        let state = five();
        assert!(missing_without(&state, &[1, 2, 3]).is_empty(), "nothing changes hands");
        // Token 350 is between 3 and 4: it takes over ranges of which 4, 5 and 1 are among the owners, and 2 and 3.
        let joining = Member { tokens: vec![350], ..member(6) };
        let state = done(&state, &Command::Join { member: joining });
        for one in 1..=5 {
            assert!(missing_without(&state, &[one]).is_empty(), "{one}");
        }
        // Of (100, 350] these are the owners: 2 to 4, 3 to 5 and 4, 5, 1.
        assert_eq!(missing_without(&state, &[4, 5]), [4, 5]);
        assert_eq!(
            missing_without(&state, &[2, 5]),
            Vec::<u128>::new(),
            "they share no range that changes hands"
        );
    }

    #[test]
    fn of_a_range_whose_dead_owners_are_removed_the_others_are_enough() {
        let removal = |numbers: &[u128]| Command::StartRemovals {
            host_ids: numbers.iter().map(|number| Uuid::from_u128(*number)).collect(),
            accepts_old_data: true,
        };
        let one = done(&five(), &removal(&[4]));
        assert!(missing_without(&one, &[4]).is_empty());
        assert_eq!(missing_without(&one, &[4, 5]), [5]);
        let two = done(&one, &removal(&[5]));
        assert!(missing_without(&two, &[4, 5]).is_empty());
    }
}
