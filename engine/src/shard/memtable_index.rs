//! The tables with rows in memory, in the orders in which a shard asks for them. A shard may have 10,000 tables, and asks at each flush and at
//! each edit of the manifest.
//!
//! Invariants:
//! * Each memtable with a logged row is listed under the position of its first one, which is its lowest: positions only grow.
//! * Each table with a frozen memtable is listed.
//! * A table that is being dropped stays listed until its memtables are released, because the drop may fail.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::table_state::TableState;
use crate::commit_log::LogPosition;
use crate::mutation::TableId;

#[derive(Default)]
pub(super) struct MemtableIndex {
    /// The first log record that each memtable needs.
    pub needs: RefCell<BTreeSet<(LogPosition, TableId)>>,
    /// The tables with frozen memtables.
    pub frozen: RefCell<BTreeSet<TableId>>,
    /// The tables with the largest active memtables when all were looked at last, with their bytes then. The largest comes last.
    pub largest: RefCell<Vec<(usize, TableId)>>,
}

impl MemtableIndex {
    /// The index of tables that a start has recovered. None of their memtables is frozen.
    pub fn of_recovered<'t>(tables: impl Iterator<Item = &'t Rc<TableState>>) -> Self {
        let index = Self::default();
        for table in tables {
            if let Some(position) = table.lowest_position() {
                table.needs_log.set(true);
                index.note_logged(table.id, position);
            }
        }
        index
    }

    /// Lists the active memtable of a table, whose first logged row is at this position.
    pub fn note_logged(&self, table: TableId, position: LogPosition) {
        self.needs.borrow_mut().insert((position, table));
    }
}
