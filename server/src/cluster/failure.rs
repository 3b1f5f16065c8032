//! A node that cannot write any more (a full or broken disk) takes itself out of the cluster's way.
//!
//! A shard that has failed refuses writes until the node is started again. In a cluster such a node would still be read, and
//! would be stale: every read at a quorum that asks it would have to repair it, and could not. So it tells the others that it goes,
//! and serves nothing more; they keep hints for it, and it gets what it has missed when it is started again. (Cassandra's
//! `commit_failure_policy: stop`.) A node that is alone goes on answering reads: nobody else could.

use std::rc::Rc;
use std::time::Duration;

use super::liveness::ServingState;
use crate::shard_thread::ShardContext;

/// How often a shard is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// Begins to look after this shard.
pub fn watch(context: &Rc<ShardContext>) {
    context.repeat(PERIOD, async |context| {
        let Some(reason) = context.shard.failure() else { return };
        if context.cluster_view().is_single || context.node.board.state() >= ServingState::Failed {
            return;
        }
        tracing::error!(
            shard = context.index,
            %reason,
            "a shard cannot write any more: this node serves nothing until it is started again"
        );
        context.node.board.set_state(ServingState::Failed);
        let told = context.run_on(0, |context| {
            context.liveness.wake();
            context.liveness.leave(&context);
            Box::pin(std::future::ready(()))
        });
        if told.await.is_err() {
            tracing::debug!("the node stops anyway");
        }
    });
}
