//! What a writer knows about its own objects: which version of each was acknowledged, which was only asked for.
//!
//! Invariant: an object has one writer, which has at most one request under way. So after a crash an object stands
//! at some version from `acknowledged` to `issued`, whole.

use std::fmt;

use crate::random::Random;

/// The kinds of objects; what a version of each looks like is in [`crate::workload`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One row of several columns, overwritten.
    Row,
    /// One partition, changed by batches that insert, delete and set a static column.
    Batch,
    /// One partition that grows by a row with each version.
    Log,
    /// A counter, incremented by one.
    Counter,
}

/// Objects of each kind that a writer owns.
const OBJECTS: [(Kind, u64); 4] = [(Kind::Row, 16), (Kind::Batch, 8), (Kind::Log, 4), (Kind::Counter, 4)];

/// One object and what is known of it. Version 0: never written.
#[derive(Debug, Clone)]
pub struct Object {
    pub kind: Kind,
    pub id: i64,
    /// The last version the node has acknowledged, or has shown after a crash.
    pub acknowledged: u64,
    /// The last version asked for.
    pub issued: u64,
    /// `acknowledged` at the last barrier.
    at_barrier: u64,
}

/// The objects of one writer.
#[derive(Debug)]
pub struct Ledger {
    pub objects: Vec<Object>,
    random: Random,
}

impl Ledger {
    pub fn new(writer: u32, seed: u64) -> Self {
        let mut objects = Vec::new();
        for (kind, count) in OBJECTS {
            for number in 0..count {
                let id = i64::from(writer) * 1_000 + number as i64;
                objects.push(Object { kind, id, acknowledged: 0, issued: 0, at_barrier: 0 });
            }
        }
        Self { objects, random: Random::new(seed) }
    }

    /// The object to write next.
    pub fn choose(&mut self) -> Option<&mut Object> {
        let last = self.objects.len().saturating_sub(1) as u64;
        let index = self.random.between(0, last) as usize;
        self.objects.get_mut(index)
    }

    /// Everything acknowledged until now has to survive what comes.
    pub fn barrier(&mut self) {
        for object in &mut self.objects {
            object.at_barrier = object.acknowledged;
        }
    }

    /// What was acknowledged since the barrier may be lost: the log's end is going to be torn.
    pub fn doubt_since_barrier(&mut self) {
        for object in &mut self.objects {
            object.acknowledged = object.at_barrier;
        }
    }
}

/// Writes that had to be there at the last check, over all ledgers.
pub fn acknowledged(ledgers: &[Ledger]) -> u64 {
    ledgers.iter().flat_map(|ledger| &ledger.objects).map(|object| object.acknowledged).sum()
}

/// What a run has done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    pub kills: u64,
    pub drains: u64,
    /// Commit-log files whose end was torn.
    pub torn_tails: u64,
    /// Acknowledged writes.
    pub writes: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills, {} drains, {} torn log ends, {} acknowledged writes: every one there, none half there",
            self.kills, self.drains, self.torn_tails, self.writes
        )
    }
}
