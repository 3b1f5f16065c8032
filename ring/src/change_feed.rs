//! The streams of change feeds, and their generations.
//!
//! A write to a table with a feed puts an entry into the log's partition that is its stream. Streams are not stored: they follow from a
//! [`Generation`], which is a part of the agreed state.
//!
//! * The ring is cut into ranges at the tokens of the generation, and each range into slots: the tokens that have the same shard under each
//!   of the generation's shard counts. A slot that has tokens in a range has one stream there, whose token is the first of them.
//! * So a partition and its stream are in the same range, and on the same shard of each replica. That stays so if tokens or shard counts go
//!   away. If some are added, a new generation is needed first.
//! * The id of a stream is laid out as in ScyllaDB: its token, then 38 bits that differ between generations and slots, 22 bits that number the
//!   range, and the version 1 in four bits.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::types::token::Partitioner;
use serde::{Deserialize, Serialize};

use crate::member::Member;

/// The number of highest token bits that are ignored when the shard is chosen (ScyllaDB's default, which drivers assume).
pub const IGNORE_MSB: u32 = 12;
/// The bits of a token that decide its shard.
const SHARD_BITS: u32 = 64 - IGNORE_MSB;
const SHARD_MASK: u64 = (1 << SHARD_BITS) - 1;

const VERSION: u64 = 1;
const VERSION_BITS: u32 = 4;
const INDEX_BITS: u32 = 22;
/// The most generations that are kept. While all of them are needed, no further one is made: all members keep them in memory, and consumers read
/// one after the other.
pub const GENERATIONS_MAX: usize = 256;

/// How long a member goes on writing entries of views into the last generation that it knows, in seconds, while it cannot ask whether that is the
/// newest one. Generations are kept for so much longer than entries, because the projector reads all that are kept.
pub const UNCONFIRMED_SECONDS: i64 = 12 * 3_600;

/// The partition key of a stream in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub [u8; 16]);

impl StreamId {
    fn new(token: i64, generation_ms: i64, slot: usize, range: usize) -> Self {
        let differs = mixed(generation_ms as u64 ^ mixed(slot as u64)) << (VERSION_BITS + INDEX_BITS);
        let index = (range as u64 & ((1 << INDEX_BITS) - 1)) << VERSION_BITS;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&token.to_be_bytes());
        bytes[8..].copy_from_slice(&(differs | index | VERSION).to_be_bytes());
        Self(bytes)
    }

    /// The token of the stream's partition.
    pub fn token(&self) -> i64 {
        Partitioner::Stream.token(&self.0)
    }
}

/// Spreads the bits of a number (the last step of `SplitMix64`).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// What the streams of a time follow from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// From this time on (milliseconds since the epoch) entries go to its streams, until that of the next one.
    pub timestamp_ms: i64,
    /// The last tokens of the ranges.
    pub ends: BTreeSet<i64>,
    pub shard_counts: BTreeSet<u16>,
}

impl Generation {
    /// The generation of a ring with these members.
    pub fn of<'m>(timestamp_ms: i64, members: impl IntoIterator<Item = &'m Member>) -> Self {
        let mut generation = Self { timestamp_ms, ends: BTreeSet::new(), shard_counts: BTreeSet::new() };
        for member in members {
            generation.ends.extend(&member.tokens);
            generation.shard_counts.insert(member.shard_count);
        }
        generation
    }

    /// Makes the streams right for a ring of the other one, too.
    pub fn include(&mut self, other: &Self) {
        self.ends.extend(&other.ends);
        self.shard_counts.extend(&other.shard_counts);
    }

    /// Whether the streams of this generation are right for a ring of the other one, too.
    pub fn covers(&self, other: &Self) -> bool {
        self.ends.is_superset(&other.ends) && self.shard_counts.is_superset(&other.shard_counts)
    }
}

