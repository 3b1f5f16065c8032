//! Guardrails of INSERT, UPDATE and DELETE: timestamps, operations on lists, sizes of values and collections.
//!
//! Sizes are those of the values that the statement gives. So a collection is judged by what a statement adds to it, as in Cassandra.

use cql_lite::types::{CqlType, codec};

use super::Guardrails;
use crate::error::{RequestError, Result};
use crate::plan::modify::{ColumnOperation, ModifyPlan, Operation};
use crate::plan::term::{Bindings, Bound, Term};
use crate::schema::catalog::Column;

/// Bytes of a cell besides its value and the key of an element, as Cassandra counts them.
const CELL_BYTES: u64 = 20;
/// Bytes of the key of a list's element, likewise.
const LIST_KEY_BYTES: u64 = 16;

impl Guardrails {
    /// Whether any guardrail of modifications is set.
    #[inline]
    pub fn guard_modifications(&self) -> bool {
        self.user_timestamps.is_set()
            || self.read_before_write_list_operations.is_set()
            || self.write_consistency_levels.is_set()
            || self.guard_values()
    }

    fn guard_values(&self) -> bool {
        self.column_value_size.is_set() || self.collection_size.is_set() || self.items_per_collection.is_set()
    }

    /// Checks a modification with its values. An INSERT JSON is expanded before.
    pub fn check_modification(
        &self,
        plan: &ModifyPlan,
        bindings: &Bindings<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<()> {
        if plan.timestamp.is_some() {
            self.user_timestamps.guard(warnings)?;
        }
        for ColumnOperation { column, operation } in &plan.operations {
            let column = &plan.table.columns[*column];
            if let Some(feature) = read_before_write(column, operation) {
                self.read_before_write_list_operations.guard_as(feature, warnings)?;
            }
            if self.guard_values() {
                self.check_operation(column, operation, bindings, warnings)?;
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
            return self.check_value(column, value.len() as u64, warnings);
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
        self.collection_size.guard(bytes, &column.name, warnings)
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
