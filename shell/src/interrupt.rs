//! Ctrl-C: in an interactive shell it ends what is under way, not the shell.
//!
//! Invariant: the next wait notices an interruption, even one that came between two waits. An interruption from before a script
//! began does not end the script.

use std::{cell::RefCell, io};

use futures::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The interruptions of this process. Until they are caught, they end the process as by default.
#[derive(Default)]
pub struct Interrupts(RefCell<Option<Signal>>);

impl Interrupts {
    /// Catches interruptions: from now on they do not end the process. Must be called within a runtime.
    pub fn catch(&self) -> io::Result<()> {
        *self.0.borrow_mut() = Some(signal(SignalKind::interrupt())?);
        Ok(())
    }

    /// Whether interruptions are caught.
    pub fn are_caught(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Resolves with the next interruption; never if interruptions are not caught.
    #[allow(clippy::await_holding_refcell_ref, reason = "the shell waits for one thing at a time")]
    pub async fn next(&self) {
        match self.0.borrow_mut().as_mut() {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Whether there was an interruption since the last one that was noticed. It counts as noticed afterwards.
    pub fn take(&self) -> bool {
        self.0.borrow_mut().as_mut().is_some_and(|signal| signal.recv().now_or_never().is_some())
    }
}
