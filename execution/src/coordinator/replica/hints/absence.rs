//! Since when members are down, as a shard sees it: hints for a member are kept only within a window (`max_hint_window_ms`) from then on.
//!
//! A member that has been down for a while is noted in the table of hints, with the time of the clock. So the window goes on where this node is
//! started again: what was written after its end before has no hint either.
//!
//! The row of a member has the time at which it went down. The value is empty once it is alive again or has left the cluster. The row is not deleted: the
//! table is one whose rows are written once, and a deletion might end with a row that was written after it.

use std::collections::BTreeMap;
use std::time::Duration;

use helenus_engine::key::REGULAR_TAG;
use helenus_ring::HostId;
use uuid::Uuid;

use crate::shard::context::ShardContext;
use crate::shard::private_table::{PrivateChange, PrivateRow};

/// Key of the partition with the times since when members are down.
pub(super) const PARTITION: &[u8] = b"absent-members";
/// A member that is down for a shorter time is not noted: nobody is known to be alive when a node starts.
const NOTED_AFTER: Duration = Duration::from_secs(30);

/// The absence of a member.
#[derive(Debug, Clone, Copy)]
struct Absence {
    /// When this run has seen it first, in monotonic time.
    seen: Duration,
    /// How long the member had been down by then, as the last run has noted.
    before: Duration,
    is_noted: bool,
}

/// The members that are down.
#[derive(Default)]
pub(super) struct Absences(BTreeMap<HostId, Absence>);

impl Absences {
    /// How long a member has been down.
    pub(super) fn of(&self, context: &ShardContext, host_id: &HostId) -> Duration {
        self.0.get(host_id).map_or(Duration::ZERO, |absence| absence.lasts(context))
    }

    /// Takes over what the last run has noted: times of the clock, in microseconds since the epoch.
    pub(super) fn take_over(&mut self, context: &ShardContext, noted: BTreeMap<HostId, i64>) {
        let (seen, now_micros) = (context.clock.monotonic(), context.clock.now_micros());
        for (host_id, since_micros) in noted {
            let before = now_micros.saturating_sub(since_micros).max(0).unsigned_abs();
            let before = Duration::from_micros(before);
            self.0.insert(host_id, Absence { seen, before, is_noted: true });
        }
    }

    /// Looks who is down now.
    pub(super) fn look(&mut self, context: &ShardContext) -> Changes {
        let view = context.cluster();
        let mut changes = Changes::default();
        if view.topology.version == 0 {
            // No members are known yet.
            return changes;
        }
        let is_down = |host_id: &HostId| view.topology.member(host_id).is_some() && !view.is_alive(host_id);
        self.0.retain(|host_id, absence| {
            let is_absent = is_down(host_id);
            if !is_absent && absence.is_noted {
                changes.over.push(*host_id);
            }
            is_absent
        });
        let seen = context.clock.monotonic();
        for host_id in view.topology.members.keys().filter(|host_id| is_down(host_id)) {
            let begun = Absence { seen, before: Duration::ZERO, is_noted: false };
            let absence = self.0.entry(*host_id).or_insert(begun);
            if !absence.is_noted && absence.lasts(context) >= NOTED_AFTER {
                changes.lasting.push((*host_id, absence.lasts(context)));
            }
        }
        changes
    }

    /// The changes are durable.
    pub(super) fn are_noted(&mut self, changes: &Changes) {
        for (host_id, _) in &changes.lasting {
            if let Some(absence) = self.0.get_mut(host_id) {
                absence.is_noted = true;
            }
        }
    }
}

impl Absence {
    fn lasts(&self, context: &ShardContext) -> Duration {
        self.before + context.clock.monotonic().saturating_sub(self.seen)
    }
}

fn position(host_id: HostId) -> Vec<u8> {
    let mut position = vec![REGULAR_TAG];
    position.extend_from_slice(host_id.as_bytes());
    position
}

/// The note of a stored row; `Ok(None)`: the member is not down. An error: it cannot be read.
pub(super) fn noted(row: &PrivateRow<'_>) -> Result<Option<(HostId, i64)>, Unreadable> {
    if row.value.is_empty() {
        return Ok(None);
    }
    let host_id = row.position.get(1..).and_then(|id| Uuid::from_slice(id).ok());
    let since = row.value.try_into().map(i64::from_be_bytes).ok();
    host_id.zip(since).map(Some).ok_or(Unreadable)
}

/// A note that cannot be read.
pub(super) struct Unreadable;

/// What has to be noted.
#[derive(Default)]
pub(super) struct Changes {
    /// Members that were noted, and are not down any more.
    over: Vec<HostId>,
    /// Members that are not noted yet, each with how long it has been down.
    lasting: Vec<(HostId, Duration)>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.over.is_empty() && self.lasting.is_empty()
    }

    /// Adds the rows to a change of [`PARTITION`].
    pub(super) fn put(&self, context: &ShardContext, change: &mut PrivateChange) {
        let timestamp = context.next_timestamp();
        for host_id in &self.over {
            change.put(&position(*host_id), timestamp, &[]);
        }
        for (host_id, lasts) in &self.lasting {
            let lasts_micros = i64::try_from(lasts.as_micros()).unwrap_or(i64::MAX);
            let since_micros = context.clock.now_micros().saturating_sub(lasts_micros);
            change.put(&position(*host_id), timestamp, &since_micros.to_be_bytes());
        }
    }
}