/// `(start, end]`; with equal ends it is the whole ring.
#[derive(Clone, Copy)]
struct Range {
    start: i64,
    end: i64,
}

impl Range {
    /// The number of tokens.
    fn width(self) -> u128 {
        match (self.end as u64).wrapping_sub(self.start as u64) {
            0 => 1 << 64,
            width => u128::from(width),
        }
    }
}

/// The streams of a generation, to be looked up by token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streams {
    generation: Generation,
    /// Sorted.
    ends: Vec<i64>,
    /// Where the slots begin, in the bits of a token that decide its shard; the first is 0.
    slot_starts: Vec<u64>,
}

impl Streams {
    pub fn new(generation: Generation) -> Self {
        let mut starts = BTreeSet::from([0]);
        for &count in &generation.shard_counts {
            let start =
                |shard: u16| (u128::from(shard) << SHARD_BITS).div_ceil(u128::from(count.max(1))) as u64;
            starts.extend((0..count).map(start));
        }
        // A ring without tokens has one range, which ends anywhere.
        let mut ends: Vec<i64> = generation.ends.iter().copied().collect();
        if ends.is_empty() {
            ends.push(i64::MAX);
        }
        Self { generation, ends, slot_starts: starts.into_iter().collect() }
    }

    pub fn generation(&self) -> &Generation {
        &self.generation
    }

    pub fn timestamp_ms(&self) -> i64 {
        self.generation.timestamp_ms
    }

    /// The stream of the partitions with this token.
    pub fn stream_of(&self, token: i64) -> StreamId {
        let index = self.ends.partition_point(|&end| end < token) % self.ends.len();
        let range = self.range(index);
        let bits = token as u64 & SHARD_MASK;
        let slot = self.slot_starts.partition_point(|&start| start <= bits) - 1;
        // The token itself is in this range and slot.
        let stream = self.first_token(range, slot).unwrap_or(token);
        StreamId::new(stream, self.timestamp_ms(), slot, index)
    }

    /// The last tokens of the ranges, ascending, each with the streams of its range, sorted.
    pub fn ranges(&self) -> impl Iterator<Item = (i64, Vec<StreamId>)> + '_ {
        (0..self.ends.len()).map(|index| {
            let mut streams: Vec<StreamId> = self.streams_of(index).collect();
            streams.sort_unstable();
            (self.ends[index], streams)
        })
    }

    /// The streams that partitions with the tokens from `first` to `last` may have: all of the ranges that have such tokens.
    pub fn of_tokens(&self, first: i64, last: i64) -> impl Iterator<Item = StreamId> + '_ {
        let has_some = move |index: &usize| {
            let Range { start, end } = self.range(*index);
            let (begins, ends) = (start < last, end >= first);
            if start < end { begins && ends } else { begins || ends }
        };
        (0..self.ends.len()).filter(has_some).flat_map(|index| self.streams_of(index))
    }

    fn streams_of(&self, index: usize) -> impl Iterator<Item = StreamId> + '_ {
        let range = self.range(index);
        (0..self.slot_starts.len()).filter_map(move |slot| {
            let token = self.first_token(range, slot)?;
            Some(StreamId::new(token, self.timestamp_ms(), slot, index))
        })
    }

    fn range(&self, index: usize) -> Range {
        let before = index.checked_sub(1).unwrap_or(self.ends.len() - 1);
        Range { start: self.ends[before], end: self.ends[index] }
    }

    /// The first token of a slot in a range, but the least of all tokens, which no data has; `None`: there is none.
    fn first_token(&self, range: Range, slot: usize) -> Option<i64> {
        let (start, end) = (self.slot_starts[slot], self.slot_starts.get(slot + 1));
        let end = end.copied().unwrap_or(SHARD_MASK + 1);
        // Tokens are looked for clockwise; they wrap around as numbers do, and so do the bits that decide the shard.
        let first_from = |from: u64| {
            let bits = from & SHARD_MASK;
            if start <= bits && bits < end {
                from
            } else {
                from.wrapping_add(start.wrapping_sub(bits) & SHARD_MASK)
            }
        };
        let begin = (range.start as u64).wrapping_add(1);
        let mut token = first_from(begin);
        if token == i64::MIN as u64 && range.width() > 1 {
            token = first_from(token.wrapping_add(1));
        }
        let distance = u128::from(token.wrapping_sub(begin));
        (distance < range.width()).then_some(token as i64)
    }
}

