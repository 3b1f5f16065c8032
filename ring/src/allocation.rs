//! Chooses tokens for a joining member, so that all members own equal shares of the ring.
//!
//! Tokens of members never move, so even shares depend on where new tokens are placed. Each new token splits an
//! existing range in half or elsewhere. The search tries many candidates for one token after the other, and takes the
//! candidate after which the shares deviate least. Two shares count: a member's share as a replica (with
//! `replication_factor` replicas) and its share of primary ranges (the ranges that end at its tokens).
//!
//! * A data center with one rack is a ring of members. If it has as many racks as replicas, or fewer, each rack holds
//!   one copy (or more): then every rack is a ring of its own with one replica. If it has more racks than replicas,
//!   replicas are in distinct racks.
//! * Deterministic and without side effects: the only randomness is the offset of the first member's evenly spaced
//!   tokens.
//! * A search takes long compared with a request: it yields to other tasks of the thread every `TURN_PLACES`
//!   candidates.
//! * A token that a member of any data center has is never assigned again.
//!
//! Measured (tests): with 16 tokens for each member and members joining one by one, shares are within 5 % of even
//! from 3 to 100 members. After members have left, shares depend on the remaining tokens; members that join later
//! even them out.

use std::collections::{BTreeMap, BTreeSet};

use super::member::MemberState;
use super::topology::Topology;

/// Number of tokens of a member, unless configured.
pub const DEFAULT_TOKENS: usize = 16;
/// Most tokens that a member may have.
pub const TOKENS_MAX: usize = 256;
/// The replication factor for which shares are evened out, unless configured.
pub const DEFAULT_REPLICATION_FACTOR: usize = 3;

/// Search strategies: none is the best for every ring.
const SEARCHES: [Search; 11] = [
    Search::new(1.0, 16, 3.0e-6),
    Search::new(2.0, 16, 3.0e-6),
    Search::new(2.0, 16, 10.0e-6),
    Search::new(1.0, 16, 1.0e-6),
    Search::new(2.0, 12, 5.0e-6),
    Search::new(2.0, 24, 5.0e-6),
    Search::new(1.0, 12, 3.0e-6),
    Search::new(3.0, 16, 5.0e-6),
    Search::new(1.5, 20, 3.0e-6),
    Search::new(1.5, 10, 3.0e-6),
    Search::new(1.0, 32, 3.0e-6),
];
/// Rings with more tokens than this are searched with one strategy only: with that many tokens shares are even anyway.
const TOKENS_SEARCHED_OFTEN: usize = 4_096;
/// Rings with fewer tokens than this are searched further with [`further_searches`] until the result is good enough.
const TOKENS_SEARCHED_LONG: usize = 512;
/// A result is good enough if no member deviates from its fair share by more than this.
const GOOD_DEVIATION: f64 = 0.04;
/// In rings with fewer tokens than this a result is judged by the shares that the next member can reach. While there
/// are no more members than replicas all shares are even, but not every choice is a good start for the next member.
const TOKENS_LOOKED_AHEAD: usize = 80;

/// Candidates that are tried in one turn of the thread: some hundred microseconds.
const TURN_PLACES: usize = 8_192;

/// The member that needs tokens.
#[derive(Debug, Clone, Copy)]
pub struct NewMember<'a> {
    pub data_center: &'a str,
    pub rack: &'a str,
    /// The number of its tokens: from 1 to [`TOKENS_MAX`].
    pub token_count: usize,
    /// The number of replicas in its data center for which shares are evened out.
    pub replication_factor: usize,
    /// Any number: rotates the tokens of the first member of a ring.
    pub offset: u64,
}

/// The tokens of the first member of a ring: evenly spaced, rotated by `offset`; sorted.
pub fn first_tokens(count: usize, offset: u64) -> Vec<i64> {
    sorted_tokens(evenly_spaced(count.clamp(1, TOKENS_MAX), offset, &BTreeSet::from([NO_POSITION])))
}

