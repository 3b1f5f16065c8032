//! A node that cannot write any more (a full or broken disk) stops serving.
//!
//! A failed shard refuses writes until the node is restarted, and a node whose metadata log has failed learns of no
//! change. In a cluster it would still be read, with stale data: every read at a quorum that includes it would have
//! to repair it, and could not. So it announces to the others that it leaves, and serves nothing more. They store
//! hints for it, and it gets the missed writes after a restart. (Cassandra's `commit_failure_policy: stop`.) A single
//! node continues to answer reads, because no other node could.

use std::rc::Rc;
use std::time::Duration;

use crate::shard::context::ShardContext;
use crate::shard::status_table::ServingState;

/// Interval between checks of a shard.
const PERIOD: Duration = Duration::from_millis(500);

/// The reason why this shard, or the metadata log on the first shard, accepts nothing any more.
pub fn reason(context: &ShardContext) -> Option<String> {
    let of_metadata = || context.metadata_log().ok().and_then(|log| log.failure());
    context.shard.failure().or_else(of_metadata)
}

/// Starts the checks of this shard.
pub fn watch(context: &Rc<ShardContext>) {
    context.repeat(PERIOD, async |context| {
        let Some(reason) = reason(context) else { return };
        if context.cluster_view().is_alone() || context.node.status.state() >= ServingState::Failed {
            return;
        }
        tracing::error!(
            shard = context.index,
            %reason,
            "this node cannot write any more: it serves nothing until it is restarted"
        );
        context.node.status.set_state(ServingState::Failed);
        let told = context.run_on(0, |context| {
            context.liveness().wake();
            context.liveness().leave(&context);
            Box::pin(std::future::ready(()))
        });
        if told.await.is_err() {
            tracing::debug!("the node is stopping already");
        }
    });
}
