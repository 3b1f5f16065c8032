//! Whether this node knows the newest roles, or ones that are not older than the operator allows.
//!
//! A node that is cut off from the majority goes on with the roles that it has, and does not learn what is revoked meanwhile. So each node
//! asks the leader of the metadata log again and again how far the log is, and applies it up to there. Once the last question that ended so
//! is older than `unconfirmed_roles_limit_ms`, the node refuses its clients. So what was revoked is revoked everywhere within that time.
//!
//! Invariants:
//! * What counts is when a question was asked, not when it was answered: the roles are at least as new as that.
//! * The leader answers only after a majority has confirmed that it still leads ([`MetadataLog::newest_version`]).
//! * After its start a node refuses clients until it has asked once: it does not know how long it was away.
//!
//! [`MetadataLog::newest_version`]: crate::cluster::raft::MetadataLog::newest_version

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use helenus_config::Config;
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::{NodeShared, ShardContext};
use helenus_query::error::{RequestError, Result};

use super::propose::catch_up_with_leader;

/// Time limit of one question at most.
const DEADLINE: Duration = Duration::from_secs(5);
/// A node asks so often within the limit, so that some questions may fail.
const QUESTIONS_PER_LIMIT: u32 = 8;
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause after a question that had no answer.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Until when the roles of a node are new enough: on the monotonic clock, which its shards share.
#[derive(Debug, Default)]
pub struct RolesConfirmation {
    /// Milliseconds; 0: never confirmed.
    valid_until_ms: AtomicU64,
    /// Whether clients are refused, as of the last question.
    is_refusing: AtomicBool,
}

impl RolesConfirmation {
    fn of(context: &ShardContext) -> &Self {
        context.node.layers.get()
    }

    fn confirm(&self, asked_at: Duration, limit: Duration) {
        self.valid_until_ms.store((asked_at + limit).as_millis() as u64, Ordering::Relaxed);
    }

    /// The time since the last question that ended well was asked; `None`: none has.
    fn age(&self, now: Duration, limit: Duration) -> Option<Duration> {
        match self.valid_until_ms.load(Ordering::Relaxed) {
            0 => None,
            until => Some((now + limit).saturating_sub(Duration::from_millis(until))),
        }
    }

    fn is_valid(&self, now: Duration) -> bool {
        u128::from(self.valid_until_ms.load(Ordering::Relaxed)) > now.as_millis()
    }
}

/// How old roles may be; `None`: there is no limit, or clients need no roles.
fn limit(config: &Config) -> Option<Duration> {
    let has_limit = config.authenticator.requires_login() && config.unconfirmed_roles_limit_ms > 0;
    has_limit.then(|| Duration::from_millis(config.unconfirmed_roles_limit_ms))
}

/// Refuses the request of a client that has a role, if the roles of this node may be too old.
pub fn check(context: &ShardContext) -> Result<()> {
    check_at(context, context.clock.monotonic())
}

/// The same, for a request that began at `now` (monotonic time).
#[inline]
pub fn check_at(context: &ShardContext, now: Duration) -> Result<()> {
    let checked = look(context, now);
    if checked.is_err() {
        context.metrics.roles_unconfirmed.increment();
    }
    checked
}

/// What [`check`] finds, without a client that is refused.
#[inline]
fn look(context: &ShardContext, now: Duration) -> Result<()> {
    let Some(limit) = limit(&context.node.config) else { return Ok(()) };
    let is_valid = RolesConfirmation::of(context).is_valid(now);
    if is_valid || context.has_bug(PlantedBug::RolesForever) {
        return Ok(());
    }
    Err(RequestError::RolesUnconfirmed { limit })
}

/// The time since the roles of this node were last confirmed, for its metrics: the longest there is if they were not. `None`: they need
/// not be.
pub fn age(context: &ShardContext) -> Option<Duration> {
    let limit = limit(&context.node.config)?;
    let age = RolesConfirmation::of(context).age(context.clock.monotonic(), limit);
    Some(age.unwrap_or(Duration::MAX))
}

/// Whether this node refuses clients that log in because its roles may be too old: for the health of the node.
pub fn is_refusing(node: &NodeShared) -> bool {
    node.layers.get::<RolesConfirmation>().is_refusing.load(Ordering::Relaxed)
}

/// Asks for the first time, and then again and again until the node ends. Call on the first shard, before clients are accepted.
pub async fn begin(context: &Rc<ShardContext>) {
    let Some(limit) = limit(&context.node.config) else { return };
    confirm(context, limit).await;
    if note_refusing(context) {
        tracing::warn!(
            "no leader of the cluster's metadata confirms the roles of this node; clients that log in are refused until one does"
        );
    }
    tokio::task::spawn_local(keep_confirmed(context.clone(), limit));
}

async fn keep_confirmed(context: Rc<ShardContext>, limit: Duration) {
    let usual_pause = (limit / QUESTIONS_PER_LIMIT).min(PAUSE_MAX);
    let mut was_refusing = is_refusing(&context.node);
    let mut pause = if was_refusing { RETRY_PAUSE } else { usual_pause };
    loop {
        context.clock.sleep(pause).await;
        let is_confirmed = confirm(&context, limit).await;
        pause = if is_confirmed { usual_pause } else { RETRY_PAUSE.min(usual_pause) };
        let refuses = note_refusing(&context);
        if refuses && !was_refusing {
            tracing::warn!(
                limit_ms = limit.as_millis() as u64,
                "this node cannot confirm that it knows the newest roles; it refuses clients that have logged in"
            );
        } else if was_refusing && !refuses {
            tracing::info!("this node knows the newest roles again; it serves clients that log in");
        }
        was_refusing = refuses;
    }
}

fn note_refusing(context: &ShardContext) -> bool {
    let refuses = look(context, context.clock.monotonic()).is_err();
    RolesConfirmation::of(context).is_refusing.store(refuses, Ordering::Relaxed);
    refuses
}

/// Asks once. Returns whether the roles are confirmed.
async fn confirm(context: &Rc<ShardContext>, limit: Duration) -> bool {
    let asked_at = context.clock.monotonic();
    match catch_up_with_leader(context, DEADLINE.min(limit / QUESTIONS_PER_LIMIT)).await {
        Ok(()) => {
            RolesConfirmation::of(context).confirm(asked_at, limit);
            true
        }
        Err(error) => {
            tracing::debug!(%error, "the roles of this node are not confirmed");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_new_enough_until_the_limit_after_the_question() {
        let confirmation = RolesConfirmation::default();
        let seconds = Duration::from_secs;
        assert!(!confirmation.is_valid(Duration::ZERO), "nothing was confirmed");
        assert_eq!(confirmation.age(seconds(9), seconds(10)), None);
        confirmation.confirm(seconds(100), seconds(10));
        assert!(confirmation.is_valid(Duration::from_millis(109_999)));
        assert!(!confirmation.is_valid(seconds(110)));
        assert_eq!(confirmation.age(seconds(100), seconds(10)), Some(Duration::ZERO));
        assert_eq!(confirmation.age(seconds(125), seconds(10)), Some(seconds(25)));
    }
}
