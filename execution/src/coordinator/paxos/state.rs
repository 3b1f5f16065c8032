//! The state that a replica keeps for a partition's transactions, and how each message changes it. Without I/O.
//!
//! Invariants:
//! * A promise never regresses: a ballot that was outbid by a promised one is neither promised nor accepted any more.
//! * An accepted proposal is replaced only by one of a higher ballot, or removed when it is known to be committed.
//! * The registers of two replicas merge by taking the highest of each. The engine does so with the cells that hold
//!   them, so a range that changes owners takes its promises along.
//!
//! Reads and writes have separate promises (as in Cassandra's second version of Paxos): reads do not outbid each
//! other, so any number of them can run concurrently without a round of proposals.

use serde::{Deserialize, Serialize};

use super::ballot::Ballot;

/// A proposed change of a partition. It keeps the ballot of its first proposal through all later ones: that ballot is
/// its identity and gives the mutation its timestamp.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    pub origin: Ballot,
    /// `None`: nothing changes; earlier proposals that were not agreed are ruled out.
    pub mutation: Option<Vec<u8>>,
    /// The commits before this proposal.
    pub trail: Trail,
}

/// The commits before a proposal. It shows coordinators that were outbid the outcome of their proposals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trail {
    /// The origins of commits, the latest first. They grow strictly from commit to commit.
    pub origins: Vec<Ballot>,
    /// All commits before the proposal whose origin is above this are listed.
    pub complete_above_micros: i64,
}

impl Trail {
    /// Most commits that are listed.
    pub const MAX: usize = 16;
    /// Commits that are older than a proposal by more than this are not listed: by then no coordinator waits for
    /// their outcome any more.
    const MAX_AGE_MICROS: i64 = 10_000_000;

    /// The trail of a proposal of this origin that follows a commit. Commits that are not above the low bound are
    /// left out.
    pub fn after(latest: Option<&Commit>, low_bound_micros: i64, origin: Ballot) -> Self {
        let mut trail = Self { origins: Vec::new(), complete_above_micros: low_bound_micros };
        let Some(latest) = latest else { return trail };
        trail.complete_above_micros = low_bound_micros.max(latest.trail.complete_above_micros);
        for before in std::iter::once(&latest.origin).chain(&latest.trail.origins) {
            let is_old = before.micros < origin.micros.saturating_sub(Self::MAX_AGE_MICROS);
            if is_old || trail.origins.len() == Self::MAX {
                trail.complete_above_micros = trail.complete_above_micros.max(before.micros);
                break;
            }
            trail.origins.push(*before);
        }
        trail
    }

    /// Whether a commit of this origin precedes the proposal; `None`: unknown.
    pub fn tells_of(&self, origin: &Ballot) -> Option<bool> {
        if self.origins.contains(origin) {
            return Some(true);
        }
        (origin.micros > self.complete_above_micros).then_some(false)
    }
}

/// A proposal with the ballot under which it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub ballot: Ballot,
    pub proposal: Proposal,
}

/// A proposal that was agreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The ballot under which it was agreed.
    pub ballot: Ballot,
    /// The ballot of the first proposal.
    pub origin: Ballot,
    pub mutation: Vec<u8>,
    /// The commits before this one.
    pub trail: Trail,
}

/// A replica's answer to a question for a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromiseOutcome {
    /// Nothing with a lower ballot will be accepted.
    Promised,
    /// A later read was promised, but no later write: a read may continue, a proposal may not.
    ReadPermitted { above_micros: i64 },
    /// A later write was promised, accepted or committed.
    Rejected { above_micros: i64 },
}

/// A partition's state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registers {
    /// The highest ballot promised to any operation.
    pub promised: Option<Ballot>,
    /// The highest ballot promised to a write.
    pub promised_write: Option<Ballot>,
    /// The last accepted proposal, unless its commit or a later one is known.
    pub accepted: Option<Accepted>,
    /// The latest commit.
    pub committed: Option<Commit>,
    /// Microseconds up to which everything is settled at all replicas and forgotten here: what is not above is refused, as if
    /// promised to others. See [`super::store`].
    pub low_bound_micros: i64,
}

fn micros(ballot: Option<&Ballot>) -> i64 {
    ballot.map_or(i64::MIN, |ballot| ballot.micros)
}

impl Registers {
    fn accepted_ballot(&self) -> Option<&Ballot> {
        self.accepted.as_ref().map(|accepted| &accepted.ballot)
    }

    fn committed_ballot(&self) -> Option<&Ballot> {
        self.committed.as_ref().map(|commit| &commit.ballot)
    }

    /// The highest microseconds of any write at this replica.
    fn latest_write_micros(&self) -> i64 {
        let accepted = self.accepted.as_ref().filter(|accepted| accepted.proposal.mutation.is_some());
        micros(accepted.map(|accepted| &accepted.ballot))
            .max(micros(self.committed_ballot()))
            .max(micros(self.promised_write.as_ref()))
            .max(self.low_bound_micros)
    }

