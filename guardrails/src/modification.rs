//! Guardrails of INSERT, UPDATE and DELETE: timestamps, operations on lists, sizes of values and collections.
//!
//! Sizes are those of the values that the statement gives. So a collection is judged by what a statement adds to it, as in Cassandra.

use std::borrow::Cow;

use cql_lite::types::{CqlType, codec};

use super::{Guardrails, Threshold};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::modify::{ColumnOperation, ModifyPlan, Operation};
use helenus_query::plan::term::{Bindings, Bound, Term};
use helenus_query::run::modify::timestamp_value;
use helenus_query::schema::catalog::{Column, Table};
use helenus_query::schema::index::{IndexKind, IndexedPart};

/// Bytes of a cell besides its value and the key of an element, as Cassandra counts them.
const CELL_BYTES: u64 = 20;
/// Bytes of the key of a list's element, likewise.
const LIST_KEY_BYTES: u64 = 16;

impl Guardrails {
    /// Whether any guardrail of modifications is set.
    pub(super) fn any_of_modifications(&self) -> bool {
        self.user_timestamps.is_set()
            || self.read_before_write_list_operations.is_set()
            || self.write_consistency_levels.is_set()
            || self.maximum_timestamp.is_set()
            || self.minimum_timestamp.is_set()
            || self.guard_values()
    }

    fn guard_values(&self) -> bool {
        self.items_per_collection.is_set()
            || self.collection_sizes().iter().any(|threshold| threshold.is_set())
            || self.value_sizes().iter().any(|threshold| threshold.is_set())
            || self.guard_terms()
    }

    /// Those of collections, whole and by kind.
    fn collection_sizes(&self) -> [&Threshold; 4] {
        [
            &self.collection_size,
            &self.collection_map_size,
            &self.collection_set_size,
            &self.collection_list_size,
        ]
    }

    /// Those of values, whole and by type.
    fn value_sizes(&self) -> [&Threshold; 5] {
        [
            &self.column_value_size,
            &self.column_ascii_value_size,
            &self.column_blob_value_size,
            &self.column_text_value_size,
            &self.column_varchar_value_size,
        ]
    }

    fn guard_terms(&self) -> bool {
        self.sai_string_term_size.is_set()
            || self.sai_frozen_term_size.is_set()
            || self.sai_vector_term_size.is_set()
    }

    /// Checks a modification with its values. An INSERT JSON is expanded before.
    pub fn check_modification(
        &self,
        plan: &ModifyPlan,
        bindings: &Bindings<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        if let Some(timestamp) = &plan.timestamp {
            self.user_timestamps.guard(warnings)?;
            if let Some(timestamp) = timestamp_value(timestamp, bindings)? {
                let (now, table) = (bindings.call.now_micros, &plan.table.name);
                self.maximum_timestamp.guard_time(timestamp, now, table, warnings)?;
                self.minimum_timestamp.guard_time(timestamp, now, table, warnings)?;
            }
        }
        for ColumnOperation { column, operation } in &plan.operations {
            let column = &plan.table.columns[*column];
            if let Some(feature) = read_before_write(column, operation) {
                self.read_before_write_list_operations.guard_as(feature, warnings)?;
            }
            if self.guard_values() {
                self.check_operation(column, operation, bindings, warnings)?;
            }
            if self.guard_terms() {
                self.check_terms(&plan.table, column, operation, bindings, warnings)?;
            }
        }
        Ok(())
    }

