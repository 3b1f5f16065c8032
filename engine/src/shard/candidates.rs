//! The tables that a look for compactions goes over. A shard may have 10,000 tables, and looks after each flush.
//!
//! Invariant: a table whose strategy may choose something is listed: since its files, its options or what keeps it from being compacted have
//! changed ([`super::Shard::look_at_backlog`] lists it), while it waits after a failure, and while its backlog is large. Time alone may also make
//! something due, so all tables with files are listed once in [`LOOK_PAUSE`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;

use crate::mutation::TableId;

/// The longest time between two looks at all tables. Data expires, and tombstones pass their grace period, without any flush.
pub(super) const LOOK_PAUSE: Duration = Duration::from_mins(1);

#[derive(Default)]
pub(super) struct Candidates {
    pub tables: RefCell<BTreeSet<TableId>>,
    /// When all tables with files are listed next, on the monotonic clock.
    pub next_look_at_all: Cell<Duration>,
}

impl Candidates {
    pub fn add(&self, table: TableId) {
        self.tables.borrow_mut().insert(table);
    }

    pub fn remove(&self, table: TableId) {
        self.tables.borrow_mut().remove(&table);
    }
}
