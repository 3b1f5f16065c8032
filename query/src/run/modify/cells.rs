//! The cells that a statement writes into one row: simple columns, collections, user types, lists.
//!
//! Invariant: elements that are added to one end of a list with one write context keep their order, over all
//! statements of a batch.

use std::cell::Cell as LastValue;
use std::collections::BTreeMap;

use cql_lite::types::{CqlType, codec};
use helenus_engine::{Cell, CellKind, Deletion, Expiry, RowBuilder};

use super::write_context::WriteContext;
use crate::error::{RequestError, Result};
use crate::plan::term::Bound;
use crate::run::keys::encode_path;
use crate::schema::catalog::Column;

/// The number of elements that the statements so far added to the ends of lists: keeps those of one write context
/// distinct and in order.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ListOffsets {
    pub(super) appended: u32,
    pub(super) prepended: u32,
}

/// A list as the operations of one statement see it: the stored elements, changed by the earlier operations.
#[derive(Debug, Default)]
pub(super) struct ListState {
    pub(super) is_loaded: bool,
    /// Elements by path, in order.
    pub(super) elements: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The state shared by the operations of one statement on one row.
pub(super) struct RowWork<'s> {
    pub(super) row: RowBuilder,
    pub(super) places: &'s mut ListOffsets,
    /// By column id; only present for statements that read lists.
    pub(super) lists: BTreeMap<u32, ListState>,
}

impl RowWork<'_> {
    /// The paths of the next elements at the end of a list (or before those of the statements so far).
    pub(super) fn next_places(&mut self, clock_micros: i64, count: usize) -> Vec<[u8; 12]> {
        let count = count as u32;
        let first = if clock_micros < 0 {
            self.places.prepended = self.places.prepended.wrapping_add(count);
            (u32::MAX / 2).wrapping_sub(self.places.prepended)
        } else {
            let first = self.places.appended;
            self.places.appended = first.wrapping_add(count);
            first
        };
        (0..count).map(|index| list_path(clock_micros, first.wrapping_add(index))).collect()
    }
}

/// The values shared by all cells of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct CellStamp {
    /// In microseconds.
    pub(super) timestamp: i64,
    pub(super) expiry: Option<Expiry>,
    pub(super) now_seconds: u32,
    /// Whether the statement changes lists depending on their content.
    pub(super) reads_lists: bool,
}

impl CellStamp {
    /// A deletion with the timestamp of the statement.
    pub(super) fn deletion(&self) -> Deletion {
        Deletion { timestamp: self.timestamp, local_deletion_time: self.now_seconds }
    }
}

/// Writes cells of one column.
pub(super) struct CellWriter<'a> {
    pub(super) stamp: &'a CellStamp,
    pub(super) column: &'a Column,
}

