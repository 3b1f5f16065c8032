//! Assigns the parts of a range of keys to replicas: the ranges of the placement in token order, with neighbours
//! joined where the same replicas can answer both.
//!
//! Invariants:
//! * Joining leaves a spare replica where the first of the ranges has one. Otherwise the first replica that fails, and is not known to be down
//!   yet, would fail reads of ranges whose other replicas are alive.
//! * Where ownership changes hands, only ranges are joined that have the same replicas on both sides: what a read needs there depends on them.

use std::collections::BTreeSet;
use std::sync::Arc;

use helenus_engine::key::encode_token;
use helenus_query::error::Result;
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::placement::{Placement, Replicas};
use helenus_ring::view::ClusterView;
use smallvec::SmallVec;

use super::answer::token_of;
use super::snitch;
use crate::shard::context::ShardContext;
use helenus_ring::consistency::RequiredReplicas;

/// The first part of a range, and the live replicas that have all of it.
#[derive(Debug)]
pub struct Group {
    /// Exclusive end, as a full key.
    pub end: Vec<u8>,
    /// Those that are read, and pending ones that may be asked too.
    pub members: SmallVec<[Arc<Member>; 3]>,
    /// Those that are pending. They may lack whatever was not streamed to them yet.
    pub pending: SmallVec<[HostId; 1]>,
    /// What the read needs of them.
    pub demand: RequiredReplicas,
}

/// What a read needs of replicas.
pub struct ReadDemand<'a> {
    /// What the level needs of the replicas that are read.
    pub of_level: RequiredReplicas,
    /// This node and its data center, if what is read must not disappear when ownership changes hands: then as many replicas must have it as a
    /// write at the level needs, pending ones included.
    pub lasts_for: Option<(&'a str, HostId)>,
}

impl ReadDemand<'_> {
    /// Whether pending replicas are asked, too.
    fn asks_pending(&self, replicas: &Replicas) -> bool {
        self.lasts_for.is_some() && (!replicas.pending.is_empty() || replicas.other.is_some())
    }

    fn of(&self, replicas: &Replicas) -> RequiredReplicas {
        let demand = self.of_level.clone();
        match self.lasts_for {
            Some((data_center, this_node)) if self.asks_pending(replicas) => {
                demand.of_write(replicas, data_center, this_node)
            }
            _ => demand,
        }
    }

    /// The live ones among the replicas that may be asked.
    fn alive(&self, view: &ClusterView, replicas: &Replicas) -> SmallVec<[Arc<Member>; 3]> {
        let pending = replicas.pending.iter().filter(|_| self.asks_pending(replicas));
        let asked = replicas.read.iter().chain(pending);
        asked.filter(|member| view.is_alive(&member.host_id)).cloned().collect()
    }

    /// Whether the same is needed of the replicas of two ranges.
    fn is_alike(&self, one: &Replicas, other: &Replicas) -> bool {
        !(self.asks_pending(one) || self.asks_pending(other)) || sides(one) == sides(other)
    }
}

/// The members that are read, those that are pending, and those of the other side.
fn sides(replicas: &Replicas) -> [BTreeSet<HostId>; 3] {
    let ids = |members: &[Arc<Member>]| members.iter().map(|member| member.host_id).collect();
    let others = replicas.other.iter().flat_map(|other| other.members.iter().copied());
    [ids(&replicas.read), ids(&replicas.pending), others.collect()]
}

/// A key greater than every full key.
const RING_END: &[u8] = &[0xFF; 9];

/// The least key greater than all keys with tokens up to this one.
fn behind(token: i64) -> Vec<u8> {
    token.checked_add(1).map_or_else(|| RING_END.to_vec(), |next| encode_token(next).to_vec())
}