    /// The highest microseconds of any operation at this replica.
    pub fn latest_micros(&self) -> i64 {
        self.latest_write_micros().max(micros(self.promised.as_ref())).max(micros(self.accepted_ballot()))
    }

    /// Whether no write that was promised here can still be in progress: each was committed, or ruled out.
    pub fn is_stable(&self) -> bool {
        let ruled_out = self.accepted.as_ref().filter(|accepted| accepted.proposal.mutation.is_none());
        let settled = ruled_out.map(|accepted| &accepted.ballot).max(self.committed_ballot());
        settled >= self.promised_write.as_ref() && !self.has_open_proposal()
    }

    /// Whether a proposal was accepted whose outcome is not known here.
    pub fn has_open_proposal(&self) -> bool {
        self.accepted.as_ref().is_some_and(|accepted| {
            accepted.proposal.mutation.is_some()
                && self.committed.as_ref().is_none_or(|commit| commit.origin != accepted.proposal.origin)
        })
    }

    /// Whether a write that was promised or accepted here before that time may still take effect.
    pub fn is_open_before(&self, before_micros: i64) -> bool {
        let accepted = self.accepted.as_ref().filter(|_| self.has_open_proposal());
        // One that was proposed again under a later ballot is as old as it was.
        let ballots = accepted.into_iter().flat_map(|accepted| [&accepted.ballot, &accepted.proposal.origin]);
        let open = ballots.chain(&self.promised_write);
        !self.is_stable()
            && open.map(|ballot| ballot.micros).min().is_some_and(|micros| micros < before_micros)
    }

    /// Promises a ballot, or refuses it.
    pub fn promise(&mut self, ballot: Ballot, is_write: bool) -> PromiseOutcome {
        let latest = self.latest_micros();
        if ballot.micros > latest {
            self.promised = Some(ballot);
            if is_write {
                self.promised_write = Some(ballot);
            }
            return PromiseOutcome::Promised;
        }
        if ballot.micros > self.latest_write_micros() {
            PromiseOutcome::ReadPermitted { above_micros: latest }
        } else {
            PromiseOutcome::Rejected { above_micros: latest }
        }
    }

    /// Accepts a proposal, unless something later was promised. The error is the microseconds that must be outbid.
    pub fn accept(&mut self, ballot: Ballot, proposal: Proposal) -> Result<(), i64> {
        let latest = self.promised.as_ref().max(self.accepted_ballot()).max(self.committed_ballot());
        if latest > Some(&ballot) || ballot.micros <= self.low_bound_micros {
            return Err(self.latest_micros());
        }
        if self.committed_ballot() != Some(&ballot) {
            self.accepted = Some(Accepted { ballot, proposal });
        }
        Ok(())
    }

    /// Forgets all that is not above these microseconds, as [`super::store`] does it on rows; for the tests' model.
    /// Only when all replicas have it settled: each has accepted an empty proposal of a ballot with these microseconds, and by
    /// then every one knew the latest commit. So nothing older can be agreed any more, and nothing that was agreed is missing
    /// anywhere.
    #[cfg(test)]
    pub fn forget(&mut self, settled_micros: i64) {
        let is_above = |ballot: &Ballot| ballot.micros > settled_micros;
        self.promised = self.promised.filter(is_above);
        self.promised_write = self.promised_write.filter(is_above);
        self.accepted = self.accepted.take().filter(|accepted| is_above(&accepted.ballot));
        self.committed = self.committed.take().filter(|commit| is_above(&commit.ballot));
        self.low_bound_micros = self.low_bound_micros.max(settled_micros);
    }

    /// Whether there is nothing to forget.
    pub fn is_empty(&self) -> bool {
        self.promised.is_none() && self.accepted.is_none() && self.committed.is_none()
    }

    /// Whether a commit was forgotten here: it is applied, and must not be applied again over tombstones that were
    /// purged since.
    pub fn is_forgotten(&self, commit: &Commit) -> bool {
        commit.ballot.micros <= self.low_bound_micros
    }

    /// Notes that a proposal was agreed, as [`super::store`] does it on rows; for the tests' model. Its mutation is to be applied
    /// whatever the registers say, unless [`Registers::is_forgotten`].
    #[cfg(test)]
    pub fn commit(&mut self, commit: Commit) {
        if self.accepted_ballot().is_some_and(|ballot| *ballot <= commit.ballot) {
            self.accepted = None;
        }
        if self.committed_ballot() < Some(&commit.ballot) {
            self.committed = Some(commit);
        }
    }
}

#[cfg(test)]
mod tests {
    use helenus_engine::io::SplitMix64;
    use uuid::Uuid;

    use super::super::ballot::SerialScope;
    use super::*;

    fn ballot(micros: i64, host: u128) -> Ballot {
        Ballot { micros, salt: 0, host_id: Uuid::from_u128(host), scope: SerialScope::Global }
    }

    fn write(origin: Ballot) -> Proposal {
        Proposal { origin, mutation: Some(vec![1]), trail: Trail::default() }
    }

    fn commit(ballot: Ballot, origin: Ballot) -> Commit {
        Commit { ballot, origin, mutation: vec![1], trail: Trail::default() }
    }

