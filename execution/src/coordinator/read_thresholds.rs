//! Thresholds of what the read of a client may meet and find, with Cassandra's names, texts and reasons.
//!
//! Invariants:
//! * The coordinator counts for a page: it sees every row of the answers that it merges. Of several replicas the one counts that has met most.
//! * Tombstones are counted only in rows and answers with more bytes than the lowest threshold of tombstones: each takes a byte at least.
//! * What the node itself reads is held to nothing, nor are reads of virtual tables: drivers could not connect any more.
//!
//! DIFFERS: Cassandra counts on each replica, and tells a client of the tombstones of other nodes only with `read_thresholds_enabled`.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use helenus_config::{Config, DataSize};
use helenus_engine::{Mutation, RowRef};
use helenus_query::error::{FailureReason, RequestError, Result};
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::select::{Met, ResultPage};
use helenus_query::schema::catalog::TableKind;
use helenus_query::statement::Prepared;

use super::{Execution, Outcome, Request};
use crate::shard::context::ShardContext;
use crate::shard::receipt;

/// Bytes of a statement that warnings and errors show.
const SHOWN_BYTES_MAX: usize = 1 << 10;

/// Whether the read can fail by a threshold.
#[inline]
fn may_fail(config: &Config, request: &Request<'_, SelectPlan>) -> bool {
    (config.tombstone_failure_threshold > 0 || config.read_thresholds_enabled)
        && request.options.is_of_client
        && request.plan().table.kind == TableKind::Stored
}

/// Refuses a read that has met or found too much.
pub fn check(
    context: &ShardContext,
    request: &Request<'_, SelectPlan>,
    met: Met,
    answer_bytes: usize,
) -> Result<()> {
    let config = &context.node.config;
    if !may_fail(config, request) {
        return Ok(());
    }
    let above = |message: String, reason| {
        context.metrics.guardrail_failures.increment();
        let view = context.cluster_view();
        let this_member = view.topology.member(&context.node.host_id);
        Err(RequestError::ReadAborted {
            message,
            consistency: request.options.consistency,
            reason,
            address: this_member.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |member| member.native_address.ip()),
        })
    };
    let query = shown(&request.statement.text);
    if config.tombstone_failure_threshold > 0 && met.tombstones > config.tombstone_failure_threshold {
        let message = format!(
            "1 nodes scanned over {} tombstones and aborted the query {query} (see tombstone_failure_threshold)",
            met.tombstones
        );
        return above(message, FailureReason::TooManyTombstones);
    }
    if !config.read_thresholds_enabled {
        return Ok(());
    }
    if is_above(met.bytes, config.local_read_size_fail_threshold) {
        let message = format!(
            "1 nodes loaded over {} bytes and aborted the query {query} (see local_read_size_fail_threshold)",
            met.bytes
        );
        return above(message, FailureReason::ReadTooLarge);
    }
    if let Some(DataSize(limit)) = config.coordinator_read_size_fail_threshold
        && answer_bytes as u64 > limit
    {
        let message = format!(
            "Read on table {} has exceeded the size failure threshold of {limit} bytes (see coordinator_read_size_fail_threshold)",
            name(request.plan())
        );
        return above(message, FailureReason::ReadTooLarge);
    }
    Ok(())
}

/// The beginning of a statement, for a text.
fn shown(statement: &str) -> &str {
    &statement[..statement.floor_char_boundary(SHOWN_BYTES_MAX)]
}

fn is_above(bytes: u64, limit: Option<DataSize>) -> bool {
    limit.is_some_and(|DataSize(limit)| bytes > limit)
}

fn name(plan: &SelectPlan) -> String {
    format!("{}.{}", plan.table.keyspace, plan.table.name)
}

/// The execution, whose whole outcome is checked too.
pub fn checked(
    context: &Rc<ShardContext>,
    request: &Request<'_, SelectPlan>,
    execution: Execution,
) -> Execution {
    if !may_fail(&context.node.config, request) {
        return execution;
    }
    match execution {
        Execution::Ready(outcome) => Execution::Ready(check_outcome(context, request, outcome)),
        Execution::Pending(outcome) => {
            let (context, request) = (context.clone(), request.to_owned());
            Execution::Pending(Box::pin(async move {
                let outcome = outcome.await;
                let values = request.values.borrow();
                check_outcome(&context, &request.with(&values), outcome)
            }))
        }
    }
}

