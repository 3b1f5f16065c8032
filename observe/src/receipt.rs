//! What a request cost: counts of its work on all nodes, and one number that is charged for it (docs/costs.md).
//!
//! Invariants:
//! * A count has its name and its number in messages for ever. New ones go to the end; nobody minds numbers that it does not know.
//! * The charge follows from what a request reads and writes and from the replicas that its level names. Times, caches, files and what was
//!   really sent are not in it, so the same request on the same data is charged the same.

use std::fmt::Write;

/// The version of the text of a receipt.
pub const RECEIPT_VERSION: u64 = 1;

/// A range of rows that a replica is asked for.
pub const CHARGE_OF_RANGE: u64 = 10;
/// A partition that a replica writes.
pub const CHARGE_OF_WRITE: u64 = 20;
/// A partition whose replicas agree on a transaction, in addition.
pub const CHARGE_OF_TRANSACTION: u64 = 30;
/// Bytes that are charged together.
pub const CHARGED_BYTES: u64 = 1_024;
/// Deleted and expired rows and cells that are charged together.
pub const CHARGED_TOMBSTONES: u64 = 10;

/// What is counted. The order is that of the numbers in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Partitions and ranges of partitions that were asked for.
    RangesRead,
    /// Partitions with rows.
    PartitionsRead,
    /// Live rows that were read, also those that filters left out.
    RowsRead,
    CellsRead,
    /// Of the keys and values of those rows.
    BytesRead,
    /// Deleted and expired rows and cells that were passed.
    TombstonesRead,
    /// Replicas that each range needs by the consistency level: the largest number among them.
    ReplicasRead,
    PartitionsWritten,
    RowsWritten,
    /// Deleted cells and deletions of ranges are among them.
    CellsWritten,
    /// Of the keys and values that were written.
    BytesWritten,
    /// Replicas of each partition that is written: the largest number among them.
    ReplicasWritten,
    /// Partitions with conditions.
    Transactions,
    /// Rows in the answer.
    RowsSent,
    /// Bytes of these rows.
    BytesSent,
    /// Bytes of mutations that commit logs have taken before the answer.
    BytesLogged,
    /// Requests to other nodes.
    Messages,
    /// Bytes of these requests and of their answers.
    BytesBetweenNodes,
    /// Table files that were looked into.
    FilesAsked,
    /// Filters of table files that were asked whether the file has a partition.
    FiltersAsked,
    /// Blocks of files that were found in memory, each time that one was looked for.
    BlocksFromCache,
    /// Blocks of files that were not in memory.
    BlocksFromDisk,
    /// Microseconds of the threads of shards.
    WorkedMicros,
    /// Microseconds of the coordinator in which the request did not have its thread.
    WaitedMicros,
    /// Microseconds of a processor that the threads of shards had meanwhile.
    CpuMicros,
}

/// The number of counts.
const COUNTS: usize = 25;

impl Count {
    pub const ALL: [Self; COUNTS] = [
        Self::RangesRead,
        Self::PartitionsRead,
        Self::RowsRead,
        Self::CellsRead,
        Self::BytesRead,
        Self::TombstonesRead,
        Self::ReplicasRead,
        Self::PartitionsWritten,
        Self::RowsWritten,
        Self::CellsWritten,
        Self::BytesWritten,
        Self::ReplicasWritten,
        Self::Transactions,
        Self::RowsSent,
        Self::BytesSent,
        Self::BytesLogged,
        Self::Messages,
        Self::BytesBetweenNodes,
        Self::FilesAsked,
        Self::FiltersAsked,
        Self::BlocksFromCache,
        Self::BlocksFromDisk,
        Self::WorkedMicros,
        Self::WaitedMicros,
        Self::CpuMicros,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::RangesRead => "ranges_read",
            Self::PartitionsRead => "partitions_read",
            Self::RowsRead => "rows_read",
            Self::CellsRead => "cells_read",
            Self::BytesRead => "bytes_read",
            Self::TombstonesRead => "tombstones_read",
            Self::ReplicasRead => "replicas_read",
            Self::PartitionsWritten => "partitions_written",
            Self::RowsWritten => "rows_written",
            Self::CellsWritten => "cells_written",
            Self::BytesWritten => "bytes_written",
            Self::ReplicasWritten => "replicas_written",
            Self::Transactions => "transactions",
            Self::RowsSent => "rows_sent",
            Self::BytesSent => "bytes_sent",
            Self::BytesLogged => "bytes_logged",
            Self::Messages => "messages",
            Self::BytesBetweenNodes => "bytes_between_nodes",
            Self::FilesAsked => "files_asked",
            Self::FiltersAsked => "filters_asked",
            Self::BlocksFromCache => "blocks_from_cache",
            Self::BlocksFromDisk => "blocks_from_disk",
            Self::WorkedMicros => "worked_us",
            Self::WaitedMicros => "waited_us",
            Self::CpuMicros => "cpu_us",
        }
    }

    /// Whether a number stands for the largest one met, not for a sum.
    fn is_largest(self) -> bool {
        matches!(self, Self::ReplicasRead | Self::ReplicasWritten)
    }
}

