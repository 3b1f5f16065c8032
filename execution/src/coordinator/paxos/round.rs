//! The coordinator's side of transactions and serial reads: sends the questions of the [`Proposer`] to the replicas.
//!
//! Invariants:
//! * Every question goes to the replicas of one epoch. When one of them reports that the ring has changed, the
//!   coordinator catches up and begins a new round.
//! * All questions are sent, whichever replica answers first: each is a task of its own.
//! * When the deadline passes, the client gets the truth: nothing was done, or the outcome is unknown.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::response::WriteType;
use cql_lite::types::token::shard_of;
use helenus_engine::Mutation;
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_query::error::{RequestError, Result};
use helenus_ring::member::Member;
use tokio::sync::mpsc;

use super::ballot::Ballot;
use super::contention::take_lease;
use super::message::{PaxosRequest, PaxosResponse, ReadAnswer};
use super::operation::Participants;
use super::partition_queue::QueueGuard;
use super::proposer::{ParticipantAnswer, Proposer, Question, Reading, Step};
use super::replica;
use super::state::Commit;
use crate::coordinator::paxos::operation::Operation;
use crate::coordinator::replica::epoch;
use crate::coordinator::replica::message::{ReplicaRequest, ReplicaResponse};
use crate::shard::context::{IGNORE_MSB, ShardContext};
use crate::shard::{receipt, trace};

/// Longest pause after the first lost round; each further lost round doubles it.
const FIRST_PAUSE_MICROS: u64 = 2_000;
/// Upper limit of the pause.
const LONGEST_PAUSE_MICROS: u64 = 100_000;

/// The caller's decision on the data that was read.
#[derive(Debug)]
pub enum Verdict {
    /// Change the partition.
    Write(Mutation),
    /// Leave it as it is.
    Keep,
    /// Leave it as it is, and let the replicas agree on that.
    Settle,
}

/// The result of an operation.
#[derive(Debug)]
pub enum Agreement {
    /// The change was agreed. The caller must commit it.
    Agreed { commit: Commit, contentions: u16 },
    /// The last reading is valid.
    Kept,
}

/// Lets the replicas agree on the verdict that `decide` returns for the partition. It is called once for every round
/// that gets so far, with the ballot and the data read by a quorum. Its last verdict is the one that holds. An agreed
/// mutation is left to the next operation in the queue.
pub async fn agree(
    context: &Rc<ShardContext>,
    operation: &Operation,
    turn: &mut QueueGuard,
    decide: &mut dyn FnMut(Ballot, &[ReadAnswer]) -> Result<Verdict>,
) -> Result<Agreement> {
    let now = || context.clock.monotonic();
    if turn.is_contended(now()) {
        take_lease(context, operation, turn).await;
    }
    let proposer = Proposer::new(operation.is_write, turn.agreed_before());
    let mut rounds = Rounds { context, operation, decide, proposer };
    let mut pauses = 0_u32;
    loop {
        let participants = match operation.participants(context) {
            Ok(participants) => participants,
            // An error that says that nothing was tried is only right if no proposal is open.
            Err(error) if !rounds.proposer.has_open_proposal() => return Err(error),
            Err(_) => return Err(rounds.time_is_up()),
        };
        match rounds.round(&participants).await? {
            RoundEnd::Done(agreement) => {
                turn.leave(match &agreement {
                    Agreement::Agreed { commit, .. } => Some(commit.clone()),
                    Agreement::Kept => None,
                });
                return Ok(agreement);
            }
            RoundEnd::TimeIsUp => return Err(rounds.time_is_up()),
            RoundEnd::Unknown => return Err(rounds.unknown()),
            RoundEnd::Stale { epoch } => {
                if !epoch::catch_up(context, epoch, rounds.left()).await {
                    return Err(rounds.time_is_up());
                }
            }
            RoundEnd::Again => {}
            outcome @ (RoundEnd::Outbid | RoundEnd::TooFew) => {
                if matches!(outcome, RoundEnd::Outbid) {
                    turn.note_contention(now());
                    // While the outcome of a proposal is unknown, this node does not wait for a lease: others could
                    // hide the outcome meanwhile.
                    if !turn.has_lease() && !rounds.proposer.has_open_proposal() {
                        take_lease(context, operation, turn).await;
                        if turn.has_lease() {
                            continue;
                        }
                    }
                }
                let bound = (FIRST_PAUSE_MICROS << pauses.min(10)).min(LONGEST_PAUSE_MICROS);
                pauses += 1;
                let pause = Duration::from_micros(context.random.borrow_mut().below(bound));
                if pause >= rounds.left() {
                    return Err(rounds.time_is_up());
                }
                context.clock.sleep(pause).await;
            }
        }
    }
}

