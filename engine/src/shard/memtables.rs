//! Freezing and releasing memtables, and the questions that flushes and edits of the manifest ask of [`super::memtable_index`].

use std::cmp::Reverse;
use std::rc::Rc;

use super::edit::Edited;
use super::state::Shard;
use super::table_state::TableState;
use crate::commit_log::LogPosition;
use crate::invariant::broken;
use crate::memtable::Memtable;
use crate::mutation::TableId;

/// The most tables that are flushed together, and the bytes of their memtables.
const TOGETHER_MAX: usize = 64;
const TOGETHER_BYTES_MAX: usize = 1 << 20;

/// The most tables that are listed for the memory that they take.
const LARGEST_MAX: usize = 256;

impl Shard {
    /// Freezes the active memtable of a table, unless it is empty, and replaces it by a new one.
    pub(super) fn freeze(&self, table: &TableState, flushed_to: LogPosition) {
        if table.freeze(flushed_to) {
            self.memtable_index.frozen.borrow_mut().insert(table.id);
        }
    }

    /// Releases the oldest `count` frozen memtables, and the active one if `count` is greater than their number.
    pub(super) fn release_memtables(&self, table: &TableState, count: usize) {
        let mut frozen = table.frozen.borrow_mut();
        let frozen_count = count.min(frozen.len());
        let mut released: Vec<_> =
            frozen.drain(..frozen_count).map(|frozen| Rc::clone(&frozen.memtable)).collect();
        if count > frozen_count {
            table.needs_log.set(false);
            released.push(table.replace_active());
        }
        let index = &self.memtable_index;
        if frozen_count > 0 && frozen.is_empty() && !index.frozen.borrow_mut().remove(&table.id) {
            broken!("a table with a frozen memtable is listed");
        }
        let mut bytes = 0;
        for memtable in released {
            bytes += memtable.read(Memtable::size_bytes);
            let position = memtable.read(Memtable::lowest_position);
            if position.is_some_and(|position| !index.needs.borrow_mut().remove(&(position, table.id))) {
                broken!("a memtable is listed by its first logged row");
            }
        }
        self.memory.shrink(bytes);
        self.write_pressure.note_released(bytes);
        self.signals.space.notify_waiters();
    }

    /// The lowest log position that a memtable needs once an edit has taken effect. Tables that are being dropped need none.
    pub(super) fn lowest_needed_position(&self, edited: &[Edited]) -> Option<LogPosition> {
        let tables = self.tables.borrow();
        let of_edited = edited.iter().filter_map(|edited| {
            tables.get(&edited.table)?.lowest_position_behind(edited.released_memtables)
        });
        let is_other =
            |id: &TableId| tables.contains_key(id) && !edited.iter().any(|edited| edited.table == *id);
        let needs = self.memtable_index.needs.borrow();
        let of_others = needs.iter().find(|(_, id)| is_other(id)).map(|(position, _)| *position);
        of_edited.chain(of_others).min()
    }

    /// Tables with frozen memtables, to be flushed together.
    pub(super) fn tables_with_frozen(&self) -> Vec<Rc<TableState>> {
        let (frozen, tables) = (self.memtable_index.frozen.borrow(), self.tables.borrow());
        flushed_together(frozen.iter().filter_map(|id| tables.get(id).cloned()))
    }

    /// The tables whose memtables need the oldest records of the log, as far as these are in segments before this one, to be flushed
    /// together.
    pub(super) fn tables_with_oldest(&self, segment: u64) -> Vec<Rc<TableState>> {
        let (needs, tables) = (self.memtable_index.needs.borrow(), self.tables.borrow());
        let old = needs.iter().take_while(|(position, _)| position.segment < segment);
        flushed_together(old.filter_map(|(_, id)| tables.get(id).cloned()))
    }

    /// Tables, to be flushed together, whose active memtables are at least half as large as the largest was when all were looked at, a few
    /// flushes ago.
    pub(super) fn tables_with_large(&self) -> Vec<Rc<TableState>> {
        let mut largest = self.memtable_index.largest.borrow_mut();
        let is_as_large = |(bytes, id): &(usize, TableId)| {
            // It may have been dropped since, or flushed.
            let table = self.tables.borrow().get(id).cloned();
            table.filter(|table| table.active_bytes() >= *bytes)
        };
        let mut listed: Vec<_> = largest.iter().rev().filter_map(is_as_large).collect();
        if listed.is_empty() {
            *largest = self.largest_tables();
            listed = largest.iter().rev().filter_map(is_as_large).collect();
        }
        let chosen = flushed_together(listed.into_iter());
        let is_left = |(_, id): &(usize, TableId)| chosen.last().is_none_or(|last| last.id != *id);
        let left = largest.iter().take_while(|entry| is_left(entry)).count();
        largest.truncate(left);
        chosen
    }

    /// Forgets the list of large memtables: when memory is short the next time, others may be large.
    pub(super) fn forget_large(&self) {
        self.memtable_index.largest.take();
    }

    /// The tables whose active memtables are at least half as large as the largest, or as many of them as are chosen at once.
    fn largest_tables(&self) -> Vec<(usize, TableId)> {
        let tables = self.tables.borrow();
        let with_rows = tables.values().filter(|table| !table.active.borrow().read(Memtable::is_empty));
        let mut sizes: Vec<_> = with_rows.map(|table| (table.active_bytes(), table.id)).collect();
        sizes.sort_unstable_by_key(|size| Reverse(*size));
        sizes.truncate(LARGEST_MAX);
        let least = sizes.first().map_or(0, |(bytes, _)| bytes / 2);
        sizes.retain(|(bytes, _)| *bytes >= least);
        sizes.reverse();
        sizes
    }
}

/// The first of these tables, with those behind it as long as they are small: what they share costs more than what each writes.
fn flushed_together(tables: impl Iterator<Item = Rc<TableState>>) -> Vec<Rc<TableState>> {
    let mut bytes = 0;
    let is_together = |(index, table): &(usize, Rc<TableState>)| {
        bytes += table.oldest_memtable_bytes();
        *index == 0 || (*index < TOGETHER_MAX && bytes <= TOGETHER_BYTES_MAX)
    };
    tables.enumerate().take_while(is_together).map(|(_, table)| table).collect()
}
