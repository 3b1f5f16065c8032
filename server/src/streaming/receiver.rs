//! The receiver's side: fetches what this node gains, piece by piece, and applies it where it belongs.
//!
//! Steps of a transfer, on the first shard: plan (who has it), read what earlier runs have stored, ask for estimates, then
//! fetch from several *lanes* at a time: a lane is one shard of one holder, its units (tables) follow each other. A lane runs
//! on one of this node's shards. While a piece is applied the next one is on its way, and those before become durable.
//!
//! Invariants:
//! * A piece whose checksum does not fit, or that has other rows than were asked for, is not applied.
//! * Progress is stored only after the rows are durable.
//! * A piece that was asked for before its table was truncated here is not applied.
//! * A transfer that fails has lost nothing: the next attempt plans anew, with whoever is alive then, and goes on with what is not
//!   there yet.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use helenus_engine::compaction::Pace;
use helenus_engine::{LogPosition, MutationRef, TableId};

use super::message::{FetchRequest, Piece, StreamRequest, StreamResponse};
use super::plan::{FetchPlan, Sides};
use super::progress::{self, UnitKey, UnitProgress, UnitState};
use super::ranges::{self, intervals};
use super::replicated_tables;
use crate::coordinator::paxos;
use crate::error::RequestError;
use crate::internode::dispatch::PeerError;
use crate::internode::message::{Failure, Request, Response};
use crate::ring::HostId;
use crate::ring::member::Member;
use crate::ring::placement::TokenRange;
use crate::shard_thread::ShardContext;

/// What is asked for at a time. A piece is encoded, written, read, checked and decoded as a whole, each in one turn, so the
/// requests of clients wait behind it; and the allocator keeps blocks of this size, while it asks the system for larger ones
/// anew each time, page by page.
const PIECE_BYTES: u32 = 128 << 10;
/// Applied before it is made sure that what was applied earlier is durable, and progress is stored.
const SETTLED_BYTES: u64 = 1 << 20;
/// How long a piece may take.
const PIECE_DEADLINE: Duration = Duration::from_secs(10);
const ESTIMATE_DEADLINE: Duration = Duration::from_secs(5);
/// Pauses before a piece is asked for again; then the lane gives up.
const RETRY_PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];
/// Applied in one turn of the thread.
const TURN_BYTES: usize = 32 << 10;
/// Lanes at a time for each shard of this node.
const LANES_PER_SHARD: usize = 2;

/// Why a transfer did not come to its end; it is to be tried again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransferError {
    #[error("{peer}: {error}")]
    Peer { peer: HostId, error: PeerError },
    #[error("{peer} has sent a damaged piece of table {table}: {reason}")]
    Damaged { peer: HostId, table: TableId, reason: String },
    #[error("too few replicas are alive for {0} ranges")]
    Blocked(usize),
    /// All else is fetched.
    #[error("the only replica of {0} ranges is not alive")]
    Lost(usize),
    #[error("table {0} was truncated while it was fetched")]
    Truncated(TableId),
    #[error("the ring has changed")]
    RingChanged,
    #[error("cancelled")]
    Cancelled,
    #[error("{0}")]
    Here(String),
}

impl From<RequestError> for TransferError {
    fn from(error: RequestError) -> Self {
        Self::Here(error.to_string())
    }
}

/// One table's ranges on one shard of a holder.
#[derive(Debug, Clone)]
struct Unit {
    key: UnitKey,
    table: TableId,
    /// What is to be there in the end.
    ranges: Vec<TokenRange>,
    /// False: what is applied is durable only when the table has been flushed.
    is_logged: bool,
}

/// The units of one shard of a holder.
#[derive(Debug, Clone)]
struct Lane {
    source: Arc<Member>,
    shard: u16,
    units: Vec<Unit>,
}

/// What all lanes of an attempt share.
struct Attempt {
    epoch: u64,
    progress: BTreeMap<UnitKey, UnitProgress>,
    /// One lane has failed: the others stop, too.
    is_cancelled: AtomicBool,
    /// Bytes a second of one lane.
    rate: Option<u64>,
}

