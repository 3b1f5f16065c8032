//! A batch: ranges of a table that are repaired together, and the requests to their replicas.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use helenus_engine::TableId;
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_ring::HostId;
use helenus_ring::member::Member;

use super::message::{RepairRequest, RepairResponse};
use super::runs::{Cancelled, RepairRun};
use crate::shard::context::ShardContext;

/// Longest time for an answer of a replica that is alive.
const ANSWER_DEADLINE: Duration = Duration::from_hours(1);
/// How often a coordinator that waits looks whether the replica is still alive, and the repair still wanted.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Why ranges were not repaired.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RangeError {
    /// Ownership has changed since the repair of the ranges began: they are repaired among their present replicas.
    #[error("the ring has changed")]
    RingChanged,
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// Some replicas are down.
    #[error("replicas are down: {}", list(.0))]
    ReplicasDown(Vec<HostId>),
    /// A replica cannot read or write them.
    #[error("replica {host_id}: {reason}")]
    Replica { host_id: HostId, reason: String },
    /// Transactions of before the repair may still take effect.
    #[error("transactions that are under way could not be settled: {0}")]
    Unsettled(String),
}

fn list(ids: &[HostId]) -> String {
    ids.iter().map(HostId::to_string).collect::<Vec<_>>().join(", ")
}

impl RangeError {
    /// What the failure of a request to a replica means.
    pub fn of_peer(member: &Member, error: PeerError) -> Self {
        match error {
            PeerError::Failed(Failure::StaleRing { .. }) => Self::RingChanged,
            other => Self::Replica { host_id: member.host_id, reason: other.to_string() },
        }
    }
}

/// Ranges of a table with the same replicas.
#[derive(Debug, Clone)]
pub struct Batch {
    pub epoch: u64,
    pub table: TableId,
    /// First and last token of each range.
    pub ranges: Vec<(i64, i64)>,
    /// The number of parts into which each is divided for the first comparison.
    pub parts: u32,
    /// The replicas that take part.
    pub members: Vec<Arc<Member>>,
    pub now_seconds: u32,
    /// The replica that cannot open some files: it gets what it lacks without them, and the others get nothing. `None`: all replicas are
    /// made equal.
    pub mended: Option<HostId>,
}

impl Batch {
    /// Whether the damaged files of a replica are mended.
    pub fn mends(&self, member: &Member) -> bool {
        self.mended == Some(member.host_id)
    }
}

/// Asks a replica, as long as it is alive and the repair is wanted.
pub async fn ask(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    member: &Member,
    request: &RepairRequest,
) -> Result<RepairResponse, RangeError> {
    let asked = context.ask(member, context.index as u16, request, ANSWER_DEADLINE);
    let answer = while_alive(context, run, member, Box::pin(asked)).await?;
    answer.map_err(|error| RangeError::of_peer(member, error))
}

/// Waits for a replica as long as it is alive and the repair is wanted.
pub async fn while_alive<T>(
    context: &Rc<ShardContext>,
    run: &RepairRun,
    member: &Member,
    mut answer: LocalBoxFuture<'_, T>,
) -> Result<T, RangeError> {
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return Ok(answer),
            () = context.clock.sleep(LOOK_AGAIN) => {
                run.check(&context.node)?;
                if !context.cluster_view().is_alive(&member.host_id) {
                    return Err(RangeError::ReplicasDown(vec![member.host_id]));
                }
            }
        }
    }
}
