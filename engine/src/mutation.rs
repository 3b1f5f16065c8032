//! A mutation: the changes to one partition of one table, in the encoding that the commit log keeps and that
//! nodes send to each other.
//!
//! ```text
//! mutation  := version u8 (1) | table id 16 bytes | token i64 big endian | partition key (length, bytes)
//!              | operations up to the end
//! operation := 1 | position (length, bytes) | row (length, bytes; base 0)
//!            | 2 | start position (length, bytes) | end position | timestamp zigzag | local deletion time
//! ```
//!
//! Operations may come in any order and may touch a position several times: reconciliation makes the order
//! irrelevant.

use std::fmt;

use bytes::Bytes;

use crate::cell::Deletion;
use crate::codec::{DecodeError, Reader, put_bytes, put_signed, put_unsigned};
use crate::key::{self, MAX_PARTITION_KEY_BYTES, PartitionKeyTooLong};
use crate::row::RowRef;
use crate::row_writer::RowBuilder;

/// The version of the encoding that is written.
pub const MUTATION_VERSION: u8 = 1;
const ROW: u8 = 1;
const SPAN: u8 = 2;

/// The identity of a table for ever; a table that is dropped and created again gets another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub [u8; 16]);

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
    Span {
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
    row: Vec<u8>,
}

impl MutationBuilder {
    pub fn new(table: TableId, token: i64, partition_key: &[u8]) -> Result<Self, PartitionKeyTooLong> {
        if partition_key.len() > MAX_PARTITION_KEY_BYTES {
            return Err(PartitionKeyTooLong { bytes: partition_key.len() });
        }
        let mut out = Vec::with_capacity(128 + partition_key.len());
        out.push(MUTATION_VERSION);
        out.extend_from_slice(&table.0);
        out.extend_from_slice(&token.to_be_bytes());
        put_bytes(&mut out, partition_key);
        let head_length = out.len();
        Ok(Self { out, head_length, row: Vec::new() })
    }

    /// Adds the content of a row; an empty builder adds nothing.
    pub fn row(&mut self, position: &[u8], row: &mut RowBuilder) -> &mut Self {
        const LENGTHS_BYTES_MAX: usize = 16;
        self.row.clear();
        self.row.reserve(row.expected_bytes());
        if row.write_to(0, &mut self.row) {
            self.out.reserve(LENGTHS_BYTES_MAX + position.len() + self.row.len());
            self.out.push(ROW);
            put_bytes(&mut self.out, position);
            put_bytes(&mut self.out, &self.row);
        }
        self
    }

    /// Adds an encoded row (base 0).
    pub fn row_bytes(&mut self, position: &[u8], row: &[u8]) -> &mut Self {
        self.out.push(ROW);
        put_bytes(&mut self.out, position);
        put_bytes(&mut self.out, row);
        self
    }

    /// Deletes the positions `[start, end)`; an empty range adds nothing.
    pub fn delete_span(&mut self, start: &[u8], end: &[u8], deletion: Deletion) -> &mut Self {
        if start < end {
            self.out.push(SPAN);
            put_bytes(&mut self.out, start);
            put_bytes(&mut self.out, end);
            put_signed(&mut self.out, deletion.timestamp);
            put_unsigned(&mut self.out, u64::from(deletion.local_deletion_time));
        }
        self
    }

    /// Deletes the whole partition.
    pub fn delete_partition(&mut self, deletion: Deletion) -> &mut Self {
        self.delete_span(key::PARTITION_START, key::PARTITION_END, deletion)
    }

    /// Whether nothing has been added.
    pub fn is_empty(&self) -> bool {
        self.out.len() == self.head_length
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
    /// Takes bytes from outside and checks all of them.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        MutationRef::parse(&bytes)?.validate()?;
        Ok(Self { bytes })
    }

    /// The encoding.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The view that the engine works on. The bytes were built or checked here, so the error cannot happen.
    pub fn view(&self) -> Result<MutationRef<'_>, DecodeError> {
        MutationRef::parse(&self.bytes)
    }
}

/// A view of an encoded mutation with its head parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutationRef<'a> {
    /// The whole encoding.
    pub bytes: &'a [u8],
    pub table: TableId,
    pub token: i64,
    pub partition_key: &'a [u8],
    operations: &'a [u8],
}

impl<'a> MutationRef<'a> {
    /// Parses the head; the operations are checked while they are iterated, or by [`MutationRef::validate`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let version = reader.byte("a mutation")?;
        if version != MUTATION_VERSION {
            return Err(DecodeError::Invalid { what: "version of a mutation", value: u64::from(version) });
        }
        let table = TableId(reader.array("a mutation's table id")?);
        let token = i64::from_be_bytes(reader.array("a mutation's token")?);
        let partition_key = reader.bytes("a mutation's partition key")?;
        if partition_key.len() > MAX_PARTITION_KEY_BYTES {
            return Err(DecodeError::Overflow { what: "a mutation's partition key" });
        }
        Ok(Self { bytes, table, token, partition_key, operations: reader.rest() })
    }

    /// The changes in the order they were added.
    #[inline]
    pub fn operations(&self) -> Operations<'a> {
        Operations { reader: Reader::new(self.operations) }
    }

    /// Checks every operation and every row to the last byte.
    pub fn validate(&self) -> Result<(), DecodeError> {
        for operation in self.operations() {
            match operation? {
                Operation::Row { position, row } => {
                    if position != key::STATIC_POSITION && position.first() != Some(&key::REGULAR_TAG) {
                        let value = position.first().map_or(0, |&tag| u64::from(tag));
                        return Err(DecodeError::Invalid { what: "position of a row", value });
                    }
                    row.validate()?;
                }
                Operation::Span { start, end, .. } => {
                    if start >= end {
                        return Err(DecodeError::Disorder { what: "the bounds of a deletion" });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Iterates over the operations of a mutation; after an error it ends.
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
            SPAN => Ok(Operation::Span {
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
    use crate::cell::Liveness;

    fn sample() -> Mutation {
        let mut builder = MutationBuilder::new(TableId([7; 16]), -5, b"pk").unwrap();
        let mut row = RowBuilder::new();
        row.set_liveness(Liveness { timestamp: 1, expiry: None });
        builder
            .row(&[2, 9], &mut row)
            .delete_span(&[2], &[3], Deletion { timestamp: 0, local_deletion_time: 1 })
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
        assert!(matches!(operations[2], Operation::Span { start: [0], end: [0xFF], .. }));
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
