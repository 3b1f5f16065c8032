//! One attempt to fetch what a transition brings: its lanes, their units, and why it may fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use helenus_engine::TableId;
use helenus_internode::transport::PeerError;
use helenus_query::error::RequestError;
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::placement::TokenRange;

use crate::streaming::progress::{UnitKey, UnitProgress};

/// Why a transfer did not come to its end; it is to be tried again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransferError {
    #[error("{peer}: {error}")]
    Peer { peer: HostId, error: PeerError },
    #[error("{peer} has sent a damaged piece of table {table}: {reason}")]
    Damaged { peer: HostId, table: TableId, reason: String },
    #[error("too few replicas are alive for {0} ranges")]
    Blocked(usize),
    /// All else is fetched.
    #[error("the only replica of {0} ranges is not alive")]
    Lost(usize),
    #[error("table {0} was truncated while it was fetched")]
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

/// One table's ranges on one shard of a holder.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    pub key: UnitKey,
    pub table: TableId,
    /// What is to be there in the end.
    pub ranges: Vec<TokenRange>,
}

/// The units of one shard of a holder.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub source: Arc<Member>,
    pub shard: u16,
    pub units: Vec<Unit>,
}

/// What all lanes of an attempt share.
pub(super) struct Attempt {
    pub epoch: u64,
    pub progress: BTreeMap<UnitKey, UnitProgress>,
    /// One lane has failed: the others stop, too.
    pub is_cancelled: AtomicBool,
    /// Bytes a second of one lane.
    pub rate: Option<u64>,
}
