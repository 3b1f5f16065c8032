//! Which members vote on the metadata log.
//!
//! Rules:
//! * At most [`VOTERS_MAX`] `Normal` members vote.
//! * They are spread over the data centers, and over the racks of each: the loss of one should leave a majority. Among equals those that vote
//!   already go on, then the eldest.
//! * A voter that is down for long is replaced, if another member can vote in its place. Otherwise it stays: fewer votes would not help.
//! * A member that does not answer never becomes a voter: its vote could be missing from the next majority.

use std::collections::{BTreeMap, BTreeSet};

use super::state::ClusterState;
use crate::HostId;
use crate::member::{Member, MemberState};

/// Most voters.
const VOTERS_MAX: usize = 5;

/// What a leader sees of the members.
#[derive(Debug, Clone, Default)]
pub struct SeenMembers {
    /// Those that vote now.
    pub voters: BTreeSet<HostId>,
    /// Those that answer.
    pub alive: BTreeSet<HostId>,
    /// Those that have not answered for long.
    pub lost: BTreeSet<HostId>,
}

impl ClusterState {
    /// The members that should vote.
    pub fn voters(&self, seen: &SeenMembers) -> BTreeSet<HostId> {
        let normal: Vec<&Member> = self
            .seniority()
            .iter()
            .filter_map(|host_id| self.topology.member(host_id))
            .filter(|member| member.state == MemberState::Normal)
            .map(AsRef::as_ref)
            .collect();
        let votes = |member: &Member| seen.voters.contains(&member.host_id);
        let is_lost = |member: &Member| seen.lost.contains(&member.host_id);
        let count = normal.len().min(VOTERS_MAX);
        let can_vote = |member: &&&Member| {
            if votes(member) { !is_lost(member) } else { seen.alive.contains(&member.host_id) }
        };
        let mut candidates: Vec<&Member> = normal.iter().filter(can_vote).copied().collect();
        let mut chosen: Vec<&Member> = Vec::new();
        while chosen.len() < count && !candidates.is_empty() {
            let mut of_centers: BTreeMap<&str, usize> = BTreeMap::new();
            let mut of_racks: BTreeMap<(&str, &str), usize> = BTreeMap::new();
            for member in &chosen {
                *of_centers.entry(&member.data_center).or_default() += 1;
                *of_racks.entry((&member.data_center, &member.rack)).or_default() += 1;
            }
            let burden = |(index, member): &(usize, &&Member)| {
                let of_center = of_centers.get(member.data_center.as_str()).copied().unwrap_or(0);
                let of_rack =
                    of_racks.get(&(member.data_center.as_str(), member.rack.as_str())).copied().unwrap_or(0);
                (of_center, of_rack, !votes(member), *index)
            };
            let Some(best) = candidates.iter().enumerate().min_by_key(burden).map(|(index, _)| index) else {
                break;
            };
            chosen.push(candidates.remove(best));
        }
        let stay = normal.iter().filter(|member| votes(member) && is_lost(member)).copied();
        let missing = count - chosen.len();
        chosen.into_iter().chain(stay.take(missing)).map(|member| member.host_id).collect()
    }
}
