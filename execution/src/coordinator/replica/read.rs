//! A coordinator reads a range from several replicas.
//!
//! Steps:
//! 1. The live replicas that have the range are counted, and pending ones where what is read must not be lost with a change of owners. If they are too few, the read fails with UNAVAILABLE before
//!    any request is sent.
//! 2. The nearest is asked for data, the others that the level needs for digests. If they take longer than
//!    `speculative_retry` allows, or one fails, another replica is asked.
//! 3. If all digests match, the data is the answer. Otherwise all are asked for data, the versions are merged, data
//!    that a replica lacks is written to it ([`super::repair`]), and the merge is the answer. Where deletions wait for repairs before they
//!    are purged, the versions of this second round have those past their grace period too.
//!
//! Invariants:
//! * An answer ends at the first position at which one of its replicas stopped (short reads). The caller reads on
//!   from there, so a replica full of deleted rows never hides rows of others.
//! * Only answers of one epoch are joined. When a replica reports that the ring has changed, the coordinator catches
//!   up and starts over.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::types::token::shard_of;
use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use helenus_engine::Mutation;
use helenus_engine::read::reconcile_answers::{Reconciled, ReplicaAnswer, SeenRows, reconcile_answers};
use helenus_internode::service::Failure;
use helenus_internode::transport::{CallError, PeerError};
use helenus_query::error::{FailureReason, RequestError, Result};
use helenus_query::run::select::Met;
use helenus_query::schema::catalog::Table;
use helenus_query::schema::options::{ReadRepair, TombstoneGcMode};
use helenus_ring::member::Member;
use helenus_ring::metadata::{CHANGE_FEEDS, REPAIRS};
use helenus_ring::placement::Placement;

use super::answer::{self, ReadAnswer, ReadRequest, ReplicaVersions, Wants, token_of};
use super::digest::Digest;
use super::latency::rings;
use super::message::{ReplicaRequest, ReplicaResponse};
use super::ranges::{self, Group, ReadDemand, nearest_first};
use super::repair::{NotRepaired, repair};
use super::snitch::MeasuredRequest;
use super::{epoch, only_here};
use crate::coordinator::read_thresholds;
use crate::coordinator::replica::failures::{failure_reason, read_failure};
use crate::planted::PlantedBug;
use crate::shard::context::{IGNORE_MSB, ShardContext};
use crate::shard::{receipt, trace};
use helenus_ring::consistency::{self, RequiredReplicas};

/// Most bytes in the answer of one replica.
const ANSWER_BYTES: u64 = 1 << 20;
/// Shortest time to wait for a repair before another replica is asked.
const REPAIR_PATIENCE: Duration = Duration::from_millis(20);

/// A range of a table to read.
#[derive(Debug, Clone)]
pub struct RangeRead<'a> {
    pub table: &'a Table,
    /// Full keys, half open.
    pub start: Vec<u8>,
    pub end: Vec<u8>,
    /// For ranges within one partition.
    pub reversed: bool,
    pub now_seconds: u32,
    /// Most live rows that are wanted.
    pub live_rows: u64,
    pub consistency: Consistency,
    /// When the client gets a timeout; monotonic time of [`ShardContext::clock`].
    pub deadline: Duration,
    /// The statement says BYPASS CACHE.
    pub bypasses_cache: bool,
}

impl RangeRead<'_> {
    /// The deadline by the settings for what starts now and reads partitions, or wider ranges.
    pub fn deadline_from_now(context: &ShardContext, reads_partitions: bool) -> Duration {
        context.clock.monotonic() + timeout(context, reads_partitions)
    }
}

fn timeout(context: &ShardContext, reads_partitions: bool) -> Duration {
    let config = &context.node.config;
    Duration::from_millis(if reads_partitions {
        config.read_request_timeout_ms
    } else {
        config.range_request_timeout_ms
    })
}

/// The rows read from the start of a range.
#[derive(Debug, Default)]
pub struct RangePart {
    pub rows: SeenRows,
    /// Where reading continues: the new start, or (reversed) the new end. `None`: the range is complete.
    pub resume: Option<Vec<u8>>,
    /// What the replica met that has met most.
    pub met: Met,
}

/// The answer of one replica.
pub enum Said {
    Data(ReplicaVersions),
    Digest(Digest),
}

/// The goal of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// Data of one replica, and data or a digest of the number that the level needs.
    Anything,
    /// Data of the number of replicas that the level needs.
    Data,
}

