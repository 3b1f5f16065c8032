//! The proposer of a transaction or of a serial read: a state machine that takes answers and returns the next step.
//!
//! It does no I/O, reads no clock and draws no random numbers, so tests can run it under any order of events.
//!
//! A round asks all participants for promises, and for the data that the transaction reads. A quorum of answers shows
//! one of these cases:
//!
//! * A proposal was accepted of which no commit is known. It is proposed again (it may have been agreed). Then a new
//!   round begins, whose requests carry the commit.
//! * A commit is not known to a quorum. A new round begins, whose requests carry it. Only then may the next proposal
//!   overwrite the accepted one: by then the agreed mutation is in the data of a quorum.
//! * Otherwise the caller decides, from the data read, what to propose: a mutation; nothing, which rules out any
//!   proposal that a minority may have accepted; or, if no write was in progress at any replica that answered, it
//!   makes no proposal at all.
//!
//! When a proposal was outbid, others may still finish it. Later rounds show its outcome in most cases: it was
//! committed; or it is found accepted, and is finished; or another proposal, possibly an empty one, is agreed in a
//! round that has not found it, and thereby rules it out. (Promises alone do not rule it out: a later round may find
//! it at a replica that did not answer before.) Later commits show the outcome as well, because they list the commits
//! before them. The outcome stays unknown only if there were more commits than are listed.

use serde::{Deserialize, Serialize};

use super::ballot::Ballot;
use super::state::{Accepted, Commit, Proposal, Trail};

/// The participants, by number: first the replicas that are read, then the pending ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Electorate {
    /// Replicas that are read.
    pub natural: usize,
    /// Replicas that are about to gain ownership (or have just lost it).
    pub pending: usize,
    /// While the keyspace's replication changes: those of `natural` that are no replicas on the other side.
    pub given_up: usize,
    /// All must agree, not only a quorum.
    pub is_unanimous: bool,
}

impl Electorate {
    pub fn participants(&self) -> usize {
        self.natural + self.pending
    }

    /// The number of participants that must agree: a majority of the natural ones, and one more for each pending one.
    /// Any such set contains a majority of the replicas before and of those after the transition, and a majority of
    /// the natural ones. While the keyspace's replication changes, the number is high enough that any such set contains a majority of
    /// the replicas under each of the two replications.
    pub fn quorum(&self) -> usize {
        if self.is_unanimous {
            return self.participants();
        }
        let of_natural = self.natural / 2 + 1 + self.pending;
        // Of a data center that is given up, all are: those who agree there do so for the last time.
        match self.participants() - self.given_up {
            0 => of_natural,
            others => of_natural.max(others / 2 + 1 + self.given_up),
        }
    }
}

/// A question to all participants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Apply the commit, if any; promise; read.
    Prepare { ballot: Ballot, is_write: bool, commit: Option<Commit> },
    /// Accept.
    Propose { ballot: Ballot, proposal: Proposal },
}

/// A participant's answer to [`Question::Prepare`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Promise<R> {
    /// `Some`: only a read is permitted; a write must outbid these microseconds.
    pub permitted_above_micros: Option<i64>,
    /// The proposal that the participant has accepted and not committed, whether promised before or not.
    pub accepted: Option<Accepted>,
    pub committed: Option<Commit>,
    /// No write that the participant promised before can still be in progress.
    pub is_stable: bool,
    pub low_bound_micros: i64,
    /// The data read; `None` from pending participants.
    pub read: Option<R>,
}

/// A participant's answer.
#[derive(Debug, Clone)]
pub enum ParticipantAnswer<R> {
    Promised(Box<Promise<R>>),
    Accepted,
    Rejected {
        above_micros: i64,
    },
    /// There was no answer, or the participant could not execute the question.
    Failed,
}

