//! Giving other ready tasks of the same thread a turn, on any executor.

use std::future::poll_fn;
use std::task::Poll;

/// Pending once (after waking itself), then ready.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
