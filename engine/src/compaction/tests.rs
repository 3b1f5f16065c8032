//! Compactions of small files on a simulated disk.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::cell::{Cell, CellKind, Liveness};
use crate::io::{Clock, Disk, JobContext, ManualClock, RateLimiter, SimulatedDisk};
use crate::key::full_key;
use crate::reconcile::{Purpose, merge_rows};
use crate::row::RowRef;
use crate::row_writer::RowBuilder;
use crate::table::{TableCursor, TableOptions, TableReader, TableWriter};

fn path(generation: u64) -> PathBuf {
    PathBuf::from(format!("{generation}.sst"))
}

async fn open(disk: &SimulatedDisk, generation: u64) -> Arc<TableReader> {
    TableReader::open_file(disk, &path(generation), generation).await.unwrap()
}

/// A file of rows: token, and the paths of the row's cells.
async fn write(disk: &SimulatedDisk, generation: u64, rows: &[(i64, std::ops::Range<u8>)]) {
    let mut writer = TableWriter::create(disk, &path(generation), TableOptions::default()).await.unwrap();
    for (token, paths) in rows {
        let mut row = RowBuilder::new();
        row.set_liveness(Liveness { timestamp: 1, expiry: None });
        for path in paths.clone() {
            let value = [path; 100];
            row.cell(Cell { column: 1, path: &[path], timestamp: 1, kind: CellKind::Live, value: &value });
        }
        let key = full_key(*token, b"key", &[2]).unwrap();
        writer.add(&key, RowRef::new(&row.to_bytes(), 0)).await.unwrap();
    }
    writer.finish().await.unwrap();
}

fn task(inputs: Vec<Arc<TableReader>>, split: Split) -> CompactionTask {
    CompactionTask {
        inputs,
        left_out: LeftOut::default(),
        dropped_columns: DroppedColumns::default(),
        purging: Purging {
            purge: None,
            old_partitions: OldPartitions::default(),
            others: Vec::new(),
            writes_once: false,
        },
        outputs: (10..30).map(|generation| (generation, path(generation))).collect(),
        split,
        file_options: TableOptions::default(),
        row_bytes_max: 4000,
        limiter: RateLimiter::new(None),
        progress: Arc::default(),
        room: None,
    }
}

async fn run(disk: &SimulatedDisk, task: CompactionTask) -> Compacted {
    let clock: Rc<dyn Clock> = Rc::new(ManualClock::new(0));
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    task.run(JobContext { disk, clock }).await.unwrap()
}

fn rows(reader: &Arc<TableReader>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = TableCursor::new(Arc::clone(reader), None);
    let mut rows = Vec::new();
    let mut is_there = cursor.seek_first().unwrap();
    while is_there {
        let mut row = Vec::new();
        merge_rows(&[cursor.row()], None, Purpose::Keep, 0, &mut row).unwrap();
        rows.push((cursor.key().to_vec(), row));
        is_there = cursor.next().unwrap();
    }
    rows
}

#[test]
fn a_row_that_has_outgrown_a_file_is_cut_into_files_of_its_own() {
    futures::executor::block_on(async {
        let disk = SimulatedDisk::new(1);
        write(&disk, 1, &[(1, 0..5), (2, 0..30), (3, 0..5)]).await;
        write(&disk, 2, &[(2, 30..60), (4, 0..5)]).await;
        write(&disk, 3, &[(2, 60..90)]).await;
        let inputs = vec![open(&disk, 1).await, open(&disk, 2).await, open(&disk, 3).await];
        let compacted = run(&disk, task(inputs, Split::Never)).await;
        let parts = compacted.outputs.iter().filter(|output| output.is_part).count();
        assert!(parts >= 4 && compacted.outputs.len() == parts + 2, "{parts}");
        let mut wide = Vec::new();
        let mut others = 0;
        for output in &compacted.outputs {
            let rows = rows(&open(&disk, output.generation).await);
            if output.is_part {
                let [(key, row)] = rows.as_slice() else { panic!("a part is alone") };
                assert_eq!(*key, full_key(2, b"key", &[2]).unwrap());
                assert!(row.len() <= 2100);
                wide.push(row.clone());
            } else {
                others += rows.len();
            }
        }
        assert_eq!(others, 3);
        let versions: Vec<_> = wide.iter().map(|row| RowRef::new(row, 0)).collect();
        let mut merged = Vec::new();
        merge_rows(&versions, None, Purpose::Keep, 0, &mut merged).unwrap();
        assert_eq!(RowRef::new(&merged, 0).cells().count(), 90);
    });
}

#[test]
fn outputs_end_at_the_bounds_of_parts() {
    futures::executor::block_on(async {
        let disk = SimulatedDisk::new(1);
        // Spread over all tokens.
        let token = |number: u64| (((number << 60) + 1) as i64).wrapping_add(i64::MIN);
        let tokens: Vec<(i64, std::ops::Range<u8>)> = (0..16).map(|number| (token(number), 0..2)).collect();
        write(&disk, 1, &tokens).await;
        let compacted = run(&disk, task(vec![open(&disk, 1).await], Split::Parts(4))).await;
        let mut counts = Vec::new();
        for output in &compacted.outputs {
            counts.push(open(&disk, output.generation).await.statistics().rows);
        }
        assert_eq!(counts, [4, 4, 4, 4]);
        assert_eq!(compacted.outputs.len(), 4);
    });
}
