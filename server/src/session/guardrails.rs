//! Checks of requests against the guardrails of the node. Without a guardrail that concerns the request, they cost one branch.
//!
//! As in Cassandra they do not hold for superusers. Who is anonymous is held to them.

use cql_lite::frame::Consistency;
use helenus_query::bind::BorrowedValues;
use helenus_query::error::Result;
use helenus_query::functions::CallContext;
use helenus_query::plan::term::Bindings;
use helenus_query::schema::catalog::Table;
use helenus_query::statement::Statement;

use helenus_execution::coordinator::RequestOptions;
use helenus_execution::coordinator::batch_request::BatchRequest;
use helenus_execution::coordinator::transaction::Transaction;
use helenus_execution::shard::context::ShardContext;

/// Checks a statement with its values. CREATE, ALTER and DROP are checked where they are planned, and batches by
/// [`check_batch`]. An INSERT JSON is expanded before. `user`: the role of the client.
pub fn check(
    context: &ShardContext,
    statement: &Statement,
    values: &BorrowedValues<'_>,
    call: &CallContext,
    options: &RequestOptions,
    user: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let guardrails = context.guardrails();
    let bindings = Bindings { values, call };
    match statement {
        Statement::Select(_) if !guardrails.guards_selects() => Ok(()),
        Statement::Modify(_) if !guardrails.guards_modifications() => Ok(()),
        Statement::Select(_) | Statement::Modify(_) | Statement::Transaction(_) | Statement::Truncate(_)
            if context.is_superuser(user) =>
        {
            Ok(())
        }
        Statement::Select(statement) => context.guard(warnings, |warnings| {
            guardrails.check_read_levels(&[options.consistency.name()], warnings)?;
            let compares = guardrails.intersect_filtering_query.is_set()
                && compares_replicas(context, &statement.plan.table, options.consistency);
            guardrails.check_select(&statement.plan, &bindings, options.page_rows, compares, warnings)
        }),
        Statement::Modify(statement) => context.guard(warnings, |warnings| {
            check_levels(context, statement.plan.conditions.is_some(), options, warnings)?;
            guardrails.check_modification(&statement.plan, &bindings, warnings)
        }),
        // Its modifications are checked by [`check_transaction`].
        Statement::Transaction(statement) => context.guard(warnings, |warnings| {
            for select in statement.plan.reads() {
                guardrails.check_select(select, &bindings, None, false, warnings)?;
            }
            if statement.plan.modifications.is_empty() {
                let serial = options.serial_consistency.unwrap_or(Consistency::Serial);
                let level = if options.consistency.is_serial() { options.consistency } else { serial };
                return guardrails.check_read_levels(&[level.name()], warnings);
            }
            check_levels(context, true, options, warnings)
        }),
        Statement::Truncate(_) => context.guard(warnings, |warnings| guardrails.check_truncate(warnings)),
        _ => Ok(()),
    }
}

/// Whether a read at this level puts the answers of several replicas together, by the factor of the keyspace.
fn compares_replicas(context: &ShardContext, table: &Table, level: Consistency) -> bool {
    let is_of_one =
        matches!(level, Consistency::Any | Consistency::One | Consistency::LocalOne | Consistency::NodeLocal);
    let catalog = context.catalog();
    !is_of_one && catalog.keyspace(&table.keyspace).is_some_and(|it| it.replication.replica_count() > 1)
}

/// Checks a batch. `user`: the role of the client.
pub fn check_batch(
    context: &ShardContext,
    request: &BatchRequest,
    user: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let guardrails = context.guardrails();
    if !guardrails.guards_modifications() || context.is_superuser(user) {
        return Ok(());
    }
    context.guard(warnings, |warnings| {
        let is_conditional = request.plans().any(|plan| plan.conditions.is_some());
        check_levels(context, is_conditional, &request.options, warnings)?;
        request.statements.iter().try_for_each(|statement| {
            let values = statement.borrow();
            guardrails.check_modification(statement.plan(), &values.bindings(), warnings)
        })
    })
}

/// Checks the modifications of a transaction whose values are known. The others are checked when the rows are read that they are computed
/// of. `user`: the role of the client.
pub fn check_transaction(
    context: &ShardContext,
    transaction: &Transaction,
    user: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    if !context.guardrails().guards_modifications() || context.is_superuser(user) {
        return Ok(());
    }
    context.guard(warnings, |warnings| {
        transaction.known_statements().try_for_each(|statement| {
            let values = statement.borrow();
            context.guardrails().check_modification(statement.plan(), &values.bindings(), warnings)
        })
    })
}

fn check_levels(
    context: &ShardContext,
    is_conditional: bool,
    options: &RequestOptions,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let serial = options.serial_consistency.filter(|_| is_conditional);
    let levels: Vec<&str> = serial.into_iter().chain([options.consistency]).map(Consistency::name).collect();
    context.guardrails().check_write_levels(&levels, warnings)
}
