//! A replica's part in a comparison: digests of the parts of ranges, computed from the rows of all its shards.
//!
//! Invariants:
//! * Replicas with equal contents return equal digests, however many shards they have. A partition is on one shard, so the digest of a part
//!   is the sum of the hashes of its partitions.
//! * The versions of a partition are hashed in pieces that end at the same positions on every replica: a piece begins at the start of the
//!   partition, or where the one before it ended. (A read that passes more than [`SCANNED_BYTES`] of dead rows may end elsewhere. Then equal
//!   partitions can have other digests, and only cost a comparison of their rows.)
//! * The rows are read at a limited rate for the whole node, in short turns. A turn counts as at least the time that it has taken.
//! * An answer ends after [`ANSWER_BYTES`], at the end of a part, so that no request takes long, unless one partition does.

use std::rc::Rc;
use std::time::Duration;

use helenus_engine::key::{prefix_length, token_bounds};
use helenus_engine::read::{
    AddressBuf, Purgeable, RowPart, TRANSFER_TURN_BYTES, VersionLimit, VersionScanRequest,
};
use helenus_engine::shard::Unopened;
use helenus_engine::{Mutation, TableId, Versions};
use helenus_internode::service::Failure;
use helenus_ring::division::Division;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::runs::RepairRuns;
use crate::coordinator::replica::epoch;
use crate::shard::context::{ShardContext, from_every_shard};
use helenus_query::error::RequestError;

/// Most parts, of all ranges, in one request.
pub const PARTS_MAX: usize = 1 << 14;
/// Most bytes of rows that one turn passes, whatever it finds.
const SCANNED_BYTES: u64 = 4 << 20;
/// A larger row is hashed in parts of this size.
const ROW_PART_BYTES: usize = 8 << 20;
/// A turn counts as at least this number of bytes for the rate: it costs time even if it finds nothing.
const TURN_BYTES_MIN: u64 = 512;
/// After this number of bytes on one shard an answer ends with the part that it is at.
const ANSWER_BYTES: u64 = 64 << 20;
/// How long a replica that is behind waits for the epoch of a request.
const CATCH_UP: Duration = Duration::from_secs(3);

/// A request for digests of parts of ranges.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DigestRequest {
    pub epoch: u64,
    pub table_id: u128,
    /// First and last token of each range.
    pub ranges: Vec<(i64, i64)>,
    /// The number of parts into which each range is divided ([`Division`]).
    pub parts: u32,
    /// Seconds since the epoch; decides what has expired and what is past its grace period.
    pub now_seconds: u32,
}

/// The digest of a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartDigest {
    /// The sum of the hashes of the pieces of its partitions.
    pub sum: u128,
    /// Size of their versions in bytes.
    pub bytes: u64,
    /// The number of tokens with partitions.
    pub tokens: u64,
}

impl PartDigest {
    fn add(&mut self, piece: &Mutation) {
        self.sum = self.sum.wrapping_add(XxHash3_128::oneshot(piece.bytes()));
        self.bytes += piece.bytes().len() as u64;
    }

    /// Joins the digest of the same part on another shard.
    fn join(&mut self, other: Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.bytes += other.bytes;
        self.tokens += other.tokens;
    }
}

/// Answers a request for digests: those of the first parts, in the order of ranges and parts; at least one. May be called on any shard.
pub async fn receive(
    context: &Rc<ShardContext>,
    request: DigestRequest,
    unopened: Unopened,
) -> Result<Vec<PartDigest>, Failure> {
    let count = request.ranges.len().saturating_mul(request.parts as usize);
    let is_valid = request.ranges.iter().all(|range| Division::is_possible(*range, request.parts));
    if count > PARTS_MAX || !is_valid {
        return Err(Failure::Malformed(format!(
            "digests of {} ranges in {} parts each: at most {PARTS_MAX} parts of ranges with tokens are allowed",
            request.ranges.len(),
            request.parts
        )));
    }
    epoch::fence(context, request.epoch, CATCH_UP).await?;
    let of_shards = from_every_shard(context, move |context| {
        let request = request.clone();
        Box::pin(async move { Ok(digest_shard(&context, &request, unopened).await) })
    });
    let of_shards = of_shards.await.map_err(|error: RequestError| Failure::Internal(error.to_string()))?;
    let mut sums = vec![PartDigest::default(); count];
    for of_shard in of_shards {
        let of_shard = of_shard?;
        // What one shard has not reached is not known.
        sums.truncate(of_shard.len());
        for (sum, part) in sums.iter_mut().zip(of_shard) {
            sum.join(part);
        }
    }
    Ok(sums)
}

