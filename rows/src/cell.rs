//! The parts of a row: deletions, liveness, cells. Which of two versions of a part wins. Ranges of timestamps.
//!
//! The `merge` functions are pure, commutative, associative and idempotent. Times: timestamps are microseconds
//! chosen by the writer, times of deletion and expiry are seconds since the epoch.

use std::cmp::Ordering;

/// The oldest and the newest timestamp of a set, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampRange {
    oldest: i64,
    newest: i64,
}

impl Default for TimestampRange {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl TimestampRange {
    /// The range of an empty set.
    pub const EMPTY: Self = Self { oldest: i64::MAX, newest: i64::MIN };

    /// Adds a timestamp to the set.
    #[inline]
    pub fn include(&mut self, timestamp: i64) {
        self.oldest = self.oldest.min(timestamp);
        self.newest = self.newest.max(timestamp);
    }

    /// Adds the timestamps of another set.
    #[inline]
    pub fn include_all(&mut self, other: Self) {
        self.oldest = self.oldest.min(other.oldest);
        self.newest = self.newest.max(other.newest);
    }

    /// The oldest one; `None` for an empty set.
    #[inline]
    pub fn oldest(self) -> Option<i64> {
        (self.oldest <= self.newest).then_some(self.oldest)
    }

    /// The newest one; `None` for an empty set.
    #[inline]
    pub fn newest(self) -> Option<i64> {
        (self.oldest <= self.newest).then_some(self.newest)
    }
}

/// Deletes all data in its reach whose timestamp is not greater than `timestamp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deletion {
    /// Microseconds.
    pub timestamp: i64,
    /// Seconds since the epoch. The grace period starts here; compaction may purge the deletion after it.
    pub local_deletion_time: u32,
}

impl Deletion {
    /// Whether the deletion shadows data with this timestamp.
    #[inline]
    pub fn shadows(self, timestamp: i64) -> bool {
        timestamp <= self.timestamp
    }
}

/// The stronger of two optional deletions.
#[inline]
pub fn stronger(left: Option<Deletion>, right: Option<Deletion>) -> Option<Deletion> {
    left.max(right)
}

/// A limited lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Expiry {
    /// Seconds, as asked for by the writer.
    pub ttl: u32,
    /// Seconds since the epoch; from this second on the data counts as deleted.
    pub expires_at: u32,
}

impl Expiry {
    #[inline]
    pub fn is_expired(self, now_seconds: u32) -> bool {
        self.expires_at <= now_seconds
    }

    #[inline]
    fn rank(self) -> (u32, u32) {
        (self.expires_at, self.ttl)
    }
}

/// Marks that a row exists even without cells. INSERT writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Liveness {
    /// Microseconds.
    pub timestamp: i64,
    pub expiry: Option<Expiry>,
}

impl Liveness {
    #[inline]
    pub fn is_expired(&self, now_seconds: u32) -> bool {
        self.expiry.is_some_and(|expiry| expiry.is_expired(now_seconds))
    }

    /// The winner of two versions: the newer one; at a tie the expiring one, then the one that expires later.
    #[inline]
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let rank = |liveness: &Self| (liveness.timestamp, liveness.expiry.map(Expiry::rank));
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// The kinds of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellKind {
    Live,
    Expiring(Expiry),
    /// A deleted cell; it has no value.
    Tombstone {
        /// Seconds since the epoch.
        local_deletion_time: u32,
    },
    /// The value is a counter context: n x (id 16 bytes, clock i64 big endian, count i64 big endian) by id.
    Counter,
}

/// One column's value, or one element of a collection column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell<'a> {
    pub column: u32,
    /// Empty for a simple column, else the element's key.
    pub path: &'a [u8],
    /// Microseconds.
    pub timestamp: i64,
    pub kind: CellKind,
    /// Wire bytes.
    pub value: &'a [u8],
}

/// The place of a cell in its row. Cells are ordered by column, then path.
#[derive(Debug, Clone, Copy, Eq)]
pub struct Address<'a> {
    pub column: u32,
    pub path: &'a [u8],
}

impl Ord for Address<'_> {
    /// Most paths are empty, and `memcmp` is not called for them: the call would cost more than the rest of the comparison. It is
    /// slowest where it loads under an empty mask (glibc's version for AVX-512): the address of an empty slice need not be
    /// mapped, and the processor then falls back to microcode.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.column.cmp(&other.column).then_with(|| {
            if self.path.is_empty() || other.path.is_empty() {
                self.path.len().cmp(&other.path.len())
            } else {
                self.path.cmp(other.path)
            }
        })
    }
}

