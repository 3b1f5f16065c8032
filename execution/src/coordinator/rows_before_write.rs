//! Rows that must be read before the statements of a logged batch become mutations (lists changed by index or value),
//! where the batch has several partitions. All its mutations must be known before any is applied, because they go to
//! the batch log together.
//!
//! Invariant: rows are read at the consistency level of the batch. As in Cassandra, other clients may change a list
//! between this read and the write. Elements are named by their identity, so the batch changes or removes the
//! elements that were read, never their neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_engine::RowRef;
use helenus_engine::key::STATIC_POSITION;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::keys::{Slice, positions};
use helenus_query::run::modify::ExistingRows;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;

use super::replica::read::{RangeRead, needs_others, read_range_part};
use crate::coordinator::RequestOptions;
use crate::coordinator::bound_statement::BoundStatement;
use crate::coordinator::own_rows::{ShardRows, row_range};
use crate::shard::context::ShardContext;
use crate::shard::receipt;

type RowName = (uuid::Uuid, Vec<u8>, Vec<u8>);

/// The rows read, by table, partition key and position.
#[derive(Default)]
pub struct RowsBeforeWrite {
    rows: BTreeMap<RowName, Vec<u8>>,
}

impl RowsBeforeWrite {
    /// Reads the rows that the statements need.
    pub async fn read(
        context: &Rc<ShardContext>,
        statements: &[BoundStatement],
        options: &RequestOptions,
        now_seconds: u32,
    ) -> Result<Self> {
        let consistency = options.consistency;
        if consistency == Consistency::Any {
            return Err(RequestError::invalid(
                "Write operation require a read but consistency ANY is not supported on reads",
            ));
        }
        let deadline = options.deadline_or(context, context.node.config.read_request_timeout_ms);
        let mut rows = BTreeMap::new();
        let mut known = BTreeSet::new();
        for statement in statements {
            let plan = statement.plan();
            if !plan.needs_read() {
                continue;
            }
            let table = &plan.table;
            let mut wanted = Vec::new();
            {
                let values = statement.borrow();
                for partition in &statement.keys {
                    if table.has_static_columns() {
                        wanted.push((partition.clone(), STATIC_POSITION.to_vec()));
                    }
                    if !plan.clustering.is_empty() || table.clustering_key_count == 0 {
                        for position in positions(&plan.clustering, table, &values.bindings())? {
                            wanted.push((partition.clone(), position));
                        }
                    }
                }
            }
            for (partition, position) in wanted {
                let name = (plan.table.id, partition.bytes.clone(), position.clone());
                if !known.insert(name.clone()) {
                    continue;
                }
                let row = RowRead { table, partition, position, consistency, deadline, now_seconds };
                if let Some(row) = row.read(context).await? {
                    rows.insert(name, row);
                }
            }
        }
        Ok(Self { rows })
    }
}

impl ExistingRows for RowsBeforeWrite {
    fn row(&self, table: &Table, key: &PartitionKey, position: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.get(&(table.id, key.bytes.clone(), position.to_vec())).cloned())
    }

    /// Searches the rows that were read. Only conditions need other rows, and batches of several partitions have no
    /// conditions.
    fn rows_of(
        &self,
        table: &Table,
        key: &PartitionKey,
        slice: &Slice,
        rows_max: usize,
        is_there: &dyn Fn(RowRef<'_>) -> bool,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if slice.start >= slice.end {
            return Ok(Vec::new());
        }
        let name = |position: &[u8]| (table.id, key.bytes.clone(), position.to_vec());
        let regular = self.rows.range(name(&slice.start)..name(&slice.end));
        let there = regular.filter(|(_, row)| is_there(RowRef::new(row, 0)));
        Ok(there.take(rows_max).map(|((_, _, position), row)| (position.clone(), row.clone())).collect())
    }
}

/// One row to read.
struct RowRead<'a> {
    table: &'a Arc<Table>,
    partition: PartitionKey,
    position: Vec<u8>,
    consistency: Consistency,
    deadline: Duration,
    now_seconds: u32,
}

impl RowRead<'_> {
    /// Reads the row's live content with base 0.
    async fn read(&self, context: &Rc<ShardContext>) -> Result<Option<Vec<u8>>> {
        if needs_others(context, self.table, self.consistency, || Some(vec![self.partition.token])) {
            self.read_of_replicas(context).await
        } else {
            self.read_here(context).await
        }
    }

    async fn read_here(&self, context: &Rc<ShardContext>) -> Result<Option<Vec<u8>>> {
        let (table, partition, position) =
            (self.table.clone(), self.partition.clone(), self.position.clone());
        let now_seconds = self.now_seconds;
        let read = move |context: Rc<ShardContext>| {
            let row = async move {
                let rows = ShardRows { context: &context, now_seconds };
                let mark = receipt::mark();
                let read = || {
                    receipt::set_back(&mark);
                    rows.row(&table, &partition, &position)
                };
                context.shard.read_cold(read).await
            };
            Box::pin(row) as futures::future::LocalBoxFuture<'static, _>
        };
        context.run_on(context.node.shard_of(self.partition.token), read).await?
    }

    async fn read_of_replicas(&self, context: &Rc<ShardContext>) -> Result<Option<Vec<u8>>> {
        let (start, end) = row_range(&self.partition, &self.position)?;
        let read = RangeRead {
            table: self.table,
            start,
            end,
            reversed: false,
            now_seconds: self.now_seconds,
            live_rows: 1,
            consistency: self.consistency,
            deadline: self.deadline,
            bypasses_cache: false,
        };
        // The range holds one row, so one range part is all of it.
        let piece = read_range_part(context, &read).await?;
        Ok(piece.rows.iter().next().map(|row| row.row.bytes.to_vec()))
    }
}
