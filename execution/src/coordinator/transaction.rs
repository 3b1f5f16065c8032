//! Lightweight transactions: conditions on one partition, checked and applied atomically.
//!
//! On a node that has always been a single node, the shard that owns the partition decides in one turn of its thread,
//! so operations on a partition are linearizable. The answer (also "not applied", which shows a state) is returned
//! when everything up to it in the commit log is as durable as configured. In a cluster the replicas agree (`paxos`):
//! the same `evaluate` computes conditions and changes, on the rows read by a quorum.

mod current_rows;
mod evaluation;
mod explicit;
mod refusal;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_engine::RowRef;
use helenus_engine::key::STATIC_POSITION;
use helenus_observe::receipt::Count;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::condition::hold;
use helenus_query::run::keys::{Slice, positions};
use helenus_query::run::modify::{ExistingRows, MutationSet, PartitionMutation, WriteContext};
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;

use self::current_rows::{PartitionRows, current_row, is_about_its_row, names_its_row};
use self::evaluation::Evaluation;
use self::explicit::{Explicit, rows_read};
use self::refusal::{accepted, check_mix, refused};
use self::request::only_partition;
pub use self::request::{Transaction, TransactionKind};
use super::paxos::commit::commit;
use super::paxos::message::{ReadAnswer, ReadOrder, TableRead};
use super::paxos::reading::merge_range;
use super::paxos::round::{Agreement, Verdict, agree};
use super::replica::write::{check_alive, check_charge};
use super::transaction_tokens::{self, TransactionToken};
use super::{Outcome, RequestOptions, denylist, paxos, table_rate_limits};
use crate::coordinator::change_feed::{self, Grouping};
use crate::coordinator::local_write::{apply_here, write_context};
use crate::coordinator::own_rows::{SLICE_BYTES_MAX, ShardRows, regular_rows, row_range, too_many_rows};
use crate::coordinator::paxos::operation::Operation;
use crate::planted::PlantedBug;
use crate::shard::context::ShardContext;
use crate::shard::receipt;

/// Executes a transaction at the shard that owns its partition.
pub async fn transact(context: Rc<ShardContext>, transaction: Transaction) -> Result<Outcome> {
    if let Some(serial) = transaction.options.serial_consistency
        && !serial.is_serial()
    {
        return Err(RequestError::invalid(
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        ));
    }
    let Some((table, key)) = only_partition(&transaction)? else { return Ok(Outcome::Void) };
    if !transaction.is_read() {
        denylist::check_transaction(&context, table, key)?;
    }
    if transaction.explicit().is_some_and(Explicit::has_reads) {
        denylist::check_transaction_read(&context, table, key)?;
    }
    table_rate_limits::admit_transaction(&context, table, !transaction.is_read())?;
    let owner = context.node.shard_of(key.token);
    // Also where this node has no replica: all transactions that it coordinates on one partition run on one shard.
    if owner == context.index {
        return decide(context, transaction).await;
    }
    context.run_on(owner, move |context| Box::pin(decide(context, transaction))).await?
}

/// Checks the conditions and applies the changes: in one turn, or by agreement of the replicas.
async fn decide(context: Rc<ShardContext>, transaction: Transaction) -> Result<Outcome> {
    if replicated_table(&context, &transaction).is_none() {
        context.shard.admit().await?;
    }
    let mark = receipt::mark();
    let evaluate_in_turn = || {
        receipt::set_back(&mark);
        // Checked in the turn that decides: a member may have joined the single node while the request was on its way.
        match replicated_table(&context, &transaction) {
            Some(table) => Ok(Err(table)),
            None => evaluate_here(&context, &transaction).map(Ok),
        }
    };
    let evaluation = match context.shard.read_cold(evaluate_in_turn).await? {
        Ok(evaluation) => evaluation,
        Err(table) => return decide_by_agreement(&context, &transaction, table).await,
    };
    receipt::count(|receipt| receipt.add(Count::Transactions, 1));
    check_charge(&context, &evaluation.changes)?;
    // Nothing was awaited since the evaluation.
    for PartitionMutation { mutation, .. } in evaluation.changes {
        receipt::count_write(&mutation, || 1);
        apply_here(&context, &mutation)?;
    }
    let outcome = evaluation.outcome;
    if let Some(position) = context.last_append() {
        context.shard.durable(position).await?;
    }
    Ok(outcome)
}

/// The table of the transaction, if it has replicas that must agree.
fn replicated_table(context: &ShardContext, transaction: &Transaction) -> Option<Arc<Table>> {
    let view = context.cluster_view();
    let table = match transaction.explicit() {
        Some(explicit) => explicit.table(),
        None => &transaction.statements.first()?.plan().table,
    };
    // A node that is alone again, after others have left, may hold what they had accepted and not decided: that comes first.
    let is_alone = view.is_alone() && !paxos::store::has_state(&context.shard);
    (!is_alone && view.placement(&table.keyspace).is_some()).then(|| table.clone())
}