/// The reason why an attempt failed.
enum AttemptFailure {
    Stale { epoch: u64 },
    Failed(RequestError),
}

impl From<RequestError> for AttemptFailure {
    fn from(error: RequestError) -> Self {
        Self::Failed(error)
    }
}

/// The replicas that a level requires for reads, seen from this node.
fn demand(context: &ShardContext, placement: &Placement, level: Consistency) -> RequiredReplicas {
    let data_center = &context.node.config.data_center;
    consistency::required(level, placement.replication(), data_center, context.node.host_id)
}

/// The replicas that a level requires for reads of a keyspace. `None`: it is not replicated any more.
pub fn level_demand(context: &ShardContext, keyspace: &str, level: Consistency) -> Option<RequiredReplicas> {
    Some(demand(context, context.cluster_view().placement(keyspace)?, level))
}

/// Whether rows must be asked of other nodes at this level. `tokens`: of the partitions that are read; `None`: the whole ring.
/// If this node alone is enough, its shards answer.
pub fn needs_others(
    context: &ShardContext,
    table: &Table,
    level: Consistency,
    tokens: impl FnOnce() -> Option<Vec<i64>>,
) -> bool {
    let view = context.cluster_view();
    if only_here::is_only_here(&view, &table.keyspace) {
        return false;
    }
    let Some(placement) = view.placement(&table.keyspace) else { return false };
    if !matches!(level, Consistency::One | Consistency::LocalOne | Consistency::NodeLocal) {
        return true;
    }
    let host_id = context.node.host_id;
    let is_here = |member: &Arc<Member>| member.host_id == host_id;
    match tokens() {
        Some(tokens) => !tokens.iter().all(|&token| placement.replicas(token).read.iter().any(is_here)),
        None => !placement.ranges().all(|(_, replicas)| replicas.read.iter().any(is_here)),
    }
}

/// What a part of a read needs of its replicas.
///
/// A level of more than one replica promises that what it has seen is seen again, by read repair. So while ownership changes hands a read
/// needs the replicas that a write needs: those that take over must have what it answers, too.
fn needs<'a>(context: &'a ShardContext, placement: &Placement, read: &RangeRead<'_>) -> ReadDemand<'a> {
    use Consistency::{LocalOne, NodeLocal, One};
    let lasts = !matches!(read.consistency, One | LocalOne | NodeLocal)
        && read.table.options.read_repair == ReadRepair::Blocking;
    let this_node = (context.node.config.data_center.as_str(), context.node.host_id);
    let of_level = demand(context, placement, read.consistency);
    ReadDemand { of_level, lasts_for: lasts.then_some(this_node) }
}

/// The first parts of a range that go to different replicas, in key order, for reading them concurrently. At most
/// `parts`.
pub fn split(context: &ShardContext, read: &RangeRead<'_>, parts: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let view = context.cluster();
    let Some(placement) = view.placement(&read.table.keyspace) else {
        return Ok(vec![(read.start.clone(), read.end.clone())]);
    };
    let needs = needs(context, placement, read);
    let mut start = read.start.clone();
    let mut split = Vec::new();
    while split.len() < parts && start < read.end {
        let group = match ranges::first_group(&view, placement, &needs, &start, &read.end) {
            Ok(group) => group,
            // The error is returned when reading gets to this part.
            Err(_) if !split.is_empty() => break,
            Err(error) => return Err(error),
        };
        let next = group.end.clone();
        split.push((std::mem::replace(&mut start, next), group.end));
    }
    Ok(split)
}

/// The first part of a range that one set of replicas can answer at the level, in one epoch.
pub struct LevelGroup {
    pub epoch: u64,
    pub group: Group,
}

/// The group of those that are read, for the first part of a search. The number of replicas may change with the epoch.
pub fn level_group(context: &ShardContext, read: &RangeRead<'_>) -> Result<LevelGroup> {
    group_of(context, read, |placement| ReadDemand {
        of_level: demand(context, placement, read.consistency),
        lasts_for: None,
    })
}

fn group_of<'a>(
    context: &ShardContext,
    read: &RangeRead<'_>,
    needs: impl FnOnce(&Placement) -> ReadDemand<'a>,
) -> Result<LevelGroup> {
    let view = context.cluster_view();
    let Some(placement) = view.placement(&read.table.keyspace) else {
        return Err(RequestError::invalid(format!(
            "keyspace {} is not replicated any more",
            read.table.keyspace
        )));
    };
    let group = ranges::first_group(&view, placement, &needs(placement), &read.start, &read.end)?;
    Ok(LevelGroup { epoch: view.topology.epoch, group })
}

