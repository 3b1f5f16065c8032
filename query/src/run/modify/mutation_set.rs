//! Collects the changes of statements: one mutation for each partition and table.
//!
//! Invariant: the changes of a partition are either the current ones or among the others, never both.

use std::collections::BTreeMap;
use std::sync::Arc;

use helenus_engine::{Cell, CellKind, Mutation, RowBuilder, RowRef, TableId, counter};

use super::cells::ListOffsets;
use super::constraints;
use super::indexed_values;
use super::partition_change::PartitionChange;
use super::statement::StatementWriter;
use super::write_context::{ExistingRows, WriteContext};
use crate::error::{RequestError, Result};
use crate::plan::modify::ModifyPlan;
use crate::plan::term::Bindings;
use crate::run::keys::PartitionKeys;
use crate::schema::catalog::Table;
use crate::stored_key::PartitionKey;

/// The changes of one partition of one table.
#[derive(Debug, Clone)]
pub struct PartitionMutation {
    pub token: i64,
    pub table: Arc<Table>,
    pub mutation: Mutation,
}

/// Mutations under construction, one for each partition and table.
#[derive(Default)]
pub struct MutationSet {
    /// Selects partitions by token; `None`: all.
    is_selected: Option<Box<dyn Fn(i64) -> bool>>,
    /// The partition that is being changed, often the only one.
    current: Option<PartitionChange>,
    others: BTreeMap<(TableId, PartitionKey), PartitionChange>,
    /// Bytes of the others.
    others_bytes: usize,
    list_places: ListOffsets,
}

/// Most bytes of the changes of one request, over all its partitions.
const REQUEST_BYTES_MAX: usize = 256 << 20;

impl MutationSet {
    /// A set for changes of partitions with the selected tokens only. Nothing is read in other partitions.
    pub fn limited_to(is_selected: Box<dyn Fn(i64) -> bool>) -> Self {
        Self { is_selected: Some(is_selected), ..Self::default() }
    }

    /// Adds the changes that a statement makes to partitions. An INSERT JSON is expanded before ([`expand`]).
    ///
    /// [`expand`]: super::expand
    pub fn add(
        &mut self,
        plan: &ModifyPlan,
        keys: PartitionKeys,
        bindings: &Bindings<'_>,
        write: &WriteContext,
        existing: Option<&dyn ExistingRows>,
    ) -> Result<()> {
        assert!(plan.json.is_none(), "an INSERT JSON is expanded before it is executed");
        constraints::check(plan, bindings)?;
        let writer = StatementWriter::new(plan, bindings, write, existing)?;
        for key in keys {
            if self.is_selected.as_ref().is_none_or(|is_selected| is_selected(key.token)) {
                let mut places = self.list_places;
                writer.write(self.partition(&plan.table, key, writer.expected_bytes())?, &mut places)?;
                self.list_places = places;
                if self.others_bytes > REQUEST_BYTES_MAX {
                    return Err(RequestError::invalid(format!(
                        "The changes of a request to its partitions take more than {REQUEST_BYTES_MAX} bytes together"
                    )));
                }
            }
        }
        Ok(())
    }

    /// The changes of a partition; created with capacity for `expected_bytes` if there are none yet.
    fn partition(
        &mut self,
        table: &Arc<Table>,
        key: PartitionKey,
        expected_bytes: usize,
    ) -> Result<&mut PartitionChange> {
        let change = match self.current.take() {
            Some(current) if current.table.id == table.id && current.key == key => current,
            earlier => {
                self.set_aside(earlier);
                let name = (table.engine_id(), key);
                match self.others.remove(&name) {
                    Some(change) => {
                        self.others_bytes -= change.builder.size_bytes();
                        change
                    }
                    None => PartitionChange::new(table, name.1, expected_bytes)?,
                }
            }
        };
        Ok(self.current.insert(change))
    }

    fn set_aside(&mut self, change: Option<PartitionChange>) {
        if let Some(change) = change {
            self.others_bytes += change.builder.size_bytes();
            self.others.insert((change.table.engine_id(), change.key.clone()), change);
        }
    }

    /// The finished mutations in the order of tables and keys, without partitions that have no changes.
    pub fn finish(
        mut self,
        write: &WriteContext,
        existing: Option<&dyn ExistingRows>,
    ) -> Result<Vec<PartitionMutation>> {
        if !self.others.is_empty() {
            let last = self.current.take();
            self.set_aside(last);
        }
        let mut mutations = Vec::with_capacity(self.others.len().max(1));
        for mut change in self.current.into_iter().chain(self.others.into_values()) {
            if !change.counters.is_empty() {
                let existing = existing.ok_or_else(|| {
                    RequestError::Server("counters are updated by their owner only".to_owned())
                })?;
                write_counters(&mut change, write, existing)?;
                change.check_size(write.mutation_bytes_max)?;
            }
            if !change.builder.is_empty() {
                let PartitionChange { table, key, builder, .. } = change;
                let mutation = builder.build();
                indexed_values::check(&table, &mutation)?;
                mutations.push(PartitionMutation { token: key.token, table, mutation });
            }
        }
        Ok(mutations)
    }
}

fn write_counters(
    change: &mut PartitionChange,
    write: &WriteContext,
    existing: &dyn ExistingRows,
) -> Result<()> {
    let mut rows: BTreeMap<Vec<u8>, Vec<(u32, i64)>> = BTreeMap::new();
    for ((position, column), delta) in std::mem::take(&mut change.counters) {
        rows.entry(position).or_default().push((column, delta));
    }
    for (position, deltas) in rows {
        // A row that does not exist has no cells, as the empty one.
        let current = existing.row(&change.table, &change.key, &position)?.unwrap_or_default();
        let mut row = RowBuilder::new();
        for (column, delta) in deltas {
            let cell = RowRef::new(&current, 0).cells().find(|cell| cell.column == column);
            let (clock, count) = cell
                .filter(|cell| cell.kind == CellKind::Counter)
                .and_then(|cell| counter::find(cell.value, write.counter_id))
                // This node has not counted here yet.
                .unwrap_or((0, 0));
            // A clock that starts from the write time outranks the clocks from before a deletion of the counter.
            let clock = (clock + 1).max(write.timestamp);
            let value = counter::shard(write.counter_id, clock, count.wrapping_add(delta));
            row.cell(Cell {
                column,
                path: &[],
                timestamp: write.timestamp,
                kind: CellKind::Counter,
                value: &value,
            });
        }
        change.builder.row(&position, &mut row);
    }
    Ok(())
}
