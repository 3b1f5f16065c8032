//! The batch log of a shard: logged batches of several partitions that may not be applied everywhere yet.
//!
//! The log is a private table of the shard. A row's position begins with the time of the batch. Its value holds the
//! mutations, each with a length.
//!
//! A single node writes a batch to its own log; in a cluster the batch goes to two other members
//! ([`crate::coordinator::batch_log`]). An entry is durable before the first mutation is applied. It is removed when
//! every replica has every mutation or a hint for it. An entry that remains (the coordinator died or gave up) is
//! replayed by the node that keeps it, after twice the write timeout. Replaying an entry twice changes nothing,
//! because mutations carry their timestamps. Mutations that are so old that the tombstones which delete them may have
//! been purged are not replayed. That goes by the coordinator's time, as their timestamps do.
//!
//! What precedes a TRUNCATE is not replayed either. That goes by the time of arrival at this shard, which is the timestamp of the row: this node
//! notes its truncations by the same clock, and those of others may differ by seconds.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use helenus_engine::read::Budget;
use helenus_engine::{Deletion, Mutation, TableId, TableOptions};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;

use crate::coordinator::change_feed::anew;
use crate::coordinator::replica::hints::{WrittenAt, revive, revive_at_start};
use crate::coordinator::replica::only_here;
use crate::coordinator::replica::write::deliver;
use crate::shard::context::ShardContext;
use crate::shard::private_table::{PrivateRange, PrivateTable};

/// The table of the batch log.
pub const TABLE: PrivateTable = PrivateTable(TableId(*b"helenus-batchlog"));
const PARTITION: &[u8] = b"batches";
/// Timestamp that deletes an entry for good, even one that is written later: no position is used twice.
const NEVER_AGAIN: i64 = i64::MAX - 1;
/// How often a shard looks for batches to replay.
const ROUND: Duration = Duration::from_secs(10);
/// Most batches that are replayed in one round.
const AT_A_TIME: usize = 16;

/// The engine options of the table.
pub fn table_options() -> TableOptions {
    // A removal arrives at most seconds before its batch. It ends with the batch, mostly while both are in memory, so that neither
    // files nor the next start see more than the batches that wait.
    TableOptions { gc_grace_seconds: 3_600, writes_once: true, ..TableOptions::default() }
}

/// Encodes mutations as the log stores them.
pub fn encode(changes: &[PartitionMutation]) -> Vec<u8> {
    let mut value = Vec::new();
    for PartitionMutation { mutation, .. } in changes {
        value.extend_from_slice(&(mutation.bytes().len() as u32).to_be_bytes());
        value.extend_from_slice(mutation.bytes());
    }
    value
}

fn decode(mut rest: &[u8]) -> Result<Vec<Mutation>> {
    let mut mutations = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (bytes, after) = after
            .split_at_checked(u32::from_be_bytes(*length) as usize)
            .ok_or_else(|| malformed(&"an entry is cut short"))?;
        let mutation =
            Mutation::from_bytes(Bytes::copy_from_slice(bytes)).map_err(|error| malformed(&error))?;
        mutations.push(mutation);
        rest = after;
    }
    Ok(mutations)
}

fn malformed(error: &dyn std::fmt::Display) -> RequestError {
    RequestError::Server(format!("the batch log is damaged: {error}"))
}

/// Writes a batch to this shard's log and resolves when it is durable. `mutations`: see [`encode`].
pub async fn store_here(context: &ShardContext, position: &[u8], mutations: &[u8]) -> Result<()> {
    decode(mutations)?;
    let timestamp = context.next_timestamp();
    context.shard.admit_internal().await?;
    let mut change = TABLE.change(PARTITION);
    change.put(position, timestamp, mutations);
    let written = change.apply(&context.shard)?;
    context.note_append(written);
    context.replication().batches.borrow_mut().insert(position.to_vec(), context.clock.monotonic());
    context.shard.durable(written).await?;
    Ok(())
}

/// Removes a batch from this shard's log. The removal need not be durable: a batch may be applied again.
pub fn remove(context: &ShardContext, position: &[u8]) -> Result<()> {
    let mut change = TABLE.change(PARTITION);
    let local_deletion_time = context.now_seconds();
    change.delete(position, Deletion { timestamp: NEVER_AGAIN, local_deletion_time });
    context.note_append(change.apply(&context.shard)?);
    context.replication().batches.borrow_mut().remove(position);
    Ok(())
}

/// A batch of the log.
struct Entry {
    position: Vec<u8>,
    age: WrittenAt,
    mutations: Vec<Mutation>,
}

/// The batch at a position, or all batches of the log.
fn read(context: &ShardContext, position: Option<&[u8]>) -> Result<Vec<Entry>> {
    let range = match position {
        Some(position) => PrivateRange::row(PARTITION, position),
        None => PrivateRange::partition(PARTITION),
    };
    let mut scan = TABLE.scan(&context.shard, &range, context.now_seconds(), Budget::UNLIMITED)?;
    let mut batches = Vec::new();
    while let Some(row) = scan.next()? {
        batches.push(Entry {
            position: row.position.to_vec(),
            age: WrittenAt { created_micros: created_micros(row.position)?, kept_micros: row.timestamp },
            mutations: decode(row.value)?,
        });
    }
    Ok(batches)
}

