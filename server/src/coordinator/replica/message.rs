//! Requests to replicas. Every one names the epoch of the coordinator's topology.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ReplicaRequest {
    /// Apply a mutation and answer when it is durable.
    Write { epoch: u64, mutation: Vec<u8> },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ReplicaResponse {
    Written,
}
