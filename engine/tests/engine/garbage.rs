//! Garbage goes and work ends: expired files, tombstones, dropped columns and overwritten rows give their space back without any
//! further write, and a compaction that fails harms nothing but itself.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use helenus_engine::compaction::{
    CompactionOptions, DroppedColumns, Leveled, SizeTiered, Strategy, TimeWindow, TombstoneOptions, Unified,
};
use helenus_engine::io::{CrashStyle, ManualClock, Persistence, ReadCorruption, SimulatedDisk, SplitMix64};
use helenus_engine::shard::CompactionReport;
use helenus_engine::{
    Cell, CellKind, Deletion, EngineError, Expiry, Liveness, MutationBuilder, RowBuilder, Shard, TableId,
    TableOptions,
};

use crate::support::{
    DIRECTORY, EVERYTHING, NOW, OTHER_TABLE, START_MICROS, TABLE, apply, environment, put, read_all,
    run_local, small_options,
};

const GRACE_SECONDS: u32 = 100;

struct Test {
    disk: SimulatedDisk,
    clock: Rc<ManualClock>,
    shard: Rc<Shard>,
}

impl Test {
    async fn open_on(disk: SimulatedDisk) -> Self {
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let shard = Shard::open(environment(&disk, &clock), small_options()).await.unwrap();
        Self { disk, clock, shard }
    }

    async fn open(options: TableOptions) -> Self {
        let test = Self::open_on(SimulatedDisk::new(1)).await;
        test.shard.create_table(TABLE, options).await.unwrap();
        test
    }

    fn now_seconds(&self) -> u32 {
        use helenus_engine::io::Clock;
        self.clock.now_seconds()
    }

    fn files(&self) -> usize {
        self.shard.statistics(TABLE).unwrap().file_count
    }

    fn disk_bytes(&self) -> u64 {
        self.shard.statistics(TABLE).unwrap().disk_bytes
    }

    /// Lets the shard's tasks run until a condition holds.
    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if condition(self) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("never: {what}");
    }

    /// Moves the clock in steps until a condition holds; at most `limit`.
    async fn within(&self, limit: Duration, what: &str, condition: impl Fn(&Self) -> bool) {
        const STEP: Duration = Duration::from_secs(5);
        let mut passed = Duration::ZERO;
        while passed <= limit {
            for _ in 0..2_000 {
                if condition(self) {
                    return;
                }
                tokio::task::yield_now().await;
            }
            self.clock.advance(STEP);
            passed += STEP;
        }
        panic!("not within {limit:?}: {what}");
    }

    async fn settle(&self) {
        self.until("nothing is pending", |test| !test.shard.compaction_report(TABLE).unwrap().is_pending)
            .await;
    }
}

/// Random bytes, which no compression makes smaller.
fn fill(value: &mut [u8], random: &mut SplitMix64) {
    for byte in value {
        *byte = random.next_u64() as u8;
    }
}

fn options(strategy: Strategy) -> TableOptions {
    TableOptions {
        gc_grace_seconds: GRACE_SECONDS,
        compaction: CompactionOptions { strategy, ..CompactionOptions::default() },
        ..TableOptions::default()
    }
}

fn size_tiered() -> TableOptions {
    options(Strategy::SizeTiered(SizeTiered::default()))
}

fn row(
    table: TableId,
    token: i64,
    position: u8,
    write: impl FnOnce(&mut RowBuilder),
) -> helenus_engine::Mutation {
    let mut builder = MutationBuilder::new(table, token, b"key").unwrap();
    let mut row = RowBuilder::new();
    write(&mut row);
    builder.row(&[2, 1 + position], &mut row);
    builder.build()
}

fn expiring(token: i64, timestamp: i64, ttl: u32) -> helenus_engine::Mutation {
    let written = (timestamp / 1_000_000) as u32;
    row(TABLE, token, 0, |row| {
        let expiry = Some(Expiry { ttl, expires_at: written + ttl });
        row.set_liveness(Liveness { timestamp, expiry });
    })
}

fn deleted(token: i64, timestamp: i64, second: u32) -> helenus_engine::Mutation {
    row(TABLE, token, 0, |row| {
        row.set_deletion(Deletion { timestamp, local_deletion_time: second });
    })
}