/// Lets the replicas of the partition agree on the outcome, and sends the agreed mutation to all of them.
async fn decide_by_agreement(
    context: &Rc<ShardContext>,
    transaction: &Transaction,
    table: Arc<Table>,
) -> Result<Outcome> {
    let options = &transaction.options;
    if options.consistency.is_serial() && !transaction.is_read() {
        return Err(RequestError::invalid(format!(
            "{} is not supported as conditional update commit consistency. Use ANY if you mean \"make sure it is accepted but I don't care how many replicas commit it for non-SERIAL reads\"",
            options.consistency.name()
        )));
    }
    let now_seconds = options.now_seconds.unwrap_or_else(|| context.now_seconds());
    let PlannedReads { key, ranges, max_rows, max_bytes } = reads_of(transaction)?;
    let record = transaction.token().map(|token| record_read(context, token, &key)).transpose()?;
    let timeout_ms = context.node.config.cas_contention_timeout_ms;
    let deadline = options.deadline_or(context, timeout_ms);
    let mut operation = Operation {
        table: table.clone(),
        key,
        serial: serial_level(transaction),
        is_write: !transaction.is_read(),
        is_unanimous: false,
        read_before: record.into_iter().collect(),
        read: ReadOrder { ranges, reversed: false, now_seconds, max_rows, max_bytes, ..ReadOrder::UNLIMITED },
        deadline,
    };
    let mut guard = tokio::select! {
        biased;
        turn = context.paxos().queues.take(*table.id.as_bytes(), operation.key.bytes.clone()) => turn,
        () = context.clock.sleep(deadline.saturating_sub(context.clock.monotonic())) => {
            return Err(timed_out_in_line(&operation));
        }
    };
    // A transaction that waited long in the queue still gets enough time, now that no other transaction of this node
    // is before it. Where the client has said how long it waits, that counts.
    if options.deadline.is_none() {
        let least = Duration::from_millis(timeout_ms) / 2;
        operation.deadline = deadline.max(context.clock.monotonic() + least);
    }
    receipt::count(|receipt| receipt.add(Count::Transactions, 1));
    let mark = receipt::mark();
    let mut seen_outcome = Outcome::Void;
    // By the ballots of the proposals.
    let mut applied_outcomes = BTreeMap::new();
    let agreement = agree(context, &operation, &mut guard, &mut |ballot, reads| {
        receipt::set_back(&mark);
        let write = WriteContext {
            timestamp: ballot.micros,
            now_seconds,
            now_micros: ballot.micros,
            is_exact: true,
            counter_id: *context.node.host_id.as_bytes(),
            mutation_bytes_max: context.node.config.mutation_bytes_max(),
        };
        let evaluation = evaluate_agreed(context, transaction, &operation, &write, reads)?;
        // A transaction is about one partition of one table, so there is at most one mutation.
        Ok(if let Some(change) = evaluation.changes.into_iter().next() {
            // An agreement cannot be undone. So the live replicas are checked for the commit level before the first
            // proposal. After a proposal the client must get its outcome.
            if applied_outcomes.is_empty() {
                check_alive(context, &change, options.consistency)?;
                check_charge(context, std::slice::from_ref(&change))?;
            }
            applied_outcomes.insert(ballot, evaluation.outcome);
            Verdict::Write(change.mutation)
        } else {
            if applied_outcomes.is_empty() {
                check_charge(context, &[])?;
            }
            seen_outcome = evaluation.outcome;
            Verdict::Keep
        })
    })
    .await;
    // The next transaction in the queue continues from the agreed state; another node has to read it from the
    // replicas.
    let lease = guard.finish(context.clock.monotonic());
    drop(guard);
    let outcome = match agreement {
        Err(error) => Err(error),
        Ok(Agreement::Kept) => Ok(seen_outcome),
        // This may be the proposal of an earlier round: later rounds may have found that the conditions no longer
        // held, or that other values follow.
        Ok(Agreement::Agreed { commit: agreed, contentions }) => {
            let outcome = applied_outcomes.remove(&agreed.origin);
            let committed = commit(context, &operation, agreed, options, contentions).await;
            committed
                .and_then(|()| outcome.ok_or_else(|| broken("a transaction that was agreed on was proposed")))
        }
    };
    if let Some(lease) = lease {
        lease.give_back(context);
    }
    outcome
}

/// The level of the agreement. One that only reads may have it as its level, as other reads do.
fn serial_level(transaction: &Transaction) -> Consistency {
    let options = &transaction.options;
    if transaction.is_read() && options.consistency.is_serial() {
        return options.consistency;
    }
    options.serial_consistency.unwrap_or(Consistency::Serial)
}