/// Chooses the tokens of a member that joins this topology; sorted.
pub async fn allocate(topology: &Topology, new: &NewMember<'_>) -> Vec<i64> {
    let count = new.token_count.clamp(1, TOKENS_MAX);
    let taken: BTreeSet<u64> = topology
        .members
        .values()
        .flat_map(|member| &member.tokens)
        .map(|&token| position(token))
        .chain([NO_POSITION])
        .collect();
    let (ring, replication_factor) = ring_of(topology, new);
    let positions = if ring.tokens.is_empty() {
        evenly_spaced(count, new.offset, &taken)
    } else {
        best(&ring, count, replication_factor, &taken).await
    };
    sorted_tokens(positions)
}

fn sorted_tokens(positions: Vec<u64>) -> Vec<i64> {
    let mut tokens: Vec<i64> = positions.into_iter().map(token_at).collect();
    tokens.sort_unstable();
    tokens
}

/// No data has the smallest token, and drivers take it for the ring's end.
const NO_POSITION: u64 = 0;

/// Maps tokens to unsigned numbers in equal order.
fn position(token: i64) -> u64 {
    (token as u64) ^ (1 << 63)
}

fn token_at(position: u64) -> i64 {
    (position ^ (1 << 63)) as i64
}

fn evenly_spaced(count: usize, offset: u64, taken: &BTreeSet<u64>) -> Vec<u64> {
    let step = u64::MAX / count as u64;
    let mut used = taken.clone();
    (0..count as u64)
        .map(|index| {
            let position = free(offset.wrapping_add(step.wrapping_mul(index)), &used);
            used.insert(position);
            position
        })
        .collect()
}

/// The first free position, starting with this one.
fn free(mut position: u64, taken: &BTreeSet<u64>) -> u64 {
    while taken.contains(&position) {
        position = position.wrapping_add(1);
    }
    position
}

/// The tokens over which shares are computed. Members are numbered; the new one has the last number.
#[derive(Debug, Clone)]
struct Ring {
    /// Positions with their members, sorted.
    tokens: Vec<(u64, usize)>,
    /// The group of each member. Replicas are in distinct groups.
    groups: Vec<usize>,
}

/// The ring in which the new member must be even, and its number of replicas there.
fn ring_of(topology: &Topology, new: &NewMember<'_>) -> (Ring, usize) {
    let stays = topology.members.values().filter(|member| {
        member.data_center == new.data_center && !matches!(member.state, MemberState::Leaving(_))
    });
    let racks: BTreeSet<&str> = stays.clone().map(|member| member.rack.as_str()).chain([new.rack]).collect();
    let wanted = new.replication_factor.max(1);
    // The first member of a rack has the whole copy of the rack wherever its tokens are: it takes good positions
    // among all members.
    let has_neighbours = stays.clone().any(|member| member.rack == new.rack);
    let a_ring_a_rack = wanted > 1 && racks.len() > 1 && racks.len() <= wanted && has_neighbours;
    let by_rack = racks.len() > wanted && wanted > 1;
    let mut ring = Ring { tokens: Vec::new(), groups: Vec::new() };
    let mut rack_numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut group = |rack, number| {
        if by_rack {
            let next = rack_numbers.len();
            *rack_numbers.entry(rack).or_insert(next)
        } else {
            number
        }
    };
    for member in stays.filter(|member| !a_ring_a_rack || member.rack == new.rack) {
        let number = ring.groups.len();
        ring.groups.push(group(member.rack.as_str(), number));
        ring.tokens.extend(member.tokens.iter().map(|&token| (position(token), number)));
    }
    let number = ring.groups.len();
    ring.groups.push(group(new.rack, number));
    ring.tokens.sort_unstable();
    (ring, if a_ring_a_rack { 1 } else { wanted })
}