#[test]
fn a_file_of_expired_data_goes_unread_from_an_idle_table() {
    for strategy in [
        Strategy::SizeTiered(SizeTiered::default()),
        Strategy::TimeWindow(TimeWindow::default()),
        Strategy::Leveled(Leveled::default()),
        Strategy::Unified(Unified::default()),
    ] {
        run_local(async {
            let test = Test::open(options(strategy)).await;
            for token in 0..50 {
                apply(&test.shard, &expiring(token, START_MICROS + token, 200));
            }
            test.shard.flush(TABLE).await.unwrap();
            assert_eq!(test.files(), 1);
            test.clock.advance(Duration::from_secs(190));
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            assert_eq!(test.files(), 1, "not before its time");
            // If it were read, the compaction would fail.
            let corruption = ReadCorruption {
                path_contains: "-data.sst".to_owned(),
                reads_per_mille: 1000,
                bits_max: 9,
                persistence: Persistence::Transient,
            };
            test.disk.set_read_corruption(Some(corruption));
            test.within(Duration::from_secs(90), "the file is gone", |test| test.files() == 0).await;
            let statistics = test.shard.compaction_statistics();
            assert_eq!((statistics.dropped_files, statistics.merges, statistics.failed), (1, 0, 0));
        });
    }
}

#[test]
fn tombstones_of_an_idle_table_go_after_their_grace_period() {
    run_local(async {
        let mut options = size_tiered();
        options.compaction.tombstones.interval_seconds = 1;
        let test = Test::open(options).await;
        for token in 0..50 {
            apply(&test.shard, &put(token, 1, START_MICROS, b"value"));
            apply(&test.shard, &deleted(token, START_MICROS + 1, NOW));
        }
        test.shard.flush(TABLE).await.unwrap();
        assert_eq!(test.shard.statistics(TABLE).unwrap().tombstones, 50);
        test.within(Duration::from_secs(u64::from(GRACE_SECONDS) + 90), "tombstones are purged", |test| {
            test.shard.statistics(TABLE).unwrap().tombstones == 0
        })
        .await;
        assert_eq!(test.files(), 1);
        assert_eq!(read_all(&test.shard, EVERYTHING, false, test.now_seconds()).unwrap().len(), 50);
    });
}

#[test]
fn an_expired_file_stays_while_it_may_hide_something_older() {
    run_local(async {
        let test = Test::open(size_tiered()).await;
        // The deletion hides a row of another file, and a row in memory.
        apply(&test.shard, &put(1, 0, START_MICROS, b"old"));
        test.shard.flush(TABLE).await.unwrap();
        apply(&test.shard, &deleted(1, START_MICROS + 5, NOW));
        test.shard.flush(TABLE).await.unwrap();
        test.clock.advance(Duration::from_secs(1000));
        for _ in 0..2000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(test.files(), 2);
        assert!(read_all(&test.shard, EVERYTHING, false, test.now_seconds()).unwrap().is_empty());

        let test = Test::open(size_tiered()).await;
        apply(&test.shard, &deleted(1, START_MICROS + 5, NOW));
        test.shard.flush(TABLE).await.unwrap();
        apply(&test.shard, &put(1, 0, START_MICROS, b"late"));
        test.clock.advance(Duration::from_secs(1000));
        for _ in 0..2000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(test.files(), 1);
        assert!(read_all(&test.shard, EVERYTHING, false, test.now_seconds()).unwrap().is_empty());
    });
}

#[test]
fn an_ancient_write_holds_back_the_purge_of_its_own_partition_alone() {
    run_local(async {
        let test = Test::open(size_tiered()).await;
        for token in 0..50 {
            apply(&test.shard, &deleted(token * 1_000_003, START_MICROS, NOW));
            apply(&test.shard, &put(token * 1_000_003, 7, START_MICROS, b"stays"));
        }
        test.shard.flush(TABLE).await.unwrap();
        test.clock.advance(Duration::from_secs(1000));
        // One in memory, one in a file of its own.
        apply(&test.shard, &put(0, 9, 1, b"ancient"));
        test.shard.flush(TABLE).await.unwrap();
        apply(&test.shard, &put(1_000_003, 9, 1, b"ancient"));
        let mut tombstone_options = size_tiered();
        tombstone_options.compaction.tombstones =
            TombstoneOptions { interval_seconds: 0, unchecked: true, ..TombstoneOptions::default() };
        test.shard.alter_table(TABLE, tombstone_options).unwrap();
        test.within(Duration::from_mins(5), "the others are purged", |test| {
            test.shard.statistics(TABLE).unwrap().tombstones == 2
        })
        .await;
        let rows = read_all(&test.shard, EVERYTHING, false, test.now_seconds()).unwrap();
        assert_eq!(rows.len(), 52);
    });
}

