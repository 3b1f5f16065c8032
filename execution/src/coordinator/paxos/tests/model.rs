//! A small model of proposers and replicas of one register, driven by a seeded scheduler that delays, reorders,
//! repeats and drops messages, crashes replicas and proposers, sets clocks wrong, and moves ownership.

use std::collections::{BTreeMap, BTreeSet};

use helenus_engine::io::SplitMix64;
use helenus_testing::linearizability::{Call, Operation};
use uuid::Uuid;

use super::super::ballot::{Ballot, SerialScope};
use super::super::proposer::{Electorate, ParticipantAnswer, Promise, Proposer, Question, Reading, Step};
use super::super::state::{Commit, PromiseOutcome, Registers, Trail};

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// A crash loses the promises of a replica.
    ForgetsPromises,
    /// Replicas answer before their log is synced.
    AnswersBeforeSync,
    /// Replicas do not report proposals that they have accepted.
    HidesAccepted,
    /// Replicas claim to know a commit that they have not applied.
    ClaimsCommits,
    /// Replicas answer coordinators that do not know of new replicas.
    IgnoresEpochs,
    /// State is forgotten that a quorum, but not every replica, has settled.
    ForgetsAtAQuorum,
    /// A replica forgets a commit as soon as it knows it.
    ForgetsAtOnce,
    /// Forgotten state leaves no low bound.
    ForgetsWithoutABound,
    /// Commits do not list the commits before them, and claim to list all.
    LosesTrails,
}

/// The kind of a run.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Plan {
    pub proposers: usize,
    /// Number of operations to begin.
    pub operations: usize,
    /// No message is lost and nothing crashes.
    pub is_quiet: bool,
    /// Replica 3 replaces replica 0.
    pub is_moving: bool,
    /// Most messages to replica 2 get lost.
    pub has_bad_link: bool,
    /// Clients also make replicas forget state.
    pub is_forgetting: bool,
    pub trouble: Option<Trouble>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            proposers: 4,
            operations: 40,
            is_quiet: false,
            is_moving: false,
            has_bad_link: false,
            is_forgetting: true,
            trouble: None,
        }
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct RunResult {
    pub history: Vec<Call>,
    /// Operations with an unknown outcome.
    pub unknown: usize,
    /// Those of them whose proposer did not learn the outcome.
    pub hidden: usize,
    /// Operations that took effect more than once, or although they were refused.
    pub repeated: usize,
    /// Questions sent to all participants.
    pub questions: usize,
}

/// The state of a replica.
#[derive(Debug, Clone, Default)]
struct Store {
    registers: Registers,
    /// The register's value with its timestamp: the later one wins.
    value: (i64, u64),
}

impl Store {
    fn apply(&mut self, commit: &Commit) {
        let value = u64::from_be_bytes(commit.mutation.as_slice().try_into().unwrap());
        self.value = self.value.max((commit.origin.micros, value));
        self.registers.commit(commit.clone());
    }

    /// Merges the state of another replica into this one, as streaming does.
    fn merge(&mut self, other: &Self) {
        let (mine, theirs) = (&mut self.registers, &other.registers);
        mine.forget(theirs.low_bound_micros);
        mine.promised = mine.promised.max(theirs.promised);
        mine.promised_write = mine.promised_write.max(theirs.promised_write);
        if let Some(accepted) = &theirs.accepted {
            let known = mine.accepted.as_ref().map(|mine| mine.ballot);
            let committed = mine.committed.as_ref().map(|mine| mine.ballot);
            if known.max(committed) < Some(accepted.ballot) {
                mine.accepted = Some(accepted.clone());
            }
        }
        if let Some(commit) = &theirs.committed {
            mine.commit(commit.clone());
        }
        self.value = self.value.max(other.value);
    }
}

#[derive(Debug, Default)]
struct Replica {
    live: Store,
    durable: Store,
    /// Answers that wait until the state that they depend on is durable.
    unsynced: Vec<Message>,
    epoch: u64,
}

#[derive(Debug, Clone)]
enum Body {
    Question(Question),
    Commit(Commit),
    Forget(Ballot),
    ParticipantAnswer(ParticipantAnswer<(i64, u64)>),
    Stale(u64),
}

