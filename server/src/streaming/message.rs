//! Requests about streams: the receiver of data asks its holders for it, piece by piece.

use helenus_internode::byte_string;
use helenus_internode::service::{Lane, ServiceRequest};
use helenus_ring::placement::TokenRange;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum StreamRequest {
    /// The next piece of a table's ranges, as far as the asked shard has them.
    Fetch(FetchRequest),
    /// How much there is, roughly, on the asked shard.
    Estimate {
        /// Table ids with ranges.
        parts: Vec<(u128, Vec<TokenRange>)>,
    },
    /// How far the asked member is with fetching what it gains. Asked of the first shard.
    Status { epoch: u64 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchRequest {
    /// The epoch at which the transition began: the holder must have applied it, so that whatever is written behind the
    /// point that the piece was read at goes to the receiver as well.
    pub epoch: u64,
    pub table_id: u128,
    /// In the order of their ends.
    pub ranges: Vec<TokenRange>,
    /// The shard that is meant.
    pub shard: u16,
    /// What the piece before ended with; `None`: the first piece.
    pub resume_from: Option<Vec<u8>>,
    /// Roughly how large the piece may be.
    pub max_bytes: u32,
}

/// A part of a table's ranges, in key order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Piece {
    /// Mutations, each with its length before it (u32, big endian).
    #[serde(with = "byte_string")]
    pub mutations: Vec<u8>,
    /// Of `mutations`.
    pub crc32: u32,
    /// How many mutations there are.
    pub count: u32,
    /// Where the next piece goes on: a full key. `None`: the ranges are done.
    pub resume: Option<Vec<u8>>,
}

/// How far a member is with fetching what it gains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferStatus {
    /// The epoch that it has applied.
    pub epoch: u64,
    /// Whether it has everything that it gains at the epoch that was asked about.
    pub is_done: bool,
    /// Not 0: it has everything but so many ranges whose only replica is dead.
    pub lost_ranges: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum StreamResponse {
    Piece(Piece),
    /// Bytes by part.
    Estimate {
        bytes: Vec<u64>,
    },
    Status(TransferStatus),
}

impl ServiceRequest for StreamRequest {
    const ID: u32 = 2;
    const LANE: Lane = Lane::Stream;
    type Response = StreamResponse;
}
