//! How several versions of a row become one: pure, commutative, associative, idempotent.
//!
//! The newest version of each part wins ([`crate::cell`] has the rules for ties). Deletions remove the data that they shadow.
//! The [`Purpose`] decides which dead data stays: all of it (memtable), none (reads), or all that must not be purged yet
//! (compaction).
//!
//! Counters are an exception, as in Cassandra: a counter's increments have no order relative to its deletion. So merging before
//! and merging after the deletion may give different results.

mod limit;
#[cfg(any(test, feature = "testing"))]
pub mod strategies;

use smallvec::SmallVec;

use self::limit::{AtMost, Limit, Unlimited, UpTo};
use crate::cell::{Address, AddressBuf, Cell, CellKind, Deletion, Expiry, Liveness, stronger};
use crate::codec::DecodeError;
use crate::counter;
use crate::row::{Cells, RowRef};
use crate::row_writer::{RowWriter, transcode};

/// The largest row that versions are merged into for a reader, in bytes. A row that has grown beyond it, cell by cell, cannot be read
/// as a whole.
pub const MERGED_ROW_BYTES_MAX: usize = 128 << 20;

/// The merge of versions takes at most this many times their bytes: a cell that shared its timestamp and its expiry with its row may
/// have to carry its own then. A cell takes eight bytes at least where a row has millions, and those take twenty.
pub const GROWTH_MAX: usize = 4;

/// Which deletions compaction may purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purge {
    /// Seconds since the epoch; decides what has expired.
    pub now_seconds: u32,
    /// Deletions from before this second may be purged.
    pub deleted_before_seconds: u32,
    /// What has expired and was written before this second is past its grace period.
    pub expired_before_seconds: u32,
    /// Microseconds. No data outside the compaction is older. So a deletion with a smaller timestamp shadows only data inside
    /// it.
    pub max_purgeable_timestamp: i64,
}

impl Purge {
    /// Whether a deletion may be purged.
    #[inline]
    pub fn forgets(&self, deletion: Deletion) -> bool {
        deletion.local_deletion_time < self.deleted_before_seconds
            && deletion.timestamp < self.max_purgeable_timestamp
    }

    /// Whether expired data may be purged. As in Cassandra, the grace period of expired data starts when it was written:
    /// all replicas know its expiry from then on.
    #[inline]
    fn forgets_expired(&self, timestamp: i64, expiry: Expiry) -> bool {
        expiry.is_expired(self.now_seconds)
            && expiry.expires_at.saturating_sub(expiry.ttl) < self.expired_before_seconds
            && timestamp < self.max_purgeable_timestamp
    }
}

/// The use of a merged row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Keep deletions and expired data. Other versions of the row may exist elsewhere.
    Keep,
    /// Keep only the data that is visible at this second.
    Read { now_seconds: u32 },
    /// Keep all data that must not be purged. Expired cells lose their values.
    Compact(Purge),
    /// As `Keep`, for data that is written again at its present replicas. The grace period of deletions and of expired data
    /// begins at this second, so that no deletion is purged before the data that it shadows has arrived too.
    Renew { now_seconds: u32 },
}

/// A deletion whose grace period begins now, if it would have begun before.
pub fn renewed(deletion: Deletion, now_seconds: u32) -> Deletion {
    Deletion { local_deletion_time: deletion.local_deletion_time.max(now_seconds), ..deletion }
}

/// The result of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merged {
    /// False if no part of the row was left; then no row was appended.
    pub is_written: bool,
    /// Number of tombstones and expired cells among the inputs.
    pub tombstones: u32,
}

/// Whether the only version of a row equals the merged row for every reader.
#[inline]
pub fn is_passthrough(row: RowRef<'_>, shadow: Option<Deletion>) -> bool {
    shadow.is_none() && row.is_plain()
}

