//! Computes which replica of a range streams from which others while the replication of its keyspace changes. Without I/O.
//!
//! The quorums after the change may be smaller than those before, and lie elsewhere. So every replica that needs data gets enough of it
//! by itself: what any `n - q + 1` of the `n` old replicas have together (itself counts, if it is one) has every write that a quorum
//! of `q` has acknowledged. Then any quorum afterwards has it. The same holds for the local quorums
//! * of its own data center,
//! * of data centers that get no replicas any more, as far as any member there is alive: an operator takes a data center that is lost out
//!   of the replication.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use helenus_query::schema::catalog::Replication;
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::placement::TokenRange;

use super::fetch_plan::{FetchPlan, Replications, enough, scopes};

pub(super) fn plan_change(
    range: TokenRange,
    old: &[Arc<Member>],
    new: &[Arc<Member>],
    replications: &Replications,
    alive: &BTreeSet<HostId>,
    plans: &mut BTreeMap<HostId, FetchPlan>,
) {
    let is_in =
        |members: &[Arc<Member>], host_id: &HostId| members.iter().any(|known| known.host_id == *host_id);
    if old.is_empty() {
        return;
    }
    let stay_whole = may_stay_as_they_are(old, new, replications);
    for receiver in new.iter().filter(|member| !stay_whole || !is_in(old, &member.host_id)) {
        let has_own = is_in(old, &receiver.host_id);
        let mut living: Vec<&Arc<Member>> = old
            .iter()
            .filter(|member| member.host_id != receiver.host_id && alive.contains(&member.host_id))
            .collect();
        // The sort is stable: members that compare equal stay in the order of the ring.
        living.sort_by_key(|member| {
            let is_far = member.data_center != receiver.data_center;
            (is_far, is_far || member.rack != receiver.rack)
        });
        let plan = plans.entry(receiver.host_id).or_default();
        match sources(receiver, has_own, &living, old, new, &replications.before) {
            Some(sources) => sources.into_iter().for_each(|source| plan.fetch(range, source)),
            None => plan.blocked.push(range),
        }
    }
}

/// Whether old replicas that stay need nothing: none is given up, and so few of them lack a write that every new quorum has one that
/// does not.
fn may_stay_as_they_are(old: &[Arc<Member>], new: &[Arc<Member>], replications: &Replications) -> bool {
    let is_kept = |member: &&Arc<Member>| new.iter().any(|known| known.host_id == member.host_id);
    if !old.iter().all(|member| is_kept(&member)) {
        return false;
    }
    scopes(&replications.after).into_iter().all(|(center, factor)| {
        let held = old.iter().filter(|member| is_within(member, center)).count();
        let quorum_after = factor / 2 + 1;
        // Nobody has acknowledged anything in a data center without replicas.
        held == 0 || enough(held, factor_in(&replications.before, center)) <= quorum_after
    })
}

/// The replicas among `living`, in their order, from which the receiver streams. `None`: there are too few.
fn sources<'m>(
    receiver: &Member,
    has_own: bool,
    living: &[&'m Arc<Member>],
    old: &[Arc<Member>],
    new: &[Arc<Member>],
    before: &Replication,
) -> Option<Vec<&'m Arc<Member>>> {
    let mut chosen: Vec<&Arc<Member>> = Vec::new();
    // Local quorums first: what is chosen for them counts for the others.
    let mut wanted = scopes(before);
    wanted.reverse();
    for (center, factor) in wanted {
        let of_center = old.iter().filter(|member| is_within(member, center)).count();
        if let Some(name) = center {
            let is_own = receiver.data_center == *name;
            let is_given_up = new.iter().all(|member| member.data_center != *name);
            let is_lost = is_given_up && living.iter().all(|member| member.data_center != *name);
            if of_center == 0 || is_lost || !(is_own || is_given_up) {
                continue;
            }
        }
        let own = usize::from(has_own && is_within(receiver, center));
        let mut missing = enough(of_center, factor).max(1).saturating_sub(own);
        missing = missing.saturating_sub(chosen.iter().filter(|member| is_within(member, center)).count());
        let is_chosen = |member: &Member| chosen.iter().any(|known| known.host_id == member.host_id);
        let more: Vec<_> = living
            .iter()
            .copied()
            .filter(|member| is_within(member, center) && !is_chosen(member))
            .take(missing)
            .collect();
        if more.len() < missing {
            return None;
        }
        chosen.extend(more);
    }
    Some(chosen)
}

fn factor_in(replication: &Replication, center: Option<&String>) -> usize {
    match (replication, center) {
        (Replication::NetworkTopology { data_centers }, Some(name)) => {
            data_centers.get(name).copied().unwrap_or(0) as usize
        }
        (other, _) => other.replica_count() as usize,
    }
}

fn is_within(member: &Member, center: Option<&String>) -> bool {
    center.is_none_or(|name| member.data_center == *name)
}
