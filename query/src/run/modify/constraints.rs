//! The constraints of columns (`CHECK …`), tested on the values that a statement writes: those of keys before, the others when they are
//! evaluated for a row, so that what is tested is what is written.

use crate::error::{RequestError, Result};
use crate::plan::modify::{ModifyKind, ModifyPlan, Operation};
use crate::plan::restrictions::{
    ClusteringRestriction, TupleValues, list_elements, no_null, split_tuple, tuple_components,
};
use crate::plan::term::{Bindings, Bound};
use crate::run::keys::{column_values, required};
use crate::schema::catalog::{Column, Table};
use crate::schema::constraint::Constraints;

/// Refuses keys that do not satisfy the constraints of their columns, and columns without a value that must have one.
#[inline]
pub(super) fn check(plan: &ModifyPlan, bindings: &Bindings<'_>) -> Result<()> {
    if plan.table.constraints.is_empty() { Ok(()) } else { check_all(plan, bindings) }
}

fn check_all(plan: &ModifyPlan, bindings: &Bindings<'_>) -> Result<()> {
    let table = &*plan.table;
    if plan.kind == ModifyKind::Insert {
        check_given(plan)?;
    }
    if plan.kind != ModifyKind::Delete {
        check_keys(plan, bindings)?;
    }
    for change in &plan.operations {
        let column = &table.columns[change.column];
        let Some(constraints) = table.constraints.get(&column.id) else { continue };
        if matches!(change.operation, Operation::Delete) && constraints.has_not_null() {
            return invalid(format!("Column '{}' can not be set to null.", column.name));
        }
    }
    Ok(())
}

/// Refuses the new value of a column if it does not satisfy the constraints. Only columns that are written whole have any.
pub(super) fn check_set(table: &Table, column: &Column, value: &Bound<'_>) -> Result<()> {
    match (table.constraints.get(&column.id), value) {
        (None, _) | (_, Bound::Unset) => Ok(()),
        (Some(constraints), value) => constraints.check(column.constraint_target(), value.as_bytes()),
    }
}

/// Refuses an INSERT without a value for a column that must have one.
fn check_given(plan: &ModifyPlan) -> Result<()> {
    let table = &*plan.table;
    let is_given = |index: usize| plan.operations.iter().any(|change| change.column == index);
    let missing = table.columns.iter().enumerate().find(|(index, column)| {
        table.constraints.get(&column.id).is_some_and(Constraints::has_not_null) && !is_given(*index)
    });
    match missing {
        Some((_, column)) => {
            invalid(format!("Column '{}' has to be specified as part of this query.", column.name))
        }
        None => Ok(()),
    }
}

fn check_keys(plan: &ModifyPlan, bindings: &Bindings<'_>) -> Result<()> {
    let table = &*plan.table;
    let is_constrained = |column: &Column| table.constraints.contains_key(&column.id);
    for (values, column) in plan.partition.iter().zip(table.partition_key()) {
        if is_constrained(column) {
            for value in column_values(values, column, bindings)? {
                check_value(table, column, &value)?;
            }
        }
    }
    let clustering = table.clustering_key();
    if !clustering.iter().any(is_constrained) {
        return Ok(());
    }
    for restriction in &plan.clustering {
        match restriction {
            ClusteringRestriction::Values { first, values } => {
                let column = &clustering[*first];
                for value in column_values(values, column, bindings)? {
                    check_value(table, column, &value)?;
                }
            }
            ClusteringRestriction::Tuples { first, count, values } => {
                check_tuples(table, &clustering[*first..first + count], values, bindings)?;
            }
            ClusteringRestriction::Slice { .. } => {}
        }
    }
    Ok(())
}

fn check_tuples(
    table: &Table,
    columns: &[Column],
    values: &TupleValues,
    bindings: &Bindings<'_>,
) -> Result<()> {
    let mut tuples = Vec::new();
    if let TupleValues::List(term) = values {
        let name = &columns[0].name;
        for tuple in list_elements(&required(term, name, bindings)?, name)? {
            tuples.push(split_tuple(&tuple, columns, &no_null)?);
        }
    }
    for tuple in values.tuples() {
        tuples.push(tuple_components(tuple, columns, bindings, no_null)?);
    }
    for tuple in tuples {
        for (value, column) in tuple.iter().zip(columns) {
            check_value(table, column, value)?;
        }
    }
    Ok(())
}

fn check_value(table: &Table, column: &Column, value: &[u8]) -> Result<()> {
    match table.constraints.get(&column.id) {
        Some(constraints) => constraints.check(column.constraint_target(), Some(value)),
        None => Ok(()),
    }
}

fn invalid<T>(message: String) -> Result<T> {
    Err(RequestError::Invalid(message))
}