impl PartialOrd for Address<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Address<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.column == other.column
            && self.path.len() == other.path.len()
            && (self.path.is_empty() || self.path == other.path)
    }
}

/// An [`Address`] that owns its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressBuf {
    pub column: u32,
    pub path: Vec<u8>,
}

impl AddressBuf {
    /// The address without a copy of the path.
    #[inline]
    pub fn view(&self) -> Address<'_> {
        Address { column: self.column, path: &self.path }
    }
}

impl From<Address<'_>> for AddressBuf {
    fn from(address: Address<'_>) -> Self {
        Self { column: address.column, path: address.path.to_vec() }
    }
}

impl<'a> Cell<'a> {
    /// The place of the cell in its row.
    #[inline]
    pub fn address(&self) -> Address<'a> {
        Address { column: self.column, path: self.path }
    }

    /// The most bytes that the cell takes in a row.
    #[inline]
    pub fn encoded_bytes_max(&self) -> usize {
        /// Numbers and lengths of a cell.
        const NUMBERS_BYTES: usize = 64;
        self.path.len() + self.value.len() + NUMBERS_BYTES
    }

    /// Whether a reader at `now_seconds` sees the cell's value.
    #[inline]
    pub fn is_live(&self, now_seconds: u32) -> bool {
        match self.kind {
            CellKind::Live | CellKind::Counter => true,
            CellKind::Expiring(expiry) => !expiry.is_expired(now_seconds),
            CellKind::Tombstone { .. } => false,
        }
    }

    /// Compares two versions of one cell; `Greater` means that `self` wins. The newer version wins; at a tie a tombstone, then an
    /// expiring cell, then a live one; then the later expiry, then the larger value. Two counter cells are merged instead.
    #[inline]
    pub fn compare_versions(&self, other: &Self) -> Ordering {
        let is_counter = |cell: &Self| cell.kind == CellKind::Counter;
        if is_counter(self) != is_counter(other) {
            // A counter's timestamp is unrelated to its increments, so its deletion always wins.
            return is_counter(other).cmp(&is_counter(self));
        }
        self.timestamp.cmp(&other.timestamp).then_with(|| {
            let rank = |cell: &Self| match cell.kind {
                CellKind::Live | CellKind::Counter => (0, 0, 0),
                CellKind::Expiring(expiry) => (1, expiry.expires_at, expiry.ttl),
                CellKind::Tombstone { local_deletion_time } => (2, local_deletion_time, 0),
            };
            rank(self).cmp(&rank(other)).then_with(|| self.value.cmp(other.value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRING: CellKind = CellKind::Expiring(Expiry { ttl: 10, expires_at: 100 });
    const TOMBSTONE: CellKind = CellKind::Tombstone { local_deletion_time: 5 };

    fn cell(timestamp: i64, kind: CellKind, value: &[u8]) -> Cell<'_> {
        Cell { column: 1, path: &[], timestamp, kind, value }
    }

    #[test]
    fn ranges_of_timestamps_reach_to_the_ends() {
        let mut range = TimestampRange::EMPTY;
        assert_eq!((range.oldest(), range.newest()), (None, None));
        range.include(i64::MAX);
        assert_eq!((range.oldest(), range.newest()), (Some(i64::MAX), Some(i64::MAX)));
        range.include_all(TimestampRange::EMPTY);
        let mut other = TimestampRange::EMPTY;
        other.include(i64::MIN);
        range.include_all(other);
        assert_eq!((range.oldest(), range.newest()), (Some(i64::MIN), Some(i64::MAX)));
    }

    #[test]
    fn versions_are_ranked_as_documented() {
        let ascending = [
            cell(1, TOMBSTONE, b""),
            cell(2, CellKind::Live, b"a"),
            cell(2, CellKind::Live, b"b"),
            cell(2, EXPIRING, b"a"),
            cell(2, EXPIRING, b"b"),
            cell(2, CellKind::Expiring(Expiry { ttl: 10, expires_at: 101 }), b"a"),
            cell(2, TOMBSTONE, b""),
            cell(3, CellKind::Live, b""),
        ];
        for pair in ascending.windows(2) {
            assert_eq!(pair[0].compare_versions(&pair[1]), Ordering::Less, "{pair:?}");
        }
    }

    #[test]
    fn the_expiring_liveness_wins_a_tie() {
        let plain = Liveness { timestamp: 1, expiry: None };
        let expiring = Liveness { timestamp: 1, expiry: Some(Expiry { ttl: 1, expires_at: 2 }) };
        assert_eq!(plain.merge(expiring), expiring);
        assert_eq!(expiring.merge(plain), expiring);
    }
}
