//! Requests a second of partitions and of tables: more than the table options `per_partition_rate_limit` and `rate_limit` allow are refused
//! before they have any effect.
//!
//! What clients ask of this node as coordinator is counted, on all shards together, also what superusers ask. What nodes do by themselves is not: hints,
//! repairs, replays of the batch log, streams, indexes. Scans and lightweight transactions count for the
//! table and, as in ScyllaDB, not for a partition. DIFFERS: there changes of counters do not count for it either, so that a limit of a table of
//! counters would have no effect.
//!
//! Invariants:
//! * A request to a table without the options looks at one value.
//! * What is refused for its partition does not count for the table: a hot partition does not use up what is there for the others.

mod counters;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use helenus_engine::TableId;
use helenus_engine::key::decode_token;
use helenus_observe::metrics::Operation;
use helenus_observe::prometheus::RefusedRequests;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::plan::restrictions::PartitionRestriction;
use helenus_query::plan::select::SelectPlan;
use helenus_query::schema::catalog::{CatalogView, Table};
use helenus_query::stored_key::PartitionKey;
use smallvec::SmallVec;

use self::counters::Counters;
use super::Request;
use super::key_ranges::KeyRange;
use crate::shard::context::ShardContext;

/// Partitions of which a node counts the requests at the same time. They take 1 MiB.
const PARTITIONS_MAX: usize = 65_536;
/// The same for tables.
const TABLES_MAX: usize = 4_096;

/// Which limit refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Partition,
    Table,
}

impl Limit {
    const ALL: [Self; 2] = [Self::Partition, Self::Table];

    fn name(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Table => "table",
        }
    }
}

/// How many requests to a table were refused since the start of the node: by limit, reads before writes.
type Refusals = [[u64; 2]; Limit::ALL.len()];

/// The requests of the last second, and what was refused; shared by the shards of a node.
#[derive(Debug)]
pub struct TableRateLimits {
    /// Makes names for counters. Its keys are random, so that nobody finds partitions that share their counters.
    names: RandomState,
    partitions: Counters,
    tables: Counters,
    refused: Mutex<HashMap<TableId, Refusals>>,
}

impl Default for TableRateLimits {
    fn default() -> Self {
        Self {
            names: RandomState::new(),
            partitions: Counters::new(PARTITIONS_MAX),
            tables: Counters::new(TABLES_MAX),
            refused: Mutex::default(),
        }
    }
}

impl TableRateLimits {
    /// The requests that were refused, by table, limit and kind. Forgets tables that do not exist any more.
    pub fn refused(&self, catalog: &CatalogView) -> Vec<RefusedRequests> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|id, _| catalog.table(*id).is_some());
        let mut all = Vec::with_capacity(refused.len());
        for (id, of_table) in refused.iter() {
            let Some(table) = catalog.table(*id) else { continue };
            for limit in Limit::ALL {
                for (operation, count) in
                    [Operation::Read, Operation::Write].into_iter().zip(of_table[limit as usize])
                {
                    let (keyspace, table) = (table.keyspace.clone(), table.name.clone());
                    all.push(RefusedRequests { keyspace, table, limit: limit.name(), operation, count });
                }
            }
        }
        all.retain(|refused| refused.count > 0);
        all.sort_by(|a, b| (&a.keyspace, &a.table).cmp(&(&b.keyspace, &b.table)));
        all
    }

    fn refuse(&self, table: &Table, limit: Limit, is_write: bool) -> RequestError {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.entry(table.engine_id()).or_default()[limit as usize][usize::from(is_write)] += 1;
        let what = match limit {
            Limit::Partition => "Per-partition rate limit",
            Limit::Table => "Rate limit of the table",
        };
        let kind = if is_write { "writes" } else { "reads" };
        let message = format!(
            "{what} reached for {kind} in table {}.{}, rejected by coordinator",
            table.keyspace, table.name
        );
        RequestError::RateLimited { message, is_write }
    }
}

