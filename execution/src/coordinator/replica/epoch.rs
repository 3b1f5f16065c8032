//! Fencing: no request is decided by former replicas.
//!
//! Every request that ownership decides about carries its coordinator's epoch. A replica that is ahead refuses the
//! request (the coordinator catches up and repeats it). A replica that is behind first catches up itself.

use std::rc::Rc;
use std::time::Duration;

use helenus_internode::service::Failure;

use crate::shard::context::ShardContext;

/// Interval at which a shard that waits for an epoch checks again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Refuses an epoch older than this shard's. Must be called in the turn in which the request takes effect.
pub fn refuse_stale(context: &ShardContext, epoch: u64) -> Result<(), Failure> {
    let own = context.cluster_view().topology.epoch;
    if epoch < own { Err(Failure::StaleRing { epoch: own }) } else { Ok(()) }
}

/// Waits until this shard knows the epoch. Returns false if that takes longer than `wait`.
pub async fn catch_up(context: &Rc<ShardContext>, epoch: u64, wait: Duration) -> bool {
    let deadline = context.clock.monotonic() + wait;
    loop {
        if context.cluster_view().topology.epoch >= epoch {
            return true;
        }
        if context.clock.monotonic() >= deadline {
            return false;
        }
        context.clock.sleep(LOOK_AGAIN).await;
    }
}

/// Admits a request of this epoch, after waiting for the epoch if this shard is behind. Fails if the epoch is stale,
/// or if the shard does not catch up within `wait`.
pub async fn fence(context: &Rc<ShardContext>, epoch: u64, wait: Duration) -> Result<(), Failure> {
    refuse_stale(context, epoch)?;
    if !catch_up(context, epoch, wait).await {
        return Err(Failure::Internal(format!("this node has not caught up with epoch {epoch} of the ring")));
    }
    refuse_stale(context, epoch)
}