#[derive(Debug, Clone)]
struct Message {
    /// The number of the replica that the message goes to or comes from.
    replica: usize,
    proposer: usize,
    /// The number of the proposer's question.
    question: u64,
    /// The participant's number in the electorate of the question.
    participant: usize,
    epoch: u64,
    body: Body,
}

/// An operation in progress.
struct Running {
    proposer: Proposer<(i64, u64)>,
    number: usize,
    began: u64,
    /// `None`: a read.
    swap: Option<(u64, u64)>,
    /// It settles all earlier state.
    is_settling: bool,
    seen: u64,
    /// The ballot of the round.
    ballot: Option<Ballot>,
    epoch: u64,
}

#[derive(Default)]
struct Client {
    running: Option<Running>,
    question: u64,
    epoch: u64,
    last_micros: i64,
    skew_micros: i64,
    /// The value that the client has seen last.
    known: u64,
    /// The client's last agreed mutation, carried by its next operation.
    agreed: Option<Commit>,
}

struct World<'p> {
    plan: &'p Plan,
    random: SplitMix64,
    now: u64,
    replicas: Vec<Replica>,
    clients: Vec<Client>,
    network: Vec<Message>,
    outcome: RunResult,
    begun: usize,
    next_value: u64,
    /// The epoch of the ring in the metadata log; replicas and clients follow.
    epoch: u64,
    has_streamed: bool,
    /// The operations of proposals, by origin.
    proposed: BTreeMap<Ballot, usize>,
    /// The origins of the mutations that any replica has applied.
    applied: BTreeSet<Ballot>,
    refused: BTreeSet<usize>,
}

/// Runs a model to its end.
pub fn run(plan: &Plan, seed: u64) -> RunResult {
    let mut world = World {
        plan,
        random: SplitMix64::new(seed),
        now: 0,
        replicas: (0..4).map(|_| Replica::default()).collect(),
        clients: (0..plan.proposers).map(|_| Client::default()).collect(),
        network: Vec::new(),
        outcome: RunResult::default(),
        begun: 0,
        next_value: 1,
        epoch: 0,
        has_streamed: false,
        proposed: BTreeMap::new(),
        applied: BTreeSet::new(),
        refused: BTreeSet::new(),
    };
    for client in 0..plan.proposers {
        world.clients[client].skew_micros = world.random.below(400) as i64 - 200;
    }
    while world.now < 20_000 {
        world.now += 1;
        world.step();
        let is_done =
            world.begun >= plan.operations && world.clients.iter().all(|client| client.running.is_none());
        if is_done {
            break;
        }
    }
    for client in 0..plan.proposers {
        world.abandon(client);
    }
    let effects: Vec<usize> = world
        .proposed
        .iter()
        .filter(|(origin, _)| world.applied.contains(origin))
        .map(|(_, number)| *number)
        .collect();
    let distinct: BTreeSet<usize> = effects.iter().copied().collect();
    world.outcome.repeated = effects.len() - distinct.difference(&world.refused).count();
    world.outcome
}