/// Searches with several strategies and takes the most even result.
async fn best(ring: &Ring, count: usize, replication_factor: usize, taken: &BTreeSet<u64>) -> Vec<u64> {
    let mut best: Option<(f64, Vec<u64>)> = None;
    let mut turn = YieldCounter::default();
    for (number, search) in SEARCHES.into_iter().chain(further_searches()).enumerate() {
        let token_count = ring.tokens.len() + count;
        let is_wanted = match number {
            0 => true,
            number if number < SEARCHES.len() => token_count <= TOKENS_SEARCHED_OFTEN,
            _ => {
                let is_good = best.as_ref().is_some_and(|(deviation, _)| *deviation <= GOOD_DEVIATION);
                token_count <= TOKENS_SEARCHED_LONG && !is_good
            }
        };
        if !is_wanted {
            break;
        }
        let (grown, chosen) = search.run(ring.clone(), count, replication_factor, taken, &mut turn).await;
        let mut deviation = grown.deviation(replication_factor);
        if token_count <= TOKENS_LOOKED_AHEAD {
            deviation = deviation.max(grown.next_deviation(count, replication_factor, &mut turn).await);
        }
        if best.as_ref().is_none_or(|(known, _)| deviation < *known) {
            best = Some((deviation, chosen));
        }
    }
    debug_assert!(best.is_some(), "there is a strategy");
    best.map(|(_, chosen)| chosen).unwrap_or_default()
}

/// More strategies, for small rings, in which a few unlucky positions have a large effect.
fn further_searches() -> impl Iterator<Item = Search> {
    let weights = [2.0, 1.0, 3.0, 0.7, 1.5].into_iter();
    weights.flat_map(|first_weight| {
        [16, 24, 12, 32, 20, 10, 8, 48].into_iter().flat_map(move |parts| {
            [3.0e-6, 0.0, 1.0e-5].into_iter().map(move |weight| Search::new(first_weight, parts, weight))
        })
    })
}

/// A search strategy: how candidates are chosen and weighted.
#[derive(Debug, Clone, Copy)]
struct Search {
    /// The weight of a deviation of primary ownership, relative to one of ownership as a replica.
    first_weight: f64,
    /// Candidates split a range at multiples of one part in `parts`.
    parts: u64,
    /// The weight of uneven ranges. Members with very small ranges can be even now, but leave nothing to split for
    /// members that join later.
    range_weight: f64,
}

/// Counts the candidates tried in this turn of the thread.
#[derive(Default)]
struct YieldCounter {
    places: usize,
}

impl YieldCounter {
    /// Counts candidates that were tried, and yields to other tasks when the turn's budget is spent.
    async fn spend(&mut self, places: usize) {
        self.places += places;
        if self.places >= TURN_PLACES {
            self.places = 0;
            helenus_engine::io::yield_now().await;
        }
    }
}

/// The shares of the members: parts of the whole ring.
struct Shares {
    as_replica: Vec<f64>,
    first: Vec<f64>,
}

impl Search {
    const fn new(first_weight: f64, parts: u64, range_weight: f64) -> Self {
        Self { first_weight, parts, range_weight }
    }

    /// Chooses the tokens one after the other. Returns the ring with them, and the tokens.
    async fn run(
        self,
        mut ring: Ring,
        count: usize,
        replication_factor: usize,
        taken: &BTreeSet<u64>,
        turn: &mut YieldCounter,
    ) -> (Ring, Vec<u64>) {
        let mut used = taken.clone();
        let mut chosen = Vec::with_capacity(count);
        for index in 0..count {
            let done = (index + 1) as f64 / count as f64;
            let position = free(self.place(&ring, replication_factor, done), &used);
            used.insert(position);
            chosen.push(position);
            ring.insert(position);
            turn.spend(ring.tokens.len() * self.parts as usize).await;
        }
        (ring, chosen)
    }