/// The error of a transaction whose turn has not come in time.
fn timed_out_in_line(operation: &Operation) -> RequestError {
    let (consistency, received, required) = (operation.serial, 0, 1);
    if !operation.is_write {
        return RequestError::ReadTimeout { consistency, received, required, data_present: false };
    }
    RequestError::WriteTimeout { consistency, received, required, write_type: WriteType::Cas, contentions: 0 }
}

/// The error of a statement about the state of a transaction that only a defect can break.
#[cold]
fn broken(statement: &str) -> RequestError {
    debug_assert!(false, "{statement}");
    RequestError::Server(format!("broken invariant: {statement}"))
}

/// A half-open range of positions within a partition.
type PositionRange = (Vec<u8>, Vec<u8>);

/// What the replicas read for a transaction.
struct PlannedReads {
    key: PartitionKey,
    ranges: Vec<PositionRange>,
    /// The largest number of live rows among them.
    max_rows: u64,
    max_bytes: u64,
}

/// The rows of the partition that the transaction reads.
///
/// Conditions on static columns alone also read the first row of the partition, which the answer shows if they do not
/// hold.
fn reads_of(transaction: &Transaction) -> Result<PlannedReads> {
    let mut wanted: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut names_row = false;
    for statement in &transaction.statements {
        let (plan, values) = (statement.plan(), statement.borrow());
        let table = &plan.table;
        if plan.conditions.is_none() && !change_feed::reads_first(plan) {
            continue;
        }
        if table.has_static_columns() {
            wanted.insert(STATIC_POSITION.to_vec());
        }
        if names_its_row(plan) {
            wanted.extend(positions(&plan.clustering, table, &values.bindings())?);
        }
        names_row |= plan.conditions.as_ref().is_some_and(|conditions| is_about_its_row(plan, conditions));
    }
    let (_, partition) =
        only_partition(transaction)?.ok_or_else(|| RequestError::invalid("A condition needs a partition"))?;
    let mut slices = Vec::new();
    if let Some(explicit) = transaction.explicit() {
        let read = rows_read(explicit)?;
        wanted.extend(read.positions);
        slices = read.ranges;
    }
    let reads_slices = !slices.is_empty();
    // Each of the rows above is at most one live row.
    let rows_max = wanted.len() as u64 + 1;
    let mut ranges = Vec::with_capacity(wanted.len() + 1);
    for position in wanted {
        ranges.push(row_range(partition, &position)?);
    }
    ranges.extend(slices);
    if !names_row && transaction.explicit().is_none() {
        ranges.push(regular_rows(partition)?);
    }
    // What one replica takes for the first row of a slice another one may know to be deleted. So slices are read whole.
    let (max_rows, max_bytes) = if reads_slices { (u64::MAX, SLICE_BYTES_MAX) } else { (rows_max, u64::MAX) };
    Ok(PlannedReads { key: partition.clone(), ranges, max_rows, max_bytes })
}

/// The reading of a token's record.
fn record_read(context: &ShardContext, token: &TransactionToken, key: &PartitionKey) -> Result<TableRead> {
    let order = ReadOrder {
        ranges: vec![token.range(key)?],
        now_seconds: context.now_seconds(),
        ..ReadOrder::UNLIMITED
    };
    Ok(TableRead { table_id: transaction_tokens::TABLE.0, order })
}

/// What a quorum remembers of a token: its record was read first.
fn remembered_by(
    context: &ShardContext,
    token: &TransactionToken,
    reads: &[ReadAnswer],
) -> Result<Option<Outcome>> {
    let now_seconds = context.now_seconds();
    let (merged, _) = merge_range(context, reads, 0, false, now_seconds)?;
    let Some(row) = merged.rows.iter().next() else { return Ok(None) };
    token.remembered(row.row, now_seconds)
}

/// Evaluates a transaction on what a quorum has read.
fn evaluate_agreed(
    context: &ShardContext,
    transaction: &Transaction,
    operation: &Operation,
    write: &WriteContext,
    reads: &[ReadAnswer],
) -> Result<Evaluation> {
    let is_wrong = context.has_bug(PlantedBug::DecideOnOneReading);
    let reads = if is_wrong { reads.get(..1).unwrap_or(reads) } else { reads };
    // Before the rows: what they have become since does not matter any more.
    if let Some(token) = transaction.token()
        && let Some(outcome) = remembered_by(context, token, reads)?
    {
        return Ok(Evaluation { changes: Vec::new(), outcome });
    }
    let rows = AgreedRows::merge(context, reads, operation.ranges_before(), write.now_seconds)?;
    if transaction.explicit().is_some() && rows.complete_ranges < operation.read.ranges.len() {
        return Err(too_many_rows());
    }
    evaluate(context, transaction, write, &rows)
}

