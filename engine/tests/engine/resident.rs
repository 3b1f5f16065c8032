//! Filters and indexes of table files for which there is no memory: the shard has the same rows, and stays within its memory.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::io::{Clock, ManualClock, SimulatedDisk};
use helenus_engine::key::full_key;
use helenus_engine::shard::{Examination, FileOutcome};
use helenus_engine::{
    Deletion, EngineError, Liveness, Lookup, MutationBuilder, RowBuilder, RowRequest, ScanRequest, Shard,
    Step, TableId, TableOptions, TableWriterOptions,
};

use crate::support::{
    NOW, START_MICROS, apply, environment, request as request_of_all, run_local, small_options,
    table_options, while_time_passes,
};

const TABLES: u8 = 8;
const PARTITIONS: i64 = 2_500;

fn table(number: u8) -> TableId {
    TableId([number + 1; 16])
}

/// A shard in which the filters and the indexes of about three of the tables have room.
const CACHE_BYTES: usize = 64 << 10;

async fn open(disk: &SimulatedDisk, cache_bytes: usize) -> (Rc<Shard>, Rc<ManualClock>) {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let mut options = small_options();
    options.block_cache_bytes = cache_bytes;
    options.memtable_bytes_max = 64 << 20;
    let shard = Shard::open(environment(disk, &clock), options).await.unwrap();
    let writer = TableWriterOptions { block_bytes: 128, ..TableWriterOptions::default() };
    let mut options = TableOptions { writer, ..table_options() };
    options.compaction.enabled = false;
    let tables: Vec<_> = (0..TABLES).map(|number| (table(number), options.clone())).collect();
    shard.create_tables(&tables).await.unwrap();
    (shard, clock)
}

/// Even tokens. Every row is written `versions` times, in one file each.
async fn fill(shard: &Shard, number: u8, versions: u8) {
    for version in 0..versions {
        for token in 0..PARTITIONS {
            let mut builder = MutationBuilder::new(table(number), token * 2, b"key").unwrap();
            let mut row = RowBuilder::new();
            row.set_liveness(Liveness { timestamp: i64::from(version), expiry: None });
            builder.row(&[2, 0], &mut row);
            apply(shard, &builder.build());
        }
        shard.flush(table(number)).await.unwrap();
    }
}

/// Whether a row is there, without a wait for the disk.
async fn has(shard: &Shard, number: u8, token: i64) -> bool {
    try_has(shard, number, token, &Cell::new(0)).await.unwrap()
}

/// As [`has`]. Counts the attempts.
async fn try_has(shard: &Shard, number: u8, token: i64, attempts: &Cell<usize>) -> Result<bool, EngineError> {
    let key = full_key(token, b"key", &[2, 0]).unwrap();
    let request = RowRequest { table: table(number), key: &key, columns: None, now_seconds: NOW };
    let look = || -> Result<bool, EngineError> {
        attempts.set(attempts.get() + 1);
        match shard.look_up(&request, |_| ())? {
            Lookup::Row(()) => Ok(true),
            Lookup::Absent => Ok(false),
            Lookup::Unmerged => {
                let end = [&key[..], &[0]].concat();
                let (table, start, end) = (table(number), &key[..], &end[..]);
                let request = ScanRequest { table, start, end, ..request_of_all(false) };
                Ok(matches!(shard.scan(&request)?.next()?, Step::Row(_)))
            }
        }
    };
    shard.read_cold(look).await
}

/// What stays in memory of all tables, and how much there would be.
fn resident(shard: &Shard) -> (u64, u64) {
    let statistics = (0..TABLES).filter_map(|number| shard.statistics(table(number)).ok());
    statistics.fold((0, 0), |(resident, all), of_table| {
        (resident + of_table.resident_bytes, all + of_table.filter_bytes + of_table.key_index_bytes)
    })
}

/// Roots of indexes and checksums of parts are in memory whatever there is.
const ALWAYS_BYTES_OF_TABLE: u64 = 512;

#[test]
fn filters_and_indexes_of_many_tables_stay_within_their_memory() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let bound = CACHE_BYTES as u64 / 2 + u64::from(TABLES) * ALWAYS_BYTES_OF_TABLE;
        for is_reopened in [false, true] {
            let (shard, _) = open(&disk, CACHE_BYTES).await;
            if !is_reopened {
                for number in 0..TABLES {
                    fill(&shard, number, 1).await;
                }
            }
            let (in_memory, all) = resident(&shard);
            assert!(all > 2 * bound, "{all}");
            assert!(in_memory <= bound && in_memory > bound / 3, "{in_memory} of {all}, at most {bound}");
            let before = shard.read_work();
            for token in 0..PARTITIONS * 2 {
                for number in [0, TABLES - 1] {
                    let is_there = has(&shard, number, token).await;
                    assert_eq!(is_there, token % 2 == 0, "{token} of table {number}");
                }
            }
            let files = shard.read_work().files - before.files;
            assert!(files < PARTITIONS as u64 * 2 * 5, "{files} looks into files: filters decide");
            shard.close().await.unwrap();
        }
    });
}

