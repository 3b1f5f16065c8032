//! The engine's clock, and a clock that tests move by hand.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::future::LocalBoxFuture;

/// Microseconds since the Unix epoch as whole seconds (0 before it, saturating in 2106).
#[inline]
pub fn whole_seconds(micros: i64) -> u32 {
    u32::try_from((micros / 1_000_000).max(0)).unwrap_or(u32::MAX)
}

/// A source of time. The wall clock may jump or be skewed. The monotonic clock never goes back.
pub trait Clock {
    /// Wall clock, microseconds since the Unix epoch.
    fn now_micros(&self) -> i64;

    /// Wall clock, whole seconds since the Unix epoch (0 before it, saturating in 2106).
    fn now_seconds(&self) -> u32 {
        whole_seconds(self.now_micros())
    }

    /// Time since a fixed moment, for measuring intervals.
    fn monotonic(&self) -> Duration;

    /// Time of a processor that the calling thread has had. Where time is virtual every moment is worked: it is the monotonic time.
    fn thread_cpu(&self) -> Duration;

    /// Resolves when `duration` has passed.
    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()>;
}

/// A clock that stands still until [`ManualClock::advance`] moves it, waking the sleepers that are due.
#[derive(Debug, Default)]
pub struct ManualClock {
    state: Rc<ManualState>,
}

#[derive(Debug, Default)]
struct ManualState {
    start_micros: Cell<i64>,
    elapsed: Cell<Duration>,
    sleepers: RefCell<Vec<Waker>>,
}

impl ManualClock {
    /// A clock whose wall time starts at `start_micros` since the epoch.
    pub fn new(start_micros: i64) -> Self {
        let clock = Self::default();
        clock.state.start_micros.set(start_micros);
        clock
    }

    /// Moves both clocks forward and wakes the sleepers that are due.
    pub fn advance(&self, duration: Duration) {
        self.state.elapsed.set(self.state.elapsed.get() + duration);
        for waker in self.state.sleepers.take() {
            waker.wake();
        }
    }
}

impl Clock for ManualClock {
    fn now_micros(&self) -> i64 {
        self.state.start_micros.get() + self.state.elapsed.get().as_micros() as i64
    }

    fn monotonic(&self) -> Duration {
        self.state.elapsed.get()
    }

    fn thread_cpu(&self) -> Duration {
        self.monotonic()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        let state = Rc::clone(&self.state);
        let deadline = state.elapsed.get() + duration;
        Box::pin(poll_fn(move |context| {
            if state.elapsed.get() >= deadline {
                return Poll::Ready(());
            }
            state.sleepers.borrow_mut().push(context.waker().clone());
            Poll::Pending
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_sleeper_wakes_only_when_its_time_has_come() {
        let clock = ManualClock::new(5_000_000);
        let mut sleep = clock.sleep(Duration::from_millis(10));
        assert!((&mut sleep).now_or_never().is_none());
        clock.advance(Duration::from_millis(9));
        assert!((&mut sleep).now_or_never().is_none());
        clock.advance(Duration::from_millis(1));
        assert!((&mut sleep).now_or_never().is_some());
        assert_eq!(clock.now_micros(), 5_010_000);
        assert_eq!(clock.now_seconds(), 5);
    }
}