/// Evaluates a transaction on the rows of this shard.
fn evaluate_here(context: &ShardContext, transaction: &Transaction) -> Result<Evaluation> {
    if let (Some(token), Some((_, key))) = (transaction.token(), only_partition(transaction)?)
        && let Some(outcome) = token.remembered_here(context, key)?
    {
        return Ok(Evaluation { changes: Vec::new(), outcome });
    }
    let write = write_context(context, &RequestOptions { timestamp: None, ..transaction.options.clone() });
    let rows = ShardRows { context, now_seconds: write.now_seconds };
    evaluate(context, transaction, &write, &rows)
}

/// Checks the conditions on the rows. If they hold, computes the changes. With a token, there is a change in any case: the record of the answer.
fn evaluate(
    context: &ShardContext,
    transaction: &Transaction,
    write: &WriteContext,
    rows: &dyn ExistingRows,
) -> Result<Evaluation> {
    let Some(explicit) = transaction.explicit() else {
        let Evaluation { changes, outcome } = evaluate_conditional(transaction, write, rows)?;
        let changes = change_feed::attach(context, changes, Grouping::Together, write, Some(rows))?;
        return Ok(Evaluation { changes, outcome });
    };
    let Evaluation { changes, outcome } = explicit::evaluate(&transaction.statements, explicit, write, rows)?;
    // What the replicas agree on has the entries of change feeds too.
    let changes = change_feed::attach(context, changes, Grouping::Together, write, Some(rows))?;
    let Some(token) = explicit.token.as_ref().filter(|_| !context.has_bug(PlantedBug::ForgetToken)) else {
        return Ok(Evaluation { changes, outcome });
    };
    let change = changes.first().map(|change| &change.mutation);
    let mutation = token.with_record(change, &explicit.key, &outcome, write)?;
    let change = PartitionMutation { token: explicit.key.token, table: explicit.table().clone(), mutation };
    Ok(Evaluation { changes: vec![change], outcome })
}

/// As [`evaluate`], of statements with conditions.
fn evaluate_conditional(
    transaction: &Transaction,
    write: &WriteContext,
    rows: &dyn ExistingRows,
) -> Result<Evaluation> {
    if transaction.is_batch() {
        check_mix(transaction)?;
    }
    let partition = only_partition(transaction)?.ok_or_else(|| broken("a transaction has statements"))?;
    let mut applied = true;
    for statement in &transaction.statements {
        let plan = statement.plan();
        let Some(conditions) = &plan.conditions else { continue };
        let row = current_row(statement, rows, write.now_seconds)?;
        let only_static =
            plan.table.is_static_compact() || (plan.touches_only_static() && plan.clustering.is_empty());
        let values = statement.borrow();
        applied &= hold(conditions, &plan.table, &row, only_static, &values.bindings())?;
    }
    if !applied {
        let (table, key) = partition;
        let outcome = refused(transaction, &PartitionRows::new(table, key, rows, write.now_seconds))?;
        return Ok(Evaluation { changes: Vec::new(), outcome });
    }
    let mut set = MutationSet::default();
    for statement in &transaction.statements {
        statement.add_to(&mut set, write, Some(rows))?;
    }
    let changes = set.finish(write, Some(rows))?;
    Ok(Evaluation { changes, outcome: accepted(partition.0) })
}

/// The rows that a quorum has read, merged.
struct AgreedRows {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first ranges of the order, as many as every answer has whole.
    complete_ranges: usize,
}

impl AgreedRows {
    /// Merges the ranges of the table, which begin at index `first` of the answers.
    fn merge(context: &ShardContext, reads: &[ReadAnswer], first: usize, now_seconds: u32) -> Result<Self> {
        let (mut rows, mut complete_ranges) = (BTreeMap::new(), 0);
        let Some(count) = reads.iter().map(Vec::len).min() else {
            return Err(broken("a transaction decides on what at least one replica has read"));
        };
        for range in first..count {
            let (merged, _) = merge_range(context, reads, range, false, now_seconds)?;
            complete_ranges += usize::from(merged.resume.is_none());
            for row in merged.rows.iter() {
                rows.insert(row.position.to_vec(), row.row.bytes.to_vec());
            }
        }
        Ok(Self { rows, complete_ranges })
    }
}

impl ExistingRows for AgreedRows {
    fn row(&self, _table: &Table, _key: &PartitionKey, position: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.get(position).cloned())
    }

    fn rows_of(
        &self,
        _table: &Table,
        _key: &PartitionKey,
        slice: &Slice,
        rows_max: usize,
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if slice.start >= slice.end {
            return Ok(Vec::new());
        }
        let of_slice = self.rows.range(slice.start.clone()..slice.end.clone());
        let there = of_slice.filter(|(_, row)| is_there(RowRef::new(row, 0)));
        Ok(there.take(rows_max).map(|(position, row)| (position.clone(), row.clone())).collect())
    }
}