/// The time that a read which starts now may take.
pub fn read_timeout(context: &ShardContext, read: &RangeRead<'_>) -> Duration {
    let left = read.deadline.saturating_sub(context.clock.monotonic());
    timeout(context, token_of(&read.start, &read.end).is_some()).min(left)
}

/// Reads the first rows of a range at the level. A range part may hold fewer rows than wanted, or none: its `resume`
/// shows whether there may be more.
pub async fn read_range_part(context: &Rc<ShardContext>, read: &RangeRead<'_>) -> Result<RangePart> {
    let timeout = read_timeout(context, read);
    let deadline = read.deadline;
    loop {
        let LevelGroup { epoch, group } =
            group_of(context, read, |placement| needs(context, placement, read))?;
        let required = group.demand.required();
        let round = ReadRound::new(context, read, epoch, group, timeout, deadline);
        match round.run().await {
            Ok(piece) => return Ok(piece),
            Err(AttemptFailure::Failed(error)) => return Err(error),
            Err(AttemptFailure::Stale { epoch }) => {
                let left = deadline.saturating_sub(context.clock.monotonic());
                if left.is_zero() || !epoch::catch_up(context, epoch, left).await {
                    return Err(RequestError::ReadTimeout {
                        consistency: read.consistency,
                        received: 0,
                        required,
                        data_present: false,
                    });
                }
            }
        }
    }
}

/// What a replica says to what it was asked for, and the time that it took.
type Answer = (Arc<Member>, Wants, Result<Said, PeerError>, Duration);
type Asked = FuturesUnordered<LocalBoxFuture<'static, Answer>>;

/// One group of replicas, asked in one epoch.
struct ReadRound<'a> {
    context: &'a Rc<ShardContext>,
    read: &'a RangeRead<'a>,
    demand: RequiredReplicas,
    /// Replicas are asked not to keep what they read in memory.
    is_past_cache: bool,
    request: ReadRequest,
    timeout: Duration,
    deadline: Duration,
    /// The replicas that are asked first, nearest first.
    chosen: Vec<Arc<Member>>,
    /// The replicas that can be asked in addition.
    spares: VecDeque<Arc<Member>>,
    asked: Asked,
    /// The replicas that were asked and have not answered, each with the kind of request.
    open: Vec<(Arc<Member>, Wants)>,
    /// The kind of data that is asked for.
    data_kind: Wants,
    data: Vec<(Arc<Member>, ReplicaVersions)>,
    digests: Vec<(Arc<Member>, Digest)>,
    failures: Vec<(Arc<Member>, FailureReason)>,
}

impl<'a> ReadRound<'a> {
    fn new(
        context: &'a Rc<ShardContext>,
        read: &'a RangeRead<'a>,
        epoch: u64,
        group: Group,
        timeout: Duration,
        deadline: Duration,
    ) -> Self {
        let Group { end, members, pending, demand } = group;
        let knows_bypass = context.cluster_view().topology.feature_level >= CHANGE_FEEDS;
        let is_past_cache = read.bypasses_cache && knows_bypass;
        let mut members = nearest_first(context, members.into_vec());
        members.sort_by_key(|member| pending.contains(&member.host_id));
        let (chosen, spares) = demand.choose(members);
        let request = ReadRequest {
            epoch,
            table_id: read.table.id.as_u128(),
            start: read.start.clone(),
            end,
            reversed: read.reversed,
            now_seconds: read.now_seconds,
            live_rows: read.live_rows,
            bytes: ANSWER_BYTES,
            tombstones: context.node.config.max_page_tombstones as u64,
            wants: Wants::Data,
        };
        Self {
            context,
            is_past_cache,
            read,
            demand,
            request,
            timeout,
            deadline,
            chosen,
            spares: spares.into(),
            asked: FuturesUnordered::new(),
            open: Vec::new(),
            data_kind: Wants::Data,
            data: Vec::new(),
            digests: Vec::new(),
            failures: Vec::new(),
        }
    }

