//! The receiver: streams the ranges that this node gains, chunk by chunk, and applies them on the owning shards.
//!
//! Steps of a transfer, on the first shard: plan (which source has what), load the progress of earlier runs, request
//! estimates, then run several *stream sessions* concurrently (`super::session`). A session covers one shard of one
//! source; its tasks (tables) run one after the other. A session runs on one of this node's shards.
//!
//! Invariant: a failed transfer has lost nothing. The next attempt makes a new plan, with the members alive then, and
//! continues with the missing data.

use crate::streaming::progress::Transfers;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use helenus_engine::TableId;
use helenus_query::schema::system_keyspaces;
use helenus_ring::HostId;

use super::fetch_plan::{FetchPlan, Replications};
use super::message::{StreamRequest, StreamResponse};
use super::plan::Sides;
use super::progress::{self, StreamTaskKey, StreamTaskProgress, StreamTaskState};
use super::replicated_tables;
use super::session::run_session;
use crate::streaming::attempt::{Attempt, StreamSession, StreamTask, TransferError};
use helenus_execution::coordinator::{paxos, transaction_tokens};
use helenus_execution::shard::context::ShardContext;
use helenus_ring::intervals::intervals;
use helenus_ring::metadata::TRANSACTION_TOKENS;

const ESTIMATE_DEADLINE: Duration = Duration::from_secs(5);
/// Concurrent stream sessions for each shard of this node.
const SESSIONS_PER_SHARD: usize = 2;

/// The estimates of sources, kept between attempts: a source that does not answer any more has sent its estimate
/// before.
#[derive(Debug, Default)]
pub struct Estimates {
    epoch: u64,
    tasks: BTreeMap<StreamTaskKey, Estimate>,
}

#[derive(Debug, Clone, Copy)]
struct Estimate {
    source: HostId,
    table: TableId,
    bytes: u64,
}

impl Estimates {
    /// Adds the estimates received for the tasks of an attempt.
    fn learn(&mut self, epoch: u64, sessions: &[StreamSession], said: &BTreeMap<StreamTaskKey, u64>) {
        if self.epoch != epoch {
            *self = Self { epoch, tasks: BTreeMap::new() };
        }
        for session in sessions {
            let source = session.source.host_id;
            let said = session.tasks.iter().filter_map(|task| Some((task, *said.get(&task.key)?)));
            self.tasks
                .extend(said.map(|(task, bytes)| (task.key, Estimate { source, table: task.table, bytes })));
        }
    }

    fn bytes(&self, task: &StreamTaskKey) -> u64 {
        self.tasks.get(task).map_or(0, |estimate| estimate.bytes)
    }
}

