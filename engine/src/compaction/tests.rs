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
use crate::table::{Compression, TableCursor, TableOptions, TableReader, TableWriter};

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

/// The same by a job for each of these ranges.
async fn run_shared(disk: &SimulatedDisk, task: CompactionTask, ranges: Vec<KeyRange>) -> Compacted {
    let context = || JobContext { disk: Arc::new(disk.clone()), clock: Rc::new(ManualClock::new(0)) };
    let SharedCompaction { assembly, subranges, to_assembly, .. } = task.share(4000);
    let begin = |range| to_assembly.begin(&subranges, range).unwrap().run(context());
    let jobs: Vec<_> = ranges.into_iter().map(begin).collect();
    to_assembly.end();
    let (assembled, merged) = futures::join!(assembly.run(context()), futures::future::try_join_all(jobs));
    merged.unwrap();
    let (compacted, unverified) = assembled.unwrap();
    for output in unverified {
        crate::table::verify(&output.reader, &output.written, async |_| {}).await.unwrap();
    }
    compacted
}

/// Ranges that begin and end at the partitions of these tokens.
fn ranges_at(tokens: &[i64]) -> Vec<KeyRange> {
    let bounds: Vec<Vec<u8>> = tokens.iter().map(|token| full_key(*token, b"key", &[]).unwrap()).collect();
    let starts = std::iter::once(Vec::new()).chain(bounds.iter().cloned());
    let ends = bounds.iter().cloned().map(Some).chain([None]);
    starts.zip(ends).map(|(start, end)| KeyRange { start, end }).collect()
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

#[test]
fn a_row_that_has_outgrown_a_file_is_cut_by_several_jobs_as_by_one() {
    futures::executor::block_on(async {
        for tokens in [&[][..], &[2], &[3], &[2, 3], &[1, 2, 3, 4, 5, 6]] {
            let (single, shared) = (SimulatedDisk::new(1), SimulatedDisk::new(2));
            let mut inputs = Vec::new();
            for disk in [&single, &shared] {
                write(disk, 1, &[(1, 0..5), (2, 0..30), (3, 0..5), (5, 0..50), (6, 0..1)]).await;
                write(disk, 2, &[(2, 30..60), (4, 0..5), (5, 50..90)]).await;
                write(disk, 3, &[(2, 60..90)]).await;
                inputs.push(vec![open(disk, 1).await, open(disk, 2).await, open(disk, 3).await]);
            }
            let of_shared = inputs.pop().unwrap();
            let of_single = inputs.pop().unwrap();
            let expected = run(&single, task(of_single, Split::Never)).await;
            let compacted = run_shared(&shared, task(of_shared, Split::Never), ranges_at(tokens)).await;
            let parts = |compacted: &Compacted| {
                compacted.outputs.iter().map(|output| output.is_part).collect::<Vec<_>>()
            };
            assert_eq!(parts(&compacted), parts(&expected), "{tokens:?}");
            assert!(compacted.outputs.len() > 8);
            for (output, expected) in compacted.outputs.iter().zip(&expected.outputs) {
                assert_eq!(output.sample, expected.sample);
                let (reader, expected) =
                    (open(&shared, output.generation).await, open(&single, expected.generation).await);
                assert_eq!(rows(&reader), rows(&expected));
                assert_eq!(reader.statistics(), expected.statistics());
            }
        }
    });
}

/// A file with this many rows of 100 bytes in each partition.
async fn write_partitions(
    disk: &SimulatedDisk,
    generation: u64,
    partitions: &[(i64, usize)],
) -> Arc<TableReader> {
    let options =
        TableOptions { block_bytes: 300, compression: Compression::None, ..TableOptions::default() };
    let mut writer = TableWriter::create(disk, &path(generation), options).await.unwrap();
    for (token, count) in partitions {
        for number in 0..*count {
            let mut row = RowBuilder::new();
            row.cell(Cell { column: 1, path: &[], timestamp: 1, kind: CellKind::Live, value: &[7; 80] });
            let position = [&[2][..], &(number as u32).to_be_bytes()].concat();
            let key = full_key(*token, b"key", &position).unwrap();
            writer.add(&key, RowRef::new(&row.to_bytes(), 0)).await.unwrap();
        }
    }
    writer.finish().await.unwrap();
    open(disk, generation).await
}

fn rows_in(inputs: &[Arc<TableReader>], range: &KeyRange) -> usize {
    let is_within = |key: &[u8]| *key >= *range.start && range.end.as_deref().is_none_or(|end| key < end);
    inputs.iter().flat_map(rows).filter(|(key, _)| is_within(key)).count()
}

#[test]
fn subranges_have_about_equal_bytes_and_a_large_partition_is_one() {
    futures::executor::block_on(async {
        let disk = SimulatedDisk::new(1);
        let even: Vec<(i64, usize)> = (0..400).map(|token| (token * 7, 2)).collect();
        // Twice as dense in the second half.
        let odd: Vec<(i64, usize)> = (200..400).map(|token| (token * 7 + 1, 4)).collect();
        let inputs = [write_partitions(&disk, 1, &even).await, write_partitions(&disk, 2, &odd).await];
        let ranges = subranges(&inputs, &Split::Never, 20_000);
        let counts: Vec<usize> = ranges.iter().map(|range| rows_in(&inputs, range)).collect();
        assert_eq!(counts.iter().sum::<usize>(), 1600);
        assert!((7..=13).contains(&counts.len()), "{counts:?}");
        let (_, all_but_last) = counts.split_last().unwrap();
        assert!(all_but_last.iter().all(|count| (100..300).contains(count)), "{counts:?}");
        // Bounds of parts of the token space, which all tokens lie in the middle of, are met too.
        let in_parts = subranges(&inputs, &Split::Parts(1 << 31), 1 << 30);
        assert_eq!(in_parts.len(), 1, "the tokens are near to each other");
        let spread: Vec<(i64, usize)> = (-8..8).map(|token: i64| (token << 60, 3)).collect();
        let spread = [write_partitions(&disk, 3, &spread).await];
        let in_parts = subranges(&spread, &Split::Parts(4), 1 << 30);
        assert_eq!(in_parts.iter().map(|range| rows_in(&spread, range)).collect::<Vec<_>>(), [12; 4]);

        let large = [write_partitions(&disk, 4, &[(1, 3), (2, 2000), (3, 3), (4, 3)]).await];
        let ranges = subranges(&large, &Split::Never, 5000);
        let counts: Vec<usize> = ranges.iter().map(|range| rows_in(&large, range)).collect();
        assert!(counts.len() <= 3 && counts.iter().any(|count| *count >= 2000), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 2009);
        let alone = [write_partitions(&disk, 5, &[(2, 2000)]).await];
        assert_eq!(subranges(&alone, &Split::Never, 5000), [KeyRange::default()]);
        assert_eq!(subranges(&[], &Split::Never, 1), [KeyRange::default()]);
    });
}