#[test]
fn a_dropped_column_leaves_the_files() {
    run_local(async {
        let test = Test::open(size_tiered()).await;
        let cell =
            |column, timestamp, value| Cell { column, path: &[], timestamp, kind: CellKind::Live, value };
        let value = [7; 2000];
        for token in 0..50 {
            apply(
                &test.shard,
                &row(TABLE, token, 0, |row| {
                    row.set_liveness(Liveness { timestamp: 5, expiry: None });
                    row.cell(cell(1, 5, b"kept")).cell(cell(2, 5, &value)).cell(cell(3, 9, b"new"));
                }),
            );
        }
        let dropped_columns = DroppedColumns::new([(2, 5), (3, 8)]);
        test.shard.alter_table(TABLE, TableOptions { dropped_columns, ..size_tiered() }).unwrap();
        test.shard.compact(TABLE).await.unwrap();
        let rows = read_all(&test.shard, EVERYTHING, false, NOW).unwrap();
        assert_eq!(rows.len(), 50);
        for row in rows {
            assert_eq!(row.cells.iter().map(|cell| cell.0.0).collect::<Vec<_>>(), [1, 3]);
        }
    });
}

/// A batch or hint: written once, removed once.
fn once(number: u32) -> helenus_engine::Mutation {
    let mut builder = MutationBuilder::new(TABLE, 0, b"once").unwrap();
    let mut row = RowBuilder::new();
    let timestamp = START_MICROS + i64::from(number);
    row.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value: &[7; 200] });
    builder.row(&position(number), &mut row);
    builder.build()
}

fn position(number: u32) -> Vec<u8> {
    [&[2, 1][..], &number.to_be_bytes()].concat()
}

fn removal(number: u32) -> helenus_engine::Mutation {
    let mut builder = MutationBuilder::new(TABLE, 0, b"once").unwrap();
    let mut row = RowBuilder::new();
    row.set_deletion(Deletion { timestamp: i64::MAX - 1, local_deletion_time: NOW });
    builder.row(&position(number), &mut row);
    builder.build()
}

fn once_options() -> TableOptions {
    TableOptions { writes_once: true, ..size_tiered() }
}

#[test]
fn rows_that_are_written_once_leave_nothing_behind() {
    run_local(async {
        let test = Test::open(once_options()).await;
        let mut largest = 0;
        for number in 0..20_000 {
            test.shard.admit().await.unwrap();
            apply(&test.shard, &once(number));
            // A few rows are always there, and some stay long enough to get into files.
            if number >= 100 {
                apply(&test.shard, &removal(number - 100));
            }
            largest = largest.max(test.disk_bytes());
        }
        test.shard.flush(TABLE).await.unwrap();
        test.settle().await;
        assert!(largest < 200 << 10, "{largest}");
        assert_eq!(read_all(&test.shard, EVERYTHING, false, NOW).unwrap().len(), 100);
        let statistics = test.shard.statistics(TABLE).unwrap();
        assert!(statistics.row_versions <= 1000 && statistics.file_count < 4, "{statistics:?}");
    });
}

#[test]
fn removals_of_rows_in_files_end_with_them() {
    run_local(async {
        let test = Test::open(once_options()).await;
        for number in 0..3_000 {
            apply(&test.shard, &once(number));
        }
        test.shard.flush(TABLE).await.unwrap();
        for number in 0..2_990 {
            apply(&test.shard, &removal(number));
        }
        // Its row never comes.
        apply(&test.shard, &removal(9_000));
        test.shard.flush(TABLE).await.unwrap();
        test.shard.compact(TABLE).await.unwrap();
        let statistics = test.shard.statistics(TABLE).unwrap();
        assert_eq!((statistics.row_versions, statistics.tombstones), (11, 1));
        test.clock.advance(Duration::from_secs(1000));
        test.shard.compact(TABLE).await.unwrap();
        assert_eq!(test.shard.statistics(TABLE).unwrap().row_versions, 10);
        assert_eq!(read_all(&test.shard, EVERYTHING, false, NOW).unwrap().len(), 10);
    });
}

#[test]
fn what_is_removed_for_good_stays_so_across_restarts() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let test = Test::open_on(disk.clone()).await;
        test.shard.create_table(TABLE, once_options()).await.unwrap();
        for number in 0..100 {
            apply(&test.shard, &once(number));
        }
        test.shard.flush(TABLE).await.unwrap();
        let mut last = apply(&test.shard, &once(100));
        for number in 0..=100 {
            last = last.max(apply(&test.shard, &removal(number)));
        }
        // The removal comes first.
        last = last.max(apply(&test.shard, &removal(200)));
        last = last.max(apply(&test.shard, &once(200)));
        last = last.max(apply(&test.shard, &once(300)));
        test.shard.durable(last).await.unwrap();
    });
    for _ in 0..2 {
        disk.restart(CrashStyle::LoseAll, 1);
        run_local(async {
            let test = Test::open_on(disk.clone()).await;
            test.shard.create_table(TABLE, once_options()).await.unwrap();
            assert_eq!(read_all(&test.shard, EVERYTHING, false, NOW).unwrap().len(), 1);
            test.shard.compact(TABLE).await.unwrap();
            assert_eq!(read_all(&test.shard, EVERYTHING, false, NOW).unwrap().len(), 1);
        });
    }
}