/// The dominant version of a row: the one of several versions that equals their merge, for every [`Purpose`]. `None` if there is
/// none, or if finding it is expensive.
///
/// A version is dominant if no version contains deletions, expiries or counters, its liveness is the newest, and it has a
/// strictly newer cell in the place of each cell of the others (for equal timestamps the values would decide). Rows that are
/// overwritten as a whole have a dominant version.
pub fn find_dominant(versions: &[RowRef<'_>], shadow: Option<Deletion>) -> Option<usize> {
    let is_plain = |version: &RowRef<'_>| version.is_plain() && !version.has_counters();
    if shadow.is_some() || versions.len() < 2 || !versions.iter().all(is_plain) {
        return None;
    }
    let mut newest: Option<(usize, i64, Cells<'_>)> = None;
    let mut others: SmallVec<[Cells<'_>; 8]> = SmallVec::new();
    for (index, version) in versions.iter().enumerate() {
        let (liveness, mut cells) = version.simple_parts()?;
        if let Some(liveness) = liveness
            && newest.as_ref().is_none_or(|&(_, timestamp, _)| liveness > timestamp)
        {
            match newest.replace((index, liveness, cells)) {
                Some((_, _, older)) => cells = older,
                None => continue,
            }
        }
        others.push(cells);
    }
    let (index, timestamp, newest) = newest?;
    // A few cells that were added later do not justify comparing all cells of a large row.
    let is_older = |cells: &Cells<'_>| cells.clone().next().is_none_or(|first| first.timestamp < timestamp);
    (others.iter().all(is_older) && others.into_iter().all(|older| covers(newest, older))).then_some(index)
}

/// Whether `newer` has a newer cell in the place of each cell of `older`.
#[inline]
fn covers(mut newer: Cells<'_>, mut older: Cells<'_>) -> bool {
    let mut candidate = newer.next();
    older.all(|cell| {
        while candidate.is_some_and(|candidate| candidate.address() < cell.address()) {
            candidate = newer.next();
        }
        candidate.is_some_and(|candidate| {
            candidate.address() == cell.address() && candidate.timestamp > cell.timestamp
        })
    })
}

struct Head<'a> {
    current: Cell<'a>,
    rest: Cells<'a>,
}

type Heads<'a> = SmallVec<[Head<'a>; 4]>;

/// Appends the merge of `versions` to `out`, with timestamps relative to `base`. The deletion `shadow` applies to all of them.
pub fn merge_rows(
    versions: &[RowRef<'_>],
    shadow: Option<Deletion>,
    purpose: Purpose,
    base: i64,
    out: &mut Vec<u8>,
) -> Result<Merged, DecodeError> {
    if let Some(newest) = find_dominant(versions, shadow).and_then(|index| versions.get(index)) {
        transcode(*newest, base, out)?;
        return Ok(Merged { is_written: true, tombstones: 0 });
    }
    merge_parts(versions, shadow, purpose, base, out)
}

/// As [`merge_rows`], without the search for a dominant version.
fn merge_parts(
    versions: &[RowRef<'_>],
    shadow: Option<Deletion>,
    purpose: Purpose,
    base: i64,
    out: &mut Vec<u8>,
) -> Result<Merged, DecodeError> {
    let merged = Merge::new(versions, shadow, purpose)?.write(base, out, &mut Unlimited);
    // Without a limit no merge is too large.
    merged.ok_or(DecodeError::Overflow { what: "a row" })
}

/// As [`merge_rows`]. `None`: the merge would be larger than [`MERGED_ROW_BYTES_MAX`].
pub fn merge_rows_within(
    versions: &[RowRef<'_>],
    shadow: Option<Deletion>,
    purpose: Purpose,
    base: i64,
    out: &mut Vec<u8>,
) -> Result<Option<Merged>, DecodeError> {
    let bytes: usize = versions.iter().map(|version| version.bytes.len()).sum();
    if bytes <= MERGED_ROW_BYTES_MAX / GROWTH_MAX {
        return merge_rows(versions, shadow, purpose, base, out).map(Some);
    }
    merge_at_most(MERGED_ROW_BYTES_MAX, versions, shadow, purpose, base, out)
}

/// As [`merge_parts`], for versions of `bytes` bytes together. `None`: the merge would be larger than [`MERGED_ROW_BYTES_MAX`].
#[inline]
pub fn merge_parts_within(
    versions: &[RowRef<'_>],
    bytes: u64,
    shadow: Option<Deletion>,
    purpose: Purpose,
    base: i64,
    out: &mut Vec<u8>,
) -> Result<Option<Merged>, DecodeError> {
    if bytes <= (MERGED_ROW_BYTES_MAX / GROWTH_MAX) as u64 {
        return merge_parts(versions, shadow, purpose, base, out).map(Some);
    }
    merge_at_most(MERGED_ROW_BYTES_MAX, versions, shadow, purpose, base, out)
}

#[inline(never)]
fn merge_at_most(
    bytes_max: usize,
    versions: &[RowRef<'_>],
    shadow: Option<Deletion>,
    purpose: Purpose,
    base: i64,
    out: &mut Vec<u8>,
) -> Result<Option<Merged>, DecodeError> {
    Ok(Merge::new(versions, shadow, purpose)?.write(base, out, &mut AtMost(bytes_max)))
}

/// A part of a row: its cells from an address on, as many as fit.
#[derive(Debug, Clone, Copy)]
pub struct RowPart<'a> {
    /// `None`: the first part, which also has the row's liveness and deletions.
    pub from: Option<Address<'a>>,
    /// A part is larger only if its only cell is.
    pub bytes_max: usize,
}

/// Appends a part of the merge of `versions` to `out`, with base 0. The parts are versions of the row, and merge to it. Also
/// returns where the next part begins, if there is one. Each part reads all versions of the row.
pub fn merge_row_part(
    versions: &[RowRef<'_>],
    shadow: Option<Deletion>,
    purpose: Purpose,
    part: RowPart<'_>,
    out: &mut Vec<u8>,
) -> Result<(Merged, Option<AddressBuf>), DecodeError> {
    let mut merge = Merge::new(versions, shadow, purpose)?;
    if let Some(from) = part.from {
        merge.skip_to(from);
    }
    let mut limit = UpTo { bytes_max: part.bytes_max, bytes_before: None, next: None };
    let mut writer = merge.begin(0, out);
    merge.put_cells(&mut writer, &mut limit);
    let merged = Merged { is_written: writer.finish(), tombstones: merge.filter.tombstones };
    Ok((merged, limit.next))
}

/// A merge in progress: the parts before the cells, and the versions' cells.
struct Merge<'a> {
    liveness: Option<Liveness>,
    deletion: Option<Deletion>,
    columns: SmallVec<[(u32, Deletion); 2]>,
    filter: CellFilter,
    heads: Heads<'a>,
}

impl<'a> Merge<'a> {
    #[inline]
    fn new(versions: &[RowRef<'a>], shadow: Option<Deletion>, purpose: Purpose) -> Result<Self, DecodeError> {
        let mut liveness: Option<Liveness> = None;
        let mut deletion: Option<Deletion> = None;
        let mut columns: SmallVec<[(u32, Deletion); 2]> = SmallVec::new();
        let mut heads = Heads::new();
        for version in versions {
            let head = version.head()?;
            liveness = match (liveness, head.liveness) {
                (Some(left), Some(right)) => Some(left.merge(right)),
                (left, right) => left.or(right),
            };
            deletion = stronger(deletion, head.deletion);
            for (column, column_deletion) in head.column_deletions {
                match columns.binary_search_by_key(&column, |entry| entry.0) {
                    Ok(index) => columns[index].1 = columns[index].1.max(column_deletion),
                    Err(index) => columns.insert(index, (column, column_deletion)),
                }
            }
            let mut cells = head.cells;
            if let Some(current) = cells.next() {
                heads.push(Head { current, rest: cells });
            }
        }
        let covering = stronger(deletion, shadow);
        let is_shadowed = |timestamp: i64| covering.is_some_and(|covering| covering.shadows(timestamp));
        deletion = deletion.filter(|own| shadow.is_none_or(|shadow| !shadow.shadows(own.timestamp)));
        liveness = liveness.filter(|liveness| !is_shadowed(liveness.timestamp));
        columns.retain(|(_, column_deletion)| !is_shadowed(column_deletion.timestamp));
        let mut filter = CellFilter { covering, columns: columns.clone(), purpose, tombstones: 0 };
        filter.tombstones += u32::from(deletion.is_some()) + columns.len() as u32;
        match purpose {
            Purpose::Keep => {}
            Purpose::Read { now_seconds } => {
                deletion = None;
                columns.clear();
                liveness = liveness.filter(|liveness| !liveness.is_expired(now_seconds));
            }
            Purpose::Renew { now_seconds } => {
                deletion = deletion.map(|own| renewed(own, now_seconds));
                columns.iter_mut().for_each(|(_, own)| *own = renewed(*own, now_seconds));
                if let Some(Liveness { expiry: Some(expiry), .. }) = &mut liveness
                    && expiry.is_expired(now_seconds)
                {
                    *expiry = Expiry { ttl: 1, expires_at: now_seconds };
                }
            }
            Purpose::Compact(purge) => {
                deletion = deletion.filter(|&own| !purge.forgets(own));
                columns.retain(|(_, column_deletion)| !purge.forgets(*column_deletion));
                liveness = liveness.filter(|liveness| {
                    !liveness.expiry.is_some_and(|expiry| purge.forgets_expired(liveness.timestamp, expiry))
                });
            }
        }
        Ok(Self { liveness, deletion, columns, filter, heads })
    }

    /// Writes the merge. `None`: it does not fit the limit.
    #[inline]
    fn write(mut self, base: i64, out: &mut Vec<u8>, limit: &mut impl Limit) -> Option<Merged> {
        let mut writer = self.begin(base, out);
        let is_whole = self.put_cells(&mut writer, limit) && limit.fits(writer.size_bytes());
        is_whole.then(|| Merged { is_written: writer.finish(), tombstones: self.filter.tombstones })
    }

    /// Begins the row with the parts before the cells.
    #[inline]
    fn begin<'o>(&self, base: i64, out: &'o mut Vec<u8>) -> RowWriter<'o> {
        RowWriter::begin(out, base, self.liveness, self.deletion, &self.columns)
    }

    /// Writes the cells. False if the limit ended that.
    #[inline]
    fn put_cells(&mut self, writer: &mut RowWriter<'_>, limit: &mut impl Limit) -> bool {
        let [only] = self.heads.as_slice() else {
            return merge_cells(&mut self.heads, &mut self.filter, writer, limit);
        };
        let mut cell = only.current;
        let mut rest = only.rest;
        loop {
            if !limit.allows(writer.size_bytes(), &cell) {
                return false;
            }
            self.filter.put(writer, cell);
            match rest.next() {
                Some(next) => cell = next,
                None => return true,
            }
        }
    }

    /// Leaves out what is before the cell at this address.
    fn skip_to(&mut self, from: Address<'_>) {
        (self.liveness, self.deletion) = (None, None);
        self.columns.clear();
        self.heads.retain(|head| {
            while head.current.address() < from {
                match head.rest.next() {
                    Some(next) => head.current = next,
                    None => return false,
                }
            }
            true
        });
    }
}

/// False if the limit ended it.
#[inline]
fn merge_cells(
    heads: &mut Heads<'_>,
    filter: &mut CellFilter,
    writer: &mut RowWriter<'_>,
    limit: &mut impl Limit,
) -> bool {
    let mut contexts = Contexts::default();
    while let Some(address) = heads.iter().map(|head| head.current.address()).min() {
        let mut winner: Option<Cell<'_>> = None;
        contexts.is_used = false;
        heads.retain(|head| {
            if head.current.address() != address {
                return true;
            }
            let cell = head.current;
            // A deleted version contributes neither its increments nor its place.
            if !filter.is_deleted(&cell) {
                winner = Some(match winner {
                    None => cell,
                    Some(other) if other.kind == CellKind::Counter && cell.kind == CellKind::Counter => {
                        contexts.add(&other, &cell)
                    }
                    Some(other) if cell.compare_versions(&other).is_gt() => cell,
                    Some(other) => other,
                });
            }
            match head.rest.next() {
                Some(next) => {
                    head.current = next;
                    true
                }
                None => false,
            }
        });
        if let Some(mut winner) = winner {
            if contexts.is_used && winner.kind == CellKind::Counter {
                winner.value = &contexts.merged;
            }
            if !limit.allows(writer.size_bytes(), &winner) {
                return false;
            }
            filter.put(writer, winner);
        }
    }
    true
}

/// The running union of the contexts of a counter's versions.
#[derive(Default)]
struct Contexts {
    merged: Vec<u8>,
    spare: Vec<u8>,
    is_used: bool,
}

impl Contexts {
    fn add<'a>(&mut self, present: &Cell<'a>, other: &Cell<'a>) -> Cell<'a> {
        self.spare.clear();
        let present_value = if self.is_used { self.merged.as_slice() } else { present.value };
        counter::merge(present_value, other.value, &mut self.spare);
        std::mem::swap(&mut self.merged, &mut self.spare);
        self.is_used = true;
        Cell { timestamp: present.timestamp.max(other.timestamp), ..*present }
    }
}

struct CellFilter {
    covering: Option<Deletion>,
    columns: SmallVec<[(u32, Deletion); 2]>,
    purpose: Purpose,
    tombstones: u32,
}

impl CellFilter {
    #[inline]
    fn is_deleted(&self, cell: &Cell<'_>) -> bool {
        self.covering.is_some_and(|covering| covering.shadows(cell.timestamp))
            || self
                .columns
                .iter()
                .any(|(column, deletion)| *column == cell.column && deletion.shadows(cell.timestamp))
    }

    #[inline]
    fn put(&mut self, writer: &mut RowWriter<'_>, mut cell: Cell<'_>) {
        if self.is_deleted(&cell) {
            return;
        }
        match self.purpose {
            Purpose::Keep => {}
            Purpose::Read { now_seconds } => {
                if !cell.is_live(now_seconds) {
                    self.tombstones += 1;
                    return;
                }
            }
            Purpose::Renew { now_seconds } => match cell.kind {
                CellKind::Expiring(expiry) if expiry.is_expired(now_seconds) => {
                    cell.kind = CellKind::Tombstone { local_deletion_time: now_seconds };
                    cell.value = &[];
                }
                CellKind::Tombstone { local_deletion_time } => {
                    let local_deletion_time = local_deletion_time.max(now_seconds);
                    cell.kind = CellKind::Tombstone { local_deletion_time };
                }
                _ => {}
            },
            Purpose::Compact(purge) => match cell.kind {
                CellKind::Expiring(expiry) if expiry.is_expired(purge.now_seconds) => {
                    if purge.forgets_expired(cell.timestamp, expiry) {
                        return;
                    }
                    cell.value = &[];
                }
                CellKind::Tombstone { local_deletion_time }
                    if purge.forgets(Deletion { timestamp: cell.timestamp, local_deletion_time }) =>
                {
                    return;
                }
                _ => {}
            },
        }
        writer.cell(&cell);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::strategies::{VALUES, deletion, row};
    use super::*;
    use crate::row_writer::RowBuilder;

    /// A row that was written as a whole, the most frequent case.
    fn whole_row() -> impl Strategy<Value = Vec<u8>> {
        (0..4_i64, 0..8_u32, 0..3_usize).prop_map(|(timestamp, columns, value)| {
            let mut builder = RowBuilder::new();
            builder.set_liveness(Liveness { timestamp, expiry: None });
            for column in (0..3).filter(|column| columns & (1 << column) != 0) {
                let value = VALUES[value];
                builder.cell(Cell { column, path: &[], timestamp, kind: CellKind::Live, value });
            }
            builder.to_bytes()
        })
    }

    type Merge =
        fn(&[RowRef<'_>], Option<Deletion>, Purpose, i64, &mut Vec<u8>) -> Result<Merged, DecodeError>;

    fn merge_by(merge: Merge, rows: &[&[u8]], purpose: Purpose) -> Vec<u8> {
        let versions: Vec<_> = rows.iter().map(|bytes| RowRef::new(bytes, 0)).collect();
        let mut out = Vec::new();
        if !merge(&versions, None, purpose, 0, &mut out).unwrap().is_written {
            out.push(0);
        }
        RowRef::new(&out, 0).validate().unwrap();
        out
    }

    fn merge(rows: &[&[u8]], purpose: Purpose) -> Vec<u8> {
        merge_by(merge_rows, rows, purpose)
    }

    const READ: Purpose = Purpose::Read { now_seconds: 2 };

    /// A purge at second 2 that takes versions up to a timestamp.
    fn purge_up_to(max_purgeable_timestamp: i64) -> Purge {
        Purge {
            now_seconds: 2,
            deleted_before_seconds: 2,
            expired_before_seconds: 2,
            max_purgeable_timestamp,
        }
    }

    proptest! {
        #[test]
        fn merging_is_commutative(a in row(), b in row()) {
            prop_assert_eq!(merge(&[&a, &b], Purpose::Keep), merge(&[&b, &a], Purpose::Keep));
            prop_assert_eq!(merge(&[&a, &b], READ), merge(&[&b, &a], READ));
        }

        #[test]
        fn merging_is_associative(a in row(), b in row(), c in row()) {
            let left = merge(&[&merge(&[&a, &b], Purpose::Keep), &c], Purpose::Keep);
            let right = merge(&[&a, &merge(&[&b, &c], Purpose::Keep)], Purpose::Keep);
            prop_assert_eq!(&left, &right);
            prop_assert_eq!(&left, &merge(&[&a, &b, &c], Purpose::Keep));
            prop_assert_eq!(merge(&[&left], READ), merge(&[&a, &b, &c], READ));
        }

        #[test]
        fn merging_is_idempotent(a in row(), b in row()) {
            let once = merge(&[&a, &b], Purpose::Keep);
            prop_assert_eq!(&once, &merge(&[&once, &a], Purpose::Keep));
            prop_assert_eq!(&once, &merge(&[&once, &once], Purpose::Keep));
        }

        #[test]
        fn a_dominant_version_is_what_all_parts_merge_to(
            rows in proptest::collection::vec(prop_oneof![4 => whole_row(), 1 => row()], 2..5),
            max in 0..7_i64,
        ) {
            let purge = purge_up_to(max);
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            for purpose in [READ, Purpose::Keep, Purpose::Compact(purge)] {
                let (short, long) = (merge(&rows, purpose), merge_by(merge_parts, &rows, purpose));
                prop_assert_eq!(&short, &long);
                let versions: Vec<_> = rows.iter().map(|bytes| RowRef::new(bytes, 0)).collect();
                if let Some(dominant) = find_dominant(&versions, None) {
                    prop_assert_eq!(rows[dominant], &long);
                }
            }
        }

        #[test]
        fn a_valid_row_tells_its_oldest_and_newest_timestamp(bytes in row()) {
            let row = RowRef::new(&bytes, 0);
            let timestamps = row.validate().unwrap();
            let all: Vec<i64> = row
                .cells()
                .map(|cell| cell.timestamp)
                .chain(row.liveness().map(|liveness| liveness.timestamp))
                .chain(row.deletion().map(|deletion| deletion.timestamp))
                .chain(row.column_deletions().map(|(_, deletion)| deletion.timestamp))
                .collect();
            prop_assert_eq!(timestamps.oldest(), all.iter().copied().min());
            prop_assert_eq!(timestamps.newest(), all.iter().copied().max());
        }

        #[test]
        fn the_parts_of_a_merge_merge_to_the_whole(
            rows in proptest::collection::vec(row(), 1..4),
            shadow in proptest::option::weighted(0.3, deletion()),
            bytes_max in 1..200_usize,
            max in 0..7_i64,
        ) {
            let purge = purge_up_to(max);
            let versions: Vec<_> = rows.iter().map(|bytes| RowRef::new(bytes, 0)).collect();
            for purpose in [Purpose::Keep, Purpose::Compact(purge)] {
                let mut parts: Vec<Vec<u8>> = Vec::new();
                let mut from: Option<AddressBuf> = None;
                loop {
                    let mut part = Vec::new();
                    let request = RowPart { from: from.as_ref().map(AddressBuf::view), bytes_max };
                    let (merged, next) = merge_row_part(&versions, shadow, purpose, request, &mut part).unwrap();
                    let row = RowRef::new(&part, 0);
                    if merged.is_written {
                        row.validate().unwrap();
                        prop_assert!(part.len() <= bytes_max || row.cells().count() <= 1);
                        parts.push(part);
                    }
                    if next.is_none() {
                        break;
                    }
                    prop_assert!(merged.is_written && next > from);
                    from = next;
                }
                let mut whole = Vec::new();
                merge_rows(&versions, shadow, purpose, 0, &mut whole).unwrap();
                let parts: Vec<_> = parts.iter().map(|part| RowRef::new(part, 0)).collect();
                let mut merged = Vec::new();
                merge_rows(&parts, None, Purpose::Keep, 0, &mut merged).unwrap();
                prop_assert_eq!(&merged, &whole);
            }
        }

        #[test]
        fn compaction_does_not_change_what_is_read(a in row(), b in row(), c in row(), max in 0..7_i64) {
            let purge = purge_up_to(max);
            // Data outside the compaction is not older than the purgeable timestamp.
            let outside = RowRef::new(&c, 0).validate().unwrap();
            prop_assume!(outside.oldest().is_none_or(|oldest| oldest >= max));
            let compacted = merge(&[&a, &b], Purpose::Compact(purge));
            prop_assert_eq!(merge(&[&compacted, &c], READ), merge(&[&a, &b, &c], READ));
        }
    }

    #[test]
    fn a_row_that_is_written_over_is_taken_as_it_stands() {
        let whole = |timestamp: i64, columns: &[u32]| {
            let mut builder = RowBuilder::new();
            builder.set_liveness(Liveness { timestamp, expiry: None });
            for &column in columns {
                builder.cell(Cell { column, path: &[], timestamp, kind: CellKind::Live, value: b"v" });
            }
            builder.to_bytes()
        };
        let find = |rows: &[&[u8]], shadow| {
            let versions: Vec<_> = rows.iter().map(|bytes| RowRef::new(bytes, 0)).collect();
            find_dominant(&versions, shadow)
        };
        let (old, new, partial) = (whole(1, &[1, 2]), whole(2, &[1, 2, 3]), whole(3, &[1]));
        assert_eq!(find(&[&old, &new], None), Some(1));
        assert_eq!(find(&[&new, &old, &old], None), Some(0));
        assert_eq!(find(&[&new, &partial], None), None);
        assert_eq!(find(&[&new, &new], None), None);
        assert_eq!(find(&[&new], None), None);
        let shadow = Some(Deletion { timestamp: 0, local_deletion_time: 0 });
        assert_eq!(find(&[&old, &new], shadow), None);
    }

    #[test]
    fn a_covering_deletion_removes_what_is_not_newer() {
        let mut builder = RowBuilder::new();
        let value =
            |column, timestamp| Cell { column, path: &[], timestamp, kind: CellKind::Live, value: b"v" };
        builder.set_liveness(Liveness { timestamp: 5, expiry: None }).cell(value(1, 5)).cell(value(2, 6));
        let bytes = builder.to_bytes();
        let shadow = Some(Deletion { timestamp: 5, local_deletion_time: 1 });
        let mut out = Vec::new();
        merge_rows(&[RowRef::new(&bytes, 0)], shadow, READ, 0, &mut out).unwrap();
        let row = RowRef::new(&out, 0);
        assert_eq!(row.liveness(), None);
        assert_eq!(row.cells().map(|cell| cell.column).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn counters_add_up() {
        let context = |id: u8, clock, count| counter::shard([id; 16], clock, count).to_vec();
        let row = |value: &[u8]| {
            let kind = CellKind::Counter;
            RowBuilder::new().cell(Cell { column: 1, path: &[], timestamp: 1, kind, value }).to_bytes()
        };
        let rows = [row(&context(1, 1, 5)), row(&context(2, 1, 7)), row(&context(1, 2, 6))];
        let merged = merge(&[&rows[0], &rows[1], &rows[2]], READ);
        let cell = RowRef::new(&merged, 0).cells().next().unwrap();
        assert_eq!(counter::total(cell.value), 13);
    }
}
