//! Random mutations and ranges over a small key space, so that they often overlap.

use helenus_engine::io::SplitMix64;
use helenus_engine::key::{self, full_key};
use helenus_engine::{
    Cell, CellKind, Deletion, Expiry, Liveness, Mutation, MutationBuilder, RowBuilder, TableId,
};

/// The deviation of timestamps from the clock. It is far less than the grace period of the tables.
const SKEW_MICROS: u64 = 4_000_000;
/// The columns whose cells have paths. The columns before them are simple.
pub const COLLECTION_COLUMNS: std::ops::Range<u32> = 4..6;

pub struct Generator {
    pub random: SplitMix64,
    pub partitions: u64,
    pub rows: u64,
    /// Values up to this length.
    pub value_bytes_max: u64,
    /// Rows are written only within a window of this many positions, which moves with time; `None`: anywhere.
    pub window_rows: Option<u64>,
    /// The number of operations of which ...
    pub operations: u64,
    /// ... this many delete ranges.
    pub range_deletes: u64,
}

/// How long a window of positions stays in place.
const WINDOW_STEP_MICROS: i64 = 20_000_000;

/// Two components, the first of which groups rows for range deletions.
fn regular_position(number: u64) -> Vec<u8> {
    vec![key::REGULAR_TAG, 0x10 + (number / 8) as u8, 0x20, b'c', 0x10 + number as u8]
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self {
            random: SplitMix64::new(seed),
            partitions: 24,
            rows: 60,
            value_bytes_max: 40,
            window_rows: None,
            operations: 25,
            range_deletes: 1,
        }
    }

    pub fn partition(&mut self) -> (i64, Vec<u8>) {
        let number = self.random.below(self.partitions);
        // Some partitions share a token.
        let token = (number / 2) as i64 * 1_000_003 - 5_000_000;
        (token, format!("partition-{number}").into_bytes())
    }

    pub fn position(&mut self) -> Vec<u8> {
        if self.random.chance(1, 20) {
            return key::STATIC_POSITION.to_vec();
        }
        let number = self.random.below(self.rows);
        regular_position(number)
    }

    fn written_position(&mut self, now_micros: i64) -> Vec<u8> {
        match self.window_rows {
            Some(window) if !self.random.chance(1, 200) => {
                let step = (now_micros / WINDOW_STEP_MICROS) as u64;
                regular_position((step + self.random.below(window)) % self.rows)
            }
            _ => self.position(),
        }
    }

    /// A bound of positions: before a row, behind a row, behind a group, or of the whole partition.
    fn bound(&mut self) -> Vec<u8> {
        let mut position = self.position();
        match self.random.below(6) {
            0 => key::PARTITION_START.to_vec(),
            1 => key::PARTITION_END.to_vec(),
            2 => {
                position.truncate(2);
                position.push(0xFF);
                position
            }
            3 => {
                position.push(0);
                position
            }
            _ => position,
        }
    }

    /// Two ordered bounds.
    pub fn bounds(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (first, second) = (self.bound(), self.bound());
        if first <= second { (first, second) } else { (second, first) }
    }

    /// A range of full keys: one row, a part of a partition, some partitions, or everything.
    pub fn range(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (token, partition_key) = self.partition();
        let full = |position: &[u8]| full_key(token, &partition_key, position).unwrap();
        match self.random.below(10) {
            0..3 => {
                let start = full(&self.position());
                let mut end = start.clone();
                end.push(0);
                (start, end)
            }
            3..7 => {
                let (start, end) = self.bounds();
                (full(&start), full(&end))
            }
            7..9 => {
                let (other_token, other_key) = self.partition();
                let other = full_key(other_token, &other_key, &self.bound()).unwrap();
                let this = full(&self.bound());
                if this <= other { (this, other) } else { (other, this) }
            }
            _ => (vec![], vec![0xFF; 9]),
        }
    }

    fn timestamp(&mut self, now_micros: i64) -> i64 {
        // Coarse, so that ties happen.
        let timestamp = now_micros - self.random.below(SKEW_MICROS) as i64;
        if self.random.chance(1, 2) { timestamp - timestamp % 1_000_000 } else { timestamp }
    }

    fn expiry(&mut self, now_seconds: u32) -> Option<Expiry> {
        if !self.random.chance(1, 6) {
            return None;
        }
        let ttl = 1 + self.random.below(200) as u32;
        Some(Expiry { ttl, expires_at: now_seconds + ttl })
    }

    fn value(&mut self) -> Vec<u8> {
        let length = self.random.below(self.value_bytes_max + 1);
        (0..length).map(|_| b'a' + self.random.below(4) as u8).collect()
    }

    fn row(&mut self, now_micros: i64) -> RowBuilder {
        let now_seconds = (now_micros / 1_000_000) as u32;
        let mut row = RowBuilder::new();
        let timestamp = self.timestamp(now_micros);
        let deletion = Deletion { timestamp, local_deletion_time: now_seconds };
        match self.random.below(20) {
            0 => {
                row.set_deletion(deletion);
                return row;
            }
            1 => {
                let column = COLLECTION_COLUMNS.start + self.random.below(2) as u32;
                row.delete_column(column, deletion);
            }
            _ => {}
        }
        let expiry = self.expiry(now_seconds);
        if self.random.chance(1, 2) {
            row.set_liveness(Liveness { timestamp, expiry });
        }
        for _ in 0..=self.random.below(4) {
            let column = self.random.below(u64::from(COLLECTION_COLUMNS.end)) as u32;
            let path: &[u8] = if COLLECTION_COLUMNS.contains(&column) {
                [&b"k1"[..], b"k2", b"k"][self.random.below(3) as usize]
            } else {
                &[]
            };
            let value = self.value();
            let kind = if self.random.chance(1, 8) {
                CellKind::Tombstone { local_deletion_time: now_seconds }
            } else {
                expiry.map_or(CellKind::Live, CellKind::Expiring)
            };
            let timestamp = if self.random.chance(1, 4) { self.timestamp(now_micros) } else { timestamp };
            row.cell(Cell { column, path, timestamp, kind, value: &value });
        }
        row
    }

    /// A mutation of one to three operations.
    pub fn mutation(&mut self, table: TableId, now_micros: i64) -> Mutation {
        let (token, partition_key) = self.partition();
        let mut builder = MutationBuilder::new(table, token, &partition_key).unwrap();
        for _ in 0..=self.random.below(3) {
            if self.random.chance(self.range_deletes, self.operations) {
                let timestamp = self.timestamp(now_micros);
                let local_deletion_time = (now_micros / 1_000_000) as u32;
                let deletion = Deletion { timestamp, local_deletion_time };
                // Where there are many, most partitions must keep some of them apart.
                if self.random.chance(1, 10 * self.range_deletes) {
                    builder.delete_partition(deletion);
                } else {
                    let (start, end) = self.bounds();
                    builder.delete_range(&start, &end, deletion);
                }
            } else {
                let position = self.written_position(now_micros);
                builder.row(&position, &mut self.row(now_micros));
            }
        }
        builder.build()
    }
}