fn path_of(table: TableId, generation: u64) -> PathBuf {
    Path::new(DIRECTORY).join("tables").join(table.to_string()).join(format!("{generation:010}-data.sst"))
}

#[test]
fn a_damaged_file_stops_no_other_compaction_and_is_reported() {
    // The same place again: the file is whole.
    let flip = |disk: &SimulatedDisk, _| assert!(disk.flip_bit(&path_of(TABLE, 2), 80));
    a_bad_file_stops_no_other_compaction_and_is_reported(flip);
}

#[test]
fn a_file_on_a_bad_medium_stops_no_other_compaction_and_is_reported() {
    let path = path_of(TABLE, 2).display().to_string();
    a_bad_file_stops_no_other_compaction_and_is_reported(move |disk, is_bad| {
        disk.set_bad_medium(is_bad.then_some(path.as_str()));
    });
}

/// `harm` makes the second file of the table bad, or whole again.
fn a_bad_file_stops_no_other_compaction_and_is_reported(harm: impl Fn(&SimulatedDisk, bool)) {
    run_local(async {
        let test = Test::open(size_tiered()).await;
        // The other table comes later in the order of tables.
        test.shard.create_table(OTHER_TABLE, size_tiered()).await.unwrap();
        let disabled = |is_enabled| {
            let mut options = size_tiered();
            options.compaction.enabled = is_enabled;
            options
        };
        test.shard.alter_table(TABLE, disabled(false)).unwrap();
        for timestamp in 0..4 {
            apply(&test.shard, &put(1, 1, timestamp, &[7; 3000]));
            test.shard.flush(TABLE).await.unwrap();
        }
        harm(&test.disk, true);
        test.shard.alter_table(TABLE, disabled(true)).unwrap();
        test.until("the failure is counted", |test| test.shard.compaction_statistics().failed == 1).await;
        let report = test.shard.compaction_report(TABLE).unwrap();
        assert!(report.is_pending);
        let [failure] = report.failures.as_slice() else { panic!("{report:?}") };
        assert_eq!(failure.file.as_deref(), Some("0000000002-data.sst"));
        assert!(failure.reason.contains("0000000002-data.sst") && failure.attempts == 1, "{failure:?}");

        for timestamp in 0..4 {
            let mut builder = MutationBuilder::new(OTHER_TABLE, 1, b"key").unwrap();
            let mut row = RowBuilder::new();
            row.set_liveness(Liveness { timestamp, expiry: None });
            builder.row(&[2, 1], &mut row);
            apply(&test.shard, &builder.build());
            test.shard.flush(OTHER_TABLE).await.unwrap();
        }
        test.until("the other table is compacted", |test| {
            test.shard.statistics(OTHER_TABLE).unwrap().file_count <= 2
        })
        .await;
        // The other files of the table go on without the damaged one.
        apply(&test.shard, &put(1, 1, 5, &[7; 3000]));
        test.shard.flush(TABLE).await.unwrap();
        test.until("three of the others are merged", |test| test.files() <= 3).await;
        assert_eq!(test.shard.compaction_statistics().failed, 1);
        // It is tried again later, and succeeds once the file can be read.
        harm(&test.disk, false);
        for timestamp in 6..8 {
            apply(&test.shard, &put(1, 1, timestamp, &[7; 3000]));
            test.shard.flush(TABLE).await.unwrap();
        }
        test.within(Duration::from_secs(10), "all is merged", |test| {
            test.files() <= 2 && test.shard.compaction_report(TABLE).unwrap() == CompactionReport::default()
        })
        .await;
        assert_eq!(test.shard.compaction_statistics().failed, 1);
    });
}

