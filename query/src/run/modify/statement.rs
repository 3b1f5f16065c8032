//! Executes one statement on partitions: rows, cells and deletions of a planned INSERT, UPDATE or DELETE.

use std::collections::BTreeMap;

use cql_lite::types::{CqlType, compare};
use helenus_engine::key::STATIC_POSITION;
use helenus_engine::{Deletion, Liveness, RowBuilder, RowRef};
use helenus_vectors::floats;

use super::cells::{CellStamp, CellWriter, ListOffsets, ListState, RowWork, next_list_clock};
use super::constraints;
use super::partition_change::PartitionChange;
use super::using::{expiry, timestamp_value};
use super::write_context::{ExistingRows, WriteContext};
use crate::error::{RequestError, Result};
use crate::functions::ResolvedFunction;
use crate::plan::modify::{ColumnOperation, ModifyKind, ModifyPlan, Operation};
use crate::plan::restrictions::list_elements;
use crate::plan::term::{Bindings, Bound, Term};
use crate::run::keys::{
    Slice, check_clustering_values, check_restricted_length, clustering_slices, encode_path, positions,
};
use crate::schema::catalog::{Column, Table};
use crate::stored_key::PartitionKey;

/// The kinds of changes that a statement makes to static rows, or to regular ones.
#[derive(Clone, Copy)]
struct RowChanges {
    is_static: bool,
    /// The id of the last column that is changed, if any is.
    last_id: Option<u32>,
    /// The statement only sets simple columns, in the order of their ids: such a row is written directly, cell by
    /// cell.
    sets_in_order: bool,
}

impl RowChanges {
    fn none(is_static: bool) -> Self {
        Self { is_static, last_id: None, sets_in_order: true }
    }

    /// The changes that the plan makes to the static row and to regular rows.
    fn of(plan: &ModifyPlan) -> (Self, Self) {
        let (mut of_static, mut of_regular) = (Self::none(true), Self::none(false));
        for ColumnOperation { column, operation } in &plan.operations {
            let column = &plan.table.columns[*column];
            let changes = if column.is_static() { &mut of_static } else { &mut of_regular };
            changes.sets_in_order &= matches!(operation, Operation::Set(_))
                && !column.column_type.is_multi_cell()
                && changes.last_id < Some(column.id);
            changes.last_id = Some(column.id);
        }
        (of_static, of_regular)
    }
}

/// One statement with all parts evaluated that do not depend on the partition.
pub(super) struct StatementWriter<'a> {
    plan: &'a ModifyPlan,
    bindings: &'a Bindings<'a>,
    write: &'a WriteContext,
    existing: Option<&'a dyn ExistingRows>,
    stamp: CellStamp,
    of_static: RowChanges,
    of_regular: RowChanges,
    /// Size of the values that it sets in bytes, as far as it is known without evaluation.
    value_bytes: usize,
    /// The table has constraints or indexes, which may refuse values.
    checks_values: bool,
}

impl<'a> StatementWriter<'a> {
    pub(super) fn new(
        plan: &'a ModifyPlan,
        bindings: &'a Bindings<'a>,
        write: &'a WriteContext,
        existing: Option<&'a dyn ExistingRows>,
    ) -> Result<Self> {
        let timestamp = match &plan.timestamp {
            None => write.timestamp,
            Some(term) => timestamp_value(term, bindings)?.unwrap_or(write.timestamp),
        };
        let expiry = expiry(plan, bindings, write.now_seconds)?;
        let (of_static, of_regular) = RowChanges::of(plan);
        let value_bytes_of = |change: &ColumnOperation| match &change.operation {
            Operation::Set(term) => term.known_bytes(bindings),
            _ => 0,
        };
        let stamp =
            CellStamp { timestamp, expiry, now_seconds: write.now_seconds, reads_lists: plan.needs_read() };
        let value_bytes = plan.operations.iter().map(value_bytes_of).sum();
        let checks_values = !plan.table.constraints.is_empty() || !plan.table.indexes.is_empty();
        Ok(Self { plan, bindings, write, existing, stamp, of_static, of_regular, value_bytes, checks_values })
    }

