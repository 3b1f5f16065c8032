//! Requests to replicas. Requests that ownership decides about carry the epoch of the coordinator's topology.

use helenus_internode::byte_string;
use helenus_internode::service::{ServiceRequest, TrafficClass};
use helenus_ring::HostId;
use serde::{Deserialize, Serialize};

use super::answer::{ReadAnswer, ReadRequest};
use crate::coordinator::batch_log::batch_id::BatchId;
use crate::coordinator::paxos::message::{LeaseAnswer, LeaseRequest, PaxosRequest, PaxosResponse};
use crate::coordinator::replica::forwarded::{ForwardRequest, ForwardedError};
use crate::coordinator::replica::nearest_answer::{NearestAnswer, NearestRequest};
use crate::coordinator::replica::search_answer::{SearchAnswer, SearchRequest, SearchRestriction};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ReplicaRequest {
    /// Apply a mutation and answer when it is durable.
    Write {
        epoch: u64,
        #[serde(with = "byte_string")]
        mutation: Vec<u8>,
    },
    /// Apply a mutation that this replica missed, whatever epoch it was written in. The answer is
    /// [`ReplicaResponse::NotOwner`] if the partition belongs to other replicas by now.
    Hint {
        #[serde(with = "byte_string")]
        mutation: Vec<u8>,
    },
    /// Read and write in one turn, and replicate the resulting mutation.
    Forward(ForwardRequest),
    /// Keep a batch until it is removed. Apply it if it is not removed in time.
    StoreBatch {
        id: BatchId,
        /// Encoded as [`crate::coordinator::batch_log::store`] keeps them.
        #[serde(with = "byte_string")]
        mutations: Vec<u8>,
    },
    /// Remove a batch that is applied everywhere.
    RemoveBatch { id: BatchId },
    /// Empty a table on all shards.
    Truncate { table_id: u128 },
    /// Read a range.
    Read(ReadRequest),
    /// A message of a transaction or of a serial read.
    Paxos(Box<PaxosRequest>),
    /// Keep a hint of a leaving member. Sent to the shard that would own the mutation.
    KeepHint {
        target: HostId,
        /// When the hint was first stored; it expires as if it had been stored here at that time.
        created_micros: i64,
        #[serde(with = "byte_string")]
        mutation: Vec<u8>,
    },
    /// A request about the order of coordinators that compete for a partition.
    Lease(LeaseRequest),
    /// A part of TRUNCATE, before the table is emptied.
    Truncation(TruncationRequest),
    /// Search by indexes. Sent from the feature level [`helenus_ring::metadata::INDEXES`] on, because before there are none.
    Search(SearchRequest),
    /// Search by several restrictions together: that of the request, and these. Sent from the feature level
    /// [`helenus_ring::metadata::CASSANDRA_5_SCHEMAS`] on.
    SearchTogether { search: SearchRequest, others: Vec<SearchRestriction> },
    /// Search for the nearest vectors. Sent from the feature level [`helenus_ring::metadata::CASSANDRA_5_SCHEMAS`] on, because before there are no
    /// indexes of vectors.
    Nearest(NearestRequest),
    /// As [`Self::KeepHint`], with how long the leaving member has kept it: it precedes what this one has truncated since, whatever their
    /// clocks say. Sent from the feature level [`helenus_ring::metadata::AGED_HINTS`] on.
    KeepAgedHint {
        target: HostId,
        created_micros: i64,
        age_micros: u64,
        #[serde(with = "byte_string")]
        mutation: Vec<u8>,
    },
}

/// What a member does for a TRUNCATE before it empties the table ([`ReplicaRequest::Truncate`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TruncationRequest {
    /// Answer with the latest ballot of the table's transactions.
    LatestBallot { table_id: u128 },
    /// Apply nothing any more of transactions up to this time, and promise no ballot up to it.
    Bind { table_id: u128, truncated_micros: i64 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ReplicaResponse {
    Written,
    /// The partition of a hint belongs to other replicas.
    NotOwner,
    Forwarded(Result<(), ForwardedError>),
    Read(ReadAnswer),
    Paxos(PaxosResponse),
    Lease(LeaseAnswer),
    /// The microseconds of a ballot; `i64::MIN`: there is none.
    LatestBallot {
        micros: i64,
    },
    Found(SearchAnswer),
    Nearest(NearestAnswer),
}

impl ServiceRequest for ReplicaRequest {
    const ID: u32 = 0;
    const TRAFFIC_CLASS: TrafficClass = TrafficClass::Data;
    type Response = ReplicaResponse;
}
