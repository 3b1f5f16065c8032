//! The tables that a look for compactions goes over. A shard may have 10,000 tables, and looks after each flush.
//!
//! Invariant: a table whose strategy may choose something is listed: since its files, its options or what keeps it from being compacted have
//! changed ([`Shard::look_at_backlog`] lists it), while it waits after a failure, and while its backlog is large. Time alone may also make
//! something due, so all tables with files are listed once in [`LOOK_PAUSE`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use super::state::Shard;
use super::table_state::TableState;
use crate::mutation::TableId;

/// The longest time between two looks at all tables. Data expires, and tombstones pass their grace period, without any flush.
pub(super) const LOOK_PAUSE: Duration = Duration::from_mins(1);

#[derive(Default)]
pub(super) struct Candidates {
    tables: RefCell<BTreeSet<TableId>>,
    /// When all tables with files are listed next, on the monotonic clock.
    next_look_at_all: Cell<Duration>,
}

impl Candidates {
    pub fn add(&self, table: TableId) {
        self.tables.borrow_mut().insert(table);
    }

    pub fn remove(&self, table: TableId) {
        self.tables.borrow_mut().remove(&table);
    }
}

impl Shard {
    /// The tables that may have something to compact, ordered by id.
    pub(super) fn candidates(&self) -> Vec<Rc<TableState>> {
        let now = self.environment.clock.monotonic();
        let listed = &self.candidates;
        let tables = self.tables.borrow();
        if now >= listed.next_look_at_all.get() {
            listed.next_look_at_all.set(now + LOOK_PAUSE);
            let with_files = tables.values().filter(|table| !table.files.borrow().is_empty());
            listed.tables.borrow_mut().extend(with_files.map(|table| table.id));
        }
        let mut listed = listed.tables.borrow_mut();
        let mut found = Vec::with_capacity(listed.len());
        // A dropped table is listed no more.
        listed.retain(|id| {
            tables.get(id).is_some_and(|table| {
                found.push(Rc::clone(table));
                true
            })
        });
        found
    }

    /// The time until which a look at the candidates finds nothing new, unless a signal comes.
    pub(super) fn pause_to_next_look(&self) -> Duration {
        let now = self.environment.clock.monotonic();
        let (listed, tables) = (self.candidates.tables.borrow(), self.tables.borrow());
        let retries = listed.iter().filter_map(|id| tables.get(id)?.next_retry(now));
        let next = retries.fold(self.candidates.next_look_at_all.get(), Duration::min);
        next.saturating_sub(now)
    }
}