    /// The approximate size of the statement's changes of one partition, in bytes; enough for most.
    pub(super) fn expected_bytes(&self) -> usize {
        const BESIDES_VALUES_BYTES: usize = 64;
        const CELL_HEAD_BYTES: usize = 4;
        BESIDES_VALUES_BYTES + self.plan.operations.len() * CELL_HEAD_BYTES + self.value_bytes
    }

    pub(super) fn write(&self, change: &mut PartitionChange, places: &mut ListOffsets) -> Result<()> {
        let plan = self.plan;
        let table = &plan.table;
        if plan.kind == ModifyKind::Delete && plan.operations.is_empty() {
            self.delete_rows(change)?;
            return change.check_size(self.write.mutation_bytes_max);
        }
        if self.of_static.last_id.is_some() {
            // Never with a liveness: readers depend on that (`RowLayout::simple_columns`).
            self.write_row(change, places, STATIC_POSITION, self.of_static, None)?;
            change.check_size(self.write.mutation_bytes_max)?;
        }
        let is_insert = plan.kind == ModifyKind::Insert;
        let names_rows =
            !plan.clustering.is_empty() || (table.clustering_key_count == 0 && !table.is_static_compact());
        if !names_rows || !(is_insert || self.of_regular.last_id.is_some()) {
            return Ok(());
        }
        let liveness = (is_insert && table.marks_rows())
            .then_some(Liveness { timestamp: self.stamp.timestamp, expiry: self.stamp.expiry });
        for position in positions(&plan.clustering, table, self.bindings)? {
            self.write_row(change, places, &position, self.of_regular, liveness)?;
            change.check_size(self.write.mutation_bytes_max)?;
        }
        Ok(())
    }

    fn delete_rows(&self, change: &mut PartitionChange) -> Result<()> {
        let plan = self.plan;
        if plan.clustering.is_empty() {
            change.builder.delete_partition(self.stamp.deletion());
            return Ok(());
        }
        check_restricted_length(&plan.clustering, &plan.table, self.bindings)?;
        if plan.table.refuses_empty_clustering() && plan.has_full_clustering() {
            check_clustering_values(&plan.clustering, &plan.table, self.bindings)?;
        }
        let slices = clustering_slices(&plan.clustering, &plan.table, self.bindings)?;
        for Slice { start, end } in slices {
            if plan.has_full_clustering() {
                let mut row = RowBuilder::new();
                row.set_deletion(self.stamp.deletion());
                change.builder.row(&start, &mut row);
            } else {
                change.builder.delete_range(&start, &end, self.stamp.deletion());
            }
        }
        Ok(())
    }

    /// The statement's operations on static columns, or on the others.
    fn operations(&self, is_static: bool) -> impl Iterator<Item = (&'a Column, &'a Operation)> {
        let columns = &self.plan.table.columns;
        self.plan
            .operations
            .iter()
            .map(|ColumnOperation { column, operation }| (&columns[*column], operation))
            .filter(move |(column, _)| column.is_static() == is_static)
    }

