//! How an INSERT, UPDATE, DELETE or BATCH would be executed.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::syntax::ast::BatchKind;
use helenus_observe::receipt::{CHARGE_OF_TRANSACTION, Count, Receipt};
use helenus_query::error::Result;
use helenus_query::plan::BatchPlan;
use helenus_query::plan::modify::{ModifyKind, ModifyPlan};
use helenus_query::run::modify::MutationSet;
use helenus_query::schema::catalog::Table;
use helenus_query::schema::options::Cap;
use helenus_query::statement::Prepared;

use super::statistics::Expected;
use super::steps::{Explained, FAN_OUT_MAX, Steps, add_replicas, counted, level, replica_count};
use crate::coordinator::bound_statement::{BoundStatement, Modification};
use crate::coordinator::local_write::write_context;
use crate::coordinator::replica::read::level_demand;
use crate::coordinator::{caps, change_feed};
use crate::shard::context::ShardContext;

/// Bytes of a row that is written, where nothing else is known: what is charged once.
const ROW_BYTES: u64 = 1;

/// Adds the steps of one modification.
pub async fn explain(
    context: &Rc<ShardContext>,
    explained: &Explained<'_>,
    statement: &Arc<Prepared<ModifyPlan>>,
    steps: &mut Steps,
) -> Result<()> {
    let modification = Modification::Single(statement.clone());
    let bound = BoundStatement::new(modification, explained.values.clone(), explained.call)?;
    let expected = Expected::of(context, &statement.plan.table).await?;
    let counts = counts(context, explained, &bound)?;
    add_statement(context, explained, &bound, &counts, steps);
    add_replicas(context, &bound.plan().table, bound.keys.iter().map(|key| key.token), steps);
    add_ways(context, explained, &bound, steps)?;
    warn(&bound, steps);
    if counts.get(Count::RangesRead) > 0 {
        expected.warn(&bound.plan().table, steps);
    }
    Ok(())
}

/// Adds the steps of a batch.
pub fn explain_batch(
    context: &Rc<ShardContext>,
    explained: &Explained<'_>,
    batch: &Arc<Prepared<BatchPlan>>,
    steps: &mut Steps,
) -> Result<()> {
    let bound = |index| {
        let modification = Modification::InBatch { batch: batch.clone(), index };
        BoundStatement::new(modification, explained.values.clone(), explained.call)
    };
    let statements: Vec<BoundStatement> =
        (0..batch.plan.statements.len()).map(bound).collect::<Result<_>>()?;
    let mut whole = Receipt::default();
    let mut partitions = BTreeSet::new();
    for statement in &statements {
        whole.add_all(&counts(context, explained, statement)?);
        partitions.extend(statement.keys.iter().map(|key| (statement.plan().table.id, key.token)));
    }
    // The statements of a partition are one mutation.
    let of_each = whole;
    whole.set_back(&[Count::PartitionsWritten, Count::Transactions], &Receipt::default());
    whole.add(Count::PartitionsWritten, partitions.len() as u64);
    let transactions = u64::from(of_each.get(Count::Transactions) > 0);
    whole.add(Count::Transactions, transactions);
    let kind = match batch.plan.kind {
        BatchKind::Logged => "logged",
        BatchKind::Unlogged => "unlogged",
        BatchKind::Counter => "of counters",
    };
    let detail = format!(
        "{kind}, {} in {}",
        counted(statements.len(), "statement"),
        counted(partitions.len(), "partition")
    );
    let (rows, charge) = (Some(whole.get(Count::RowsWritten)), Some(whole.charge()));
    steps.add_expected("BATCH", "", detail, rows, charge);
    if batch.plan.kind == BatchKind::Logged && partitions.len() > 1 {
        let detail =
            "the whole batch is written to the batch log first, and removed from it when it is applied";
        steps.add("BATCH LOG", "", detail);
    }
    for statement in &statements {
        let counts = counts(context, explained, statement)?;
        add_statement(context, explained, statement, &counts, steps);
        add_replicas(context, &statement.plan().table, statement.keys.iter().map(|key| key.token), steps);
        add_ways(context, explained, statement, steps)?;
        warn(statement, steps);
    }
    if partitions.len() > FAN_OUT_MAX {
        steps.warn(
            "",
            format!(
                "fan-out: a batch of {} partitions is slower than as many requests; keep batches for rows that belong together, best of \
                 one partition",
                partitions.len()
            ),
        );
    }
    Ok(())
}

/// The counts that a receipt of the modification is expected to have.
fn counts(context: &ShardContext, explained: &Explained<'_>, bound: &BoundStatement) -> Result<Receipt> {
    let (plan, partitions) = (bound.plan(), bound.keys.len() as u64);
    let mut counts = Receipt::default();
    counts.add(Count::PartitionsWritten, partitions);
    counts.add(Count::RowsWritten, partitions);
    counts.add(Count::BytesWritten, partitions * ROW_BYTES);
    counts.add(Count::ReplicasWritten, replica_count(context, &plan.table));
    if plan.conditions.is_some() {
        counts.add(Count::Transactions, partitions);
    }
    if reads_first(plan) {
        let serial = plan.conditions.is_some().then_some(explained.options.serial_consistency).flatten();
        counts.add(Count::RangesRead, partitions);
        counts.add(Count::RowsRead, partitions);
        counts.add(Count::BytesRead, partitions * ROW_BYTES);
        let level = serial.unwrap_or(explained.options.consistency);
        counts.add(Count::ReplicasRead, replicas_read(context, &plan.table, level, plan));
    } else if let Some(cap) = cap_before_removal(context, explained, bound)? {
        // The first rows are read again when those behind them were.
        let rows = 2 * partitions * u64::from(cap.rows);
        counts.add(Count::RangesRead, 2 * partitions);
        counts.add(Count::RowsRead, rows);
        counts.add(Count::BytesRead, rows * ROW_BYTES);
        let level = caps::level_before(explained.options.consistency);
        let demand = level_demand(context, &plan.table.keyspace, level);
        let replicas = demand.filter(|_| replica_count(context, &plan.table) > 1);
        counts.add(Count::ReplicasRead, replicas.map_or(1, |demand| u64::from(demand.required())));
    }
    Ok(counts)
}

