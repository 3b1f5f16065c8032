//! Yielding to other ready tasks of the same thread, on any executor.

use std::future::poll_fn;
use std::task::Poll;

/// A future that is pending once, after waking itself, and then ready.
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