    fn write_row(
        &self,
        change: &mut PartitionChange,
        places: &mut ListOffsets,
        position: &[u8],
        of_row: RowChanges,
        liveness: Option<Liveness>,
    ) -> Result<()> {
        if of_row.sets_in_order && !self.checks_values {
            return change.builder.row_in_order(position, liveness, |row| {
                for (column, operation) in self.operations(of_row.is_static) {
                    let Operation::Set(term) = operation else { continue };
                    let value = term.evaluate(self.bindings)?;
                    if let Some(cell) = (CellWriter { stamp: &self.stamp, column }).simple_cell(&value) {
                        row.cell(&cell);
                    }
                }
                Ok(())
            });
        }
        let row = RowBuilder::with_capacity(self.plan.operations.len(), self.value_bytes);
        let mut work = RowWork { row, places, lists: BTreeMap::new() };
        if let Some(liveness) = liveness {
            work.row.set_liveness(liveness);
        }
        let key = &change.key;
        for (column, operation) in self.operations(of_row.is_static) {
            match operation {
                Operation::CounterAdd(term) | Operation::CounterSubtract(term) => {
                    let Some(amount) = self.counter_amount(term, &column.name)? else { continue };
                    let amount = if matches!(operation, Operation::CounterAdd(_)) {
                        amount
                    } else {
                        amount.checked_neg().ok_or_else(|| {
                            RequestError::invalid(format!(
                                "The negation of {amount} overflows supported counter precision (signed 8 bytes integer)"
                            ))
                        })?
                    };
                    let sum = change.counters.entry((position.to_vec(), column.id)).or_default();
                    *sum = sum.wrapping_add(amount);
                }
                operation => self.write_column(&mut work, key, position, column, operation)?,
            }
        }
        change.builder.row(position, &mut work.row);
        Ok(())
    }

    /// Refuses the new value of a column that is written whole if the table cannot have it.
    fn check(&self, column: &Column, value: &Bound<'_>) -> Result<()> {
        constraints::check_set(&self.plan.table, column, value)?;
        check_vector(&self.plan.table, column, value)
    }

    fn counter_amount(&self, term: &Term, column: &str) -> Result<Option<i64>> {
        match term.evaluate(self.bindings)? {
            Bound::Unset => Ok(None),
            Bound::Null => Err(RequestError::invalid("Invalid null value for counter increment")),
            Bound::Bytes(bytes) => {
                bytes.as_ref().try_into().map(|bytes| Some(i64::from_be_bytes(bytes))).map_err(|_| {
                    RequestError::invalid(format!("Invalid value for counter increment of {column}"))
                })
            }
        }
    }

    fn write_column(
        &self,
        work: &mut RowWork<'_>,
        key: &PartitionKey,
        position: &[u8],
        column: &Column,
        operation: &Operation,
    ) -> Result<()> {
        let cells = CellWriter { stamp: &self.stamp, column };
        match operation {
            Operation::Set(term) if !column.column_type.is_multi_cell() => {
                let value = term.evaluate(self.bindings)?;
                if self.checks_values {
                    self.check(column, &value)?;
                }
                if let Some(cell) = cells.simple_cell(&value) {
                    work.row.cell(cell);
                }
                Ok(())
            }
            Operation::Set(term) => match term.evaluate(self.bindings)? {
                Bound::Unset => Ok(()),
                Bound::Null => {
                    cells.delete_all(&mut work.row);
                    Ok(())
                }
                Bound::Bytes(value) => {
                    let before = Deletion {
                        timestamp: self.stamp.timestamp.saturating_sub(1),
                        ..self.stamp.deletion()
                    };
                    work.row.delete_column(column.id, before);
                    cells.write_elements(work, &value, next_list_clock(self.write))
                }
            },
            Operation::Delete => {
                cells.delete_all(&mut work.row);
                Ok(())
            }
            Operation::Add(term) => match term.evaluate(self.bindings)? {
                Bound::Bytes(value) => cells.write_elements(work, &value, next_list_clock(self.write)),
                Bound::Unset | Bound::Null => Ok(()),
            },
            Operation::Calculate { function, number } => {
                self.calculate(work, &cells, (key, position), column, (function, number))
            }
            Operation::Prepend(term) => match term.evaluate(self.bindings)? {
                Bound::Bytes(value) => cells.write_elements(work, &value, -next_list_clock(self.write)),
                Bound::Unset | Bound::Null => Ok(()),
            },
            Operation::Subtract(term) => match term.evaluate(self.bindings)? {
                Bound::Bytes(value) => self.subtract(work, &cells, key, position, &value),
                Bound::Unset | Bound::Null => Ok(()),
            },
            Operation::SetElement { key: element, value } => {
                let path = self.element_path(work, element, &cells, key, position, "set an element on")?;
                match value.evaluate(self.bindings)? {
                    Bound::Bytes(value) => cells.replace(work, &path, &value),
                    Bound::Null => cells.remove(work, &path),
                    Bound::Unset => {}
                }
                Ok(())
            }
            Operation::DeleteElement(element) => {
                let is_list = matches!(column.column_type, CqlType::List { .. });
                if is_list && element.evaluate(self.bindings)? == Bound::Unset {
                    return Ok(());
                }
                let path =
                    self.element_path(work, element, &cells, key, position, "delete an element from")?;
                cells.remove(work, &path);
                Ok(())
            }
            Operation::SetField { field, value } => {
                match value.evaluate(self.bindings)? {
                    Bound::Unset => {}
                    Bound::Null => cells.tombstone(&mut work.row, &field.to_be_bytes()),
                    Bound::Bytes(value) => cells.value(&mut work.row, &field.to_be_bytes(), &value),
                }
                Ok(())
            }
            Operation::DeleteField(field) => {
                cells.tombstone(&mut work.row, &field.to_be_bytes());
                Ok(())
            }
            Operation::CounterAdd(_) | Operation::CounterSubtract(_) => Ok(()),
        }
    }

