//! One stream session of a transfer: the tasks (tables) of one shard of a source, chunk by chunk, on one of this
//! node's shards. While a chunk is applied, the next one is being requested, and earlier ones become durable.
//!
//! Chunks bypass the commit log: the source still has the data, and writing it twice would slow down the requests
//! served meanwhile. Chunks are durable when their memtables have been flushed. Only a single chunk (a small table,
//! or the rest of one) is logged: a file for each would cost more.
//!
//! Invariants:
//! * A chunk with a wrong checksum, or with rows that were not requested, is not applied.
//! * Progress is stored only after the rows are durable.
//! * A chunk that was requested before its table was truncated here is not applied.

use crate::streaming::progress::Transfers;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{self, FutureExt, LocalBoxFuture, MaybeDone};
use helenus_engine::io::RateLimiter;
use helenus_engine::{EngineError, Load, LogPosition, Mutation, MutationRef, TableId};
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;

use super::message::{FetchRequest, StreamChunk, StreamRequest, StreamResponse};
use super::place::Place;
use super::progress::{self, StreamTaskProgress};
use crate::streaming::attempt::{Attempt, StreamSession, StreamTask, TransferError};
use helenus_execution::coordinator::paxos;
use helenus_execution::coordinator::paxos::late_commit::Remainder;
use helenus_execution::coordinator::replica::apply::apply_own;
use helenus_execution::shard::context::ShardContext;
use helenus_ring::intervals;

/// Timeout of the request for a chunk.
const CHUNK_DEADLINE: Duration = Duration::from_secs(10);
/// Pauses before a chunk is requested again; after the last one the session fails.
const RETRY_PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];
/// The time between two looks whether an attempt goes on that waits for compactions.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Bytes that are applied in one turn.
const TURN_BYTES: usize = 32 << 10;

/// Streams all tasks of a session, one after the other.
pub(super) async fn run_session(
    context: Rc<ShardContext>,
    session: StreamSession,
    attempt: Arc<Attempt>,
) -> Result<(), TransferError> {
    let mut limiter = context.node.settings.streams.clone();
    for task in &session.tasks {
        // A task without progress begins at its start.
        let known = attempt.progress.get(&task.key).cloned().unwrap_or_default();
        if !known.is_done {
            run_task(&context, &session, task, &attempt, known, &mut limiter).await?;
        }
    }
    Ok(())
}

async fn run_task(
    context: &Rc<ShardContext>,
    session: &StreamSession,
    task: &StreamTask,
    attempt: &Arc<Attempt>,
    mut progress: StreamTaskProgress,
    limiter: &mut RateLimiter,
) -> Result<(), TransferError> {
    let wanted = progress.wanted.clone();
    let mut next = fetch(context, session, task, attempt, &wanted, progress.resume.clone()).await?;
    let is_one_chunk = next.as_ref().is_some_and(|first| first.chunk.resume.is_none());
    let load = if is_one_chunk { Load::Logged } else { Load::PastLog };
    let mut applied = Applied::new();
    let (mut earlier, mut stores_progress) = (None::<Earlier<'_>>, true);
    while let Some(fetched) = next.take() {
        let chunk = &fetched.chunk;
        let bytes = chunk.mutations.len() as u64;
        limiter.spend(bytes, &*context.clock).await;
        progress.bytes += bytes;
        progress.resume.clone_from(&chunk.resume);
        let resume = chunk.resume.clone();
        let following = async {
            match resume {
                Some(resume) => fetch(context, session, task, attempt, &wanted, Some(resume)).await,
                None => Ok(None),
            }
        };
        let applying = apply_chunk(context, session, task, attempt, load, &wanted, fetched);
        let both = future::join(applying, following);
        let (chunk_applied, fetched) = Earlier::beside(&mut earlier, both).await;
        applied.extend(chunk_applied?);
        let share_done = progress.share_done();
        Transfers::of(&context.node).note_unit(attempt.epoch, task.key, progress.bytes, share_done, false);
        next = match fetched {
            Ok(next) => next,
            Err(error) => {
                make_durable(context, task.table, &applied).await?;
                store(context, attempt, task, &progress).await?;
                return Err(error);
            }
        };
        match Earlier::take_outcome(&mut earlier) {
            Some((durable, Ok(()))) => store(context, attempt, task, &durable).await?,
            // A flush has failed, perhaps of another table. The flush at the end of this task decides.
            Some((_, Err(error))) => {
                tracing::warn!(%error, "the progress of a stream task could not be stored; it will be stored at the end of the task");
                stores_progress = false;
            }
            None => {}
        }
        if earlier.is_none() && next.is_some() && stores_progress {
            let owners = applied.keys().copied().collect();
            let in_files = in_files(context, task.table, owners).boxed_local();
            earlier = Some(Earlier { progress: progress.clone(), in_files: future::maybe_done(in_files) });
        }
    }
    drop(earlier);
    make_durable(context, task.table, &applied).await?;
    progress.resume = None;
    progress.is_done = true;
    store(context, attempt, task, &progress).await?;
    Transfers::of(&context.node).note_unit(attempt.epoch, task.key, progress.bytes, 1.0, true);
    Ok(())
}

/// A received chunk.
struct Fetched {
    chunk: StreamChunk,
    /// When it was requested, in microseconds since the epoch.
    asked_micros: i64,
}

/// The shards of this node on which chunks were applied, each with its last position in the commit log; `None`: the
/// log does not have all of the chunks.
type Applied = BTreeMap<usize, Option<LogPosition>>;

/// The progress of the task some chunks ago, and the flush of those chunks.
struct Earlier<'a> {
    progress: StreamTaskProgress,
    in_files: MaybeDone<LocalBoxFuture<'a, Result<(), TransferError>>>,
}

