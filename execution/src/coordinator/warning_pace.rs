//! How often something is warned of.

use std::cell::Cell;
use std::time::Duration;

/// When this shard has warned last. Between two warnings there are this many seconds.
#[derive(Debug, Default)]
pub struct WarningPace<const PERIOD_SECONDS: u64> {
    last: Cell<Option<Duration>>,
}

/// Of disks that fill up, as in Cassandra.
pub type DiskWarnings = WarningPace<1_800>;

/// Of searches that ask many files of indexes.
pub type IndexFileWarnings = WarningPace<60>;

impl<const PERIOD_SECONDS: u64> WarningPace<PERIOD_SECONDS> {
    /// Whether a warning is due at this monotonic time; then the next one is not for a while.
    pub fn is_due(&self, now: Duration) -> bool {
        let period = Duration::from_secs(PERIOD_SECONDS);
        let is_due = self.last.get().is_none_or(|last| now.saturating_sub(last) >= period);
        if is_due {
            self.last.set(Some(now));
        }
        is_due
    }
}