/// Replicas in the order in which they are asked: this node, then those of its data center, unless some are slow. The work is spread over those
/// that are equally near.
pub fn nearest_first(context: &ShardContext, mut members: Vec<Arc<Member>>) -> Vec<Arc<Member>> {
    let turn = context.random.borrow_mut().below(members.len().max(1) as u64) as usize;
    members.rotate_left(turn);
    let this_node = context.node.host_id;
    let data_center = &context.node.config.data_center;
    members.sort_by_key(|member| (member.host_id != this_node, member.data_center != *data_center));
    snitch::order(context, &mut members);
    members
}

/// The parts of the ring in key order: the end of each, and its replicas.
fn segments(placement: &Placement) -> impl Iterator<Item = (Vec<u8>, &Replicas)> {
    let first = placement.ranges().next().map(|(_, replicas)| replicas);
    let ranges = placement.ranges().map(|(range, replicas)| (behind(range.end), replicas));
    // The keys behind the last token belong to the range of the first token.
    ranges.chain(first.map(|replicas| (RING_END.to_vec(), replicas)))
}

/// Whether the level can be reached without any one of these members, and so also with all of them.
fn has_spare(demand: &RequiredReplicas, members: &[Arc<Member>]) -> bool {
    !members.is_empty()
        && members.iter().all(|missing| {
            demand.is_met(
                members.iter().filter(|member| member.host_id != missing.host_id).map(|member| &**member),
            )
        })
}

