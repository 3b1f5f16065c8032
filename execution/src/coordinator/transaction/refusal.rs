//! The answer of a transaction: `[applied]`, and if the conditions do not hold the rows that they were checked on.
//!
//! Which rows and values are shown follows from what Cassandra reads for a transaction (`CQL3CasRequest`):
//! * Static columns: all if a statement with conditions changes some, else those with conditions. Regular columns: all if a statement with
//!   conditions names a row, else those with conditions. The others are null.
//! * The rows that conditions are about. If all conditions are on static columns, the first row of the partition.
//! * If there is none of them, the static content that was read, without a row.
//!
//! Invariant: only values of [`ModifyPlan::shown_columns`] of the statements with conditions are shown: these are the columns that a role needs
//! permission to read.

use std::collections::{BTreeMap, BTreeSet};

use cql_lite::types::{CqlType, codec};
use helenus_engine::RowRef;
use helenus_engine::key::STATIC_POSITION;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::condition::Conditions;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::row_layout::OwnedValues;
use helenus_query::plan::selection::ResultColumn;
use helenus_query::run::keys::positions;
use helenus_query::run::select::ResultPage;
use helenus_query::schema::catalog::{ColumnKind, Table};

use super::current_rows::{PartitionRows, is_about_its_row, names_its_row};
use super::request::Transaction;
use crate::coordinator::Outcome;
use crate::coordinator::bound_statement::BoundStatement;

/// The answer of a transaction that was applied.
pub(super) fn accepted(table: &Table) -> Outcome {
    answer(table, true, &[], &[])
}

/// The answer of a transaction whose conditions do not hold.
pub(super) fn refused(transaction: &Transaction, partition: &PartitionRows<'_>) -> Result<Outcome> {
    let shown = shown_rows(transaction, partition)?;
    let table = partition.table;
    Ok(answer(table, false, &shown_columns(transaction, table), &shown))
}

/// Refuses different kinds of conditions on one row.
pub(super) fn check_mix(transaction: &Transaction) -> Result<()> {
    let mut kinds: BTreeMap<Vec<u8>, &Conditions> = BTreeMap::new();
    for (statement, plan, given) in conditions(transaction) {
        let position = if is_about_its_row(plan, given) {
            positions(&plan.clustering, &plan.table, &statement.borrow().bindings())?.into_iter().next()
        } else {
            None
        };
        let known = *kinds.entry(position.unwrap_or_else(|| STATIC_POSITION.to_vec())).or_insert(given);
        let mixed = match (known, given) {
            (Conditions::Exists, Conditions::NotExists) | (Conditions::NotExists, Conditions::Exists) => {
                "IF EXISTS and IF NOT EXISTS conditions"
            }
            (Conditions::Columns(_), Conditions::Exists) => "IF conditions and IF EXISTS",
            (Conditions::Columns(_), Conditions::NotExists)
            | (Conditions::Exists | Conditions::NotExists, Conditions::Columns(_)) => {
                "IF conditions and IF NOT EXISTS"
            }
            _ => continue,
        };
        return Err(RequestError::Invalid(format!("Cannot mix {mixed} for the same row")));
    }
    Ok(())
}

/// The statements with conditions.
fn conditions(
    transaction: &Transaction,
) -> impl Iterator<Item = (&BoundStatement, &ModifyPlan, &Conditions)> {
    transaction.statements.iter().filter_map(|statement| {
        let plan = statement.plan();
        plan.conditions.as_ref().map(|conditions| (statement, plan, conditions))
    })
}

/// The columns with conditions.
fn compared_columns(transaction: &Transaction) -> impl Iterator<Item = usize> {
    conditions(transaction)
        .flat_map(|(_, _, conditions)| match conditions {
            Conditions::Columns(list) => list.as_slice(),
            Conditions::Exists | Conditions::NotExists => &[],
        })
        .map(|condition| condition.column)
}

