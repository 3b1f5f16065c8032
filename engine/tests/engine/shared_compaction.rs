//! A compaction that several jobs share gives what a single job gives, under every strategy; and it is installed as a whole or not at all,
//! whenever it is stopped, fails or is cut off by a crash.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use helenus_at_rest::{EncryptedDisk, MasterKeys, Randomness};
use helenus_engine::compaction::{Leveled, SizeTiered, Strategy, TimeWindow, Unified};
use helenus_engine::io::{
    Background, BackgroundError, BackgroundPool, Clock, CrashStyle, Disk, DiskReserve, Environment, Fault,
    InlineBackground, Job, JobKind, JobOutput, ManualClock, PartThreads, ReadPool, RealClock, ReserveSize,
    SeededRandom, SimulatedDisk, SystemRandom, ThreadBudget, ThreadedDisk,
};
use helenus_engine::shard::Quarantine;
use helenus_engine::table::{TableError, TableReader, TableStatistics};
use helenus_engine::{Deletion, EngineError, MutationBuilder, Shard, ShardOptions, TableOptions, key};

use crate::support::model::VisibleRow;
use crate::support::random_operations::Generator;
use crate::support::{
    DIRECTORY, EVERYTHING, NOW, START_MICROS, TABLE, apply, environment_with, everything, put, read_all,
    run_local, sharing_options, table_options, while_time_passes,
};

/// Counts the jobs that share a compaction, and how many there were at once.
struct Counting {
    inner: InlineBackground,
    parts: Rc<Parts>,
}

#[derive(Default)]
struct Parts {
    begun: Cell<usize>,
    under_way: Cell<usize>,
    most: Cell<usize>,
}

impl Background for Counting {
    fn spawn(&self, kind: JobKind, job: Job) -> LocalBoxFuture<'static, Result<JobOutput, BackgroundError>> {
        let (parts, job) = (Rc::clone(&self.parts), self.inner.spawn(kind, job));
        if kind != JobKind::Part {
            return job;
        }
        parts.begun.set(parts.begun.get() + 1);
        parts.under_way.set(parts.under_way.get() + 1);
        parts.most.set(parts.most.get().max(parts.under_way.get()));
        Box::pin(async move {
            // With little to do, a job would end before the next one begins.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let output = job.await;
            parts.under_way.set(parts.under_way.get() - 1);
            output
        })
    }

    fn part_budget(&self) -> Option<&ThreadBudget> {
        self.inner.part_budget()
    }
}

fn small_blocks() -> TableOptions {
    let mut options = table_options();
    options.writer.block_bytes = 512;
    options
}

/// A shard whose compactions have this many threads, and their jobs.
async fn open_at(
    disk: &SimulatedDisk,
    clock: &Rc<ManualClock>,
    options: ShardOptions,
    threads: usize,
) -> Result<(Rc<Shard>, Rc<Parts>), EngineError> {
    let parts = Rc::new(Parts::default());
    let counted = Rc::clone(&parts);
    let environment = environment_with(disk, clock, |background| {
        Rc::new(Counting { inner: background.with_threads(threads), parts: counted })
    });
    let shard = Shard::open(environment, options).await?;
    shard.create_table(TABLE, small_blocks()).await?;
    shard.set_auto_compaction(TABLE, false)?;
    Ok((shard, parts))
}

async fn open(disk: &SimulatedDisk, threads: usize) -> (Rc<Shard>, Rc<Parts>) {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    open_at(disk, &clock, sharing_options(), threads).await.unwrap()
}

fn table_directory() -> PathBuf {
    Path::new(DIRECTORY).join("tables").join(TABLE.to_string())
}

