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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cell::{Cell, CellKind, Deletion, Expiry, Liveness};
    use crate::memtable::Memtable;
    use crate::mutation::TableId;
    use crate::row_writer::RowBuilder;

    /// Everything that a memtable has after these mutations.
    fn contents(mutations: &[Mutation]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut memtable = Memtable::default();
        for mutation in mutations {
            memtable.apply::<false>(&mutation.view().unwrap().validate().unwrap(), None).unwrap();
        }
        memtable.order_partitions();
        let mut all = Vec::new();
        for partition in memtable.partitions() {
            for it in partition.range_tombstones() {
                all.push(([it.start, b"..", it.end].concat(), it.deletion.timestamp.to_be_bytes().to_vec()));
            }
            for (position, row, _) in partition.rows() {
                all.push((position.to_vec(), row.bytes.to_vec()));
            }
        }
        all
    }

    proptest! {
        #[test]
        fn parts_have_the_effect_of_the_whole(
            rows in proptest::collection::vec(
                (0..4_u8, proptest::collection::vec((0..3_u32, 0..40_u8, 0..3_i64, 0..60_usize), 0..30)), 0..6),
            deleted in proptest::collection::vec((0..6_u8, 0..6_u8), 0..4),
            bytes_max in 100..1_500_usize,
        ) {
            let mut builder = MutationBuilder::new(TableId([1; 16]), 5, b"key").unwrap();
            let value = [7; 60];
            for (position, cells) in &rows {
                let mut row = RowBuilder::new();
                let expiry = (position % 2 == 0).then_some(Expiry { ttl: 9, expires_at: 99 });
                row.set_liveness(Liveness { timestamp: 1, expiry });
                row.delete_column(2, Deletion { timestamp: -1, local_deletion_time: 4 });
                for (column, path, timestamp, length) in cells {
                    let kind = expiry.map_or(CellKind::Live, CellKind::Expiring);
                    let (path, value) = ([*path], &value[..*length]);
                    row.cell(Cell { column: *column, path: &path, timestamp: *timestamp, kind, value });
                }
                builder.row(&[2, *position], &mut row);
            }
            for (start, end) in deleted {
                let deletion = Deletion { timestamp: 1, local_deletion_time: 4 };
                builder.delete_range(&[2, start], &[2, end], deletion);
            }
            let whole = builder.build();
            let mut parts = whole.view().unwrap().split(bytes_max).unwrap();
            prop_assert!(parts.iter().all(|part| part.bytes().len() <= bytes_max.max(240)));
            parts.reverse();
            prop_assert_eq!(contents(&parts), contents(&[whole]));
        }
    }
}
