//! Files that could not be opened, and whose rows the other replicas have brought back: they are given up without an operator.
//!
//! Invariants:
//! * A file is given up only if the caller names it, as it was found before the rows were fetched: one that was damaged later may have held
//!   rows that were not fetched, because they could be read then.
//! * All tokens that the file may hold were fetched, and what was fetched is in files before the damaged one leaves the manifest. Whenever
//!   the node dies, the manifest names the damaged file or files with its rows.
//! * The damaged file is kept in the quarantine, as by a scrub.

use std::ops::RangeInclusive;

use super::damaged_file::DamagedFile;
use super::state::Shard;
use crate::error::EngineError;
use crate::mutation::TableId;

impl Shard {
    /// The generations of a table's files that could not be opened.
    pub fn damaged_generations(&self, table: TableId) -> Result<Vec<u64>, EngineError> {
        let table = self.table(table)?;
        let generations = table.damaged.borrow().iter().map(|file| file.place.generation).collect();
        Ok(generations)
    }

    /// Gives up those of these files that could not be opened, and all of whose tokens were fetched from the other replicas. Returns their
    /// number. `fetched`: sorted, disjoint intervals of tokens, joined where they touch.
    pub async fn give_up_mended(
        &self,
        table: TableId,
        generations: &[u64],
        fetched: &[RangeInclusive<i64>],
    ) -> Result<u64, EngineError> {
        self.check_open()?;
        let state = self.table(table)?;
        let is_mended = |file: &&DamagedFile| {
            generations.contains(&file.place.generation) && covers(fetched, &tokens_of(file))
        };
        let mended: Vec<DamagedFile> = state.damaged.borrow().iter().filter(is_mended).cloned().collect();
        if mended.is_empty() {
            return Ok(0);
        }
        self.flush(table).await?;
        let mut given_up = 0;
        for file in mended {
            if self.give_up(&state, &file).await? {
                given_up += 1;
                tracing::warn!(
                    %table, path = %file.path.display(), reason = file.reason,
                    "a damaged file was given up: a repair has brought its rows back from the other replicas"
                );
            }
        }
        // What the file kept from being purged may go.
        self.candidates.add(table);
        Ok(given_up)
    }
}

/// The tokens that a file may hold. No row has the smallest token.
fn tokens_of(file: &DamagedFile) -> RangeInclusive<i64> {
    let (first, last) = file.place.tokens.map_or((i64::MIN, i64::MAX), |held| (held.first, held.last));
    first.max(i64::MIN + 1)..=last
}

fn covers(intervals: &[RangeInclusive<i64>], wanted: &RangeInclusive<i64>) -> bool {
    intervals.iter().any(|interval| interval.contains(wanted.start()) && interval.contains(wanted.end()))
}
