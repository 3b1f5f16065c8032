//! Which files need not be read to be removed: everything in them may be purged, and they hide nothing that is older.
//!
//! As in Cassandra, a file whose contents have all expired stays while it may hide data elsewhere: another file that
//! overlaps it, or a memtable, with a timestamp that is not newer than its newest. Files that are removed together need not
//! be considered among themselves.

use super::choice::{Situation, TableSummary};

/// The generations of the files that may be deleted unread.
pub(crate) fn expired(situation: &Situation<'_>) -> Vec<u64> {
    let tables = situation.tables;
    let mut candidates: Vec<&TableSummary> = tables
        .iter()
        .filter(|table| !table.is_busy)
        .filter(|table| table.purgeable_from_seconds.is_some_and(|from| from <= situation.now_seconds))
        .filter(|table| situation.memtable_min_timestamp.is_none_or(|oldest| table.max_timestamp < oldest))
        .collect();
    // A file that stays can hold others back in turn.
    loop {
        let goes = |table: &TableSummary| {
            candidates.iter().any(|candidate| candidate.generation == table.generation)
        };
        let staying: Vec<&TableSummary> = tables.iter().filter(|table| !goes(table)).collect();
        let before = candidates.len();
        candidates.retain(|candidate| {
            !staying
                .iter()
                .any(|other| other.min_timestamp <= candidate.max_timestamp && other.overlaps(candidate))
        });
        if candidates.len() == before || candidates.is_empty() {
            return candidates.iter().map(|candidate| candidate.generation).collect();
        }
    }
}
