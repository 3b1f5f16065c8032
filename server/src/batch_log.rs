//! The batch log of a shard: logged batches of several partitions that may not be applied everywhere yet.
//!
//! It is an engine table of the shard that coordinates (its rows have no place in the ring: they are never read through
//! CQL). A row's position is the id of the batch, its one cell the mutations, each with a length. An entry is durable before
//! the first mutation is applied and removed after the last one is durable; replaying an entry twice changes nothing, as
//! mutations carry their timestamps.

use std::rc::Rc;

use bytes::Bytes;
use helenus_engine::key::{REGULAR_END, REGULAR_START, full_key};
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{Cell, CellKind, Deletion, Mutation, MutationBuilder, RowBuilder, TableId};

use crate::coordinator::write::{apply_all, apply_here};
use crate::error::{RequestError, Result};
use crate::run::modify::PartitionMutation;
use crate::shard_thread::ShardContext;

/// The engine's id of the batch log.
pub const TABLE: TableId = TableId(*b"helenus-batchlog");
const PARTITION: &[u8] = b"batches";
const COLUMN: u32 = 1;

/// The position of a batch in the log, and its mutations with their tokens.
type Entry = (Vec<u8>, Vec<(i64, Mutation)>);

/// Writes a batch to the log and waits until it is durable. Returns its id.
pub async fn store(context: &ShardContext, mutations: &[PartitionMutation]) -> Result<Vec<u8>> {
    let timestamp = context.next_timestamp();
    let mut position = vec![helenus_engine::key::REGULAR_TAG];
    position.extend_from_slice(&timestamp.to_be_bytes());
    // The clock may have been set back over a restart.
    position.extend_from_slice(&context.random.borrow_mut().next_u64().to_be_bytes());
    let mut value = Vec::new();
    for PartitionMutation { mutation, .. } in mutations {
        value.extend_from_slice(&(mutation.bytes().len() as u32).to_be_bytes());
        value.extend_from_slice(mutation.bytes());
    }
    let mut row = RowBuilder::new();
    row.cell(Cell { column: COLUMN, path: &[], timestamp, kind: CellKind::Live, value: &value });
    context.shard.admit().await?;
    let written = write(context, &position, &mut row)?;
    context.shard.durable(written).await?;
    Ok(position)
}

/// Takes a batch out of the log. It need not be durable: a batch may be applied again.
pub fn remove(context: &ShardContext, position: &[u8]) -> Result<()> {
    let mut row = RowBuilder::new();
    row.set_deletion(Deletion {
        timestamp: context.next_timestamp(),
        local_deletion_time: context.now_seconds(),
    });
    write(context, position, &mut row).map(|_| ())
}

fn write(
    context: &ShardContext,
    position: &[u8],
    row: &mut RowBuilder,
) -> Result<helenus_engine::commit_log::LogPosition> {
    let mut builder =
        MutationBuilder::new(TABLE, 0, PARTITION).map_err(|error| RequestError::Server(error.to_string()))?;
    builder.row(position, row);
    apply_here(context, &builder.build())
}

/// Applies what a crash has left in the log. Returns the number of batches.
pub async fn replay(context: &Rc<ShardContext>) -> Result<usize> {
    let malformed =
        |error: &dyn std::fmt::Display| RequestError::Server(format!("the batch log is damaged: {error}"));
    let key = |position: &[u8]| full_key(0, PARTITION, position).map_err(|error| malformed(&error));
    let mut batches: Vec<Entry> = Vec::new();
    {
        let mut scan = context.shard.scan(&ScanRequest {
            table: TABLE,
            start: &key(REGULAR_START)?,
            end: &key(REGULAR_END)?,
            reversed: false,
            now_seconds: context.now_seconds(),
            budget: Budget::UNLIMITED,
        })?;
        while let Step::Row(view) = scan.next()? {
            let mut mutations = Vec::new();
            for cell in view.row.cells() {
                let mut rest = cell.value;
                while let Some((length, after)) = rest.split_first_chunk::<4>() {
                    let (bytes, after) = after
                        .split_at_checked(u32::from_be_bytes(*length) as usize)
                        .ok_or_else(|| malformed(&"an entry is cut short"))?;
                    let mutation = Mutation::from_bytes(Bytes::copy_from_slice(bytes))
                        .map_err(|error| malformed(&error))?;
                    let token = mutation.view().map_err(|error| malformed(&error))?.token;
                    mutations.push((token, mutation));
                    rest = after;
                }
            }
            batches.push((view.position.to_vec(), mutations));
        }
    }
    let count = batches.len();
    for (position, mutations) in batches {
        // Tables that were dropped since have no use for their part.
        let catalog = context.catalog();
        let known = mutations
            .into_iter()
            .filter(|(_, mutation)| {
                mutation.view().is_ok_and(|view| {
                    catalog.keyspaces.values().any(|keyspace| {
                        keyspace.tables.values().any(|table| table.id.as_bytes() == &view.table.0)
                    })
                })
            })
            .collect();
        apply_all(context, known).await?;
        remove(context, &position)?;
    }
    Ok(count)
}
