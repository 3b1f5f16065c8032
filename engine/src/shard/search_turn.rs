//! The work of one turn of a search. Other requests of the shard run between two turns, and blocks that were fetched for a turn are given up.
//!
//! A read of blocks that are not cached ends the call that needs them, not the turn: the work is counted over all its calls. So a turn has about as
//! many bytes of blocks whether they were cached or not.

/// The work of one turn: bytes of entries and rows.
pub(super) const TURN_BYTES: u64 = 1 << 20;
/// What a unit of [`super::search_cost`] counts as, whatever the length of what is visited.
const UNIT_BYTES: u64 = 128;

/// The work of the current turn.
#[derive(Debug, Default)]
pub(super) struct TurnWork {
    bytes: u64,
}

impl TurnWork {
    /// Counts units of [`super::search_cost`].
    pub fn add_units(&mut self, units: u64) {
        self.bytes = self.bytes.saturating_add(units.saturating_mul(UNIT_BYTES));
    }

    /// Counts a visited entry or row.
    pub fn add_visit(&mut self, bytes: usize) {
        self.add_units(1);
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Whether the turn is over. Then the next one begins. To be asked after some work, so that each turn gets further.
    pub fn ends(&mut self) -> bool {
        let is_over = self.bytes >= TURN_BYTES;
        if is_over {
            self.bytes = 0;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_by_its_bytes_and_by_the_number_of_visits() {
        for bytes in [0, 10, 100_000, usize::MAX] {
            let mut work = TurnWork::default();
            for _ in 0..2 {
                let mut visits = 0_u64;
                while !work.ends() {
                    work.add_visit(bytes);
                    visits += 1;
                }
                assert_eq!(visits, TURN_BYTES.div_ceil((bytes as u64).saturating_add(UNIT_BYTES)));
            }
        }
    }
}