#[test]
fn an_absent_key_is_not_looked_for_in_blocks_of_files_whose_filters_are_on_the_disk() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let (shard, _) = open(&disk, 0).await;
        fill(&shard, 0, 1).await;
        let before = disk.part_reads();
        let mut absent = 0;
        for token in (0..PARTITIONS).map(|number| number * 2 + 1) {
            absent += u64::from(!has(&shard, 0, token).await);
        }
        let reads = disk.part_reads() - before;
        assert_eq!(absent, PARTITIONS as u64);
        assert!(reads >= absent, "nothing is in memory: {reads}");
        assert!(reads < absent * 11 / 10, "{reads} reads for {absent} absent keys");
    });
}

#[test]
fn the_filters_of_all_files_are_read_at_once() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let (shard, _) = open(&disk, 0).await;
        fill(&shard, 0, 4).await;
        assert_eq!(shard.statistics(table(0)).unwrap().file_count, 4);
        let mut in_two = 0;
        for token in (0..200).map(|number| number * 2 + 1) {
            let attempts = Cell::new(0);
            assert!(!try_has(&shard, 0, token, &attempts).await.unwrap());
            in_two += usize::from(attempts.get() == 2);
        }
        assert!(in_two > 190, "{in_two}: a filter rarely takes an absent key for present");
    });
}

#[test]
fn memory_that_dropped_tables_had_is_given_to_files_that_are_open() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let (shard, clock) = open(&disk, CACHE_BYTES).await;
        for number in 0..TABLES {
            fill(&shard, number, 1).await;
        }
        let of_last = || shard.statistics(table(TABLES - 1)).unwrap();
        let is_resident = || of_last().resident_bytes >= of_last().filter_bytes + of_last().key_index_bytes;
        assert!(!is_resident());
        for number in 0..TABLES - 1 {
            shard.drop_table(table(number)).await.unwrap();
        }
        assert!(!is_resident());
        while_time_passes(&clock, clock.sleep(Duration::from_mins(3))).await;
        assert!(is_resident(), "{:?}", of_last());
        for token in (0..PARTITIONS * 2).step_by(7) {
            assert_eq!(has(&shard, TABLES - 1, token).await, token % 2 == 0);
        }
        shard.drop_table(table(TABLES - 1)).await.unwrap();
        assert_eq!(resident(&shard), (0, 0));
    });
}

#[test]
fn compactions_and_deletions_work_without_memory_for_filters_and_indexes() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let (shard, _) = open(&disk, 0).await;
        fill(&shard, 0, 3).await;
        for token in (0..PARTITIONS).step_by(3) {
            let mut builder = MutationBuilder::new(table(0), token * 2, b"key").unwrap();
            builder.delete_partition(Deletion { timestamp: 9, local_deletion_time: NOW });
            apply(&shard, &builder.build());
        }
        shard.flush(table(0)).await.unwrap();
        shard.compact(table(0)).await.unwrap();
        assert_eq!(shard.statistics(table(0)).unwrap().file_count, 1);
        for token in 0..PARTITIONS {
            assert_eq!(has(&shard, 0, token * 2).await, token % 3 != 0, "{token}");
        }
    });
}

/// The place of a section in the file: 0 the range tombstones, 1 and 2 the filters, 3 the leaves of the index.
fn section(file: &[u8], number: usize) -> (u64, u64) {
    let (_, footer) = file.split_at(file.len() - 152);
    let field = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap());
    (field(number * 20), field(number * 20 + 8))
}

#[test]
fn a_damaged_part_is_found_by_who_needs_it_and_scrubbed_as_a_damaged_block_is() {
    for (number, reason) in [(1, "filter"), (3, "leaf")] {
        let disk = SimulatedDisk::new(1);
        run_local(async {
            let (shard, clock) = open(&disk, 0).await;
            fill(&shard, 0, 1).await;
            let files = disk.files();
            let (path, bytes) = files.iter().find(|(path, _)| path.ends_with("0000000001-data.sst")).unwrap();
            let (offset, length) = section(bytes, number);
            assert!(disk.flip_bit(path, (offset + length / 2) * 8));
            let (mut found, mut failed) = (0, 0);
            for token in 0..PARTITIONS {
                match try_has(&shard, 0, token * 2, &Cell::new(0)).await {
                    Ok(is_there) => found += u64::from(is_there),
                    Err(error) => {
                        let text = error.to_string();
                        assert!(
                            text.contains(reason) && text.contains(&path.display().to_string()),
                            "{text}"
                        );
                        failed += 1;
                    }
                }
            }
            assert_eq!(found + failed, PARTITIONS as u64);
            assert!(failed > 0 && (number == 1 || found > 0), "{found} found, {failed} failed");
            let tables = [table(0)];
            let scrub = shard.examine(&tables, Examination::ScrubAndGiveUp);
            let findings = while_time_passes(&clock, scrub).await.unwrap();
            // Without a filter nothing is lost, without a leaf the blocks that it names are.
            let (rows, lost_blocks) = if number == 1 { (PARTITIONS as u64, 0) } else { (found, 1) };
            assert_eq!(findings[0].outcome, FileOutcome::Salvaged { rows, lost_blocks });
            let mut left = 0;
            for token in 0..PARTITIONS {
                left += u64::from(has(&shard, 0, token * 2).await);
            }
            assert_eq!(left, rows);
        });
    }
}