#[test]
fn a_failure_that_no_file_causes_is_tried_again_ever_less_often() {
    run_local(async {
        let test = Test::open(size_tiered()).await;
        let mut options = size_tiered();
        options.compaction.enabled = false;
        test.shard.alter_table(TABLE, options).unwrap();
        for timestamp in 0..4 {
            let mut value = vec![0; 30_000];
            let mut random = SplitMix64::new(timestamp as u64);
            fill(&mut value, &mut random);
            apply(&test.shard, &put(timestamp, 1, timestamp, &value));
            test.shard.flush(TABLE).await.unwrap();
        }
        // The output cannot be read back.
        test.disk.set_bad_medium(Some("-data.sst.tmp"));
        test.shard.alter_table(TABLE, size_tiered()).unwrap();
        test.until("the first failure", |test| test.shard.compaction_statistics().failed == 1).await;
        for (seconds, failed) in [(1, 2), (1, 2), (1, 3), (3, 3), (1, 4)] {
            test.clock.advance(Duration::from_secs(seconds));
            for _ in 0..2000 {
                tokio::task::yield_now().await;
            }
            assert_eq!(test.shard.compaction_statistics().failed, failed);
        }
        let report = test.shard.compaction_report(TABLE).unwrap();
        assert_eq!((report.failures.len(), report.failures[0].attempts), (1, 4));
        assert_eq!(report.failures[0].file, None);
        assert_eq!(test.files(), 4);
        test.disk.set_bad_medium(None);
        test.within(Duration::from_mins(1), "the output can be read", |test| test.files() == 1).await;
        assert_eq!(test.shard.compaction_report(TABLE).unwrap(), CompactionReport::default());
    });
}

#[test]
fn inputs_stay_when_an_output_cannot_be_read_back() {
    run_local(async {
        let test = Test::open(size_tiered()).await;
        for timestamp in 0..2 {
            apply(&test.shard, &put(1, 1, timestamp, &[7; 3000]));
            test.shard.flush(TABLE).await.unwrap();
        }
        let corruption = ReadCorruption {
            path_contains: "0000000003-data.sst".to_owned(),
            reads_per_mille: 1000,
            bits_max: 1,
            persistence: Persistence::Persistent,
        };
        test.disk.set_read_corruption(Some(corruption));
        let failed = test.shard.compact(TABLE).await;
        assert!(
            matches!(&failed, Err(EngineError::Table(error)) if error.to_string().contains("0000000003"))
        );
        test.disk.set_read_corruption(None);
        assert_eq!(test.files(), 2);
        assert_eq!(read_all(&test.shard, EVERYTHING, false, NOW).unwrap().len(), 1);
        test.shard.compact(TABLE).await.unwrap();
        assert_eq!(test.files(), 1);
    });
}

#[test]
fn rows_that_are_overwritten_take_at_most_three_times_their_space() {
    // Many times the memory: level 0 and the memtables come on top.
    const ROWS: i64 = 1200;
    const VALUE_BYTES: usize = 2000;
    let small_tiers = SizeTiered { min_table_bytes: 0, ..SizeTiered::default() };
    for (name, strategy) in [
        ("size-tiered", Strategy::SizeTiered(small_tiers.clone())),
        ("time windows", Strategy::TimeWindow(TimeWindow { within: small_tiers, ..TimeWindow::default() })),
        ("leveled", Strategy::Leveled(Leveled { table_bytes: 32 << 10, ..Leveled::default() })),
        (
            "unified, tiered",
            Strategy::Unified(Unified {
                target_table_bytes: 32 << 10,
                min_table_bytes: 0,
                ..Unified::default()
            }),
        ),
        (
            "unified, levelled",
            Strategy::Unified(Unified {
                scaling: vec![-8],
                target_table_bytes: 32 << 10,
                min_table_bytes: 0,
                ..Unified::default()
            }),
        ),
    ] {
        run_local(async {
            let test = Test::open(options(strategy)).await;
            let mut random = SplitMix64::new(9);
            let mut value = vec![0; VALUE_BYTES];
            let mut most_files = 0;
            for pass in 0..20 {
                for row in 0..ROWS {
                    fill(&mut value, &mut random);
                    test.shard.admit().await.unwrap();
                    // Spread over the token space.
                    let token = (row as u64 * (u64::MAX / ROWS as u64) + 1) as i64;
                    let token = token.wrapping_add(i64::MIN);
                    apply(&test.shard, &put(token, 1, START_MICROS + pass, &value));
                }
                test.settle().await;
                most_files = most_files.max(test.files());
            }
            test.shard.flush(TABLE).await.unwrap();
            test.settle().await;
            let contents = ROWS as u64 * VALUE_BYTES as u64;
            let bytes = test.disk_bytes();
            assert!(bytes <= 3 * contents, "{name}: {bytes} of {contents}");
            assert!(most_files < 200, "{name}: {most_files} files");
            let rows = read_all(&test.shard, EVERYTHING, false, NOW).unwrap();
            assert_eq!(rows.len(), ROWS as usize, "{name}");
            assert_eq!(test.shard.compaction_statistics().failed, 0);
        });
    }
}
