//! Checks of requests against the guardrails of the node. Without a guardrail that concerns the request, they cost one branch.

use cql_lite::frame::Consistency;
use helenus_query::bind::BorrowedValues;
use helenus_query::error::Result;
use helenus_query::functions::CallContext;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::term::Bindings;
use helenus_query::run::modify::expand;
use helenus_query::statement::Statement;

use crate::coordinator::RequestOptions;
use crate::coordinator::batch_request::BatchRequest;
use crate::shard::context::ShardContext;

/// Checks a statement with its values. CREATE, ALTER and DROP are checked where they are planned.
pub fn check(
    context: &ShardContext,
    statement: &Statement,
    values: &BorrowedValues<'_>,
    call: &CallContext,
    options: &RequestOptions,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let guardrails = &context.node.guardrails;
    let bindings = Bindings { values, call };
    match statement {
        Statement::Select(statement) if guardrails.guard_selects() => context.guard(warnings, |warnings| {
            guardrails.check_read_levels(&[options.consistency.name()], warnings)?;
            guardrails.check_select(&statement.plan, &bindings, options.page_rows, warnings)
        }),
        Statement::Modify(statement) if guardrails.guard_modifications() => {
            context.guard(warnings, |warnings| {
                check_levels(context, statement.plan.conditions.is_some(), options, warnings)?;
                check_one(context, &statement.plan, &bindings, warnings)
            })
        }
        Statement::Batch(statement) if guardrails.guard_modifications() => {
            context.guard(warnings, |warnings| {
                let plans = &statement.plan.statements;
                check_levels(context, plans.iter().any(|plan| plan.conditions.is_some()), options, warnings)?;
                plans.iter().try_for_each(|plan| check_one(context, plan, &bindings, warnings))
            })
        }
        Statement::Truncate(_) => context.guard(warnings, |warnings| guardrails.check_truncate(warnings)),
        _ => Ok(()),
    }
}

/// Checks a BATCH message.
pub fn check_batch(context: &ShardContext, request: &BatchRequest, warnings: &mut Vec<String>) -> Result<()> {
    if !context.node.guardrails.guard_modifications() {
        return Ok(());
    }
    context.guard(warnings, |warnings| {
        let is_conditional = request.plans().any(|plan| plan.conditions.is_some());
        check_levels(context, is_conditional, &request.options, warnings)?;
        request.statements.iter().try_for_each(|statement| {
            let values = statement.borrow();
            context.node.guardrails.check_modification(statement.plan(), &values.bindings(), warnings)
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
    context.node.guardrails.check_write_levels(&levels, warnings)
}

fn check_one(
    context: &ShardContext,
    plan: &ModifyPlan,
    bindings: &Bindings<'_>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let guardrails = &context.node.guardrails;
    if plan.json.is_none() {
        return guardrails.check_modification(plan, bindings, warnings);
    }
    let (expanded, _) = expand(plan, bindings)?;
    guardrails.check_modification(expanded.as_deref().unwrap_or(plan), bindings, warnings)
}
