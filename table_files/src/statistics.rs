//! The statistics of a table: counts, and bounds of times and keys.
//!
//! ```text
//! statistics := varints in the order of the fields below (signed ones zigzag, optional ones as 0 or value + 1)
//!               | length and bytes of the smallest key | length and bytes of the largest key | positions
//! positions  := 1 if there are static rows, else 0 | length and bytes of the first position of a regular row
//!               | length and bytes of the last (both empty without regular rows)
//! ```
//!
//! Version 1 ends before the positions.

use crate::cell::{CellKind, Deletion, Expiry};
use crate::codec::{DecodeError, Reader, put_bytes, put_signed, put_unsigned};
use crate::key::STATIC_POSITION;
use crate::row::{RowHead, RowRef};

/// Counts and bounds over all rows and range tombstones of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStatistics {
    pub rows: u64,
    pub partitions: u64,
    /// Cells of every kind.
    pub cells: u64,
    /// Deleted cells, row deletions, column deletions and range tombstones.
    pub tombstones: u64,
    /// Range tombstones alone.
    pub range_tombstones: u64,
    /// Cells and liveness marks with an expiry.
    pub expiring: u64,
    /// Bytes of all keys and rows before prefixes are shared and blocks compressed.
    pub raw_bytes: u64,
    /// Rows of the largest partition, and their raw bytes.
    pub largest_partition_rows: u64,
    pub largest_partition_bytes: u64,
    /// Smallest and largest timestamp, microseconds; `i64::MAX` and `i64::MIN` while there is none.
    pub min_timestamp: i64,
    pub max_timestamp: i64,
    /// Smallest and largest time, in seconds since the epoch, at which something was deleted or expires.
    pub min_deletion_time: Option<u32>,
    pub max_deletion_time: Option<u32>,
    /// Smallest and largest TTL of anything that expires, seconds.
    pub min_ttl: Option<u32>,
    pub max_ttl: Option<u32>,
    /// Cells and liveness marks that are not deleted and do not expire. If it is 0, the whole table can be purged after
    /// `max_deletion_time` plus the grace period.
    pub permanent: u64,
    /// Smallest and largest full key of a row; bounds of range tombstones are included (their end counts as a key).
    pub min_key: Vec<u8>,
    pub max_key: Vec<u8>,
    /// `None`: unknown, in a file of version 1.
    pub positions: Option<Positions>,
}

/// The positions of a table's rows, over all partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Positions {
    /// Whether there is any static row.
    pub has_static: bool,
    /// Smallest and largest position of a regular row; empty while there is none.
    pub first: Vec<u8>,
    pub last: Vec<u8>,
}

impl Positions {
    /// Adds the position of a row.
    pub(super) fn add(&mut self, position: &[u8]) {
        // Without clustering columns all positions are equal.
        if position == self.last.as_slice() {
            return;
        }
        if position == STATIC_POSITION {
            self.has_static = true;
            return;
        }
        if self.first.is_empty() || position < self.first.as_slice() {
            self.first = position.to_vec();
        }
        if position > self.last.as_slice() {
            self.last.clear();
            self.last.extend_from_slice(position);
        }
    }
}

impl Positions {
    fn add_later(&mut self, later: &Self) {
        self.has_static |= later.has_static;
        for position in [&later.first, &later.last].into_iter().filter(|position| !position.is_empty()) {
            self.add(position);
        }
    }
}

impl Default for TableStatistics {
    fn default() -> Self {
        Self {
            rows: 0,
            partitions: 0,
            cells: 0,
            tombstones: 0,
            range_tombstones: 0,
            expiring: 0,
            raw_bytes: 0,
            largest_partition_rows: 0,
            largest_partition_bytes: 0,
            min_timestamp: i64::MAX,
            max_timestamp: i64::MIN,
            min_deletion_time: None,
            max_deletion_time: None,
            min_ttl: None,
            max_ttl: None,
            permanent: 0,
            min_key: Vec::new(),
            max_key: Vec::new(),
            positions: Some(Positions::default()),
        }
    }
}

fn widen(min: &mut Option<u32>, max: &mut Option<u32>, value: u32) {
    *min = Some(min.map_or(value, |present| present.min(value)));
    *max = (*max).max(Some(value));
}

fn put_optional(out: &mut Vec<u8>, value: Option<u32>) {
    put_unsigned(out, value.map_or(0, |value| u64::from(value) + 1));
}

fn read_optional(reader: &mut Reader<'_>, what: &'static str) -> Result<Option<u32>, DecodeError> {
    match reader.unsigned(what)?.checked_sub(1) {
        None => Ok(None),
        Some(value) => u32::try_from(value).map(Some).map_err(|_| DecodeError::Overflow { what }),
    }
}

