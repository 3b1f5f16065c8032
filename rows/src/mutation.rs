//! A mutation: the changes to one partition of one table. The commit log keeps this encoding, and nodes send it to each other.
//!
//! ```text
//! mutation  := version u8 (1) | table id 16 bytes | token i64 big endian | partition key (length, bytes)
//!              | operations up to the end
//! operation := 1 | position (length, bytes) | row (length, bytes; base 0)
//!            | 2 | start position (length, bytes) | end position | timestamp zigzag | local deletion time
//! ```
//!
//! Operations come in any order and may repeat positions: reconciliation makes the order irrelevant.
//!
//! A mutation may have *companions*: mutations of other tables that belong to it. They are written together or not at all
//! ([`companions`]).

mod companions;
mod split;

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;

use crate::cell::{Cell, Deletion, Liveness, TimestampRange};
use crate::codec::{DecodeError, Reader, put_bytes, put_signed, put_unsigned};
use crate::key::{self, MAX_PARTITION_KEY_BYTES, PartitionKeyTooLong};
use crate::row::RowRef;
use crate::row_writer::{RowBuilder, RowWriter};

/// The version of the encoding.
pub const MUTATION_VERSION: u8 = 1;
/// The largest mutation that is read, in bytes. Memtable, log and table files address the bytes of a row with 32 bits.
pub const MUTATION_BYTES_MAX: usize = 1 << 30;
const _: () = assert!(MUTATION_BYTES_MAX < u32::MAX as usize / 2);

/// The largest mutation that a shard takes, in bytes: every layer below can hold it.
pub const WRITE_BYTES_MAX: usize = 32 << 20;
const _: () = assert!(WRITE_BYTES_MAX < MUTATION_BYTES_MAX);
const ROW: u8 = 1;
const RANGE_TOMBSTONE: u8 = 2;

/// The identity of a table. It is never reused: a table that is dropped and created again gets another id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub [u8; 16]);

impl TableId {
    /// Reads an id as it is displayed: 32 hexadecimal digits. `None`: another text.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Self(u128::from_str_radix(text, 16).ok()?.to_be_bytes());
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TableId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// One change to a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    Row {
        position: &'a [u8],
        row: RowRef<'a>,
    },
    /// Deletes `[start, end)`.
    RangeTombstone {
        start: &'a [u8],
        end: &'a [u8],
        deletion: Deletion,
    },
}

/// Collects the changes to one partition.
#[derive(Debug, Clone)]
pub struct MutationBuilder {
    out: Vec<u8>,
    head_length: usize,
}

impl MutationBuilder {
    pub fn new(table: TableId, token: i64, partition_key: &[u8]) -> Result<Self, PartitionKeyTooLong> {
        Self::with_capacity(table, token, partition_key, 64)
    }

    /// As [`MutationBuilder::new`], with room for `change_bytes` of changes.
    pub fn with_capacity(
        table: TableId,
        token: i64,
        partition_key: &[u8],
        change_bytes: usize,
    ) -> Result<Self, PartitionKeyTooLong> {
        const HEAD_BYTES_MAX: usize = 32;
        if partition_key.len() > MAX_PARTITION_KEY_BYTES {
            return Err(PartitionKeyTooLong { bytes: partition_key.len() });
        }
        let mut out = Vec::with_capacity(HEAD_BYTES_MAX + partition_key.len() + change_bytes);
        out.push(MUTATION_VERSION);
        out.extend_from_slice(&table.0);
        out.extend_from_slice(&token.to_be_bytes());
        put_bytes(&mut out, partition_key);
        let head_length = out.len();
        Ok(Self { out, head_length })
    }

    /// Adds a row. An empty builder adds nothing.
    pub fn row(&mut self, position: &[u8], row: &mut RowBuilder) -> &mut Self {
        const LENGTHS_BYTES_MAX: usize = 16;
        self.out.reserve(LENGTHS_BYTES_MAX + position.len() + row.expected_bytes());
        let Ok(()) = self.write_row(position, |out| Ok::<_, Infallible>(row.write_to(0, out)));
        self
    }

