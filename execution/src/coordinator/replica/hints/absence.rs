//! Since when members are down, as a shard sees it: hints for a member are kept only within a window (`max_hint_window_ms`) from then on.
//!
//! A member that has been down for a while is noted in the table of hints, with the time of the clock. So the window goes on where this node is
//! started again: what was written after its end before has no hint either.
//!
//! The row of a member has the time since when it is down, or nothing when it is alive again, or is no member any more. It is not deleted: the
//! table is one whose rows are written once, and a deletion might end with a row that was written after it.

use std::collections::BTreeMap;
use std::time::Duration;

use helenus_engine::key::REGULAR_TAG;
use helenus_query::error::Result;
use helenus_ring::HostId;
use helenus_ring::metadata::HINT_WINDOWS;
use uuid::Uuid;

use super::table::{TABLE, damaged, write_durably};
use crate::shard::context::ShardContext;
use crate::shard::private_table::PrivateRow;

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

/// The note of a stored row; `None`: the member is not down.
pub(super) fn noted(row: &PrivateRow<'_>) -> Result<Option<(HostId, i64)>> {
    if row.value.is_empty() {
        return Ok(None);
    }
    let host_id = row.position.get(1..).and_then(|id| Uuid::from_slice(id).ok());
    let (Some(host_id), Ok(since)) = (host_id, row.value.try_into()) else {
        return Err(damaged("the absence of a member"));
    };
    Ok(Some((host_id, i64::from_be_bytes(since))))
}

/// Looks who is down now, and notes it durably.
pub(super) async fn look(context: &ShardContext) -> Result<()> {
    let view = context.cluster();
    if view.topology.version == 0 {
        // No members are known yet.
        return Ok(());
    }
    let absences = &context.replication().hints.absences;
    let is_down = |host_id: &HostId| view.topology.member(host_id).is_some() && !view.is_alive(host_id);
    let (mut over, mut lasting) = (Vec::new(), Vec::new());
    {
        let absent = &mut absences.borrow_mut().0;
        absent.retain(|host_id, absence| {
            let is_absent = is_down(host_id);
            if !is_absent && absence.is_noted {
                over.push(*host_id);
            }
            is_absent
        });
        for host_id in view.topology.members.keys().filter(|host_id| is_down(host_id)) {
            let seen = context.clock.monotonic();
            let absence =
                absent.entry(*host_id).or_insert(Absence { seen, before: Duration::ZERO, is_noted: false });
            if !absence.is_noted && absence.lasts(context) >= NOTED_AFTER {
                lasting.push((*host_id, absence.lasts(context)));
            }
        }
    }
    if view.topology.feature_level < HINT_WINDOWS || (over.is_empty() && lasting.is_empty()) {
        return Ok(());
    }
    context.shard.admit_internal().await?;
    let mut change = TABLE.change(PARTITION);
    let timestamp = context.next_timestamp();
    for host_id in over {
        change.put(&position(host_id), timestamp, &[]);
    }
    for (host_id, lasts) in &lasting {
        let lasts_micros = i64::try_from(lasts.as_micros()).unwrap_or(i64::MAX);
        let since_micros = context.clock.now_micros().saturating_sub(lasts_micros);
        change.put(&position(*host_id), timestamp, &since_micros.to_be_bytes());
    }
    write_durably(context, change).await?;
    let mut absences = absences.borrow_mut();
    for (host_id, _) in lasting {
        if let Some(absence) = absences.0.get_mut(&host_id) {
            absence.is_noted = true;
        }
    }
    Ok(())
}