async fn file_names(disk: &SimulatedDisk) -> Vec<String> {
    let entries = disk.list(&table_directory()).await.unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

/// The statistics of the table's files, in the order of their keys. None of them overlap.
async fn files(disk: &SimulatedDisk) -> Vec<TableStatistics> {
    let mut files = Vec::new();
    for name in file_names(disk).await {
        let file = TableReader::open_file(disk, &table_directory().join(name), 1).await.unwrap();
        files.push(file.statistics().clone());
    }
    files.sort_by(|left, right| left.min_key.cmp(&right.min_key));
    for pair in files.windows(2) {
        assert!(pair[0].max_key < pair[1].min_key, "outputs do not overlap");
    }
    files
}

/// Flushed files with rows, cells that expire, and deletions of every kind, also of whole partitions, which reach over each other.
async fn write_history(shard: &Shard, seed: u64, clock: &ManualClock) {
    let mut generator = Generator { partitions: 200, rows: 30, range_deletes: 4, ..Generator::new(seed) };
    for _ in 0..4 {
        for _ in 0..400 {
            apply(shard, &generator.mutation(TABLE, START_MICROS));
        }
        for partition in 0..10 {
            let mut builder = MutationBuilder::new(TABLE, partition * 77, b"deleted").unwrap();
            builder.delete_partition(Deletion { timestamp: START_MICROS, local_deletion_time: NOW });
            apply(shard, &builder.build());
        }
        while_time_passes(clock, shard.flush(TABLE)).await.unwrap();
    }
}

/// What is in the table, with all tombstones, and its files.
async fn compacted(
    seed: u64,
    threads: usize,
    strategy: &Strategy,
    is_late: bool,
) -> (Vec<u8>, Vec<TableStatistics>, Rc<Parts>) {
    let disk = SimulatedDisk::new(seed);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let (shard, parts) = open_at(&disk, &clock, sharing_options(), threads).await.unwrap();
    let mut options = small_blocks();
    options.compaction.strategy = strategy.clone();
    shard.alter_table(TABLE, options).unwrap();
    write_history(&shard, seed, &clock).await;
    // An old write in memory keeps some of the deletions.
    apply(&shard, &put(-4_999_000, 1, START_MICROS - 10_000_000, b"old"));
    if is_late {
        // The grace period of all deletions is over.
        clock.advance(Duration::from_secs(500));
    }
    while_time_passes(&clock, shard.compact(TABLE)).await.unwrap();
    let running = shard.running_compactions();
    assert!(running.is_empty(), "{running:?}");
    let versions = shard.scan_versions(&everything(TABLE)).unwrap();
    let contents = versions.partitions.iter().flat_map(|partition| partition.bytes().to_vec()).collect();
    (contents, files(&disk).await, parts)
}

fn sums(files: &[TableStatistics]) -> [u64; 6] {
    let sum = |of: fn(&TableStatistics) -> u64| files.iter().map(of).sum();
    [
        sum(|file| file.rows),
        sum(|file| file.partitions),
        sum(|file| file.cells),
        sum(|file| file.tombstones),
        sum(|file| file.range_tombstones),
        sum(|file| file.raw_bytes),
    ]
}

#[test]
fn a_shared_compaction_gives_what_a_single_job_gives_under_every_strategy() {
    let strategies = [
        Strategy::SizeTiered(SizeTiered::default()),
        Strategy::TimeWindow(TimeWindow::default()),
        Strategy::Unified(Unified { target_table_bytes: 8000, min_table_bytes: 0, ..Unified::default() }),
        Strategy::Leveled(Leveled { table_bytes: 10_000, ..Leveled::default() }),
    ];
    for (seed, strategy) in (0..).zip(&strategies) {
        for is_late in [false, true] {
            run_local(async {
                let (expected, of_single, none) = compacted(seed, 1, strategy, is_late).await;
                let (contents, of_shared, parts) = compacted(seed, 4, strategy, is_late).await;
                assert_eq!(none.begun.get(), 0);
                assert!(parts.begun.get() > 10 && parts.most.get() == 4, "{} jobs", parts.begun.get());
                assert_eq!(contents, expected, "{strategy:?}");
                assert_eq!(sums(&of_shared), sums(&of_single), "{strategy:?}");
                match strategy {
                    // Outputs end at the first partition behind a size, give or take a piece.
                    Strategy::Leveled(_) => {
                        assert!(of_shared.len() > 3 && of_shared.len().abs_diff(of_single.len()) <= 1);
                    }
                    _ => assert_eq!(of_shared, of_single, "{strategy:?}"),
                }
                assert!(of_single.len() > 1 || !matches!(strategy, Strategy::Unified(_)));
            });
        }
    }
}

/// Four files of rows over all tokens, and the rows.
async fn write_files(shard: &Shard, tokens: i64) -> Vec<VisibleRow> {
    for file in 0..4_u8 {
        for token in 0..tokens {
            apply(shard, &put(token * 1_000_003, file, 5, &[file; 100]));
        }
        let mut builder = MutationBuilder::new(TABLE, 3 * 1_000_003, b"key").unwrap();
        builder.delete_partition(Deletion { timestamp: 4, local_deletion_time: NOW });
        apply(shard, &builder.build());
        shard.flush(TABLE).await.unwrap();
    }
    read_all(shard, EVERYTHING, false, NOW).unwrap()
}

/// The numbers of disk operations between which a compaction of few rows takes place.
fn operations_of_compaction() -> std::ops::Range<u64> {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let (shard, parts) = open(&disk, 3).await;
        write_files(&shard, 40).await;
        let first = disk.operations();
        shard.compact(TABLE).await.unwrap();
        assert!(parts.begun.get() > 4, "{}", parts.begun.get());
        first..disk.operations()
    })
}