    /// Adds a row that has only cells and perhaps a liveness. `write` writes the cells, ordered by (column, path). If it fails,
    /// nothing is added.
    #[inline]
    pub fn row_in_order<E>(
        &mut self,
        position: &[u8],
        liveness: Option<Liveness>,
        write: impl FnOnce(&mut RowWriter<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.write_row(position, |out| {
            let mut writer = RowWriter::begin(out, 0, liveness, None, &[]);
            write(&mut writer)?;
            Ok(writer.finish())
        })
    }

    /// Adds the row that `write` appends. If `write` fails or returns false, nothing is added.
    #[inline]
    fn write_row<E>(
        &mut self,
        position: &[u8],
        write: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let start = self.out.len();
        self.out.push(ROW);
        put_bytes(&mut self.out, position);
        let row_start = self.out.len();
        let written = write(&mut self.out);
        if let Ok(true) = written {
            // The length precedes the row, but is known only now.
            let row_end = self.out.len();
            put_unsigned(&mut self.out, (row_end - row_start) as u64);
            let length_bytes = self.out.len() - row_end;
            self.out[row_start..].rotate_right(length_bytes);
        } else {
            self.out.truncate(start);
        }
        written.map(|_| ())
    }

    /// Adds an encoded row (base 0).
    pub fn row_bytes(&mut self, position: &[u8], row: &[u8]) -> &mut Self {
        self.out.push(ROW);
        put_bytes(&mut self.out, position);
        put_bytes(&mut self.out, row);
        self
    }

    /// Adds a range tombstone for the positions `[start, end)`. An empty range adds nothing.
    pub fn delete_range(&mut self, start: &[u8], end: &[u8], deletion: Deletion) -> &mut Self {
        if start < end {
            self.out.push(RANGE_TOMBSTONE);
            put_bytes(&mut self.out, start);
            put_bytes(&mut self.out, end);
            put_signed(&mut self.out, deletion.timestamp);
            put_unsigned(&mut self.out, u64::from(deletion.local_deletion_time));
        }
        self
    }

    /// Deletes the whole partition.
    pub fn delete_partition(&mut self, deletion: Deletion) -> &mut Self {
        self.delete_range(key::PARTITION_START, key::PARTITION_END, deletion)
    }

    /// Whether there are no changes yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.out.len() == self.head_length
    }

    /// Bytes of the mutation so far.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.out.len()
    }

    pub fn build(self) -> Mutation {
        Mutation { bytes: self.out.into() }
    }
}

/// An owned, well-formed mutation. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    bytes: Bytes,
}

impl Mutation {
    /// Takes bytes from outside and checks all of them, those of companions too.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        for part in MutationRef::parse(&bytes)?.parts() {
            part?.validate()?;
        }
        Ok(Self { bytes })
    }

    /// The encoding.
    #[inline]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The view that the engine works on. The bytes were built by a [`MutationBuilder`] or validated, so there is no error in
    /// practice.
    #[inline]
    pub fn view(&self) -> Result<MutationRef<'_>, DecodeError> {
        MutationRef::parse(&self.bytes)
    }
}

/// A view of an encoded mutation with its head parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutationRef<'a> {
    /// The whole encoding, with companions.
    pub bytes: &'a [u8],
    pub table: TableId,
    pub token: i64,
    pub partition_key: &'a [u8],
    operations: &'a [u8],
    /// The encoded companions: empty for most mutations.
    companions: &'a [u8],
}

