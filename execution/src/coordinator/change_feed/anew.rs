//! Entries of views that are written anew, with the time of now: of rows that have not changed, and of changes that reach a replica late.
//!
//! A hint, a batch that was left, or a commit that is found again brings a change behind the time up to which its table's log was read. Its own
//! entry comes along, in its old place, where nobody looks any more. So another one is written, at QUORUM, when the change has been
//! delivered: not before, because whoever reads it then reads the row. Until that has succeeded, the hint or batch is kept, and the delivery of a commit has
//! failed, so that there is a hint for it.
//!
//! Feeds get no such entries: a write is once in a feed, and consumers wait for late ones as long as they want. Repair and streaming do not write
//! entries anew: what they bring was at fewer replicas than a quorum, and its hints were lost.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::frame::Consistency;
use cql_lite::frame::response::WriteType;
use helenus_change_feed::entry::{Entry, Feed, Place, log_mutation};
use helenus_engine::key::REGULAR_TAG;
use helenus_engine::{Deletion, Liveness, Mutation, MutationBuilder, MutationRef, RowBuilder};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::{PartitionKey, decode_clustering};
use helenus_ring::change_feed::StreamId;
use uuid::Uuid;

use super::{OF_VIEWS, active_streams, confirmed, expiry, layout, time_of};
use crate::coordinator::replica::write::{WriteOptions, write};
use crate::coordinator::views::wakes::Wakes;
use crate::shard::context::ShardContext;

/// A commit is late when its transaction began longer ago than this. The projector reads the log again for as long, and for the duration of a write.
const LATE_MICROS: i64 = 5_000_000;

/// The entries of mutations in the log of their table, by stream, and their time in microseconds.
fn entries_of_now<'m>(
    context: &ShardContext,
    base: &Arc<Table>,
    log: &Arc<Table>,
    mutations: impl Iterator<Item = MutationRef<'m>>,
) -> Result<(Vec<PartitionMutation>, i64)> {
    let layout = layout(context, base, log)?;
    let feed = Feed { table: base, options: &OF_VIEWS, layout: &layout };
    confirmed::check_of_views(context)?;
    let view = context.cluster_view();
    let (streams, micros) = active_streams(view.change_feed(), context.clock.now_micros())?;
    let mut by_stream: BTreeMap<StreamId, Vec<Entry>> = BTreeMap::new();
    for mutation in mutations {
        let entries = feed.entries(&mutation, None, context.now_seconds())?;
        by_stream.entry(streams.stream_of(mutation.token)).or_default().extend(entries);
    }
    let expiry = expiry(context, OF_VIEWS);
    let mut changes = Vec::with_capacity(by_stream.len());
    for (stream, entries) in by_stream {
        let time = time_of(context, micros);
        let place = Place { stream: stream.0, time, first_number: 0, ends_group: true, expiry };
        let mutation = log_mutation(&layout, entries, &place)?;
        changes.push(PartitionMutation { token: stream.token(), table: log.clone(), mutation });
    }
    Ok((changes, micros))
}

/// Writes log entries at QUORUM, then notifies the slices whose views depend on them. `tokens`: those of the base table's partitions.
async fn write_at_quorum(
    context: &Rc<ShardContext>,
    (entries, micros): (Vec<PartitionMutation>, i64),
    tokens: impl Iterator<Item = i64>,
) -> Result<()> {
    let options = WriteOptions::new(context, Consistency::Quorum, WriteType::UnloggedBatch, None);
    write(context, entries, options).await?;
    let wakes = Wakes::of(context);
    for token in tokens {
        wakes.arrived(token, micros);
    }
    Ok(())
}

/// Writes the entries of a change that was delivered late, if views are computed of its table.
pub async fn write_of_late(context: &Rc<ShardContext>, change: &Mutation) -> Result<()> {
    let malformed = |error: helenus_engine::DecodeError| RequestError::Server(error.to_string());
    let (entries, token) = {
        let read = change.view().map_err(malformed)?;
        let Some((base, log)) = followed(context, &read) else { return Ok(()) };
        // Its companions stand beside it, and are of other tables.
        let alone = read.parts().next().transpose().map_err(malformed)?;
        (entries_of_now(context, &base, &log, alone.into_iter())?, read.token)
    };
    write_at_quorum(context, entries, std::iter::once(token)).await
}

/// Whether a commit of a transaction that began at this time, in microseconds, is late, and views may be computed of its table.
pub fn is_late_commit(context: &ShardContext, origin_micros: i64) -> bool {
    context.clock.now_micros().saturating_sub(origin_micros) > LATE_MICROS
        && !context.catalog_view().view_logs().is_empty()
}

/// The table of a mutation and its log, if views are computed of it.
fn followed(context: &ShardContext, mutation: &MutationRef<'_>) -> Option<(Arc<Table>, Arc<Table>)> {
    let view = context.catalog_view();
    let log = view.view_logs().get(&Uuid::from_bytes(mutation.table.0))?;
    Some((view.table(mutation.table)?.clone(), log.clone()))
}

/// Writes entries of rows that were not written, so that views are computed of them again. See
/// `touch` of the crate `helenus-projector`.
pub async fn write_of_units(
    context: &Rc<ShardContext>,
    base: &Arc<Table>,
    log: &Arc<Table>,
    units: &[(PartitionKey, Vec<u8>)],
) -> Result<()> {
    let now_micros = context.clock.now_micros();
    let naming: Vec<Mutation> =
        units.iter().map(|(key, position)| naming(base, key, position, now_micros)).collect::<Result<_>>()?;
    let naming: Vec<MutationRef<'_>> = naming
        .iter()
        .map(|mutation| mutation.view().map_err(|error| RequestError::Server(error.to_string())))
        .collect::<Result<_>>()?;
    let entries = entries_of_now(context, base, log, naming.into_iter())?;
    write_at_quorum(context, entries, units.iter().map(|(key, _)| key.token)).await
}

/// A mutation of which nothing but the entry is written: it names a row, or all rows that have the first clustering columns.
fn naming(base: &Table, key: &PartitionKey, position: &[u8], now_micros: i64) -> Result<Mutation> {
    /// Behind all rows with a prefix.
    const BEHIND_PREFIX: &[u8] = &[0xFF];
    let mut builder = MutationBuilder::new(base.engine_id(), key.token, &key.bytes)
        .map_err(|error| RequestError::Server(error.to_string()))?;
    let deletion = Deletion { timestamp: now_micros, local_deletion_time: 0 };
    match clustering_count(base, position)? {
        all if all == base.clustering_key_count => {
            let mut row = RowBuilder::new();
            row.set_liveness(Liveness { timestamp: now_micros, expiry: None });
            builder.row(position, &mut row);
        }
        0 => drop(builder.delete_partition(deletion)),
        _ => drop(builder.delete_range(position, &[position, BEHIND_PREFIX].concat(), deletion)),
    }
    Ok(builder.build())
}

/// The number of clustering columns that a position has.
fn clustering_count(base: &Table, position: &[u8]) -> Result<usize> {
    let Some((&REGULAR_TAG, mut rest)) = position.split_first() else { return Ok(0) };
    let mut value = Vec::new();
    for (count, column) in base.clustering_key().iter().enumerate() {
        value.clear();
        if !decode_clustering(&column.column_type, &mut rest, column.is_descending(), &mut value)? {
            return Ok(count);
        }
    }
    Ok(base.clustering_key_count)
}