    fn check_operation(
        &self,
        column: &Column,
        operation: &Operation,
        bindings: &Bindings<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let is_list = matches!(column.column_type, CqlType::List { .. });
        let mut check_size = |term: &Term| match term.evaluate(bindings)? {
            Bound::Bytes(value) => self.check_value(column, value.len() as u64, warnings),
            Bound::Null | Bound::Unset => Ok(()),
        };
        match operation {
            Operation::Set(term) | Operation::Add(term) | Operation::Prepend(term) => {
                match term.evaluate(bindings)? {
                    Bound::Bytes(value) => self.check_written(column, &value, warnings),
                    Bound::Null | Bound::Unset => Ok(()),
                }
            }
            // Tombstones of elements have the elements themselves as keys.
            Operation::Subtract(term) if !is_list => match term.evaluate(bindings)? {
                Bound::Bytes(value) => {
                    for element in codec::elements(&value).map_err(|error| malformed(&error))? {
                        self.check_value(
                            column,
                            element.map_err(|error| malformed(&error))?.len() as u64,
                            warnings,
                        )?;
                    }
                    Ok(())
                }
                Bound::Null | Bound::Unset => Ok(()),
            },
            Operation::SetElement { key, value } => {
                if !is_list {
                    check_size(key)?;
                }
                check_size(value)
            }
            Operation::SetField { value, .. } => check_size(value),
            Operation::DeleteElement(key) if !is_list => check_size(key),
            Operation::Subtract(_)
            | Operation::Delete
            | Operation::DeleteElement(_)
            | Operation::DeleteField(_)
            | Operation::Calculate { .. }
            | Operation::CounterAdd(_)
            | Operation::CounterSubtract(_) => Ok(()),
        }
    }

    fn check_value(&self, column: &Column, bytes: u64, warnings: &mut Vec<String>) -> Result<()> {
        self.column_value_size.guard(bytes, &column.name, warnings)
    }

    /// Checks a value that a column is set to, or elements that are added.
    fn check_written(&self, column: &Column, value: &[u8], warnings: &mut Vec<String>) -> Result<()> {
        let is_multi_cell = column.column_type.is_multi_cell();
        let Some(count) = item_count(&column.column_type, value)? else {
            if let (true, CqlType::UserType { .. }) = (is_multi_cell, &column.column_type) {
                for field in codec::fields(value) {
                    let bytes = field.map_err(|error| malformed(&error))?.map_or(0, <[u8]>::len);
                    self.check_value(column, bytes as u64, warnings)?;
                }
                return Ok(());
            }
            let bytes = value.len() as u64;
            self.check_value(column, bytes, warnings)?;
            let of_type: &[&Threshold] = match &column.column_type {
                CqlType::Ascii => &[&self.column_ascii_value_size],
                CqlType::Blob => &[&self.column_blob_value_size],
                // Two names of one type.
                CqlType::Text => &[&self.column_text_value_size, &self.column_varchar_value_size],
                _ => &[],
            };
            return of_type.iter().try_for_each(|threshold| threshold.guard(bytes, &column.name, warnings));
        };
        if is_multi_cell && count == 0 {
            return Ok(());
        }
        self.items_per_collection.guard(count, &column.name, warnings)?;
        let bytes = if is_multi_cell {
            self.check_elements(column, value, warnings)?
        } else {
            self.check_value(column, value.len() as u64, warnings)?;
            CELL_BYTES + value.len() as u64
        };
        self.collection_size.guard(bytes, &column.name, warnings)?;
        let of_kind = match &column.column_type {
            CqlType::Map { .. } => &self.collection_map_size,
            CqlType::Set { .. } => &self.collection_set_size,
            _ => &self.collection_list_size,
        };
        of_kind.guard(bytes, &column.name, warnings)
    }

