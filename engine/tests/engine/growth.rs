//! Rows that grow without bound, cell by cell, and mutations that are too large: every version has room in a file, a row that cannot
//! be read as a whole is an error that says so, and everything else goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::io::{CrashStyle, ManualClock, SimulatedDisk};
use helenus_engine::mutation::WRITE_BYTES_MAX;
use helenus_engine::read::{AddressBuf, MERGED_ROW_BYTES_MAX, Purgeable, RowPart, Step};
use helenus_engine::{
    Cell, CellKind, Deletion, EngineError, Load, Mutation, MutationBuilder, Operation, RowBuilder, Shard,
    ShardOptions, TableOptions, VersionLimit, VersionScanRequest,
};

use crate::support::{
    DIRECTORY, NOW, OTHER_TABLE, START_MICROS, TABLE, apply, environment, put, request, run_local,
    table_options,
};

const ELEMENT_BYTES: usize = 512 << 10;
/// The position of the growing row in the partition `key` with token 1; `put` writes its neighbours.
const GROWING: u8 = 5;

fn options() -> ShardOptions {
    ShardOptions {
        memtable_bytes_max: 2 << 30,
        commit_log_bytes_max: 4 << 30,
        compaction_bytes_per_second: None,
        ..ShardOptions::new(DIRECTORY)
    }
}

/// A shard whose clock goes on by itself, because flushes keep a pace.
async fn open(disk: &SimulatedDisk) -> Rc<Shard> {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let shard = Shard::open(environment(disk, &clock), options()).await.unwrap();
    shard.create_table(TABLE, table_options()).await.unwrap();
    tokio::task::spawn_local(async move {
        loop {
            clock.advance(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    });
    shard
}

fn position(row: u8) -> [u8; 2] {
    [2, 1 + row]
}

/// Adds an element to the collection of the growing row.
fn element(number: u32, value: &[u8]) -> Mutation {
    let mut row = RowBuilder::new();
    let path = number.to_be_bytes();
    row.cell(Cell { column: 7, path: &path, timestamp: 10, kind: CellKind::Live, value });
    let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
    builder.row(&position(GROWING), &mut row);
    builder.build()
}

async fn grow(shard: &Rc<Shard>, elements: std::ops::Range<u32>) {
    let value = vec![3; ELEMENT_BYTES];
    for number in elements {
        shard.admit().await.unwrap();
        apply(shard, &element(number, &value));
        // Writers do not run ahead of the log.
        tokio::task::yield_now().await;
    }
}

/// The number of elements that each visible row has, until the end or an error.
fn rows(shard: &Shard, reversed: bool) -> (Vec<usize>, Option<EngineError>) {
    let mut scan = shard.scan(&request(reversed)).unwrap();
    let mut rows = Vec::new();
    loop {
        match scan.next() {
            Ok(Step::Row(view)) => rows.push(view.row.cells().count()),
            Ok(Step::End | Step::Exhausted) => return (rows, None),
            Err(error) => return (rows, Some(error)),
        }
    }
}

fn is_too_large(error: Option<&EngineError>) -> bool {
    matches!(
        error,
        Some(EngineError::RowTooLarge { table: TABLE, key_bytes: 15, limit: MERGED_ROW_BYTES_MAX })
    )
}

fn versions(shard: &Shard) -> Result<usize, EngineError> {
    let (start, end) = crate::support::EVERYTHING;
    let versions = shard.scan_versions(&VersionScanRequest {
        table: TABLE,
        start,
        end,
        reversed: false,
        now_seconds: NOW,
        purgeable: Purgeable::LeftOut,
        is_long: false,
        part: None,
        limit: VersionLimit::UNLIMITED,
    })?;
    Ok(versions.live_rows as usize)
}

/// The number of different elements of each row, read in parts.
fn elements_in_parts(shard: &Shard) -> Vec<usize> {
    const PART_BYTES_MAX: usize = 12 << 20;
    let (start, end) = crate::support::EVERYTHING;
    let (mut start, mut from) = (start.to_vec(), None::<AddressBuf>);
    let mut rows: BTreeMap<Vec<u8>, BTreeSet<AddressBuf>> = BTreeMap::new();
    loop {
        let versions = shard
            .scan_versions(&VersionScanRequest {
                table: TABLE,
                start: &start,
                end,
                reversed: false,
                now_seconds: NOW,
                purgeable: Purgeable::Kept,
                is_long: true,
                part: Some(RowPart { from: from.as_ref().map(AddressBuf::view), bytes_max: PART_BYTES_MAX }),
                limit: VersionLimit { bytes: 64 << 10, ..VersionLimit::UNLIMITED },
            })
            .unwrap();
        assert!(versions.bytes <= (PART_BYTES_MAX + (128 << 10)) as u64, "{} bytes", versions.bytes);
        for mutation in &versions.partitions {
            for operation in mutation.view().unwrap().operations() {
                let Operation::Row { position, row } = operation.unwrap() else { panic!("only rows") };
                let elements = rows.entry(position.to_vec()).or_default();
                for cell in row.cells() {
                    assert!(elements.insert(cell.address().into()), "an element is in one part");
                }
            }
        }
        let Some(resume) = versions.resume else {
            return rows.values().map(BTreeSet::len).collect();
        };
        let is_behind = (&resume, &versions.resume_inside) > (&start, &from);
        assert!(is_behind, "a read makes progress");
        (start, from) = (resume, versions.resume_inside);
    }
}

#[test]
fn a_collection_that_grows_beyond_a_file_s_block_is_flushed_in_versions_and_read_as_one() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        // Each flushed version stays a file.
        let mut options = table_options();
        options.compaction.enabled = false;
        shard.alter_table(TABLE, options).unwrap();
        let count = 100 << 20 >> 19;
        apply(&shard, &put(1, 0, 5, b"before"));
        grow(&shard, 0..count).await;
        apply(&shard, &put(1, 9, 5, b"behind"));
        let expected = (vec![1, count as usize, 1], true);
        let read = |shard: &Shard| {
            let (rows, error) = rows(shard, false);
            (rows, error.is_none())
        };
        assert_eq!(read(&shard), expected, "in memory");
        shard.flush(TABLE).await.unwrap();
        let files = shard.statistics(TABLE).unwrap().file_count;
        assert!(files >= 100 / (WRITE_BYTES_MAX >> 20), "{files} files");
        assert_eq!(read(&shard), expected, "in files");
        assert_eq!(versions(&shard).unwrap(), 3);
        drop(shard);
        let shard = open(&disk).await;
        assert_eq!(read(&shard), expected, "after a restart");
        shard.compact(TABLE).await.unwrap();
        assert_eq!(read(&shard), expected, "after a compaction");
        assert!(shard.compaction_statistics().large_rows > 0, "it has noticed the size");
        shard.close().await.unwrap();
    });
}