impl Earlier<'_> {
    /// Runs some work, and polls the flush meanwhile.
    async fn beside<T>(earlier: &mut Option<Self>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        future::poll_fn(|task| {
            if let Some(earlier) = earlier {
                // The outcome is stored in `earlier`.
                let _ = earlier.in_files.poll_unpin(task);
            }
            work.as_mut().poll(task)
        })
        .await
    }

    /// Takes the progress, and whether all of it is in files. Returns `Some` once.
    fn take_outcome(earlier: &mut Option<Self>) -> Option<(StreamTaskProgress, Result<(), TransferError>)> {
        let outcome = Pin::new(&mut earlier.as_mut()?.in_files).take_output()?;
        earlier.take().map(|known| (known.progress, outcome))
    }
}

/// Waits until everything that was applied on these shards of this node is in files.
async fn in_files(
    context: &Rc<ShardContext>,
    table: TableId,
    owners: Vec<usize>,
) -> Result<(), TransferError> {
    let waits = owners.into_iter().map(|owner| {
        context.run_on(owner, move |context| Box::pin(async move { context.shard.in_files(table).await }))
    });
    future::join_all(waits).await.into_iter().try_for_each(|outcome| unless_dropped(outcome?))
}

/// Makes everything that was applied durable, in periodic mode too: the source may delete the data afterwards.
async fn make_durable(
    context: &Rc<ShardContext>,
    table: TableId,
    applied: &Applied,
) -> Result<(), TransferError> {
    let waits = applied.iter().map(|(&owner, &position)| {
        context.run_on(owner, move |context| {
            Box::pin(async move {
                match position {
                    Some(position) => context.shard.on_disk(position).await,
                    None => context.shard.flush(table).await,
                }
            })
        })
    });
    future::join_all(waits).await.into_iter().try_for_each(|outcome| unless_dropped(outcome?))
}

/// A table that was dropped meanwhile needs nothing.
fn unless_dropped(outcome: Result<(), EngineError>) -> Result<(), TransferError> {
    match outcome {
        Ok(()) | Err(EngineError::UnknownTable(_)) => Ok(()),
        Err(error) => Err(TransferError::Here(error.to_string())),
    }
}