/// The reading on which the caller must decide.
#[derive(Debug)]
pub struct Reading<R> {
    /// The promised ballot. Its microseconds become the timestamp of a mutation.
    pub ballot: Ballot,
    /// The data read by the natural participants of the quorum, by their numbers.
    pub reads: Vec<(usize, R)>,
    /// A proposal may follow. If false, the reading is settled.
    pub is_promised: bool,
    /// The reading is valid as it is. If false, an empty proposal must be agreed before the reading is used in an
    /// answer.
    pub is_settled: bool,
}

/// The next step of the caller.
#[derive(Debug)]
pub enum Step<R> {
    /// Wait for more answers.
    Wait,
    /// Send this question to all participants.
    Ask(Question),
    /// Call [`Proposer::propose`], or end the operation.
    Decide(Reading<R>),
    /// Call [`Proposer::begin`], after a pause if other coordinators compete.
    Again { is_contended: bool },
    /// The caller's mutation was agreed: commit it.
    Agreed(Commit),
    /// The caller's empty proposal was agreed: the reading is valid.
    Settled,
    /// Too few participants answered; [`Proposer::tally`] has the numbers.
    TooFew,
    /// The caller's mutation may or may not have taken effect, now or later.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The caller's mutation.
    Own,
    /// The caller's empty proposal.
    Empty,
    /// The proposal of another coordinator, which is finished.
    Finish,
}

#[derive(Debug)]
enum ProposalPhase<R> {
    Idle,
    Preparing { promises: Vec<(usize, Promise<R>)> },
    Deciding,
    Proposing { proposal: Proposal, purpose: Purpose, accepts: usize, rejects: usize },
}

/// The number of answers received and required in the present phase, or in the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub received: usize,
    pub required: usize,
}

/// The proposer of one operation; see the module. `R` is the data that a participant reads.
#[derive(Debug)]
pub struct Proposer<R> {
    is_write: bool,
    electorate: Electorate,
    ballot: Option<Ballot>,
    phase: ProposalPhase<R>,
    /// The participants that have answered the present question.
    answered: Vec<bool>,
    /// The next ballot must be above these microseconds.
    floor_micros: i64,
    /// Outbid proposals of the caller's mutation: each may still be agreed.
    open: Vec<Proposal>,
    /// The trail of the next proposal.
    trail: Trail,
    /// A commit that the next question for promises carries.
    carried: Option<Commit>,
    contentions: u16,
    tally: Tally,
}

impl<R> Proposer<R> {
    /// Creates the proposer. `agreed`: a commit that another operation has just agreed on; the first question carries
    /// it.
    pub fn new(is_write: bool, agreed: Option<Commit>) -> Self {
        Self {
            is_write,
            electorate: Electorate { natural: 0, pending: 0, given_up: 0, is_unanimous: false },
            ballot: None,
            phase: ProposalPhase::Idle,
            answered: Vec::new(),
            floor_micros: agreed.as_ref().map_or(i64::MIN, |commit| commit.ballot.micros),
            open: Vec::new(),
            trail: Trail::default(),
            carried: agreed,
            contentions: 0,
            tally: Tally::default(),
        }
    }

    /// The next ballot must be above these microseconds.
    pub fn floor_micros(&self) -> i64 {
        self.floor_micros
    }

    /// How often other coordinators have outbid this one.
    pub fn contentions(&self) -> u16 {
        self.contentions
    }

    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether a mutation of the caller may still take effect.
    pub fn has_open_proposal(&self) -> bool {
        !self.open.is_empty() || matches!(&self.phase, ProposalPhase::Proposing { purpose: Purpose::Own, .. })
    }

    /// Begins a round. Answers to earlier questions must not be passed in any more.
    pub fn begin(&mut self, ballot: Ballot, electorate: Electorate) -> Question {
        if let ProposalPhase::Proposing { proposal, purpose: Purpose::Own, .. } =
            std::mem::replace(&mut self.phase, ProposalPhase::Preparing { promises: Vec::new() })
        {
            self.open.push(proposal);
        }
        self.electorate = electorate;
        self.ballot = Some(ballot);
        self.floor_micros = self.floor_micros.max(ballot.micros);
        self.ask();
        Question::Prepare { ballot, is_write: self.is_write, commit: self.carried.clone() }
    }