impl<'a> MutationRef<'a> {
    /// Parses the head; the operations are checked while they are iterated, or by [`MutationRef::validate`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MUTATION_BYTES_MAX {
            return Err(DecodeError::Overflow { what: "a mutation" });
        }
        let mut reader = Reader::new(bytes);
        let version = reader.byte("a mutation")?;
        if version != MUTATION_VERSION {
            return Self::parse_with_companions(bytes);
        }
        let table = TableId(reader.array("a mutation's table id")?);
        let token = i64::from_be_bytes(reader.array("a mutation's token")?);
        let partition_key = reader.bytes("a mutation's partition key")?;
        if partition_key.len() > MAX_PARTITION_KEY_BYTES {
            return Err(DecodeError::Overflow { what: "a mutation's partition key" });
        }
        Ok(Self { bytes, table, token, partition_key, operations: reader.rest(), companions: &[] })
    }

    /// The changes in the order they were added, without those of companions.
    #[inline]
    pub fn operations(&self) -> Operations<'a> {
        Operations { reader: Reader::new(self.operations) }
    }

    /// Whether it sets anything with an earlier timestamp that has not expired. Deletions do not count, nor do companions.
    pub fn sets_before(&self, timestamp: i64, now_seconds: u32) -> Result<bool, DecodeError> {
        for operation in self.operations() {
            let Operation::Row { row, .. } = operation? else { continue };
            let is_early = |cell: Cell<'_>| cell.timestamp < timestamp && cell.is_live(now_seconds);
            let is_live = |liveness: &Liveness| !liveness.is_expired(now_seconds);
            let liveness = row.liveness().filter(is_live);
            if liveness.is_some_and(|liveness| liveness.timestamp < timestamp) || row.cells().any(is_early) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks every operation and every row to the last byte. Companions are checked as [`MutationRef::parts`].
    pub fn validate(self) -> Result<ValidMutation<'a>, DecodeError> {
        let mut timestamps = TimestampRange::EMPTY;
        for operation in self.operations() {
            match operation? {
                Operation::Row { position, row } => {
                    if position != key::STATIC_POSITION && position.first() != Some(&key::REGULAR_TAG) {
                        let value = position.first().map_or(0, |&tag| u64::from(tag));
                        return Err(DecodeError::Invalid { what: "position of a row", value });
                    }
                    timestamps.include_all(row.validate()?);
                }
                Operation::RangeTombstone { start, end, deletion } => {
                    if start >= end {
                        return Err(DecodeError::Disorder { what: "the bounds of a deletion" });
                    }
                    timestamps.include(deletion.timestamp);
                }
            }
        }
        Ok(ValidMutation { view: self, timestamps })
    }
}

/// A mutation whose operations and rows were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidMutation<'a> {
    view: MutationRef<'a>,
    timestamps: TimestampRange,
}

impl<'a> ValidMutation<'a> {
    #[inline]
    pub fn view(&self) -> &MutationRef<'a> {
        &self.view
    }

    /// The range of all timestamps in it, deletions included.
    #[inline]
    pub fn timestamps(&self) -> TimestampRange {
        self.timestamps
    }

    /// At least the bytes that its rows take in files, where cells may have to carry their own timestamps and expiries.
    pub fn size_in_files(&self) -> usize {
        const CELL_GROWTH_BYTES: usize = 20;
        let rows = self.view.operations().filter_map(|operation| match operation {
            Ok(Operation::Row { row, .. }) => Some(row.cells().count() * CELL_GROWTH_BYTES),
            Ok(Operation::RangeTombstone { .. }) | Err(_) => None,
        });
        self.view.own_bytes() + rows.sum::<usize>()
    }
}

/// Iterates over the operations of a mutation. It ends after the first error.
#[derive(Debug, Clone, Copy)]
pub struct Operations<'a> {
    reader: Reader<'a>,
}

impl<'a> Operations<'a> {
    #[inline]
    fn decode(&mut self) -> Result<Operation<'a>, DecodeError> {
        let reader = &mut self.reader;
        match reader.byte("an operation")? {
            ROW => Ok(Operation::Row {
                position: reader.bytes("the position of a row")?,
                row: RowRef::new(reader.bytes("a row")?, 0),
            }),
            RANGE_TOMBSTONE => Ok(Operation::RangeTombstone {
                start: reader.bytes("the start of a deletion")?,
                end: reader.bytes("the end of a deletion")?,
                deletion: Deletion {
                    timestamp: reader.signed("the timestamp of a deletion")?,
                    local_deletion_time: reader.unsigned32("the time of a deletion")?,
                },
            }),
            other => Err(DecodeError::Invalid { what: "operation of a mutation", value: u64::from(other) }),
        }
    }
}

