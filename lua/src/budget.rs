//! The work that one call may do.
//!
//! A step is about a microsecond: a hundred instructions of Lua, or some kilobytes copied. Steps are counted the same on every node. The
//! time limit is for work that cannot be counted, such as long strings joined by `..`, which is one instruction.

use std::cell::Cell;
use std::time::{Duration, Instant};

use thiserror::Error;

/// Instructions of Lua that are one step.
pub const INSTRUCTIONS_PER_STEP: u32 = 100;
/// Bytes that are handled in one step.
pub const BYTES_PER_STEP: usize = 8 << 10;
/// Most steps of a call.
const STEPS_MAX: u64 = 20_000;
/// Longest time of a call: Cassandra's `user_defined_functions_fail_timeout`.
const TIME_MAX: Duration = Duration::from_millis(1_500);

/// The reason why a call is ended.
#[derive(Debug, Error)]
pub enum Spent {
    #[error("the function does too much work: a call may do as much as about 2 million instructions")]
    Work,
    #[error("the function takes too long: a call may take 1.5 seconds")]
    Time,
}

impl From<Spent> for mlua::Error {
    fn from(spent: Spent) -> Self {
        Self::runtime(spent)
    }
}

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Steps of all calls on this thread.
pub fn steps_on_this_thread() -> u64 {
    STEPS.get()
}

/// What is left for the present call.
#[derive(Debug)]
pub struct Budget {
    steps: Cell<u64>,
    deadline: Cell<Instant>,
    is_spent: Cell<bool>,
}

#[allow(clippy::disallowed_methods, reason = "a bound on the time of a call, which no result depends on")]
fn now() -> Instant {
    Instant::now()
}

impl Budget {
    pub fn new() -> Self {
        Self { steps: Cell::new(0), deadline: Cell::new(now()), is_spent: Cell::new(false) }
    }

    /// Begins a call.
    pub fn begin(&self) {
        self.steps.set(STEPS_MAX);
        self.deadline.set(now() + TIME_MAX);
        self.is_spent.set(false);
    }

    /// Whether the present call was ended because it did too much.
    pub fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    /// Takes steps. The error ends the call.
    pub fn spend(&self, steps: u64) -> Result<(), Spent> {
        STEPS.set(STEPS.get().wrapping_add(steps));
        let left = self.steps.get().checked_sub(steps);
        let is_late = now() > self.deadline.get();
        if let (Some(left), false) = (left, is_late) {
            self.steps.set(left);
            return Ok(());
        }
        self.is_spent.set(true);
        self.steps.set(0);
        Err(if left.is_some() { Spent::Time } else { Spent::Work })
    }

    /// Takes the steps for handling bytes.
    pub fn spend_bytes(&self, bytes: usize) -> Result<(), Spent> {
        self.spend(1 + (bytes / BYTES_PER_STEP) as u64)
    }
}
