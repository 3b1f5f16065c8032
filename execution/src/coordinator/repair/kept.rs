//! What a node keeps about repairs: rows of an engine table of its first shard. Each kind of row has a partition of its own: the history
//! ([`super::history`]), repairs that have not ended ([`super::unfinished`]), and what the schedule watches ([`super::watched`]).

use std::rc::Rc;

use helenus_engine::commit_log::LogPosition;
use helenus_engine::key::REGULAR_TAG;
use helenus_engine::read::Budget;
use helenus_engine::{Deletion, EngineError, TableId, TableOptions};

use crate::shard::context::ShardContext;
use crate::shard::private_table::{PrivateChange, PrivateRange, PrivateTable};

/// The engine's id of the table.
pub const TABLE: PrivateTable = PrivateTable(TableId(*b"helenus-repairs-"));
/// Budget of one turn of a scan.
const SCAN_BUDGET: Budget = Budget { bytes: 4 << 20, tombstones: 10_000 };

/// The engine options of the table.
pub fn table_options() -> TableOptions {
    TableOptions { gc_grace_seconds: 0, ..TableOptions::default() }
}

/// Changes of the rows of a partition, all with one timestamp.
pub(super) struct Changes {
    change: PrivateChange,
    deletion: Deletion,
}

impl Changes {
    /// Changes that are made now. Nothing may be awaited before they are applied: later ones would be older.
    pub(super) fn of(context: &ShardContext, partition: &[u8]) -> Self {
        let deletion =
            Deletion { timestamp: context.next_timestamp(), local_deletion_time: context.now_seconds() };
        Self { change: TABLE.change(partition), deletion }
    }

    /// Sets the value of a row, or removes the row.
    pub(super) fn set(&mut self, name: &[u8], value: Option<&[u8]>) {
        let position = [&[REGULAR_TAG], name].concat();
        match value {
            Some(value) => self.change.put(&position, self.deletion.timestamp, value),
            None => self.change.delete(&position, self.deletion),
        }
    }

    /// Applies them; `None`: there are none. They are durable when the commit log is, up to the position.
    pub(super) fn apply(self, context: &ShardContext) -> Result<Option<LogPosition>, EngineError> {
        if self.change.is_empty() { Ok(None) } else { self.change.apply(&context.shard).map(Some) }
    }
}

/// Changes one row, durably. Nothing is awaited before the change, once the shard admits it.
pub(super) async fn set(
    context: &ShardContext,
    partition: &[u8],
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<(), EngineError> {
    let mut changes = Changes::of(context, partition);
    changes.set(name, value);
    match changes.apply(context)? {
        Some(position) => context.shard.durable(position).await,
        None => Ok(()),
    }
}

/// The names and values of a partition's rows.
pub(super) async fn load(
    context: &Rc<ShardContext>,
    partition: &[u8],
) -> Result<Vec<(Vec<u8>, Vec<u8>)>, EngineError> {
    let mut range = PrivateRange::partition(partition);
    let mut rows = Vec::new();
    loop {
        let read = || {
            let mut part = Vec::new();
            let mut scan = TABLE.scan(&context.shard, &range, context.now_seconds(), SCAN_BUDGET)?;
            while let Some(row) = scan.next()? {
                let name = row.position.strip_prefix(&[REGULAR_TAG]).unwrap_or(row.position);
                part.push((name.to_vec(), row.value.to_vec()));
            }
            Ok::<_, EngineError>((part, scan.resume_bound()?))
        };
        let (part, resume) = context.shard.read_cold(read).await?;
        rows.extend(part);
        match resume {
            Some(bound) => range = range.rest(bound),
            None => return Ok(rows),
        }
    }
}
