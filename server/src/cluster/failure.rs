//! A node that cannot write any more (a full or broken disk) takes itself out of the cluster's way.
//!
//! A shard that has failed refuses writes until the node is started again, and with a metadata log that has failed the node learns
//! of no change. In a cluster it would still be read, and would be stale: every read at a quorum that asks it would have to
//! repair it, and could not. So it tells the others that it goes, and serves nothing more; they keep hints for it, and it gets
//! what it has missed when it is started again. (Cassandra's `commit_failure_policy: stop`.) A node that is alone goes on
//! answering reads: nobody else could.

use std::rc::Rc;
use std::time::Duration;

use crate::shard::board::ServingState;
use crate::shard::context::ShardContext;

/// How often a shard is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// Why this shard, or the metadata log on the first one, accepts nothing any more.
pub fn reason(context: &ShardContext) -> Option<String> {
    let of_metadata = || context.metadata_log().ok().and_then(|log| log.failure());
    context.shard.failure().or_else(of_metadata)
}

/// Begins to look after this shard.
pub fn watch(context: &Rc<ShardContext>) {
    context.repeat(PERIOD, async |context| {
        let Some(reason) = reason(context) else { return };
        if context.cluster_view().is_alone() || context.node.board.state() >= ServingState::Failed {
            return;
        }
        tracing::error!(
            shard = context.index,
            %reason,
            "what belongs to this node cannot be written any more: it serves nothing until it is started again"
        );
        context.node.board.set_state(ServingState::Failed);
        let told = context.run_on(0, |context| {
            context.liveness().wake();
            context.liveness().leave(&context);
            Box::pin(std::future::ready(()))
        });
        if told.await.is_err() {
            tracing::debug!("the node stops anyway");
        }
    });
}
