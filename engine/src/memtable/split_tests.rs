//! The parts of a mutation have the effect of the whole on a memtable.

use proptest::prelude::*;

use super::store::Memtable;
use crate::cell::{Cell, CellKind, Deletion, Expiry, Liveness};
use crate::mutation::{Mutation, MutationBuilder, TableId};
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