/// The cap of the table, if the modification may remove rows under it.
fn cap_before_removal<'a>(
    context: &ShardContext,
    explained: &Explained<'_>,
    bound: &'a BoundStatement,
) -> Result<Option<&'a Cap>> {
    let Some(cap) = &bound.plan().table.options.cap else { return Ok(None) };
    let write = write_context(context, &explained.options);
    let mut set = MutationSet::default();
    bound.add_to(&mut set, &write, None)?;
    Ok(caps::removes_rows(&set.finish(&write, None)?)?.then_some(cap))
}

/// Replicas that are read before the write. A change of a counter or of an element of a list is read where it is led.
fn replicas_read(
    context: &ShardContext,
    table: &Table,
    level: cql_lite::frame::Consistency,
    plan: &ModifyPlan,
) -> u64 {
    if plan.conditions.is_none() || replica_count(context, table) == 1 {
        return 1;
    }
    let level = if level.is_serial() { level } else { cql_lite::frame::Consistency::Serial };
    level_demand(context, &table.keyspace, level).map_or(1, |demand| u64::from(demand.required()))
}

fn reads_first(plan: &ModifyPlan) -> bool {
    plan.conditions.is_some() || change_feed::reads_first(plan) || plan.is_counter()
}

fn add_statement(
    context: &ShardContext,
    explained: &Explained<'_>,
    bound: &BoundStatement,
    counts: &Receipt,
    steps: &mut Steps,
) {
    let plan = bound.plan();
    let operation = match plan.kind {
        ModifyKind::Insert => "INSERT",
        ModifyKind::Update => "UPDATE",
        ModifyKind::Delete => "DELETE",
    };
    let all = replica_count(context, &plan.table);
    let consistency = explained.options.consistency;
    let demand = level_demand(context, &plan.table.keyspace, consistency).filter(|_| all > 1);
    let needed = demand.map_or(1, |demand| u64::from(demand.required()));
    let partitions = counted(bound.keys.len(), "partition");
    let detail = format!("{partitions}, {}", level(consistency, needed, all));
    let (rows, charge) = (Some(counts.get(Count::RowsWritten)), Some(counts.charge()));
    steps.add_expected(operation, plan.table.full_name(), detail, rows, charge);
}

/// Adds what is done before the write.
fn add_ways(
    context: &ShardContext,
    explained: &Explained<'_>,
    bound: &BoundStatement,
    steps: &mut Steps,
) -> Result<()> {
    let plan = bound.plan();
    if plan.conditions.is_some() {
        let detail = "the row is read, and the replicas agree on the outcome (a lightweight transaction)";
        steps.add("CONDITION", plan.table.full_name(), detail);
    } else if plan.is_counter() {
        steps.add("READ", plan.table.full_name(), "a replica reads the counter before it changes it");
    } else if plan.needs_read() {
        steps.add("READ", plan.table.full_name(), "a replica reads the list before it changes it");
    } else if change_feed::reads_images(plan) {
        let detail = "a replica reads the rows before it changes them, for the images of the change feed";
        steps.add("READ", plan.table.full_name(), detail);
    } else if cap_before_removal(context, explained, bound)?.is_some() {
        let detail =
            "the first rows of the partition are read at a quorum, so that those behind the cap stay evicted";
        steps.add("READ", plan.table.full_name(), detail);
    }
    Ok(())
}

fn warn(bound: &BoundStatement, steps: &mut Steps) {
    let plan = bound.plan();
    let table = plan.table.full_name();
    if bound.keys.len() > FAN_OUT_MAX {
        let partitions = bound.keys.len();
        steps.warn(
            table.as_str(),
            format!("fan-out: {partitions} partitions are written in one request; send one for each of them"),
        );
    }
    let deletes_range = plan.kind == ModifyKind::Delete
        && plan.operations.is_empty()
        && !plan.clustering.is_empty()
        && !plan.has_full_clustering();
    if deletes_range {
        steps.warn(
            table.as_str(),
            "tombstones: the deletion of a range is kept until gc_grace_seconds have passed, and reads of the partition look at it; \
             delete whole partitions, or let rows expire",
        );
    }
    if plan.conditions.is_some() {
        steps.warn(
            table.as_str(),
            format!(
                "transaction: it takes several rounds between the replicas ({CHARGE_OF_TRANSACTION} a replica in the charge); without IF \
                 the write takes one"
            ),
        );
    }
    if plan.needs_read() {
        steps.warn(
            table.as_str(),
            "read before write: elements of a list are found by their place or value; a set or map needs no read",
        );
    }
}
