//! The ranges to read for the keys that a search by indexes has found.
//!
//! What is found is a candidate: the reader of the rows filters them. Where static content is wanted, the static row of a partition comes before the
//! first row of it that is read, also where a read begins within a partition.

use helenus_engine::key::{PARTITION_END, REGULAR_START, STATIC_POSITION, behind, prefix_length};
use helenus_query::error::{RequestError, Result};

/// The most keys that a search looks for at a time.
pub const FOUND_KEYS_MAX: usize = 1_024;

/// Half-open ranges of full keys.
#[derive(Debug, PartialEq, Eq)]
pub struct FoundRange {
    /// That of the static row, if it has to be read first.
    pub static_row: Option<(Vec<u8>, Vec<u8>)>,
    /// One row, or the rows of a partition.
    pub rows: (Vec<u8>, Vec<u8>),
}

/// Makes the ranges of found keys, which come in order.
pub struct FoundRanges {
    reads_static: bool,
    /// The prefix of the partition of the last key.
    partition: Vec<u8>,
}

impl FoundRanges {
    pub fn new(reads_static: bool) -> Self {
        Self { reads_static, partition: Vec::new() }
    }

    /// The ranges to read for a key that was found within `[start, end)`.
    pub fn of(&mut self, key: &[u8], start: &[u8], end: &[u8]) -> Result<FoundRange> {
        let parts = prefix_length(key).and_then(|length| key.split_at_checked(length));
        let Some((prefix, position)) = parts else {
            return Err(RequestError::Server("an index has a key without a partition".to_owned()));
        };
        let of_partition = |position: &[u8]| [prefix, position].concat();
        let is_new = self.partition != prefix;
        if is_new {
            self.partition.clear();
            self.partition.extend_from_slice(prefix);
        }
        let static_row = (is_new && self.reads_static)
            .then(|| (of_partition(STATIC_POSITION), of_partition(REGULAR_START)));
        let rows = if position == STATIC_POSITION {
            let first = if self.reads_static { REGULAR_START } else { STATIC_POSITION };
            (of_partition(first).max(start.to_vec()), of_partition(PARTITION_END).min(end.to_vec()))
        } else {
            (key.to_vec(), behind(key))
        };
        Ok(FoundRange { static_row, rows })
    }
}

#[cfg(test)]
mod tests {
    use helenus_engine::key::full_key;

    use super::*;

    #[test]
    fn a_partition_begins_with_its_static_row_and_ends_with_the_search() {
        let key = |partition: &[u8], position: &[u8]| full_key(1, partition, position).unwrap();
        let static_row = |partition| Some((key(partition, STATIC_POSITION), key(partition, REGULAR_START)));
        let (start, end) = (key(b"a", &[2, 5]), key(b"b", &[2, 9]));
        let mut ranges = FoundRanges::new(true);
        let mut of = |found: &[u8]| ranges.of(found, &start, &end).unwrap();
        let whole = of(&key(b"a", STATIC_POSITION));
        assert_eq!(whole.static_row, static_row(b"a"));
        assert_eq!(whole.rows, (start.clone(), key(b"a", PARTITION_END)));
        let row = of(&key(b"b", &[2, 1]));
        assert_eq!(row.static_row, static_row(b"b"));
        assert_eq!(row.rows, (key(b"b", &[2, 1]), key(b"b", &[2, 1, 0])));
        assert_eq!(of(&key(b"b", &[2, 7])).static_row, None);
        let mut without = FoundRanges::new(false);
        let whole = without.of(&key(b"b", STATIC_POSITION), &start, &end).unwrap();
        assert_eq!((whole.static_row, whole.rows), (None, (key(b"b", STATIC_POSITION), end.clone())));
    }
}
