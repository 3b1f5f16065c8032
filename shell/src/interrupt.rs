//! Ctrl-C: in an interactive shell it ends what is under way, not the shell.
//!
//! Invariant: an interruption is noticed by whoever waits next, also when it came between two waits; one that came before a
//! script began does not end it.

use std::{cell::RefCell, io};

use futures::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The interruptions of this process; until they are caught they end it, as by default.
#[derive(Default)]
pub struct Interrupts(RefCell<Option<Signal>>);

impl Interrupts {
    /// From now on they do not end the process. Within a runtime.
    pub fn catch(&self) -> io::Result<()> {
        *self.0.borrow_mut() = Some(signal(SignalKind::interrupt())?);
        Ok(())
    }

    /// Whether they do not end the process.
    pub fn are_caught(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Resolves with the next; never where they are not caught.
    #[allow(clippy::await_holding_refcell_ref, reason = "the shell waits for one thing at a time")]
    pub async fn next(&self) {
        match self.0.borrow_mut().as_mut() {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Whether there was one since the last was noticed; it counts as noticed then.
    pub fn take(&self) -> bool {
        self.0.borrow_mut().as_mut().is_some_and(|signal| signal.recv().now_or_never().is_some())
    }
}
