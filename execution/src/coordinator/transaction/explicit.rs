//! `BEGIN TRANSACTION`: rows with names are read, conditions on them decide, and what is returned and written is computed of them.
//!
//! Invariant: all of it is computed of one reading of the partition, and what is written takes effect only if nothing else has changed the
//! partition since by a transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cql_lite::types::codec;
use helenus_engine::RowRef;
use helenus_engine::key::STATIC_POSITION;
use helenus_guardrails::NodeGuardrails;
use helenus_query::bind::OwnedBindings;
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::CallContext;
use helenus_query::plan::modify::{ColumnOperation, Operation};
use helenus_query::plan::restrictions::{PartitionRestriction, Values};
use helenus_query::plan::select::SelectPlan;
use helenus_query::plan::term::{BindValue, Bindings};
use helenus_query::plan::transaction::{ReturningPlan, TransactionPlan};
use helenus_query::run::keys::{Slice, clustering_slices, partition_keys, positions};
use helenus_query::run::modify::{ExistingRows, MutationSet, WriteContext};
use helenus_query::run::select::{Flow, PageBounds, ResultPage, SelectRun};
use helenus_query::run::transaction::{NamedRow, all_values, conditions_hold, referenced_values};
use helenus_query::schema::catalog::Table;
use helenus_query::statement::Prepared;
use helenus_query::stored_key::{PartitionKey, SourceRow};
use helenus_ring::metadata::TRANSACTION_TOKENS;
use smallvec::SmallVec;

use super::current_rows::PartitionRows;
use super::evaluation::Evaluation;
use crate::coordinator::Outcome;
use crate::coordinator::bound_statement::{BoundStatement, Modification};
use crate::coordinator::own_rows::{SLICE_BYTES_MAX, slice_range, too_many_rows};
use crate::coordinator::transaction_tokens::TransactionToken;
use crate::shard::context::ShardContext;

/// A transaction with its values, and what it has besides its modifications.
pub struct Explicit {
    statement: Arc<Prepared<TransactionPlan>>,
    /// Those of the client's markers.
    values: OwnedBindings,
    call: CallContext,
    pub(super) key: PartitionKey,
    /// By which its answer is remembered, if it has one.
    pub(super) token: Option<TransactionToken>,
    /// The guardrails that the values must keep that are computed of the rows. `None`: they need not.
    guarded_by: Option<Arc<NodeGuardrails>>,
}

