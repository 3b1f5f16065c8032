//! Replicas that are not asked for leases for a while, because they did not answer.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use helenus_ring::HostId;

/// Time for which a silent replica is not asked.
const SILENCE: Duration = Duration::from_secs(2);

/// Replicas that did not answer a request for a lease, with the monotonic time from which they may be asked again.
#[derive(Default)]
pub struct SilentReplicas(RefCell<BTreeMap<HostId, Duration>>);

impl SilentReplicas {
    pub fn has(&self, host_id: &HostId, now: Duration) -> bool {
        self.0.borrow().get(host_id).is_some_and(|until| *until > now)
    }

    pub fn note(&self, host_id: HostId, now: Duration) {
        let mut silent = self.0.borrow_mut();
        silent.retain(|_, until| *until > now);
        silent.insert(host_id, now + SILENCE);
    }
}