    #[test]
    fn a_promise_refuses_all_that_is_not_above_it() {
        let mut registers = Registers::default();
        assert_eq!(registers.promise(ballot(5, 1), true), PromiseOutcome::Promised);
        let refused = PromiseOutcome::Rejected { above_micros: 5 };
        assert_eq!(registers.promise(ballot(5, 2), true), refused);
        assert_eq!(registers.promise(ballot(4, 9), false), refused);
        assert_eq!(registers.accept(ballot(4, 9), write(ballot(4, 9))), Err(5));
        assert_eq!(registers.accept(ballot(5, 1), write(ballot(5, 1))), Ok(()));
        assert_eq!(registers.promise(ballot(6, 1), true), PromiseOutcome::Promised);
    }

    #[test]
    fn reads_do_not_outbid_each_other_but_outbid_writes() {
        let mut registers = Registers::default();
        assert_eq!(registers.promise(ballot(5, 1), false), PromiseOutcome::Promised);
        assert!(registers.is_stable());
        assert_eq!(registers.promise(ballot(4, 1), false), PromiseOutcome::ReadPermitted { above_micros: 5 });
        assert_eq!(registers.accept(ballot(4, 1), write(ballot(4, 1))), Err(5));
    }

    #[test]
    fn a_promised_write_is_unsettled_until_it_is_committed_or_ruled_out() {
        let mut registers = Registers::default();
        registers.promise(ballot(5, 1), true);
        assert!(!registers.is_stable());
        assert!(registers.is_open_before(6) && !registers.is_open_before(5));
        registers.accept(ballot(5, 1), write(ballot(5, 1))).unwrap();
        assert!(!registers.is_stable() && registers.has_open_proposal());
        let mut committed = registers.clone();
        committed.commit(commit(ballot(5, 1), ballot(5, 1)));
        assert!(committed.is_stable() && committed.accepted.is_none() && !committed.is_open_before(9));
        let empty = Proposal { origin: ballot(6, 1), mutation: None, trail: Trail::default() };
        registers.accept(ballot(6, 1), empty).unwrap();
        assert!(registers.is_stable());
    }

    #[test]
    fn a_trail_answers_for_all_commits_that_it_can_have_listed() {
        let mut latest: Option<Commit> = None;
        for micros in 1..=40 {
            let origin = ballot(micros, 1);
            let trail = Trail::after(latest.as_ref(), 0, origin);
            assert!(trail.origins.len() <= Trail::MAX);
            for before in 1..micros {
                let is_listed = micros - before <= Trail::MAX as i64;
                assert_eq!(trail.tells_of(&ballot(before, 1)), is_listed.then_some(true));
                assert_eq!(trail.tells_of(&ballot(before, 2)), is_listed.then_some(false));
            }
            latest = Some(Commit { trail, ..commit(origin, origin) });
        }
        let later = Trail::after(latest.as_ref(), 0, ballot(60_000_000, 1));
        assert_eq!(later, Trail { origins: Vec::new(), complete_above_micros: 40 });
        assert_eq!(Trail::after(latest.as_ref(), 39, ballot(41, 1)).tells_of(&ballot(38, 2)), None);
    }

    #[test]
    fn forgotten_ballots_stay_refused() {
        let mut registers = Registers { low_bound_micros: 10, ..Registers::default() };
        assert_eq!(registers.promise(ballot(10, 1), true), PromiseOutcome::Rejected { above_micros: 10 });
        assert_eq!(registers.accept(ballot(10, 1), write(ballot(10, 1))), Err(10));
        assert!(registers.is_forgotten(&commit(ballot(10, 1), ballot(10, 1))));
        assert_eq!(registers.promise(ballot(11, 1), true), PromiseOutcome::Promised);
    }

    #[test]
    fn no_order_of_messages_makes_a_register_regress() {
        for seed in 0..500 {
            let mut random = SplitMix64::new(seed);
            let mut registers = Registers::default();
            for _ in 0..40 {
                let before = registers.clone();
                let ballot = ballot(random.below(12) as i64, u128::from(random.below(3)));
                match random.below(5) {
                    0 => drop(registers.promise(ballot, true)),
                    1 => drop(registers.promise(ballot, false)),
                    2 => drop(registers.accept(ballot, write(ballot))),
                    3 => registers.commit(commit(ballot, ballot)),
                    _ => {
                        registers.forget(ballot.micros);
                        assert!(registers.latest_micros() >= before.latest_micros().max(ballot.micros));
                        continue;
                    }
                }
                assert!(registers.promised >= before.promised);
                assert!(registers.promised_write >= before.promised_write);
                assert!(registers.promised >= registers.promised_write);
                assert!(registers.committed_ballot() >= before.committed_ballot());
                assert!(registers.latest_micros() >= before.latest_micros());
                if let Some(accepted) = &before.accepted {
                    let kept = registers.accepted_ballot().max(registers.committed_ballot());
                    assert!(kept >= Some(&accepted.ballot));
                }
            }
        }
    }
}
