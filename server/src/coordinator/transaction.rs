//! Lightweight transactions: conditions on one partition, checked and applied as one.
//!
//! On one node the owner of the partition decides in a single turn of its thread, so that operations on a partition are
//! linearizable; the answer (also "not applied", which told of a state) is given when the commit log has everything up to it
//! as durable as configured. A cluster's consensus takes the place of [`decide`] behind the same call.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::types::CqlType;
use helenus_engine::RowRef;
use helenus_engine::key::STATIC_POSITION;

use super::write::{ShardRows, apply_here, moment, plan_of};
use super::{Outcome, RequestOptions};
use crate::bind::OwnedBindings;
use crate::error::{RequestError, Result};
use crate::functions::CallContext;
use crate::plan::Plan;
use crate::plan::condition::Conditions;
use crate::plan::modify::ModifyPlan;
use crate::plan::selection::{Fetched, ResultColumn};
use crate::plan::term::Bindings;
use crate::run::condition::{CurrentRow, hold};
use crate::run::keys::{PartitionKey, partition_keys, positions};
use crate::run::modify::{ExistingRows, MutationSet, PartitionMutation, expand_json};
use crate::run::row::{RowLayout, RowScratch};
use crate::run::select::ResultPage;
use crate::schema::catalog::Table;
use crate::session::prepared::Statement;
use crate::shard_thread::ShardContext;

/// The statements of a transaction with their values.
#[derive(Clone)]
pub struct Transaction {
    pub statements: Vec<(TransactionStatement, OwnedBindings)>,
    pub options: RequestOptions,
    pub call: CallContext,
    pub is_batch: bool,
}

/// A modification on its own or out of a batch.
#[derive(Clone)]
pub enum TransactionStatement {
    Statement(Arc<Statement>),
    /// One of the statements of a BATCH that came as one text.
    InBatch {
        batch: Arc<Statement>,
        index: usize,
    },
}

impl TransactionStatement {
    /// What is to be done.
    pub fn plan(&self) -> Result<&ModifyPlan> {
        match self {
            Self::Statement(statement) => plan_of(statement),
            Self::InBatch { batch, index } => match &batch.plan {
                Plan::Batch(plan) => plan.statements.get(*index).map(|plan| &**plan),
                _ => None,
            }
            .ok_or_else(|| RequestError::Server("not a statement of this batch".to_owned())),
        }
    }
}

/// Carries out a transaction at the owner of its partition.
pub async fn transact(context: Rc<ShardContext>, transaction: Transaction) -> Result<Outcome> {
    if let Some(serial) = transaction.options.serial_consistency
        && !serial.is_serial()
    {
        return Err(RequestError::invalid(
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        ));
    }
    let owner = {
        let mut partition: Option<(String, PartitionKey)> = None;
        for (statement, owned) in &transaction.statements {
            let plan = statement.plan()?;
            let values = owned.borrow();
            let bindings = Bindings { values: &values, call: &transaction.call };
            let expanded;
            let plan = if plan.json.is_some() {
                expanded = expand_json(plan, &bindings)?;
                &expanded
            } else {
                plan
            };
            let [key] = &partition_keys(&plan.partition, &plan.table, &bindings)?[..] else {
                return Err(RequestError::invalid("Batch with conditions cannot span multiple partitions"));
            };
            let this = (plan.table.full_name(), key.clone());
            match &partition {
                Some((table, _)) if *table != this.0 => {
                    return Err(RequestError::invalid("Batch with conditions cannot span multiple tables"));
                }
                Some(first) if *first != this => {
                    return Err(RequestError::invalid(
                        "Batch with conditions cannot span multiple partitions",
                    ));
                }
                Some(_) => {}
                None => partition = Some(this),
            }
        }
        let Some((_, key)) = partition else { return Ok(Outcome::Void) };
        context.node.shard_of(key.token)
    };
    if owner == context.index {
        return decide(context, transaction).await;
    }
    context.run_on(owner, move |context| Box::pin(decide(context, transaction))).await?
}

/// Checks the conditions and applies the changes, in one turn.
async fn decide(context: Rc<ShardContext>, transaction: Transaction) -> Result<Outcome> {
    context.shard.admit().await?;
    let outcome = decide_in_turn(&context, &transaction)?;
    if let Some(position) = context.last_append() {
        context.shard.durable(position).await?;
    }
    Ok(outcome)
}

fn decide_in_turn(context: &ShardContext, transaction: &Transaction) -> Result<Outcome> {
    let moment = moment(context, &RequestOptions { timestamp: None, ..transaction.options.clone() });
    let rows = ShardRows { context, now_seconds: moment.now_seconds };
    let values: Vec<_> = transaction.statements.iter().map(|(_, owned)| owned.borrow()).collect();
    let bindings: Vec<Bindings<'_>> =
        values.iter().map(|values| Bindings { values, call: &transaction.call }).collect();
    let mut plans = Vec::with_capacity(transaction.statements.len());
    for ((statement, _), bindings) in transaction.statements.iter().zip(&bindings) {
        plans.push(expand_json(statement.plan()?, bindings)?);
    }
    let mut seen = Vec::new();
    let mut applied = true;
    for (plan, bindings) in plans.iter().zip(&bindings) {
        let Some(conditions) = &plan.conditions else { continue };
        let row = current_row(plan, bindings, &rows, moment.now_seconds)?;
        let only_static = plan.touches_only_static() && plan.clustering.is_empty();
        applied &= hold(conditions, &plan.table, &row.row, only_static, bindings)?;
        seen.push((plan, conditions, row));
    }
    if applied {
        let mut set = MutationSet::default();
        for (plan, bindings) in plans.iter().zip(&bindings) {
            set.add(plan, bindings, &moment, Some(&rows))?;
        }
        for PartitionMutation { mutation, .. } in set.finish(&moment, Some(&rows))? {
            apply_here(context, &mutation)?;
        }
    }
    let table = plans.first().map(|plan| plan.table.clone());
    let Some(table) = table else { return Ok(Outcome::Void) };
    Ok(answer(&table, applied, &seen, transaction.is_batch))
}

