//! The changes of a mutation, each with one timestamp, one time to live and one kind, in the order in which they decide: by timestamp, then
//! deletions behind what they delete.
//!
//! What one statement writes is mostly one change. As in ScyllaDB it is several
//! * if parts have different times to live: INSERT of a collection with a TTL is the row, the deletion of the old elements, and the new ones;
//! * if elements are added to a collection that an INSERT does not replace;
//! * if a batch does different things to a row.
//!
//! A collection is replaced by a deletion that is one microsecond older than its new elements. So a deletion of a collection belongs to what is
//! one microsecond newer, unless there is nothing, but something of its own time.

use helenus_query::error::Result;
use helenus_rows::cell::{CellKind, Deletion};
use helenus_rows::key::STATIC_POSITION;
use helenus_rows::row::RowRef;

use crate::layout::LogLayout;
use crate::parts::{DeletedRange, Parts, malformed};
use crate::values::Element;

/// A change; its order is the order of the entries.
#[derive(Debug)]
pub struct Change<'m> {
    /// Microseconds.
    pub timestamp: i64,
    pub kind: ChangeKind<'m>,
}

#[derive(Debug)]
pub enum ChangeKind<'m> {
    Static(Columns<'m>),
    Insert { position: &'m [u8], columns: Columns<'m> },
    Update { position: &'m [u8], columns: Columns<'m> },
    DeleteRow { position: &'m [u8] },
    DeleteRange(DeletedRange<'m>),
    DeletePartition,
}

/// Changed columns that share a time to live.
#[derive(Debug, Default)]
pub struct Columns<'m> {
    pub ttl_seconds: Option<u32>,
    /// By the ids of the base table's columns, ascending.
    pub changes: Vec<(u32, ColumnChange<'m>)>,
}

/// The change of a column.
#[derive(Debug, Default)]
pub struct ColumnChange<'m> {
    /// The column was set to null, or all its elements were deleted before others were added.
    pub is_deleted: bool,
    /// The value of a column of one cell.
    pub value: Option<&'m [u8]>,
    pub added: Vec<Element<'m>>,
    pub removed: Vec<&'m [u8]>,
}

/// The changes of a mutation in their order.
pub fn changes<'m>(layout: &LogLayout, parts: &'m Parts<'_>) -> Result<Vec<Change<'m>>> {
    let mut changes = Vec::new();
    for (position, row) in &parts.rows {
        add_row(layout, position, row.view(), &mut changes)?;
    }
    changes.extend(
        parts.ranges.iter().map(|range| Change {
            timestamp: range.deletion.timestamp,
            kind: ChangeKind::DeleteRange(*range),
        }),
    );
    changes.extend(
        parts
            .partition
            .map(|deletion| Change { timestamp: deletion.timestamp, kind: ChangeKind::DeletePartition }),
    );
    // Those of one kind stay in the order of their positions, then of their times to live.
    changes.sort_by_key(|change| (change.timestamp, change.kind.rank()));
    Ok(changes)
}

impl ChangeKind<'_> {
    fn rank(&self) -> u8 {
        match self {
            Self::Static(_) => 0,
            Self::Insert { .. } => 1,
            Self::Update { .. } => 2,
            Self::DeleteRow { .. } => 3,
            Self::DeleteRange(_) => 4,
            Self::DeletePartition => 5,
        }
    }
}

/// Timestamp in microseconds and time to live in seconds: 0 without one.
type Stamp = (i64, u32);

/// The value of a key in a list that is sorted by keys, and has few of them.
fn of_key<K: Ord + Copy, V: Default>(sorted: &mut Vec<(K, V)>, key: K) -> &mut V {
    let index = sorted.binary_search_by_key(&key, |(known, _)| *known).unwrap_or_else(|index| {
        sorted.insert(index, (key, V::default()));
        index
    });
    &mut sorted[index].1
}

fn add_row<'m>(
    layout: &LogLayout,
    position: &'m [u8],
    row: RowRef<'m>,
    changes: &mut Vec<Change<'m>>,
) -> Result<()> {
    let head = row.head().map_err(malformed)?;
    let mut by_stamp: Vec<(Stamp, Columns<'m>)> = Vec::with_capacity(1);
    let inserted =
        head.liveness.map(|liveness| (liveness.timestamp, liveness.expiry.map_or(0, |expiry| expiry.ttl)));
    if let Some(stamp) = inserted {
        of_key(&mut by_stamp, stamp);
    }
    for cell in head.cells {
        let Some(column) = layout.column(cell.column) else { continue };
        let ttl = match cell.kind {
            CellKind::Expiring(expiry) => expiry.ttl,
            CellKind::Live | CellKind::Counter | CellKind::Tombstone { .. } => 0,
        };
        let changes = &mut of_key(&mut by_stamp, (cell.timestamp, ttl)).changes;
        if changes.is_empty() {
            changes.reserve(layout.columns.len());
        }
        let change = of_key(changes, cell.column);
        let is_tombstone = matches!(cell.kind, CellKind::Tombstone { .. });
        match (column.column_type.is_multi_cell(), is_tombstone) {
            (false, false) => change.value = Some(cell.value),
            (false, true) => change.is_deleted = true,
            (true, false) => change.added.push((cell.path, cell.value)),
            (true, true) => change.removed.push(cell.path),
        }
    }
    for (id, deletion) in head.column_deletions {
        if layout.column(id).is_some() {
            let stamp = (of_collection(&by_stamp, deletion), 0);
            of_key(&mut of_key(&mut by_stamp, stamp).changes, id).is_deleted = true;
        }
    }
    for (stamp, mut columns) in by_stamp {
        let (timestamp, ttl) = stamp;
        columns.ttl_seconds = (ttl > 0).then_some(ttl);
        let kind = if position == STATIC_POSITION {
            ChangeKind::Static(columns)
        } else if inserted == Some(stamp) {
            let added = columns.split_off_added();
            if !added.changes.is_empty() {
                changes.push(Change { timestamp, kind: ChangeKind::Update { position, columns: added } });
            }
            ChangeKind::Insert { position, columns }
        } else {
            ChangeKind::Update { position, columns }
        };
        changes.push(Change { timestamp, kind });
    }
    if let Some(deletion) = head.deletion {
        changes.push(Change { timestamp: deletion.timestamp, kind: ChangeKind::DeleteRow { position } });
    }
    Ok(())
}

/// The timestamp of the change that a deletion of a collection belongs to.
fn of_collection(by_stamp: &[(Stamp, Columns<'_>)], deletion: Deletion) -> i64 {
    let newer = deletion.timestamp.saturating_add(1);
    let has = |timestamp: i64| by_stamp.iter().any(|((known, _), _)| *known == timestamp);
    if !has(newer) && has(deletion.timestamp) { deletion.timestamp } else { newer }
}

impl Columns<'_> {
    /// Takes what no INSERT can do: it replaces collections, and never adds to one.
    fn split_off_added(&mut self) -> Self {
        let is_added = |change: &ColumnChange<'_>| {
            !(change.is_deleted || change.added.is_empty() && change.removed.is_empty())
        };
        let changes = self.changes.extract_if(.., |(_, change)| is_added(change)).collect();
        Self { ttl_seconds: self.ttl_seconds, changes }
    }
}
