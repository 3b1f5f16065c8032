//! What the roles of a node's clients may still ask.
//!
//! An allowance grows evenly and holds what a second brings at most. It is shared by all connections of a role, on all shards.
//!
//! Invariant: memory is bounded by the roles that have connections, or had some in the last second. A role gains nothing by connecting anew.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use helenus_audit::entry::ANONYMOUS;
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::even_rate;

/// What a role may still ask.
#[derive(Debug)]
pub struct Allowance {
    per_second: AtomicU64,
    /// When all that was asked would have been asked evenly.
    even_nanos: AtomicU64,
}

impl Allowance {
    fn new(per_second: u64) -> Self {
        Self { per_second: AtomicU64::new(per_second), even_nanos: AtomicU64::new(0) }
    }

    /// The requests that a second brings; at least one.
    pub fn per_second(&self) -> u64 {
        self.per_second.load(Ordering::Relaxed)
    }

    /// Whether nothing of it is used.
    fn is_whole(&self, now: Duration) -> bool {
        even_rate::is_whole(self.even_nanos.load(Ordering::Relaxed), now)
    }

    /// Takes one request from the allowance, if there is one. `now`: monotonic time, which all shards have together.
    pub fn admit(&self, now: Duration) -> bool {
        let next = |even_nanos| even_rate::admit(even_nanos, self.per_second(), now);
        self.even_nanos.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// The allowances of roles.
#[derive(Debug, Default)]
pub struct RoleLimits {
    roles: Mutex<HashMap<String, Arc<Allowance>>>,
}

impl RoleLimits {
    /// The allowance of a role, which brings this many requests a second (at least one) from now on. `now`: monotonic time.
    pub fn of(&self, role: &str, per_second: u64, now: Duration) -> Arc<Allowance> {
        let mut roles = self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = roles.get(role) {
            known.per_second.store(per_second, Ordering::Relaxed);
            return known.clone();
        }
        roles.retain(|_, allowance| Arc::strong_count(allowance) > 1 || !allowance.is_whole(now));
        let allowance = Arc::new(Allowance::new(per_second));
        roles.insert(role.to_owned(), allowance.clone());
        allowance
    }
}

/// The allowance of a role by its options and the settings as they are now; `None`: it has no limit. `role`: `None` for anonymous clients.
pub fn of_role(context: &ShardContext, role: Option<&str>) -> Option<Arc<Allowance>> {
    let own = role.and_then(|role| context.roles_view().role(role)?.options.requests_per_second_max);
    match own.unwrap_or(context.node.config.role_requests_per_second_max) {
        0 => None,
        per_second => Some(context.node.layers.get::<RoleLimits>().of(
            role.unwrap_or(ANONYMOUS),
            per_second,
            context.clock.monotonic(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_holds_a_second_and_grows_evenly() {
        let allowance = Allowance::new(10);
        let admitted = |millis| {
            let now = Duration::from_millis(millis);
            (0..100).filter(|_| allowance.admit(now)).count()
        };
        assert_eq!(admitted(5_000), 10);
        assert_eq!(admitted(5_099), 0);
        assert_eq!(admitted(5_100), 1);
        assert_eq!(admitted(5_350), 2);
        assert_eq!(admitted(5_400), 1);
        assert_eq!(admitted(90_000), 10);
    }

    #[test]
    fn an_allowance_of_one_request_a_second_admits_it() {
        let allowance = Allowance::new(1);
        let seconds = [0, 1, 1, 2, 9].map(Duration::from_secs);
        assert_eq!(seconds.map(|now| allowance.admit(now)), [true, true, false, true, true]);
    }

    #[test]
    fn roles_have_allowances_of_their_own_until_they_are_gone_and_these_are_whole() {
        let (limits, now) = (RoleLimits::default(), Duration::from_secs(5));
        let (alice, bob) = (limits.of("alice", 1, now), limits.of("bob", 1, now));
        assert!(Arc::ptr_eq(&alice, &limits.of("alice", 1, now)) && !Arc::ptr_eq(&alice, &bob));
        assert!(alice.admit(now) && !alice.admit(now));
        drop((alice, bob));
        let _carol = limits.of("carol", 1, now);
        assert_eq!(limits.roles.lock().unwrap().len(), 2);
        let alice = limits.of("alice", 1, now);
        assert!(!alice.admit(now));
        assert_eq!(limits.of("alice", 10, now).per_second(), 10);
        assert_eq!(alice.per_second(), 10);
    }
}