/// Streams everything that this node gains at the present epoch. Call on the first shard. `estimates`: those of
/// earlier attempts. `is_removal`: dead members are removed. Returns when everything is durable and stored as done: at once if it was done already, or if the
/// node gains nothing.
pub async fn run(
    context: &Rc<ShardContext>,
    estimates: &mut Estimates,
    is_removal: bool,
) -> Result<(), TransferError> {
    let view = context.cluster();
    let topology = &view.topology;
    let Some(sides) = Sides::of(topology) else { return Ok(()) };
    let new = topology.replacement.map(|replacement| replacement.new);
    let moving = || topology.in_transition().map(|member| member.host_id);
    // Nobody, where the replication of keyspaces changes.
    let cause = new.or_else(moving).unwrap_or(HostId::nil());
    let epoch = topology.epoch;
    let stored = progress::load(context, epoch)?;
    let transfers = Transfers::of(&context.node);
    let now = context.clock.monotonic();
    if stored.is_done {
        transfers.begin(cause, epoch, BTreeMap::new(), now);
        transfers.note_done(epoch);
        return Ok(());
    }
    progress::forget_others(context, epoch).await?;
    let Planned { sessions, blocked, lost, waiting } = planned(context, &sides, is_removal)?;
    estimates.learn(epoch, &sessions, &estimate(context, &sessions).await);
    let mut stored_tasks = stored.tasks;
    let (mut states, mut tasks) = (BTreeMap::new(), BTreeMap::new());
    for (source, task) in
        sessions.iter().flat_map(|session| session.tasks.iter().map(|task| (session.source.host_id, task)))
    {
        let known = stored_tasks.remove(&task.key).unwrap_or_default().towards(&intervals(&task.ranges));
        let estimated_bytes = estimates.bytes(&task.key);
        let (bytes, share_done, is_done) = (known.bytes, known.share_done(), known.is_done);
        states.insert(task.key, StreamTaskState { source, bytes, estimated_bytes, share_done, is_done });
        tasks.insert(task.key, known);
    }
    // The plan leaves out data that only a dead member has; it will be streamed later.
    let is_to_come = |known: &Estimate| waiting.contains(&known.table) && !view.is_alive(&known.source);
    for (key, estimate) in estimates.tasks.iter().filter(|(_, known)| is_to_come(known)) {
        states.entry(*key).or_insert_with(|| {
            let known = stored_tasks.remove(key);
            StreamTaskState {
                source: estimate.source,
                bytes: known.as_ref().map_or(0, |known| known.bytes),
                estimated_bytes: estimate.bytes,
                share_done: known.as_ref().map_or(0.0, StreamTaskProgress::share_done),
                is_done: known.is_some_and(|known| known.is_done),
            }
        });
    }
    transfers.begin(cause, epoch, states, now);
    fetch_all(context, epoch, tasks, sessions).await?;
    if blocked > 0 {
        return Err(TransferError::Blocked(blocked));
    }
    if lost > 0 {
        transfers.note_lost(epoch, lost);
        return Err(TransferError::Lost(lost));
    }
    if context.cluster_view().topology.epoch != epoch {
        return Err(TransferError::RingChanged);
    }
    progress::store_done(context, epoch).await?;
    transfers.note_done(epoch);
    Ok(())
}

/// The work of an attempt.
struct Planned {
    sessions: Vec<StreamSession>,
    /// Number of ranges that cannot be streamed now.
    blocked: usize,
    /// Number of ranges that no live member has ever had.
    lost: usize,
    /// The tables with blocked or lost ranges.
    waiting: BTreeSet<TableId>,
}

fn planned(context: &ShardContext, sides: &Sides, is_removal: bool) -> Result<Planned, TransferError> {
    let view = context.cluster();
    let mut sessions: BTreeMap<(HostId, u16), StreamSession> = BTreeMap::new();
    let mut planned = Planned { sessions: Vec::new(), blocked: 0, lost: 0, waiting: BTreeSet::new() };
    let mut known: Vec<(Replications, FetchPlan)> = Vec::new();
    let catalog = context.catalog();
    let mut of_transactions = vec![paxos::store::TABLE];
    if view.topology.feature_level >= TRANSACTION_TOKENS {
        of_transactions.push(transaction_tokens::TABLE);
    }
    for keyspace in catalog.keyspaces.values().filter(|keyspace| view.placement(&keyspace.name).is_some()) {
        let Some(replications) = sides.replications(keyspace) else { continue };
        let plan = if let Some((_, plan)) = known.iter().find(|(known, _)| *known == replications) {
            plan.clone()
        } else {
            let mut plans = sides.plan(&replications, &view.alive);
            // The plan has members that gain something.
            let plan = plans.remove(&context.node.host_id).unwrap_or_default();
            known.push((replications, plan.clone()));
            plan
        };
        let tables = replicated_tables(keyspace);
        if tables.is_empty() {
            continue;
        }
        planned.blocked += plan.blocked.len();
        // What the system keeps with one replica is lost with dead members. Nobody is asked whether that is accepted.
        let may_lose = is_removal && system_keyspaces::is_system(&keyspace.name);
        let lost = if may_lose { 0 } else { plan.lost.len() };
        planned.lost += lost;
        if !plan.blocked.is_empty() || lost > 0 {
            planned.waiting.extend(&tables);
        }
        for (source, ranges) in plan.sources {
            let Some(member) = view.topology.member(&source) else { return Err(TransferError::RingChanged) };
            for shard in 0..member.shard_count {
                let session = sessions.entry((source, shard)).or_insert_with(|| StreamSession {
                    source: member.clone(),
                    shard,
                    tasks: Vec::new(),
                });
                // The source's state of transactions is streamed before the data that it describes: this node must
                // not claim to know a commit whose changes it lacks.
                for (place, &table) in of_transactions.iter().enumerate() {
                    let key = StreamTaskKey::new(source, shard, table);
                    match session.tasks.get_mut(place).filter(|task| task.key == key) {
                        Some(task) => task.ranges.extend(&ranges),
                        None => {
                            session.tasks.insert(place, StreamTask { key, table, ranges: ranges.clone() });
                        }
                    }
                }
                session.tasks.extend(tables.iter().map(|&table| StreamTask {
                    key: StreamTaskKey::new(source, shard, table),
                    table,
                    ranges: ranges.clone(),
                }));
            }
        }
    }
    planned.sessions = sessions.into_values().collect();
    Ok(planned)
}