/// The coordinator's time of a batch.
fn created_micros(position: &[u8]) -> Result<i64> {
    let bytes = position.get(1..).and_then(|rest| rest.first_chunk::<8>());
    // A default would make the batch look old, and drop it.
    bytes.map(|bytes| i64::from_be_bytes(*bytes)).ok_or_else(|| malformed(&"a position is cut short"))
}

/// The mutations of a batch that may still be applied: their tables exist, were not truncated since, and keep tombstones long enough.
fn applicable(context: &ShardContext, batch: &Entry) -> Vec<PartitionMutation> {
    batch.mutations.iter().filter_map(|mutation| revive(context, mutation, batch.age)).collect()
}

/// Replays at the start the batches that a crash of this node has left, where their partitions are only here. The others wait
/// for their time. The truncations must be known ([`crate::coordinator::replica::hints::load`]). Returns the number of replayed batches.
pub async fn replay(context: &Rc<ShardContext>) -> Result<usize> {
    let mut count = 0;
    for Entry { position, age, mutations } in read(context, None)? {
        if !context.cluster_view().is_alone() {
            note_left_behind(context, position);
            continue;
        }
        // What belongs to tables that were dropped or truncated since then is left out.
        let known: Vec<PartitionMutation> =
            mutations.iter().filter_map(|mutation| revive_at_start(context, mutation, age)).collect();
        let late: Vec<Mutation> = known.iter().map(|change| change.mutation.clone()).collect();
        match only_here::apply(context, known).await {
            Ok(elsewhere) if elsewhere.is_empty() && are_told(context, &late).await => {
                remove(context, &position)?;
                count += 1;
            }
            // A full disk does not keep the node from starting.
            Ok(_) | Err(RequestError::NoRoom(_)) => note_left_behind(context, position),
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Whether those who compute views know of changes that have come late. Otherwise their batch is replayed again.
async fn are_told(context: &Rc<ShardContext>, changes: &[Mutation]) -> bool {
    for change in changes {
        if let Err(error) = anew::write_of_late(context, change).await {
            tracing::debug!(%error, "a late change is not in the log of its views");
            return false;
        }
    }
    true
}

/// Makes the replay of a stored batch due after twice the write timeout.
pub fn note_left_behind(context: &ShardContext, position: Vec<u8>) {
    let now = context.clock.monotonic();
    context.replication().batches.borrow_mut().insert(position, now);
}

/// Starts the task that looks for batches to replay, every ten seconds.
pub fn spawn_replay(context: &Rc<ShardContext>) {
    context.repeat(ROUND, async |context| {
        if !context.replication().is_recovered() {
            return;
        }
        if let Err(error) = replay_left_behind(context).await {
            tracing::warn!(%error, "a batch could not be replayed");
        }
    });
}

/// Replays batches that have been here for more than twice the write timeout.
async fn replay_left_behind(context: &Rc<ShardContext>) -> Result<()> {
    let patience = 2 * Duration::from_millis(context.node.config.write_request_timeout_ms);
    let now = context.clock.monotonic();
    let due: Vec<Vec<u8>> = context
        .replication()
        .batches
        .borrow()
        .iter()
        .filter(|(_, came)| now.saturating_sub(**came) > patience)
        .map(|(position, _)| position.clone())
        .collect();
    for some in due.chunks(AT_A_TIME) {
        let replayed = some.iter().map(|position| replay_one(context, position));
        futures::future::join_all(replayed).await.into_iter().collect::<Result<()>>()?;
    }
    Ok(())
}

/// Replays all batches of this shard, however young, because this node is about to leave. True: none is left.
pub async fn replay_all(context: &Rc<ShardContext>) -> Result<bool> {
    if !context.replication().is_recovered() {
        return Ok(false);
    }
    let all: Vec<Vec<u8>> = context.replication().batches.borrow().keys().cloned().collect();
    for some in all.chunks(AT_A_TIME) {
        let replayed = some.iter().map(|position| replay_one(context, position));
        futures::future::join_all(replayed).await.into_iter().collect::<Result<()>>()?;
    }
    let left = context.replication().batches.borrow();
    Ok(!all.iter().any(|position| left.contains_key(position)))
}

async fn replay_one(context: &Rc<ShardContext>, position: &[u8]) -> Result<()> {
    for batch in read(context, Some(position))? {
        let changes = applicable(context, &batch);
        let late: Vec<Mutation> = changes.iter().map(|change| change.mutation.clone()).collect();
        let written_micros = batch.age.created_micros;
        let delivered = changes.into_iter().map(|change| deliver(context, change, written_micros, false));
        let delivered = futures::future::join_all(delivered).await;
        if delivered.contains(&false) {
            // The batch stays for the next round.
            return Ok(());
        }
        if !are_told(context, &late).await {
            return Ok(());
        }
    }
    remove(context, position)?;
    context.metrics.batches_replayed.increment();
    Ok(())
}
