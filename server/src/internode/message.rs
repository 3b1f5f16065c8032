//! What nodes say to each other.
//!
//! Encoded with postcard: variants are numbered in their order, so new ones go to the end, and a field is never taken away
//! within a protocol version. A request of an unknown variant is answered with [`Response::Failed`].

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cluster::message::{ClusterRequest, ClusterResponse};
use crate::coordinator::replica::message::{ReplicaRequest, ReplicaResponse};
use crate::streaming::message::{StreamRequest, StreamResponse};

/// The version of the protocol that this program speaks.
pub const PROTOCOL_VERSION: u16 = 1;

/// A request to a shard of another node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Reads and writes of replicas, their hints, batches and transactions.
    Replica(ReplicaRequest),
    /// Metadata log, liveness, joining and leaving.
    Cluster(ClusterRequest),
    /// Data that changes owners.
    Stream(StreamRequest),
}

/// Requests of different kinds take different links, so that none waits behind another's bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Data,
    Control,
    Stream,
}

impl Lane {
    /// The lane of an encoded [`Request`]: its first byte is the number of its variant.
    pub fn of(message: &[u8]) -> Self {
        match message.first() {
            Some(1) => Self::Control,
            Some(2) => Self::Stream,
            _ => Self::Data,
        }
    }
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Response {
    Replica(ReplicaResponse),
    Cluster(ClusterResponse),
    Stream(StreamResponse),
    /// The request could not be carried out.
    Failed(Failure),
}

/// Why a replica did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Failure {
    /// The asker's view of the ring is older than the replica's; it must catch up to this epoch.
    #[error("the ring has changed (epoch {epoch})")]
    StaleRing { epoch: u64 },
    /// The table is not known there (yet, or any more).
    #[error("unknown table {table_id:032x}")]
    UnknownTable { table_id: u128 },
    /// The node sheds load.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// The read passed more tombstones than allowed.
    #[error("too many tombstones")]
    TooManyTombstones,
    /// The request cannot be understood.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// Anything else that failed: disk, damage, shutdown.
    #[error("{0}")]
    Internal(String),
}

/// Bytes for the wire.
pub fn encode<T: Serialize>(message: &T) -> Result<Bytes, postcard::Error> {
    postcard::to_stdvec(message).map(Bytes::from)
}

/// What [`encode`] wrote.
pub fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, postcard::Error> {
    postcard::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::message::ClusterRequest;

    #[test]
    fn the_lane_of_a_request_is_told_by_its_first_byte() {
        let control = encode(&Request::Cluster(ClusterRequest::Version)).unwrap();
        assert_eq!(control.first(), Some(&1));
        assert_eq!(Lane::of(&control), Lane::Control);
        assert_eq!([Lane::of(&[0]), Lane::of(&[2]), Lane::of(&[])], [Lane::Data, Lane::Stream, Lane::Data]);
    }
}