impl TableStatistics {
    /// Adds the rows of a later piece of the table. A partition that both have a part of counts in the first one only.
    pub(super) fn add_later(&mut self, later: &Self) {
        if self.rows == 0 {
            self.min_key.clone_from(&later.min_key);
        }
        self.rows += later.rows;
        self.partitions += later.partitions;
        self.cells += later.cells;
        self.tombstones += later.tombstones;
        self.range_tombstones += later.range_tombstones;
        self.expiring += later.expiring;
        self.raw_bytes += later.raw_bytes;
        self.largest_partition_rows = self.largest_partition_rows.max(later.largest_partition_rows);
        self.largest_partition_bytes = self.largest_partition_bytes.max(later.largest_partition_bytes);
        self.min_timestamp = self.min_timestamp.min(later.min_timestamp);
        self.max_timestamp = self.max_timestamp.max(later.max_timestamp);
        for time in [later.min_deletion_time, later.max_deletion_time].into_iter().flatten() {
            self.add_deletion_time(time);
        }
        for ttl in [later.min_ttl, later.max_ttl].into_iter().flatten() {
            widen(&mut self.min_ttl, &mut self.max_ttl, ttl);
        }
        self.permanent += later.permanent;
        match (&mut self.positions, &later.positions) {
            (Some(own), Some(later)) => own.add_later(later),
            (own, _) => *own = None,
        }
    }

    /// Adds a row. Returns one of its timestamps, if it has any.
    pub(super) fn add_row(&mut self, key: &[u8], row: RowRef<'_>) -> Result<Option<i64>, DecodeError> {
        let RowHead { liveness, deletion, column_deletions, cells } = row.head()?;
        let mut some_timestamp = None;
        self.rows += 1;
        self.raw_bytes += (key.len() + row.bytes.len()) as u64;
        if let Some(liveness) = liveness {
            some_timestamp = Some(liveness.timestamp);
            self.add_timestamp(liveness.timestamp);
            self.add_expiry(liveness.expiry);
        }
        for deletion in deletion.into_iter().chain(column_deletions.map(|(_, deletion)| deletion)) {
            some_timestamp = some_timestamp.or(Some(deletion.timestamp));
            self.add_deletion(deletion);
        }
        let mut previous = some_timestamp;
        for cell in cells {
            self.cells += 1;
            if previous != Some(cell.timestamp) {
                self.add_timestamp(cell.timestamp);
                previous = Some(cell.timestamp);
                some_timestamp = some_timestamp.or(previous);
            }
            match cell.kind {
                CellKind::Live | CellKind::Counter => self.permanent += 1,
                CellKind::Expiring(expiry) => self.add_expiry(Some(expiry)),
                CellKind::Tombstone { local_deletion_time } => {
                    self.tombstones += 1;
                    self.add_deletion_time(local_deletion_time);
                }
            }
        }
        Ok(some_timestamp)
    }

    /// Adds a deletion of any kind except that of a cell.
    pub(super) fn add_deletion(&mut self, deletion: Deletion) {
        self.tombstones += 1;
        self.add_timestamp(deletion.timestamp);
        self.add_deletion_time(deletion.local_deletion_time);
    }

    fn add_expiry(&mut self, expiry: Option<Expiry>) {
        let Some(expiry) = expiry else {
            self.permanent += 1;
            return;
        };
        self.expiring += 1;
        self.add_deletion_time(expiry.expires_at);
        widen(&mut self.min_ttl, &mut self.max_ttl, expiry.ttl);
    }

    fn add_deletion_time(&mut self, seconds: u32) {
        widen(&mut self.min_deletion_time, &mut self.max_deletion_time, seconds);
    }

    fn add_timestamp(&mut self, timestamp: i64) {
        self.min_timestamp = self.min_timestamp.min(timestamp);
        self.max_timestamp = self.max_timestamp.max(timestamp);
    }

    /// Whether the table contains deletions or expiring data.
    pub fn has_mortal(&self) -> bool {
        self.max_deletion_time.is_some()
    }

