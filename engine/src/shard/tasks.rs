//! The tasks of a shard, which flush and compact when it is necessary.

use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use futures::future::select;

use super::compaction_choice::Lane;
use super::state::{Shard, Signals};

/// Pause before a failed flush is tried again.
const FLUSH_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The flush task. It ends with its shard, or when the shard refuses writes.
pub(super) async fn keep_flushing(shard: Weak<Shard>, signals: Rc<Signals>) {
    loop {
        let Some(shard) = shard.upgrade() else { return };
        let flushed = shard.flush_if_needed().await;
        let before = shard.flush_failure.replace(flushed.as_ref().err().cloned());
        if shard.check_open().is_err() {
            return;
        }
        let clock = Rc::clone(&shard.environment.clock);
        drop(shard);
        match flushed {
            Ok(()) => signals.flush_wanted.notified().await,
            Err(error) => {
                if error.is_full() && before.is_some_and(|before| before.is_full()) {
                    tracing::debug!(%error, "a flush still has no room");
                } else {
                    tracing::error!(%error, "a flush has failed; it is tried again every second");
                }
                signals.space.notify_waiters();
                clock.sleep(FLUSH_RETRY_PAUSE).await;
            }
        }
    }
}

/// A compaction task. It ends under the same conditions as the flush task.
pub(super) async fn keep_compacting(shard: Weak<Shard>, signals: Rc<Signals>, lane: Lane) {
    loop {
        let Some(shard) = shard.upgrade() else { return };
        let Ok(pause) = shard.compact_if_needed(lane).await else { return };
        let sleep = shard.environment.clock.sleep(pause);
        drop(shard);
        select(pin!(signals.compaction_wanted[lane as usize].notified()), sleep).await;
    }
}

/// The task that checks files periodically. It removes those whose contents have all expired. It puts those into use that could
/// not be opened before and can be opened now. It ends under the same conditions as the flush task.
pub(super) async fn keep_looking_at_files(shard: Weak<Shard>) {
    loop {
        let Some(shard) = shard.upgrade() else { return };
        let Ok(pause) = shard.drop_expired().await else { return };
        shard.reopen_damaged().await;
        shard.take_parts_into_memory().await;
        let sleep = shard.environment.clock.sleep(pause);
        drop(shard);
        sleep.await;
    }
}

/// The task that makes the indexes that files lack. It ends under the same conditions as the flush task.
pub(super) async fn keep_indexing(shard: Weak<Shard>, signals: Rc<Signals>) {
    loop {
        let Some(shard) = shard.upgrade() else { return };
        let pause = shard.complete_indexes().await;
        if shard.check_open().is_err() {
            return;
        }
        let sleep = shard.environment.clock.sleep(pause);
        drop(shard);
        select(pin!(signals.indexes_wanted.notified()), sleep).await;
    }
}