async fn estimate(context: &Rc<ShardContext>, sessions: &[StreamSession]) -> BTreeMap<StreamTaskKey, u64> {
    let asked = sessions.iter().map(|session| async move {
        let parts = session
            .tasks
            .iter()
            .map(|task| (u128::from_be_bytes(task.table.0), task.ranges.clone()))
            .collect();
        let request = StreamRequest::Estimate { parts };
        let answer = context.ask(&session.source, session.shard, &request, ESTIMATE_DEADLINE).await;
        let bytes = match answer {
            Ok(StreamResponse::Estimate { bytes }) => bytes,
            // Estimates are only for display. Whether the source can be reached shows when chunks are requested.
            _ => Vec::new(),
        };
        session.tasks.iter().map(|task| task.key).zip(bytes).collect::<Vec<_>>()
    });
    let answers: Vec<_> = futures::stream::iter(asked).buffered(16).collect().await;
    answers.into_iter().flatten().collect()
}

async fn fetch_all(
    context: &Rc<ShardContext>,
    epoch: u64,
    progress: BTreeMap<StreamTaskKey, StreamTaskProgress>,
    sessions: Vec<StreamSession>,
) -> Result<(), TransferError> {
    let shards = context.node.shard_count();
    let at_a_time = shards * SESSIONS_PER_SHARD;
    let attempt = Arc::new(Attempt { epoch, progress, is_cancelled: AtomicBool::new(false) });
    let running = sessions.into_iter().map(|session| {
        let attempt = attempt.clone();
        let shard = usize::from(session.shard) % shards;
        async move {
            let cancel = attempt.clone();
            let outcome = context
                .run_on(shard, move |context| Box::pin(run_session(context, session, attempt)))
                .await
                .map_err(TransferError::from)
                .and_then(|outcome| outcome);
            if outcome.is_err() {
                cancel.is_cancelled.store(true, Ordering::Relaxed);
            }
            outcome
        }
    });
    // All are awaited: none may continue during the next attempt.
    let outcomes: Vec<_> = futures::stream::iter(running).buffer_unordered(at_a_time).collect().await;
    let mut failures = outcomes.into_iter().filter_map(Result::err);
    let first = failures.next();
    match first {
        None => Ok(()),
        // Cancelled sessions do not show the reason.
        Some(TransferError::Cancelled) => Err(failures
            .find(|error| !matches!(error, TransferError::Cancelled))
            .unwrap_or(TransferError::Cancelled)),
        Some(error) => Err(error),
    }
}
