//! Writes to tables with a cap. `docs/decisions/0024-caps.md` has the whole.
//!
//! A row behind the cap is evicted by being counted: reads leave it out. What removes a row could bring it back, so such a change
//! carries the *low mark* of its partition with it: a deletion of everything behind the last row that the partition keeps, which the
//! coordinator has read. Some of the other writes, by chance, have the mark written after them, so that compaction can drop what is
//! behind it.
//!
//! Invariants:
//! * A mark deletes only what was evicted when its rows were read, and what is older than that. No range that it deletes has a timestamp
//!   after the time at which the search began, so that nothing which is written later is in it. Newer rows are deleted one by one.
//! * A change and its mark are one mutation.
//! * A write that removes nothing reads nothing.

mod first_rows;
mod marks;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_engine::io::whole_seconds;
use helenus_engine::key::{REGULAR_START, STATIC_POSITION};
use helenus_engine::{
    CellKind, DecodeError, Deletion, Mutation, MutationBuilder, MutationRef, Operation, RowRef,
};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::options::Cap;
use helenus_query::stored_key::PartitionKey;

use self::first_rows::{FirstRows, malformed};
use self::marks::Mark;
use super::RequestOptions;
use super::replica::read::RangeRead;
use super::replica::write::{WriteOptions, write};
use crate::planted::PlantedBug;
use crate::shard::context::ShardContext;

/// Most trims of a shard at a time. Further ones are left out.
const TRIMS_MAX: usize = 8;
/// A partition is trimmed once in about this many times its cap of new rows, but no more often than once in `TRIM_ROWS_MIN`.
const TRIM_CAPS: u64 = 2;
const TRIM_ROWS_MIN: u64 = 128;

/// The trims of a shard that are under way.
#[derive(Debug, Default)]
pub struct Trims {
    running: Cell<usize>,
}

/// What a mutation does to the rows of its partition.
#[derive(Debug, Default, PartialEq, Eq)]
struct RowChanges {
    rows: u64,
    /// Whether it may write new rows.
    has_new_rows: bool,
    /// The oldest timestamp of what may remove rows.
    removed_at: Option<i64>,
}

impl RowChanges {
    fn of(mutation: &Mutation) -> Result<Self, DecodeError> {
        let mut changes = Self::default();
        let remove = |removed_at: &mut Option<i64>, timestamp: i64| {
            *removed_at = Some(removed_at.map_or(timestamp, |oldest| oldest.min(timestamp)));
        };
        for operation in mutation.view()?.operations() {
            match operation? {
                Operation::Row { position: STATIC_POSITION, .. } => {}
                Operation::Row { row, .. } => {
                    changes.rows += 1;
                    changes.has_new_rows |= leaves_row(row);
                    if !row.is_plain() && (row.deletion().is_some() || !leaves_row(row)) {
                        let oldest = row.validate()?.oldest().unwrap_or(i64::MIN);
                        remove(&mut changes.removed_at, oldest);
                    }
                }
                Operation::RangeTombstone { end, deletion, .. } => {
                    if end > REGULAR_START {
                        remove(&mut changes.removed_at, deletion.timestamp);
                    }
                }
            }
        }
        Ok(changes)
    }
}

/// Whether a row is there once this is written, whatever else of it is deleted: it has a liveness, or a value.
fn leaves_row(row: RowRef<'_>) -> bool {
    row.liveness().is_some() || row.cells().any(|cell| !matches!(cell.kind, CellKind::Tombstone { .. }))
}

/// Those of the mutations that are of tables with a cap.
fn capped(mutations: &[PartitionMutation]) -> impl Iterator<Item = (&PartitionMutation, &Cap)> {
    mutations.iter().filter_map(|change| Some((change, change.table.options.cap.as_ref()?)))
}

