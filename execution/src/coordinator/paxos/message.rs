//! Messages between the coordinator and the replicas of a transaction.

use serde::{Deserialize, Serialize};

use super::ballot::Ballot;
use super::proposer::{Promise, Question};
use super::state::Commit;

/// A partition of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionName {
    pub table_id: [u8; 16],
    pub token: i64,
    pub key: Vec<u8>,
}

/// The ranges that a participant reads together with its promise, and the limits of the read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadOrder {
    /// Half-open ranges of full keys, in the order in which they are read.
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
    pub reversed: bool,
    pub now_seconds: u32,
    /// Limits that end the read early: live rows, bytes and tombstones, over all ranges together.
    pub max_rows: u64,
    pub max_bytes: u64,
    pub max_tombstones: u64,
}

impl ReadOrder {
    /// An empty order without limits, for rows that are named individually.
    pub const UNLIMITED: Self = Self {
        ranges: Vec::new(),
        reversed: false,
        now_seconds: 0,
        max_rows: u64::MAX,
        max_bytes: u64::MAX,
        max_tombstones: u64::MAX,
    };
}

/// What a participant reads of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRead {
    pub table_id: [u8; 16],
    pub order: ReadOrder,
}

/// The versions that a participant has of one range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeVersions {
    /// Mutations, in the order of the read.
    pub partitions: Vec<Vec<u8>>,
    /// Where another read continues.
    pub resume: Option<Vec<u8>>,
}

/// The rows that a participant has read: its ranges, up to the first that was not read to its end.
pub type ReadAnswer = Vec<RangeVersions>;

/// A request to a replica.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PaxosRequest {
    /// The epoch of the coordinator's topology.
    pub epoch: u64,
    pub partition: PartitionName,
    pub order: PaxosOrder,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum PaxosOrder {
    Ask {
        question: Question,
        /// The ranges to read when a promise is given.
        read: Option<ReadOrder>,
    },
    Commit(Commit),
    /// Forget the state that is not above this ballot: all replicas have settled it.
    Forget {
        ballot: Ballot,
    },
    /// As `Ask`, and reads several tables: their ranges one after the other, up to the first that is not read to its end. Sent from the
    /// feature level [`helenus_ring::metadata::TRANSACTION_TOKENS`] on.
    AskOfTables {
        question: Question,
        reads: Vec<TableRead>,
    },
}

impl PaxosOrder {
    /// The commit that comes with the order.
    pub fn commit(&self) -> Option<&Commit> {
        match self {
            Self::Ask { question, .. } | Self::AskOfTables { question, .. } => match question {
                Question::Prepare { commit, .. } => commit.as_ref(),
                Question::Propose { .. } => None,
            },
            Self::Commit(commit) => Some(commit),
            Self::Forget { .. } => None,
        }
    }
}

/// A replica's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum PaxosResponse {
    Promised(Box<Promise<ReadAnswer>>),
    Rejected { above_micros: i64 },
    Accepted,
    Committed,
    Forgotten,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseOrder {
    Take,
    GiveBack,
}

/// A coordinator's request to the shard that owns the partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRequest {
    pub table_id: [u8; 16],
    pub key: Vec<u8>,
    /// A random number, repeated in each request for this lease.
    pub lease_id: u64,
    pub order: LeaseOrder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseAnswer {
    /// `is_wanted`: other coordinators wait for the lease.
    Granted {
        is_wanted: bool,
    },
    /// The coordinator must wait in the queue.
    InLine,
    GivenBack,
}
