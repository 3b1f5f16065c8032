//! Looking up one row of a memtable by its full key, without a cursor.

use super::store::Memtable;
use crate::key::KeyRef;
use crate::row::RowRef;

/// The result of looking up a row.
#[derive(Debug, Clone, Copy)]
pub enum Held<'a> {
    Nothing,
    Row(RowRef<'a>),
    /// Changes or a range tombstone must be merged with the row; a cursor does that.
    Unmerged,
}

impl Memtable {
    /// Looks up the row with exactly this key.
    #[inline]
    pub fn row(&self, key: &KeyRef<'_>) -> Held<'_> {
        let found = self.find_partition(key.token, key.partition_key);
        let Some(partition) = found.and_then(|id| self.partition(id)) else {
            return Held::Nothing;
        };
        if partition
            .range_tombstones
            .as_ref()
            .is_some_and(|range_tombstones| range_tombstones.covering(key.position).is_some())
        {
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
