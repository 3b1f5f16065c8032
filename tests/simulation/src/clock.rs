//! The clock of a simulated node: virtual time, and a wall clock that runs fast or slow and jumps.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use helenus_engine::io::Clock;
use tokio::time::Instant;

/// The wall clock of every node at the start of a simulation, in microseconds since the epoch.
pub const START_MICROS: i64 = 1_700_000_000_000_000;

/// The difference between a node's wall clock and the true time; it survives restarts.
#[derive(Debug, Default)]
pub struct Skew {
    pub offset_micros: Cell<i64>,
    /// By how much the clock runs too fast, in parts per million.
    pub drift_ppm: Cell<i64>,
}

/// A node's clock.
#[derive(Debug, Clone)]
pub struct NodeClock {
    start: Instant,
    skew: Rc<Skew>,
}

impl NodeClock {
    /// `start`: the start of the simulation.
    pub fn new(start: Instant, skew: Rc<Skew>) -> Self {
        Self { start, skew }
    }
}

impl Clock for NodeClock {
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

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
