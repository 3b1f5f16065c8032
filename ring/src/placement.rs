//! Computes the replicas of each token under a replication strategy.
//!
//! A placement is computed once for a topology and a replication strategy, and then looked up: one binary search for
//! each request. Ranges are `(start, end]` as in Cassandra; the range of the smallest token wraps around the ring.
//!
//! * `SimpleStrategy`: the first distinct members clockwise.
//! * `NetworkTopologyStrategy`: for each data center, clockwise, members of new racks. Of racks that have a replica
//!   already, only as many members as replicas exceed racks (as in Cassandra's `NetworkTopologyStrategy`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use helenus_query::schema::catalog::Replication;
use smallvec::SmallVec;

use super::member::{HostId, Member};
use super::replication_change::ReplicationChange;
use super::topology::Topology;

/// The replicas of the tokens of one range.
#[derive(Debug, Clone, Default)]
pub struct Replicas {
    /// The replicas that are read, in the order of the ring.
    pub read: SmallVec<[Arc<Member>; 3]>,
    /// The replicas that must get writes as well, because ownership is changing hands.
    pub pending: SmallVec<[Arc<Member>; 1]>,
    /// While the keyspace's replication changes, or a member is replaced: the other side.
    pub other: Option<Arc<OtherSide>>,
}

/// The replicas that are not read while a keyspace's replication changes (then under another replication), or while a new member takes the
/// place of a dead one. A write must reach its level on this side too.
///
/// For a replacement one more acknowledgement than the level's would do as well, but not as long: of three replicas one is dead, and if the new
/// one is down too, the other two are a quorum on either side.
#[derive(Debug, Clone)]
pub struct OtherSide {
    pub replication: Arc<Replication>,
    pub members: SmallVec<[HostId; 3]>,
}

impl Replicas {
    pub fn all(&self) -> impl Iterator<Item = &Arc<Member>> {
        self.read.iter().chain(&self.pending)
    }

    pub fn contains(&self, host_id: &HostId) -> bool {
        self.all().any(|member| member.host_id == *host_id)
    }
}

/// A range of tokens, `(start, end]`; `start >= end` wraps around the ring, `start == end` is the whole ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct TokenRange {
    pub start: i64,
    pub end: i64,
}

impl TokenRange {
    pub fn contains(&self, token: i64) -> bool {
        if self.start < self.end {
            self.start < token && token <= self.end
        } else {
            token > self.start || token <= self.end
        }
    }

    /// The number of tokens in the range.
    pub fn width(&self) -> u128 {
        match (self.end as u64).wrapping_sub(self.start as u64) {
            0 => 1 << 64,
            width => u128::from(width),
        }
    }
}

/// The replicas of every token.
#[derive(Debug, Clone)]
pub struct Placement {
    /// The replication that is read.
    replication: Replication,
    /// Ends of the ranges, sorted. Empty: a single range without an end, `sets[0]`.
    ends: Vec<i64>,
    sets: Vec<Replicas>,
}

impl Placement {
    /// The placement of a keyspace whose replication changes, or is to change.
    pub fn of_change(topology: &Topology, change: &ReplicationChange) -> Self {
        let Some(other) = change.other() else { return Self::new(topology, change.read()) };
        let owners: Vec<_> = topology.owners().cloned().collect();
        let ring = Ring::new(&owners);
        let ends: Vec<i64> = ring.tokens.keys().copied().collect();
        let (read_replication, other_replication) = (change.read().clone(), Arc::new(other.clone()));
        let sets = ends.iter().map(|&end| {
            let read = ring.replicas(end, &read_replication);
            let others = ring.replicas(end, &other_replication);
            let members = others.iter().map(|member| member.host_id).collect();
            let is_read = |member: &Arc<Member>| read.iter().any(|known| known.host_id == member.host_id);
            let pending = others.into_iter().filter(|member| !is_read(member)).collect();
            let other = OtherSide { replication: other_replication.clone(), members };
            Replicas { read, pending, other: Some(Arc::new(other)) }
        });
        let sets = sets.collect();
        Self { replication: read_replication, ends, sets }
    }

    pub fn new(topology: &Topology, replication: &Replication) -> Self {
        let owners: Vec<_> = topology.owners().cloned().collect();
        let others: Vec<_> = topology.other_owners().cloned().collect();
        let read = Ring::new(&owners);
        let other = Ring::new(&others);
        let is_changing = topology.in_transition().is_some();
        let shared = topology.replacement.map(|_| Arc::new(replication.clone()));
        let mut ends: Vec<i64> = read.tokens.keys().copied().collect();
        if is_changing {
            ends.extend(other.tokens.keys().copied());
            ends.sort_unstable();
            ends.dedup();
        }
        let sets = ends
            .iter()
            .map(|&end| {
                let natural = read.replicas(end, replication);
                if !is_changing {
                    return Replicas { read: natural, ..Replicas::default() };
                }
                let others = other.replicas(end, replication);
                let members = others.iter().map(|member| member.host_id).collect();
                let is_read =
                    |member: &Arc<Member>| natural.iter().any(|known| known.host_id == member.host_id);
                let pending: SmallVec<[Arc<Member>; 1]> =
                    others.into_iter().filter(|member| !is_read(member)).collect();
                let replication = shared.clone().filter(|_| !pending.is_empty());
                let other = replication.map(|replication| Arc::new(OtherSide { replication, members }));
                Replicas { read: natural, pending, other }
            })
            .collect();
        Self { replication: replication.clone(), ends, sets }
    }

