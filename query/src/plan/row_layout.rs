//! Converts a row of the engine to values of columns: splits keys, sorts cells into slots, assembles collections.
//!
//! Invariants: a slot holds the wire bytes exactly as a client gets them. Values of simple cells are borrowed from
//! the engine; only clustering values and collections with many cells are built (in the row's scratch buffer).

use cql_lite::types::{CqlType, codec, ordered};
use helenus_engine::{CellKind, RowRef};
use smallvec::SmallVec;

use super::selection::Fetched;
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Column, ColumnKind, Table};
use crate::stored_key::{decode_clustering, key_components};

/// Marks a column id that is not fetched.
const NOT_FETCHED: u16 = u16::MAX;

/// How the rows of one statement are read; computed once for each plan.
#[derive(Debug)]
pub struct RowLayout {
    slots: Vec<SlotSource>,
    /// Slot by column id.
    slot_of_column: Vec<u16>,
    clustering: Vec<(CqlType, bool, Option<usize>)>,
    partition_key_count: usize,
    last_clustering: usize,
    reads_partition_key: bool,
    with_times: bool,
    /// Sorted ids of the columns of regular rows that are read; `None` if some have many cells. Static rows are read
    /// with these ids too and stay whole: they have no liveness, so none is complete without its older versions.
    simple_columns: Option<Vec<u32>>,
    /// By column id. Only present if rows may still have cells of dropped columns.
    visibility: Option<Vec<Visibility>>,
}

/// The cells of a column that readers can see.
#[derive(Debug, Clone, Copy)]
enum Visibility {
    /// None: the table does not have the column (any more).
    None,
    All,
    /// The column was dropped and added again: only cells newer than the drop (microseconds) are visible.
    NewerThan(i64),
}

impl Visibility {
    #[inline]
    fn shows(self, timestamp: i64) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::NewerThan(dropped_at) => timestamp > dropped_at,
        }
    }
}

#[derive(Debug)]
struct SlotSource {
    kind: ColumnKind,
    visibility: Visibility,
    /// The type, for collections and user types with many cells.
    multi_cell: Option<CqlType>,
    with_times: bool,
}

/// Timestamp and expiry of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellTime {
    pub path: Vec<u8>,
    pub timestamp: i64,
    /// Seconds since the epoch.
    pub expires_at: Option<u32>,
}

/// Values, by slot, that outlive the row from which they were read.
pub type OwnedValues = Vec<Option<Vec<u8>>>;

#[derive(Debug, Clone, Copy)]
enum SlotValue<'a> {
    Null,
    Borrowed(&'a [u8]),
    Scratch(u32, u32),
}

/// Buffer for the values of one row, by slot. It is passed by reference: it is too large to be copied.
#[derive(Debug, Default)]
pub struct SlotBuffer<'a>(SmallVec<[SlotValue<'a>; 16]>);

/// The values of one row by slot.
#[derive(Debug, Clone, Copy)]
pub struct RowValues<'a> {
    slots: &'a [SlotValue<'a>],
    scratch: &'a [u8],
    /// By slot; empty unless the statement selects timestamps or TTLs.
    pub times: &'a [Vec<CellTime>],
}

impl<'a> RowValues<'a> {
    #[inline]
    pub fn get(&self, slot: usize) -> Option<&'a [u8]> {
        match self.slots[slot] {
            SlotValue::Null => None,
            SlotValue::Borrowed(bytes) => Some(bytes),
            SlotValue::Scratch(start, end) => Some(&self.scratch[start as usize..end as usize]),
        }
    }

    pub fn to_owned_values(&self) -> OwnedValues {
        (0..self.slots.len()).map(|slot| self.get(slot).map(<[u8]>::to_vec)).collect()
    }

    /// Values that were kept from an earlier row.
    pub fn from_owned<'b: 'a>(
        values: &'b OwnedValues,
        times: &'a [Vec<CellTime>],
        slots: &'a mut SlotBuffer<'b>,
    ) -> Self {
        let SlotBuffer(slots) = slots;
        slots.clear();
        slots
            .extend(values.iter().map(|value| value.as_deref().map_or(SlotValue::Null, SlotValue::Borrowed)));
        Self { slots, scratch: &[], times }
    }
}

/// Buffers that are reused for each row.
#[derive(Debug, Default)]
pub struct RowScratch {
    bytes: Vec<u8>,
    times: Vec<Vec<CellTime>>,
}