    /// The position of the next token. With it the new member should own the part `done` of its fair share.
    fn place(self, ring: &Ring, replication_factor: usize, done: f64) -> u64 {
        let members = ring.groups.len();
        let new = members - 1;
        let shares = ring.shares(replication_factor);
        let fair_first = 1.0 / members as f64;
        let fair_as_replica = replication_factor.min(ring.group_count()) as f64 / members as f64;
        // The fourth power: the member that deviates most dominates.
        let cost = |member: usize, share: f64, fair: f64| {
            let wanted = if member == new { fair * done } else { fair };
            ((share - wanted) / fair).powi(4)
        };
        let change_of_cost = |member: usize, share: f64, change: f64, fair: f64| {
            cost(member, share + change, fair) - cost(member, share, fair)
        };
        let mut best = (f64::INFINITY, 0);
        let mut changes = Changes::default();
        let mut replicas = Vec::with_capacity(replication_factor);
        for index in 0..ring.tokens.len() {
            let (end, owner) = ring.tokens[index];
            let width = ring.width(index);
            if width < self.parts {
                continue;
            }
            changes.0.clear();
            ring.changes_before(index, replication_factor, &mut changes, &mut replicas);
            let before: f64 = changes
                .0
                .iter()
                .map(|&(member, change)| {
                    change_of_cost(member, shares.as_replica[member], change, fair_as_replica)
                })
                .sum();
            ring.replicas(index, replication_factor, &mut replicas);
            let is_replica = replicas.contains(&new);
            // The member that the new one displaces, if there are more replicas than needed.
            let displaced = ring.displaced(new, &replicas, replication_factor);
            let step = width / self.parts;
            for multiple in 1..self.parts {
                let cut = fraction(step * multiple);
                let mut total = before;
                if !is_replica {
                    let mut add = |member: usize, change: f64| {
                        let share = shares.as_replica[member] + changes.of(member);
                        total += change_of_cost(member, share, change, fair_as_replica);
                    };
                    match displaced {
                        Some(member) if member == new => {}
                        Some(member) => {
                            add(new, cut);
                            add(member, -cut);
                        }
                        None => add(new, cut),
                    }
                }
                if owner != new {
                    total += self.first_weight
                        * (change_of_cost(new, shares.first[new], cut, fair_first)
                            + change_of_cost(owner, shares.first[owner], -cut, fair_first));
                }
                // Widths relative to the mean width: splitting a wide range in the middle reduces the sum of their
                // squares the most.
                let (part, whole) =
                    (cut * ring.tokens.len() as f64, fraction(width) * ring.tokens.len() as f64);
                total += self.range_weight * (part.powi(2) + (whole - part).powi(2) - whole.powi(2));
                if total < best.0 {
                    best = (total, end.wrapping_sub(width).wrapping_add(step * multiple));
                }
            }
        }
        best.1
    }
}

/// The changes of shares, by member.
#[derive(Default)]
struct Changes(Vec<(usize, f64)>);

impl Changes {
    fn add(&mut self, member: usize, change: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == member) {
            Some((_, sum)) => *sum += change,
            None => self.0.push((member, change)),
        }
    }

    fn of(&self, member: usize) -> f64 {
        self.0.iter().find(|(known, _)| *known == member).map_or(0.0, |(_, change)| *change)
    }
}

/// A width as a part of the ring.
fn fraction(width: u64) -> f64 {
    width as f64 / (u64::MAX as f64 + 1.0)
}

impl Ring {
    fn insert(&mut self, position: u64) {
        let new = self.groups.len() - 1;
        let index = self.tokens.partition_point(|&(known, _)| known < position);
        self.tokens.insert(index, (position, new));
    }

    fn group_count(&self) -> usize {
        self.groups.iter().collect::<BTreeSet<_>>().len()
    }