    /// Checks what storage-attached indexes take from a value.
    fn check_terms(
        &self,
        table: &Table,
        column: &Column,
        operation: &Operation,
        bindings: &Bindings<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        let is_attached = |part: IndexedPart| {
            let mut indexes = table.indexes.iter().filter(|index| index.column_id == column.id);
            indexes.any(|index| index.kind == IndexKind::StorageAttached && index.part == part)
        };
        if !column.column_type.is_multi_cell() {
            let is_indexed = is_attached(IndexedPart::Value) || is_attached(IndexedPart::Full);
            let Operation::Set(term) = operation else { return Ok(()) };
            let guardrail = match &column.column_type {
                CqlType::Vector { .. } => &self.sai_vector_term_size,
                CqlType::List { .. }
                | CqlType::Set { .. }
                | CqlType::Map { .. }
                | CqlType::Tuple(_)
                | CqlType::UserType { .. } => &self.sai_frozen_term_size,
                _ => &self.sai_string_term_size,
            };
            let value = if is_indexed { value_of(term, bindings)? } else { None };
            return value.map_or(Ok(()), |value| guardrail.guard(value.len() as u64, &column.name, warnings));
        }
        let mut check = |key: &[u8], value: &[u8]| {
            let (key, value) = (key.len() as u64, value.len() as u64);
            let parts =
                [(IndexedPart::Keys, key), (IndexedPart::Values, value), (IndexedPart::Entries, key + value)];
            let mut indexed = parts.into_iter().filter(|(part, _)| is_attached(*part));
            indexed.try_for_each(|(_, bytes)| self.sai_string_term_size.guard(bytes, &column.name, warnings))
        };
        match operation {
            Operation::Set(term) | Operation::Add(term) | Operation::Prepend(term) => {
                let Some(collection) = value_of(term, bindings)? else { return Ok(()) };
                match &column.column_type {
                    CqlType::Map { .. } => {
                        for entry in codec::entries(&collection).map_err(|error| malformed(&error))? {
                            let (key, value) = entry.map_err(|error| malformed(&error))?;
                            check(key, value)?;
                        }
                    }
                    CqlType::List { .. } | CqlType::Set { .. } => {
                        for element in codec::elements(&collection).map_err(|error| malformed(&error))? {
                            check(&[], element.map_err(|error| malformed(&error))?)?;
                        }
                    }
                    _ => {}
                }
                Ok(())
            }
            Operation::SetElement { key, value } => {
                let (key, value) = (value_of(key, bindings)?, value_of(value, bindings)?);
                value.map_or(Ok(()), |value| check(key.as_deref().unwrap_or_default(), &value))
            }
            _ => Ok(()),
        }
    }

    /// Checks the elements of a collection. Returns the bytes of their cells.
    fn check_elements(&self, column: &Column, value: &[u8], warnings: &mut Vec<String>) -> Result<u64> {
        let mut bytes = 0;
        let mut check = |key_bytes: u64, value_bytes: u64, is_key_a_value: bool| {
            bytes += CELL_BYTES + key_bytes + value_bytes;
            self.check_value(column, value_bytes, warnings)?;
            if is_key_a_value { self.check_value(column, key_bytes, warnings) } else { Ok(()) }
        };
        match &column.column_type {
            CqlType::Map { .. } => {
                for entry in codec::entries(value).map_err(|error| malformed(&error))? {
                    let (key, value) = entry.map_err(|error| malformed(&error))?;
                    check(key.len() as u64, value.len() as u64, true)?;
                }
            }
            column_type => {
                let is_set = matches!(column_type, CqlType::Set { .. });
                for element in codec::elements(value).map_err(|error| malformed(&error))? {
                    let length = element.map_err(|error| malformed(&error))?.len() as u64;
                    if is_set {
                        check(length, 0, true)?;
                    } else {
                        check(LIST_KEY_BYTES, length, false)?;
                    }
                }
            }
        }
        Ok(bytes)
    }
}

/// The value of a term, if it has one.
fn value_of<'t>(term: &'t Term, bindings: &'t Bindings<'_>) -> Result<Option<Cow<'t, [u8]>>> {
    Ok(match term.evaluate(bindings)? {
        Bound::Bytes(value) => Some(value),
        Bound::Null | Bound::Unset => None,
    })
}

fn malformed(error: &codec::CodecError) -> RequestError {
    RequestError::invalid(error.to_string())
}

/// The number of items of a value; `None` if it is no collection.
fn item_count(column_type: &CqlType, value: &[u8]) -> Result<Option<u64>> {
    Ok(match column_type {
        CqlType::List { .. } | CqlType::Set { .. } => {
            Some(codec::elements(value).map_err(|error| malformed(&error))?.remaining() as u64)
        }
        CqlType::Map { .. } => {
            Some(codec::entries(value).map_err(|error| malformed(&error))?.remaining() as u64)
        }
        _ => None,
    })
}

/// The kind of an operation that must read a list before it writes.
fn read_before_write(column: &Column, operation: &Operation) -> Option<&'static str> {
    if !matches!(column.column_type, CqlType::List { .. }) {
        return None;
    }
    match operation {
        Operation::SetElement { .. } => Some("Setting of list items by index requiring read before write"),
        Operation::DeleteElement(_) => Some("Removal of list items by index requiring read before write"),
        Operation::Subtract(_) => Some("Removal of list items requiring read before write"),
        _ => None,
    }
}