impl World<'_> {
    fn step(&mut self) {
        let is_quiet = self.plan.is_quiet;
        match self.random.below(100) {
            0..=54 => self.deliver(),
            55..=79 => {
                let replica = self.random.below(4) as usize;
                self.sync(replica);
            }
            80..=91 => {
                let client = self.random.below(self.clients.len() as u64) as usize;
                self.client_turn(client);
            }
            92..=93 if !is_quiet && !self.network.is_empty() => {
                let index = self.random.below(self.network.len() as u64) as usize;
                self.network.swap_remove(index);
            }
            92..=93 if !is_quiet => {}
            94 if !is_quiet => {
                let replica = self.random.below(4) as usize;
                self.crash(replica);
            }
            95 if !is_quiet => {
                let client = self.random.below(self.clients.len() as u64) as usize;
                self.clients[client].skew_micros = self.random.below(2_000) as i64 - 1_000;
            }
            96 if !is_quiet && self.random.chance(1, 4) => {
                let client = self.random.below(self.clients.len() as u64) as usize;
                self.abandon(client);
            }
            97..=98 if self.plan.is_moving => self.move_on(),
            _ => {}
        }
    }

    /// Replicas by participant: those that are read, then pending ones.
    fn electorate(epoch: u64) -> (Vec<usize>, Electorate) {
        let (replicas, (natural, pending)) = match epoch {
            0 => (vec![0, 1, 2], (3, 0)),
            1 => (vec![0, 1, 2, 3], (3, 1)),
            2 => (vec![3, 1, 2, 0], (3, 1)),
            _ => (vec![3, 1, 2], (3, 0)),
        };
        (replicas, Electorate { natural, pending, given_up: 0, is_unanimous: false })
    }

    fn move_on(&mut self) {
        let follower = self.random.below(4) as usize;
        self.replicas[follower].epoch = self.epoch;
        let client = self.random.below(2 * self.clients.len() as u64) as usize;
        if let Some(client) = self.clients.get_mut(client) {
            client.epoch = self.epoch;
        }
        let all_follow = self.replicas.iter().all(|replica| replica.epoch == self.epoch);
        if !all_follow || !self.random.chance(1, 3) {
            return;
        }
        if self.epoch == 1 && !self.has_streamed {
            // Streamed data is written like any write: durable before it counts.
            let sources: &[usize] = if self.random.chance(1, 2) { &[0] } else { &[1, 2] };
            for &source in sources {
                let theirs = self.replicas[source].live.clone();
                self.replicas[3].live.merge(&theirs);
            }
            self.sync(3);
            self.has_streamed = true;
        } else if self.epoch < 3 && self.begun > self.plan.operations / 4 {
            self.epoch += 1;
        }
    }

    fn crash(&mut self, replica: usize) {
        let replica = &mut self.replicas[replica];
        replica.live = replica.durable.clone();
        replica.unsynced.clear();
        if self.plan.trouble == Some(Trouble::ForgetsPromises) {
            replica.live.registers.promised = None;
            replica.live.registers.promised_write = None;
        }
    }

    fn sync(&mut self, replica: usize) {
        let replica = &mut self.replicas[replica];
        replica.durable = replica.live.clone();
        self.network.append(&mut replica.unsynced);
    }

    fn deliver(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let index = self.random.below(self.network.len() as u64) as usize;
        let message = if self.plan.is_quiet {
            self.network.remove(0)
        } else if self.random.chance(1, 20) {
            self.network[index].clone()
        } else {
            self.network.swap_remove(index)
        };
        match &message.body {
            Body::Question(_) | Body::Commit(_) | Body::Forget(_) => {
                let is_lost = self.plan.has_bad_link && message.replica == 2 && self.random.chance(4, 5);
                if !is_lost {
                    self.at_replica(message);
                }
            }
            Body::ParticipantAnswer(_) | Body::Stale(_) => self.at_client(message),
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "a message that has arrived is used up")]
    fn at_replica(&mut self, message: Message) {
        let trouble = self.plan.trouble;
        let answers_at_once = trouble == Some(Trouble::AnswersBeforeSync);
        let is_fenced = trouble != Some(Trouble::IgnoresEpochs);
        let replica = &mut self.replicas[message.replica];
        if is_fenced && message.epoch < replica.epoch {
            let body = Body::Stale(replica.epoch);
            self.network.push(Message { body, ..message });
            return;
        }
        // A replica that is behind catches up before it does anything.
        replica.epoch = replica.epoch.max(message.epoch);
        let store = &mut replica.live;
        let answer = match &message.body {
            Body::Commit(commit) => {
                store.apply(commit);
                self.applied.insert(commit.origin);
                if trouble == Some(Trouble::ForgetsAtOnce) {
                    store.registers.forget(commit.ballot.micros);
                }
                return;
            }
            Body::Forget(ballot) => {
                store.registers.forget(ballot.micros);
                if trouble == Some(Trouble::ForgetsWithoutABound) {
                    store.registers.low_bound_micros = 0;
                }
                return;
            }
            Body::Question(Question::Prepare { ballot, is_write, commit }) => {
                match commit {
                    Some(commit) if trouble == Some(Trouble::ClaimsCommits) => {
                        store.registers.commit(commit.clone());
                    }
                    Some(commit) => {
                        store.apply(commit);
                        self.applied.insert(commit.origin);
                        if trouble == Some(Trouble::ForgetsAtOnce) {
                            store.registers.forget(commit.ballot.micros);
                        }
                    }
                    None => {}
                }
                let before = store.registers.clone();
                match store.registers.promise(*ballot, *is_write) {
                    PromiseOutcome::Rejected { above_micros } => ParticipantAnswer::Rejected { above_micros },
                    outcome => {
                        let permitted_above_micros = match outcome {
                            PromiseOutcome::ReadPermitted { above_micros } => Some(above_micros),
                            _ => None,
                        };
                        let (_, electorate) = World::electorate(message.epoch);
                        let is_natural = message.participant < electorate.natural;
                        ParticipantAnswer::Promised(Box::new(Promise {
                            permitted_above_micros,
                            is_stable: before.is_stable(),
                            accepted: before.accepted.filter(|_| trouble != Some(Trouble::HidesAccepted)),
                            committed: before.committed.map(|commit| match trouble {
                                Some(Trouble::LosesTrails) => Commit { trail: Trail::default(), ..commit },
                                _ => commit,
                            }),
                            low_bound_micros: before.low_bound_micros,
                            read: is_natural.then_some(store.value),
                        }))
                    }
                }
            }
            Body::Question(Question::Propose { ballot, proposal }) => {
                match store.registers.accept(*ballot, proposal.clone()) {
                    Ok(()) => ParticipantAnswer::Accepted,
                    Err(above_micros) => ParticipantAnswer::Rejected { above_micros },
                }
            }
            Body::ParticipantAnswer(_) | Body::Stale(_) => return,
        };
        let answer = Message { body: Body::ParticipantAnswer(answer), ..message };
        if answers_at_once { self.network.push(answer) } else { replica.unsynced.push(answer) }
    }

    fn at_client(&mut self, message: Message) {
        let client = &mut self.clients[message.proposer];
        if message.question != client.question {
            return;
        }
        let Some(running) = &mut client.running else { return };
        match message.body {
            Body::Stale(epoch) => {
                client.epoch = client.epoch.max(epoch);
                self.begin_round(message.proposer);
            }
            Body::ParticipantAnswer(answer) => {
                let step = running.proposer.answer(message.participant, answer);
                self.take(message.proposer, step);
            }
            Body::Question(_) | Body::Commit(_) | Body::Forget(_) => {}
        }
    }

    fn take(&mut self, index: usize, step: Step<(i64, u64)>) {
        match step {
            Step::Wait => {}
            Step::Ask(question) => self.ask(index, question),
            Step::Decide(reading) => self.decide(index, &reading),
            Step::Again { .. } | Step::TooFew => self.begin_round(index),
            Step::Agreed(commit) => {
                let client = &mut self.clients[index];
                let Some(Running { swap: Some((expected, new)), began, .. }) = client.running.take() else {
                    panic!("only a swap proposes");
                };
                client.known = new;
                client.agreed = Some(commit.clone());
                let epoch = client.epoch;
                self.broadcast(index, epoch, &Body::Commit(commit));
                self.end(Operation::set(expected as i64, new as i64, Some(true)), began);
            }
            Step::Settled => self.answer_reading(index),
            Step::Unknown => {
                self.outcome.hidden += 1;
                self.abandon(index);
            }
        }
    }

    fn decide(&mut self, index: usize, reading: &Reading<(i64, u64)>) {
        let Some(running) = &mut self.clients[index].running else { return };
        assert!(reading.reads.len() >= 2, "a quorum of the natural replicas is read");
        assert!(reading.is_promised || reading.is_settled);
        running.seen = reading.reads.iter().map(|(_, value)| *value).max().unwrap_or_default().1;
        let proposed = running.swap.filter(|(expected, _)| *expected == running.seen).map(|(_, new)| new);
        match proposed {
            None if running.is_settling => {
                let step = running.proposer.propose(None);
                self.take(index, step);
            }
            Some(_) if !reading.is_promised => self.begin_round(index),
            None if reading.is_settled => self.answer_reading(index),
            proposed => {
                if proposed.is_some() {
                    self.proposed.insert(reading.ballot, running.number);
                }
                let step = running.proposer.propose(proposed.map(|new| new.to_be_bytes().to_vec()));
                self.take(index, step);
            }
        }
    }

    fn answer_reading(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let Some(Running { number, swap, seen, began, is_settling, ballot, epoch, .. }) =
            client.running.take()
        else {
            return;
        };
        client.known = seen;
        if let (true, Some(ballot)) = (is_settling, ballot) {
            self.broadcast(index, epoch, &Body::Forget(ballot));
            return;
        }
        let seen = Some(Some(seen as i64));
        let operation = match swap {
            None => Operation::Read { seen },
            Some((expected, new)) => {
                self.refused.insert(number);
                let (expected, new) = (Some(expected as i64), Some(new as i64));
                Operation::CompareAndSet { expected, new, applied: Some(false), seen }
            }
        };
        self.end(operation, began);
    }

    fn end(&mut self, operation: Operation, begun: u64) {
        self.outcome.history.push(Call { operation, begun, ended: Some(self.now) });
    }

    /// The client crashes, or its deadline passes.
    fn abandon(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.question += 1;
        let Some(running) = client.running.take() else { return };
        if let (Some((expected, new)), true) = (running.swap, running.proposer.has_open_proposal()) {
            self.outcome.unknown += 1;
            let operation = Operation::set(expected as i64, new as i64, None);
            self.outcome.history.push(Call { operation, begun: running.began, ended: None });
        }
    }

    /// Begins an operation, or stops waiting for answers and begins a new round.
    fn client_turn(&mut self, index: usize) {
        if self.clients[index].running.is_some() {
            if !self.plan.is_quiet && self.random.chance(1, 6) {
                self.begin_round(index);
            }
            return;
        }
        if self.begun >= self.plan.operations {
            return;
        }
        self.begun += 1;
        let is_settling = self.plan.is_forgetting && self.random.chance(1, 5);
        let swap = (!is_settling && self.random.chance(2, 3)).then(|| {
            let known = self.clients[index].known;
            let expected = if self.random.chance(3, 4) { known } else { self.random.below(self.next_value) };
            self.next_value += 1;
            (expected, self.next_value)
        });
        let client = &mut self.clients[index];
        let proposer = Proposer::new(swap.is_some() || is_settling, client.agreed.take());
        let (began, epoch) = (self.now, client.epoch);
        client.running = Some(Running {
            proposer,
            number: self.begun,
            began,
            swap,
            is_settling,
            seen: 0,
            ballot: None,
            epoch,
        });
        self.begin_round(index);
    }

    fn begin_round(&mut self, index: usize) {
        let salt = self.random.next_u64() as u32;
        let client = &mut self.clients[index];
        let Some(running) = &mut client.running else { return };
        let micros = (self.now as i64 + client.skew_micros)
            .max(client.last_micros + 1)
            .max(running.proposer.floor_micros().saturating_add(1));
        client.last_micros = micros;
        let host_id = Uuid::from_u128(index as u128);
        let ballot = Ballot { micros, salt, host_id, scope: SerialScope::Global };
        (running.ballot, running.epoch) = (Some(ballot), client.epoch);
        let (_, electorate) = World::electorate(client.epoch);
        let is_careless = self.plan.trouble == Some(Trouble::ForgetsAtAQuorum);
        let is_unanimous = running.is_settling && !is_careless;
        let question = running.proposer.begin(ballot, Electorate { is_unanimous, ..electorate });
        self.ask(index, question);
    }

    /// Sends a question to the replicas of the round's epoch.
    fn ask(&mut self, index: usize, question: Question) {
        let Some(running) = &self.clients[index].running else { return };
        let epoch = running.epoch;
        self.outcome.questions += 1;
        self.broadcast(index, epoch, &Body::Question(question));
    }

    fn broadcast(&mut self, index: usize, epoch: u64, body: &Body) {
        let client = &mut self.clients[index];
        client.question += 1;
        let (replicas, _) = World::electorate(epoch);
        for (participant, replica) in replicas.into_iter().enumerate() {
            self.network.push(Message {
                replica,
                proposer: index,
                question: client.question,
                participant,
                epoch,
                body: body.clone(),
            });
        }
    }
}