/// The counts of a request, or of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Receipt([u64; COUNTS]);

impl Receipt {
    pub fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    /// Adds to a count, or raises it where it stands for the largest number.
    pub fn add(&mut self, count: Count, number: u64) {
        let known = &mut self.0[count as usize];
        *known = if count.is_largest() { (*known).max(number) } else { known.saturating_add(number) };
    }

    /// Adds the counts of another part of the request.
    pub fn add_all(&mut self, other: &Self) {
        for count in Count::ALL {
            self.add(count, other.get(count));
        }
    }

    /// The counts of so many requests that are alike.
    #[must_use]
    pub fn repeated(&self, times: u64) -> Self {
        let mut repeated = *self;
        for count in Count::ALL.into_iter().filter(|count| !count.is_largest()) {
            let number = &mut repeated.0[count as usize];
            *number = number.saturating_mul(times);
        }
        repeated
    }

    /// Takes the count of a part of the request from an earlier state of this receipt.
    pub fn set_back(&mut self, counts: &[Count], earlier: &Self) {
        for count in counts {
            self.0[*count as usize] = earlier.get(*count);
        }
    }

    /// The numbers for a message, in the order of [`Count::ALL`].
    pub fn numbers(&self) -> &[u64] {
        &self.0
    }

    /// The receipt with numbers of a message. Those that are missing are zero, and those of a newer program are left out.
    pub fn of_numbers(numbers: &[u64]) -> Self {
        let mut receipt = Self::default();
        for (known, number) in receipt.0.iter_mut().zip(numbers) {
            *known = *number;
        }
        receipt
    }

    /// What the request is charged.
    pub fn charge(&self) -> u64 {
        let read = (CHARGE_OF_RANGE.saturating_mul(self.get(Count::RangesRead)))
            .saturating_add(self.get(Count::RowsRead))
            .saturating_add(self.get(Count::BytesRead).div_ceil(CHARGED_BYTES))
            .saturating_add(self.get(Count::TombstonesRead).div_ceil(CHARGED_TOMBSTONES));
        let written = (CHARGE_OF_WRITE.saturating_mul(self.get(Count::PartitionsWritten)))
            .saturating_add(CHARGE_OF_TRANSACTION.saturating_mul(self.get(Count::Transactions)))
            .saturating_add(2_u64.saturating_mul(self.get(Count::RowsWritten)))
            .saturating_add(4_u64.saturating_mul(self.get(Count::BytesWritten).div_ceil(CHARGED_BYTES)));
        let of_reads = read.saturating_mul(self.get(Count::ReplicasRead).max(1));
        of_reads.saturating_add(written.saturating_mul(self.get(Count::ReplicasWritten).max(1)))
    }

    /// The names and numbers as they are shown: the version of the text, the charge, and all counts.
    pub fn shown(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let first = [("version", RECEIPT_VERSION), ("charge", self.charge())];
        first.into_iter().chain(Count::ALL.into_iter().map(|count| (count.name(), self.get(count))))
    }

    /// The text that clients get: an object of JSON whose values are whole numbers.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(512);
        for (name, number) in self.shown() {
            let separator = if text.is_empty() { '{' } else { ',' };
            // Writing to a string cannot fail.
            let _ = write!(text, "{separator}\"{name}\":{number}");
        }
        text.push('}');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receipt(counts: &[(Count, u64)]) -> Receipt {
        let mut receipt = Receipt::default();
        for (count, number) in counts {
            receipt.add(*count, *number);
        }
        receipt
    }