/// Fetches everything that this node gains at the present epoch. On the first shard. Returns when all of it is durable and
/// stored as done; at once when it was already, or there is nothing.
pub async fn run(context: &Rc<ShardContext>) -> Result<(), TransferError> {
    let view = context.cluster();
    let topology = &view.topology;
    let (Some(sides), Some(member)) = (Sides::of(topology), topology.in_transition()) else { return Ok(()) };
    let epoch = topology.epoch;
    let stored = progress::load(context, epoch)?;
    let transfers = &context.node.transfers;
    let now = context.clock.monotonic();
    if stored.is_done {
        transfers.begin(member.host_id, epoch, BTreeMap::new(), now);
        transfers.note_done(epoch);
        return Ok(());
    }
    progress::forget_others(context, epoch).await?;
    let Planned { lanes, blocked, lost } = planned(context, &sides)?;
    let estimates = estimate(context, &lanes).await;
    let mut stored_units = stored.units;
    let (mut states, mut units) = (BTreeMap::new(), BTreeMap::new());
    for (source, unit) in
        lanes.iter().flat_map(|lane| lane.units.iter().map(|unit| (lane.source.host_id, unit)))
    {
        let known = stored_units.remove(&unit.key).unwrap_or_default().towards(&intervals(&unit.ranges));
        let estimated_bytes = estimates.get(&unit.key).copied().unwrap_or(0);
        let (bytes, share_done, is_done) = (known.bytes, known.share_done(), known.is_done);
        states.insert(unit.key, UnitState { source, bytes, estimated_bytes, share_done, is_done });
        units.insert(unit.key, known);
    }
    transfers.begin(member.host_id, epoch, states, now);
    fetch_all(context, epoch, units, lanes).await?;
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

/// What an attempt has to do.
struct Planned {
    lanes: Vec<Lane>,
    /// Ranges that cannot be fetched now.
    blocked: usize,
    /// Ranges that nobody who is alive has ever had.
    lost: usize,
}

fn planned(context: &ShardContext, sides: &Sides) -> Result<Planned, TransferError> {
    let view = context.cluster();
    let mut lanes: BTreeMap<(HostId, u16), Lane> = BTreeMap::new();
    let mut planned = Planned { lanes: Vec::new(), blocked: 0, lost: 0 };
    let mut known: Vec<(&crate::schema::catalog::Replication, FetchPlan)> = Vec::new();
    let catalog = context.catalog();
    for keyspace in catalog.keyspaces.values().filter(|keyspace| view.placement(&keyspace.name).is_some()) {
        let plan = if let Some((_, plan)) =
            known.iter().find(|(replication, _)| **replication == keyspace.replication)
        {
            plan.clone()
        } else {
            let mut plans = sides.plan(&keyspace.replication, &view.alive);
            let plan = plans.remove(&context.node.host_id).unwrap_or_default();
            known.push((&keyspace.replication, plan.clone()));
            plan
        };
        let tables = replicated_tables(keyspace);
        if tables.is_empty() {
            continue;
        }
        planned.blocked += plan.blocked.len();
        planned.lost += plan.lost.len();
        for (source, ranges) in plan.sources {
            let Some(member) = view.topology.member(&source) else { return Err(TransferError::RingChanged) };
            for shard in 0..member.shard_count {
                let lane = lanes.entry((source, shard)).or_insert_with(|| Lane {
                    source: member.clone(),
                    shard,
                    units: Vec::new(),
                });
                // What the holder knows of transactions goes before the data they are about: this node must not claim to know
                // of a commit whose changes it was not given.
                let state = UnitKey::new(source, shard, paxos::store::TABLE);
                match lane.units.first_mut().filter(|unit| unit.key == state) {
                    Some(unit) => unit.ranges.extend(&ranges),
                    None => lane.units.insert(
                        0,
                        Unit {
                            key: state,
                            table: paxos::store::TABLE,
                            ranges: ranges.clone(),
                            is_logged: true,
                        },
                    ),
                }
                lane.units.extend(tables.iter().map(|&table| Unit {
                    key: UnitKey::new(source, shard, table),
                    table,
                    ranges: ranges.clone(),
                    is_logged: keyspace.durable_writes,
                }));
            }
        }
    }
    planned.lanes = lanes.into_values().collect();
    Ok(planned)
}

async fn estimate(context: &Rc<ShardContext>, lanes: &[Lane]) -> BTreeMap<UnitKey, u64> {
    let asked = lanes.iter().map(|lane| async move {
        let parts =
            lane.units.iter().map(|unit| (u128::from_be_bytes(unit.table.0), unit.ranges.clone())).collect();
        let request = Request::Stream(StreamRequest::Estimate { parts });
        let answer = context.ask(&lane.source, lane.shard, &request, ESTIMATE_DEADLINE).await;
        let bytes = match answer {
            Ok(Response::Stream(StreamResponse::Estimate { bytes })) => bytes,
            // Only people miss it; whether the holder can be asked at all shows when pieces are fetched.
            _ => Vec::new(),
        };
        lane.units.iter().map(|unit| unit.key).zip(bytes).collect::<Vec<_>>()
    });
    let answers: Vec<_> = futures::stream::iter(asked).buffered(16).collect().await;
    answers.into_iter().flatten().collect()
}

async fn fetch_all(
    context: &Rc<ShardContext>,
    epoch: u64,
    progress: BTreeMap<UnitKey, UnitProgress>,
    lanes: Vec<Lane>,
) -> Result<(), TransferError> {
    let shards = context.node.shard_count();
    let at_a_time = shards * LANES_PER_SHARD;
    let rate = context.node.config.stream_throughput_bytes_per_second;
    let share = at_a_time.min(lanes.len()).max(1) as u64;
    let attempt = Arc::new(Attempt {
        epoch,
        progress,
        is_cancelled: AtomicBool::new(false),
        rate: (rate > 0).then(|| (rate / share).max(1)),
    });
    let running = lanes.into_iter().map(|lane| {
        let attempt = attempt.clone();
        let shard = usize::from(lane.shard) % shards;
        async move {
            let cancel = attempt.clone();
            let outcome = context
                .run_on(shard, move |context| Box::pin(run_lane(context, lane, attempt)))
                .await
                .map_err(TransferError::from)
                .and_then(|outcome| outcome);
            if outcome.is_err() {
                cancel.is_cancelled.store(true, Ordering::Relaxed);
            }
            outcome
        }
    });
    // All are awaited: none goes on behind the back of the next attempt.
    let outcomes: Vec<_> = futures::stream::iter(running).buffer_unordered(at_a_time).collect().await;
    let mut failures = outcomes.into_iter().filter_map(Result::err);
    let first = failures.next();
    match first {
        None => Ok(()),
        // Cancelled lanes say nothing of the reason.
        Some(TransferError::Cancelled) => Err(failures
            .find(|error| !matches!(error, TransferError::Cancelled))
            .unwrap_or(TransferError::Cancelled)),
        Some(error) => Err(error),
    }
}

async fn run_lane(context: Rc<ShardContext>, lane: Lane, attempt: Arc<Attempt>) -> Result<(), TransferError> {
    let mut pace = Pace::new(attempt.rate);
    for unit in &lane.units {
        let known = attempt.progress.get(&unit.key).cloned().unwrap_or_default();
        if !known.is_done {
            run_unit(&context, &lane, unit, &attempt, known, &mut pace).await?;
        }
    }
    Ok(())
}

async fn run_unit(
    context: &Rc<ShardContext>,
    lane: &Lane,
    unit: &Unit,
    attempt: &Attempt,
    mut progress: UnitProgress,
    pace: &mut Pace,
) -> Result<(), TransferError> {
    let wanted = progress.wanted.clone();
    let (mut unsettled, mut settling) = (Unsettled::default(), Unsettled::default());
    let mut next = fetch(context, lane, unit, attempt, &wanted, progress.resume.clone()).await?;
    while let Some(Fetched { piece, asked_micros }) = next.take() {
        let bytes = piece.mutations.len() as u64;
        pace.spend(bytes, &*context.clock).await;
        progress.bytes += bytes;
        progress.resume.clone_from(&piece.resume);
        let resume = piece.resume.clone();
        let following = async {
            match resume {
                Some(resume) => fetch(context, lane, unit, attempt, &wanted, Some(resume)).await,
                None => Ok(None),
            }
        };
        let (applied, fetched) =
            futures::join!(apply_piece(context, lane, unit, &wanted, piece, asked_micros), following,);
        unsettled.add(applied?, bytes, &progress);
        if unsettled.bytes >= SETTLED_BYTES {
            // The one before has become durable meanwhile.
            settle(context, attempt, unit, std::mem::replace(&mut settling, std::mem::take(&mut unsettled)))
                .await?;
        }
        context.node.transfers.note_unit(
            attempt.epoch,
            unit.key,
            progress.bytes,
            progress.share_done(),
            false,
        );
        next = match fetched {
            Ok(next) => next,
            Err(error) => {
                settle(context, attempt, unit, settling).await?;
                settle(context, attempt, unit, unsettled).await?;
                return Err(error);
            }
        };
    }
    settle(context, attempt, unit, settling).await?;
    settle(context, attempt, unit, unsettled).await?;
    if !unit.is_logged {
        flush(context, unit.table).await?;
    }
    progress.resume = None;
    progress.is_done = true;
    store(context, attempt, unit, &progress).await?;
    context.node.transfers.note_unit(attempt.epoch, unit.key, progress.bytes, 1.0, true);
    Ok(())
}

/// A piece as it came.
struct Fetched {
    piece: Piece,
    /// When (microseconds since the epoch) it was asked for.
    asked_micros: i64,
}

/// Pieces that are applied and may not be durable yet.
#[derive(Default)]
struct Unsettled {
    /// The last record of each shard's commit log.
    positions: BTreeMap<usize, LogPosition>,
    bytes: u64,
    /// How far the unit is with them; `None`: there are none.
    progress: Option<UnitProgress>,
}

impl Unsettled {
    fn add(&mut self, positions: Vec<(usize, LogPosition)>, bytes: u64, progress: &UnitProgress) {
        self.positions.extend(positions);
        self.bytes += bytes;
        self.progress = Some(progress.clone());
    }
}

/// Waits until pieces are durable, and stores how far the unit is.
async fn settle(
    context: &Rc<ShardContext>,
    attempt: &Attempt,
    unit: &Unit,
    unsettled: Unsettled,
) -> Result<(), TransferError> {
    let Unsettled { positions, progress: Some(progress), .. } = unsettled else { return Ok(()) };
    let waits = positions.into_iter().map(|(owner, position)| {
        context.run_on(owner, move |context| Box::pin(async move { context.shard.durable(position).await }))
    });
    for outcome in futures::future::join_all(waits).await {
        outcome?.map_err(|error| TransferError::Here(error.to_string()))?;
    }
    // What is not logged is durable only at the end.
    if unit.is_logged && progress.resume.is_some() {
        store(context, attempt, unit, &progress).await?;
    }
    Ok(())
}

/// Asks for a piece until it is there; `None`: the table is gone.
async fn fetch(
    context: &Rc<ShardContext>,
    lane: &Lane,
    unit: &Unit,
    attempt: &Attempt,
    wanted: &[RangeInclusive<i64>],
    resume_from: Option<Vec<u8>>,
) -> Result<Option<Fetched>, TransferError> {
    let peer = lane.source.host_id;
    let request = Request::Stream(StreamRequest::Fetch(FetchRequest {
        epoch: attempt.epoch,
        table_id: u128::from_be_bytes(unit.table.0),
        ranges: ranges::ranges(wanted),
        shard: lane.shard,
        resume_from,
        max_bytes: PIECE_BYTES,
    }));
    let mut pauses = RETRY_PAUSES.iter();
    loop {
        if attempt.is_cancelled.load(Ordering::Relaxed) || *context.node.stopping.borrow() {
            return Err(TransferError::Cancelled);
        }
        let asked_micros = context.clock.now_micros();
        let error = match context.ask(&lane.source, lane.shard, &request, PIECE_DEADLINE).await {
            Ok(Response::Stream(StreamResponse::Piece(piece))) => match check(&piece, &request) {
                Ok(()) => return Ok(Some(Fetched { piece, asked_micros })),
                Err(reason) => TransferError::Damaged { peer, table: unit.table, reason },
            },
            Ok(_) => {
                let reason = "not a piece".to_owned();
                TransferError::Damaged { peer, table: unit.table, reason }
            }
            Err(PeerError::Failed(Failure::StaleRing { epoch })) if epoch > attempt.epoch => {
                return Err(TransferError::RingChanged);
            }
            // Dropped everywhere. Where only the holder does not know it (yet), it is asked again.
            Err(PeerError::Failed(Failure::UnknownTable { .. })) if !is_known(context, unit.table) => {
                return Ok(None);
            }
            Err(error) => TransferError::Peer { peer, error },
        };
        let Some(pause) = pauses.next() else { return Err(error) };
        tracing::warn!(%error, "a piece is asked for again");
        context.clock.sleep(*pause).await;
        if !context.cluster_view().is_alive(&peer) {
            return Err(error);
        }
    }
}

fn is_known(context: &ShardContext, table: TableId) -> bool {
    context.shard.statistics(table).is_ok()
}

fn check(piece: &Piece, request: &Request) -> Result<(), String> {
    if crc32fast::hash(&piece.mutations) != piece.crc32 {
        return Err("the checksum does not fit".to_owned());
    }
    let Request::Stream(StreamRequest::Fetch(request)) = request else { return Ok(()) };
    match (&piece.resume, &request.resume_from) {
        // Otherwise it would never end.
        (Some(resume), Some(before)) if resume <= before => Err("it does not go on".to_owned()),
        _ => Ok(()),
    }
}

/// Applies a piece at the shards that its tokens belong to. Returns the last record of each in its commit log.
async fn apply_piece(
    context: &Rc<ShardContext>,
    lane: &Lane,
    unit: &Unit,
    intervals: &[RangeInclusive<i64>],
    piece: Piece,
    asked_micros: i64,
) -> Result<Vec<(usize, LogPosition)>, TransferError> {
    let damaged =
        |reason: String| TransferError::Damaged { peer: lane.source.host_id, table: unit.table, reason };
    let mut by_owner: BTreeMap<usize, Vec<Bytes>> = BTreeMap::new();
    let mut rest = Bytes::from(piece.mutations);
    while let Some(length) = rest.first_chunk::<4>().map(|length| u32::from_be_bytes(*length) as usize) {
        let _ = rest.split_to(4);
        if length > rest.len() {
            return Err(damaged("a mutation is cut short".to_owned()));
        }
        let bytes = rest.split_to(length);
        let mutation = MutationRef::parse(&bytes).map_err(|error| damaged(error.to_string()))?;
        let token = mutation.token;
        if mutation.table != unit.table || !holds(intervals, token) {
            return Err(damaged("it has other rows than were asked for".to_owned()));
        }
        by_owner.entry(context.node.shard_of(token)).or_default().push(bytes);
    }
    if !rest.is_empty() {
        return Err(damaged("it is cut short".to_owned()));
    }
    let jobs = by_owner.into_iter().map(|(owner, mutations)| async move {
        let table = unit.table;
        let applied = context
            .run_on(owner, move |context| Box::pin(apply(context, table, mutations, asked_micros)))
            .await??;
        Ok::<_, TransferError>(applied.map(|position| (owner, position)))
    });
    let applied = futures::future::try_join_all(jobs).await?;
    Ok(applied.into_iter().flatten().collect())
}

fn holds(intervals: &[RangeInclusive<i64>], token: i64) -> bool {
    let index = intervals.partition_point(|interval| *interval.end() < token);
    intervals.get(index).is_some_and(|interval| interval.contains(&token))
}

async fn apply(
    context: Rc<ShardContext>,
    table: TableId,
    mutations: Vec<Bytes>,
    asked_micros: i64,
) -> Result<Option<LogPosition>, TransferError> {
    let here = |error: &dyn std::fmt::Display| TransferError::Here(error.to_string());
    let (mut last, mut turn_bytes) = (None, usize::MAX);
    for bytes in &mutations {
        if turn_bytes > TURN_BYTES {
            turn_bytes = 0;
            tokio::task::yield_now().await;
            context.shard.admit().await.map_err(|error| here(&error))?;
        }
        if context.replication.hints.is_truncated(&table, asked_micros) {
            return Err(TransferError::Truncated(table));
        }
        turn_bytes += bytes.len();
        let mutation = MutationRef::parse(bytes).map_err(|error| here(&error))?;
        let position = match context.shard.apply(&mutation) {
            Ok(position) => position,
            // Dropped meanwhile.
            Err(helenus_engine::EngineError::UnknownTable(_)) => return Ok(None),
            Err(error) => return Err(here(&error)),
        };
        context.note_append(position);
        last = Some(position);
    }
    Ok(last)
}

async fn flush(context: &Rc<ShardContext>, table: TableId) -> Result<(), TransferError> {
    for shard in 0..context.node.shard_count() {
        let flushed = context
            .run_on(shard, move |context| Box::pin(async move { context.shard.flush(table).await }))
            .await?;
        match flushed {
            Ok(()) | Err(helenus_engine::EngineError::UnknownTable(_)) => {}
            Err(error) => return Err(TransferError::Here(error.to_string())),
        }
    }
    Ok(())
}

async fn store(
    context: &Rc<ShardContext>,
    attempt: &Attempt,
    unit: &Unit,
    progress: &UnitProgress,
) -> Result<(), TransferError> {
    let (epoch, key, progress) = (attempt.epoch, unit.key, progress.clone());
    context
        .run_on(0, move |context| {
            Box::pin(async move { progress::store_unit(&context, epoch, key, &progress).await })
        })
        .await??;
    Ok(())
}
