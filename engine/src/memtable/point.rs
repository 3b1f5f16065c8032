//! One row of a memtable by its whole key, without a cursor.

use super::store::Memtable;
use crate::key::KeyRef;
use crate::row::RowRef;

/// What a memtable has of one row.
#[derive(Debug, Clone, Copy)]
pub enum Held<'a> {
    Nothing,
    Row(RowRef<'a>),
    /// Changes or a deletion are still to be merged with it: a cursor does that.
    Unmerged,
}

impl Memtable {
    /// The row with exactly this key.
    #[inline]
    pub fn row(&self, key: &KeyRef<'_>) -> Held<'_> {
        let found = self.find_partition(key.token, key.partition_key);
        let Some(partition) = found.and_then(|id| self.partition(id)) else {
            return Held::Nothing;
        };
        if partition.spans.as_ref().is_some_and(|spans| spans.covering(key.position).is_some()) {
            return Held::Unmerged;
        }
        let place = partition.rows.find(&self.arena, key.position).ok();
        match place.and_then(|place| partition.rows.get(place)) {
            None => Held::Nothing,
            Some(entry) if self.tail_of(entry).is_some() => Held::Unmerged,
            Some(entry) => Held::Row(RowRef::new(entry.row(&self.arena), 0)),
        }
    }
}
