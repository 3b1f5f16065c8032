//! Requests about streams: the receiver requests data from its sources, chunk by chunk.

use helenus_internode::byte_string;
use helenus_internode::service::{ServiceRequest, TrafficClass};
use helenus_ring::placement::TokenRange;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum StreamRequest {
    /// Send the next chunk of a table's ranges, from the receiving shard's data.
    Fetch(FetchRequest),
    /// Estimate the size of the data on the receiving shard.
    Estimate {
        /// Table ids with ranges.
        parts: Vec<(u128, Vec<TokenRange>)>,
    },
    /// Report the progress of the member in streaming the ranges that it gains. Sent to the first shard.
    Status { epoch: u64 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchRequest {
    /// The epoch at which the transition began. The source must have applied it, so that every write behind the
    /// position at which the chunk was read also goes to the receiver.
    pub epoch: u64,
    pub table_id: u128,
    /// Sorted by their ends.
    pub ranges: Vec<TokenRange>,
    /// The shard that must answer.
    pub shard: u16,
    /// The `resume` of the previous chunk; `None`: the first chunk.
    pub resume_from: Option<Vec<u8>>,
    /// Approximate upper limit of the chunk's size, in bytes.
    pub max_bytes: u32,
}

/// A chunk: a part of a table's ranges, in key order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamChunk {
    /// Mutations, each preceded by its length (u32, big endian).
    #[serde(with = "byte_string")]
    pub mutations: Vec<u8>,
    /// Checksum of `mutations`.
    pub crc32: u32,
    /// Number of mutations.
    pub count: u32,
    /// Where the next chunk continues, as an encoded [`super::place::Place`]. `None`: the ranges are complete.
    pub resume: Option<Vec<u8>>,
}

/// The progress of a member in streaming the ranges that it gains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferStatus {
    /// The epoch that the member has applied.
    pub epoch: u64,
    /// Whether it has everything that it gains at the requested epoch.
    pub is_done: bool,
    /// If not 0, it has everything except this number of ranges whose only replica is dead.
    pub lost_ranges: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum StreamResponse {
    StreamChunk(StreamChunk),
    /// Bytes of each part.
    Estimate {
        bytes: Vec<u64>,
    },
    Status(TransferStatus),
}

impl ServiceRequest for StreamRequest {
    const ID: u32 = 2;
    const TRAFFIC_CLASS: TrafficClass = TrafficClass::Stream;
    type Response = StreamResponse;
}