#[test]
fn a_crash_at_any_operation_leaves_the_inputs_or_the_output() {
    let operations = operations_of_compaction();
    assert!(operations.end - operations.start > 12, "{operations:?}");
    for point in operations {
        let style = CrashStyle::ALL[point as usize % CrashStyle::ALL.len()];
        let disk = SimulatedDisk::new(1);
        let expected = run_local(async {
            let (shard, _) = open(&disk, 3).await;
            let rows = write_files(&shard, 40).await;
            disk.crash_at(point);
            let _ = shard.compact(TABLE).await;
            rows
        });
        disk.restart(style, point);
        run_local(async {
            let (shard, _) = open(&disk, 3).await;
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected, "crash at {point}");
            let count = shard.statistics(TABLE).unwrap().file_count;
            assert!(count == 4 || count == 1, "crash at {point}: {count} files");
            assert_eq!(file_names(&disk).await.len(), count, "crash at {point}: nothing else is left");
            shard.compact(TABLE).await.unwrap();
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected);
        });
        let is_quarantined = |path: &PathBuf| path.starts_with(Path::new(DIRECTORY).join("quarantine"));
        assert!(!disk.files().keys().any(is_quarantined), "crash at {point}");
    }
}

#[test]
fn a_failing_operation_costs_the_compaction_alone() {
    let operations = operations_of_compaction();
    let mut failed = 0;
    for point in operations {
        let fault = [Fault::Error, Fault::NoSpace, Fault::ShortWrite][point as usize % 3];
        let disk = SimulatedDisk::new(1);
        run_local(async {
            let (shard, parts) = open(&disk, 3).await;
            let expected = write_files(&shard, 40).await;
            disk.fail_at(point, fault);
            let outcome = shard.compact(TABLE).await;
            failed += usize::from(outcome.is_err());
            assert_eq!(parts.under_way.get(), 0, "all jobs have ended");
            disk.clear_faults();
            if shard.failure().is_none() {
                let rows = read_all(&shard, EVERYTHING, false, NOW).unwrap();
                assert_eq!(rows, expected, "{fault:?} at {point}: {outcome:?}");
                let count = shard.statistics(TABLE).unwrap().file_count;
                assert!(count == 4 || count == 1, "{fault:?} at {point}: {count} files");
                // A file that could not be removed stays until the next start, with the name that marks it.
                let names = file_names(&disk).await.len();
                assert!(names <= count + 2, "{fault:?} at {point}: {names} names of {count} files");
                shard.compact(TABLE).await.unwrap();
                assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected);
            }
        });
    }
    assert!(failed > 3, "{failed}");
}

#[test]
fn an_operator_stops_all_jobs_and_sees_one_compaction() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let options = ShardOptions { compaction_bytes_per_second: Some(1), ..sharing_options() };
        let (shard, parts) = open_at(&disk, &clock, options, 3).await.unwrap();
        let expected = write_files(&shard, 100).await;
        let stopped = {
            let mut compaction = std::pin::pin!(shard.compact(TABLE));
            for _ in 0..2000 {
                assert!(futures::poll!(compaction.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            let [running] = &shard.running_compactions()[..] else { panic!("one compaction") };
            let (read, total) = (running.progress.read_bytes(), running.progress.total_bytes());
            assert!(read > 0 && read < total, "{read} of {total}");
            assert!(parts.begun.get() > 1);
            assert_eq!(shard.stop_compactions(Some(TABLE)), 1);
            while_time_passes(&clock, compaction).await
        };
        assert!(matches!(stopped, Err(EngineError::Table(TableError::Stopped))), "{stopped:?}");
        assert_eq!(parts.under_way.get(), 0, "all jobs have ended");
        assert_eq!(file_names(&disk).await.len(), 4, "nothing of it is left");
        shard.compaction_rate().set(None);
        while_time_passes(&clock, shard.compact(TABLE)).await.unwrap();
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected);
    });
}