/// A row with where it stands.
struct SeenRow {
    row: CurrentRow,
}

fn current_row(
    plan: &ModifyPlan,
    bindings: &Bindings<'_>,
    rows: &ShardRows<'_>,
    now_seconds: u32,
) -> Result<SeenRow> {
    let table = &plan.table;
    let keys = partition_keys(&plan.partition, table, bindings)?;
    let Some(key) = keys.first() else {
        return Err(RequestError::invalid("A condition needs a partition"));
    };
    let names_row = !plan.clustering.is_empty() || table.clustering_key_count == 0;
    let position =
        if names_row { positions(&plan.clustering, table, bindings)?.into_iter().next() } else { None };
    let regular = match &position {
        Some(position) => rows.row(table, key, position)?,
        None => None,
    };
    let statics = if table.has_static_columns() { rows.row(table, key, STATIC_POSITION)? } else { None };
    let mut fetched = Fetched::default();
    for index in 0..table.columns.len() {
        fetched.slot(index);
    }
    let layout = RowLayout::new(table, &fetched);
    let mut scratch = RowScratch::default();
    let static_values = match &statics {
        Some(bytes) => layout
            .read(&key.bytes, STATIC_POSITION, Some(RowRef::new(bytes, 0)), None, now_seconds, &mut scratch)?
            .to_owned_values(),
        None => vec![None; table.columns.len()],
    };
    let mut scratch = RowScratch::default();
    let values = layout
        .read(
            &key.bytes,
            position.as_deref().unwrap_or(STATIC_POSITION),
            regular.as_deref().map(|bytes| RowRef::new(bytes, 0)),
            Some((&static_values, &[])),
            now_seconds,
            &mut scratch,
        )?
        .to_owned_values();
    Ok(SeenRow { row: CurrentRow { exists: regular.is_some(), has_statics: statics.is_some(), values } })
}

/// `[applied]`, and what was found where it was not.
fn answer(
    table: &Table,
    applied: bool,
    seen: &[(&ModifyPlan, &Conditions, SeenRow)],
    is_batch: bool,
) -> Outcome {
    let mut columns = vec![ResultColumn { name: "[applied]".to_owned(), column_type: CqlType::Boolean }];
    let mut page = ResultPage::default();
    let cells = if applied { Vec::new() } else { shown_columns(table, seen, is_batch) };
    let found: Vec<&SeenRow> =
        seen.iter().map(|(_, _, row)| row).filter(|row| row.row.exists || row.row.has_statics).collect();
    if applied || found.is_empty() || cells.is_empty() {
        write_boolean(&mut page.rows, applied);
        page.row_count = 1;
    } else {
        columns.extend(cells.iter().map(|&index| ResultColumn {
            name: table.columns[index].name.clone(),
            column_type: table.columns[index].column_type.clone(),
        }));
        let mut written = BTreeSet::new();
        for row in found {
            // Several conditions on one row give it once.
            let key: Vec<_> = cells.iter().map(|&index| row.row.values[index].clone()).collect();
            if !written.insert(key) {
                continue;
            }
            write_boolean(&mut page.rows, applied);
            for &index in &cells {
                write_cell(&mut page.rows, row.row.values[index].as_deref());
            }
            page.row_count += 1;
        }
    }
    Outcome::OwnRows { keyspace: table.keyspace.clone(), table: table.name.clone(), columns, page }
}

/// The columns that tell why conditions did not hold, in Cassandra's order: those of rows before static ones.
fn shown_columns(table: &Table, seen: &[(&ModifyPlan, &Conditions, SeenRow)], is_batch: bool) -> Vec<usize> {
    let mut wanted: Vec<usize> = Vec::new();
    for (_, conditions, _) in seen {
        match conditions {
            Conditions::NotExists => wanted.extend(0..table.columns.len()),
            Conditions::Exists if is_batch => wanted.extend(0..table.columns.len()),
            Conditions::Exists => {}
            Conditions::Columns(list) => {
                let columns = list.iter().map(|condition| condition.column);
                let (statics, regulars): (Vec<usize>, Vec<usize>) =
                    columns.partition(|&column| table.columns[column].is_static());
                wanted.extend(regulars);
                wanted.extend(statics);
            }
        }
    }
    if is_batch && !wanted.is_empty() {
        wanted.splice(0..0, 0..table.partition_key_count + table.clustering_key_count);
    }
    let mut given = BTreeSet::new();
    wanted.retain(|column| given.insert(*column));
    wanted
}

fn write_boolean(out: &mut Vec<u8>, value: bool) {
    write_cell(out, Some(&[u8::from(value)]));
}

/// Appends a `[bytes]` cell.
pub fn write_cell(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(bytes) => {
            out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
            out.extend_from_slice(bytes);
        }
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
    }
}