    /// Whether the table may have a row or range tombstone at this key.
    #[inline]
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.rows + self.range_tombstones > 0
            && self.min_key.as_slice() <= key
            && key <= self.max_key.as_slice()
    }

    /// Whether the table may have a row or range tombstone in the keys `[start, end)`.
    pub fn may_overlap(&self, start: &[u8], end: &[u8]) -> bool {
        self.rows + self.range_tombstones > 0
            && self.min_key.as_slice() < end
            && start <= self.max_key.as_slice()
    }

    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        for number in [
            self.rows,
            self.partitions,
            self.cells,
            self.tombstones,
            self.range_tombstones,
            self.expiring,
            self.raw_bytes,
            self.largest_partition_rows,
            self.largest_partition_bytes,
        ] {
            put_unsigned(out, number);
        }
        put_signed(out, self.min_timestamp);
        put_signed(out, self.max_timestamp);
        for time in [self.min_deletion_time, self.max_deletion_time, self.min_ttl, self.max_ttl] {
            put_optional(out, time);
        }
        put_unsigned(out, self.permanent);
        put_bytes(out, &self.min_key);
        put_bytes(out, &self.max_key);
        if let Some(Positions { has_static, first, last }) = &self.positions {
            put_unsigned(out, u64::from(*has_static));
            put_bytes(out, first);
            put_bytes(out, last);
        }
    }

    /// `has_positions`: the file's version stores positions.
    pub(super) fn read(bytes: &[u8], has_positions: bool) -> Result<Self, DecodeError> {
        const WHAT: &str = "a table's statistics";
        let mut reader = Reader::new(bytes);
        let mut numbers = [0; 9];
        for number in &mut numbers {
            *number = reader.unsigned(WHAT)?;
        }
        let [rows, partitions, cells, tombstones, range_tombstones, expiring, raw_bytes, ref largest @ ..] =
            numbers;
        let [largest_partition_rows, largest_partition_bytes] = *largest;
        let statistics = Self {
            rows,
            partitions,
            cells,
            tombstones,
            range_tombstones,
            expiring,
            raw_bytes,
            largest_partition_rows,
            largest_partition_bytes,
            min_timestamp: reader.signed(WHAT)?,
            max_timestamp: reader.signed(WHAT)?,
            min_deletion_time: read_optional(&mut reader, WHAT)?,
            max_deletion_time: read_optional(&mut reader, WHAT)?,
            min_ttl: read_optional(&mut reader, WHAT)?,
            max_ttl: read_optional(&mut reader, WHAT)?,
            permanent: reader.unsigned(WHAT)?,
            min_key: reader.bytes(WHAT)?.to_vec(),
            max_key: reader.bytes(WHAT)?.to_vec(),
            positions: has_positions.then(|| Positions::read(&mut reader)).transpose()?,
        };
        if reader.is_empty() {
            Ok(statistics)
        } else {
            Err(DecodeError::Trailing { what: WHAT, count: reader.rest().len() })
        }
    }
}

impl Positions {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "the positions of a table's rows";
        let has_static = match reader.unsigned(WHAT)? {
            0 => false,
            1 => true,
            value => return Err(DecodeError::Invalid { what: WHAT, value }),
        };
        Ok(Self { has_static, first: reader.bytes(WHAT)?.to_vec(), last: reader.bytes(WHAT)?.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_and_round_trip() {
        let statistics = TableStatistics {
            rows: 1,
            partitions: 2,
            cells: 3,
            tombstones: 4,
            range_tombstones: 5,
            expiring: 6,
            raw_bytes: 300,
            largest_partition_rows: 8,
            largest_partition_bytes: 9,
            min_timestamp: -1,
            max_timestamp: 1,
            min_deletion_time: None,
            max_deletion_time: Some(0),
            min_ttl: Some(1),
            max_ttl: Some(126),
            permanent: 10,
            min_key: b"a".to_vec(),
            max_key: b"bc".to_vec(),
            positions: Some(Positions { has_static: true, first: b"d".to_vec(), last: b"ef".to_vec() }),
        };
        let mut bytes = Vec::new();
        statistics.write_to(&mut bytes);
        let version_1 = [1, 2, 3, 4, 5, 6, 0xAC, 2, 8, 9, 1, 2, 0, 1, 2, 127, 10, 1, b'a', 2, b'b', b'c'];
        assert_eq!(bytes[..version_1.len()], version_1);
        assert_eq!(bytes[version_1.len()..], [1, 1, b'd', 2, b'e', b'f']);
        let older = TableStatistics { positions: None, ..statistics.clone() };
        assert_eq!(TableStatistics::read(&version_1, false), Ok(older));
        assert_eq!(TableStatistics::read(&bytes, true), Ok(statistics));
        for length in 0..bytes.len() {
            assert!(TableStatistics::read(&bytes[..length], true).is_err());
        }
        assert!(TableStatistics::read(&bytes, false).is_err());
        bytes.push(0);
        assert!(TableStatistics::read(&bytes, true).is_err());
        bytes[version_1.len()] = 2;
        assert!(TableStatistics::read(&bytes, true).is_err(), "neither 0 nor 1");
    }
}
