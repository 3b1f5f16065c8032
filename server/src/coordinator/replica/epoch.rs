//! Fencing: no request is decided by yesterday's owners.
//!
//! Every request that ownership decides about names its coordinator's epoch. A replica that is ahead refuses it (the
//! coordinator catches up and asks again), one that is behind first catches up itself.

use std::rc::Rc;
use std::time::Duration;

use helenus_internode::service::Failure;

use crate::shard::context::ShardContext;

/// How often a shard that waits for an epoch looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Refuses an epoch older than this shard's. To be called in the turn in which the request takes effect.
pub fn refuse_stale(context: &ShardContext, epoch: u64) -> Result<(), Failure> {
    let own = context.cluster_view().topology.epoch;
    if epoch < own { Err(Failure::StaleRing { epoch: own }) } else { Ok(()) }
}

/// Waits until this shard knows the epoch; false when that takes longer than `wait`.
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

/// Lets a request of this epoch pass, after waiting for the epoch where this shard is behind.
pub async fn fence(context: &Rc<ShardContext>, epoch: u64, wait: Duration) -> Result<(), Failure> {
    refuse_stale(context, epoch)?;
    if !catch_up(context, epoch, wait).await {
        return Err(Failure::Internal(format!("this node has not caught up with epoch {epoch} of the ring")));
    }
    refuse_stale(context, epoch)
}
