//! A memtable: its partitions by token, each with its rows and deletions.

use std::cmp::Ordering;
use std::sync::OnceLock;

use hashbrown::HashTable;

use super::arena::{Arena, Location};
use super::index_rows::{IndexRows, Place};
use super::rows::{Entry, Rows};
use super::tails::{Tail, belongs_into_tail};
use crate::cell::{Deletion, TimestampRange};
use crate::commit_log::LogPosition;
use crate::invariant::{BrokenInvariant, broken, invariant};
use crate::key::{self, KeyRef};
use crate::mutation::{MutationRef, Operation, ValidMutation};
use crate::range_tombstone::RangeTombstoneSet;
use crate::reconcile::{Purpose, merge_rows};
use crate::row::RowRef;
use crate::secondary_index::{IndexDefinition, IndexId};

/// Memory of an empty partition besides the arena, in bytes: the partition, its hash slot with the hash table's slack, and its
/// place in the key order.
const PARTITION_BYTES: usize = size_of::<Partition>() + 2 * size_of::<PartitionEntry>() + 16;

/// The most bytes that one mutation may add to the indexes: each term has its own copy of the key of its row.
pub const INDEX_BYTES_MAX: usize = 256 << 20;
/// No encoded cell is shorter.
const CELL_BYTES_MIN: usize = 3;
/// A position is hardly ever longer: clustering values have 64 KiB together.
const POSITION_BYTES_USUAL: usize = 128 << 10;

#[derive(Debug)]
pub(super) struct Partition {
    pub(super) token: i64,
    pub(super) prefix: Location,
    pub(super) rows: Rows,
    pub(super) range_tombstones: Option<Box<RangeTombstoneSet>>,
    /// The oldest timestamp, deletions included; `i64::MAX` while there is none.
    oldest: i64,
}

#[derive(Debug, Clone, Copy)]
struct PartitionEntry {
    token: i64,
    partition: u32,
}

/// The memtable of one table. It is mutable while it is active, and frozen for its flush.
#[derive(Debug, Default)]
pub struct Memtable {
    pub(super) arena: Arena,
    pub(super) partitions: Vec<Partition>,
    by_token: HashTable<PartitionEntry>,
    /// Partition numbers in key order. Partitions with numbers from `ordered.len()` on are missing.
    ordered: Vec<u32>,
    is_frozen: bool,
    /// All partition numbers in key order, once the memtable is frozen. The first who needs them sorts them: the flush, which has a thread of
    /// its own, unless a read of many partitions comes before.
    all_ordered: OnceLock<Vec<u32>>,
    /// The number of changes. Cursors compare it to notice changes.
    pub(super) version: u64,
    side_bytes: usize,
    pub(super) tails: Vec<Tail>,
    tail_bytes: usize,
    /// The largest memory use so far, in bytes.
    counted_bytes: usize,
    row_count: usize,
    /// At least the bytes of the largest row, its tail included.
    largest_row_bytes: usize,
    pub(super) has_range_tombstones: bool,
    timestamps: TimestampRange,
    lowest_position: Option<LogPosition>,
    scratch: Vec<u8>,
    indexes: Vec<IndexRows>,
}

/// The hash of a token. The tokens of a shard have similar upper bits; this spreads them over the hash table.
#[inline]
fn spread(token: i64) -> u64 {
    let mixed = (token as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 32)
}

impl Memtable {
    /// An empty memtable of a table with these indexes. Those of vectors need no entries: a search compares all rows.
    pub fn with_indexes(definitions: &[IndexDefinition]) -> Self {
        let with_entries = definitions.iter().filter(|definition| definition.vectors.is_none());
        Self { indexes: with_entries.cloned().map(IndexRows::new).collect(), ..Self::default() }
    }

