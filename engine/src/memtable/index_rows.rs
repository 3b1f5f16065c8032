//! The entries of one index for the rows of a memtable, in order.
//!
//! Invariant: for every row of the memtable there are the entries of all its terms, if the index was there before the first row. Entries of
//! terms that a row no longer has stay as long as the memtable does.

use super::arena::Arena;
use super::rows::{Entry, RowIndex, Rows};
use crate::key::KeyRef;
use crate::row::RowRef;
use crate::secondary_index::entry::{put_entry, split};
use crate::secondary_index::{IndexDefinition, IndexId};

/// Entries that are looked at to estimate the number of terms.
const TERM_SAMPLES: u64 = 64;

#[derive(Debug)]
pub(super) struct IndexRows {
    definition: IndexDefinition,
    arena: Arena,
    rows: Rows,
    count: usize,
}

impl IndexRows {
    pub fn new(definition: IndexDefinition) -> Self {
        Self { definition, arena: Arena::default(), rows: Rows::default(), count: 0 }
    }

    pub fn id(&self) -> IndexId {
        self.definition.id
    }

    /// Memory use in bytes.
    pub fn size_bytes(&self) -> usize {
        // Capacities of vectors double.
        self.arena.reserved_bytes() + 2 * size_of::<Entry>() * self.count
    }

    /// Adds the terms of a row, or of a change of it. `scratch` is a buffer for reuse.
    pub fn add(&mut self, key: &KeyRef<'_>, full_key: &[u8], row: RowRef<'_>, scratch: &mut Vec<u8>) {
        let Self { definition, arena, rows, count } = self;
        definition.terms.visit(key, row, &mut |subject, term| {
            scratch.clear();
            put_entry(scratch, term, subject, full_key);
            if let Err(index) = rows.find(arena, scratch) {
                rows.insert(index, Entry::store(arena, scratch, &[]));
                *count += 1;
            }
        });
    }

    /// Calls `visit` with each term of a row.
    pub fn visit(&self, key: &KeyRef<'_>, row: RowRef<'_>, visit: &mut dyn FnMut(&[u8])) {
        self.definition.terms.visit(key, row, &mut |_, term| visit(term));
    }

    /// The first entry at or behind `bound`.
    pub fn seek(&self, bound: &[u8]) -> Place {
        Place(self.rows.lower_bound(&self.arena, bound))
    }

    /// The entry at a place; `None` behind the last.
    pub fn get(&self, place: Place) -> Option<&[u8]> {
        self.rows.get(place.0).map(|entry| entry.position(&self.arena))
    }

    pub fn after(&self, place: Place) -> Place {
        Place(self.rows.after(place.0))
    }

    /// About how many entries lie in a range.
    pub fn estimate(&self, start: &[u8], end: &[u8]) -> u64 {
        let [first, behind] =
            [start, end].map(|bound| self.rows.rank(self.rows.lower_bound(&self.arena, bound)));
        behind.saturating_sub(first)
    }

    /// Estimates the number of distinct terms in a range by sampling its first entries. `entries`: the estimated number of entries in the range.
    pub fn estimate_terms(&self, start: &[u8], end: &[u8], entries: u64) -> u64 {
        let (mut sampled, mut different) = (0, 0);
        let mut place = self.seek(start);
        let mut term: &[u8] = &[];
        while let Some(entry) = self.get(place).filter(|entry| sampled < TERM_SAMPLES && *entry < end) {
            sampled += 1;
            if let Some((of_entry, _)) = split(entry)
                && of_entry != term
            {
                different += 1;
                term = of_entry;
            }
            place = self.after(place);
        }
        (entries.max(sampled) * different).checked_div(sampled).unwrap_or(0)
    }
}

/// The place of an entry, as long as no other entries are added.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place(RowIndex);
