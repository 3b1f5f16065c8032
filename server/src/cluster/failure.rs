//! What the node does when its disk fails: `commit_failure_policy` and `disk_failure_policy`, which have Cassandra's names.
//!
//! A full disk is no failure: it is waited for. These are:
//!
//! * The commit log of a shard cannot be written any more, or the outcome of a write to its manifest is unknown, or the metadata log has
//!   failed. The shard refuses writes until the node is started again, whatever the policy; nothing acknowledged is lost.
//! * A file of data cannot be read or written (an I/O error), or is damaged. The request or task that met the failure ends with
//!   an error; everything else goes on.
//!
//! In a cluster, a node that cannot write would still be read, with stale data: every read at a quorum that includes it would have to
//! repair it, and could not. So with `stop` it announces to the others that it leaves, and serves nothing more. They store hints for
//! it, and it gets the missed writes after a restart. A node that is alone then continues to answer reads, because no other node could.

use crate::cluster::liveness::LivenessMonitor;
use crate::cluster::raft::MetadataLog;
use std::rc::Rc;
use std::time::Duration;

use helenus_config::{CommitFailurePolicy, DiskFailurePolicy};
use helenus_engine::error::{DiskFailure, DiskFailureKind};

use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::status_table::ServingState;

/// Interval between checks of a shard.
const FAILURE_CHECK_PERIOD: Duration = Duration::from_millis(500);

/// The reaction of the node to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reaction {
    /// It goes on as well as it can.
    GoOn,
    /// It serves nothing until it is restarted. HTTP stays, so that it can be looked at.
    StopServing,
    /// The process ends at once.
    Die,
}

/// The reaction to a shard that cannot write any more.
pub fn to_commit_failure(policy: CommitFailurePolicy, is_alone: bool) -> Reaction {
    match policy {
        CommitFailurePolicy::Die => Reaction::Die,
        CommitFailurePolicy::Stop if !is_alone => Reaction::StopServing,
        // `ignore` is refused when the settings are checked.
        CommitFailurePolicy::Stop | CommitFailurePolicy::StopCommit | CommitFailurePolicy::Ignore => {
            Reaction::GoOn
        }
    }
}

/// The reaction to a failure of data files.
pub fn to_disk_failure(policy: DiskFailurePolicy, kind: DiskFailureKind) -> Reaction {
    match (policy, kind) {
        (DiskFailurePolicy::Die, _) => Reaction::Die,
        (DiskFailurePolicy::StopParanoid, _) | (DiskFailurePolicy::Stop, DiskFailureKind::Io) => {
            Reaction::StopServing
        }
        // `ignore` is refused when the settings are checked.
        (DiskFailurePolicy::Stop, DiskFailureKind::Damage)
        | (DiskFailurePolicy::BestEffort | DiskFailurePolicy::Ignore, _) => Reaction::GoOn,
    }
}

/// The reason why this shard, or the metadata log on the first shard, accepts nothing any more.
pub fn reason(context: &ShardContext) -> Option<String> {
    let of_metadata = || MetadataLog::of(context).ok().and_then(|log| log.failure());
    context.shard.failure().or_else(of_metadata)
}

/// The strongest reaction that the failures of this shard call for, with its reason.
fn reaction(context: &ShardContext) -> Option<(Reaction, String)> {
    let config = &context.node.config;
    let commit = reason(context).map(|reason| {
        (to_commit_failure(config.commit_failure_policy, context.cluster_view().is_alone()), reason)
    });
    let of_disk = |DiskFailure { kind, message }: DiskFailure| {
        (to_disk_failure(config.disk_failure_policy, kind), message)
    };
    let failures = context.shard.disk_failures().into_iter().map(of_disk).chain(commit);
    failures.max_by_key(|(reaction, _)| *reaction)
}

/// Starts the checks of this shard.
pub fn watch(context: &Rc<ShardContext>) {
    context.repeat(FAILURE_CHECK_PERIOD, async |context| {
        let Some((reaction, reason)) = reaction(context) else { return };
        match reaction {
            Reaction::GoOn => {}
            Reaction::StopServing => stop_serving(context, &reason).await,
            Reaction::Die => die(context, reason),
        }
    });
}

async fn stop_serving(context: &Rc<ShardContext>, reason: &str) {
    if context.node.status.state() >= ServingState::Failed {
        return;
    }
    tracing::error!(
        shard = context.index,
        %reason,
        "the disk of this node has failed: it serves nothing until it is restarted"
    );
    context.node.status.set_state(ServingState::Failed);
    let announcement = context.run_on(0, |context| {
        LivenessMonitor::of(&context).wake();
        LivenessMonitor::of(&context).leave(&context);
        Box::pin(std::future::ready(()))
    });
    if announcement.await.is_err() {
        tracing::debug!("the node is stopping already");
    }
}

fn die(context: &ShardContext, reason: String) {
    context.node.fatal.send_if_modified(|fatal| {
        let is_first = fatal.is_none();
        if is_first {
            tracing::error!(
                shard = context.index,
                %reason,
                "the disk of this node has failed: the process ends, because of the failure policy"
            );
            *fatal = Some(reason);
        }
        is_first
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_mean_what_cassandra_means_by_them() {
        use CommitFailurePolicy as Commit;
        use DiskFailurePolicy as Disk;
        for (policy, alone, in_cluster) in [
            (Commit::Die, Reaction::Die, Reaction::Die),
            (Commit::Stop, Reaction::GoOn, Reaction::StopServing),
            (Commit::StopCommit, Reaction::GoOn, Reaction::GoOn),
        ] {
            assert_eq!(to_commit_failure(policy, true), alone, "{policy:?}");
            assert_eq!(to_commit_failure(policy, false), in_cluster, "{policy:?}");
        }
        for (policy, io, damage) in [
            (Disk::Die, Reaction::Die, Reaction::Die),
            (Disk::StopParanoid, Reaction::StopServing, Reaction::StopServing),
            (Disk::Stop, Reaction::StopServing, Reaction::GoOn),
            (Disk::BestEffort, Reaction::GoOn, Reaction::GoOn),
        ] {
            assert_eq!(to_disk_failure(policy, DiskFailureKind::Io), io, "{policy:?}");
            assert_eq!(to_disk_failure(policy, DiskFailureKind::Damage), damage, "{policy:?}");
        }
    }
}
