//! When the ranges of a node's tables were last repaired, among all of their replicas.
//!
//! Each replica keeps it ([`super::kept`]): a row for each table, named by its id, whose value is
//!
//! ```text
//! version (u8, 1) | segments: first token, last token (i64), begin of the repair (i64, microseconds), little endian
//! ```
//!
//! Invariants:
//! * The segments of a table are sorted and disjoint. Tokens in none of them were never repaired.
//! * The time of a segment is the begin of its repair: all that a replica had acknowledged by then, all replicas have.
//! * What cannot be read counts as never repaired.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::LocalBoxFuture;
use helenus_engine::TableId;
use helenus_internode::service::Failure;
use helenus_ring::intervals::{difference, intervals};
use helenus_ring::placement::TokenRange;

use tokio::sync::OnceCell;

use super::kept;
use crate::shard::context::{NodeShared, ShardContext};

const PARTITION: &[u8] = b"repaired";
const VERSION: u8 = 1;
const SEGMENT_BYTES: usize = 24;
/// Tokens that were repaired at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    first: i64,
    last: i64,
    began_micros: i64,
}

impl Segment {
    fn tokens(&self) -> RangeInclusive<i64> {
        self.first..=self.last
    }
}

/// When the tokens of one table were repaired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Notes a repair of these sorted, disjoint intervals. Where a later one is known, that stays.
    fn note(&mut self, repaired: &[RangeInclusive<i64>], began_micros: i64) {
        let later: Vec<_> =
            self.0.iter().filter(|known| known.began_micros >= began_micros).map(Segment::tokens).collect();
        let new = difference(repaired, &later);
        let mut all: Vec<Segment> = Vec::with_capacity(self.0.len() + new.len());
        for known in &self.0 {
            let left = difference(&[known.tokens()], &new);
            all.extend(left.iter().map(|tokens| Segment {
                first: *tokens.start(),
                last: *tokens.end(),
                began_micros: known.began_micros,
            }));
        }
        all.extend(new.iter().map(|tokens| Segment {
            first: *tokens.start(),
            last: *tokens.end(),
            began_micros,
        }));
        all.sort_unstable_by_key(|segment| segment.first);
        self.0.clear();
        for segment in all {
            match self.0.last_mut() {
                Some(last)
                    if last.began_micros == segment.began_micros
                        && last.last.checked_add(1) == Some(segment.first) =>
                {
                    last.last = segment.last;
                }
                _ => self.0.push(segment),
            }
        }
    }

    /// The tokens among these whose last repair began before this time, or that were never repaired.
    pub fn due(&self, tokens: &[RangeInclusive<i64>], before_micros: i64) -> Vec<RangeInclusive<i64>> {
        let recent: Vec<_> =
            self.0.iter().filter(|known| known.began_micros >= before_micros).map(Segment::tokens).collect();
        difference(tokens, &recent)
    }

    /// When the oldest of the last repairs of these tokens began; `None` if some were never repaired.
    pub fn oldest(&self, tokens: &[RangeInclusive<i64>]) -> Option<i64> {
        let known: Vec<_> = self.0.iter().map(Segment::tokens).collect();
        if !difference(tokens, &known).is_empty() {
            return None;
        }
        self.oldest_known(tokens)
    }

    /// As [`Self::oldest`], of those that were repaired; `None`: there are none.
    pub fn oldest_known(&self, tokens: &[RangeInclusive<i64>]) -> Option<i64> {
        let meets = |segment: &&Segment| {
            let begun = tokens.partition_point(|interval| *interval.start() <= segment.last);
            begun > 0 && *tokens[begun - 1].end() >= segment.first
        };
        self.0.iter().filter(meets).map(|segment| segment.began_micros).min()
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + self.0.len() * SEGMENT_BYTES);
        out.push(VERSION);
        for segment in &self.0 {
            for number in [segment.first, segment.last, segment.began_micros] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out
    }

    /// `None`: another version, or damaged.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, rest) = bytes.split_first()? else { return None };
        let (segments, rest) = rest.as_chunks::<SEGMENT_BYTES>();
        if !rest.is_empty() {
            return None;
        }
        let decoded = segments.iter().map(|bytes| {
            let (numbers, _) = bytes.as_chunks::<8>();
            let [first, last, began_micros] =
                [0, 1, 2].map(|index: usize| i64::from_le_bytes(numbers[index]));
            Segment { first, last, began_micros }
        });
        let decoded: Vec<Segment> = decoded.collect();
        let is_sorted = decoded.windows(2).all(|pair| pair[0].last < pair[1].first);
        (is_sorted && decoded.iter().all(|segment| segment.first <= segment.last)).then_some(Self(decoded))
    }
}

/// The history of a node, shared by its shards.
#[derive(Debug, Default)]
pub struct RepairHistory {
    tables: Mutex<BTreeMap<TableId, Segments>>,
    /// Set when what the last run has noted is known.
    loaded: OnceCell<()>,
    late_tables: AtomicUsize,
}

impl RepairHistory {
    /// The history of a node.
    pub fn of(node: &NodeShared) -> &Self {
        node.layers.get()
    }

    fn tables(&self) -> MutexGuard<'_, BTreeMap<TableId, Segments>> {
        // Each change of the map is a whole one: a panic of another holder of the lock leaves it usable.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of tables whose repair was late when the schedule last looked ([`super::ages`]).
    pub fn late_tables(&self) -> usize {
        self.late_tables.load(Ordering::Relaxed)
    }