    /// Proposes the caller's decision; `None`: an empty proposal.
    pub fn propose(&mut self, mutation: Option<Vec<u8>>) -> Step<R> {
        let (ProposalPhase::Deciding, Some(ballot)) = (&self.phase, self.ballot) else {
            return Step::Again { is_contended: false };
        };
        let purpose = if mutation.is_some() { Purpose::Own } else { Purpose::Empty };
        let trail = std::mem::take(&mut self.trail);
        self.put(Proposal { origin: ballot, mutation, trail }, purpose, ballot)
    }

    /// Takes a participant's answer to the present question.
    pub fn answer(&mut self, from: usize, answer: ParticipantAnswer<R>) -> Step<R> {
        match self.answered.get_mut(from) {
            Some(answered) if !*answered => *answered = true,
            _ => return Step::Wait,
        }
        let outstanding = self.answered.iter().filter(|answered| !**answered).count();
        let required = self.electorate.quorum();
        match &mut self.phase {
            ProposalPhase::Preparing { promises } => {
                match answer {
                    ParticipantAnswer::Promised(promise) => promises.push((from, *promise)),
                    ParticipantAnswer::Rejected { above_micros } => {
                        self.floor_micros = self.floor_micros.max(above_micros);
                        return self.again_contended();
                    }
                    ParticipantAnswer::Accepted | ParticipantAnswer::Failed => {}
                }
                self.tally.received = promises.len();
                if promises.len() >= required {
                    let promises = std::mem::take(promises);
                    return self.promised(promises);
                }
                if promises.len() + outstanding < required { Step::TooFew } else { Step::Wait }
            }
            ProposalPhase::Proposing { accepts, rejects, .. } => {
                match answer {
                    ParticipantAnswer::Accepted => *accepts += 1,
                    ParticipantAnswer::Rejected { above_micros } => {
                        *rejects += 1;
                        self.floor_micros = self.floor_micros.max(above_micros);
                    }
                    ParticipantAnswer::Promised(_) | ParticipantAnswer::Failed => {}
                }
                self.tally.received = *accepts;
                if *accepts >= required {
                    return self.agreed();
                }
                if *accepts + outstanding >= required {
                    return Step::Wait;
                }
                if *rejects == 0 { Step::TooFew } else { self.again_contended() }
            }
            ProposalPhase::Idle | ProposalPhase::Deciding => Step::Wait,
        }
    }

    fn ask(&mut self) {
        self.answered.clear();
        self.answered.resize(self.electorate.participants(), false);
        self.tally = Tally { received: 0, required: self.electorate.quorum() };
    }

    fn again_contended(&mut self) -> Step<R> {
        self.contentions = self.contentions.saturating_add(1);
        Step::Again { is_contended: true }
    }

    fn put(&mut self, proposal: Proposal, purpose: Purpose, ballot: Ballot) -> Step<R> {
        self.phase = ProposalPhase::Proposing { proposal: proposal.clone(), purpose, accepts: 0, rejects: 0 };
        self.ask();
        Step::Ask(Question::Propose { ballot, proposal })
    }