/// Whether one of the mutations may remove a row of a table with a cap, and so needs a mark.
pub fn removes_rows(mutations: &[PartitionMutation]) -> Result<bool> {
    for (change, _) in capped(mutations) {
        if RowChanges::of(&change.mutation).map_err(malformed)?.removed_at.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The mutations, with marks where they may remove rows. The rows are read at a quorum at least.
pub async fn with_marks(
    context: &Rc<ShardContext>,
    mut mutations: Vec<PartitionMutation>,
    options: &RequestOptions,
) -> Result<Vec<PartitionMutation>> {
    if context.has_bug(PlantedBug::UnmarkedRemoval) {
        return Ok(mutations);
    }
    let deadline = options.deadline_or(context, context.node.config.read_request_timeout_ms);
    for change in &mut mutations {
        if change.table.options.cap.is_none() {
            continue;
        }
        let changes = RowChanges::of(&change.mutation).map_err(malformed)?;
        let Some(removed_at) = changes.removed_at else { continue };
        let level = level_before(options.consistency);
        let marks = marks_of(context, change, level, deadline, removed_at, changes.has_new_rows).await?;
        change.mutation = marked(context, &change.mutation, &marks, true)?;
    }
    Ok(mutations)
}

/// The marks for a change that removes rows. The search begins anew when other changes have come between.
async fn marks_of(
    context: &Rc<ShardContext>,
    change: &PartitionMutation,
    level: Consistency,
    deadline: Duration,
    removed_at: i64,
    has_new_rows: bool,
) -> Result<Vec<Mark>> {
    let rows = first_rows(context, change, level, deadline)?;
    loop {
        let Some(cap) = rows.cap_now() else { return Ok(Vec::new()) };
        if let Some(found) = rows.search(cap).await? {
            return Ok(found.before_removal(removed_at, has_new_rows));
        }
        if context.clock.monotonic() >= deadline {
            return Err(RequestError::ReadTimeout {
                consistency: level,
                received: 0,
                required: 1,
                data_present: false,
            });
        }
    }
}

/// The rows of the partition that a mutation is of.
fn first_rows<'a>(
    context: &'a Rc<ShardContext>,
    change: &'a PartitionMutation,
    level: Consistency,
    deadline: Duration,
) -> Result<FirstRows<'a>> {
    let key = PartitionKey::new(change.mutation.view().map_err(malformed)?.partition_key.to_vec());
    Ok(FirstRows { context, table: &change.table, key, level, deadline })
}

/// Writes the marks of some of the partitions that get new rows, by chance, in the background.
pub fn trim_some(context: &Rc<ShardContext>, mutations: &[PartitionMutation]) {
    for (change, cap) in capped(mutations) {
        let Ok(RowChanges { rows, .. }) = RowChanges::of(&change.mutation) else { continue };
        let period = (TRIM_CAPS * u64::from(cap.rows)).max(TRIM_ROWS_MIN);
        if !context.random.borrow_mut().chance(rows, period) {
            continue;
        }
        let trims = context.layers.get::<Trims>();
        if trims.running.get() >= TRIMS_MAX {
            continue;
        }
        trims.running.set(trims.running.get() + 1);
        let (context, change) = (context.clone(), change.clone());
        tokio::task::spawn_local(async move {
            if let Err(error) = trim(&context, change).await {
                // The next one does the same.
                tracing::debug!(%error, "a partition was not trimmed");
            }
            let running = &context.layers.get::<Trims>().running;
            running.set(running.get() - 1);
        });
    }
}

/// Writes the mark of a partition, if anything is behind it. All replicas are asked: a deletion that one of them alone knows may have
/// made room for a row that seems to be evicted.
async fn trim(context: &Rc<ShardContext>, change: PartitionMutation) -> Result<()> {
    let deadline = RangeRead::deadline_from_now(context, true);
    let rows = first_rows(context, &change, Consistency::All, deadline)?;
    let Some(cap) = rows.cap_now() else { return Ok(()) };
    let Some(found) = rows.search(cap).await? else { return Ok(()) };
    let marks = found.of_evicted();
    if marks.is_empty() {
        return Ok(());
    }
    let mutation = marked(context, &change.mutation, &marks, false)?;
    let options = WriteOptions::new(context, Consistency::One, WriteType::Simple, None);
    write(context, vec![PartitionMutation { mutation, ..change }], options).await
}

/// The level at which rows are read for a change at this level.
pub fn level_before(level: Consistency) -> Consistency {
    match level {
        Consistency::All => Consistency::All,
        Consistency::LocalOne | Consistency::LocalQuorum => Consistency::LocalQuorum,
        _ => Consistency::Quorum,
    }
}