    async fn run(mut self) -> Result<RangePart, AttemptFailure> {
        for (index, member) in std::mem::take(&mut self.chosen).into_iter().enumerate() {
            self.ask(member, if index == 0 { Wants::Data } else { Wants::Digest });
        }
        self.gather(Goal::Anything).await?;
        if !self.agree() {
            self.context.metrics.digest_mismatches.increment();
            trace::note(self.context, || {
                "The digests of the replicas differ: all are asked for data".to_owned()
            });
            let digests = std::mem::take(&mut self.digests).into_iter().map(|(member, _)| member);
            let mut again: Vec<Arc<Member>> = digests.collect();
            if self.keeps_deletions() {
                self.data_kind = Wants::AllVersions;
                again.extend(std::mem::take(&mut self.data).into_iter().map(|(member, _)| member));
            }
            for member in again {
                self.ask(member, self.data_kind);
            }
            self.gather(Goal::Data).await?;
        }
        self.merge().await
    }

    /// Whether replicas may keep deletions past their grace period: whoever lacks one may have what it deletes.
    fn keeps_deletions(&self) -> bool {
        let view = self.context.cluster_view();
        let replica_count = view
            .placement(&self.read.table.keyspace)
            .map_or(1, |placement| placement.replication().replica_count());
        let mode = self.read.table.options.tombstone_gc(replica_count).mode;
        view.topology.feature_level >= REPAIRS
            && matches!(mode, TombstoneGcMode::Repair | TombstoneGcMode::Disabled)
    }

    fn ask(&mut self, member: Arc<Member>, wants: Wants) {
        self.open.push((member.clone(), wants));
        let sent = if self.is_past_cache { wants.past_cache() } else { wants };
        let request = ReadRequest { wants: sent, ..self.request.clone() };
        let measured = MeasuredRequest::begin(self.context, member.host_id);
        let asked = ask(self.context.clone(), member, request, self.deadline);
        self.asked.push(Box::pin(async move {
            let (member, _, said) = asked.await;
            // One that knows another epoch answers as fast as ever.
            let is_stale = matches!(said, Err(PeerError::Failed(Failure::StaleRing { .. })));
            let latency = measured.end(said.is_err() && !is_stale);
            (member, wants, said, latency)
        }));
    }

    /// The members that have answered.
    fn answered(&self) -> impl Iterator<Item = &Member> {
        let data = self.data.iter().map(|(member, _)| &**member);
        data.chain(self.digests.iter().map(|(member, _)| &**member))
    }

    fn has_reached(&self, goal: Goal) -> bool {
        match goal {
            Goal::Anything => !self.data.is_empty() && self.demand.is_met(self.answered()),
            Goal::Data => self.demand.is_met(self.data.iter().map(|(member, _)| &**member)),
        }
    }

