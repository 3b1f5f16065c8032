//! The conditions of the simulated network: messages take a while, overtake each other, and get lost on cut links.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helenus::testing::network::{Conditions, Fate};
use helenus_engine::io::SplitMix64;
use helenus_internode::service;

use crate::trace::{Event, Trace};

/// One direction between two nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Link {
    /// No message gets through.
    pub is_cut: bool,
    /// Added to the usual latency.
    pub delay: Duration,
    /// How many of 1000 messages get lost.
    pub loss_per_mille: u64,
}

/// All links: those that were changed, and by default reliable and fast ones.
pub struct Links {
    trace: Arc<Trace>,
    random: RefCell<SplitMix64>,
    changed: RefCell<BTreeMap<(usize, usize), Link>>,
    /// How many of 1000 messages without an answer arrive twice.
    pub duplicates_per_mille: Cell<u64>,
}

impl Links {
    pub fn new(trace: Arc<Trace>, seed: u64) -> Self {
        Self {
            trace,
            random: RefCell::new(SplitMix64::new(seed)),
            changed: RefCell::default(),
            duplicates_per_mille: Cell::new(0),
        }
    }

    /// Changes the link of one direction.
    pub fn set_link(&self, from: usize, to: usize, link: Link) {
        self.changed.borrow_mut().insert((from, to), link);
    }

    /// The present state of one direction.
    pub fn link(&self, from: usize, to: usize) -> Link {
        self.changed.borrow().get(&(from, to)).copied().unwrap_or_default()
    }

    /// Makes all links reliable and fast.
    pub fn heal(&self) {
        self.changed.borrow_mut().clear();
        self.duplicates_per_mille.set(0);
    }

    fn chance(&self, numerator: u64, denominator: u64) -> bool {
        self.random.borrow_mut().chance(numerator, denominator)
    }
}

impl Conditions for Links {
    fn request(&self, from: usize, to: usize, _is_call: bool) -> Fate {
        self.answer(from, to).map_or(Fate::Lost, |after| Fate::Arrives { after })
    }

    fn answer(&self, from: usize, to: usize) -> Option<Duration> {
        let link = self.link(from, to);
        let mut random = self.random.borrow_mut();
        let micros = if random.chance(1, 50) { random.below(30_000) } else { 100 + random.below(2_500) };
        let is_lost = link.is_cut || random.chance(link.loss_per_mille, 1_000);
        (!is_lost).then(|| link.delay + Duration::from_micros(micros))
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.link(from, to).is_cut
    }

    fn is_repeated(&self) -> bool {
        self.chance(self.duplicates_per_mille.get(), 1_000)
    }

    fn is_noticed(&self, _from: usize, _to: usize) -> bool {
        self.chance(1, 2)
    }

    fn sent(&self, from: usize, to: usize, message: &[u8]) {
        self.trace.record(Event::Sent { from, to, bytes: message.len() }, message);
    }

    fn delivered(&self, from: usize, to: usize) {
        self.trace.record(Event::Delivered { from, to }, &[]);
    }

    fn lost(&self, from: usize, to: usize) {
        self.trace.record(Event::Lost { from, to }, &[]);
    }

    fn answered(&self, from: usize, to: usize, answer: Bytes) -> Bytes {
        self.trace.record(Event::Answered { from, to, bytes: answer.len() }, &answer);
        if let Some(failure) = service::failure_in(&answer) {
            self.trace.note(format!("n{from} refuses a request of n{to}: {failure}"));
        }
        answer
    }
}
