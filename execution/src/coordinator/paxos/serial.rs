//! SELECT at SERIAL and `LOCAL_SERIAL`: earlier agreements are finished first, and data that was returned once never
//! vanishes.
//!
//! One answer (or one page) is one reading: the rows of a quorum in the very turns in which the replicas promised to
//! accept nothing older. A reading that is too short, because replicas stopped at a limit, is discarded and repeated
//! with higher limits. If the client pages, the page ends where the shortest reading ended instead.

use std::rc::Rc;

use helenus_query::error::{RequestError, Result};
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::select::{Flow, ResultPage, SelectRun};
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::{PartitionKey, SourceRow};

use super::message::{ReadAnswer, ReadOrder};
use super::partition_queue::QueueGuard;
use super::reading::merge_range;
use super::round::{Agreement, Verdict, agree};
use crate::coordinator::key_ranges::KeyRange;
use crate::coordinator::paxos::operation::Operation;
use crate::coordinator::prepared_read::{PreparedRead, end_early};
use crate::coordinator::{Outcome, OwnedRequest};
use crate::shard::context::ShardContext;
use crate::shard::receipt;

/// Most bytes of versions in a replica's answer to the first attempt.
const FIRST_BYTES: u64 = 4 << 20;
/// Rows that a replica reads in addition to the wanted ones, so that a few deletions known to other replicas do not
/// shorten the answer.
const SPARE_ROWS: u64 = 16;

/// Whether reads of a table go through its replicas.
pub fn is_replicated(context: &ShardContext, table: &Table) -> bool {
    let view = context.cluster_view();
    !view.is_alone() && view.placement(&table.keyspace).is_some()
}

/// Executes a SELECT on the shard where all operations that this node coordinates on the partition run.
pub async fn select(context: Rc<ShardContext>, request: OwnedRequest<SelectPlan>) -> Result<Outcome> {
    let owner = {
        let values = request.values.borrow();
        let prepared = PreparedRead::new(&context, &request.with(&values))?;
        prepared.ranges.first().and_then(|range| range.owner).unwrap_or(context.index)
    };
    context.run_on(owner, move |context| Box::pin(select_at_owner(context, request))).await?
}

async fn select_at_owner(context: Rc<ShardContext>, request: OwnedRequest<SelectPlan>) -> Result<Outcome> {
    let values = request.values.borrow();
    let request = request.with(&values);
    let plan = request.plan();
    let deadline = request.options.deadline_or(&context, context.node.config.cas_contention_timeout_ms);
    let mut limits = None;
    let mark = receipt::mark();
    loop {
        receipt::set_back(&mark);
        let prepared = PreparedRead::new(&context, &request)?;
        let run = prepared.run(&request)?;
        let PreparedRead { ranges, now_seconds, .. } = prepared;
        if run.is_exhausted() {
            return run.page(false).map(Outcome::Rows);
        }
        if ranges.is_empty() {
            return run.finish().map(Outcome::Rows);
        }
        let wanted = (run.wanted_rows() as u64).saturating_add(SPARE_ROWS);
        let (max_rows, max_bytes) = *limits.get_or_insert((wanted, FIRST_BYTES));
        let operation = Operation {
            table: plan.table.clone(),
            key: only_partition(&ranges)?,
            serial: request.options.consistency,
            is_write: false,
            is_unanimous: false,
            read_before: Vec::new(),
            read: ReadOrder {
                ranges: ranges.iter().map(|range| (range.start.clone(), range.end.clone())).collect(),
                reversed: plan.reversed,
                now_seconds,
                max_rows,
                max_bytes,
                max_tombstones: u64::MAX,
            },
            deadline,
        };
        let mut reads = Vec::new();
        let mut guard = take_turn(&context, &operation).await?;
        let agreement = agree(&context, &operation, &mut guard, &mut |_, answers| {
            reads = answers.to_vec();
            Ok(Verdict::Keep)
        })
        .await;
        if let Some(lease) = guard.finish(context.clock.monotonic()) {
            lease.give_back(&context);
        }
        drop(guard);
        let agreement = agreement?;
        if let Agreement::Agreed { .. } = agreement {
            return Err(RequestError::Server("a read has changed something".to_owned()));
        }
        let is_paged = request.options.page_rows.is_some();
        if let Some(page) = page_of(&context, plan, run, &ranges, &reads, now_seconds, is_paged)? {
            return Ok(Outcome::Rows(page));
        }
        limits = Some((max_rows.saturating_mul(4), max_bytes.saturating_mul(4)));
    }
}

/// Waits for earlier operations of this node on the partition.
async fn take_turn(context: &Rc<ShardContext>, operation: &Operation) -> Result<QueueGuard> {
    let now = context.clock.monotonic();
    let turns = &context.paxos().queues;
    tokio::select! {
        biased;
        turn = turns.share(*operation.table.id.as_bytes(), operation.key.bytes.clone(), now) => Ok(turn),
        () = context.clock.sleep(operation.deadline.saturating_sub(now)) => Err(RequestError::ReadTimeout {
            consistency: operation.serial,
            received: 0,
            required: 1,
            data_present: false,
        }),
    }
}

/// The partition that contains all ranges.
fn only_partition(ranges: &[KeyRange]) -> Result<PartitionKey> {
    let several = || {
        RequestError::invalid(
            "SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time",
        )
    };
    let mut found: Option<PartitionKey> = None;
    for range in ranges {
        if range.owner.is_none() {
            return Err(several());
        }
        let key = helenus_engine::key::KeyRef::parse(&range.start)
            .map_err(|error| RequestError::Server(error.to_string()))?;
        let key = PartitionKey { token: key.token, bytes: key.partition_key.to_vec() };
        match &found {
            Some(first) if *first != key => return Err(several()),
            _ => found = Some(key),
        }
    }
    found.ok_or_else(several)
}

/// The page made from a reading; `None`: the reading was too short and must be repeated.
fn page_of(
    context: &ShardContext,
    plan: &SelectPlan,
    mut run: SelectRun<'_>,
    ranges: &[KeyRange],
    reads: &[ReadAnswer],
    now_seconds: u32,
    is_paged: bool,
) -> Result<Option<ResultPage>> {
    for (index, range) in ranges.iter().enumerate() {
        // A replica that did not reach this range has sent nothing about it.
        let left = if reads.iter().any(|read| read.len() <= index) {
            Some(range.clone())
        } else {
            let (merged, met) = merge_range(context, reads, index, range.reversed, now_seconds)?;
            run.note_met(met);
            for row in merged.rows.iter() {
                let source =
                    SourceRow { partition_key: row.partition_key(), position: row.position, row: row.row };
                match run.row(&source)? {
                    Flow::Continue => {}
                    Flow::SkipPartition => return run.finish().map(Some),
                    Flow::PageFull => return run.page(true).map(Some),
                    Flow::Done => return run.page(false).map(Some),
                }
            }
            merged.resume.map(|bound| {
                if range.reversed {
                    KeyRange { end: bound, ..range.clone() }
                } else {
                    KeyRange { start: bound, ..range.clone() }
                }
            })
        };
        let Some(left) = left else { continue };
        let may_end = is_paged && !run.has_open_group() && plan.result_order.is_empty();
        if may_end && let Some(more) = end_early(&mut run, &left)? {
            return run.page(more).map(Some);
        }
        return Ok(None);
    }
    run.finish().map(Some)
}