    /// Bytes that a mutation adds to the indexes, at most. 0: there are none.
    pub fn index_bytes_of(&self, mutation: &ValidMutation<'_>) -> usize {
        if self.indexes.is_empty() {
            return 0;
        }
        let view = mutation.view();
        // A cell takes a few bytes, and has an entry with the key of its row in each index.
        let position_bytes = view.bytes.len().min(POSITION_BYTES_USUAL);
        let key_bytes = key::PREFIX_OVERHEAD_BYTES + view.partition_key.len() + position_bytes;
        let cells = view.bytes.len() / CELL_BYTES_MIN + 1;
        let most = cells.saturating_mul(key_bytes).saturating_mul(self.indexes.len());
        if most <= INDEX_BYTES_MAX { most } else { self.count_index_bytes(mutation) }
    }

    #[cold]
    fn count_index_bytes(&self, mutation: &ValidMutation<'_>) -> usize {
        let MutationRef { token, partition_key, .. } = *mutation.view();
        let mut bytes: usize = 0;
        for operation in mutation.view().operations() {
            let Ok(Operation::Row { position, row }) = operation else { continue };
            let key = KeyRef { token, partition_key, position };
            let key_bytes = key::PREFIX_OVERHEAD_BYTES + partition_key.len() + position.len();
            for index in &self.indexes {
                index.visit(&key, row, &mut |term| bytes = bytes.saturating_add(key_bytes + term.len()));
            }
        }
        bytes
    }

    /// Whether the memtable has what a search by an index needs of it.
    pub fn has_index(&self, definition: &IndexDefinition) -> bool {
        definition.vectors.is_some() || self.index(definition.id).is_some()
    }

    fn index(&self, id: IndexId) -> Option<&IndexRows> {
        self.indexes.iter().find(|index| index.id() == id)
    }

    /// The first entry of an index at or behind a bound, and its place. `None`: there is none.
    pub fn seek_index(&self, id: IndexId, bound: &[u8]) -> Option<(Place, &[u8])> {
        let index = self.index(id)?;
        let place = index.seek(bound);
        Some((place, index.get(place)?))
    }

    /// The entry behind a place of an index.
    pub fn next_of_index(&self, id: IndexId, place: Place) -> Option<(Place, &[u8])> {
        let index = self.index(id)?;
        let place = index.after(place);
        Some((place, index.get(place)?))
    }

    /// About how many entries of an index lie in a range.
    pub fn estimate_of_index(&self, id: IndexId, start: &[u8], end: &[u8]) -> u64 {
        self.index(id).map_or(0, |index| index.estimate(start, end))
    }

