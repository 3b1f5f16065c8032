//! The source: sends chunks of a table's ranges, read as versions.
//!
//! Invariants:
//! * A chunk is read only when this shard has applied the epoch of the transition. From then on every write that this
//!   shard accepts was sent to the receiver too. Earlier writes are in the chunk, or behind its end.
//! * A row that is too large for one message is sent in parts, which are versions of it. So no row is too large to move.
//! * Tombstones and expired cells are sent unchanged, also after their grace period: a replica that replaces another
//!   one forgets nothing that the other one knew.

use crate::streaming::progress::Transfers;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use helenus_config::STREAM_CHUNK_BYTES_MAX;
use helenus_engine::key::token_bounds;
use helenus_engine::read::{AddressBuf, RowPart, TRANSFER_TURN_BYTES, VersionScanRequest, Versions};
use helenus_engine::{DecodeError, EngineError, Mutation, Operation, TableId};
use helenus_internode::service::Failure;
use helenus_ring::HostId;
use helenus_ring::metadata::STREAMED_ROW_PARTS;
use helenus_ring::placement::TokenRange;

use super::message::{FetchRequest, StreamChunk};
use super::place::Place;
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::ShardContext;
use helenus_ring::intervals::{intervals, share_of_ring};

/// Time for which the receiver waits if the source has not applied the epoch yet.
const CATCH_UP: Duration = Duration::from_secs(3);
const CATCH_UP_PAUSE: Duration = Duration::from_millis(20);
/// A chunk ends after this number of turns, even if it has little data.
const CHUNK_TURNS_MAX: u32 = 256;

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
    let limit = u64::from(request.max_bytes.min(STREAM_CHUNK_BYTES_MAX));
    // Allocated at once: growing step by step would copy it as often.
    let mutations = Vec::with_capacity(limit.saturating_add(TRANSFER_TURN_BYTES) as usize);
    let mut chunk = StreamChunk { mutations, crc32: 0, count: 0, resume: None };
    let mut next = match request.resume_from {
        Some(resume) => Place::decode(&resume).map_err(malformed)?,
        None => Place::default(),
    };
    let mut turns = 0;
    'ranges: for interval in intervals(&request.ranges) {
        let (start, end) = token_bounds(&interval);
        next = next.max(Place::before(start));
        while next.key < end {
            if chunk.mutations.len() as u64 >= limit || turns >= CHUNK_TURNS_MAX {
                chunk.resume = Some(next.encode().map_err(malformed)?);
                break 'ranges;
            }
            let turn_bytes = TRANSFER_TURN_BYTES.min(limit - chunk.mutations.len() as u64);
            let versions = read_turn(context, table, &next, &end, turn_bytes).await?;
            if chunk.count > 0 && chunk.mutations.len() as u64 + versions.bytes > limit + TRANSFER_TURN_BYTES
            {
                // A large row gets a chunk of its own: a message has room for that.
                chunk.resume = Some(next.encode().map_err(malformed)?);
                break 'ranges;
            }
            append(context, &versions, &mut chunk);
            let Versions { resume, resume_inside, .. } = versions;
            next = Place { key: resume.unwrap_or_else(|| end.clone()), inside: resume_inside };
            turns += 1;
            tokio::task::yield_now().await;
        }
    }
    chunk.crc32 = crc32fast::hash(&chunk.mutations);
    Transfers::of(&context.node).note_sent(from, chunk.mutations.len() as u64);
    Ok(chunk)
}

fn malformed(error: DecodeError) -> Failure {
    Failure::Malformed(error.to_string())
}

/// Reads the data of one turn.
async fn read_turn(
    context: &ShardContext,
    table: TableId,
    next: &Place,
    end: &[u8],
    bytes: u64,
) -> Result<Versions, Failure> {
    // A receiver of a former version takes a place inside a row for one that goes back.
    let takes_parts = context.cluster_view().topology.feature_level >= STREAMED_ROW_PARTS;
    let part = takes_parts.then(|| RowPart {
        from: next.inside.as_ref().map(AddressBuf::view),
        bytes_max: context.node.config.mutation_bytes_max() / 2,
    });
    let now_seconds = context.now_seconds();
    let request = VersionScanRequest::of_transfer(table, (&next.key, end), now_seconds, part, bytes);
    let scan = || context.shard.scan_versions(&request);
    context.shard.read_cold(scan).await.map_err(Failure::from)
}

/// Appends the data of one turn to a chunk.
fn append(context: &ShardContext, versions: &Versions, chunk: &mut StreamChunk) {
    let sends_old = context.has_bug(PlantedBug::StreamOldRange);
    for mutation in &versions.partitions {
        if sends_old && is_recent(context, mutation) {
            continue;
        }
        let bytes = mutation.bytes();
        chunk.mutations.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        chunk.mutations.extend_from_slice(bytes);
        chunk.count += 1;
    }
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