impl Explicit {
    /// A transaction that was written as one, and its modifications. `is_guarded`: guardrails hold for the client.
    pub(super) fn bind(
        context: &ShardContext,
        statement: &Arc<Prepared<TransactionPlan>>,
        values: &[BindValue<'_>],
        call: CallContext,
        is_guarded: bool,
    ) -> Result<(Self, Vec<BoundStatement>)> {
        let plan = &statement.plan;
        let bindings = Bindings { values, call: &call };
        for row in &plan.rows {
            row.check_limit(&bindings)?;
        }
        // The values of references are not known yet. No key depends on them.
        let unknown = std::iter::repeat_n(BindValue::Unset, plan.references.len());
        let padded: Vec<BindValue<'_>> = values.iter().copied().chain(unknown).collect();
        let padded = OwnedBindings::new(&padded);
        let bound = |index| {
            let modification = Modification::InTransaction { transaction: statement.clone(), index };
            BoundStatement::new(modification, padded.clone(), call)
        };
        let statements: Vec<BoundStatement> =
            (0..plan.modifications.len()).map(bound).collect::<Result<_>>()?;
        let key = only_key(plan, &statements, &bindings)?;
        let guardrails = is_guarded.then(|| context.guardrails());
        let guarded_by = guardrails.filter(|guardrails| guardrails.guards_modifications());
        let token = plan.token(&bindings)?.map(|id| TransactionToken::new(id, statement, values));
        if token.is_some() && context.cluster_view().topology.feature_level < TRANSACTION_TOKENS {
            return Err(RequestError::invalid(
                "USING TOKEN is possible once all members of the cluster run a version that knows it",
            ));
        }
        let values = OwnedBindings::new(values);
        Ok((Self { statement: statement.clone(), values, call, key, token, guarded_by }, statements))
    }

    /// Which of the modifications have values that are computed of rows.
    pub(super) fn are_referring(&self) -> &[bool] {
        &self.statement.plan.are_referring
    }

    pub(super) fn table(&self) -> &Arc<Table> {
        &self.statement.plan.table
    }

    /// Whether it reads rows for others than its modifications.
    pub(super) fn has_reads(&self) -> bool {
        self.statement.plan.reads().next().is_some()
    }
}

/// The only partition that a transaction reads and writes.
fn only_key(
    plan: &TransactionPlan,
    statements: &[BoundStatement],
    bindings: &Bindings<'_>,
) -> Result<PartitionKey> {
    let mut keys = BTreeSet::new();
    for select in plan.reads() {
        keys.extend(partition_keys(partition_of(select), &select.table, bindings)?);
    }
    for statement in statements {
        keys.extend(statement.keys.iter().cloned());
    }
    match (keys.pop_first(), keys.is_empty()) {
        (Some(key), true) => Ok(key),
        _ => Err(RequestError::invalid("A transaction cannot span multiple partitions")),
    }
}

/// The restrictions of the partition key by a SELECT, which names its partitions.
fn partition_of(select: &SelectPlan) -> &[Values] {
    match &select.restrictions.partition {
        PartitionRestriction::Keys(keys) => keys,
        PartitionRestriction::Range(_) => &[],
    }
}

/// The rows that the SELECTs of a transaction read.
#[derive(Default)]
pub(super) struct RowsRead {
    pub(super) positions: BTreeSet<Vec<u8>>,
    /// Half-open ranges of full keys.
    pub(super) ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The rows that the SELECTs of a transaction read.
pub(super) fn rows_read(explicit: &Explicit) -> Result<RowsRead> {
    let values = explicit.values.borrow();
    let bindings = Bindings { values: &values, call: &explicit.call };
    let mut read = RowsRead::default();
    for select in explicit.statement.plan.reads() {
        if select.table.has_static_columns() {
            read.positions.insert(STATIC_POSITION.to_vec());
        }
        match rows_of_select(select, &bindings)? {
            SelectedRows::Named(positions) => read.positions.extend(positions),
            SelectedRows::Slices(slices) => {
                for slice in slices {
                    let range = slice_range(&explicit.key, &slice)?;
                    if !read.ranges.contains(&range) {
                        read.ranges.push(range);
                    }
                }
            }
        }
    }
    Ok(read)
}

/// The regular rows that a SELECT addresses.
enum SelectedRows {
    /// Positions, in the order of the table.
    Named(BTreeSet<Vec<u8>>),
    Slices(Vec<Slice>),
}

fn rows_of_select(select: &SelectPlan, bindings: &Bindings<'_>) -> Result<SelectedRows> {
    let (clustering, table) = (&select.restrictions.clustering, &select.table);
    Ok(if select.names_rows() {
        SelectedRows::Named(positions(clustering, table, bindings)?.into_iter().collect())
    } else {
        SelectedRows::Slices(clustering_slices(clustering, table, bindings)?)
    })
}

/// Evaluates a transaction on rows. `statements`: its modifications.
pub(super) fn evaluate(
    statements: &[BoundStatement],
    explicit: &Explicit,
    write: &WriteContext,
    rows: &dyn ExistingRows,
) -> Result<Evaluation> {
    let plan = &explicit.statement.plan;
    let (given, call) = (explicit.values.borrow(), &explicit.call);
    let bindings = Bindings { values: &given, call };
    let partition = PartitionRows::new(&plan.table, &explicit.key, rows, write.now_seconds);
    let mut named = Vec::with_capacity(plan.rows.len());
    for row in &plan.rows {
        named.push(read_row(&row.select, &partition, &bindings)?);
    }
    let referenced = referenced_values(plan, &named, &bindings)?;
    let outcome = match &plan.returning {
        None => Outcome::Void,
        Some(ReturningPlan::References(indexes)) => {
            let mut page = ResultPage { row_count: 1, ..ResultPage::default() };
            for &index in indexes {
                codec::write_field(referenced[index].as_deref(), &mut page.rows);
            }
            Outcome::Rows(page)
        }
        Some(ReturningPlan::Select(select)) => {
            Outcome::Rows(select_rows(select, explicit, rows, &bindings, write.now_seconds)?)
        }
    };
    if !conditions_hold(plan, &named, &referenced, &bindings)? {
        return Ok(Evaluation { changes: Vec::new(), outcome });
    }
    let all = all_values(&given, &referenced);
    check_calculations(statements, &all, call)?;
    let mut set = MutationSet::default();
    for (statement, is_referring) in statements.iter().zip(&plan.are_referring) {
        if let Some(guardrails) = explicit.guarded_by.as_ref().filter(|_| *is_referring) {
            let bindings = Bindings { values: &all, call };
            // Warnings are of what clients send; here only what is refused counts.
            guardrails.check_modification(statement.plan(), &bindings, &mut Vec::new())?;
        }
        statement.add_with(&mut set, &all, write, rows)?;
    }
    Ok(Evaluation { changes: set.finish(write, Some(rows))?, outcome })
}

/// Refuses a second change of a value that `+=` or `-=` changes: both would be computed of the value of before, and one would be lost. `values`:
/// with those of references.
fn check_calculations(
    statements: &[BoundStatement],
    values: &[BindValue<'_>],
    call: &CallContext,
) -> Result<()> {
    let is_calculation =
        |operation: &ColumnOperation| matches!(operation.operation, Operation::Calculate { .. });
    let mut calculates = statements.iter().flat_map(|statement| &statement.plan().operations);
    if statements.len() == 1 || !calculates.any(is_calculation) {
        return Ok(());
    }
    let bindings = Bindings { values, call };
    let mut changed: BTreeMap<(usize, Vec<u8>), bool> = BTreeMap::new();
    for statement in statements {
        let plan = statement.plan();
        let is_of_rows = plan.operations.iter().any(|it| !plan.table.columns[it.column].is_static());
        let of_rows = if is_of_rows {
            positions(&plan.clustering, &plan.table, &bindings)?
        } else {
            SmallVec::default()
        };
        for operation in &plan.operations {
            let column = &plan.table.columns[operation.column];
            let of_partition = [STATIC_POSITION.to_vec()];
            let positions = if column.is_static() { &of_partition[..] } else { &of_rows[..] };
            for position in positions {
                let calculates = is_calculation(operation);
                if let Some(known) = changed.insert((operation.column, position.clone()), calculates)
                    && (known || calculates)
                {
                    return Err(RequestError::invalid(format!(
                        "Column {} of a row is changed twice in a transaction, and by += or -= once at least",
                        column.name
                    )));
                }
            }
        }
    }
    Ok(())
}

/// Reads a row with a name.
fn read_row(select: &SelectPlan, partition: &PartitionRows<'_>, bindings: &Bindings<'_>) -> Result<NamedRow> {
    let (position, row) = match rows_of_select(select, bindings)? {
        SelectedRows::Named(positions) => {
            let mut found = (None, None);
            for position in positions {
                if let Some(row) = partition.row(&position)? {
                    found = (Some(position), Some(row));
                    break;
                }
                found.0.get_or_insert(position);
            }
            found
        }
        SelectedRows::Slices(slices) => partition.first_of(&slices)?.unzip(),
    };
    let statics = partition.statics()?;
    let exists = row.is_some();
    let position = position.as_deref().unwrap_or(STATIC_POSITION);
    let mut values = partition.values(position, row.as_deref(), statics.as_ref())?;
    if !exists {
        // Nothing is there but what belongs to the partition.
        for (value, column) in values.iter_mut().zip(&partition.table.columns) {
            if !column.is_static() {
                *value = None;
            }
        }
    }
    Ok(NamedRow { exists, values })
}

/// The answer of a SELECT within a transaction.
fn select_rows(
    select: &SelectPlan,
    explicit: &Explicit,
    rows: &dyn ExistingRows,
    bindings: &Bindings<'_>,
    now_seconds: u32,
) -> Result<ResultPage> {
    let (table, key) = (&select.table, &explicit.key);
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    if select.reads_static
        && let Some(row) = rows.row(table, key, STATIC_POSITION)?
    {
        found.push((STATIC_POSITION.to_vec(), row));
    }
    match rows_of_select(select, bindings)? {
        SelectedRows::Named(positions) => {
            for position in positions {
                if let Some(row) = rows.row(table, key, &position)? {
                    found.push((position, row));
                }
            }
        }
        SelectedRows::Slices(slices) => {
            let mut bytes = 0;
            for slice in slices {
                let of_slice = rows.rows_of(table, key, &slice, usize::MAX, &|_| true)?;
                bytes += of_slice.iter().map(|(position, row)| position.len() + row.len()).sum::<usize>();
                found.extend(of_slice);
                if bytes as u64 > SLICE_BYTES_MAX && found.len() > 1 {
                    return Err(too_many_rows());
                }
            }
        }
    }
    let bounds = PageBounds { rows: None, bytes: usize::MAX };
    let mut run = SelectRun::new(select, *bindings, now_seconds, bounds, None)?;
    for (position, row) in &found {
        let source = SourceRow { partition_key: &key.bytes, position, row: RowRef::new(row, 0) };
        match run.row(&source)? {
            Flow::Continue => {}
            Flow::SkipPartition => break,
            Flow::PageFull | Flow::Done => return run.page(false),
        }
    }
    run.finish()
}
