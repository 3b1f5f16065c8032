//! Waking tasks of one thread when a condition may have changed.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// A set of waiting tasks. `notify` is nearly free while no task waits.
#[derive(Debug, Default)]
pub struct Signal {
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    /// Wakes all waiting tasks. Each checks its condition again.
    pub fn notify(&self) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        // The wakers are taken out first: one of them may run code that waits again.
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Resolves once `condition` holds. It is checked immediately and after each `notify`.
    pub async fn wait(&self, mut condition: impl FnMut() -> bool) {
        poll_fn(|context| {
            if condition() {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