    #[test]
    fn every_count_has_its_number_and_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = Count::ALL.iter().map(|count| count.name()).collect();
        assert_eq!(names.len(), COUNTS);
        for (number, count) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, number, "{}", count.name());
        }
    }

    #[test]
    fn golden_charges() {
        use Count::{
            BlocksFromDisk, BytesRead, BytesWritten, PartitionsWritten, RangesRead, ReplicasRead,
            ReplicasWritten, RowsRead, RowsWritten, TombstonesRead, Transactions, WorkedMicros,
        };
        let cases: [(&[(Count, u64)], u64); 9] = [
            (&[], 0),
            // A row that is not there.
            (&[(RangesRead, 1), (ReplicasRead, 1)], 10),
            // A small row by its key, at ONE and at QUORUM of three.
            (&[(RangesRead, 1), (ReplicasRead, 1), (RowsRead, 1), (BytesRead, 100)], 12),
            (&[(RangesRead, 1), (ReplicasRead, 2), (RowsRead, 1), (BytesRead, 100)], 24),
            // 1,024 bytes are charged as one, one more as two.
            (&[(RangesRead, 1), (ReplicasRead, 1), (RowsRead, 1), (BytesRead, 1_025)], 13),
            // Deletions that were passed.
            (&[(RangesRead, 1), (ReplicasRead, 1), (TombstonesRead, 1_001)], 111),
            // A small row that is written to three replicas, without and with a condition that has read it from two.
            (&[(PartitionsWritten, 1), (ReplicasWritten, 3), (RowsWritten, 1), (BytesWritten, 60)], 78),
            (
                &[
                    (RangesRead, 1),
                    (ReplicasRead, 2),
                    (RowsRead, 1),
                    (BytesRead, 60),
                    (PartitionsWritten, 1),
                    (ReplicasWritten, 3),
                    (RowsWritten, 1),
                    (BytesWritten, 60),
                    (Transactions, 1),
                ],
                192,
            ),
            // Neither times nor caches.
            (&[(WorkedMicros, 1_000_000), (BlocksFromDisk, 1_000)], 0),
        ];
        for (counts, charge) in cases {
            assert_eq!(receipt(counts).charge(), charge, "{counts:?}");
        }
        assert_eq!(Receipt([u64::MAX; COUNTS]).charge(), u64::MAX);
    }

    #[test]
    fn parts_are_added_and_the_largest_number_of_replicas_counts() {
        let mut whole = receipt(&[(Count::RowsRead, 2), (Count::ReplicasRead, 3)]);
        whole.add_all(&receipt(&[(Count::RowsRead, 5), (Count::ReplicasRead, 2)]));
        assert_eq!((whole.get(Count::RowsRead), whole.get(Count::ReplicasRead)), (7, 3));
        let earlier = receipt(&[(Count::RowsRead, 1)]);
        whole.set_back(&[Count::RowsRead], &earlier);
        assert_eq!((whole.get(Count::RowsRead), whole.get(Count::ReplicasRead)), (1, 3));
    }

    #[test]
    fn numbers_of_other_versions_are_understood() {
        let whole = receipt(&[(Count::RangesRead, 1), (Count::WaitedMicros, 9)]);
        assert_eq!(Receipt::of_numbers(whole.numbers()), whole);
        assert_eq!(Receipt::of_numbers(&[1]), receipt(&[(Count::RangesRead, 1)]));
        assert_eq!(Receipt::of_numbers(&[vec![0; COUNTS], vec![7]].concat()), Receipt::default());
    }

    #[test]
    fn golden_text() {
        let text = receipt(&[(Count::RangesRead, 1), (Count::RowsRead, 3), (Count::ReplicasRead, 2)]).text();
        let golden = "{\"version\":1,\"charge\":26,\"ranges_read\":1,\"partitions_read\":0,\"rows_read\":3,\
            \"cells_read\":0,\"bytes_read\":0,\"tombstones_read\":0,\"replicas_read\":2,\
            \"partitions_written\":0,\"rows_written\":0,\"cells_written\":0,\"bytes_written\":0,\
            \"replicas_written\":0,\"transactions\":0,\"rows_sent\":0,\"bytes_sent\":0,\"bytes_logged\":0,\
            \"messages\":0,\"bytes_between_nodes\":0,\"files_asked\":0,\"filters_asked\":0,\
            \"blocks_from_cache\":0,\"blocks_from_disk\":0,\"worked_us\":0,\"waited_us\":0,\"cpu_us\":0}";
        assert_eq!(text, golden);
    }
}
