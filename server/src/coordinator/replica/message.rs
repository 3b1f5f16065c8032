//! Requests to replicas. Those that ownership decides about name the epoch of the coordinator's topology.

use helenus_internode::byte_string;
use helenus_internode::service::{Lane, ServiceRequest};
use helenus_ring::HostId;
use serde::{Deserialize, Serialize};

use super::answer::{ReadAnswer, ReadRequest};
use crate::coordinator::batch_log::batch_id::BatchId;
use crate::coordinator::paxos::message::{LeaseAnswer, LeaseRequest, PaxosRequest, PaxosResponse};
use crate::coordinator::replica::forwarded::{ForwardRequest, ForwardedError};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ReplicaRequest {
    /// Apply a mutation and answer when it is durable.
    Write {
        epoch: u64,
        #[serde(with = "byte_string")]
        mutation: Vec<u8>,
    },
    /// Apply a mutation that this replica has missed, whatever epoch it was written in; [`ReplicaResponse::NotOwner`] when
    /// the partition belongs to others by now.
    Hint {
        #[serde(with = "byte_string")]
        mutation: Vec<u8>,
    },
    /// Read and write in one turn, and replicate what came out.
    Forward(ForwardRequest),
    /// Keep a batch until it is removed; apply it if that does not happen.
    StoreBatch {
        id: BatchId,
        /// As [`crate::coordinator::batch_log::store`] keeps them.
        #[serde(with = "byte_string")]
        mutations: Vec<u8>,
    },
    /// A batch is applied everywhere.
    RemoveBatch { id: BatchId },
    /// Empty a table on all shards.
    Truncate { table_id: u128 },
    /// Read a range.
    Read(ReadRequest),
    /// A part of a transaction or of a serial read.
    Paxos(Box<PaxosRequest>),
    /// Keep a hint of a member that leaves. Asked of the shard that would have the mutation.
    KeepHint {
        target: HostId,
        /// When it was kept first: it expires as if it had been kept here.
        created_micros: i64,
        #[serde(with = "byte_string")]
        mutation: Vec<u8>,
    },
    /// Who comes first where coordinators compete for a partition.
    Lease(LeaseRequest),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ReplicaResponse {
    Written,
    /// The partition of a hint belongs to others.
    NotOwner,
    Forwarded(Result<(), ForwardedError>),
    Read(ReadAnswer),
    Paxos(PaxosResponse),
    Lease(LeaseAnswer),
}

impl ServiceRequest for ReplicaRequest {
    const ID: u32 = 0;
    const LANE: Lane = Lane::Data;
    type Response = ReplicaResponse;
}