/// The end of a round.
enum RoundEnd {
    Done(Agreement),
    Again,
    /// Another coordinator has outbid this one.
    Outbid,
    /// Too few replicas answered.
    TooFew,
    Stale {
        epoch: u64,
    },
    TimeIsUp,
    Unknown,
}

/// A participant's answer, with its number.
type ParticipantReply = (usize, Result<ParticipantAnswer<ReadAnswer>, Failure>);

struct Rounds<'a> {
    context: &'a Rc<ShardContext>,
    operation: &'a Operation,
    decide: &'a mut dyn FnMut(Ballot, &[ReadAnswer]) -> Result<Verdict>,
    proposer: Proposer<ReadAnswer>,
}

impl Rounds<'_> {
    fn left(&self) -> Duration {
        self.operation.deadline.saturating_sub(self.context.clock.monotonic())
    }

    fn next_ballot(&self) -> Ballot {
        let floor = self.proposer.floor_micros().saturating_add(1);
        Ballot {
            micros: self.context.next_timestamp().max(floor),
            salt: self.context.random.borrow_mut().next_u64() as u32,
            host_id: self.context.node.host_id,
            scope: self.operation.scope(),
        }
    }

    async fn round(&mut self, participants: &Participants) -> Result<RoundEnd> {
        let ballot = self.next_ballot();
        let mut question = self.proposer.begin(ballot, participants.electorate);
        'questions: loop {
            let mut answers = self.ask(participants, &question);
            let mut timer = self.context.clock.sleep(self.left());
            loop {
                let received = tokio::select! {
                    biased;
                    received = answers.recv() => received,
                    () = &mut timer => return Ok(RoundEnd::TimeIsUp),
                };
                let Some((from, answer)) = received else { return Ok(RoundEnd::TooFew) };
                let answer = match answer {
                    Ok(answer) => answer,
                    Err(Failure::StaleRing { epoch }) => return Ok(RoundEnd::Stale { epoch }),
                    Err(error) => {
                        tracing::debug!(%error, "a replica did not participate in a transaction");
                        ParticipantAnswer::Failed
                    }
                };
                let mut step = self.proposer.answer(from, answer);
                if let Step::Decide(reading) = step {
                    step = match self.decide_on(reading)? {
                        Decided::Step(step) => step,
                        Decided::RoundEnd(round) => return Ok(round),
                    };
                }
                match step {
                    Step::Wait | Step::Decide(_) => {}
                    Step::Ask(next) => {
                        question = next;
                        continue 'questions;
                    }
                    Step::Again { is_contended: true } => return Ok(RoundEnd::Outbid),
                    Step::Again { is_contended: false } => return Ok(RoundEnd::Again),
                    Step::TooFew => return Ok(RoundEnd::TooFew),
                    Step::Agreed(commit) => {
                        let contentions = self.proposer.contentions();
                        return Ok(RoundEnd::Done(Agreement::Agreed { commit, contentions }));
                    }
                    Step::Settled => return Ok(RoundEnd::Done(Agreement::Kept)),
                    Step::Unknown => return Ok(RoundEnd::Unknown),
                }
            }
        }
    }

    fn decide_on(&mut self, reading: Reading<ReadAnswer>) -> Result<Decided> {
        let reads: Vec<ReadAnswer> = reading.reads.into_iter().map(|(_, read)| read).collect();
        let verdict = match (self.decide)(reading.ballot, &reads) {
            Ok(verdict) => verdict,
            Err(_) if self.proposer.has_open_proposal() => return Ok(Decided::RoundEnd(RoundEnd::Unknown)),
            Err(error) => return Err(error),
        };
        Ok(match verdict {
            Verdict::Keep if reading.is_settled => Decided::RoundEnd(RoundEnd::Done(Agreement::Kept)),
            // A later read was promised meanwhile: no proposal of this ballot would be accepted.
            _ if !reading.is_promised => Decided::RoundEnd(RoundEnd::Outbid),
            Verdict::Keep | Verdict::Settle => Decided::Step(self.proposer.propose(None)),
            Verdict::Write(mutation) => Decided::Step(self.proposer.propose(Some(mutation.bytes().to_vec()))),
        })
    }

    /// Sends a question to all participants. Their answers arrive through the channel, in any order.
    fn ask(
        &self,
        participants: &Participants,
        question: &Question,
    ) -> mpsc::UnboundedReceiver<ParticipantReply> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let is_prepare = matches!(question, Question::Prepare { .. });
        let left = self.left();
        debug_assert_eq!(participants.members.len(), participants.is_alive.len());
        for (number, member) in participants.members.iter().enumerate() {
            let is_read = is_prepare && number < participants.electorate.natural;
            let request = PaxosRequest {
                epoch: participants.epoch,
                partition: self.operation.name(),
                order: self.operation.order(question.clone(), is_read),
            };
            if !participants.is_alive.get(number).copied().unwrap_or(false) {
                // The receiver is in this function, so sending cannot fail.
                let _ = sender.send((number, Ok(ParticipantAnswer::Failed)));
                continue;
            }
            let (context, member, sender) = (self.context.clone(), member.clone(), sender.clone());
            let shares = context.shares.clone();
            tokio::task::spawn_local(shares.carry(trace::carry(receipt::carry(self.context, async move {
                let answer = match send(&context, &member, request, left).await {
                    Ok(PaxosResponse::Promised(promise)) => Ok(ParticipantAnswer::Promised(promise)),
                    Ok(PaxosResponse::Rejected { above_micros }) => {
                        Ok(ParticipantAnswer::Rejected { above_micros })
                    }
                    Ok(PaxosResponse::Accepted) => Ok(ParticipantAnswer::Accepted),
                    Ok(PaxosResponse::Committed | PaxosResponse::Forgotten) => Ok(ParticipantAnswer::Failed),
                    Err(PeerError::Failed(failure)) => Err(failure),
                    Err(PeerError::Call(error)) => Err(Failure::Internal(error.to_string())),
                };
                // Mostly there is no receiver for the last answers.
                let _ = sender.send((number, answer));
            }))));
        }
        receiver
    }

    fn time_is_up(&self) -> RequestError {
        if self.proposer.has_open_proposal() {
            return self.unknown();
        }
        let tally = self.proposer.tally();
        let required = tally.required as u32;
        // All may have answered and the round may have been outbid nevertheless.
        let received = (tally.received as u32).min(required.saturating_sub(1));
        let consistency = self.operation.serial;
        if self.operation.is_write {
            let contentions = self.proposer.contentions();
            let write_type = WriteType::Cas;
            RequestError::WriteTimeout { consistency, received, required, write_type, contentions }
        } else {
            RequestError::ReadTimeout { consistency, received, required, data_present: false }
        }
    }

    fn unknown(&self) -> RequestError {
        let tally = self.proposer.tally();
        let required = tally.required as u32;
        RequestError::CasWriteUnknown {
            consistency: self.operation.serial,
            received: (tally.received as u32).min(required.saturating_sub(1)),
            required,
        }
    }
}

enum Decided {
    Step(Step<ReadAnswer>),
    RoundEnd(RoundEnd),
}

/// Sends a request to the shard of a member that owns the partition. A shard of this node is called directly.
pub async fn send(
    context: &Rc<ShardContext>,
    member: &Member,
    request: PaxosRequest,
    deadline: Duration,
) -> Result<PaxosResponse, PeerError> {
    if member.host_id == context.node.host_id {
        return Ok(replica::receive(context, request).await?);
    }
    let shard = shard_of(request.partition.token, u32::from(member.shard_count), IGNORE_MSB) as u16;
    let request = ReplicaRequest::Paxos(Box::new(request));
    match context.ask(member, shard, &request, deadline).await? {
        ReplicaResponse::Paxos(response) => Ok(response),
        _ => Err(Failure::Malformed("an answer to another question".to_owned()).into()),
    }
}
