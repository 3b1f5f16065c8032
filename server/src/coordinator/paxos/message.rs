//! What coordinators and replicas of a transaction say to each other.

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

/// What a participant reads along with its promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadOrder {
    /// Ranges of full keys, half open, in the order in which they are read.
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
    pub reversed: bool,
    pub now_seconds: u32,
    /// What ends the reading early: live rows, bytes and tombstones, all ranges together.
    pub max_rows: u64,
    pub max_bytes: u64,
    pub max_tombstones: u64,
}

impl ReadOrder {
    /// Nothing yet, without limits: for rows that are named one by one.
    pub const UNLIMITED: Self = Self {
        ranges: Vec::new(),
        reversed: false,
        now_seconds: 0,
        max_rows: u64::MAX,
        max_bytes: u64::MAX,
        max_tombstones: u64::MAX,
    };
}

/// The versions that a participant has of one range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeVersions {
    /// Mutations, in the order of the read.
    pub partitions: Vec<Vec<u8>>,
    /// Where another read goes on.
    pub resume: Option<Vec<u8>>,
}

/// What a participant has read: its ranges, up to the first that was not read to its end.
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
        /// What to read when a promise is given.
        read: Option<ReadOrder>,
    },
    Commit(Commit),
    /// All replicas have settled what is not above this ballot: forget it.
    Forget {
        ballot: Ballot,
    },
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
    /// Random; the same each time the coordinator asks for this one lease.
    pub lease_id: u64,
    pub order: LeaseOrder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseAnswer {
    /// `is_wanted`: others wait for it.
    Granted {
        is_wanted: bool,
    },
    /// It is not the coordinator's turn yet.
    InLine,
    GivenBack,
}
