//! Whether this node knows the streams of now.
//!
//! A node that is cut off from the majority does not learn of new streams, but may still reach replicas: what it wrote into the streams that it
//! knows would be where no consumer reads any more. So an upper layer asks the leader of the metadata again and again, and once the last question that
//! ended well is too old, entries are refused, and their writes with them.
//!
//! Invariants:
//! * New streams are agreed on `cdc_generation_delay_ms` before they are used, and clocks are not further apart than half of that. So who has
//!   asked within the other half ([`limit`]) knows all streams that are used by now.
//! * What counts is when a question was asked, not when it was answered.
//!
//! Entries of views are written longer ([`check_of_views`]), so that a table with views does not need a leader of the metadata for each write. An
//! entry is found nevertheless, because the projector reads the streams of all generations that are kept. The one into which a
//! member writes is kept:
//! * It knew all generations that were agreed on before its last question. So the one that comes next was agreed on later, and the one into which it
//!   writes ends later.
//! * It writes for [`UNCONFIRMED_SECONDS`] at most, and generations are kept for so much longer than entries.
//!
//! A member that has just been started does not know how long it was away. It refuses, until it has asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helenus_config::Config;
use helenus_query::error::{RequestError, Result};
use helenus_ring::change_feed::UNCONFIRMED_SECONDS;

use crate::shard::context::ShardContext;

/// Until when a node knows the streams that are used: on the monotonic clock, which its shards share.
#[derive(Debug, Default)]
pub struct StreamsConfirmation {
    /// Milliseconds; 0: nobody has asked, because there was no feed; [`NEVER_ASKED`].
    valid_until_ms: AtomicU64,
}

/// There are feeds, and no question has ended well since the start.
const NEVER_ASKED: u64 = 1;

impl StreamsConfirmation {
    pub fn of(context: &ShardContext) -> &Self {
        context.node.layers.get()
    }

    /// The node knows all streams that were agreed on at `asked_at` (monotonic time).
    pub fn confirm(&self, asked_at: Duration, limit: Duration) {
        self.valid_until_ms
            .store(((asked_at + limit).as_millis() as u64).max(NEVER_ASKED + 1), Ordering::Relaxed);
    }

    /// The node does not know what was agreed on before: it has just been started.
    pub fn expire(&self) {
        self.valid_until_ms.store(NEVER_ASKED, Ordering::Relaxed);
    }

    /// There are no streams any more.
    pub fn forget(&self) {
        self.valid_until_ms.store(0, Ordering::Relaxed);
    }

    /// Whether anyone has asked since the first feed began.
    pub fn has_begun(&self) -> bool {
        self.valid_until_ms.load(Ordering::Relaxed) > 0
    }

    pub fn is_valid(&self, now: Duration) -> bool {
        self.is_valid_with(Duration::ZERO, now)
    }

    /// Whether it is valid, or has been for the last time within `grace`.
    fn is_valid_with(&self, grace: Duration, now: Duration) -> bool {
        match self.valid_until_ms.load(Ordering::Relaxed) {
            0 => true,
            NEVER_ASKED => false,
            until => u128::from(until) + grace.as_millis() > now.as_millis(),
        }
    }
}

/// How old the last question may be.
pub fn limit(config: &Config) -> Duration {
    Duration::from_millis(config.cdc_generation_delay_ms) / 2
}

/// Refuses an entry if its stream may be one that is not read any more.
pub fn check(context: &ShardContext) -> Result<()> {
    check_with(context, Duration::ZERO)
}

/// Refuses an entry of views if it may not be found any more.
pub fn check_of_views(context: &ShardContext) -> Result<()> {
    check_with(context, Duration::from_secs(UNCONFIRMED_SECONDS.unsigned_abs()))
}

fn check_with(context: &ShardContext, grace: Duration) -> Result<()> {
    // Streams change when others join, and there are none that it could be cut off from.
    if context.cluster_view().is_alone()
        || StreamsConfirmation::of(context).is_valid_with(grace, context.clock.monotonic())
    {
        return Ok(());
    }
    Err(RequestError::StreamsUnconfirmed { limit: limit(&context.node.config) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_known_until_the_limit_after_the_question() {
        let (confirmation, seconds) = (StreamsConfirmation::default(), Duration::from_secs);
        assert!(confirmation.is_valid(seconds(1_000)) && !confirmation.has_begun(), "there was no feed");
        confirmation.expire();
        assert!(!confirmation.is_valid(seconds(1)) && confirmation.has_begun(), "after a start");
        confirmation.confirm(seconds(100), seconds(5));
        assert!(confirmation.is_valid(Duration::from_millis(104_999)));
        assert!(!confirmation.is_valid(seconds(105)));
        confirmation.forget();
        assert!(confirmation.is_valid(seconds(105)));
    }

    #[test]
    fn entries_of_views_are_written_longer_but_not_by_who_has_just_been_started() {
        let (confirmation, seconds) = (StreamsConfirmation::default(), Duration::from_secs);
        let grace = seconds(1_000);
        confirmation.expire();
        assert!(!confirmation.is_valid_with(grace, seconds(0)));
        confirmation.confirm(seconds(100), seconds(5));
        assert!(!confirmation.is_valid(seconds(1_104)) && confirmation.is_valid_with(grace, seconds(1_104)));
        assert!(!confirmation.is_valid_with(grace, seconds(1_105)));
    }
}