/// Requests a chunk until it arrives; `None`: the table was dropped.
async fn fetch(
    context: &Rc<ShardContext>,
    session: &StreamSession,
    task: &StreamTask,
    attempt: &Attempt,
    wanted: &[RangeInclusive<i64>],
    resume_from: Option<Vec<u8>>,
) -> Result<Option<Fetched>, TransferError> {
    let peer = session.source.host_id;
    let request = StreamRequest::Fetch(FetchRequest {
        epoch: attempt.epoch,
        table_id: u128::from_be_bytes(task.table.0),
        ranges: intervals::ranges(wanted),
        shard: session.shard,
        resume_from,
        max_bytes: context.node.config.stream_chunk_bytes,
    });
    let mut pauses = RETRY_PAUSES.iter();
    loop {
        attempt.check(context)?;
        let asked_micros = context.clock.now_micros();
        let error = match context.ask(&session.source, session.shard, &request, CHUNK_DEADLINE).await {
            Ok(StreamResponse::StreamChunk(chunk)) => match check(&chunk, &request) {
                Ok(()) => return Ok(Some(Fetched { chunk, asked_micros })),
                Err(reason) => TransferError::Damaged { peer, table: task.table, reason },
            },
            Ok(_) => {
                let reason = "not a chunk".to_owned();
                TransferError::Damaged { peer, table: task.table, reason }
            }
            Err(PeerError::Failed(Failure::StaleRing { epoch })) if epoch > attempt.epoch => {
                return Err(TransferError::RingChanged);
            }
            // Dropped everywhere. If only the source does not know the table (yet), the request is repeated.
            Err(PeerError::Failed(Failure::UnknownTable { .. })) if !is_known(context, task.table) => {
                return Ok(None);
            }
            Err(error) => TransferError::Peer { peer, error },
        };
        let Some(pause) = pauses.next() else { return Err(error) };
        tracing::warn!(%error, "a chunk will be requested again");
        context.clock.sleep(*pause).await;
        if !context.cluster_view().is_alive(&peer) {
            return Err(error);
        }
    }
}

fn is_known(context: &ShardContext, table: TableId) -> bool {
    context.shard.statistics(table).is_ok()
}

fn check(chunk: &StreamChunk, request: &StreamRequest) -> Result<(), String> {
    if crc32fast::hash(&chunk.mutations) != chunk.crc32 {
        return Err("the checksum does not match".to_owned());
    }
    let StreamRequest::Fetch(request) = request else { return Ok(()) };
    let place = |resume: &Option<Vec<u8>>| {
        resume.as_deref().map(Place::decode).transpose().map_err(|error| error.to_string())
    };
    match (place(&chunk.resume)?, place(&request.resume_from)?) {
        // Otherwise the stream would never end.
        (Some(resume), Some(before)) if resume <= before => Err("it does not advance".to_owned()),
        _ => Ok(()),
    }
}

/// Applies a chunk on the shards that own its tokens.
async fn apply_chunk(
    context: &Rc<ShardContext>,
    session: &StreamSession,
    task: &StreamTask,
    attempt: &Arc<Attempt>,
    load: Load,
    intervals: &[RangeInclusive<i64>],
    fetched: Fetched,
) -> Result<Applied, TransferError> {
    let Fetched { chunk, asked_micros } = fetched;
    let damaged =
        |reason: String| TransferError::Damaged { peer: session.source.host_id, table: task.table, reason };
    let mut by_owner: BTreeMap<usize, Vec<Bytes>> = BTreeMap::new();
    let mut rest = Bytes::from(chunk.mutations);
    while let Some(length) = rest.first_chunk::<4>().map(|length| u32::from_be_bytes(*length) as usize) {
        let _ = rest.split_to(4);
        if length > rest.len() {
            return Err(damaged("a mutation is cut short".to_owned()));
        }
        let bytes = rest.split_to(length);
        let mutation = MutationRef::parse(&bytes).map_err(|error| damaged(error.to_string()))?;
        let token = mutation.token;
        if mutation.table != task.table || !holds(intervals, token) {
            return Err(damaged("it has rows that were not requested".to_owned()));
        }
        by_owner.entry(context.node.shard_of(token)).or_default().push(bytes);
    }
    if !rest.is_empty() {
        return Err(damaged("it is cut short".to_owned()));
    }
    let jobs = by_owner.into_iter().map(|(owner, mutations)| async move {
        let (table, attempt) = (task.table, Arc::clone(attempt));
        let applied = context
            .run_on(owner, move |context| {
                Box::pin(apply(context, attempt, table, mutations, load, asked_micros))
            })
            .await??;
        Ok::<_, TransferError>((owner, applied))
    });
    Ok(future::try_join_all(jobs).await?.into_iter().collect())
}

fn holds(intervals: &[RangeInclusive<i64>], token: i64) -> bool {
    let index = intervals.partition_point(|interval| *interval.end() < token);
    intervals.get(index).is_some_and(|interval| interval.contains(&token))
}

/// Waits as long as compactions are behind, unless the attempt is given up.
async fn admit(context: &ShardContext, attempt: &Attempt) -> Result<(), TransferError> {
    loop {
        attempt.check(context)?;
        match context.shard.admit_transfer(LOOK_PERIOD).await {
            Err(EngineError::Backlog { .. }) => {}
            admitted => return admitted.map_err(|error| TransferError::Here(error.to_string())),
        }
    }
}

