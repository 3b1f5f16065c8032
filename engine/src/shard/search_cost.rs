//! What it costs to find rows by indexes, and so which restrictions of a search are looked up. The one place of this rule.
//!
//! A unit is the work of an entry of an index that is visited, or of a row that a scan passes. All restrictions that are looked up together
//! leave only rows that fulfil each of them; the others are for the reader of the rows to decide, who reads more rows then. Restrictions are taken
//! to be independent of each other.

/// A cursor of one source that moves to another place.
pub(super) const WORK_OF_SEEK: u64 = 8;
/// A row that is found: it is read by its key, and filtered.
const WORK_OF_FOUND_ROW: u64 = 16;
/// A row that a scan passes.
const WORK_OF_SCANNED_ROW: u64 = 1;
/// A search of less work is not worth a scan: estimates of small numbers say little.
const SCAN_WORTH_MIN: u64 = 50_000 * (1 + WORK_OF_FOUND_ROW);
/// A restriction whose terms and sources have no more cursors together is walked in the order of keys. Those of others are collected.
pub(super) const ORDERED_CURSORS_MAX: usize = 64;
/// The most keys of a restriction that are collected at a time.
pub(super) const COLLECTED_KEYS_MAX: usize = 1 << 16;
/// Keys that are found until a search is asked anew.
const KEYS_PER_SEARCH: u64 = 1_024;

/// What is known of a restriction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reach {
    /// Its entries.
    pub entries: u64,
    /// Different terms among these.
    pub terms: u64,
    /// The memtables and files that are looked at.
    pub sources: u64,
    /// Its entries can be walked in the order of keys.
    pub is_ordered: bool,
}

impl Reach {
    /// The work of one move to a certain key.
    fn seek(&self) -> u64 {
        let cursors = if self.is_ordered { self.terms.saturating_mul(self.sources) } else { self.sources };
        cursors.max(1).saturating_mul(WORK_OF_SEEK)
    }

    /// The work of walking it where it is moved to `keys` keys at most, while searches that end there have found `found` keys.
    fn walk(&self, keys: u64, found: u64) -> u64 {
        if self.is_ordered {
            return self.entries.min(keys.saturating_mul(self.seek()));
        }
        // All terms are visited for each part that is collected: their entries, or one entry and the way to the next term.
        let of_part = self
            .entries
            .min(self.terms.saturating_mul(self.seek()).saturating_add(COLLECTED_KEYS_MAX as u64));
        let parts = (self.entries / COLLECTED_KEYS_MAX as u64).max(found / KEYS_PER_SEARCH) + 1;
        of_part.saturating_mul(parts)
    }
}

/// How rows are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// The numbers of the restrictions that are looked up, at least one.
    pub looked_up: Vec<usize>,
    pub work: u64,
    /// A scan of the table is less work.
    pub prefers_scan: bool,
}

/// Chooses how to find rows. `rows`: those of the table. `None`: there are no restrictions.
pub(super) fn choose(reaches: &[Reach], rows: u64) -> Option<Choice> {
    let rows = rows.max(1);
    let alone = |reach: &Reach| {
        let found = reach.entries.saturating_mul(WORK_OF_FOUND_ROW);
        reach.walk(u64::MAX, reach.entries).saturating_add(found)
    };
    let (first, driver) = reaches.iter().enumerate().min_by_key(|(_, reach)| alone(reach))?;
    let mut choice = Choice { looked_up: vec![first], work: alone(driver), prefers_scan: false };
    let mut keys = driver.entries;
    let mut others: Vec<(usize, &Reach)> =
        reaches.iter().enumerate().filter(|(number, _)| *number != first).collect();
    others.sort_by_key(|(_, reach)| reach.entries);
    for (number, reach) in others {
        let left = (u128::from(keys) * u128::from(reach.entries.min(rows)) / u128::from(rows)) as u64;
        let checked = reach.walk(keys, left);
        let saved = (keys - left).saturating_mul(WORK_OF_FOUND_ROW);
        if checked < saved {
            choice.looked_up.push(number);
            choice.work = choice.work.saturating_sub(saved).saturating_add(checked);
            keys = left;
        }
    }
    // What is walked in the order of keys has the first rows at once, however many there are.
    choice.prefers_scan = !driver.is_ordered
        && choice.work > SCAN_WORTH_MIN
        && choice.work > rows.saturating_mul(WORK_OF_SCANNED_ROW);
    Some(choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: u64 = 10_000_000;

    fn term(entries: u64) -> Reach {
        Reach { entries, terms: 1, sources: 3, is_ordered: true }
    }

    fn range(entries: u64) -> Reach {
        Reach { entries, terms: entries, sources: 3, is_ordered: false }
    }

    fn looked_up(reaches: &[Reach]) -> Vec<usize> {
        choose(reaches, ROWS).unwrap().looked_up
    }

    #[test]
    fn terms_of_similar_length_are_looked_up_together() {
        assert_eq!(looked_up(&[term(100_000), term(80_000)]), [1, 0]);
        assert_eq!(looked_up(&[term(30_000), term(ROWS / 2), term(ROWS / 100)]), [0, 2]);
        assert_eq!(choose(&[], ROWS), None);
    }

    #[test]
    fn a_few_rows_are_read_rather_than_compared_with_what_has_to_be_visited_whole() {
        assert_eq!(looked_up(&[term(5), range(100_000)]), [0]);
        assert_eq!(looked_up(&[range(100_000), term(3_000)]), [1]);
        assert_eq!(looked_up(&[range(10_000), term(30_000)]), [0, 1]);
    }

    #[test]
    fn what_nearly_all_rows_have_leaves_too_few_out() {
        assert_eq!(looked_up(&[term(100_000), term(ROWS)]), [0]);
        assert_eq!(looked_up(&[term(100_000), term(ROWS / 10 * 9)]), [0]);
        assert_eq!(looked_up(&[term(100_000), Reach { sources: 1, ..term(ROWS / 3) }]), [0, 1]);
    }

    #[test]
    fn each_restriction_more_is_worth_it_only_for_the_rows_that_the_others_leave() {
        // The first two leave ten rows.
        assert_eq!(looked_up(&[term(10_000), term(10_000), range(60_000)]), [0, 1]);
    }

    #[test]
    fn a_broad_range_is_scanned_and_a_narrow_one_is_not() {
        let prefers_scan = |reaches: &[Reach], rows| choose(reaches, rows).unwrap().prefers_scan;
        assert!(prefers_scan(&[range(ROWS / 10)], ROWS));
        assert!(!prefers_scan(&[range(ROWS / 200)], ROWS));
        assert!(!prefers_scan(&[range(5_000)], 5_000), "for a small table it does not matter");
        assert!(prefers_scan(&[range(60_000)], 60_000));
        assert!(!prefers_scan(&[term(ROWS)], ROWS), "a page of one term costs what it has");
        assert!(!prefers_scan(&[range(ROWS / 10), term(100)], ROWS));
        assert!(!prefers_scan(&[range(ROWS / 10), term(ROWS / 20)], ROWS));
    }

    #[test]
    fn huge_numbers_do_not_overflow() {
        let reaches = [range(u64::MAX), term(u64::MAX), Reach { terms: u64::MAX, ..term(u64::MAX) }];
        for rows in [0, 1, u64::MAX] {
            assert!(choose(&reaches, rows).unwrap().work > SCAN_WORTH_MIN);
        }
    }
}