/// A mutation with marks: with all of its own changes and companions, or with none.
fn marked(
    context: &ShardContext,
    mutation: &Mutation,
    marks: &[Mark],
    with_changes: bool,
) -> Result<Mutation> {
    let local_deletion_time = whole_seconds(context.clock.now_micros());
    let view = mutation.view().map_err(malformed)?;
    let bytes = if with_changes { mutation.bytes().len() } else { 0 };
    let mut builder = MutationBuilder::with_capacity(view.table, view.token, view.partition_key, bytes)
        .map_err(|error| RequestError::invalid(error.to_string()))?;
    for operation in view.operations().filter(|_| with_changes) {
        match operation.map_err(malformed)? {
            Operation::Row { position, row } => builder.row_bytes(position, row.bytes),
            Operation::RangeTombstone { start, end, deletion } => builder.delete_range(start, end, deletion),
        };
    }
    for Mark { start, end, timestamp } in marks {
        let deletion = Deletion { timestamp: *timestamp, local_deletion_time };
        builder.delete_range(start, end, deletion);
    }
    let own = builder.build();
    if !with_changes || !view.has_companions() {
        return Ok(own);
    }
    let companion = |part: Result<MutationRef<'_>, DecodeError>| {
        part.and_then(|part| Mutation::from_bytes(mutation.bytes().slice_ref(part.bytes)))
    };
    let companions = view.companions().map(companion).collect::<Result<Vec<_>, _>>().map_err(malformed)?;
    Mutation::with_companions(&own, &companions).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use helenus_engine::{Cell, Liveness, RowBuilder, TableId};

    use super::*;

    fn change(build: impl FnOnce(&mut MutationBuilder)) -> RowChanges {
        let mut builder = MutationBuilder::new(TableId([7; 16]), 1, b"k").unwrap();
        build(&mut builder);
        RowChanges::of(&builder.build()).unwrap()
    }

    fn row(timestamp: i64, has_liveness: bool, kind: CellKind) -> RowBuilder {
        let mut row = RowBuilder::new();
        if has_liveness {
            row.set_liveness(Liveness { timestamp, expiry: None });
        }
        row.cell(Cell { column: 1, path: &[], timestamp, kind, value: &[] });
        row
    }

    #[test]
    fn only_what_may_remove_a_row_reads_before_it_is_written() {
        let tombstone = CellKind::Tombstone { local_deletion_time: 3 };
        let at = |position: &'static [u8], mut row: RowBuilder| {
            change(|builder| {
                builder.row(position, &mut row);
            })
        };
        let stays = |rows| RowChanges { rows, has_new_rows: rows > 0, removed_at: None };
        assert_eq!(at(&[2, 5], row(9, true, CellKind::Live)), stays(1));
        assert_eq!(at(&[2, 5], row(9, false, CellKind::Live)), stays(1));
        assert_eq!(at(&[2, 5], row(9, true, tombstone)), stays(1), "INSERT of a null");
        assert_eq!(at(STATIC_POSITION, row(9, false, tombstone)), stays(0));
        assert_eq!(at(&[2, 5], row(9, false, tombstone)).removed_at, Some(9), "UPDATE to null");
        let mut deleted = row(9, true, CellKind::Live);
        deleted.set_deletion(Deletion { timestamp: 8, local_deletion_time: 1 });
        assert_eq!(at(&[2, 5], deleted).removed_at, Some(8));
        let mut set = row(9, false, CellKind::Live);
        set.delete_column(2, Deletion { timestamp: 8, local_deletion_time: 1 });
        assert_eq!(at(&[2, 5], set), stays(1), "UPDATE that sets a whole collection");
        let deletion = |timestamp| Deletion { timestamp, local_deletion_time: 1 };
        let whole = change(|builder| {
            builder.delete_range(&[2, 5], &[2, 6], deletion(6)).delete_partition(deletion(4));
        });
        assert_eq!(whole.removed_at, Some(4));
        let statics = change(|builder| {
            builder.delete_range(&[1], &[2], deletion(4));
        });
        assert_eq!(statics, stays(0));
    }

    #[test]
    fn rows_are_read_at_a_quorum_at_least() {
        let levels = [
            (Consistency::Any, Consistency::Quorum),
            (Consistency::One, Consistency::Quorum),
            (Consistency::LocalOne, Consistency::LocalQuorum),
            (Consistency::EachQuorum, Consistency::Quorum),
            (Consistency::All, Consistency::All),
        ];
        for (of_write, of_read) in levels {
            assert_eq!(level_before(of_write), of_read);
        }
    }
}