    /// Estimates the number of distinct terms of an index in a range. `entries`: the estimated number of entries in the range.
    pub fn estimate_terms_of_index(&self, id: IndexId, start: &[u8], end: &[u8], entries: u64) -> u64 {
        self.index(id).map_or(0, |index| index.estimate_terms(start, end, entries))
    }

    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Memory use in bytes: the sum of the results of [`Memtable::apply`].
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.counted_bytes
    }

    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// The oldest timestamp, deletions included.
    pub fn min_timestamp(&self) -> Option<i64> {
        self.timestamps.oldest()
    }

    /// The newest timestamp, deletions included.
    pub fn max_timestamp(&self) -> Option<i64> {
        self.timestamps.newest()
    }

    /// The lowest commit-log position of the mutations in it.
    pub fn lowest_position(&self) -> Option<LogPosition> {
        self.lowest_position
    }

    /// Applies a mutation. Returns the growth of memory in bytes. `position` is the mutation's position in the commit log, if it
    /// is logged.
    ///
    /// `WRITES_ONCE`: a row is written once and removed once. The removal of a row of this memtable leaves nothing behind.
    pub fn apply<const WRITES_ONCE: bool>(
        &mut self,
        mutation: &ValidMutation<'_>,
        position: Option<LogPosition>,
    ) -> Result<usize, BrokenInvariant> {
        let timestamps = mutation.timestamps();
        self.timestamps.include_all(timestamps);
        let mutation = mutation.view();
        let id = self.partition_for(mutation.token, mutation.partition_key)?;
        if let (Some(partition), Some(oldest)) = (self.partitions.get_mut(id), timestamps.oldest()) {
            partition.oldest = partition.oldest.min(oldest);
        }
        self.version += 1;
        self.lowest_position = self.lowest_position.into_iter().chain(position).min();
        for operation in mutation.operations() {
            match operation {
                Ok(Operation::Row { position, row }) => {
                    if !(WRITES_ONCE && self.take_back(id, position, row)?) {
                        self.put_row(id, position, row)?;
                    }
                }
                Ok(Operation::RangeTombstone { start, end, deletion }) => {
                    self.put_range_tombstone(id, start, end, deletion)?;
                }
                Err(_) => return Err(broken!("the operations of a valid mutation can be read")),
            }
        }
        let mut taken = self.arena.reserved_bytes() + self.side_bytes + self.tail_bytes;
        if !self.indexes.is_empty() {
            taken += self.add_to_indexes(id, mutation)?;
        }
        let grown = taken.saturating_sub(self.counted_bytes);
        self.counted_bytes += grown;
        Ok(grown)
    }

    /// Adds the terms of a mutation to the indexes. Returns the bytes of all of these.
    fn add_to_indexes(&mut self, id: usize, mutation: &MutationRef<'_>) -> Result<usize, BrokenInvariant> {
        let MutationRef { token, partition_key, .. } = *mutation;
        let Some(prefix) = self.partitions.get(id).map(|partition| self.arena.get(partition.prefix)) else {
            return Err(broken!("a mutation is put into a partition of the memtable"));
        };
        let (mut full_key, scratch) = (prefix.to_vec(), &mut self.scratch);
        let prefix_length = full_key.len();
        for operation in mutation.operations() {
            let Ok(Operation::Row { position, row }) = operation else { continue };
            full_key.truncate(prefix_length);
            full_key.extend_from_slice(position);
            let key = KeyRef { token, partition_key, position };
            for index in &mut self.indexes {
                index.add(&key, &full_key, row, scratch);
            }
        }
        Ok(self.indexes.iter().map(IndexRows::size_bytes).sum())
    }

    /// Whether a row could be larger than `limit` bytes after this mutation. The mutation alone does not count.
    #[inline]
    pub fn outgrows(&self, mutation: &ValidMutation<'_>, limit: usize) -> bool {
        let added = mutation.view().bytes.len();
        self.largest_row_bytes + added > limit && self.has_row_above(mutation, limit.saturating_sub(added))
    }

    /// Whether a mutation changes a row that is larger than `bytes` now.
    #[cold]
    fn has_row_above(&self, mutation: &ValidMutation<'_>, bytes: usize) -> bool {
        let view = mutation.view();
        let found = self.find_partition(view.token, view.partition_key);
        let Some(partition) = found.and_then(|id| self.partition(id)) else { return false };
        let size_of_row = |position: &[u8]| {
            let entry = partition.rows.get(partition.rows.find(&self.arena, position).ok()?)?;
            Some(entry.row_bytes() + self.tail_of(entry).map_or(0, Tail::size_bytes))
        };
        view.operations().any(|operation| match operation {
            Ok(Operation::Row { position, .. }) => size_of_row(position).is_some_and(|size| size > bytes),
            Ok(Operation::RangeTombstone { .. }) | Err(_) => false,
        })
    }

    #[inline]
    pub(super) fn find_partition(&self, token: i64, partition_key: &[u8]) -> Option<u32> {
        self.by_token
            .find(spread(token), |slot| {
                slot.token == token && self.partition_key(slot.partition) == partition_key
            })
            .map(|slot| slot.partition)
    }

    #[inline]
    fn partition_key(&self, id: u32) -> &[u8] {
        let Some(partition_key) = self.prefix(id).get(key::PREFIX_OVERHEAD_BYTES..) else {
            broken!("a partition of a memtable has a whole prefix");
            return &[];
        };
        partition_key
    }

    #[inline]
    pub(super) fn prefix(&self, id: u32) -> &[u8] {
        self.partition(id).map_or(&[], |partition| self.arena.get(partition.prefix))
    }

    /// The partition with a number of this memtable. `None` only for a broken invariant, which is reported.
    #[inline]
    pub(super) fn partition(&self, id: u32) -> Option<&Partition> {
        let partition = self.partitions.get(id as usize);
        if partition.is_none() {
            broken!("the number of a partition is one of the memtable");
        }
        partition
    }

    fn partition_for(&mut self, token: i64, partition_key: &[u8]) -> Result<usize, BrokenInvariant> {
        if let Some(id) = self.find_partition(token, partition_key) {
            return Ok(id as usize);
        }
        let mut prefix = std::mem::take(&mut self.scratch);
        prefix.clear();
        let put = key::put_partition_prefix(&mut prefix, token, partition_key);
        let location = self.arena.put([&prefix, &[]]);
        self.scratch = prefix;
        let id = self.partitions.len();
        let (Ok(()), Ok(number)) = (put, u32::try_from(id)) else {
            return Err(broken!(
                "a valid mutation's partition key fits a key, and partitions are counted in 32 bits"
            ));
        };
        self.partitions.push(Partition {
            token,
            prefix: location,
            rows: Rows::Empty,
            range_tombstones: None,
            oldest: i64::MAX,
        });
        let slot = PartitionEntry { token, partition: number };
        self.by_token.insert_unique(spread(token), slot, |slot| spread(slot.token));
        self.side_bytes += PARTITION_BYTES;
        Ok(id)
    }

    /// Removes the row that a removal ends, if this memtable has it. False: nothing was removed.
    fn take_back(
        &mut self,
        id: usize,
        position: &[u8],
        removal: RowRef<'_>,
    ) -> Result<bool, BrokenInvariant> {
        let Some(partition) = self.partitions.get_mut(id) else {
            return Err(broken!("a mutation is put into a partition of the memtable"));
        };
        if removal.deletion().is_none() || removal.cells().next().is_some() {
            return Ok(false);
        }
        let Ok(index) = partition.rows.find(&self.arena, position) else { return Ok(false) };
        let written = partition.rows.get(index).filter(|entry| {
            entry.tail().is_none() && RowRef::new(entry.row(&self.arena), 0).deletion().is_none()
        });
        if written.is_none() {
            return Ok(false);
        }
        partition.rows.remove(index);
        self.row_count -= 1;
        Ok(true)
    }

    /// Calls `visit` with the prefix and the oldest timestamp of each partition that has data up to and including `timestamp`, in
    /// microseconds.
    pub fn visit_old_partitions(&self, timestamp: i64, mut visit: impl FnMut(&[u8], i64)) {
        for partition in self.partitions.iter().filter(|partition| partition.oldest <= timestamp) {
            visit(self.arena.get(partition.prefix), partition.oldest);
        }
    }

    fn put_row(&mut self, id: usize, position: &[u8], row: RowRef<'_>) -> Result<(), BrokenInvariant> {
        if row.is_empty() {
            return Ok(());
        }
        let Some(partition) = self.partitions.get_mut(id) else {
            return Err(broken!("a mutation is put into a partition of the memtable"));
        };
        match partition.rows.find(&self.arena, position) {
            Err(index) => {
                let entry = Entry::store(&mut self.arena, position, row.bytes);
                // An upper bound: capacities of vectors double.
                self.side_bytes +=
                    if matches!(partition.rows, Rows::Empty) { 0 } else { 2 * size_of::<Entry>() };
                partition.rows.insert(index, entry);
                self.row_count += 1;
                self.largest_row_bytes = self.largest_row_bytes.max(row.bytes.len());
            }
            Ok(index) => {
                let Some(entry) = partition.rows.get_mut(index) else {
                    return Err(broken!("the place of a row that was found has an entry"));
                };
                let mut tail = match entry.tail() {
                    Some(number) => self.tails.get_mut(number),
                    None if belongs_into_tail(entry.row_bytes(), row.bytes.len()) => {
                        entry.set_tail(self.tails.len());
                        self.tails.push(Tail::default());
                        self.side_bytes += 2 * size_of::<Tail>();
                        self.tails.last_mut()
                    }
                    None => None,
                };
                let merged_tail;
                let mut change = row;
                if let Some(tail) = &mut tail {
                    let bytes_before = tail.size_bytes();
                    tail.push(row.bytes).map_err(|_| broken!("the changes of a row can be merged"))?;
                    let is_due = tail.is_due(entry.row_bytes());
                    if is_due {
                        merged_tail =
                            tail.merged().map_err(|_| broken!("the changes of a row can be merged"))?;
                        change = RowRef::new(&merged_tail, 0);
                        tail.clear();
                    }
                    invariant!(self.tail_bytes >= bytes_before, "the tails of a memtable are counted");
                    self.tail_bytes = self.tail_bytes - bytes_before + tail.size_bytes();
                    if !is_due {
                        let bytes = entry.row_bytes() + tail.size_bytes();
                        self.largest_row_bytes = self.largest_row_bytes.max(bytes);
                        return Ok(());
                    }
                }
                self.scratch.clear();
                let present = RowRef::new(entry.row(&self.arena), 0);
                merge_rows(&[present, change], None, Purpose::Keep, 0, &mut self.scratch)
                    .map_err(|_| broken!("a row of a memtable can be merged"))?;
                entry.rewrite(&mut self.arena, position, &self.scratch);
                self.largest_row_bytes = self.largest_row_bytes.max(self.scratch.len());
            }
        }
        Ok(())
    }

    fn put_range_tombstone(
        &mut self,
        id: usize,
        start: &[u8],
        end: &[u8],
        deletion: Deletion,
    ) -> Result<(), BrokenInvariant> {
        self.has_range_tombstones = true;
        let Some(partition) = self.partitions.get_mut(id) else {
            return Err(broken!("a mutation is put into a partition of the memtable"));
        };
        let range_tombstones = partition.range_tombstones.get_or_insert_default();
        let bytes_before = range_tombstones.size_bytes();
        range_tombstones.add(start, end, deletion);
        invariant!(self.side_bytes >= bytes_before, "the range tombstones of a memtable are counted");
        self.side_bytes = self.side_bytes - bytes_before + range_tombstones.size_bytes();
        Ok(())
    }

    /// Whether the key order contains all partitions.
    pub fn is_ordered(&self) -> bool {
        self.is_frozen || self.ordered.len() == self.partitions.len()
    }

    /// Partition numbers in key order; all of them if [`Memtable::is_ordered`].
    #[inline]
    pub(super) fn ordered(&self) -> &[u32] {
        if self.is_frozen {
            self.all_ordered.get_or_init(|| self.with_all_ordered(self.ordered.clone()))
        } else {
            &self.ordered
        }
    }

    /// Puts the partitions of a frozen memtable in order now.
    pub fn settle_order(&self) {
        self.ordered();
    }

    /// The memtable, which never changes again.
    pub(super) fn into_frozen(self) -> Self {
        Self { is_frozen: true, ..self }
    }

    /// Brings the key order of the partitions up to date.
    pub fn order_partitions(&mut self) {
        if !self.is_ordered() {
            let ordered = std::mem::take(&mut self.ordered);
            self.ordered = self.with_all_ordered(ordered);
        }
    }

    /// The partition numbers in `ordered`, which are the first ones in key order, together with the others.
    fn with_all_ordered(&self, mut ordered: Vec<u32>) -> Vec<u32> {
        let (partitions, arena) = (&self.partitions, &self.arena);
        let compare = |left: &u32, right: &u32| {
            let of = |id: &u32| partitions.get(*id as usize);
            let (Some(left), Some(right)) = (of(left), of(right)) else {
                broken!("the number of a partition is one of the memtable");
                return Ordering::Equal;
            };
            left.token.cmp(&right.token).then_with(|| arena.get(left.prefix).cmp(arena.get(right.prefix)))
        };
        let first_new = ordered.len() as u32;
        ordered.extend(first_new..partitions.len() as u32);
        // The stable sort recognises the sorted run at the front and merges the rest into it.
        ordered.sort_by(compare);
        ordered
    }
}
