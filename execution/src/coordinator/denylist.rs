//! Refuses requests of clients for denied partitions, before a replica is asked. Superusers are refused as well, as in Cassandra.
//!
//! Repairs, hints, streams, and what operators restore are not refused. Without denied partitions a request looks at one value.

use std::collections::BTreeSet;

use cql_lite::types::literal::format_hex;
use helenus_engine::key::{decode_token, encode_token};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::restrictions::PartitionRestriction;
use helenus_query::plan::select::SelectPlan;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;
use helenus_ring::denylist::DeniedKey;

use super::key_ranges::KeyRange;
use crate::shard::context::ShardContext;

/// Refuses a SELECT that reads a denied partition, or a range of tokens with one.
#[inline]
pub fn check_read(context: &ShardContext, plan: &SelectPlan, ranges: &[KeyRange]) -> Result<()> {
    if context.denies() { check_denied_read(context, plan, ranges) } else { Ok(()) }
}

#[cold]
fn check_denied_read(context: &ShardContext, plan: &SelectPlan, ranges: &[KeyRange]) -> Result<()> {
    let (settings, list) = (&context.node.settings.denylist, context.denylist_view());
    if !settings.enabled.is_on() {
        return Ok(());
    }
    let table = &plan.table;
    let Some(denied) = list.of(&table.id) else { return Ok(()) };
    let mut touched = ranges.iter().flat_map(|range| denied.within(&range.start, &range.end));
    match &plan.restrictions.partition {
        PartitionRestriction::Keys(_) if settings.reads.is_on() => {
            let Some(key) = touched.next() else { return Ok(()) };
            context.metrics.denylisted_reads.increment();
            Err(refused("Unable to read denylisted partition", key.bytes(), table))
        }
        PartitionRestriction::Range(_) if settings.range_reads.is_on() => {
            // The range of the static row of a partition may come before that of the partition's other rows.
            let keys: BTreeSet<&DeniedKey> = touched.collect();
            if keys.is_empty() {
                return Ok(());
            }
            context.metrics.denylisted_range_reads.increment();
            Err(RequestError::invalid(format!(
                "Attempted to read a range containing {} denylisted keys in {}/{}. Range read: {}",
                keys.len(),
                table.keyspace,
                table.name,
                tokens_of(ranges)
            )))
        }
        PartitionRestriction::Keys(_) | PartitionRestriction::Range(_) => Ok(()),
    }
}

/// Refuses a transaction that reads a denied partition.
pub fn check_transaction_read(context: &ShardContext, table: &Table, key: &PartitionKey) -> Result<()> {
    let settings = &context.node.settings.denylist;
    if !context.denies() || !settings.enabled.is_on() || !settings.reads.is_on() {
        return Ok(());
    }
    let list = context.denylist_view();
    if list.of(&table.id).is_some_and(|denied| denied.denies(key)) {
        context.metrics.denylisted_reads.increment();
        return Err(refused("Unable to read denylisted partition", &key.bytes, table));
    }
    Ok(())
}

/// The tokens of a range read, in Cassandra's form.
fn tokens_of(ranges: &[KeyRange]) -> String {
    let starts = ranges.iter().map(|range| range.start.as_slice());
    let (Some(start), Some(end)) = (starts.min(), ranges.iter().map(|range| range.end.as_slice()).max())
    else {
        unreachable!("a denied key lies in one of the ranges")
    };
    let first = start.first_chunk::<8>().map_or(i64::MIN, |token| decode_token(*token));
    let last = match end.first_chunk::<8>().map(|token| decode_token(*token)) {
        None => i64::MAX,
        // Nothing of the last token itself.
        Some(token) if end == encode_token(token) => token.saturating_sub(1),
        Some(token) => token,
    };
    format!("token range: [{first}, {last}]")
}

/// Refuses a modification of a denied partition.
#[inline]
pub fn check_write<'k>(
    context: &ShardContext,
    partitions: impl IntoIterator<Item = (&'k Table, &'k PartitionKey)>,
) -> Result<()> {
    if context.denies() {
        check_changes(context, "Unable to write to denylisted partition", partitions)
    } else {
        Ok(())
    }
}

/// Refuses a transaction on a denied partition.
#[inline]
pub fn check_transaction(context: &ShardContext, table: &Table, key: &PartitionKey) -> Result<()> {
    if context.denies() {
        check_changes(context, "Unable to CAS write to denylisted partition", [(table, key)])
    } else {
        Ok(())
    }
}

#[cold]
fn check_changes<'k>(
    context: &ShardContext,
    what: &str,
    partitions: impl IntoIterator<Item = (&'k Table, &'k PartitionKey)>,
) -> Result<()> {
    let settings = &context.node.settings.denylist;
    if !settings.enabled.is_on() || !settings.writes.is_on() {
        return Ok(());
    }
    let list = context.denylist_view();
    let is_denied =
        |(table, key): &(&Table, &PartitionKey)| list.of(&table.id).is_some_and(|denied| denied.denies(key));
    match partitions.into_iter().find(is_denied) {
        None => Ok(()),
        Some((table, key)) => {
            context.metrics.denylisted_writes.increment();
            Err(refused(what, &key.bytes, table))
        }
    }
}

fn refused(what: &str, key: &[u8], table: &Table) -> RequestError {
    RequestError::invalid(format!("{what} [{}] in {}/{}", format_hex(key), table.keyspace, table.name))
}
