//! Writes a mutation to its replicas.
//!
//! The coordinator sends the mutation to all replicas at once, pending ones included. Steps:
//! 1. The write is refused (UNAVAILABLE), before anything is written, if fewer replicas are alive than the level
//!    needs.
//! 2. The mutation is sent; replicas that are down get a hint instead. The request is answered when the level is
//!    reached or cannot be reached any more. Requests to slower replicas continue in the background.
//! 3. A replica that fails or does not answer in time gets a hint, whatever the answer to the request was. That time is a setting: a client that
//!    stops waiting earlier gets a timeout, and one that would wait longer gets it then.
//!
//! Invariants:
//! * Only acknowledgements of one epoch are counted. When a replica reports that the ring has changed, the
//!   coordinator catches up and sends the mutation to the replicas of the new epoch. That is safe, because a mutation
//!   may be applied any number of times.
//! * A hint counts for ANY only, and only when it is durable.
//! * The bytes in flight are bounded: above the limit writes are refused; there is no queue.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use cql_lite::types::token::shard_of;
use futures::StreamExt;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use helenus_internode::service::{self, Failure};
use helenus_internode::transport::PeerError;
use helenus_query::error::{FailureReason, ReplicaFailure, RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_ring::member::Member;
use helenus_ring::placement::Replicas;
use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::admission::reserve;
use super::companions;
use super::hints::{self, Stored, WrittenAt};
use super::latency::rings;
use super::message::ReplicaRequest;
use super::{epoch, only_here};
use crate::coordinator::replica::admission::{InFlight, check_room};
use crate::coordinator::replica::apply::apply_at_replica;
use crate::coordinator::replica::failures::failure_reason;
use crate::planted::PlantedBug;
use crate::shard::context::{IGNORE_MSB, ShardContext};
use crate::shard::{receipt, trace};
use helenus_ring::consistency::{self, RequiredReplicas};

/// Pause before a replica that does not know the table yet is asked again.
const SCHEMA_PAUSE: Duration = Duration::from_millis(50);

/// Options of a write to replicas.
#[derive(Debug, Clone, Copy)]
pub struct WriteOptions {
    pub consistency: Consistency,
    pub write_type: WriteType,
    /// When the client gets a timeout at the latest; monotonic time of [`ShardContext::clock`].
    pub answered_until: Duration,
    /// When replicas that have not answered get hints, and the write takes no more room; monotonic time.
    pub in_flight_until: Duration,
    /// Whether this node has applied the mutations already.
    pub is_applied_here: bool,
    /// Whether a replica that has been down for longer than hints are kept is left out, once others have the mutation. A hint for one replica that
    /// is sent to all would otherwise wait for the other, and be sent again and again. Never for batches: their parts belong together.
    pub excuses_absent: bool,
    /// When its first coordinator wrote what is delivered late, in microseconds since the epoch; `None`: it is written now. Hints for it expire by that.
    pub written_micros: Option<i64>,
}

impl WriteOptions {
    /// Those of a write that begins now. `answered_until`: when the client stops waiting, if not by the settings.
    pub fn new(
        context: &ShardContext,
        consistency: Consistency,
        write_type: WriteType,
        answered_until: Option<Duration>,
    ) -> Self {
        let timeout = Duration::from_millis(context.node.config.write_request_timeout_ms);
        let in_flight_until = context.clock.monotonic() + timeout;
        Self {
            consistency,
            write_type,
            answered_until: answered_until.unwrap_or(in_flight_until),
            in_flight_until,
            is_applied_here: false,
            excuses_absent: false,
            written_micros: None,
        }
    }
}

/// A write in progress.
pub struct Started {
    /// The result at the consistency level.
    pub answer: oneshot::Receiver<Result<()>>,
    /// True when every replica has the mutation or a durable hint for it.
    pub settled: oneshot::Receiver<bool>,
}

/// The replicas of a partition as the shard sees them now; `None`: only this node has it.
pub fn replicas_of(context: &ShardContext, change: &PartitionMutation) -> Option<(u64, Replicas)> {
    let view = context.cluster_view();
    let placement = view.placement(&change.table.keyspace)?;
    Some((view.topology.epoch, placement.replicas(change.token).clone()))
}

/// The replicas that a level requires for a write to these replicas of now.
pub fn demand(
    context: &ShardContext,
    keyspace: &str,
    replicas: &Replicas,
    level: Consistency,
) -> Result<RequiredReplicas> {
    let view = context.cluster_view();
    let placement = view
        .placement(keyspace)
        .ok_or_else(|| RequestError::invalid(format!("keyspace {keyspace} does not exist")))?;
    let (data_center, this_node) = (&context.node.config.data_center, context.node.host_id);
    let level = match level {
        Consistency::EachQuorum if context.has_bug(PlantedBug::QuorumAnywhere) => Consistency::Quorum,
        level => level,
    };
    let demand = consistency::required(level, placement.replication(), data_center, this_node);
    Ok(demand.of_write(replicas, data_center, this_node))
}

/// Refuses a write whose level the live replicas cannot satisfy.
pub fn check_alive(context: &ShardContext, change: &PartitionMutation, level: Consistency) -> Result<()> {
    let Some((_, replicas)) = replicas_of(context, change) else { return Ok(()) };
    check_alive_among(context, &change.table.keyspace, &replicas, level)
}

/// Refuses a write to known replicas if the live ones among them cannot satisfy the level.
pub fn check_alive_among(
    context: &ShardContext,
    keyspace: &str,
    replicas: &Replicas,
    level: Consistency,
) -> Result<()> {
    if level == Consistency::Any && context.node.settings.keeps_hints() {
        // A hint on this node is enough.
        return Ok(());
    }
    let demand = demand(context, keyspace, replicas, level)?;
    let view = context.cluster_view();
    let alive: SmallVec<[&Member; 4]> =
        replicas.all().filter(|member| view.is_alive(&member.host_id)).map(|member| &**member).collect();
    demand.check_alive(alive.iter().copied())
}

/// Writes mutations and resolves when each has reached the level, or with the first error. Nothing is written when the replicas
/// of any are missing.
pub async fn write(
    context: &Rc<ShardContext>,
    changes: Vec<PartitionMutation>,
    options: WriteOptions,
) -> Result<()> {
    let is_only_here =
        |change: &PartitionMutation| only_here::is_only_here(&context.cluster_view(), &change.table.keyspace);
    let (here, mut elsewhere): (Vec<_>, Vec<_>) = changes.into_iter().partition(is_only_here);
    if !options.is_applied_here && !here.is_empty() {
        for change in &elsewhere {
            check_alive(context, change, options.consistency)?;
        }
        elsewhere.extend(only_here::apply(context, here).await?);
    }
    if elsewhere.is_empty() {
        return Ok(());
    }
    let started = begin(context, elsewhere, options)?;
    let mut outcome = Ok(());
    for write in started {
        let answer = write.answer.await.unwrap_or_else(|_| Err(stopped()));
        outcome = outcome.and(answer);
    }
    outcome
}

/// Starts writing mutations, all or none: refused before anything is sent if too few replicas of any of them are
/// alive, or if too many bytes are in flight.
pub fn begin(
    context: &Rc<ShardContext>,
    changes: Vec<PartitionMutation>,
    options: WriteOptions,
) -> Result<Vec<Started>> {
    let changes = companions::apart(context, changes)?;
    if !options.is_applied_here {
        for change in &changes {
            check_alive(context, change, options.consistency)?;
        }
    }
    let bytes = changes.iter().map(|change| change.mutation.bytes().len() as u64).sum();
    // Mutations that are applied here already must be sent. Their room was checked before they were applied.
    if !options.is_applied_here {
        check_room(context, bytes)?;
    }
    if !options.is_applied_here {
        for change in &changes {
            count(context, change);
        }
    }
    let room = Rc::new(reserve(context, bytes, false));
    Ok(changes.into_iter().map(|change| start(context, change, options, room.clone())).collect())
}

/// Refuses mutations that would bring the charge of the request above its limit. To be called before the first of them is applied.
pub fn check_charge(context: &ShardContext, changes: &[PartitionMutation]) -> Result<()> {
    let replicas = || {
        let first = changes.first().and_then(|change| replicas_of(context, change));
        first.map_or(1, |(_, replicas)| replicas.all().count() as u64)
    };
    receipt::check_writes(changes.iter().map(|change| &change.mutation), replicas)
}

/// Counts a mutation with its replicas for the receipt of the request.
pub fn count(context: &ShardContext, change: &PartitionMutation) {
    let replicas = || replicas_of(context, change).map_or(1, |(_, replicas)| replicas.all().count() as u64);
    receipt::count_write(&change.mutation, replicas);
}

fn start(
    context: &Rc<ShardContext>,
    change: PartitionMutation,
    options: WriteOptions,
    room: Rc<InFlight>,
) -> Started {
    let (answer_sender, answer) = oneshot::channel();
    let (settled_sender, settled) = oneshot::channel();
    let (context, of_task) = (context.clone(), context);
    let coordinating = context.replication().coordinating();
    let shares = context.shares.clone();
    tokio::task::spawn_local(shares.carry(trace::carry(receipt::carry(of_task, async move {
        let answer = ClientAnswer { sender: Some(answer_sender), options };
        let begun_micros = context.clock.now_micros();
        let is_settled = Write { context, change, options, begun_micros }.run(answer).await;
        drop((room, coordinating));
        // Mostly there is no receiver.
        let _ = settled_sender.send(is_settled);
    }))));
    Started { answer, settled }
}

/// Sends a mutation that was written at that time to all its replicas, with a hint for each that is down. False if neither was possible for some
/// replica. `excuses_absent`: see [`WriteOptions`].
pub async fn deliver(
    context: &Rc<ShardContext>,
    change: PartitionMutation,
    written_micros: i64,
    excuses_absent: bool,
) -> bool {
    let options = WriteOptions {
        excuses_absent,
        written_micros: Some(written_micros),
        ..WriteOptions::new(context, Consistency::Any, WriteType::Simple, None)
    };
    match begin(context, vec![change], options) {
        Ok(started) => {
            let mut all = true;
            for write in started {
                all &= write.settled.await.unwrap_or(false);
            }
            all
        }
        Err(_) => false,
    }
}

fn stopped() -> RequestError {
    RequestError::Server("the node is shutting down".to_owned())
}

/// Sends the result to the client, once.
struct ClientAnswer {
    sender: Option<oneshot::Sender<Result<()>>>,
    options: WriteOptions,
}

impl ClientAnswer {
    fn give(&mut self, outcome: Result<()>) {
        if let Some(sender) = self.sender.take() {
            // The client may have disconnected.
            let _ = sender.send(outcome);
        }
    }

    fn is_open(&self) -> bool {
        self.sender.is_some()
    }

    fn give_failure(&mut self, received: u32, required: u32, failures: &[(Arc<Member>, FailureReason)]) {
        let WriteOptions { consistency, write_type, .. } = self.options;
        let timed_out = failures.iter().all(|(_, reason)| *reason == FailureReason::TimedOut);
        self.give(Err(if timed_out {
            RequestError::WriteTimeout { consistency, received, required, write_type, contentions: 0 }
        } else {
            let failures = failures
                .iter()
                .map(|(member, reason)| ReplicaFailure {
                    address: member.native_address.ip(),
                    reason: *reason,
                })
                .collect();
            RequestError::WriteFailure { consistency, received, required, write_type, failures }
        }));
    }
}

/// One mutation with its coordinator.
struct Write {
    context: Rc<ShardContext>,
    change: PartitionMutation,
    options: WriteOptions,
    begun_micros: i64,
}

/// The result of an attempt to reach the replicas of one epoch.
enum Attempt {
    /// True if each replica has the mutation or a hint.
    Done(bool),
    /// The ring has changed.
    Stale { epoch: u64 },
}

type Asked = FuturesUnordered<LocalBoxFuture<'static, (Arc<Member>, Result<(), PeerError>)>>;
type Hinting = FuturesUnordered<LocalBoxFuture<'static, (Arc<Member>, Stored)>>;

impl Write {
    async fn run(&self, mut answer: ClientAnswer) -> bool {
        loop {
            match self.attempt(&mut answer).await {
                Attempt::Done(is_settled) => return is_settled,
                Attempt::Stale { epoch } => {
                    let left = self.options.in_flight_until.saturating_sub(self.context.clock.monotonic());
                    if self.catch_up(epoch, left, &mut answer).await {
                        continue;
                    }
                    let required = self.required();
                    answer.give_failure(0, required, &[]);
                    return self.hint_all().await;
                }
            }
        }
    }

    /// Waits until this node knows an epoch. Returns false if it does not in time. The client may stop waiting before.
    async fn catch_up(&self, epoch: u64, left: Duration, answer: &mut ClientAnswer) -> bool {
        let caught_up = epoch::catch_up(&self.context, epoch, left);
        let mut caught_up = std::pin::pin!(caught_up);
        let waits = self.options.answered_until.saturating_sub(self.context.clock.monotonic());
        tokio::select! {
            biased;
            outcome = &mut caught_up => return outcome,
            () = self.context.clock.sleep(waits), if answer.is_open() => {
                answer.give_failure(0, self.required(), &[]);
            }
        }
        caught_up.await
    }

    /// The times of hints for it.
    fn times(&self) -> WrittenAt {
        let created_micros = self.options.written_micros.unwrap_or(self.begun_micros);
        WrittenAt { created_micros, kept_micros: self.begun_micros }
    }

    fn required(&self) -> u32 {
        replicas_of(&self.context, &self.change)
            .and_then(|(_, replicas)| {
                demand(&self.context, &self.change.table.keyspace, &replicas, self.options.consistency).ok()
            })
            .map_or(1, |demand| demand.required())
    }

    /// Stores hints for all replicas, to be delivered when the ring is known again.
    async fn hint_all(&self) -> bool {
        let Some((_, replicas)) = replicas_of(&self.context, &self.change) else { return false };
        let mut all = true;
        for member in replicas.all() {
            let stored = hints::store(&self.context, member.host_id, &self.change, self.times()).await;
            all &= stored == Stored::Kept;
        }
        all
    }

    /// Sends the mutation to the present replicas, and waits until each has answered or has a hint.
    async fn attempt(&self, answer: &mut ClientAnswer) -> Attempt {
        let Self { context, change, options, .. } = self;
        let bytes = change.mutation.bytes();
        let Some((epoch, replicas)) = replicas_of(context, change) else {
            let outcome = apply_at_replica(context, None, bytes.clone()).await;
            let is_settled = outcome.is_ok();
            answer.give(outcome.map_err(|failure| RequestError::Server(failure.to_string())));
            return Attempt::Done(is_settled);
        };
        let demand = match demand(context, &change.table.keyspace, &replicas, options.consistency) {
            Ok(demand) => demand,
            Err(error) => {
                // The keyspace was dropped meanwhile.
                answer.give(Err(error));
                return Attempt::Done(true);
            }
        };
        let mut round = WriteRound {
            context,
            change,
            times: self.times(),
            excuses_absent: options.excuses_absent,
            replicas: &replicas,
            demand,
            acknowledged: SmallVec::new(),
            down: SmallVec::new(),
            failed: Vec::new(),
            asked: FuturesUnordered::new(),
            hinting: FuturesUnordered::new(),
        };
        let mut request = None;
        for member in replicas.all() {
            let is_here = member.host_id == context.node.host_id;
            if is_here && options.is_applied_here {
                round.acknowledged.push(member.clone());
            } else if is_here {
                let (context, bytes, member) = (context.clone(), bytes.clone(), member.clone());
                trace::note(&context, || "Applying the mutation on this node".to_owned());
                round.asked.push(Box::pin(async move {
                    let outcome = apply_at_replica(&context, Some(epoch), bytes).await;
                    (member, outcome.map_err(PeerError::from))
                }));
            } else if context.cluster_view().is_alive(&member.host_id) {
                // Encoded once for all replicas.
                let request = request.get_or_insert_with(|| {
                    service::encode_request(&ReplicaRequest::Write { epoch, mutation: bytes.to_vec() })
                });
                let (context, member, until) = (context.clone(), member.clone(), options.in_flight_until);
                round.asked.push(Box::pin(send(context, member, change.token, request.clone(), until)));
            } else {
                round.down.push(member.clone());
                round.hint(member);
            }
        }
        round.finish(answer, options).await
    }
}

/// The replicas of one epoch while they answer.
struct WriteRound<'a> {
    excuses_absent: bool,
    context: &'a Rc<ShardContext>,
    change: &'a PartitionMutation,
    /// The times of hints for it.
    times: WrittenAt,
    replicas: &'a Replicas,
    demand: RequiredReplicas,
    acknowledged: SmallVec<[Arc<Member>; 4]>,
    /// Replicas known to be down. They are not asked, and so are no failures of this write.
    down: SmallVec<[Arc<Member>; 4]>,
    failed: Vec<(Arc<Member>, FailureReason)>,
    asked: Asked,
    hinting: Hinting,
}