/// Where a comparison reads on.
struct Place {
    key: Vec<u8>,
    inside: Option<AddressBuf>,
}

/// The digests of this shard's rows: of the first parts, at least one.
async fn digest_shard(
    context: &Rc<ShardContext>,
    request: &DigestRequest,
    unopened: Unopened,
) -> Result<Vec<PartDigest>, Failure> {
    let mut pace = RepairRuns::of(&context.node).pace(&context.node.config);
    let parts = request.parts as usize;
    let mut digests = vec![PartDigest::default(); request.ranges.len() * parts];
    let mut read_bytes = 0;
    for (index, range) in request.ranges.iter().enumerate() {
        let division = Division::new(*range, request.parts);
        let (start, end) = token_bounds(&(range.0..=range.1));
        let mut place = Place { key: start, inside: None };
        let mut last_token = None;
        while place.key < end {
            let begun = context.clock.monotonic();
            let versions = read_turn(context, request, &place, &end, unopened).await?;
            let bytes = versions.bytes;
            let (pieces, next) = whole_pieces(versions, &place, &end);
            for piece in &pieces {
                let token = piece.view().map_err(|error| Failure::Internal(error.to_string()))?.token;
                let part = division.part_of(token).ok_or_else(|| {
                    Failure::Internal(format!("a read of tokens {range:?} returned token {token}"))
                })?;
                let part = index * parts + part;
                let is_new = last_token.replace(token) != Some(token);
                if is_new && read_bytes >= ANSWER_BYTES && part > 0 {
                    // The parts before this one are complete.
                    digests.truncate(part);
                    return Ok(digests);
                }
                digests[part].add(piece);
                digests[part].tokens += u64::from(is_new);
            }
            place = next;
            read_bytes += bytes;
            context.metrics.repair_bytes_compared.add(bytes);
            let took = context.clock.monotonic().saturating_sub(begun);
            let of_time = pace.bytes_per_second().map_or(0.0, |rate| rate as f64 * took.as_secs_f64());
            pace.spend(bytes.max(TURN_BYTES_MIN).max(of_time as u64), &*context.clock).await;
            tokio::task::yield_now().await;
        }
    }
    Ok(digests)
}

async fn read_turn(
    context: &ShardContext,
    request: &DigestRequest,
    place: &Place,
    end: &[u8],
    unopened: Unopened,
) -> Result<Versions, Failure> {
    let table = TableId(request.table_id.to_be_bytes());
    let from = place.inside.as_ref().map(AddressBuf::view);
    let part = RowPart { from, bytes_max: ROW_PART_BYTES };
    let bounds = (place.key.as_slice(), end);
    let transfer =
        VersionScanRequest::of_transfer(table, bounds, request.now_seconds, Some(part), TRANSFER_TURN_BYTES);
    let limit = VersionLimit { scanned_bytes: SCANNED_BYTES, ..transfer.limit };
    let scan = VersionScanRequest { purgeable: Purgeable::LeftOutAfterGrace, limit, ..transfer };
    let in_turn = || {
        epoch::refuse_stale(context, request.epoch)?;
        context.shard.scan_versions_with(&scan, unopened).map_err(Failure::from)
    };
    context.shard.read_cold(in_turn).await
}

/// The pieces of a turn that end where they would on any replica, and where reading goes on. A piece of a partition that the turn did not
/// begin with is left out if it is not the whole partition: the next turn begins with that partition.
fn whole_pieces(versions: Versions, began: &Place, end: &[u8]) -> (Vec<Mutation>, Place) {
    let Versions { mut partitions, resume, resume_inside, .. } = versions;
    let Some(resume) = resume else {
        return (partitions, Place { key: end.to_vec(), inside: None });
    };
    let prefix = |key: &[u8]| prefix_length(key).and_then(|length| key.get(..length)).map(<[u8]>::to_vec);
    match prefix(&resume) {
        Some(cut) if prefix(&began.key).as_ref() != Some(&cut) => {
            let is_of_cut = |piece: &Mutation| {
                let key = piece
                    .view()
                    .ok()
                    .and_then(|view| helenus_engine::key::full_key(view.token, view.partition_key, &[]).ok());
                key.is_some_and(|key| key == cut)
            };
            if partitions.last().is_some_and(is_of_cut) {
                partitions.pop();
            }
            (partitions, Place { key: cut, inside: None })
        }
        _ => (partitions, Place { key: resume, inside: resume_inside }),
    }
}
