//! When clients are warned that disks are filling up.

use std::cell::Cell;
use std::time::Duration;

/// Time between two warnings, as in Cassandra.
const WARNING_PERIOD: Duration = Duration::from_mins(30);

/// When this shard has warned last.
#[derive(Debug, Default)]
pub struct DiskWarnings {
    last: Cell<Option<Duration>>,
}

impl DiskWarnings {
    /// Whether a warning is due at this monotonic time; then the next one is not for a while.
    pub fn is_due(&self, now: Duration) -> bool {
        let is_due = self.last.get().is_none_or(|last| now.saturating_sub(last) >= WARNING_PERIOD);
        if is_due {
            self.last.set(Some(now));
        }
        is_due
    }
}