impl CellWriter<'_> {
    fn value_cell<'v>(&self, path: &'v [u8], value: &'v [u8]) -> Cell<'v> {
        let kind = self.stamp.expiry.map_or(CellKind::Live, CellKind::Expiring);
        Cell { column: self.column.id, path, timestamp: self.stamp.timestamp, kind, value }
    }

    fn tombstone_cell<'v>(&self, path: &'v [u8]) -> Cell<'v> {
        let kind = CellKind::Tombstone { local_deletion_time: self.stamp.now_seconds };
        Cell { column: self.column.id, path, timestamp: self.stamp.timestamp, kind, value: &[] }
    }

    pub(super) fn value(&self, row: &mut RowBuilder, path: &[u8], value: &[u8]) {
        row.cell(self.value_cell(path, value));
    }

    pub(super) fn tombstone(&self, row: &mut RowBuilder, path: &[u8]) {
        row.cell(self.tombstone_cell(path));
    }

    /// The cell that sets a simple column to this value, if the value changes it.
    pub(super) fn simple_cell<'v>(&self, value: &'v Bound<'_>) -> Option<Cell<'v>> {
        match value {
            Bound::Unset => None,
            Bound::Null => Some(self.tombstone_cell(&[])),
            Bound::Bytes(value) => Some(self.value_cell(&[], value)),
        }
    }

    /// Replaces an element of a collection.
    pub(super) fn replace(&self, work: &mut RowWork<'_>, path: &[u8], value: &[u8]) {
        self.value(&mut work.row, path, value);
        if let Some(list) = work.lists.get_mut(&self.column.id) {
            list.elements.insert(path.to_vec(), value.to_vec());
        }
    }

    /// Removes an element from a collection.
    pub(super) fn remove(&self, work: &mut RowWork<'_>, path: &[u8]) {
        self.tombstone(&mut work.row, path);
        if let Some(list) = work.lists.get_mut(&self.column.id) {
            list.elements.remove(path);
        }
    }

    pub(super) fn delete_all(&self, row: &mut RowBuilder) {
        if self.column.column_type.is_multi_cell() {
            row.delete_column(self.column.id, self.stamp.deletion());
        } else {
            self.tombstone(row, &[]);
        }
    }

    /// Writes a cell for each element of a collection or field of a user type. For lists, `clock_micros` (negative to
    /// precede all earlier elements) gives the paths of the elements.
    pub(super) fn write_elements(
        &self,
        work: &mut RowWork<'_>,
        value: &[u8],
        clock_micros: i64,
    ) -> Result<()> {
        let malformed = |error: codec::CodecError| RequestError::invalid(error.to_string());
        match &self.column.column_type {
            CqlType::List { .. } => {
                let items: Vec<&[u8]> = codec::elements(value)
                    .map_err(malformed)?
                    .collect::<Result<_, _>>()
                    .map_err(malformed)?;
                let places = work.next_places(clock_micros, items.len());
                for (place, item) in places.iter().zip(items) {
                    self.value(&mut work.row, place, item);
                    if self.stamp.reads_lists {
                        let list = work.lists.entry(self.column.id).or_default();
                        list.elements.insert(place.to_vec(), item.to_vec());
                    }
                }
            }
            CqlType::Set { element, .. } => {
                for item in codec::elements(value).map_err(malformed)? {
                    self.value(&mut work.row, &encode_path(element, item.map_err(malformed)?)?, &[]);
                }
            }
            CqlType::Map { key, .. } => {
                for entry in codec::entries(value).map_err(malformed)? {
                    let (entry_key, entry_value) = entry.map_err(malformed)?;
                    self.value(&mut work.row, &encode_path(key, entry_key)?, entry_value);
                }
            }
            CqlType::UserType { .. } => {
                for (index, field) in codec::fields(value).enumerate() {
                    if let Some(field) = field.map_err(malformed)? {
                        self.value(&mut work.row, &(index as u16).to_be_bytes(), field);
                    }
                }
            }
            other => debug_assert!(false, "{other} has no elements"),
        }
        Ok(())
    }
}

thread_local! {
    /// The clock value of the last list operation of this thread.
    static LIST_CLOCK_MICROS: LastValue<i64> = const { LastValue::new(0) };
}

/// The clock value of a list operation: the present time, but never the same value twice on a thread, so that
/// operations of one microsecond (or one batch) keep their order.
pub(super) fn next_list_clock(write: &WriteContext) -> i64 {
    if write.is_exact {
        return write.now_micros;
    }
    LIST_CLOCK_MICROS.with(|clock| {
        let next = write.now_micros.max(clock.get() + 1);
        clock.set(next);
        next
    })
}

/// The path of a list element: appended elements sort last, prepended ones (negative clock) before all earlier ones.
fn list_path(clock_micros: i64, index: u32) -> [u8; 12] {
    let mut path = [0; 12];
    path[..8].copy_from_slice(&((clock_micros as u64) ^ (1 << 63)).to_be_bytes());
    path[8..].copy_from_slice(&index.to_be_bytes());
    path
}
