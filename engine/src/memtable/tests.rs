//! Memtables that are written, read while they change, and frozen.

use std::rc::Rc;

use super::cursor::{CursorBuffers, MemtableCursor};
use super::rows::RowIndex;
use super::shared::SharedMemtable;
use super::store::Memtable;
use crate::cell::{Cell, CellKind, Deletion, Liveness};
use crate::io::SplitMix64;
use crate::mutation::{MutationBuilder, TableId};
use crate::reconcile::{Purpose, merge_rows};
use crate::row::RowRef;
use crate::row_writer::RowBuilder;

fn put(memtable: &mut Memtable, token: i64, position: &[u8], timestamp: i64, value: &[u8]) {
    let mut builder = MutationBuilder::new(TableId([0; 16]), token, &token.to_be_bytes()).unwrap();
    let mut row = RowBuilder::new();
    row.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value });
    builder.row(position, &mut row);
    let mutation = builder.build();
    memtable.apply::<false>(&mutation.view().unwrap().validate().unwrap(), None).unwrap();
}

#[test]
fn a_row_is_merged_with_what_is_there() {
    let mut memtable = Memtable::default();
    put(&mut memtable, 7, &[2], 10, b"new");
    put(&mut memtable, 7, &[2], 9, b"older and longer");
    put(&mut memtable, 7, &[2], 11, b"newest and longer");
    assert_eq!(memtable.row_count(), 1);
    let id = memtable.find_partition(7, &7_i64.to_be_bytes()).unwrap();
    let partition = &memtable.partitions[id as usize];
    let entry = partition.rows.get(RowIndex::default()).unwrap();
    let row = RowRef::new(entry.row(&memtable.arena), 0);
    assert_eq!(row.cells().next().unwrap().value, b"newest and longer");
    assert_eq!((memtable.min_timestamp(), memtable.max_timestamp()), (Some(9), Some(11)));
}

/// A change of the one row of a partition, and its row.
fn change(of: impl FnOnce(&mut RowBuilder)) -> (crate::mutation::Mutation, Vec<u8>) {
    let mut row = RowBuilder::new();
    of(&mut row);
    let bytes = row.to_bytes();
    let mut builder = MutationBuilder::new(TableId([0; 16]), 7, b"key").unwrap();
    builder.row(&[2], &mut row);
    (builder.build(), bytes)
}

fn element(number: u32, timestamp: i64, is_live: bool) -> (crate::mutation::Mutation, Vec<u8>) {
    let kind =
        if is_live { CellKind::Live } else { CellKind::Tombstone { local_deletion_time: timestamp as u32 } };
    change(|row| {
        row.cell(Cell { column: 1, path: &number.to_be_bytes(), timestamp, kind, value: b"an element" });
    })
}

fn row_as_read(memtable: &Rc<SharedMemtable>) -> Vec<u8> {
    let buffers = CursorBuffers::default();
    MemtableCursor::new(Rc::clone(memtable), &[], &[0xFF; 9], None, false, buffers).row().bytes.to_vec()
}

#[test]
fn a_large_row_reads_as_if_each_change_had_rewritten_it() {
    let memtable = Rc::new(SharedMemtable::default());
    let mut random = SplitMix64::new(3);
    let mut expected: Vec<u8> = Vec::new();
    for step in 0..3_000_i64 {
        let timestamp = step + random.below(200) as i64;
        let deletion = Deletion { timestamp: step - 300, local_deletion_time: step as u32 };
        let (mutation, row) = match random.below(500) {
            0 => change(|row| {
                row.delete_column(1, deletion);
            }),
            1 => change(|row| {
                row.set_deletion(deletion);
            }),
            2 => change(|row| {
                let liveness = Liveness { timestamp, expiry: None };
                let value = &[7_u8; 9_000];
                row.set_liveness(liveness).cell(Cell {
                    column: 2,
                    path: &[],
                    timestamp,
                    kind: CellKind::Live,
                    value,
                });
            }),
            pick => element(random.below(2_000) as u32, timestamp, pick > 50),
        };
        memtable.apply::<false>(&mutation.view().unwrap().validate().unwrap(), None).unwrap();
        let mut merged = Vec::new();
        let versions = [RowRef::new(&expected, 0), RowRef::new(&row, 0)];
        let versions = if expected.is_empty() { &versions[1..] } else { &versions[..] };
        merge_rows(versions, None, Purpose::Keep, 0, &mut merged).unwrap();
        expected = merged;
        if step % 97 == 0 {
            assert_eq!(row_as_read(&memtable), expected, "after step {step}");
        }
    }
    assert!(memtable.read(|memtable| memtable.tails.iter().any(|tail| !tail.is_empty())));
    let frozen = memtable.freeze();
    assert_eq!(row_as_read(&memtable), expected, "frozen");
    let partition = frozen.partitions().next().unwrap();
    let (_, row, tail) = partition.rows().next().unwrap();
    let (changes, mut merged) = (tail.unwrap().merged().unwrap(), Vec::new());
    merge_rows(&[row, RowRef::new(&changes, 0)], None, Purpose::Keep, 0, &mut merged).unwrap();
    assert_eq!(merged, expected, "as it is flushed");
}

#[test]
fn the_memory_of_a_growing_row_is_in_proportion_to_the_row() {
    let mut memtable = Memtable::default();
    let mut grown = 0;
    for number in 0..50_000 {
        let (mutation, _) = element(number, 1, true);
        grown += memtable.apply::<false>(&mutation.view().unwrap().validate().unwrap(), None).unwrap();
    }
    let row_bytes = 50_000 * element(0, 1, true).1.len();
    assert!(memtable.size_bytes() < 6 * row_bytes, "{} for {row_bytes}", memtable.size_bytes());
    assert_eq!(memtable.size_bytes(), grown);
}

#[test]
fn partitions_are_ordered_by_token() {
    let mut memtable = Memtable::default();
    for token in [5, -3, 9] {
        put(&mut memtable, token, &[2], 1, b"");
    }
    memtable.order_partitions();
    put(&mut memtable, 0, &[2], 1, b"");
    assert!(!memtable.is_ordered());
    memtable.order_partitions();
    let tokens = |memtable: &Memtable| -> Vec<i64> {
        memtable.ordered().iter().map(|&id| memtable.partitions[id as usize].token).collect()
    };
    assert_eq!(tokens(&memtable), [-3, 0, 5, 9]);
    // A frozen one is in order for whoever reads it first.
    put(&mut memtable, 7, &[2], 1, b"");
    let frozen = SharedMemtable::from(memtable).freeze();
    assert!(frozen.is_ordered());
    assert_eq!(tokens(&frozen), [-3, 0, 5, 7, 9]);
}
