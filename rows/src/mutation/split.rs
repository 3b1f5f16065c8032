//! Cutting a mutation into parts. What one node sends to another to make it complete (read repair, streams) comes from merged versions
//! and may be larger than what a shard takes at a time.

use super::{Mutation, MutationBuilder, MutationRef, Operation};
use crate::codec::DecodeError;
use crate::row::RowRef;
use crate::row_writer::RowWriter;

impl MutationRef<'_> {
    /// The mutation in parts of at most `bytes_max` bytes, which together have the same effect in any order. Large rows are cut between
    /// cells. A cell that is larger alone is a part of its own.
    pub fn split(self, bytes_max: usize) -> Result<Vec<Mutation>, DecodeError> {
        let mut parts = Splitter::new(self, bytes_max)?;
        for operation in self.operations() {
            match operation? {
                Operation::RangeTombstone { start, end, deletion } => {
                    parts.make_room(start.len() + end.len())?.delete_range(start, end, deletion);
                }
                Operation::Row { position, row } if position.len() + row.bytes.len() <= parts.room() => {
                    parts.make_room(position.len() + row.bytes.len())?.row_bytes(position, row.bytes);
                }
                Operation::Row { position, row } => parts.cut_row(position, row)?,
            }
        }
        Ok(parts.finish())
    }
}

/// Collects the parts of [`MutationRef::split`].
struct Splitter<'a> {
    whole: MutationRef<'a>,
    bytes_max: usize,
    builder: MutationBuilder,
    parts: Vec<Mutation>,
}

impl<'a> Splitter<'a> {
    /// Bytes of an operation or a cell besides its contents.
    const OVERHEAD_BYTES: usize = 48;

    fn new(whole: MutationRef<'a>, bytes_max: usize) -> Result<Self, DecodeError> {
        Ok(Self { whole, bytes_max, builder: Self::empty(whole)?, parts: Vec::new() })
    }

    fn empty(whole: MutationRef<'_>) -> Result<MutationBuilder, DecodeError> {
        MutationBuilder::new(whole.table, whole.token, whole.partition_key)
            .map_err(|_| DecodeError::Overflow { what: "a mutation's partition key" })
    }

    /// The contents of an operation for which an empty part has room.
    fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.builder.head_length + Self::OVERHEAD_BYTES)
    }

    /// The part to which an operation of this size is added.
    fn make_room(&mut self, bytes: usize) -> Result<&mut MutationBuilder, DecodeError> {
        let has_room = self.builder.size_bytes() + bytes + Self::OVERHEAD_BYTES <= self.bytes_max;
        if !has_room && !self.builder.is_empty() {
            let full = std::mem::replace(&mut self.builder, Self::empty(self.whole)?);
            self.parts.push(full.build());
        }
        Ok(&mut self.builder)
    }

    fn cut_row(&mut self, position: &[u8], row: RowRef<'_>) -> Result<(), DecodeError> {
        let head = row.head()?;
        let columns: Vec<_> = head.column_deletions.collect();
        let room = self.room().saturating_sub(position.len());
        let mut out = Vec::new();
        let mut writer = RowWriter::begin(&mut out, row.base, head.liveness, head.deletion, &columns);
        for cell in head.cells {
            let bytes = cell.path.len() + cell.value.len() + Self::OVERHEAD_BYTES;
            if writer.size_bytes() + bytes > room && writer.has_parts() {
                writer.finish();
                self.make_room(position.len() + out.len())?.row_bytes(position, &out);
                out.clear();
                writer = RowWriter::begin(&mut out, row.base, None, None, &[]);
            }
            writer.cell(&cell);
        }
        if writer.finish() {
            self.make_room(position.len() + out.len())?.row_bytes(position, &out);
        }
        Ok(())
    }

    fn finish(mut self) -> Vec<Mutation> {
        if !self.builder.is_empty() {
            self.parts.push(self.builder.build());
        }
        self.parts
    }
}
