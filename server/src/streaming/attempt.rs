//! One attempt to stream the ranges of a transition: its stream sessions, their tasks, and the errors of an attempt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use helenus_engine::TableId;
use helenus_execution::shard::context::ShardContext;
use helenus_internode::transport::PeerError;
use helenus_query::error::RequestError;
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::placement::TokenRange;

use crate::streaming::progress::{StreamTaskKey, StreamTaskProgress};

/// The reason why a transfer did not complete. It must be retried.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransferError {
    #[error("{peer}: {error}")]
    Peer { peer: HostId, error: PeerError },
    #[error("{peer} has sent a damaged chunk of table {table}: {reason}")]
    Damaged { peer: HostId, table: TableId, reason: String },
    #[error("too few replicas are alive for {0} ranges")]
    Blocked(usize),
    /// Everything else was streamed.
    #[error("the only replica of {0} ranges is not alive")]
    Lost(usize),
    #[error("table {0} was truncated while it was streamed")]
    Truncated(TableId),
    #[error("the ring has changed")]
    RingChanged,
    #[error("cancelled")]
    Cancelled,
    #[error("{0}")]
    Here(String),
}

impl From<RequestError> for TransferError {
    fn from(error: RequestError) -> Self {
        Self::Here(error.to_string())
    }
}

/// A stream task: the ranges of one table on one shard of one source.
#[derive(Debug, Clone)]
pub(super) struct StreamTask {
    pub key: StreamTaskKey,
    pub table: TableId,
    /// All tokens that the task has to stream.
    pub ranges: Vec<TokenRange>,
}

/// A stream session: the tasks of one shard of a source.
#[derive(Debug, Clone)]
pub(super) struct StreamSession {
    pub source: Arc<Member>,
    pub shard: u16,
    pub tasks: Vec<StreamTask>,
}

/// State shared by all stream sessions of an attempt.
pub(super) struct Attempt {
    pub epoch: u64,
    pub progress: BTreeMap<StreamTaskKey, StreamTaskProgress>,
    /// Set when a session has failed: the others stop, too.
    pub is_cancelled: AtomicBool,
}

impl Attempt {
    /// An error if the attempt is given up, the node stops, or ownership has changed: what was streamed for a transition that has ended
    /// may have been deleted since.
    pub fn check(&self, context: &ShardContext) -> Result<(), TransferError> {
        if context.cluster_view().topology.epoch != self.epoch {
            return Err(TransferError::RingChanged);
        }
        let is_given_up = self.is_cancelled.load(Ordering::Relaxed) || *context.node.stopping.borrow();
        if is_given_up { Err(TransferError::Cancelled) } else { Ok(()) }
    }
}