impl WriteRound<'_> {
    async fn finish(mut self, answer: &mut ClientAnswer, options: &WriteOptions) -> Attempt {
        let clock = self.context.clock.clone();
        let mut timer = clock.sleep(options.in_flight_until.saturating_sub(clock.monotonic()));
        let is_patient = options.answered_until >= options.in_flight_until;
        let mut impatient =
            (!is_patient).then(|| clock.sleep(options.answered_until.saturating_sub(clock.monotonic())));
        let (mut is_settled, mut has_excused) = (true, false);
        self.answer_if_decided(answer);
        loop {
            tokio::select! {
                biased;
                Some((member, outcome)) = self.asked.next(), if !self.asked.is_empty() => match outcome {
                    Ok(()) => self.acknowledged.push(member),
                    Err(PeerError::Failed(Failure::StaleRing { epoch })) => return Attempt::Stale { epoch },
                    Err(error) => {
                        tracing::debug!(replica = %member.host_id, %error, "a replica did not acknowledge a write");
                        self.failed.push((member.clone(), failure_reason(&error)));
                        self.hint(&member);
                    }
                },
                Some((member, stored)) = self.hinting.next(), if !self.hinting.is_empty() => match stored {
                    Stored::Kept if self.demand.consistency() == Consistency::Any => self.acknowledged.push(member),
                    Stored::Kept => {}
                    Stored::AwayTooLong if self.excuses_absent => has_excused = true,
                    Stored::AwayTooLong | Stored::NotKept | Stored::Failed => is_settled = false,
                },
                () = &mut timer, if !self.asked.is_empty() => {
                    self.asked.clear();
                    for member in self.replicas.all() {
                        let has_answered = self.acknowledged.iter().any(|known| known.host_id == member.host_id);
                        if !has_answered && !self.is_lost(member) {
                            self.failed.push((member.clone(), FailureReason::TimedOut));
                            self.hint(member);
                        }
                    }
                }
                () = rings(impatient.as_mut()), if answer.is_open() => {
                    impatient = None;
                    self.answer_in_time(answer);
                }
                else => break,
            }
            self.answer_if_decided(answer);
        }
        Attempt::Done(is_settled && !(has_excused && self.acknowledged.is_empty()))
    }

    /// Stores a hint for a replica that lacks the mutation.
    fn hint(&self, member: &Arc<Member>) {
        let (context, change, member) = (self.context.clone(), self.change.clone(), member.clone());
        let times = self.times;
        trace::note(&context, || format!("Keeping a hint for {}", member.internode_address));
        self.hinting.push(Box::pin(async move {
            let stored = hints::store(&context, member.host_id, &change, times).await;
            (member, stored)
        }));
    }

    /// Answers the client when the level is reached, or as soon as it cannot be reached any more.
    fn answer_if_decided(&self, answer: &mut ClientAnswer) {
        if !answer.is_open() {
            return;
        }
        let acknowledged = || self.acknowledged.iter().map(|member| &**member);
        if self.demand.is_met(acknowledged()) {
            answer.give(Ok(()));
            return;
        }
        let is_any = self.demand.consistency() == Consistency::Any;
        let can_hint = is_any && !self.hinting.is_empty();
        let none_is_lost = self.failed.is_empty() && self.down.is_empty();
        let is_possible =
            can_hint || (!self.asked.is_empty() && (none_is_lost || is_any || self.may_be_met()));
        if !is_possible {
            // With ANY, a hint for a replica that is down would have been enough, but could not be stored.
            let without_hint = self.down.iter().filter(|_| is_any);
            let without_hint = without_hint.map(|member| (member.clone(), FailureReason::NodeDown));
            let asked_and_failed: Vec<_> = self
                .failed
                .iter()
                .filter(|(member, _)| is_any || self.demand.counts(member))
                .cloned()
                .chain(without_hint)
                .collect();
            answer.give_failure(
                self.demand.received(acknowledged()),
                self.demand.required(),
                &asked_and_failed,
            );
        }
    }

    /// Answers a client that does not wait any longer.
    fn answer_in_time(&self, answer: &mut ClientAnswer) {
        let acknowledged = self.acknowledged.iter().map(|member| &**member);
        answer.give_failure(self.demand.received(acknowledged), self.demand.required(), &[]);
    }

    /// Whether the level is reached if all replicas that have not answered acknowledge.
    fn may_be_met(&self) -> bool {
        let open: SmallVec<[&Member; 4]> =
            self.replicas.all().filter(|member| !self.is_lost(member)).map(|member| &**member).collect();
        self.demand.is_met(open.iter().copied())
    }

    /// Whether the member will not acknowledge any more.
    fn is_lost(&self, member: &Member) -> bool {
        self.down.iter().any(|down| down.host_id == member.host_id)
            || self.failed.iter().any(|(failed, _)| failed.host_id == member.host_id)
    }
}

/// Asks a member's shard to apply a mutation. Repeats the request while the member does not know the table yet.
async fn send(
    context: Rc<ShardContext>,
    member: Arc<Member>,
    token: i64,
    request: Result<service::Message, Failure>,
    deadline: Duration,
) -> (Arc<Member>, Result<(), PeerError>) {
    let request = match request {
        Ok(request) => request,
        Err(failure) => return (member, Err(failure.into())),
    };
    let shard = shard_of(token, u32::from(member.shard_count), IGNORE_MSB) as u16;
    loop {
        let left = deadline.saturating_sub(context.clock.monotonic());
        match context.ask_other::<ReplicaRequest>(&member, shard, "MUTATION", request.clone(), left).await {
            Ok(_) => return (member, Ok(())),
            Err(PeerError::Failed(Failure::UnknownTable { .. })) if left > SCHEMA_PAUSE => {
                context.clock.sleep(SCHEMA_PAUSE).await;
            }
            Err(error) => return (member, Err(error)),
        }
    }
}
