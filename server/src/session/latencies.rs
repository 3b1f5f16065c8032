//! How long requests took, by what they do and by table. A request counts when it is answered, whatever the answer.

use std::cell::RefCell;
use std::time::Duration;

use hashbrown::HashMap;
use helenus_engine::TableId;
use helenus_execution::shard::context::ShardContext;
use helenus_observe::metrics::{Operation, Timings, TimingsSnapshot};
use helenus_query::plan::restrictions::PartitionRestriction;
use helenus_query::schema::catalog::TableKind;
use helenus_query::statement::Statement;

/// What a request does.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub operation: Operation,
    /// `None`: several tables, or one that is computed.
    pub table: Option<TableId>,
}

impl Measured {
    /// `None`: the statement neither reads nor writes rows.
    #[inline]
    pub fn of(statement: &Statement) -> Option<Self> {
        let (operation, table) = match statement {
            Statement::Select(select) => {
                let is_scan = matches!(select.plan.restrictions.partition, PartitionRestriction::Range(_));
                (if is_scan { Operation::Scan } else { Operation::Read }, &select.plan.table)
            }
            Statement::Modify(modify) => {
                let is_conditional = modify.plan.conditions.is_some();
                (if is_conditional { Operation::Conditional } else { Operation::Write }, &modify.plan.table)
            }
            Statement::Batch(batch) => {
                return Some(Self::of_batch(
                    batch.plan.statements.iter().any(|plan| plan.conditions.is_some()),
                ));
            }
            Statement::Transaction(transaction) => (Operation::Conditional, &transaction.plan.table),
            Statement::Truncate(_)
            | Statement::Check(_)
            | Statement::Use(_)
            | Statement::Schema(_)
            | Statement::Roles(_)
            | Statement::Describe(_)
            | Statement::Explain(_) => {
                return None;
            }
        };
        let is_stored = table.kind == TableKind::Stored;
        Some(Self { operation, table: is_stored.then(|| table.engine_id()) })
    }

    pub fn of_batch(is_conditional: bool) -> Self {
        let operation = if is_conditional { Operation::Conditional } else { Operation::Write };
        Self { operation, table: None }
    }
}

/// What is known about a table, each part made with its first request.
type OfTable = [Option<Box<Timings>>; Operation::ALL.len()];

/// The durations of requests to the tables, on one shard.
#[derive(Debug, Default)]
pub struct Latencies(RefCell<HashMap<TableId, OfTable>>);

impl Latencies {
    /// Records the duration of a request that ends `now` (monotonic time).
    #[inline]
    pub fn record(context: &ShardContext, measured: Measured, duration_us: u64, now: Duration) {
        context.metrics.operations[measured.operation as usize].record(duration_us);
        if let Some(table) = measured.table {
            let mut tables = context.layers.get::<Self>().0.borrow_mut();
            let record = |of_table: &mut OfTable| {
                of_table[measured.operation as usize].get_or_insert_default().record(duration_us, now);
            };
            if let Some(of_table) = tables.get_mut(&table) {
                return record(of_table);
            }
            forget_dropped(context, &mut tables);
            record(tables.entry(table).or_default());
        }
    }

    /// What this shard has recorded of each table, in the order of [`Operation::ALL`]. Forgets tables that do not exist any more.
    pub fn of_tables(context: &ShardContext) -> Vec<(TableId, [TimingsSnapshot; Operation::ALL.len()])> {
        let mut tables = context.layers.get::<Self>().0.borrow_mut();
        forget_dropped(context, &mut tables);
        let now = context.clock.monotonic();
        let snapshot = |timings: &Option<Box<Timings>>| {
            timings.as_ref().map_or_else(TimingsSnapshot::default, |timings| timings.snapshot(now))
        };
        tables.iter().map(|(id, of_table)| (*id, of_table.each_ref().map(snapshot))).collect()
    }
}

#[cold]
fn forget_dropped(context: &ShardContext, tables: &mut HashMap<TableId, OfTable>) {
    let view = context.catalog_view();
    tables.retain(|id, _| view.table(*id).is_some());
}

/// In whole microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