    pub(super) fn set_late_tables(&self, count: usize) {
        self.late_tables.store(count, Ordering::Relaxed);
    }

    /// When the tokens of a table were repaired.
    pub fn with<T>(&self, table: TableId, look: impl FnOnce(&Segments) -> T) -> T {
        let tables = self.tables();
        match tables.get(&table) {
            Some(segments) => look(segments),
            None => look(&Segments::default()),
        }
    }
}

/// Loads what the last run has noted, unless that was done. What cannot be read counts as never repaired. Call on the first shard.
pub async fn load(context: &Rc<ShardContext>) {
    let history = RepairHistory::of(&context.node);
    let read = async || match kept::load(context, PARTITION).await {
        Ok(rows) => {
            for (name, value) in rows {
                let id = <[u8; 16]>::try_from(name.as_slice()).ok();
                if let (Some(id), Some(segments)) = (id, Segments::decode(&value)) {
                    history.tables().insert(TableId(id), segments);
                } else {
                    tracing::warn!(
                        "a row of the history of repairs cannot be read: its table counts as never repaired"
                    );
                }
            }
        }
        Err(error) => {
            tracing::warn!(%error, "the history of repairs cannot be read: its ranges count as never repaired");
        }
    };
    history.loaded.get_or_init(read).await;
}

/// Notes a repair of a table's ranges. May be called on any shard; resolves when it is durable.
pub async fn note(
    context: &Rc<ShardContext>,
    table_id: u128,
    ranges: &[TokenRange],
    began_micros: i64,
) -> Result<(), Failure> {
    let table = TableId(table_id.to_be_bytes());
    let repaired = intervals(ranges);
    let job = move |context: Rc<ShardContext>| -> LocalBoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move { note_here(&context, table, &repaired, began_micros).await })
    };
    context.run_on(0, job).await.map_err(|error| Failure::Internal(error.to_string()))?
}

async fn note_here(
    context: &Rc<ShardContext>,
    table: TableId,
    repaired: &[RangeInclusive<i64>],
    began_micros: i64,
) -> Result<(), Failure> {
    load(context).await;
    context.shard.admit_internal().await.map_err(Failure::from)?;
    // A coordinator whose clock is ahead has not repaired what will be written.
    let began_micros = began_micros.min(context.clock.now_micros());
    // Others note repairs of the same table at the same time: nothing is awaited between the change in memory and in the engine.
    let encoded = {
        let mut tables = RepairHistory::of(&context.node).tables();
        let segments = tables.entry(table).or_default();
        segments.note(repaired, began_micros);
        segments.encode()
    };
    kept::set(context, PARTITION, &table.0, Some(&encoded)).await.map_err(Failure::from)
}

/// Forgets when a table was repaired. Call on the first shard.
pub async fn forget(context: &Rc<ShardContext>, table: TableId) -> Result<(), Failure> {
    load(context).await;
    context.shard.admit_internal().await.map_err(Failure::from)?;
    RepairHistory::of(&context.node).tables().remove(&table);
    kept::set(context, PARTITION, &table.0, None).await.map_err(Failure::from)
}

/// Forgets tables that do not exist any more. Call on the first shard.
pub async fn forget_dropped(context: &Rc<ShardContext>) -> Result<(), Failure> {
    let history = RepairHistory::of(&context.node);
    let dropped: Vec<TableId> = {
        let view = context.catalog_view();
        let tables = history.tables();
        tables.keys().filter(|id| view.table(**id).is_none()).copied().collect()
    };
    for table in dropped {
        forget(context, table).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_repair_replaces_an_earlier_one_and_is_not_replaced_by_it() {
        let mut segments = Segments::default();
        assert_eq!(segments.oldest(&[0..=9]), None);
        segments.note(&[0..=99], 10);
        segments.note(&[20..=29, 200..=299], 20);
        segments.note(&[10..=24], 5);
        assert_eq!(segments.oldest(&[0..=99]), Some(10));
        assert_eq!(segments.oldest(&[20..=29, 210..=220]), Some(20));
        assert_eq!(segments.oldest(&[90..=100]), None);
        assert_eq!(
            (segments.oldest_known(&[90..=100]), segments.oldest_known(&[100..=199])),
            (Some(10), None)
        );
        assert_eq!(segments.due(&[0..=299], 20), [0..=19, 30..=199]);
        assert_eq!(segments.due(&[0..=299], 10), [100..=199]);
        assert_eq!(Segments::decode(&segments.encode()), Some(segments));
    }

    #[test]
    fn neighbours_of_one_time_are_one_segment() {
        let mut segments = Segments::default();
        segments.note(&[i64::MIN + 1..=-1], 7);
        segments.note(&[0..=i64::MAX], 7);
        assert_eq!(segments.0.len(), 1);
        segments.note(&[i64::MIN + 1..=i64::MAX], 8);
        assert_eq!(segments.oldest(&[i64::MIN + 1..=i64::MAX]), Some(8));
    }

    #[test]
    fn damaged_histories_are_refused() {
        let mut segments = Segments::default();
        segments.note(&[0..=9], 1);
        segments.note(&[20..=29], 2);
        let bytes = segments.encode();
        assert_eq!(Segments::decode(&[]), None);
        assert_eq!(Segments::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Segments::decode(&[&[2], &bytes[1..]].concat()), None);
        let reversed = [&bytes[..1], &bytes[1 + SEGMENT_BYTES..], &bytes[1..=SEGMENT_BYTES]].concat();
        assert_eq!(Segments::decode(&reversed), None);
    }
}