impl RowLayout {
    pub fn new(table: &Table, fetched: &Fetched) -> Self {
        let mut slot_of_column = vec![NOT_FETCHED; table.next_column_id as usize];
        let mut clustering: Vec<(CqlType, bool, Option<usize>)> = table
            .clustering_key()
            .iter()
            .map(|column| (column.column_type.clone(), column.is_descending(), None))
            .collect();
        let mut slots = Vec::with_capacity(fetched.columns.len());
        let (mut last_clustering, mut reads_partition_key) = (0, false);
        for (slot, &index) in fetched.columns.iter().enumerate() {
            let column = &table.columns[index];
            match column.kind {
                ColumnKind::PartitionKey { .. } => reads_partition_key = true,
                ColumnKind::Clustering { position, .. } => {
                    clustering[position].2 = Some(slot);
                    last_clustering = last_clustering.max(position + 1);
                }
                ColumnKind::Static | ColumnKind::Regular => {
                    slot_of_column[column.id as usize] = slot as u16;
                }
            }
            slots.push(SlotSource {
                kind: column.kind,
                visibility: visibility_of(table, column),
                multi_cell: column.column_type.is_multi_cell().then(|| column.column_type.clone()),
                with_times: fetched.with_times[slot],
            });
        }
        let regular = || {
            fetched
                .columns
                .iter()
                .map(|&index| &table.columns[index])
                .filter(|column| column.kind == ColumnKind::Regular)
        };
        let simple_columns =
            (!table.is_counter && regular().all(|column| !column.column_type.is_multi_cell())).then(|| {
                let mut ids: Vec<u32> = regular().map(|column| column.id).collect();
                ids.sort_unstable();
                ids
            });
        Self {
            slots,
            simple_columns,
            slot_of_column,
            clustering,
            partition_key_count: table.partition_key_count,
            last_clustering,
            reads_partition_key,
            with_times: fetched.with_times.iter().any(|&with| with),
            visibility: (!table.dropped_columns.is_empty()).then(|| {
                let mut by_id = vec![Visibility::None; table.next_column_id as usize];
                for column in &table.columns {
                    if let Some(visibility) = by_id.get_mut(column.id as usize) {
                        *visibility = visibility_of(table, column);
                    }
                }
                by_id
            }),
        }
    }

    /// Sorted ids of the columns of regular rows that are read, if each has one cell.
    pub fn simple_columns(&self) -> Option<&[u32]> {
        self.simple_columns.as_deref()
    }

    /// Whether every row exists for readers: no column was dropped.
    pub fn shows_every_row(&self) -> bool {
        self.visibility.is_none()
    }

    /// Whether only primary keys are read of rows, and whether they are there.
    pub fn reads_keys_only(&self) -> bool {
        let is_key = |kind| matches!(kind, ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. });
        self.shows_every_row() && self.slots.iter().all(|slot| is_key(slot.kind))
    }

    /// Whether a row exists for readers, to which dropped columns are invisible.
    pub fn is_there(&self, row: RowRef<'_>, now_seconds: u32) -> bool {
        let Some(visibility) = &self.visibility else { return true };
        row.liveness().is_some_and(|liveness| !liveness.is_expired(now_seconds))
            || row.cells().any(|cell| {
                // A column that this schema does not know was added later, so the plan's readers do not see it.
                let visibility = visibility.get(cell.column as usize).copied().unwrap_or(Visibility::None);
                visibility.shows(cell.timestamp) && cell.is_live(now_seconds)
            })
    }

    /// Reads a row into slots. `statics`: values of the static columns by slot (other slots are ignored).
    #[allow(clippy::too_many_arguments, reason = "what a row is made of, and where it is put")]
    pub fn read<'s, 'a: 's>(
        &self,
        partition_key: &'a [u8],
        position: &[u8],
        row: Option<RowRef<'a>>,
        statics: Option<(&'a OwnedValues, &[Vec<CellTime>])>,
        now_seconds: u32,
        slots: &'s mut SlotBuffer<'a>,
        scratch: &'s mut RowScratch,
    ) -> Result<RowValues<'s>> {
        let SlotBuffer(slots) = slots;
        let RowScratch { bytes, times } = scratch;
        bytes.clear();
        if self.with_times {
            times.clear();
            times.resize_with(self.slots.len(), Vec::new);
        }
        slots.clear();
        slots.resize(self.slots.len(), SlotValue::Null);
        if self.reads_partition_key {
            let components = key_components(partition_key, self.partition_key_count)?;
            for (slot, source) in self.slots.iter().enumerate() {
                if let ColumnKind::PartitionKey { position } = source.kind {
                    slots[slot] = SlotValue::Borrowed(&partition_key[components[position].clone()]);
                }
            }
        }
        if let Some((values, static_times)) = statics {
            for (slot, source) in self.slots.iter().enumerate() {
                if source.kind == ColumnKind::Static {
                    slots[slot] = values[slot].as_deref().map_or(SlotValue::Null, SlotValue::Borrowed);
                    if source.with_times {
                        times[slot].clone_from(&static_times[slot]);
                    }
                }
            }
        }
        if self.last_clustering > 0 && position.len() > 1 {
            let mut rest = &position[1..];
            for (value_type, descending, slot) in &self.clustering[..self.last_clustering] {
                let start = bytes.len();
                if !decode_clustering(value_type, &mut rest, *descending, bytes)? {
                    break;
                }
                if let Some(slot) = slot {
                    slots[*slot] = SlotValue::Scratch(start as u32, bytes.len() as u32);
                }
            }
        }
        if let Some(row) = row {
            self.read_cells(row, now_seconds, slots, bytes, times)?;
        }
        Ok(RowValues { slots, scratch: bytes, times })
    }

    fn read_cells<'a>(
        &self,
        row: RowRef<'a>,
        now_seconds: u32,
        slots: &mut [SlotValue<'a>],
        bytes: &mut Vec<u8>,
        times: &mut [Vec<CellTime>],
    ) -> Result<()> {
        let mut cells = row.cells();
        let mut pending = cells.next();
        while let Some(cell) = pending {
            pending = None;
            // A column that this schema does not know was added later.
            let slot = self.slot_of_column.get(cell.column as usize).copied().unwrap_or(NOT_FETCHED);
            if slot == NOT_FETCHED {
                pending = cells.next();
                continue;
            }
            let slot = usize::from(slot);
            let source = &self.slots[slot];
            let Some(value_type) = &source.multi_cell else {
                if cell.is_live(now_seconds) && source.visibility.shows(cell.timestamp) {
                    slots[slot] = match cell.kind {
                        CellKind::Counter => {
                            let start = bytes.len();
                            bytes
                                .extend_from_slice(&helenus_engine::counter::total(cell.value).to_be_bytes());
                            SlotValue::Scratch(start as u32, bytes.len() as u32)
                        }
                        _ => SlotValue::Borrowed(cell.value),
                    };
                    if source.with_times {
                        times[slot].push(cell_time(&cell));
                    }
                }
                pending = cells.next();
                continue;
            };
            // All cells of a collection are adjacent.
            let column = cell.column;
            let start = bytes.len();
            let mut builder = CollectionBuilder::new(value_type, bytes);
            let mut next = Some(cell);
            while let Some(cell) = next {
                if cell.column != column {
                    pending = Some(cell);
                    break;
                }
                if cell.is_live(now_seconds) && source.visibility.shows(cell.timestamp) {
                    builder.push(cell.path, cell.value, bytes)?;
                    if source.with_times {
                        times[slot].push(cell_time(&cell));
                    }
                }
                next = cells.next();
            }
            if builder.finish(bytes, start) {
                slots[slot] = SlotValue::Scratch(start as u32, bytes.len() as u32);
            }
        }
        Ok(())
    }
}