/// The generations of which entries may be left, oldest first; none if there never was a feed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Generation>", into = "Vec<Generation>")]
pub struct ChangeFeed {
    generations: Vec<Arc<Streams>>,
}

/// Why a member may not own ranges yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// No streams are right for it.
    Streams,
    /// The streams that are become active at this time, in milliseconds since the epoch.
    Until(i64),
}

impl From<Vec<Generation>> for ChangeFeed {
    fn from(generations: Vec<Generation>) -> Self {
        Self { generations: generations.into_iter().map(|of| Arc::new(Streams::new(of))).collect() }
    }
}

impl From<ChangeFeed> for Vec<Generation> {
    fn from(feed: ChangeFeed) -> Self {
        feed.generations.iter().map(|streams| streams.generation.clone()).collect()
    }
}

impl ChangeFeed {
    pub fn is_empty(&self) -> bool {
        self.generations.is_empty()
    }

    /// The generations, oldest first.
    pub fn generations(&self) -> &[Arc<Streams>] {
        &self.generations
    }

    /// The newest generation, active or not yet.
    pub fn newest(&self) -> Option<&Arc<Streams>> {
        self.generations.last()
    }

    /// The streams of entries of a time, in milliseconds since the epoch. `None`: that is before the first generation.
    pub fn active_at(&self, time_ms: i64) -> Option<&Streams> {
        let behind = self.generations.partition_point(|streams| streams.timestamp_ms() <= time_ms);
        self.generations.get(behind.checked_sub(1)?).map(AsRef::as_ref)
    }

    /// The generations that are active in `[from_ms, until_ms)`, with the one before them.
    pub fn active_between(&self, from_ms: i64, until_ms: i64) -> &[Arc<Streams>] {
        let begun_before =
            |time_ms| self.generations.partition_point(|streams| streams.timestamp_ms() < time_ms);
        let (first, end) = (begun_before(from_ms.saturating_add(1)), begun_before(until_ms));
        // The one that is active at the begin has the number before `first`.
        &self.generations[first.saturating_sub(2).min(end)..end]
    }

    /// Whether a member with these tokens and this number of shards may own ranges at a time: `None` if the streams that are active then, and
    /// all later ones, are right for it. Otherwise the time from which they are, if it is known.
    pub fn missing_for(&self, tokens: &[i64], shard_count: u16, time_ms: i64) -> Option<Missing> {
        let covers = |streams: &Arc<Streams>| {
            let Generation { ends, shard_counts, .. } = &streams.generation;
            tokens.iter().all(|token| ends.contains(token)) && shard_counts.contains(&shard_count)
        };
        let active = self.generations.partition_point(|streams| streams.timestamp_ms() <= time_ms);
        let used = self.generations.get(active.saturating_sub(1)..).unwrap_or_default();
        let last_wrong = used.iter().rposition(|streams| !covers(streams))?;
        Some(match used.get(last_wrong + 1) {
            Some(right) => Missing::Until(right.timestamp_ms()),
            None => Missing::Streams,
        })
    }

