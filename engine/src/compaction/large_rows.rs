//! Rows that a merge found to be large. Most have grown cell by cell, so no limit of a single statement applied to them. A row
//! above [`MERGED_ROW_BYTES_MAX`] can no longer be read as a whole, so an operator is warned long before.

use crate::key::KeyRef;
use crate::mutation::TableId;
use crate::reconcile::MERGED_ROW_BYTES_MAX;

/// A row of at least this size is large.
pub(crate) const LARGE_ROW_BYTES: usize = MERGED_ROW_BYTES_MAX / 8;
/// Bytes of a partition key that a warning shows.
const SHOWN_KEY_BYTES: usize = 64;

/// The large rows of one merge.
#[derive(Debug, Default)]
pub(crate) struct LargeRows {
    pub count: u64,
    largest_bytes: usize,
    largest_key: Vec<u8>,
}

impl LargeRows {
    /// Takes note of a row of the result.
    #[inline]
    pub fn note(&mut self, full_key: &[u8], row_bytes: usize) {
        if row_bytes >= LARGE_ROW_BYTES {
            self.add(full_key, row_bytes);
        }
    }

    #[cold]
    fn add(&mut self, full_key: &[u8], row_bytes: usize) {
        self.count += 1;
        if row_bytes > self.largest_bytes {
            self.largest_bytes = row_bytes;
            self.largest_key.clear();
            self.largest_key.extend_from_slice(full_key);
        }
    }

    /// Adds those of another part of the merge.
    pub fn add_all(&mut self, other: Self) {
        self.count += other.count;
        if other.largest_bytes > self.largest_bytes {
            (self.largest_bytes, self.largest_key) = (other.largest_bytes, other.largest_key);
        }
    }

    /// Says which row is the largest, if there is any.
    pub fn warn(&self, table: TableId) {
        let Ok(KeyRef { token, partition_key, .. }) = KeyRef::parse(&self.largest_key) else { return };
        let shown = partition_key.get(..SHOWN_KEY_BYTES).unwrap_or(partition_key);
        tracing::warn!(
            %table, rows = self.count, largest_bytes = self.largest_bytes, token, partition_key = %hex(shown),
            "a compaction has met large rows; a row above {MERGED_ROW_BYTES_MAX} bytes cannot be read as a whole"
        );
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold("0x".to_owned(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_the_large_rows_is_kept() {
        let mut rows = LargeRows::default();
        for (key, bytes) in [
            ("a", LARGE_ROW_BYTES - 1),
            ("b", LARGE_ROW_BYTES),
            ("c", 2 * LARGE_ROW_BYTES),
            ("d", LARGE_ROW_BYTES),
        ] {
            rows.note(key.as_bytes(), bytes);
        }
        assert_eq!(
            (rows.count, rows.largest_bytes, rows.largest_key.as_slice()),
            (3, 2 * LARGE_ROW_BYTES, &b"c"[..])
        );
    }
}