    /// The path of the cell of an element.
    fn element_path(
        &self,
        work: &mut RowWork<'_>,
        element: &Term,
        cells: &CellWriter<'_>,
        key: &PartitionKey,
        position: &[u8],
        action: &str,
    ) -> Result<Vec<u8>> {
        let column = cells.column;
        let kind = match &column.column_type {
            CqlType::List { .. } => "list index",
            CqlType::Set { .. } => "set element",
            _ => "map key",
        };
        let bytes = match element.evaluate(self.bindings)? {
            Bound::Bytes(bytes) => bytes,
            Bound::Null if kind == "list index" => {
                return Err(RequestError::invalid("Invalid null value for list index"));
            }
            Bound::Null => return Err(RequestError::invalid(format!("Invalid null {kind}"))),
            Bound::Unset if kind == "map key" => return Err(RequestError::invalid("Invalid unset map key")),
            Bound::Unset => return Err(RequestError::invalid(format!("Invalid unset value for {kind}"))),
        };
        match &column.column_type {
            CqlType::Set { element, .. } | CqlType::Map { key: element, .. } => encode_path(element, &bytes),
            _ => {
                let index = bytes.as_ref().try_into().map(i32::from_be_bytes).map_err(|_| {
                    RequestError::invalid(format!("Invalid list index for column {}", column.name))
                })?;
                let items = &self.list(work, column, key, position)?.elements;
                if items.is_empty() {
                    return Err(RequestError::invalid(format!("Attempted to {action} a list which is null")));
                }
                let path = usize::try_from(index).ok().and_then(|index| items.keys().nth(index));
                path.cloned().ok_or_else(|| {
                    RequestError::invalid(format!(
                        "List index {index} out of bound, list has size {}",
                        items.len()
                    ))
                })
            }
        }
    }

    fn subtract(
        &self,
        work: &mut RowWork<'_>,
        cells: &CellWriter<'_>,
        key: &PartitionKey,
        position: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let column = cells.column;
        let removed = list_elements(value, &column.name)?;
        match &column.column_type {
            CqlType::Set { element, .. } | CqlType::Map { key: element, .. } => {
                for item in &removed {
                    cells.tombstone(&mut work.row, &encode_path(element, item)?);
                }
            }
            CqlType::List { element, .. } => {
                let mut removed = removed;
                removed.sort_by(|left, right| compare::compare(element, left, right));
                let is_removed = |item: &[u8]| {
                    removed.binary_search_by(|gone| compare::compare(element, gone, item)).is_ok()
                };
                let paths: Vec<Vec<u8>> = self
                    .list(work, column, key, position)?
                    .elements
                    .iter()
                    .filter(|(_, item)| is_removed(item))
                    .map(|(path, _)| path.clone())
                    .collect();
                for path in paths {
                    cells.remove(work, &path);
                }
            }
            other => debug_assert!(false, "{other} is no collection"),
        }
        Ok(())
    }