fn visibility_of(table: &Table, column: &Column) -> Visibility {
    table.hidden_until(column.id).map_or(Visibility::All, Visibility::NewerThan)
}

fn cell_time(cell: &helenus_engine::Cell<'_>) -> CellTime {
    CellTime {
        path: cell.path.to_vec(),
        timestamp: cell.timestamp,
        expires_at: match cell.kind {
            CellKind::Expiring(expiry) => Some(expiry.expires_at),
            _ => None,
        },
    }
}

/// Assembles the cells of a collection or user type into its wire bytes.
pub struct CollectionBuilder<'t> {
    value_type: &'t CqlType,
    count: usize,
    next_field: usize,
}

impl<'t> CollectionBuilder<'t> {
    pub fn new(value_type: &'t CqlType, out: &mut Vec<u8>) -> Self {
        if !value_type.is_user_type() {
            codec::write_count(0, out);
        }
        Self { value_type, count: 0, next_field: 0 }
    }

    /// Appends the cell of an element. Cells must come in the order of their paths.
    pub fn push(&mut self, path: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let malformed = |error: &dyn std::fmt::Display| {
            RequestError::Server(format!("a stored collection element is malformed: {error}"))
        };
        let write_key = |key_type: &CqlType, out: &mut Vec<u8>| {
            let mut rest = path;
            let mut outcome = Ok(());
            codec::write_element_with(out, |out| {
                outcome = ordered::decode(key_type, &mut rest, false, out);
            });
            outcome.map_err(|error| malformed(&error))
        };
        match self.value_type {
            CqlType::List { .. } => codec::write_element(value, out),
            CqlType::Set { element, .. } => write_key(element, out)?,
            CqlType::Map { key, .. } => {
                write_key(key, out)?;
                codec::write_element(value, out);
            }
            _ => {
                let field = path.try_into().map(u16::from_be_bytes).map_err(|error| malformed(&error))?;
                while self.next_field < usize::from(field) {
                    codec::write_field(None, out);
                    self.next_field += 1;
                }
                codec::write_field(Some(value), out);
                self.next_field += 1;
            }
        }
        self.count += 1;
        Ok(())
    }

    /// Writes the number of elements. Returns false if there are none (such a collection is null).
    pub fn finish(mut self, out: &mut Vec<u8>, start: usize) -> bool {
        if self.count == 0 {
            out.truncate(start);
            return false;
        }
        match self.value_type {
            CqlType::UserType { definition, .. } => {
                while self.next_field < definition.field_types.len() {
                    codec::write_field(None, out);
                    self.next_field += 1;
                }
            }
            _ => out[start..start + 4].copy_from_slice(&(self.count as i32).to_be_bytes()),
        }
        true
    }
}