    /// Collects answers until the goal is reached.
    async fn gather(&mut self, goal: Goal) -> Result<(), AttemptFailure> {
        let table = self.read.table;
        let retry = &table.options.speculative_retry;
        let delay =
            self.context.replication().read_latencies.delay(self.request.table_id, retry, self.timeout);
        let mut alarm = delay.map(|delay| self.context.clock.sleep(delay));
        while !self.has_reached(goal) {
            if !self.can_be_enough(goal) && !self.ask_another(goal) {
                return Err(self.failure().into());
            }
            let rings = rings(alarm.as_mut().filter(|_| !self.spares.is_empty()));
            tokio::select! {
                biased;
                answer = self.asked.next() => {
                    // More answers are needed, but no request is in flight.
                    let Some(answer) = answer else { return Err(self.failure().into()) };
                    self.take(answer)?;
                }
                () = rings => {
                    alarm = None;
                    self.context.metrics.speculative_reads.increment();
                    trace::note(self.context, || "The replicas are slow: another one is asked".to_owned());
                    self.ask_another(goal);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, (member, wants, said, latency): Answer) -> Result<(), AttemptFailure> {
        if said.is_ok() {
            // Of the replica alone: the delay before it was asked is no part of it.
            self.context.replication().read_latencies.note(self.request.table_id, latency);
        }
        self.open.retain(|(open, wanted)| open.host_id != member.host_id || *wanted != wants);
        match said {
            // A late answer of the first round has other versions than those of the second: that replica can be asked again.
            Ok(Said::Data(_)) if wants != self.data_kind => self.spares.push_back(member),
            Ok(Said::Data(versions)) => {
                self.digests.retain(|(known, _)| known.host_id != member.host_id);
                self.data.push((member, versions));
            }
            Ok(Said::Digest(digest)) => self.digests.push((member, digest)),
            Err(PeerError::Failed(Failure::StaleRing { epoch })) => {
                return Err(AttemptFailure::Stale { epoch });
            }
            Err(error) => {
                tracing::debug!(node = %member.host_id, %error, "a replica has not answered a read");
                self.failures.push((member, failure_reason(&error)));
            }
        }
        Ok(())
    }

    /// Whether the answers received and the answers expected would reach the goal.
    fn can_be_enough(&self, goal: Goal) -> bool {
        let counts = |wants: Wants| goal == Goal::Anything || wants == self.data_kind;
        let data = self.data.iter().map(|(member, _)| (&**member, self.data_kind));
        let digests = self.digests.iter().map(|(member, _)| (&**member, Wants::Digest));
        let open = self.open.iter().map(|(member, wants)| (&**member, *wants));
        let mut distinct: Vec<&Member> = Vec::new();
        for (member, _) in data.chain(digests).chain(open).filter(|(_, wants)| counts(*wants)) {
            if distinct.iter().all(|known| known.host_id != member.host_id) {
                distinct.push(member);
            }
        }
        let has_data = !self.data.is_empty() || self.open.iter().any(|(_, wants)| *wants == self.data_kind);
        has_data && self.demand.is_met(distinct)
    }

    /// Asks a replica that was not asked before, or asks one that sent a digest for its data. Returns false if there
    /// is none.
    fn ask_another(&mut self, goal: Goal) -> bool {
        let needs_data = self.data.is_empty() || goal == Goal::Data;
        let awaits_data = self.open.iter().any(|(_, wants)| *wants == self.data_kind);
        if let Some(member) = self.spares.pop_front() {
            self.ask(member, if needs_data { self.data_kind } else { Wants::Digest });
            return true;
        }
        if needs_data
            && (goal == Goal::Data || !awaits_data)
            && let Some((member, _)) = self.digests.pop()
        {
            self.ask(member, self.data_kind);
            return true;
        }
        false
    }

    fn failure(&self) -> RequestError {
        let digests = self.digests.iter().map(|(member, _)| member.clone());
        let answered: Vec<_> = self.data.iter().map(|(member, _)| member.clone()).chain(digests).collect();
        let data_present = !self.data.is_empty();
        read_failure(self.read.consistency, &self.demand, &answered, &self.failures, data_present)
    }

    /// Whether all answers have the same digest.
    fn agree(&self) -> bool {
        let Some(((_, first), others)) = self.data.split_first() else { return false };
        if others.is_empty() && self.digests.is_empty() {
            return true;
        }
        let digest = first.digest();
        self.digests.iter().all(|(_, other)| *other == digest)
            && others.iter().all(|(_, other)| other.digest() == digest)
    }

    /// Merges the answers after as many replicas as the level needs have all of the merged data. A replica that
    /// answers reads may be unable to write (its disk is full): then another replica is asked, and its data is merged
    /// too.
    async fn merge(mut self) -> Result<RangePart, AttemptFailure> {
        loop {
            let merged = self.reconciled()?;
            let is_complete = merged.lacking.iter().all(Vec::is_empty);
            let repairs = self.read.table.options.read_repair == ReadRepair::Blocking
                && !self.context.has_bug(PlantedBug::DropReadRepair);
            let outcome = if is_complete || !repairs {
                Ok(())
            } else {
                let members = self.data.iter().map(|(member, _)| member.clone());
                let lacking: Vec<_> = members.zip(merged.lacking).collect();
                self.repaired(&lacking).await
            };
            match outcome {
                Ok(()) => {
                    receipt::count_range(u64::from(self.demand.required()));
                    let answers = self.data.iter().map(|(_, data)| data.partitions.as_slice());
                    receipt::count_merged(&merged.rows, answers.clone(), self.read.now_seconds);
                    let met = read_thresholds::met_by_answers(self.context, answers, self.read.now_seconds);
                    // The group may cover only the first part of the range to read.
                    let rest =
                        (self.request.end < self.read.end && !self.read.reversed).then_some(self.request.end);
                    return Ok(RangePart { rows: merged.rows, resume: merged.resume.or(rest), met });
                }
                Err(NotRepaired::Stale { epoch }) => return Err(AttemptFailure::Stale { epoch }),
                Err(NotRepaired::TooFew { received }) => {
                    if !self.another_answers().await? {
                        return Err(AttemptFailure::Failed(RequestError::ReadTimeout {
                            consistency: self.read.consistency,
                            received,
                            required: self.demand.required(),
                            data_present: true,
                        }));
                    }
                }
            }
        }
    }

    fn reconciled(&self) -> Result<Reconciled, AttemptFailure> {
        // If all agree, one answer represents all.
        let count = if self.agree() { 1 } else { self.data.len() };
        let answers: Vec<ReplicaAnswer<'_>> = self
            .data
            .iter()
            .take(count)
            .map(|(_, data)| ReplicaAnswer { partitions: &data.partitions, resume: data.resume.as_deref() })
            .collect();
        reconcile_answers(&answers, self.read.reversed, self.read.now_seconds)
            .map_err(|error| RequestError::Server(error.to_string()).into())
    }

    /// Writes to replicas the data that they lack. While there are other replicas to ask, it waits only as long as a
    /// speculative read does.
    async fn repaired(&self, lacking: &[(Arc<Member>, Vec<Mutation>)]) -> Result<(), NotRepaired> {
        let repaired = repair(self.context, self.request.epoch, lacking, &self.demand, self.deadline);
        let retry = &self.read.table.options.speculative_retry;
        let latencies = &self.context.replication().read_latencies;
        let delay = latencies.delay(self.request.table_id, retry, self.timeout);
        let Some(delay) = delay.filter(|_| !self.spares.is_empty()) else { return repaired.await };
        tokio::select! {
            biased;
            outcome = repaired => outcome,
            () = self.context.clock.sleep(delay.max(REPAIR_PATIENCE)) => {
                let complete = lacking.iter().filter(|(_, mutations)| mutations.is_empty());
                Err(NotRepaired::TooFew { received: self.demand.count(complete.map(|(member, _)| &**member)) })
            }
        }
    }

    /// Waits for the data of one more replica. Returns false if there is none.
    async fn another_answers(&mut self) -> Result<bool, AttemptFailure> {
        let known = self.data.len();
        while self.data.len() == known {
            // A replica that was asked for its digest before may have sent it meanwhile: then its data is asked for.
            if !self.ask_another(Goal::Data) && self.open.is_empty() {
                return Ok(false);
            }
            let Some(answer) = self.asked.next().await else { return Ok(false) };
            self.take(answer)?;
        }
        Ok(true)
    }
}

/// Sends a request to one replica. This node is asked without the network.
pub async fn ask(
    context: Rc<ShardContext>,
    member: Arc<Member>,
    request: ReadRequest,
    deadline: Duration,
) -> (Arc<Member>, Wants, Result<Said, PeerError>) {
    let wants = request.wants;
    let said = if member.host_id == context.node.host_id {
        let versions = answer::versions(&context, request).await;
        versions.map_err(PeerError::from).map(|versions| {
            if wants.is_digest() { Said::Digest(versions.digest()) } else { Said::Data(versions) }
        })
    } else {
        ask_remote(&context, &member, request, deadline).await
    };
    (member, wants, said)
}

async fn ask_remote(
    context: &Rc<ShardContext>,
    member: &Member,
    request: ReadRequest,
    deadline: Duration,
) -> Result<Said, PeerError> {
    let shard = match token_of(&request.start, &request.end) {
        Some(token) => shard_of(token, u32::from(member.shard_count), IGNORE_MSB) as u16,
        None => context.index as u16,
    };
    let left = deadline.saturating_sub(context.clock.monotonic());
    let (start, end) = (request.start.clone(), request.end.clone());
    let request = ReplicaRequest::Read(request);
    let malformed = |reason: String| CallError::Malformed { address: member.internode_address, reason };
    match context.ask(member, shard, &request, left).await? {
        ReplicaResponse::Read(ReadAnswer::Digest(digest)) => Ok(Said::Digest(digest)),
        ReplicaResponse::Read(ReadAnswer::Data { partitions, resume }) => {
            if !resume.as_ref().is_none_or(|bound| start < *bound && *bound < end) {
                return Err(
                    malformed("an answer that goes on outside of what was asked for".to_owned()).into()
                );
            }
            let versions = ReplicaVersions::decode(partitions, resume);
            Ok(Said::Data(versions.map_err(|error| malformed(error.to_string()))?))
        }
        _ => Err(malformed("not the answer to a read".to_owned()).into()),
    }
}