/// The part at the beginning of `[start, end)` that one set of live replicas can answer. Returns an error if the live replicas of the very
/// first keys cannot.
pub fn first_group(
    view: &ClusterView,
    placement: &Placement,
    needs: &ReadDemand<'_>,
    start: &[u8],
    end: &[u8],
) -> Result<Group> {
    let of_replicas = |replicas: &Replicas, end: Vec<u8>| {
        let (members, demand) = (needs.alive(view, replicas), needs.of(replicas));
        demand.check_alive(members.iter().map(|member| &**member))?;
        let pending = replicas.pending.iter().map(|member| member.host_id).collect();
        Ok(Group { end, members, pending, demand })
    };
    if let Some(token) = token_of(start, end) {
        return of_replicas(placement.replicas(token), end.to_vec());
    }
    let mut first: Option<(&Replicas, Group)> = None;
    // Whether the first range has a spare replica; ranges joined to it must keep one.
    let mut keeps_spare = false;
    for (segment_end, replicas) in segments(placement) {
        if segment_end.as_slice() <= start {
            continue;
        }
        match &mut first {
            None => {
                let group = of_replicas(replicas, segment_end)?;
                keeps_spare = has_spare(&group.demand, &group.members);
                first = Some((replicas, group));
            }
            Some((of_first, group)) => {
                if !needs.is_alike(of_first, replicas) {
                    break;
                }
                let mut common = needs.alive(view, replicas);
                common.retain(|member| group.members.iter().any(|known| known.host_id == member.host_id));
                let is_enough = if keeps_spare {
                    has_spare(&group.demand, &common)
                } else {
                    group.demand.is_met(common.iter().map(|member| &**member))
                };
                if !is_enough {
                    break;
                }
                group.end = segment_end;
                group.members = common;
            }
        }
        if first.as_ref().is_some_and(|(_, group)| group.end.as_slice() >= end) {
            break;
        }
    }
    let Some((_, mut group)) = first else {
        let demand = needs.of_level.clone();
        demand.check_alive(std::iter::empty::<&Member>())?;
        return Ok(Group { end: end.to_vec(), members: SmallVec::new(), pending: SmallVec::new(), demand });
    };
    if group.end.as_slice() > end {
        group.end = end.to_vec();
    }
    Ok(group)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use cql_lite::frame::Consistency;
    use helenus_query::error::RequestError;
    use helenus_query::schema::catalog::Replication;
    use helenus_query::schema::system_tables::initial_catalog;
    use helenus_ring::member::MemberState;
    use helenus_ring::topology::Topology;
    use uuid::Uuid;

    use super::*;
    use helenus_ring::consistency::required;

    fn view(tokens: &[i64], alive: &[u8]) -> ClusterView {
        let id = |number: u8| Uuid::from_bytes([number; 16]);
        let members = tokens.iter().zip(1_u8..).map(|(&token, number)| {
            let member = Member {
                host_id: id(number),
                internode_address: ([127, 0, 0, number], 7000).into(),
                native_address: ([127, 0, 0, number], 9042).into(),
                shard_aware_port: 19042,
                shard_count: 1,
                data_center: "dc".to_owned(),
                rack: "rack".to_owned(),
                tokens: vec![token],
                state: MemberState::Normal,
                release_version: String::new(),
                protocol_version: 1,
                feature_version: 1,
                encrypts_tables: false,
            };
            (member.host_id, Arc::new(member))
        });
        let members: BTreeMap<_, _> = members.collect();
        let topology = Topology {
            version: 1,
            epoch: 1,
            members,
            removed: BTreeSet::new(),
            feature_level: 1,
            ..Topology::default()
        };
        let alive = alive.iter().map(|&number| id(number)).collect();
        ClusterView::new(Arc::new(topology), Arc::new(alive), &initial_catalog(Uuid::nil()))
    }

    /// The groups of the whole ring: the last token and the member numbers of each.
    fn groups(view: &ClusterView, factor: u32, level: Consistency) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let replication = Replication::Simple { replication_factor: factor };
        let placement = Placement::new(&view.topology, &replication);
        let of_level = required(level, &replication, "dc", Uuid::nil());
        let demand = ReadDemand { of_level, lasts_for: None };
        let mut start = Vec::new();
        let mut groups = Vec::new();
        while start.as_slice() < RING_END {
            let group = first_group(view, &placement, &demand, &start, RING_END)?;
            start.clone_from(&group.end);
            let mut numbers: Vec<u8> = group.members.iter().map(|it| it.host_id.as_bytes()[0]).collect();
            numbers.sort_unstable();
            groups.push((group.end, numbers));
        }
        Ok(groups)
    }

    #[test]
    fn one_set_of_replicas_answers_for_the_whole_ring_where_all_have_everything() {
        let view = view(&[-100, 0, 100], &[1, 2, 3]);
        let groups = groups(&view, 3, Consistency::Quorum).unwrap();
        assert_eq!(groups, [(RING_END.to_vec(), vec![1, 2, 3])]);
    }

    #[test]
    fn groups_end_where_common_replicas_run_out() {
        let view = view(&[-100, 0, 100, 200], &[1, 2, 3, 4]);
        let groups = groups(&view, 2, Consistency::Two).unwrap();
        let expected = [
            (behind(-100), vec![1, 2]),
            (behind(0), vec![2, 3]),
            (behind(100), vec![3, 4]),
            (behind(200), vec![1, 4]),
            (RING_END.to_vec(), vec![1, 2]),
        ];
        assert_eq!(groups, expected);
    }

    #[test]
    fn joined_ranges_keep_a_replica_to_spare() {
        let view = view(&[-100, 0, 100, 200, 300], &[1, 2, 3, 4, 5]);
        for (level, most) in [(Consistency::One, 3), (Consistency::Quorum, 5)] {
            let groups = groups(&view, 3, level).unwrap();
            let required = if level == Consistency::One { 1 } else { 2 };
            assert!(groups.iter().all(|(_, members)| members.len() > required), "{level:?}: {groups:?}");
            assert!(groups.len() <= most + 1, "{level:?}: {groups:?}");
        }
        // A level that leaves no spare replica does not need one.
        assert_eq!(groups(&view, 3, Consistency::All).unwrap().len(), 6);
    }

    #[test]
    fn a_range_without_enough_live_replicas_is_unavailable() {
        let view = view(&[-100, 0, 100], &[1]);
        match groups(&view, 3, Consistency::Quorum) {
            Err(RequestError::Unavailable { required: 2, alive: 1, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
