//! The clock of a node in virtual time, with a wall clock that runs fast or slow and jumps.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use helenus_engine::io::Clock;
use tokio::time::Instant;

/// The wall clock of every node at the start, in microseconds since the epoch.
pub const START_MICROS: i64 = 1_700_000_000_000_000;

/// The difference between a wall clock and virtual time.
#[derive(Debug, Default)]
pub struct Skew {
    pub offset_micros: Cell<i64>,
    /// By how much the clock runs too fast, in parts per million.
    pub drift_ppm: Cell<i64>,
}

impl Skew {
    /// The drift of a wall clock that stands still.
    pub const STANDSTILL_PPM: i64 = -1_000_000;

    /// Moves the wall clock forward.
    pub fn advance(&self, duration: Duration) {
        self.offset_micros.set(self.offset_micros.get() + duration.as_micros() as i64);
    }
}

/// A clock of the present tokio runtime, whose time must be virtual. Clones share their skew.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    start: Instant,
    pub skew: Rc<Skew>,
}

impl VirtualClock {
    /// A clock without skew whose time began at `start`.
    pub fn new(start: Instant) -> Self {
        Self { start, skew: Rc::default() }
    }
}

impl Clock for VirtualClock {
    fn now_micros(&self) -> i64 {
        let elapsed = self.start.elapsed().as_micros() as i64;
        START_MICROS
            + elapsed
            + elapsed * self.skew.drift_ppm.get() / 1_000_000
            + self.skew.offset_micros.get()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn thread_cpu(&self) -> Duration {
        self.monotonic()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
