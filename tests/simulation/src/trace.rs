//! Records everything that happens in a simulation, in order: a digest of all events, and the last events for people.
//!
//! Invariant: two runs of one seed have equal digests. The order of events that are not recorded here is not checked.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Number of events kept for the report of a failure.
const KEPT: usize = 400;

/// An event; numbers are nodes unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A message was sent: sender, receiver, length in bytes.
    Sent {
        from: usize,
        to: usize,
        bytes: usize,
    },
    /// A message arrived too late, in a partition, or at a node that is down.
    Lost {
        from: usize,
        to: usize,
    },
    Delivered {
        from: usize,
        to: usize,
    },
    Answered {
        from: usize,
        to: usize,
        bytes: usize,
    },
    /// A disk call: name and length in bytes.
    Disk {
        node: usize,
        operation: &'static str,
        bytes: usize,
    },
    /// A rare event, in words.
    Note(String),
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent { from, to, bytes } => write!(formatter, "n{from} -> n{to}: {bytes} bytes"),
            Self::Lost { from, to } => write!(formatter, "n{from} -> n{to}: lost"),
            Self::Delivered { from, to } => write!(formatter, "n{from} -> n{to}: delivered"),
            Self::Answered { from, to, bytes } => write!(formatter, "n{from} answers n{to}: {bytes} bytes"),
            Self::Disk { node, operation, bytes } => write!(formatter, "n{node} disk: {operation} {bytes}"),
            Self::Note(text) => formatter.write_str(text),
        }
    }
}

/// The events to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    Nothing,
    Notes,
    /// With the digest after each event, so that `diff` shows where two runs differ.
    Everything,
}

struct TraceState {
    digest: u64,
    events: u64,
    last: VecDeque<(u64, Event)>,
    echo: Echo,
}

/// The record of one simulation.
pub struct Trace {
    start: Instant,
    state: Mutex<TraceState>,
}

impl Trace {
    /// A trace that starts now (virtual time).
    pub fn new(echo: Echo) -> Self {
        let state = TraceState { digest: 0, events: 0, last: VecDeque::with_capacity(KEPT), echo };
        Self { start: Instant::now(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Virtual time since the start, in microseconds.
    pub fn now_micros(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    /// Records an event; `contents` only goes into the digest.
    pub fn record(&self, event: Event, contents: &[u8]) {
        let now = self.now_micros();
        let mut state = self.state();
        let words = match &event {
            Event::Sent { from, to, bytes } => [1, *from as u64, *to as u64, *bytes as u64],
            Event::Lost { from, to } => [2, *from as u64, *to as u64, 0],
            Event::Delivered { from, to } => [3, *from as u64, *to as u64, 0],
            Event::Answered { from, to, bytes } => [4, *from as u64, *to as u64, *bytes as u64],
            Event::Disk { node, operation, bytes } => {
                [5, *node as u64, u64::from(crc32fast::hash(operation.as_bytes())), *bytes as u64]
            }
            Event::Note(text) => [6, u64::from(crc32fast::hash(text.as_bytes())), 0, 0],
        };
        let mut digest = state.digest ^ now;
        for word in words.into_iter().chain([u64::from(crc32fast::hash(contents))]) {
            // The finisher of MurmurHash3.
            digest = (digest ^ word).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
            digest ^= digest >> 33;
        }
        state.digest = digest;
        state.events += 1;
        match state.echo {
            Echo::Nothing => {}
            Echo::Notes if !matches!(event, Event::Note(_)) => {}
            Echo::Notes => println!("{:>10.3} s  {event}", now as f64 / 1e6),
            Echo::Everything => println!("{:>10.3} s  {event} ({digest:016x})", now as f64 / 1e6),
        }
        if state.last.len() == KEPT {
            state.last.pop_front();
        }
        state.last.push_back((now, event));
    }

    /// Records a rare event, in words.
    pub fn note(&self, text: impl Into<String>) {
        self.record(Event::Note(text.into()), &[]);
    }

    /// A digest of all events so far.
    pub fn digest(&self) -> u64 {
        self.state().digest
    }

    /// The number of events so far.
    pub fn events(&self) -> u64 {
        self.state().events
    }

    /// The last events, one on each line.
    pub fn last_events(&self) -> Vec<String> {
        self.state().last.iter().map(|(at, event)| format!("{:>10.3} s  {event}", *at as f64 / 1e6)).collect()
    }
}
