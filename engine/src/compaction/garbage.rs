//! Garbage collection: when a file is rewritten, what other files shadow is left out. The other files are only looked at.
//!
//! Invariants:
//! * A part of a row goes only if another file has a part that is strictly stronger, so that every merge of them takes that one: a range
//!   tombstone or a deletion of the row; for cells also a deletion of their collection, or a newer version. What has the same timestamp
//!   stays, but for data under a deletion. What readers see, and what replicas tell each other, stays the same to the byte.
//! * Strength is a transitive order: what deletes or replaces a part is itself shadowed only by what shadows that part too. So the strongest
//!   part of all files stays, also if files are rewritten at the same time, each because of another.
//! * What shadows is not purged meanwhile: the file that is rewritten counts as older data for every compaction that begins before its
//!   successor has taken its place, and files that a compaction reads already are no sources. Afterwards there is nothing left there that
//!   could come back. That goes for cells that expire, too: they are purged as deletions are.
//! * The files that shadow may go, but only with the rewritten file: a truncation or a drop keeps its successor from being installed.
//! * Range tombstones stay, and counters are left out only together with their row or collection: versions of a counter add up.

use std::iter::Peekable;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cell::{Cell, CellKind, Deletion, Liveness, stronger};
use crate::invariant::broken;
use crate::key::behind;
use crate::row::{Cells, RowHead, RowRef};
use crate::row_writer::RowWriter;
use crate::table::{KeyHash, TableCursor, TableError, TableReader};

/// What garbage collection leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// What deletions of partitions, ranges of rows and rows shadow.
    Row,
    /// Also what deletions of collections and of cells shadow, and cells that were overwritten.
    Cell,
}

/// The files that shadow what is in the inputs of a rewrite. The default has none.
#[derive(Default)]
pub(crate) struct GarbageSources {
    files: Vec<Arc<TableReader>>,
    needs_cells: bool,
}

impl GarbageSources {
    /// Those of the `others` that may shadow something in `input`.
    pub fn of(
        input: &TableReader,
        others: impl Iterator<Item = Arc<TableReader>>,
        granularity: Granularity,
    ) -> Self {
        let rewritten = input.statistics();
        let shadows = |other: &Arc<TableReader>| {
            let statistics = other.statistics();
            statistics.max_timestamp >= rewritten.min_timestamp
                && statistics.may_overlap(&rewritten.min_key, &behind(&rewritten.max_key))
                && (granularity == Granularity::Cell || statistics.tombstones > 0)
        };
        Self { files: others.filter(shadows).collect(), needs_cells: granularity == Granularity::Cell }
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Ready to be looked into, on the thread that rewrites.
    pub(super) fn open(&self) -> Garbage {
        let cursors = self.files.iter().map(|file| TableCursor::new(Arc::clone(file), None)).collect();
        Garbage { cursors, needs_cells: self.needs_cells, found: SmallVec::new(), rest: Vec::new() }
    }
}

/// The sources while a file is rewritten. Keys must ascend.
pub(super) struct Garbage {
    cursors: Vec<TableCursor>,
    needs_cells: bool,
    /// The cursors on the current row.
    found: SmallVec<[u32; 8]>,
    rest: Vec<u8>,
}

impl Garbage {
    pub fn is_empty(&self) -> bool {
        self.cursors.is_empty()
    }