    /// The generations with another one, whose time is moved behind that of the one before. Of those that ended before `kept_from_ms` nothing
    /// is kept, and they are left out. `None`: there would be more than [`GENERATIONS_MAX`].
    pub fn with(&self, mut generation: Generation, kept_from_ms: i64) -> Option<Self> {
        if let Some(newest) = self.newest() {
            generation.timestamp_ms = generation.timestamp_ms.max(newest.timestamp_ms() + 1);
        }
        let mut generations = self.generations.clone();
        generations.push(Arc::new(Streams::new(generation)));
        // One has ended when the next one has begun.
        let ended = generations.iter().skip(1).take_while(|next| next.timestamp_ms() < kept_from_ms).count();
        generations.drain(..ended);
        (generations.len() <= GENERATIONS_MAX).then_some(Self { generations })
    }
}

#[cfg(test)]
mod tests {
    use cql_lite::types::token::shard_of;
    use proptest::prelude::*;

    use super::*;

    fn streams(timestamp_ms: i64, ends: &[i64], counts: &[u16]) -> Streams {
        Streams::new(Generation {
            timestamp_ms,
            ends: ends.iter().copied().collect(),
            shard_counts: counts.iter().copied().collect(),
        })
    }

    fn any_token() -> impl Strategy<Value = i64> {
        prop_oneof![
            any::<i64>(),
            (-3_i64..3),
            (0_i64..3).prop_map(|behind| i64::MIN + 1 + behind),
            (0_i64..3).prop_map(|before| i64::MAX - before),
            // Around the ends of slots.
            (-4_i64..4, -1_i64..2).prop_map(|(turn, off)| turn * (1 << 51) + off),
        ]
    }

    proptest! {
        #[test]
        fn a_partition_and_its_stream_are_in_one_range_and_on_one_shard(
            ends in prop::collection::btree_set(any_token(), 0..12),
            counts in prop::collection::btree_set(1_u16..70, 1..4),
            tokens in prop::collection::vec(any_token(), 1..40),
        ) {
            let ends: Vec<i64> = ends.into_iter().collect();
            let counts: Vec<u16> = counts.into_iter().collect();
            let streams = streams(1_000, &ends, &counts);
            let listed: Vec<(i64, Vec<StreamId>)> = streams.ranges().collect();
            let all: BTreeSet<StreamId> = listed.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
            prop_assert_eq!(all.len(), listed.iter().map(|(_, ids)| ids.len()).sum::<usize>());
            for token in tokens.into_iter().chain(ends.iter().copied()) {
                let stream = streams.stream_of(token);
                prop_assert!(all.contains(&stream));
                for count in &counts {
                    prop_assert_eq!(
                        shard_of(token, u32::from(*count), IGNORE_MSB),
                        shard_of(stream.token(), u32::from(*count), IGNORE_MSB)
                    );
                }
                for (first, last) in [(token, token), (token.saturating_sub(5), token), (token, i64::MAX)] {
                    prop_assert!(streams.of_tokens(first, last).any(|of| of == stream));
                }
                let (_, ids) = listed.iter().find(|(end, _)| *end >= token).unwrap_or(&listed[0]);
                prop_assert!(ids.contains(&stream));
            }
            for (_, ids) in &listed {
                prop_assert!(!ids.is_empty());
                // The entries of a stream find it again, and its range.
                prop_assert!(ids.iter().all(|id| streams.stream_of(id.token()) == *id));
            }
        }
    }

    #[test]
    fn the_ids_of_streams_are_laid_out_as_in_scylladb() {
        let streams = streams(7, &[-10, 10], &[1]);
        let listed: Vec<_> = streams.ranges().collect();
        assert_eq!((listed[0].0, listed[1].0), (-10, 10));
        let low = |id: &StreamId| u64::from_be_bytes(id.0[8..].try_into().unwrap());
        for (index, (_, ids)) in listed.iter().enumerate() {
            assert_eq!((low(&ids[0]) & 15, low(&ids[0]) >> 4 & 0x3F_FFFF), (1, index as u64));
        }
        // Golden bytes: members must agree on them.
        let hex = |id: StreamId| format!("{:032x}", u128::from_be_bytes(id.0));
        assert_eq!(streams.stream_of(0).token(), -9);
        assert_eq!(&hex(streams.stream_of(0))[..16], "fffffffffffffff7");
        assert_ne!(super::tests::streams(8, &[-10, 10], &[1]).stream_of(0), streams.stream_of(0));
    }