#[allow(clippy::copy_iterator, reason = "a copy is another reading position in the same bytes")]
impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, DecodeError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let decoded = self.decode();
        if decoded.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Cell, CellKind};

    fn sample() -> Mutation {
        let mut builder = MutationBuilder::new(TableId([7; 16]), -5, b"pk").unwrap();
        let mut row = RowBuilder::new();
        row.set_liveness(Liveness { timestamp: 1, expiry: None });
        builder
            .row(&[2, 9], &mut row)
            .delete_range(&[2], &[3], Deletion { timestamp: 0, local_deletion_time: 1 })
            .delete_partition(Deletion { timestamp: -1, local_deletion_time: 2 });
        builder.build()
    }

    #[test]
    fn a_mutation_is_read_as_it_was_built() {
        let mutation = Mutation::from_bytes(sample().bytes().clone()).unwrap();
        let view = mutation.view().unwrap();
        assert_eq!((view.table, view.token, view.partition_key), (TableId([7; 16]), -5, &b"pk"[..]));
        let operations: Vec<_> = view.operations().map(Result::unwrap).collect();
        assert_eq!(operations.len(), 3);
        assert!(matches!(operations[0], Operation::Row { position: [2, 9], .. }));
        assert!(matches!(operations[2], Operation::RangeTombstone { start: [0], end: [0xFF], .. }));
    }

    #[test]
    fn golden_bytes() {
        let mut expected = vec![1];
        expected.extend([7; 16]);
        expected.extend((-5_i64).to_be_bytes());
        expected.extend([2, b'p', b'k']);
        expected.extend([1, 2, 2, 9, 2, 1, 2]);
        expected.extend([2, 1, 2, 1, 3, 0, 1]);
        expected.extend([2, 1, 0, 1, 0xFF, 1, 2]);
        assert_eq!(sample().bytes()[..], expected);
    }

    #[test]
    fn a_row_written_as_its_cells_come_is_the_row_of_a_builder() {
        let liveness = Liveness { timestamp: 7, expiry: None };
        for value_bytes in [0, 1, 127, 128, 200, 20_000] {
            let value = vec![3; value_bytes];
            let cell = |column| Cell { column, path: &[], timestamp: 7, kind: CellKind::Live, value: &value };
            let new = || MutationBuilder::new(TableId([7; 16]), -5, b"pk").unwrap();
            let (mut in_order, mut by_builder) = (new(), new());
            let mut row = RowBuilder::new();
            row.set_liveness(liveness).cell(cell(1)).cell(cell(300));
            by_builder.row(&[2, 9], &mut row);
            let failed = in_order.row_in_order(&[2, 8], Some(liveness), |writer| {
                writer.cell(&cell(1));
                Err("no second value")
            });
            assert_eq!(failed, Err("no second value"));
            assert!(in_order.is_empty());
            let written = in_order.row_in_order(&[2, 9], Some(liveness), |writer| {
                writer.cell(&cell(1));
                writer.cell(&cell(300));
                Ok::<_, Infallible>(())
            });
            assert_eq!(written, Ok(()));
            let empty = in_order.row_in_order(&[2, 10], None, |_| Ok::<_, Infallible>(()));
            assert_eq!(empty, Ok(()));
            assert_eq!(in_order.build(), by_builder.build(), "{value_bytes}");
        }
    }

    #[test]
    fn a_valid_mutation_knows_the_timestamps_of_everything_in_it() {
        let mutation = sample();
        let timestamps = mutation.view().unwrap().validate().unwrap().timestamps();
        assert_eq!((timestamps.oldest(), timestamps.newest()), (Some(-1), Some(1)));
        let nothing = MutationBuilder::new(TableId([7; 16]), 0, b"pk").unwrap().build();
        let timestamps = nothing.view().unwrap().validate().unwrap().timestamps();
        assert_eq!((timestamps.oldest(), timestamps.newest()), (None, None));
    }

    #[test]
    fn damaged_mutations_are_errors_and_never_panics() {
        let bytes = sample().bytes().to_vec();
        for index in 0..bytes.len() {
            for value in 0..=255 {
                let mut damaged = bytes.clone();
                damaged[index] = value;
                let _ = Mutation::from_bytes(damaged.into());
            }
        }
        let without_last = Bytes::copy_from_slice(&bytes[..bytes.len() - 1]);
        assert!(Mutation::from_bytes(without_last).is_err());
    }
}