/// Takes a SELECT from the allowances of the partitions that it names, and of its table. `ranges`: what it reads. Every page is a request.
#[inline]
pub fn admit_read(
    context: &ShardContext,
    request: &Request<'_, SelectPlan>,
    ranges: &[KeyRange],
) -> Result<()> {
    if request.plan().table.options.has_rate_limit() {
        admit_limited_read(context, request, ranges)
    } else {
        Ok(())
    }
}

#[cold]
fn admit_limited_read(
    context: &ShardContext,
    request: &Request<'_, SelectPlan>,
    ranges: &[KeyRange],
) -> Result<()> {
    let plan = request.plan();
    let is_of_partitions = matches!(plan.restrictions.partition, PartitionRestriction::Keys(_));
    if is_of_partitions && !request.options.consistency.is_serial() {
        let mut last = None;
        for range in ranges {
            let token = range.start.first_chunk::<8>().map(|token| decode_token(*token));
            // A partition may have several ranges, one behind the other.
            if let Some(token) = token
                && last != Some(token)
            {
                admit_to_partition(context, &plan.table, token, false)?;
                last = Some(token);
            }
        }
    }
    admit_to_table(context, &plan.table, false)
}

/// Takes a SELECT at the level SERIAL from the allowance of its table.
#[inline]
pub fn admit_serial_read(context: &ShardContext, table: &Table) -> Result<()> {
    if table.options.has_rate_limit() { admit_to_table(context, table, false) } else { Ok(()) }
}

/// Takes a transaction from the allowance of its table. `is_write`: it may write.
#[inline]
pub fn admit_transaction(context: &ShardContext, table: &Table, is_write: bool) -> Result<()> {
    if table.options.has_rate_limit() { admit_to_table(context, table, is_write) } else { Ok(()) }
}

/// Takes modifications without conditions from the allowances of their partitions and tables, once for each, or refuses all of them.
pub fn admit_writes<'k>(
    context: &ShardContext,
    changes: impl Iterator<Item = (&'k ModifyPlan, &'k PartitionKey)>,
) -> Result<()> {
    let limited = changes.filter(|(plan, _)| plan.table.options.has_rate_limit());
    let mut partitions: SmallVec<[(&Table, i64); 8]> =
        limited.map(|(plan, key)| (&*plan.table, key.token)).collect();
    partitions.sort_unstable_by_key(|(table, token)| (table.id, *token));
    partitions.dedup_by_key(|(table, token)| (table.id, *token));
    for (table, token) in &partitions {
        admit_to_partition(context, table, *token, true)?;
    }
    partitions.dedup_by_key(|(table, _)| table.id);
    partitions.iter().try_for_each(|(table, _)| admit_to_table(context, table, true))
}

fn admit_to_partition(context: &ShardContext, table: &Table, token: i64, is_write: bool) -> Result<()> {
    let limit = table.options.per_partition_rate_limit.and_then(|limit| limit.max_per_second(is_write));
    let Some(per_second) = limit else { return Ok(()) };
    let limits = context.node.layers.get::<TableRateLimits>();
    let name = limits.names.hash_one((table.id, token, is_write));
    if limits.partitions.admit(name, per_second, context.clock.monotonic()) {
        return Ok(());
    }
    Err(limits.refuse(table, Limit::Partition, is_write))
}

fn admit_to_table(context: &ShardContext, table: &Table, is_write: bool) -> Result<()> {
    let limit = table.options.rate_limit.and_then(|limit| limit.max_per_second(is_write));
    let Some(per_second) = limit else { return Ok(()) };
    let limits = context.node.layers.get::<TableRateLimits>();
    let name = limits.names.hash_one((table.id, is_write));
    if limits.tables.admit(name, per_second, context.clock.monotonic()) {
        return Ok(());
    }
    Err(limits.refuse(table, Limit::Table, is_write))
}