fn check_outcome(
    context: &ShardContext,
    request: &Request<'_, SelectPlan>,
    outcome: Result<Outcome>,
) -> Result<Outcome> {
    if let Ok(Outcome::Rows(page)) = &outcome {
        check(context, request, page.met, page.rows.len())?;
    }
    outcome
}

/// Adds what the client of an answered read is to be warned of.
pub fn warn(
    context: &ShardContext,
    statement: &Prepared<SelectPlan>,
    outcome: &Result<Outcome>,
    warnings: &mut Vec<String>,
) {
    if statement.plan.table.kind != TableKind::Stored {
        return;
    }
    let before = warnings.len();
    match outcome {
        Ok(Outcome::Rows(page)) => warn_of_page(&context.node.config, statement, page, warnings),
        // As Cassandra, since clients do not see the text of the error.
        Err(RequestError::ReadAborted { message, .. }) => warnings.push(message.clone()),
        _ => return,
    }
    if outcome.is_ok() {
        context.metrics.guardrail_warnings.add((warnings.len() - before) as u64);
    }
}

#[inline]
fn warn_of_page(
    config: &Config,
    statement: &Prepared<SelectPlan>,
    page: &ResultPage,
    warnings: &mut Vec<String>,
) {
    let Met { tombstones, bytes } = page.met;
    if config.tombstone_warn_threshold > 0 && tombstones > config.tombstone_warn_threshold {
        warnings.push(format!(
            "1 nodes scanned up to {tombstones} tombstones and issued tombstone warnings for query {} (see tombstone_warn_threshold)",
            shown(&statement.text)
        ));
    }
    if !config.read_thresholds_enabled {
        return;
    }
    if is_above(bytes, config.local_read_size_warn_threshold) {
        warnings.push(format!(
            "1 nodes loaded over {bytes} bytes and issued local read size warnings for query {} (see local_read_size_warn_threshold)",
            shown(&statement.text)
        ));
    }
    if let Some(DataSize(limit)) = config.coordinator_read_size_warn_threshold
        && page.rows.len() as u64 > limit
    {
        warnings.push(format!(
            "Read on table {} has exceeded the size warning threshold of {limit} bytes (see coordinator_read_size_warn_threshold)",
            name(&statement.plan)
        ));
    }
}

/// The least number of tombstones that matters; `None`: nobody wants to know of any.
#[inline]
fn least_tombstones(config: &Config) -> Option<u64> {
    [config.tombstone_warn_threshold, config.tombstone_failure_threshold]
        .into_iter()
        .filter(|threshold| *threshold > 0)
        .min()
}

/// What a row that was looked up is. Each of its tombstones takes a byte at least.
#[inline]
pub fn met_by_row(context: &ShardContext, row: RowRef<'_>, now_seconds: u32) -> Met {
    let bytes = row.bytes.len() as u64;
    let may_matter = least_tombstones(&context.node.config).is_some_and(|least| bytes > least);
    let tombstones = if may_matter { u64::from(row.visibility(now_seconds).1) } else { 0 };
    Met { tombstones, bytes }
}

/// The most that one of these answers has. A deletion that several replicas have is one.
pub fn met_by_answers<'a>(
    context: &ShardContext,
    answers: impl Iterator<Item = &'a [Mutation]>,
    now_seconds: u32,
) -> Met {
    let least = least_tombstones(&context.node.config);
    let mut most = Met::default();
    for partitions in answers {
        let bytes = partitions.iter().map(|partition| partition.bytes().len() as u64).sum();
        most.bytes = most.bytes.max(bytes);
        if least.is_some_and(|least| bytes > least) {
            most.tombstones = most.tombstones.max(receipt::tombstones_of(partitions, now_seconds));
        }
    }
    most
}