    /// What stays of a row. `None`: nothing.
    pub fn rest<'a>(&'a mut self, key: &[u8], row: RowRef<'a>) -> Result<Option<RowRef<'a>>, TableError> {
        let covering = self.find(key)?;
        let others = self.found.iter().map(|&index| match self.cursors.get(index as usize) {
            Some(cursor) => Ok(cursor.row()),
            None => Err(broken!("a source of garbage collection that was found has a cursor")),
        });
        let others: SmallVec<[RowRef<'_>; 8]> = others.collect::<Result<_, _>>()?;
        if covering.is_none() && others.is_empty() {
            return Ok(Some(row));
        }
        self.rest.clear();
        Ok(match write_rest(row, covering, &others, self.needs_cells, &mut self.rest)? {
            Rest::All => Some(row),
            Rest::Part => Some(RowRef::new(&self.rest, row.base)),
            Rest::Nothing => None,
        })
    }

    /// Finds the versions of a row in the sources. Returns the strongest range tombstone of theirs that covers it.
    fn find(&mut self, key: &[u8]) -> Result<Option<Deletion>, TableError> {
        self.found.clear();
        let mut covering = None;
        let hash = KeyHash::of(key);
        for (index, cursor) in (0..).zip(&mut self.cursors) {
            let source = cursor.table();
            let statistics = source.statistics();
            if !statistics.may_contain(key) || !source.may_contain_partition(None, hash)? {
                continue;
            }
            covering = stronger(covering, source.range_tombstones().covering(key));
            let has_deletions = statistics.tombstones > statistics.range_tombstones;
            if !(self.needs_cells || has_deletions) || !source.may_contain_row(None, hash)? {
                continue;
            }
            // A cursor that is further has passed nothing of this key.
            let is_there = cursor.is_valid() && cursor.key() >= key;
            if (is_there || cursor.seek(key)?) && cursor.key() == key {
                self.found.push(index);
            }
        }
        Ok(covering)
    }
}

/// How much of a row stays.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    All,
    Part,
    Nothing,
}

/// The versions of one row's cells in the sources.
type OtherCells<'a> = SmallVec<[Peekable<Cells<'a>>; 8]>;