    /// Called when a quorum has answered the question for promises.
    fn promised(&mut self, promises: Vec<(usize, Promise<R>)>) -> Step<R> {
        let Some(ballot) = self.ballot else { return Step::Again { is_contended: false } };
        debug_assert!(!promises.is_empty(), "a quorum has promised");
        let low_bound =
            promises.iter().map(|(_, promise)| promise.low_bound_micros).max().unwrap_or(i64::MIN);
        let latest = promises
            .iter()
            .filter_map(|(_, promise)| promise.committed.as_ref())
            .filter(|commit| commit.ballot.micros > low_bound)
            .max_by_key(|commit| commit.ballot)
            .cloned();
        let accepted = promises
            .iter()
            .filter_map(|(_, promise)| promise.accepted.as_ref())
            .max_by_key(|accepted| accepted.ballot);
        let permitted = promises.iter().filter_map(|(_, promise)| promise.permitted_above_micros).max();
        if let Some(above_micros) = permitted {
            self.floor_micros = self.floor_micros.max(above_micros);
        }
        let in_progress = accepted.filter(|accepted| {
            accepted.proposal.mutation.is_some()
                && latest.as_ref().is_none_or(|latest| {
                    latest.ballot < accepted.ballot && latest.origin != accepted.proposal.origin
                })
        });
        if !self.open.is_empty() {
            let mut commits = promises.iter().filter_map(|(_, promise)| promise.committed.as_ref());
            if let Some(commit) = commits.find(|commit| self.is_open(&commit.origin)) {
                return Step::Agreed(commit.clone());
            }
            if self.open.iter().any(|open| low_bound >= open.origin.micros) {
                return Step::Unknown;
            }
            if let Some(latest) = &latest
                && let Some(fate) = self.learn_from(latest)
            {
                return fate;
            }
        }
        if let Some(accepted) = in_progress {
            if permitted.is_some() {
                return self.again_contended();
            }
            let proposal = accepted.proposal.clone();
            return self.put(proposal, Purpose::Finish, ballot);
        }
        if let Some(latest) = &latest {
            let knows = |promise: &Promise<R>| {
                promise.committed.as_ref().is_some_and(|commit| commit.origin == latest.origin)
                    || promise.low_bound_micros >= latest.ballot.micros
            };
            if promises.iter().filter(|(_, promise)| knows(promise)).count() < self.electorate.quorum() {
                self.carried = Some(latest.clone());
                return Step::Again { is_contended: false };
            }
        }
        self.trail = Trail::after(latest.as_ref(), low_bound, ballot);
        self.carried = None;
        let is_settled = self.open.is_empty() && promises.iter().all(|(_, promise)| promise.is_stable);
        if permitted.is_some() && !is_settled {
            return self.again_contended();
        }
        self.phase = ProposalPhase::Deciding;
        let reads = promises
            .into_iter()
            .filter_map(|(from, promise)| promise.read.map(|read| (from, read)))
            .collect();
        Step::Decide(Reading { ballot, reads, is_promised: permitted.is_none(), is_settled })
    }

    fn is_open(&self, origin: &Ballot) -> bool {
        self.open.iter().any(|open| open.origin == *origin)
    }

    /// Learns the outcome of the caller's open proposals from a commit: a proposal that is older, and not among the
    /// commits listed before it, was ruled out.
    fn learn_from(&mut self, latest: &Commit) -> Option<Step<R>> {
        for open in self.open.iter().filter(|open| open.origin < latest.ballot) {
            match latest.trail.tells_of(&open.origin) {
                Some(true) => {
                    let Proposal { origin, mutation, trail } = open.clone();
                    debug_assert!(mutation.is_some(), "the caller's own proposals have a mutation");
                    let mutation = mutation.unwrap_or_default();
                    return Some(Step::Agreed(Commit { ballot: origin, origin, mutation, trail }));
                }
                Some(false) => {}
                None => return Some(Step::Unknown),
            }
        }
        self.open.retain(|open| open.origin > latest.ballot);
        None
    }

    /// Called when a quorum has accepted.
    fn agreed(&mut self) -> Step<R> {
        let (ProposalPhase::Proposing { proposal, purpose, .. }, Some(ballot)) =
            (std::mem::replace(&mut self.phase, ProposalPhase::Idle), self.ballot)
        else {
            return Step::Again { is_contended: false };
        };
        let Proposal { origin, mutation: Some(mutation), trail } = proposal else {
            self.open.clear();
            return Step::Settled;
        };
        let commit = Commit { ballot, origin, mutation, trail };
        if purpose == Purpose::Own || self.is_open(&commit.origin) {
            return Step::Agreed(commit);
        }
        self.carried = Some(commit);
        Step::Again { is_contended: false }
    }
}