#[test]
fn damage_that_one_job_meets_fails_the_whole_and_names_the_file() {
    for place in [3, 10, 50, 90] {
        let disk = SimulatedDisk::new(1);
        run_local(async {
            let (shard, parts) = open(&disk, 3).await;
            write_files(&shard, 100).await;
            let name = file_names(&disk).await[1].clone();
            let path = table_directory().join(&name);
            // The rows take the first part of the file.
            let length = disk.length(&path).await.unwrap();
            assert!(disk.flip_bit(&path, length / 2 * place / 100 * 8));
            let outcome = shard.compact(TABLE).await;
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains("damaged") && text.contains(&name), "{text}");
            assert_eq!(parts.under_way.get(), 0, "all jobs have ended");
            assert_eq!(file_names(&disk).await.len(), 4, "nothing of it is left");
            assert_eq!(shard.statistics(TABLE).unwrap().file_count, 4);
        });
    }
}

#[test]
fn a_partition_that_is_larger_than_a_subrange_is_merged_by_one_job() {
    for has_neighbours in [false, true] {
        let disk = SimulatedDisk::new(1);
        run_local(async {
            let (shard, parts) = open(&disk, 3).await;
            for file in 0..3_u8 {
                for row in 0..250_u8 {
                    apply(&shard, &put(5, row, i64::from(file), &[file; 80]));
                }
                if has_neighbours {
                    for token in (0..5).chain(6..30) {
                        apply(&shard, &put(token, file, 5, &[7; 500]));
                    }
                }
                shard.flush(TABLE).await.unwrap();
            }
            let expected = read_all(&shard, EVERYTHING, false, NOW).unwrap();
            shard.compact(TABLE).await.unwrap();
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected);
            assert_eq!(parts.begun.get() > 2, has_neighbours, "{} jobs", parts.begun.get());
            let [file] = &files(&disk).await[..] else { panic!("one file") };
            assert_eq!(
                (file.partitions, file.largest_partition_rows),
                (if has_neighbours { 30 } else { 1 }, 250)
            );
        });
    }
}

#[test]
fn subranges_of_which_nothing_stays_are_no_trouble() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let (shard, parts) = open_at(&disk, &clock, sharing_options(), 3).await.unwrap();
        write_files(&shard, 100).await;
        for token in 20..80 {
            let mut builder = MutationBuilder::new(TABLE, token * 1_000_003, b"key").unwrap();
            builder.delete_partition(Deletion { timestamp: 9, local_deletion_time: NOW });
            apply(&shard, &builder.build());
        }
        shard.flush(TABLE).await.unwrap();
        clock.advance(Duration::from_secs(500));
        while_time_passes(&clock, shard.compact(TABLE)).await.unwrap();
        assert!(parts.begun.get() > 10);
        let [file] = &files(&disk).await[..] else { panic!("one file") };
        assert_eq!((file.partitions, file.rows, file.range_tombstones), (40, 160, 0));
        // Cleanups leave tokens out, and share as well.
        let begun = parts.begun.get();
        let dropped = while_time_passes(&clock, shard.drop_ranges(TABLE, &[10_000_000..=90_000_000])).await;
        assert_eq!(dropped.unwrap().rewritten_files, 1);
        assert!(parts.begun.get() > begun + 3);
        let tokens = |rows: &[VisibleRow]| {
            rows.iter()
                .map(|row| key::KeyRef::parse(&row.key).unwrap().token / 1_000_003)
                .collect::<BTreeSet<_>>()
        };
        let left = read_all(&shard, EVERYTHING, false, NOW).unwrap();
        assert_eq!(tokens(&left), (0..10).chain(90..100).collect());
        // All that is left goes.
        for token in 0..100 {
            let mut builder = MutationBuilder::new(TABLE, token * 1_000_003, b"key").unwrap();
            builder.delete_partition(Deletion { timestamp: 9, local_deletion_time: NOW });
            apply(&shard, &builder.build());
        }
        shard.flush(TABLE).await.unwrap();
        clock.advance(Duration::from_secs(500));
        while_time_passes(&clock, shard.compact(TABLE)).await.unwrap();
        assert_eq!(shard.statistics(TABLE).unwrap().file_count, 0);
    });
}

#[test]
fn a_full_disk_refuses_the_whole_before_it_begins() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let mut options = sharing_options();
        options.reserve = DiskReserve::new(ReserveSize::Bytes(10_000));
        let (shard, parts) = open_at(&disk, &clock, options, 3).await.unwrap();
        write_files(&shard, 100).await;
        let inputs = shard.statistics(TABLE).unwrap().disk_bytes;
        disk.set_capacity_bytes(disk.used_bytes() + inputs + 9000);
        let operations = disk.written_bytes();
        let refused = while_time_passes(&clock, shard.compact(TABLE)).await;
        assert!(matches!(refused, Err(EngineError::NoRoom(_))), "{refused:?}");
        assert_eq!((parts.begun.get(), disk.written_bytes()), (0, operations));
        // Enough for the output: nothing more is needed.
        disk.set_capacity_bytes(disk.used_bytes() + inputs + 11_000);
        while_time_passes(&clock, shard.compact(TABLE)).await.unwrap();
        assert!(parts.begun.get() > 4);
    });
}

