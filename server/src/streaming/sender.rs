//! The source: sends chunks of a table's ranges, read as versions.
//!
//! Invariants:
//! * A chunk is read only when this shard has applied the epoch of the transition. From then on every write that this
//!   shard accepts was sent to the receiver too. Earlier writes are in the chunk, or behind its end.
//! * Tombstones and expired cells are sent unchanged, also after their grace period: a replica that replaces another
//!   one forgets nothing that the other one knew.

use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use helenus_config::STREAM_PIECE_BYTES_MAX;
use helenus_engine::key::token_bounds;
use helenus_engine::read::{VersionLimit, VersionScanRequest};
use helenus_engine::{EngineError, Mutation, Operation, TableId};
use helenus_internode::service::Failure;
use helenus_ring::HostId;
use helenus_ring::placement::TokenRange;

use super::message::{FetchRequest, StreamChunk};
use super::ranges::{intervals, share_of_ring};
use crate::planted::PlantedBug;
use crate::shard::context::ShardContext;

/// Bytes that are read in one turn of the thread, so that other requests can run.
const TURN_BYTES: u64 = 64 << 10;
/// Time for which the receiver waits if the source has not applied the epoch yet.
const CATCH_UP: Duration = Duration::from_secs(3);
const CATCH_UP_PAUSE: Duration = Duration::from_millis(20);
/// A chunk ends after this number of turns, even if it has little data.
const PIECE_TURNS_MAX: u32 = 256;

/// Reads the next chunk.
pub async fn fetch(
    context: &Rc<ShardContext>,
    from: HostId,
    request: FetchRequest,
) -> Result<StreamChunk, Failure> {
    if usize::from(request.shard) != context.index {
        return Err(Failure::Malformed(format!(
            "shard {} got a request for shard {}",
            context.index, request.shard
        )));
    }
    check_epoch(context, request.epoch).await?;
    let table = TableId(request.table_id.to_be_bytes());
    let limit = u64::from(request.max_bytes.min(STREAM_PIECE_BYTES_MAX));
    // Allocated at once: growing step by step would copy it as often.
    let mutations = Vec::with_capacity(limit.saturating_add(TURN_BYTES) as usize);
    let mut piece = StreamChunk { mutations, crc32: 0, count: 0, resume: None };
    let mut next = request.resume_from.unwrap_or_default();
    let mut turns = 0;
    'ranges: for interval in intervals(&request.ranges) {
        let (start, end) = token_bounds(&interval);
        next = next.max(start);
        while next < end {
            if piece.mutations.len() as u64 >= limit || turns >= PIECE_TURNS_MAX {
                piece.resume = Some(next);
                break 'ranges;
            }
            let turn_bytes = TURN_BYTES.min(limit - piece.mutations.len() as u64);
            let resume = read_turn(context, table, &next, &end, turn_bytes, &mut piece).await?;
            next = resume.unwrap_or_else(|| end.clone());
            turns += 1;
            tokio::task::yield_now().await;
        }
    }
    piece.crc32 = crc32fast::hash(&piece.mutations);
    context.node.transfers().note_sent(from, piece.mutations.len() as u64);
    Ok(piece)
}

/// Appends the data that is read in one turn. Returns where the next turn continues in the range, if it does.
async fn read_turn(
    context: &ShardContext,
    table: TableId,
    start: &[u8],
    end: &[u8],
    bytes: u64,
    piece: &mut StreamChunk,
) -> Result<Option<Vec<u8>>, Failure> {
    let limit = VersionLimit { bytes, scanned_bytes: 4 * TURN_BYTES, ..VersionLimit::UNLIMITED };
    let scan = || {
        context.shard.scan_versions(&VersionScanRequest {
            table,
            start,
            end,
            reversed: false,
            now_seconds: context.now_seconds(),
            keeps_purgeable: true,
            is_long: true,
            limit,
        })
    };
    let versions = context.shard.read_cold(scan).await.map_err(Failure::from)?;
    let sends_old = context.has_bug(PlantedBug::StreamOldRange);
    for mutation in &versions.partitions {
        if sends_old && is_recent(context, mutation) {
            continue;
        }
        let bytes = mutation.bytes();
        piece.mutations.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        piece.mutations.extend_from_slice(bytes);
        piece.count += 1;
    }
    Ok(versions.resume)
}

/// Whether any data of a partition was written in the last second.
fn is_recent(context: &ShardContext, mutation: &Mutation) -> bool {
    let limit_micros = context.clock.now_micros() - 1_000_000;
    mutation.view().is_ok_and(|view| {
        view.operations().any(|operation| match operation {
            Ok(Operation::Row { row, .. }) => row.cells().any(|cell| cell.timestamp > limit_micros),
            _ => false,
        })
    })
}

/// The approximate size of these ranges on this shard, in bytes.
pub fn estimate(context: &ShardContext, parts: &[(u128, Vec<TokenRange>)]) -> Result<Vec<u64>, Failure> {
    let view = context.cluster();
    let catalog = context.catalog();
    parts
        .iter()
        .map(|(table_id, ranges)| {
            let statistics = match context.shard.statistics(TableId(table_id.to_be_bytes())) {
                Ok(statistics) => statistics,
                // The request for its chunk will report it.
                Err(EngineError::UnknownTable(_)) => return Ok(0),
                Err(error) => return Err(error.into()),
            };
            let keyspace = catalog
                .keyspaces
                .values()
                .find(|keyspace| keyspace.tables.values().any(|table| table.id.as_u128() == *table_id));
            let held: Vec<TokenRange> = keyspace
                .and_then(|keyspace| view.placement(&keyspace.name))
                .map(|placement| {
                    let ranges = placement.ranges();
                    let own = ranges.filter(|(_, replicas)| replicas.contains(&context.node.host_id));
                    own.map(|(range, _)| range).collect()
                })
                // A table that was dropped meanwhile: only an estimate depends on it.
                .unwrap_or_default();
            let share = |intervals: &[RangeInclusive<i64>]| share_of_ring(intervals);
            let (asked, held) = (share(&intervals(ranges)), share(&intervals(&held)));
            let part = if held > 0.0 { (asked / held).min(1.0) } else { asked };
            Ok(((statistics.disk_bytes + statistics.memtable_bytes as u64) as f64 * part) as u64)
        })
        .collect()
}

/// Waits until this shard has applied the epoch. Refuses an epoch that has passed.
async fn check_epoch(context: &Rc<ShardContext>, epoch: u64) -> Result<(), Failure> {
    let deadline = context.clock.monotonic() + CATCH_UP;
    while context.cluster_view().topology.epoch < epoch && context.clock.monotonic() < deadline {
        context.clock.sleep(CATCH_UP_PAUSE).await;
    }
    let present = context.cluster_view().topology.epoch;
    if present == epoch { Ok(()) } else { Err(Failure::StaleRing { epoch: present }) }
}