/// The values of the rows that are shown, by index in [`Table::columns`].
fn shown_rows(transaction: &Transaction, partition: &PartitionRows<'_>) -> Result<Vec<OwnedValues>> {
    let (table, now_seconds) = (partition.table, partition.now_seconds);
    let compared: BTreeSet<usize> = compared_columns(transaction).collect();
    let changes_statics = conditions(transaction).any(|(_, plan, _)| plan.changes_static_columns());
    let names_rows = conditions(transaction).any(|(_, plan, _)| names_its_row(plan));
    let is_read = |index: usize| match table.columns[index].kind {
        ColumnKind::PartitionKey { .. } | ColumnKind::Clustering { .. } => true,
        ColumnKind::Static => changes_statics || compared.contains(&index),
        ColumnKind::Regular => names_rows || compared.contains(&index),
    };
    let hide = |values: &mut OwnedValues| {
        for (_, value) in values.iter_mut().enumerate().filter(|(index, _)| !is_read(*index)) {
            *value = None;
        }
    };
    let mut statics = partition.statics()?;
    statics.iter_mut().for_each(hide);
    let mut shown = Vec::new();
    for (position, row) in rows_of_conditions(transaction, partition)? {
        let mut values = partition.values(&position, Some(&row), statics.as_ref())?;
        hide(&mut values);
        let has_value = |kind: ColumnKind| {
            table.columns.iter().zip(&values).any(|(column, value)| column.kind == kind && value.is_some())
        };
        let liveness = RowRef::new(&row, 0).liveness();
        if liveness.is_some_and(|liveness| !liveness.is_expired(now_seconds))
            || has_value(ColumnKind::Regular)
        {
            shown.push(values);
        }
    }
    if shown.is_empty()
        && let Some(values) = statics
        && table.columns.iter().zip(&values).any(|(column, value)| column.is_static() && value.is_some())
    {
        shown.push(values);
    }
    Ok(shown)
}

/// The rows that exist of those that conditions are about, by their positions: in the order of the table.
fn rows_of_conditions(
    transaction: &Transaction,
    partition: &PartitionRows<'_>,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut are_all_static = true;
    for (statement, plan, conditions) in conditions(transaction) {
        if is_about_its_row(plan, conditions) {
            are_all_static = false;
            for position in positions(&plan.clustering, &plan.table, &statement.borrow().bindings())? {
                if let Some(row) = partition.row(&position)? {
                    found.insert(position, row);
                }
            }
        }
    }
    if are_all_static {
        found.extend(partition.first()?);
    }
    Ok(found)
}

/// The columns that show why conditions did not hold, in Cassandra's order: regular columns before static ones.
fn shown_columns(transaction: &Transaction, table: &Table) -> Vec<usize> {
    // Conditions on existence show whole rows, whatever the other conditions are about.
    if conditions(transaction).any(|(_, _, one)| matches!(one, Conditions::Exists | Conditions::NotExists)) {
        return (0..table.columns.len()).collect();
    }
    let (statics, regulars): (Vec<usize>, Vec<usize>) =
        compared_columns(transaction).partition(|&column| table.columns[column].is_static());
    let key_columns =
        if transaction.is_batch() { table.partition_key_count + table.clustering_key_count } else { 0 };
    let mut given = BTreeSet::new();
    (0..key_columns).chain(regulars).chain(statics).filter(|column| given.insert(*column)).collect()
}

fn answer(table: &Table, applied: bool, shown_columns: &[usize], shown: &[OwnedValues]) -> Outcome {
    let mut columns = vec![ResultColumn { name: "[applied]".to_owned(), column_type: CqlType::Boolean }];
    let mut page = ResultPage::default();
    if shown.is_empty() {
        write_boolean(&mut page.rows, applied);
        page.row_count = 1;
    } else {
        columns.extend(shown_columns.iter().map(|&index| ResultColumn {
            name: table.columns[index].name.clone(),
            column_type: table.columns[index].column_type.clone(),
        }));
    }
    for values in shown {
        write_boolean(&mut page.rows, applied);
        for &index in shown_columns {
            codec::write_field(values[index].as_deref(), &mut page.rows);
        }
        page.row_count += 1;
    }
    Outcome::OwnRows { keyspace: table.keyspace.clone(), table: table.name.clone(), columns, page }
}

fn write_boolean(out: &mut Vec<u8>, value: bool) {
    codec::write_element(&[u8::from(value)], out);
}