    /// Sets a column to the result of a function of its value and a number.
    fn calculate(
        &self,
        work: &mut RowWork<'_>,
        cells: &CellWriter<'_>,
        (key, position): (&PartitionKey, &[u8]),
        column: &Column,
        (function, number): (&ResolvedFunction, &Term),
    ) -> Result<()> {
        let number = match number.evaluate(self.bindings)? {
            Bound::Unset => return Ok(()),
            Bound::Null => {
                return Err(RequestError::invalid(format!(
                    "Invalid null value for number increment of column {}",
                    column.name
                )));
            }
            Bound::Bytes(number) => number,
        };
        let Some(current) = self.current_value(key, position, column)? else { return Ok(()) };
        let operands = [Some(current.as_slice()), Some(&*number)];
        let Some(result) = function.call(&operands, self.bindings.call)? else { return Ok(()) };
        let result = Bound::Bytes(result.into());
        if self.checks_values {
            self.check(column, &result)?;
        }
        if let Some(cell) = cells.simple_cell(&result) {
            work.row.cell(cell);
        }
        Ok(())
    }

    /// The value of a simple column before the statement.
    fn current_value(&self, key: &PartitionKey, position: &[u8], column: &Column) -> Result<Option<Vec<u8>>> {
        let existing = self
            .existing
            .ok_or_else(|| RequestError::Server("numbers are changed by their owner only".to_owned()))?;
        let bytes = existing.row(&self.plan.table, key, position)?.unwrap_or_default();
        let hidden_until = self.plan.table.hidden_until(column.id);
        let cell = RowRef::new(&bytes, 0)
            .cells()
            .find(|cell| cell.column == column.id && cell.is_live(self.write.now_seconds))
            .filter(|cell| hidden_until.is_none_or(|dropped_at| cell.timestamp > dropped_at));
        Ok(cell.map(|cell| cell.value.to_vec()))
    }

    /// The state of a list after the operations so far.
    fn list<'w>(
        &self,
        work: &'w mut RowWork<'_>,
        column: &Column,
        key: &PartitionKey,
        position: &[u8],
    ) -> Result<&'w ListState> {
        let state = work.lists.entry(column.id).or_default();
        if state.is_loaded {
            return Ok(state);
        }
        let existing = self
            .existing
            .ok_or_else(|| RequestError::Server("lists are changed by their owner only".to_owned()))?;
        // A row that does not exist has no cells, as the empty one.
        let bytes = existing.row(&self.plan.table, key, position)?.unwrap_or_default();
        let hidden_until = self.plan.table.hidden_until(column.id);
        let stored = RowRef::new(&bytes, 0)
            .cells()
            .filter(|cell| cell.column == column.id && cell.is_live(self.write.now_seconds))
            .filter(|cell| hidden_until.is_none_or(|dropped_at| cell.timestamp > dropped_at))
            .map(|cell| (cell.path.to_vec(), cell.value.to_vec()));
        state.elements.extend(stored);
        state.is_loaded = true;
        Ok(state)
    }
}

/// Refuses a vector that an index of its column cannot find.
fn check_vector(table: &Table, column: &Column, value: &Bound<'_>) -> Result<()> {
    let (CqlType::Vector { .. }, Bound::Bytes(bytes)) = (&column.column_type, value) else { return Ok(()) };
    let of_column = table.indexes.iter().filter(|index| index.column_id == column.id);
    for options in of_column.filter_map(|index| index.vectors(&column.column_type)) {
        let vector: Vec<f32> = floats(bytes).collect();
        options.similarity.check(&vector).map_err(|error| RequestError::invalid(error.to_string()))?;
    }
    Ok(())
}
