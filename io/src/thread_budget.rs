//! How many threads of a node may be at long work at the same time.
//!
//! Invariant: what claims a thread gets one only while fewer than all are in use. Work that has a thread of its own takes it unasked, so that it
//! never waits for parts of other work; then more may be in use for the second that those parts take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The threads for long work. Clones count together, on whichever threads they are.
#[derive(Debug, Clone)]
pub struct ThreadBudget(Arc<Threads>);

#[derive(Debug)]
struct Threads {
    all: usize,
    used: AtomicUsize,
}

/// A thread that is in use, until this is dropped.
#[derive(Debug)]
pub struct ThreadClaim(Arc<Threads>);

impl ThreadBudget {
    pub fn new(threads: usize) -> Self {
        Self(Arc::new(Threads { all: threads, used: AtomicUsize::new(0) }))
    }

    /// The number of all threads.
    pub fn threads(&self) -> usize {
        self.0.all
    }

    /// Takes a thread, in use or not.
    pub fn take(&self) -> ThreadClaim {
        self.0.used.fetch_add(1, Relaxed);
        ThreadClaim(Arc::clone(&self.0))
    }

    /// Takes a thread that is not in use, if there is one.
    pub fn claim(&self) -> Option<ThreadClaim> {
        let more = |used: usize| (used < self.0.all).then_some(used + 1);
        self.0.used.fetch_update(Relaxed, Relaxed, more).ok().map(|_| ThreadClaim(Arc::clone(&self.0)))
    }
}

impl Drop for ThreadClaim {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_needs_a_thread_that_nobody_uses() {
        let budget = ThreadBudget::new(2);
        let own = budget.take();
        let claimed = budget.clone().claim();
        assert!(claimed.is_some() && budget.claim().is_none());
        let another = budget.take();
        drop(claimed);
        assert!(budget.claim().is_none(), "one took its thread unasked");
        drop(another);
        assert!(budget.claim().is_some());
        drop(own);
    }
}
