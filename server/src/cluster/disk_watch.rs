//! Watches the room on this node's disk, and announces changes to the other nodes.
//!
//! The engine measures what is free each second and refuses writes by itself when the reserve is reached. The share of the disk
//! that the data takes, for the guardrail, is measured here: every half minute as in Cassandra, and only if the guardrail is on.

use crate::cluster::liveness::LivenessMonitor;
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::io::DiskError;

use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::disk_status::{DiskStatus, DiskUsage, Thresholds};

/// Time between two checks of the reserve.
const DISK_USAGE_PERIOD: Duration = Duration::from_secs(1);

/// Time between two measurements of the data.
const DATA_PERIOD: Duration = Duration::from_secs(30);

/// Starts the checks. Call it once, on the first shard.
pub fn watch(context: &Rc<ShardContext>) {
    let thresholds = Thresholds::of(&context.node.config);
    let usage = std::cell::Cell::new(DiskUsage::Spacious);
    let next_measurement = std::cell::Cell::new(Duration::ZERO);
    context.repeat(DISK_USAGE_PERIOD, async move |context| {
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
            LivenessMonitor::of(context).wake();
        }
    });
}

/// Measures the share of the disk that the data takes. `None`: it could not be measured.
async fn measure(
    context: &Rc<ShardContext>,
    thresholds: &Thresholds,
    before: DiskUsage,
) -> Option<DiskUsage> {
    let (reserve, files, data_dirs) =
        (&context.node.reserve, &context.node.files, &context.node.config.data_dirs);
    let measured = async {
        let data_bytes = files.data_bytes(data_dirs).await?;
        let others = if data_dirs.is_empty() { None } else { Some(files.free_bytes(data_dirs).await?) };
        Ok::<_, DiskError>((data_bytes, others))
    };
    let (data_bytes, others) = match measured.await {
        Ok(measured) => measured,
        Err(error) => {
            tracing::debug!(%error, "the size of the data could not be measured");
            return None;
        }
    };
    let free_bytes = others.or_else(|| reserve.room().map(|room| room.free_bytes))?;
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