/// Appends to `out` what stays of a row, with the same base, if that is a part of it. `covering`: a range tombstone of the sources; `others`:
/// their versions of the row.
fn write_rest(
    row: RowRef<'_>,
    covering: Option<Deletion>,
    others: &[RowRef<'_>],
    needs_cells: bool,
    out: &mut Vec<u8>,
) -> Result<Rest, TableError> {
    let mut of_row: Option<Deletion> = None;
    let mut of_columns: SmallVec<[(u32, Deletion); 2]> = SmallVec::new();
    let mut other_cells = OtherCells::new();
    for other in others {
        let head = other.head()?;
        of_row = stronger(of_row, head.deletion);
        if needs_cells {
            of_columns.extend(head.column_deletions);
            other_cells.push(head.cells.peekable());
        }
    }
    let shadow = stronger(of_row, covering);
    let is_shadowed = |timestamp: i64| shadow.is_some_and(|shadow| shadow.shadows(timestamp));
    let RowHead { liveness, deletion, column_deletions, cells } = row.head()?;
    let mut is_whole = true;
    let mut note = |stays: bool| {
        is_whole &= stays;
        stays
    };
    let liveness = liveness.filter(|own: &Liveness| note(!is_shadowed(own.timestamp)));
    // Of two deletions with one timestamp the one with the later time is the stronger.
    let deletion = deletion.filter(|own| note(shadow.is_none_or(|shadow| shadow <= *own)));
    let columns: SmallVec<[(u32, Deletion); 2]> = column_deletions
        .filter(|(column, own)| {
            let is_outdone = of_columns.iter().any(|(other, deletion)| other == column && deletion > own);
            note(!is_shadowed(own.timestamp) && !is_outdone)
        })
        .collect();
    let mut writer = RowWriter::begin(out, row.base, liveness, deletion, &columns);
    for cell in cells {
        let is_deleted = is_shadowed(cell.timestamp)
            || of_columns
                .iter()
                .any(|(column, deletion)| *column == cell.column && deletion.shadows(cell.timestamp));
        if note(!is_deleted && !is_overwritten(&cell, &mut other_cells)) {
            writer.cell(&cell);
        }
    }
    let has_parts = writer.finish();
    Ok(match (is_whole, has_parts) {
        (true, _) => Rest::All,
        (false, true) => Rest::Part,
        (false, false) => Rest::Nothing,
    })
}

/// Whether a source has a newer version of the cell. Of versions with one timestamp the winner may change when one of them expires or loses
/// its value, so they stay. Cells must come in their order.
fn is_overwritten(cell: &Cell<'_>, others: &mut OtherCells<'_>) -> bool {
    let address = cell.address();
    let mut is_overwritten = false;
    for cells in others {
        while cells.next_if(|other| other.address() < address).is_some() {}
        is_overwritten |= cells.peek().is_some_and(|other| {
            other.address() == address
                && other.kind != CellKind::Counter
                && cell.kind != CellKind::Counter
                && other.timestamp > cell.timestamp
        });
    }
    is_overwritten
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cell::Expiry;
    use crate::reconcile::strategies::{deletion, row};
    use crate::reconcile::{Purge, Purpose, merge_rows};
    use crate::row_writer::RowBuilder;

    const DELETION: Deletion = Deletion { timestamp: 5, local_deletion_time: 50 };

    fn cell(column: u32, timestamp: i64, kind: CellKind) -> Cell<'static> {
        let value: &[u8] = if matches!(kind, CellKind::Tombstone { .. }) { &[] } else { b"v" };
        Cell { column, path: &[], timestamp, kind, value }
    }

    fn built(build: impl FnOnce(&mut RowBuilder)) -> Vec<u8> {
        let mut builder = RowBuilder::new();
        build(&mut builder);
        builder.to_bytes()
    }

    /// What stays, with its liveness and the columns of its cells.
    fn rest(
        own: &[u8],
        covering: Option<Deletion>,
        other: &[u8],
        needs_cells: bool,
    ) -> (Rest, Option<Liveness>, Vec<u32>) {
        let mut out = Vec::new();
        let others: Vec<RowRef<'_>> =
            (!other.is_empty()).then(|| RowRef::new(other, 0)).into_iter().collect();
        let rest = write_rest(RowRef::new(own, 0), covering, &others, needs_cells, &mut out).unwrap();
        if out.is_empty() {
            // A row without parts.
            out.push(0);
        }
        let head = RowRef::new(&out, 0).head().unwrap();
        let columns = head.cells.map(|cell| cell.column).collect();
        (rest, head.liveness, columns)
    }

    #[test]
    fn deletions_of_rows_take_what_is_not_newer() {
        let own = built(|row| {
            row.set_liveness(Liveness { timestamp: 5, expiry: None });
            row.cell(cell(1, 4, CellKind::Live)).cell(cell(2, 6, CellKind::Live));
        });
        let deleted = built(|row| {
            row.set_deletion(DELETION);
        });
        for (covering, other) in [(Some(DELETION), &[][..]), (None, &deleted[..])] {
            let (rest, liveness, columns) = rest(&own, covering, other, false);
            assert_eq!((rest, liveness, columns), (Rest::Part, None, vec![2]));
        }
        let newer = Deletion { timestamp: 6, ..DELETION };
        assert_eq!(rest(&own, Some(newer), &[], false).0, Rest::Nothing);
        let older = Deletion { timestamp: 3, ..DELETION };
        assert_eq!(rest(&own, Some(older), &[], false).0, Rest::All);
    }

    #[test]
    fn of_equal_deletions_both_stay_and_of_others_the_stronger() {
        let with = |time| {
            built(|row| {
                row.set_deletion(Deletion { local_deletion_time: time, ..DELETION });
            })
        };
        assert_eq!(rest(&with(50), None, &with(50), true).0, Rest::All);
        assert_eq!(rest(&with(51), None, &with(50), true).0, Rest::All);
        assert_eq!(rest(&with(50), None, &with(51), true).0, Rest::Nothing);
        assert_eq!(rest(&with(51), Some(DELETION), &[], true).0, Rest::All);
        assert_eq!(rest(&with(49), Some(DELETION), &[], true).0, Rest::Nothing);
    }

    #[test]
    fn cells_go_only_if_that_is_wanted() {
        let expired = CellKind::Expiring(Expiry { ttl: 1, expires_at: 2 });
        let own = built(|row| {
            row.cell(cell(1, 4, CellKind::Live)).cell(cell(2, 4, CellKind::Live));
            row.cell(cell(3, 4, CellKind::Live)).cell(cell(4, 4, CellKind::Live));
            row.cell(cell(7, 5, CellKind::Live));
            row.cell(cell(5, 4, CellKind::Live)).cell(cell(6, 9, CellKind::Live));
        });
        let other = built(|row| {
            row.delete_column(5, DELETION).delete_column(6, DELETION);
            row.cell(cell(1, 5, CellKind::Live)).cell(cell(2, 4, CellKind::Live));
            row.cell(cell(3, 5, CellKind::Tombstone { local_deletion_time: 1 })).cell(cell(4, 5, expired));
            row.cell(cell(7, 5, CellKind::Tombstone { local_deletion_time: 1 }));
        });
        assert_eq!(rest(&own, None, &other, false).0, Rest::All);
        let (rest, _, columns) = rest(&own, None, &other, true);
        assert_eq!((rest, columns), (Rest::Part, vec![2, 6, 7]), "of one timestamp both stay");
    }

    #[test]
    fn counters_go_only_with_their_row() {
        let own = built(|row| {
            row.cell(cell(1, 4, CellKind::Counter));
        });
        let newer = built(|row| {
            row.cell(cell(1, 9, CellKind::Counter));
        });
        let gone = built(|row| {
            row.cell(cell(1, 9, CellKind::Tombstone { local_deletion_time: 1 }));
        });
        assert_eq!(rest(&own, None, &newer, true).0, Rest::All);
        assert_eq!(rest(&own, None, &gone, true).0, Rest::All);
        assert_eq!(rest(&own, Some(DELETION), &[], true).0, Rest::Nothing);
    }

    /// The merge of versions; `None`: nothing stays.
    fn merged(rows: &[&[u8]], covering: Option<Deletion>, purpose: Purpose) -> Option<Vec<u8>> {
        let versions: Vec<_> = rows.iter().map(|bytes| RowRef::new(bytes, 0)).collect();
        let mut out = Vec::new();
        merge_rows(&versions, covering, purpose, 0, &mut out).unwrap().is_written.then_some(out)
    }

    /// What stays of one version because of the others; `None`: nothing.
    fn rest_of(
        rows: &[Vec<u8>],
        index: usize,
        covering: Option<Deletion>,
        needs_cells: bool,
    ) -> Option<Vec<u8>> {
        let others = rows.iter().enumerate().filter(|(other, _)| *other != index);
        let others: Vec<_> = others.map(|(_, bytes)| RowRef::new(bytes, 0)).collect();
        let mut out = Vec::new();
        match write_rest(RowRef::new(&rows[index], 0), covering, &others, needs_cells, &mut out).unwrap() {
            Rest::All => Some(rows[index].clone()),
            Rest::Part => Some(out),
            Rest::Nothing => None,
        }
    }

    proptest! {
        /// Timestamps are few, so that many are equal.
        #[test]
        fn no_merge_misses_what_was_left_out(
            rows in proptest::collection::vec(row(), 2..4),
            memtable in proptest::option::of(row()),
            covering in proptest::option::weighted(0.3, deletion()),
            of_memtable in proptest::option::weighted(0.2, deletion()),
            needs_cells: bool,
            now_seconds in 0..6_u32,
            deleted_before_seconds in 0..6_u32,
        ) {
            let purge = Purge {
                now_seconds,
                deleted_before_seconds,
                expired_before_seconds: deleted_before_seconds,
                max_purgeable_timestamp: i64::MAX,
            };
            let rests: Vec<_> =
                (0..rows.len()).map(|index| rest_of(&rows, index, covering, needs_cells)).collect();
            for purpose in [
                Purpose::Keep,
                Purpose::Read { now_seconds },
                Purpose::Renew { now_seconds },
                Purpose::Compact(purge),
            ] {
                for covering in [covering, stronger(covering, of_memtable)] {
                    let all = |files: &[Option<&Vec<u8>>]| {
                        let versions: Vec<&[u8]> =
                            files.iter().copied().flatten().chain(&memtable).map(Vec::as_slice).collect();
                        merged(&versions, covering, purpose)
                    };
                    let before: Vec<_> = rows.iter().map(Some).collect();
                    // One file after the other was rewritten, or all at the same time, each because of the others.
                    for index in 0..rows.len() {
                        let mut after = before.clone();
                        after[index] = rests[index].as_ref();
                        prop_assert_eq!(all(&after), all(&before), "{:?}, file {}", purpose, index);
                    }
                    let after: Vec<_> = rests.iter().map(Option::as_ref).collect();
                    prop_assert_eq!(all(&after), all(&before), "{:?}, all files", purpose);
                }
            }
        }
    }
}