    /// The width of the range that ends at this token; the whole ring if there is only one.
    fn width(&self, index: usize) -> u64 {
        let previous = if index == 0 { self.tokens.len() - 1 } else { index - 1 };
        if previous == index {
            return u64::MAX;
        }
        self.tokens[index].0.wrapping_sub(self.tokens[previous].0)
    }

    /// The members that own the range that ends at this token: clockwise, of distinct groups.
    fn replicas(&self, index: usize, replication_factor: usize, replicas: &mut Vec<usize>) {
        replicas.clear();
        for &(_, member) in self.tokens[index..].iter().chain(&self.tokens[..index]) {
            if replicas.len() >= replication_factor {
                return;
            }
            if replicas.iter().all(|&known| self.groups[known] != self.groups[member]) {
                replicas.push(member);
            }
        }
    }

    /// The replica of a range that loses it to the new member, if the new one comes before all of them.
    fn displaced(&self, new: usize, replicas: &[usize], replication_factor: usize) -> Option<usize> {
        let of_its_group = replicas.iter().find(|&&member| self.groups[member] == self.groups[new]);
        match of_its_group {
            Some(&member) => Some(member),
            None if replicas.len() >= replication_factor => replicas.last().copied(),
            None => None,
        }
    }

    /// The changes for the ranges before the one that ends at this token, if a token of the new member is inserted in
    /// it.
    fn changes_before(
        &self,
        index: usize,
        replication_factor: usize,
        changes: &mut Changes,
        replicas: &mut Vec<usize>,
    ) {
        let new = self.groups.len() - 1;
        let mut passed: Vec<usize> = Vec::with_capacity(replication_factor);
        for back in 1..self.tokens.len() {
            let earlier = (index + self.tokens.len() - back) % self.tokens.len();
            let member = self.tokens[earlier].1;
            let group = self.groups[member];
            // Walking back from here, ranges reach the new member's group, or enough others, before they reach the
            // new token.
            if group == self.groups[new] {
                return;
            }
            if !passed.contains(&group) {
                passed.push(group);
            }
            if passed.len() >= replication_factor {
                return;
            }
            self.replicas(earlier, replication_factor, replicas);
            if replicas.contains(&new) {
                continue;
            }
            let width = fraction(self.width(earlier));
            if let Some(member) = self.displaced(new, replicas, replication_factor) {
                changes.add(member, -width);
            }
            changes.add(new, width);
        }
    }

    fn shares(&self, replication_factor: usize) -> Shares {
        let none = vec![0.0; self.groups.len()];
        let mut shares = Shares { as_replica: none.clone(), first: none };
        let mut replicas = Vec::with_capacity(replication_factor);
        for (index, &(_, owner)) in self.tokens.iter().enumerate() {
            let width = fraction(self.width(index));
            shares.first[owner] += width;
            self.replicas(index, replication_factor, &mut replicas);
            for &member in &replicas {
                shares.as_replica[member] += width;
            }
        }
        shares
    }

    /// The deviation after one more member, in a group of its own, has joined with the best result of a short search.
    async fn next_deviation(&self, count: usize, replication_factor: usize, turn: &mut YieldCounter) -> f64 {
        let mut next = self.clone();
        next.groups.push(self.groups.iter().max().map_or(0, |last| last + 1));
        let mut least = f64::INFINITY;
        for search in SEARCHES {
            let (grown, _) =
                search.run(next.clone(), count, replication_factor, &BTreeSet::new(), turn).await;
            least = least.min(grown.deviation(replication_factor));
        }
        least
    }

    /// The largest deviation of any member from its fair share.
    fn deviation(&self, replication_factor: usize) -> f64 {
        let shares = self.shares(replication_factor);
        let farthest = |shares: &[f64]| {
            let fair = shares.iter().sum::<f64>() / shares.len() as f64;
            shares.iter().map(|share| (share / fair - 1.0).abs()).fold(0.0, f64::max)
        };
        farthest(&shares.as_replica).max(farthest(&shares.first))
    }
}

#[cfg(test)]
mod tests;