    #[test]
    fn an_entry_goes_to_the_generation_of_its_time() {
        let of = |timestamp_ms| Generation { timestamp_ms, ends: [5].into(), shard_counts: [2].into() };
        let feed = [of(100), of(50), of(300)]
            .into_iter()
            .fold(ChangeFeed::default(), |feed, generation| feed.with(generation, 0).unwrap());
        let times: Vec<i64> = feed.generations().iter().map(|streams| streams.timestamp_ms()).collect();
        assert_eq!(times, [100, 101, 300]);
        let active = |time| feed.active_at(time).map(Streams::timestamp_ms);
        assert_eq!([99, 100, 101, 299, 300].map(active), [None, Some(100), Some(101), Some(101), Some(300)]);
        let kept = feed.with(of(400), 200).unwrap();
        let times: Vec<i64> = kept.generations().iter().map(|streams| streams.timestamp_ms()).collect();
        assert_eq!(times, [101, 300, 400]);
    }

    #[test]
    fn a_new_member_waits_for_streams_that_are_right_for_it() {
        let of = |timestamp_ms, ends: &[i64]| streams(timestamp_ms, ends, &[2]).generation;
        assert_eq!(ChangeFeed::default().missing_for(&[7], 2, 0), None);
        let feed = ChangeFeed::default().with(of(100, &[5]), 0).unwrap();
        assert_eq!(feed.missing_for(&[5], 2, 500), None);
        assert_eq!(feed.missing_for(&[7], 2, 500), Some(Missing::Streams));
        assert_eq!(feed.missing_for(&[5], 4, 500), Some(Missing::Streams));
        let feed = feed.with(of(600, &[5, 7]), 0).unwrap();
        assert_eq!(feed.missing_for(&[7], 2, 599), Some(Missing::Until(600)));
        assert_eq!(feed.missing_for(&[7], 2, 600), None);
        // Another member's streams come later.
        let feed = feed.with(of(700, &[5, 8]), 0).unwrap();
        assert_eq!(feed.missing_for(&[7], 2, 650), Some(Missing::Streams));
    }

    #[test]
    fn a_generation_that_is_needed_is_never_forgotten_for_another_one() {
        let of = |timestamp_ms| streams(timestamp_ms, &[5], &[2]).generation;
        let full = (1..=GENERATIONS_MAX as i64)
            .fold(ChangeFeed::default(), |feed, time| feed.with(of(time), 0).unwrap());
        assert_eq!(full.with(of(1_000), 0), None);
        // The first two have ended.
        let next = full.with(of(1_000), 4).unwrap();
        assert_eq!(next.generations().len(), GENERATIONS_MAX - 1);
        assert_eq!(next.generations()[0].timestamp_ms(), 3);
    }

    #[test]
    fn what_is_stored_stays_the_same() {
        let feed = ChangeFeed::default().with(streams(100, &[-7, 9], &[2, 4]).generation, 0).unwrap();
        let text = r#"[{"timestamp_ms":100,"ends":[-7,9],"shard_counts":[2,4]}]"#;
        assert_eq!(serde_json::to_string(&feed).unwrap(), text);
        assert_eq!(serde_json::from_str::<ChangeFeed>(text).unwrap(), feed);
    }

    #[test]
    fn streams_of_more_tokens_and_shard_counts_are_right_for_fewer() {
        let of = |ends: &[i64], counts: &[u16]| streams(1, ends, counts).generation;
        assert!(of(&[1, 2], &[2, 4]).covers(&of(&[2], &[4])));
        assert!(!of(&[1, 2], &[4]).covers(&of(&[1], &[2])));
        assert!(!of(&[1], &[2]).covers(&of(&[1, 2], &[2])));
    }
}
