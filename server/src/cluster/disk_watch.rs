//! Looks at the room on this node's disk, and tells the others when something has changed.
//!
//! The engine measures what is free each second and refuses writes by itself when the reserve is reached. What the guardrail of the
//! data's share needs is measured here, every half minute as in Cassandra, and only if it is turned on.

use std::rc::Rc;
use std::time::Duration;

use crate::shard::context::ShardContext;
use crate::shard::disk_status::{DiskStatus, DiskUsage, Thresholds};

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Time between two measurements of the data.
const DATA_PERIOD: Duration = Duration::from_secs(30);

/// Starts to look. Call it once, on the first shard.
pub fn watch(context: &Rc<ShardContext>) {
    let thresholds = Thresholds::of(&context.node.config);
    let usage = std::cell::Cell::new(DiskUsage::Spacious);
    let next_measurement = std::cell::Cell::new(Duration::ZERO);
    context.repeat(PERIOD, async move |context| {
        let now = context.clock.monotonic();
        if thresholds.is_enabled() && now >= next_measurement.get() {
            next_measurement.set(now + DATA_PERIOD);
            if let Some(measured) = measure(context, &thresholds, usage.get()).await {
                usage.set(measured);
            }
        }
        let is_reserve_reached = context.node.reserve.is_reached() || context.shard.log_lacks_room();
        let status = DiskStatus { usage: usage.get(), is_reserve_reached };
        if context.node.disks.set_own(status) {
            context.liveness().wake();
        }
    });
}

/// Measures the share of the disk that the data takes. `None`: it could not be measured.
async fn measure(
    context: &Rc<ShardContext>,
    thresholds: &Thresholds,
    before: DiskUsage,
) -> Option<DiskUsage> {
    let reserve = &context.node.reserve;
    let free_bytes = reserve.room()?.free_bytes;
    let data_bytes = match context.node.files.data_bytes().await {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::debug!(%error, "the size of the data could not be measured");
            return None;
        }
    };
    let (percent, usage) = thresholds.usage(data_bytes, reserve.memtable_bytes(), free_bytes);
    if usage != before {
        let state = usage.name();
        match usage {
            DiskUsage::Full => tracing::error!(
                percent,
                state,
                "local data disk usage exceeds the failure threshold: writes are not accepted"
            ),
            DiskUsage::Stuffed => {
                tracing::warn!(percent, state, "local data disk usage exceeds the warning threshold");
            }
            DiskUsage::Spacious => {
                tracing::info!(percent, state, "local data disk usage is below the thresholds");
            }
        }
    }
    Some(usage)
}