#[test]
fn jobs_take_no_more_threads_than_are_free() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        for (used, most) in [(0, 4), (2, 2), (9, 1)] {
            let parts = Rc::new(Parts::default());
            let counted = Rc::clone(&parts);
            let mut budget = None;
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let environment = environment_with(&disk, &clock, |background| {
                let inner = background.with_threads(4);
                budget = inner.part_budget().cloned();
                Rc::new(Counting { inner, parts: counted })
            });
            let shard = Shard::open(environment, sharing_options()).await.unwrap();
            shard.create_table(TABLE, small_blocks()).await.unwrap();
            shard.set_auto_compaction(TABLE, false).unwrap();
            let expected = write_files(&shard, 100).await;
            // Others are at work.
            let others: Vec<_> = (0..used).map(|_| budget.as_ref().unwrap().take()).collect();
            shard.compact(TABLE).await.unwrap();
            assert_eq!(parts.most.get(), most);
            assert!(parts.begun.get() > 4);
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected);
            drop(others);
            let free: Vec<_> = std::iter::from_fn(|| budget.as_ref().unwrap().claim()).collect();
            assert_eq!(free.len(), 4, "all threads are given back");
            shard.close().await.unwrap();
        }
    });
}

#[test]
fn files_are_encrypted_on_every_thread() {
    const KEY: &[u8] = b"one AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let below = SimulatedDisk::new(1);
    run_local(async {
        let random = Randomness::new(SeededRandom::new(1));
        let keys = MasterKeys::parse(KEY).unwrap();
        let disk: Arc<dyn Disk> = Arc::new(EncryptedDisk::new(Arc::new(below.clone()), keys, random));
        let clock: Rc<dyn Clock> = Rc::new(ManualClock::new(START_MICROS));
        let parts = Rc::new(Parts::default());
        let inner = InlineBackground::new(Arc::clone(&disk), Rc::clone(&clock)).with_threads(3);
        let background = Rc::new(Counting { inner, parts: Rc::clone(&parts) });
        let random = Rc::new(SeededRandom::new(2));
        let environment = Environment { disk, background, clock, random };
        let shard = Shard::open(environment, sharing_options()).await.unwrap();
        shard.create_table(TABLE, small_blocks()).await.unwrap();
        shard.set_auto_compaction(TABLE, false).unwrap();
        let expected = write_files(&shard, 100).await;
        shard.compact(TABLE).await.unwrap();
        assert!(parts.begun.get() > 4);
        assert_eq!(shard.statistics(TABLE).unwrap().file_count, 1);
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected);
        let has_plain = |bytes: &[u8]| bytes.windows(20).any(|window| window == [2; 20]);
        assert!(!below.files().values().any(|bytes| has_plain(bytes)));
    });
}

#[test]
fn real_threads_share_a_compaction() {
    let directory = tempfile::tempdir().unwrap();
    run_local(async {
        let disk: Arc<dyn Disk> = Arc::new(helenus_engine::io::DirectDisk::new());
        let threads = PartThreads::start_on(3, 1, &disk).unwrap();
        let environment = Environment {
            disk: Arc::new(ThreadedDisk::start("disk", ReadPool::start(1).unwrap()).unwrap()),
            background: Rc::new(BackgroundPool::start_with(1, &disk, Some(threads)).unwrap()),
            clock: Rc::new(RealClock::new()),
            random: Rc::new(SystemRandom),
        };
        let options = ShardOptions {
            directory: directory.path().join("shard"),
            quarantine: Quarantine::within(&directory.path().join("shard")),
            ..sharing_options()
        };
        let shard = Shard::open(environment, options).await.unwrap();
        shard.create_table(TABLE, small_blocks()).await.unwrap();
        shard.set_auto_compaction(TABLE, false).unwrap();
        let expected = write_files(&shard, 1000).await;
        shard.compact(TABLE).await.unwrap();
        assert_eq!(shard.statistics(TABLE).unwrap().file_count, 1);
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected);
        shard.close().await.unwrap();
    });
}