/// Applies mutations. Returns the last position in the shard's commit log, if the log has all of them.
async fn apply(
    context: Rc<ShardContext>,
    attempt: Arc<Attempt>,
    table: TableId,
    mutations: Vec<Bytes>,
    load: Load,
    asked_micros: i64,
) -> Result<Option<LogPosition>, TransferError> {
    let here = |error: &dyn std::fmt::Display| TransferError::Here(error.to_string());
    let (mut last, mut is_logged, mut turn_bytes) = (None, true, usize::MAX);
    let mut committed = None;
    for bytes in &mutations {
        if turn_bytes > TURN_BYTES {
            turn_bytes = 0;
            tokio::task::yield_now().await;
            admit(&context, &attempt).await?;
            // It may have waited for long.
            attempt.check(&context)?;
        }
        if context.replication().hints.is_truncated(&table, asked_micros) {
            return Err(TransferError::Truncated(table));
        }
        turn_bytes += bytes.len();
        let whole = MutationRef::parse(bytes).map_err(|error| here(&error))?;
        let bytes_max = context.node.config.mutation_bytes_max();
        let parts = if bytes.len() > bytes_max {
            // A large row has grown in several mutations, and is written in several again.
            whole.validate().map_err(|error| here(&error))?;
            whole.split(bytes_max).map_err(|error| here(&error))?
        } else {
            Vec::new()
        };
        let views = parts.iter().map(Mutation::view).collect::<Result<Vec<_>, _>>();
        let views = views.map_err(|error| here(&error))?;
        let views = if views.is_empty() { std::slice::from_ref(&whole) } else { &views };
        for mutation in views {
            match context.shard.load(mutation, load) {
                Ok(Some(position)) => {
                    context.note_append(position);
                    last = Some(position);
                }
                Ok(None) => is_logged = false,
                // Dropped meanwhile.
                Err(EngineError::UnknownTable(_)) => return Ok(None),
                Err(error) => return Err(here(&error)),
            }
            if table == paxos::store::TABLE {
                // In the same turn, so that no proposer learns from this replica of a commit that it has not applied.
                committed = apply_commits(&context, mutation)?.or(committed);
            }
        }
    }
    if let Some(position) = committed {
        context.shard.durable(position).await.map_err(|error| here(&error))?;
    }
    Ok(last.filter(|_| is_logged))
}

/// Applies what is agreed on according to state that has just come, where this node is a replica: it may be one that serves reads, or whose
/// rows of other keyspaces do not change hands. Returns the last position in the commit log.
fn apply_commits(
    context: &ShardContext,
    streamed: &MutationRef<'_>,
) -> Result<Option<LogPosition>, TransferError> {
    let here = |error: &dyn std::fmt::Display| TransferError::Here(error.to_string());
    let commits = paxos::store::known_commits(&context.shard, streamed).map_err(|error| here(&error))?;
    let mut last = None;
    for (origin, mutation) in commits {
        let rows = mutation.view().map_err(|error| here(&error))?;
        // One that is too old would bring back what was deleted since; every replica has had it, or its hint.
        let hints = &context.replication().hints;
        let is_truncated =
            hints.agreed_truncation(&rows.table).is_none() && hints.is_truncated(&rows.table, origin.micros);
        if is_truncated {
            continue;
        }
        let in_time = paxos::late_commit::in_time(context, &rows, &origin).map_err(|error| here(&error))?;
        let mutation = match in_time {
            None => mutation.clone(),
            Some(Remainder { applied: Some(applied), .. }) => applied,
            Some(_) => continue,
        };
        let rows = mutation.view().map_err(|error| here(&error))?;
        let view = context.cluster_view();
        let catalog = context.catalog_view();
        let placement = catalog.table(rows.table).and_then(|table| view.placement(&table.keyspace));
        if placement.is_some_and(|it| it.replicas(rows.token).contains(&context.node.host_id)) {
            let position = apply_own(context, &rows).map_err(|error| here(&error))?;
            context.note_append(position);
            last = Some(position);
        }
    }
    Ok(last)
}

async fn store(
    context: &Rc<ShardContext>,
    attempt: &Attempt,
    task: &StreamTask,
    progress: &StreamTaskProgress,
) -> Result<(), TransferError> {
    let (epoch, key, progress) = (attempt.epoch, task.key, progress.clone());
    context
        .run_on(0, move |context| {
            Box::pin(async move { progress::store_task(&context, epoch, key, &progress).await })
        })
        .await??;
    Ok(())
}