#[test]
fn a_row_that_cannot_be_read_as_a_whole_is_an_error_and_can_be_deleted() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        let count = (MERGED_ROW_BYTES_MAX + (16 << 20)) / ELEMENT_BYTES;
        apply(&shard, &put(1, 0, 5, b"before"));
        grow(&shard, 0..count as u32).await;
        apply(&shard, &put(1, 9, 5, b"behind"));
        for reversed in [false, true] {
            let (rows, error) = rows(&shard, reversed);
            assert_eq!(rows, [1], "what comes before it is read");
            assert!(is_too_large(error.as_ref()), "{error:?}");
        }
        assert!(is_too_large(versions(&shard).err().as_ref()));
        assert_eq!(elements_in_parts(&shard), [1, count, 1], "in memory");
        // Recovered from the log, in as many versions again.
        let last = apply(&shard, &put(1, 10, 5, b"last"));
        shard.durable(last).await.unwrap();
        disk.crash();
        drop(shard);
        disk.restart(CrashStyle::ALL[0], 3);
        let shard = open(&disk).await;
        assert!(is_too_large(rows(&shard, false).1.as_ref()));
        shard.flush(TABLE).await.unwrap();
        assert!(is_too_large(rows(&shard, false).1.as_ref()));
        assert_eq!(elements_in_parts(&shard), [1, count, 1, 1], "in files");
        let mut deleted = RowBuilder::new();
        deleted.set_deletion(Deletion { timestamp: 20, local_deletion_time: NOW });
        let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        builder.row(&position(GROWING), &mut deleted);
        apply(&shard, &builder.build());
        let (rows, error) = rows(&shard, false);
        assert_eq!((rows, error.is_none()), (vec![1, 1, 1], true));
        assert_eq!(versions(&shard).unwrap(), 3);
    });
}

#[test]
fn a_row_of_many_columns_near_the_limit_is_flushed_in_versions() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        let value = vec![5; 15 << 20];
        for column in 0..6 {
            let mut row = RowBuilder::new();
            row.cell(Cell { column, path: &[], timestamp: 1, kind: CellKind::Live, value: &value });
            let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
            builder.row(&position(0), &mut row);
            shard.admit().await.unwrap();
            apply(&shard, &builder.build());
        }
        assert_eq!(rows(&shard, false).0, [6]);
        shard.flush(TABLE).await.unwrap();
        assert_eq!(shard.statistics(TABLE).unwrap().file_count, 3, "two columns in each");
        assert_eq!(rows(&shard, false).0, [6]);
    });
}

#[test]
fn a_mutation_that_no_file_could_hold_is_refused_in_every_way_in() {
    run_local(async {
        let disk = SimulatedDisk::new(1);
        let shard = open(&disk).await;
        let unlogged = TableOptions { is_logged: false, ..TableOptions::default() };
        shard.create_table(OTHER_TABLE, unlogged).await.unwrap();
        let value = vec![1; 130 << 20];
        let mut row = RowBuilder::new();
        row.cell(Cell { column: 1, path: &[], timestamp: 1, kind: CellKind::Live, value: &value });
        for (table, load) in [(TABLE, Load::Logged), (TABLE, Load::PastLog), (OTHER_TABLE, Load::Logged)] {
            let mut builder = MutationBuilder::new(table, 1, b"key").unwrap();
            builder.row(&position(0), &mut row.clone());
            let mutation = builder.build();
            let refused = shard.load(&mutation.view().unwrap(), load);
            assert!(matches!(refused, Err(EngineError::MutationTooLarge { .. })), "{refused:?}");
        }
        // Nothing of it is there, and the shard goes on.
        apply(&shard, &put(1, 3, 5, b"value"));
        for table in [TABLE, OTHER_TABLE] {
            shard.flush(table).await.unwrap();
        }
        assert_eq!(rows(&shard, false).0, [1]);
    });
}
