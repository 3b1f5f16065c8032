//! Conditions of a network that a test sets by hand: reliable until the test says otherwise.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::network::{Conditions, Fate};

/// Changes an answer; `None`: it is not one that it changes.
pub type Change = fn(&Bytes) -> Option<Bytes>;

/// All links.
#[derive(Default)]
pub struct Links {
    latency: Duration,
    silent: RefCell<BTreeSet<usize>>,
    calls_left: RefCell<BTreeMap<usize, u32>>,
    fates: RefCell<VecDeque<Fate>>,
    change: Cell<Option<Change>>,
}

impl Links {
    /// Links on which every message and every answer takes this long.
    pub fn with_latency(latency: Duration) -> Self {
        Self { latency, ..Self::default() }
    }

    /// Makes a machine stop answering, or answer again.
    pub fn set_silent(&self, machine: usize, is_silent: bool) {
        if is_silent {
            self.silent.borrow_mut().insert(machine);
        } else {
            self.silent.borrow_mut().remove(&machine);
        }
    }

    fn is_silent(&self, machine: usize) -> bool {
        self.silent.borrow().contains(&machine)
    }

    /// Sets the fates of the next calls. Later calls arrive.
    pub fn set_fates(&self, fates: impl IntoIterator<Item = Fate>) {
        *self.fates.borrow_mut() = fates.into_iter().collect();
    }

    /// Makes connections to a machine break after `calls` more calls.
    pub fn fail_after(&self, machine: usize, calls: u32) {
        self.calls_left.borrow_mut().insert(machine, calls);
    }

    /// Ends [`Links::fail_after`].
    pub fn heal(&self, machine: usize) {
        self.calls_left.borrow_mut().remove(&machine);
    }

    /// Changes the next answer for which `change` returns one.
    pub fn change_next_answer(&self, change: Change) {
        self.change.set(Some(change));
    }
}

impl Conditions for Links {
    fn request(&self, from: usize, to: usize, is_call: bool) -> Fate {
        if is_call {
            if let Some(left) = self.calls_left.borrow_mut().get_mut(&to) {
                match left.checked_sub(1) {
                    Some(rest) => *left = rest,
                    None => return Fate::Broken { after: self.latency },
                }
            }
            if let Some(fate) = self.fates.borrow_mut().pop_front() {
                return fate;
            }
        }
        if self.is_silent(to) || (!is_call && self.is_silent(from)) {
            return Fate::Lost;
        }
        Fate::Arrives { after: self.latency }
    }

    fn answer(&self, _from: usize, _to: usize) -> Option<Duration> {
        Some(self.latency)
    }

    fn is_noticed(&self, _from: usize, to: usize) -> bool {
        !self.is_silent(to)
    }

    fn answered(&self, _from: usize, _to: usize, answer: Bytes) -> Bytes {
        let changed = self.change.get().and_then(|change| change(&answer));
        if changed.is_some() {
            self.change.set(None);
        }
        changed.unwrap_or(answer)
    }
}