    /// The replication that is read.
    pub fn replication(&self) -> &Replication {
        &self.replication
    }

    /// The replicas of a token.
    pub fn replicas(&self, token: i64) -> &Replicas {
        static NONE: Replicas =
            Replicas { read: SmallVec::new_const(), pending: SmallVec::new_const(), other: None };
        let index = self.ends.partition_point(|&end| end < token);
        // Tokens behind the last end belong to the first range. A ring without tokens has no replicas.
        self.sets.get(index).or_else(|| self.sets.first()).unwrap_or(&NONE)
    }

    /// The ranges in the order of their ends, with their replicas; the first one wraps around.
    pub fn ranges(&self) -> impl Iterator<Item = (TokenRange, &Replicas)> {
        // Without ends there is no range either.
        let last = self.ends.last().copied().unwrap_or_default();
        let starts = std::iter::once(last).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| TokenRange { start, end }).zip(&self.sets)
    }

    /// The ranges within which neither this placement changes nor the other one.
    pub fn common_ranges(&self, other: &Self) -> Vec<TokenRange> {
        let ends: BTreeSet<i64> = self.ends.iter().chain(&other.ends).copied().collect();
        let Some(&last) = ends.last() else { return Vec::new() };
        let starts = std::iter::once(last).chain(ends.iter().copied());
        starts.zip(&ends).map(|(start, &end)| TokenRange { start, end }).collect()
    }

    /// The part of the ring for which each member is read, from 0 to 1. Members that are read for none are absent.
    pub fn ownership(&self) -> BTreeMap<HostId, f64> {
        let mut widths: BTreeMap<HostId, u128> = BTreeMap::new();
        for (range, replicas) in self.ranges() {
            for member in &replicas.read {
                *widths.entry(member.host_id).or_default() += range.width();
            }
        }
        widths.into_iter().map(|(id, width)| (id, width as f64 / (1_u128 << 64) as f64)).collect()
    }
}

/// One side of a transition.
struct Ring<'a> {
    tokens: BTreeMap<i64, &'a Arc<Member>>,
    /// Racks of each data center.
    racks: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// Members of each data center.
    counts: BTreeMap<&'a str, usize>,
}

impl<'a> Ring<'a> {
    fn new(members: &'a [Arc<Member>]) -> Self {
        let mut ring = Self { tokens: BTreeMap::new(), racks: BTreeMap::new(), counts: BTreeMap::new() };
        for member in members {
            ring.tokens.extend(member.tokens.iter().map(|&token| (token, member)));
            ring.racks.entry(&member.data_center).or_default().insert(&member.rack);
            *ring.counts.entry(&member.data_center).or_default() += 1;
        }
        ring
    }

    fn clockwise(&self, token: i64) -> impl Iterator<Item = &'a Arc<Member>> {
        self.tokens.range(token..).chain(self.tokens.range(..token)).map(|(_, member)| *member)
    }

    fn replicas(&self, token: i64, replication: &Replication) -> SmallVec<[Arc<Member>; 3]> {
        match replication {
            // Local data is never requested through a placement: each node has its own.
            Replication::Local => SmallVec::new(),
            Replication::Simple { replication_factor } => self.simple(token, *replication_factor as usize),
            Replication::NetworkTopology { data_centers } => self.by_data_center(token, data_centers),
        }
    }

    fn simple(&self, token: i64, count: usize) -> SmallVec<[Arc<Member>; 3]> {
        let members: usize = self.counts.values().sum();
        let mut found: SmallVec<[Arc<Member>; 3]> = SmallVec::new();
        for member in self.clockwise(token) {
            if found.len() >= count.min(members) {
                break;
            }
            if found.iter().all(|known| known.host_id != member.host_id) {
                found.push(member.clone());
            }
        }
        found
    }

    fn by_data_center(&self, token: i64, data_centers: &BTreeMap<String, u32>) -> SmallVec<[Arc<Member>; 3]> {
        struct Wanted<'r> {
            left: usize,
            racks: BTreeSet<&'r str>,
            /// The number of members that may be taken from racks that have a replica already: as many as replicas
            /// exceed racks.
            repeats_left: usize,
        }
        let mut wanted: BTreeMap<&str, Wanted<'_>> = data_centers
            .iter()
            .map(|(name, &count)| {
                let members = self.counts.get(name.as_str()).copied().unwrap_or(0);
                let racks = self.racks.get(name.as_str()).map_or(0, BTreeSet::len);
                let left = (count as usize).min(members);
                let repeats_left = (count as usize).saturating_sub(racks);
                (name.as_str(), Wanted { left, racks: BTreeSet::new(), repeats_left })
            })
            .collect();
        let mut found: SmallVec<[Arc<Member>; 3]> = SmallVec::new();
        for member in self.clockwise(token) {
            if wanted.values().all(|wanted| wanted.left == 0) {
                break;
            }
            let Some(wanted) = wanted.get_mut(member.data_center.as_str()) else { continue };
            if wanted.left == 0 || found.iter().any(|known| known.host_id == member.host_id) {
                continue;
            }
            if !wanted.racks.insert(&member.rack) {
                if wanted.repeats_left == 0 {
                    continue;
                }
                wanted.repeats_left -= 1;
            }
            found.push(member.clone());
            wanted.left -= 1;
        }
        found
    }
}

#[cfg(test)]
pub(crate) mod tests;
