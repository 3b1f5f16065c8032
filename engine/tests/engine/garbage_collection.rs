//! Garbage collection: each file is rewritten without what other files shadow. No reader and no other replica sees a difference, whatever
//! kinds of deletions there are, and whatever comes in between: a crash, a full disk, an operator who stops it.

use std::rc::Rc;
use std::time::Duration;

use helenus_engine::compaction::Granularity;
use helenus_engine::counter;
use helenus_engine::io::{
    Clock, CrashStyle, DiskReserve, ManualClock, ReserveSize, SimulatedDisk, SplitMix64,
};
use helenus_engine::read::Purgeable;
use helenus_engine::shard::{CompactionKind, TombstoneGc};
use helenus_engine::table::TableError;
use helenus_engine::{
    Cell, CellKind, Deletion, EngineError, Expiry, Mutation, MutationBuilder, Operation, RowBuilder, Shard,
    ShardOptions, TableOptions, TableStatistics, VersionLimit, VersionScanRequest, Versions,
};

use crate::support::random_operations::Generator;
use crate::support::{
    EVERYTHING, NOW, START_MICROS, TABLE, apply, environment, everything, put, read_all, run_local,
    small_options, table_options, while_time_passes,
};

const SEEDS: u64 = 60;

async fn open(disk: &SimulatedDisk, clock: &Rc<ManualClock>, options: ShardOptions) -> Rc<Shard> {
    let shard = Shard::open(environment(disk, clock), options).await.unwrap();
    shard.create_table(TABLE, table_options()).await.unwrap();
    // The files are those that the test makes.
    shard.set_auto_compaction(TABLE, false).unwrap();
    shard
}

fn statistics(shard: &Shard) -> TableStatistics {
    shard.statistics(TABLE).unwrap()
}

/// Incompressible, so that files are as large as their contents.
fn value(token: i64, row: u8) -> Vec<u8> {
    let mut random = SplitMix64::new(token as u64 * 100 + u64::from(row));
    (0..20).flat_map(|_| random.next_u64().to_le_bytes()).collect()
}

fn delete_partition(token: i64, timestamp: i64) -> Mutation {
    let mut builder = MutationBuilder::new(TABLE, token, b"key").unwrap();
    builder.delete_partition(Deletion { timestamp, local_deletion_time: NOW });
    builder.build()
}

fn delete_row(token: i64, row: u8, timestamp: i64) -> Mutation {
    let mut builder = MutationBuilder::new(TABLE, token, b"key").unwrap();
    let mut content = RowBuilder::new();
    content.set_deletion(Deletion { timestamp, local_deletion_time: NOW });
    builder.row(&[2, 1 + row], &mut content);
    builder.build()
}

/// Increments or the deletion of a counter, in rows that have other cells and deletions too. The deletions are never purged: a deletion of a
/// counter shadows newer increments too, and any rewrite may purge it before they have gone.
fn count(generator: &mut Generator, now_micros: i64) -> Mutation {
    let (token, key) = generator.partition();
    let position = generator.position();
    let mut builder = MutationBuilder::new(TABLE, token, &key).unwrap();
    let mut row = RowBuilder::new();
    let timestamp = now_micros - generator.random.below(4_000_000) as i64;
    let (replica, clock) = (generator.random.below(3) as u8, 1 + generator.random.below(50));
    let value = counter::shard([replica; 16], clock as i64, clock as i64 * 3);
    let (kind, value) = if generator.random.chance(1, 6) {
        (CellKind::Tombstone { local_deletion_time: NOW + 1_000_000 }, &[][..])
    } else {
        (CellKind::Counter, &value[..])
    };
    row.cell(Cell { column: 7, path: &[], timestamp, kind, value });
    builder.row(&position, &mut row);
    builder.build()
}

/// The answer to a read of versions, which replicas compare by its digest.
fn versions(shard: &Shard, now_seconds: u32, purgeable: Purgeable) -> Versions {
    let request = VersionScanRequest {
        table: TABLE,
        start: EVERYTHING.0,
        end: EVERYTHING.1,
        reversed: false,
        now_seconds,
        purgeable,
        is_long: false,
        part: None,
        limit: VersionLimit::UNLIMITED,
    };
    shard.scan_versions(&request).unwrap()
}

#[test]
fn no_reader_sees_a_difference() {
    let (mut rewritten, mut rows_before, mut rows_after) = (0, 0, 0);
    for seed in 0..SEEDS {
        run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let (disk, twin_disk) = (SimulatedDisk::new(seed), SimulatedDisk::new(seed));
            let collected = open(&disk, &clock, small_options()).await;
            let twin = open(&twin_disk, &clock, small_options()).await;
            let range_deletes = if seed.is_multiple_of(2) { 1 } else { 8 };
            let mut generator = Generator { partitions: 6, rows: 20, range_deletes, ..Generator::new(seed) };
            for round in 0..4 {
                for step in 0..150 {
                    let now = clock.now_micros();
                    let mutation = if generator.random.chance(1, 6) {
                        count(&mut generator, now)
                    } else {
                        generator.mutation(TABLE, now)
                    };
                    apply(&collected, &mutation);
                    apply(&twin, &mutation);
                    if step % 25 == 24 {
                        collected.flush(TABLE).await.unwrap();
                        twin.flush(TABLE).await.unwrap();
                        clock.advance(Duration::from_secs(generator.random.below(20)));
                    }
                }
                let granularity = [Granularity::Row, Granularity::Cell][(round + seed as usize) % 2];
                rows_before += statistics(&collected).row_versions;
                rewritten += collected.collect_garbage(TABLE, granularity).await.unwrap();
                rows_after += statistics(&collected).row_versions;
                // Now, and when everything has expired and may be purged.
                for later in [0, 90, 1000] {
                    let now = clock.now_seconds() + later;
                    let context = format!("seed {seed}, round {round}, {later} s later");
                    for reversed in [false, true] {
                        let rows = |shard| read_all(shard, EVERYTHING, reversed, now).unwrap();
                        // All of them would fill pages.
                        let (left, right) = (rows(&collected), rows(&twin));
                        if let Some((row, same)) = left.iter().zip(&right).find(|(row, same)| row != same) {
                            assert_eq!(row, same, "{context}");
                        }
                        assert_eq!(left.len(), right.len(), "{context}");
                    }
                    let told = |shard| versions(shard, now, Purgeable::LeftOut);
                    assert_eq!(told(&collected), told(&twin), "{context}");
                }
            }
            clock.advance(Duration::from_secs(1000));
            collected.collect_garbage(TABLE, Granularity::Cell).await.unwrap();
            for shard in [&collected, &twin] {
                shard.compact(TABLE).await.unwrap();
            }
            let now = clock.now_seconds();
            let told = |shard| versions(shard, now, Purgeable::Kept);
            assert_eq!(told(&collected), told(&twin), "seed {seed}");
        });
    }
    assert!(rewritten > 100 && rows_after < rows_before * 9 / 10, "{rewritten}: {rows_before}, {rows_after}");
}

#[test]
fn what_deletions_shadow_goes_and_the_deletions_stay() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock, small_options()).await;
        for token in 0..30 {
            for row in 0..10 {
                apply(&shard, &put(token, row, 10, &value(token, row)));
            }
        }
        shard.flush(TABLE).await.unwrap();
        // Newer than the first deletions, and written over later.
        for token in 0..30 {
            apply(&shard, &put(token, 0, 30, b"after"));
        }
        shard.flush(TABLE).await.unwrap();
        for token in 0..10 {
            apply(&shard, &delete_partition(token, 20));
            apply(&shard, &delete_row(10 + token, 3, 20));
        }
        let told = |shard: &Shard| shard.scan_versions(&everything(TABLE)).unwrap();
        let before = (read_all(&shard, EVERYTHING, false, NOW).unwrap(), told(&shard));
        // The deletions are in memory: they are written first. Two of the files hold nothing that could be shadowed.
        assert_eq!(shard.collect_garbage(TABLE, Granularity::Row).await.unwrap(), 1);
        assert_eq!((read_all(&shard, EVERYTHING, false, NOW).unwrap(), told(&shard)), before);
        let present = statistics(&shard);
        // 300 - 100 - 10 rows, 30 newer ones, 10 deletions of rows.
        assert_eq!((present.file_count, present.row_versions), (3, 190 + 30 + 10));
        assert!(present.tombstones >= 20, "{present:?}");
        // Rows that were written over go only if that is asked for.
        shard.collect_garbage(TABLE, Granularity::Cell).await.unwrap();
        assert_eq!((read_all(&shard, EVERYTHING, false, NOW).unwrap(), told(&shard)), before);
        let smaller = statistics(&shard);
        assert!(smaller.disk_bytes < present.disk_bytes, "{smaller:?} {present:?}");
        // After the grace period the deletions of partitions go as well. Those of rows might shadow other rows of their partition.
        clock.advance(Duration::from_secs(1000));
        shard.collect_garbage(TABLE, Granularity::Row).await.unwrap();
        assert_eq!(statistics(&shard).tombstones, 10);
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), before.0);
    });
}

#[test]
fn a_file_of_which_nothing_stays_is_removed() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let shard = open(&disk, &clock, small_options()).await;
        apply(&shard, &put(1, 1, 1, b"deleted"));
        shard.flush(TABLE).await.unwrap();
        apply(&shard, &delete_partition(1, 2));
        assert_eq!(shard.collect_garbage(TABLE, Granularity::Row).await.unwrap(), 1);
        assert_eq!(statistics(&shard).file_count, 1);
        // A file of which nothing can go is not written again.
        assert_eq!(shard.collect_garbage(TABLE, Granularity::Cell).await.unwrap(), 0);
        // A write that is older than the deletion comes late: it is shadowed as ever.
        apply(&shard, &put(1, 1, 1, b"late"));
        assert!(read_all(&shard, EVERYTHING, false, NOW).unwrap().is_empty());
    });
}

/// A compaction looks at its rate, and at what operators want, after 128 rows.
const KEPT: i64 = 150;
const DELETED: i64 = 150;

/// Two files of rows, and one that deletes half of them.
async fn garbage(shard: &Shard) {
    for file in 0..2 {
        for token in 0..KEPT + DELETED {
            apply(shard, &put(token, file, 10, &value(token, file)));
        }
        shard.flush(TABLE).await.unwrap();
    }
    for token in 0..DELETED {
        apply(shard, &delete_partition(token, 20));
    }
    shard.flush(TABLE).await.unwrap();
}

#[test]
fn it_is_seen_and_stopped_and_its_inputs_stay() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        // So slow that each rewrite waits for the clock as soon as it has written anything.
        let options = ShardOptions { compaction_bytes_per_second: Some(1), ..small_options() };
        let shard = open(&disk, &clock, options).await;
        garbage(&shard).await;
        let before = (read_all(&shard, EVERYTHING, false, NOW).unwrap(), statistics(&shard));
        let stopped = {
            let mut collection = std::pin::pin!(shard.collect_garbage(TABLE, Granularity::Row));
            while shard.running_compactions().is_empty() {
                assert!(futures::poll!(collection.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            let [running] = &shard.running_compactions()[..] else { panic!("one at a time") };
            assert_eq!((running.table, running.kind), (TABLE, CompactionKind::GarbageCollection));
            assert_eq!(shard.stop_compactions(Some(TABLE)), 1);
            while_time_passes(&clock, collection).await
        };
        assert!(matches!(stopped, Err(EngineError::Table(TableError::Stopped))), "{stopped:?}");
        assert_eq!((read_all(&shard, EVERYTHING, false, NOW).unwrap(), statistics(&shard)), before);
        shard.compaction_rate().set(None);
        let rewritten = while_time_passes(&clock, shard.collect_garbage(TABLE, Granularity::Row)).await;
        assert_eq!(rewritten.unwrap(), 2);
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), before.0);
    });
}

#[test]
fn a_disk_without_room_for_it_is_said_and_changes_nothing() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let mut options = small_options();
        options.reserve = DiskReserve::new(ReserveSize::Bytes(30_000));
        let shard = open(&disk, &clock, options).await;
        garbage(&shard).await;
        let before = (read_all(&shard, EVERYTHING, false, NOW).unwrap(), statistics(&shard));
        disk.set_capacity_bytes(disk.used_bytes() + 1000);
        let refused = shard.collect_garbage(TABLE, Granularity::Row).await;
        assert!(matches!(refused, Err(EngineError::NoRoom(_))), "{refused:?}");
        assert_eq!((read_all(&shard, EVERYTHING, false, NOW).unwrap(), statistics(&shard)), before);
        disk.set_capacity_bytes(u64::MAX);
        assert_eq!(shard.collect_garbage(TABLE, Granularity::Row).await.unwrap(), 2);
        assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), before.0);
    });
}

#[test]
fn a_crash_anywhere_changes_no_answer() {
    for step in 0.. {
        let disk = SimulatedDisk::new(step);
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let (before, is_crashed) = run_local(async {
            let shard = open(&disk, &clock, small_options()).await;
            garbage(&shard).await;
            let before = read_all(&shard, EVERYTHING, false, NOW).unwrap();
            disk.crash_at(disk.operations() + step);
            let _ = shard.collect_garbage(TABLE, Granularity::Row).await;
            (before, disk.is_crashed())
        });
        disk.restart(CrashStyle::ALL[step as usize % CrashStyle::ALL.len()], step);
        run_local(async {
            let shard = open(&disk, &clock, small_options()).await;
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), before, "step {step}");
            shard.collect_garbage(TABLE, Granularity::Row).await.unwrap();
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), before, "step {step}");
            assert_eq!(statistics(&shard).row_versions, 2 * KEPT as u64, "step {step}");
        });
        if !is_crashed {
            assert!(step > 10, "{step} steps");
            return;
        }
    }
}

#[test]
fn flushes_compactions_truncations_and_restores_may_come_in_between() {
    for seed in 0..30 {
        let disk = SimulatedDisk::new(seed);
        let clock = Rc::new(ManualClock::new(START_MICROS));
        run_local(async {
            let options = ShardOptions { compaction_bytes_per_second: Some(20_000), ..small_options() };
            let shard = open(&disk, &clock, options).await;
            garbage(&shard).await;
            shard.snapshot(TABLE, "before", &[]).await.unwrap();
            let entry = shard.list_snapshots().await.unwrap().remove(0);
            let before = read_all(&shard, EVERYTHING, false, NOW).unwrap();
            let collector = Rc::clone(&shard);
            let collection =
                tokio::task::spawn_local(
                    async move { collector.collect_garbage(TABLE, Granularity::Row).await },
                );
            for _ in 0..seed * 3 {
                tokio::task::yield_now().await;
                clock.advance(Duration::from_millis(40));
            }
            let mut is_empty = false;
            match seed % 5 {
                0 => shard.flush(TABLE).await.unwrap(),
                1 => while_time_passes(&clock, shard.compact(TABLE)).await.unwrap(),
                2 => {
                    shard.truncate(TABLE).await.unwrap();
                    is_empty = true;
                }
                3 => {
                    shard.restore_snapshot(&entry, TABLE).await.unwrap();
                }
                _ => {
                    while_time_passes(&clock, shard.drop_ranges(TABLE, &[0..=10])).await.unwrap();
                }
            }
            while_time_passes(&clock, collection).await.unwrap().unwrap();
            let expected = if is_empty { Vec::new() } else { before };
            assert_eq!(read_all(&shard, EVERYTHING, false, NOW).unwrap(), expected, "seed {seed}");
        });
    }
}

#[test]
fn what_a_compaction_under_way_may_purge_shadows_nothing() {
    let disk = SimulatedDisk::new(1);
    let clock = Rc::new(ManualClock::new(START_MICROS));
    run_local(async {
        let options = ShardOptions { compaction_bytes_per_second: Some(1), ..small_options() };
        let shard = open(&disk, &clock, options).await;
        // A row tombstone past its grace period. The other rows make the compaction wait for its rate limit.
        let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
        let mut content = RowBuilder::new();
        content.set_deletion(Deletion { timestamp: 20, local_deletion_time: 1 });
        builder.row(&[2, 1], &mut content);
        apply(&shard, &builder.build());
        for token in 2..200 {
            apply(&shard, &put(token, 0, 1, &value(token, 0)));
        }
        let mut compaction = std::pin::pin!(shard.compact(TABLE));
        while shard.running_compactions().is_empty() {
            assert!(futures::poll!(compaction.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        // An older deletion that came later, and its grace period is not over.
        apply(&shard, &delete_row(1, 0, 5));
        shard.flush(TABLE).await.unwrap();
        shard.compaction_rate().set(None);
        shard.collect_garbage(TABLE, Granularity::Cell).await.unwrap();
        assert!(!shard.running_compactions().is_empty(), "the compaction waits for its rate");
        while_time_passes(&clock, compaction).await.unwrap();
        // What it deletes comes last.
        apply(&shard, &put(1, 0, 3, b"late"));
        let rows = read_all(&shard, EVERYTHING, false, NOW).unwrap();
        assert_eq!(rows.len(), 198, "the deleted row is not back");
    });
}

/// The numbers of rows with a deletion, and with a value that has expired, that are left after a compaction.
async fn left(shard: &Shard, clock: &ManualClock) -> (usize, usize) {
    shard.compact(TABLE).await.unwrap();
    let (mut deleted, mut expired) = (0, 0);
    for partition in &versions(shard, clock.now_seconds(), Purgeable::Kept).partitions {
        for operation in partition.view().unwrap().operations() {
            let Operation::Row { row, .. } = operation.unwrap() else { continue };
            deleted += usize::from(row.deletion().is_some());
            expired += row.cells().filter(|cell| matches!(cell.kind, CellKind::Expiring(_))).count();
        }
    }
    (deleted, expired)
}

#[test]
fn deletions_are_purged_as_the_table_says_and_expired_values_after_their_grace_period() {
    let grace = u64::from(table_options().gc_grace_seconds);
    for tombstone_gc in
        [TombstoneGc::AfterGrace, TombstoneGc::Immediate, TombstoneGc::Never, TombstoneGc::KnownEverywhere]
    {
        run_local(async {
            let clock = Rc::new(ManualClock::new(START_MICROS));
            let shard = open(&SimulatedDisk::new(1), &clock, small_options()).await;
            shard.alter_table(TABLE, TableOptions { tombstone_gc, ..table_options() }).unwrap();
            let now = clock.now_seconds();
            let mut builder = MutationBuilder::new(TABLE, 1, b"key").unwrap();
            let mut deleted = RowBuilder::new();
            deleted.set_deletion(Deletion { timestamp: START_MICROS, local_deletion_time: now });
            builder.row(&[2, 1], &mut deleted);
            let mut expiring = RowBuilder::new();
            let kind = CellKind::Expiring(Expiry { ttl: 5, expires_at: now + 5 });
            expiring.cell(Cell { column: 1, path: &[], timestamp: START_MICROS, kind, value: b"v" });
            builder.row(&[2, 2], &mut expiring);
            apply(&shard, &builder.build());
            shard.flush(TABLE).await.unwrap();
            clock.advance(Duration::from_secs(10));
            let is_immediate = tombstone_gc == TombstoneGc::Immediate;
            assert_eq!(left(&shard, &clock).await, (usize::from(!is_immediate), 1), "{tombstone_gc:?}");
            clock.advance(Duration::from_secs(grace));
            let is_kept = matches!(tombstone_gc, TombstoneGc::Never | TombstoneGc::KnownEverywhere);
            assert_eq!(left(&shard, &clock).await, (usize::from(is_kept), 0), "{tombstone_gc:?}");
            shard.set_known_everywhere(TABLE, now).unwrap();
            assert_eq!(left(&shard, &clock).await, (usize::from(is_kept), 0), "{tombstone_gc:?}");
            shard.set_known_everywhere(TABLE, now + 1).unwrap();
            let is_kept = tombstone_gc == TombstoneGc::Never;
            assert_eq!(left(&shard, &clock).await, (usize::from(is_kept), 0), "{tombstone_gc:?}");
        });
    }
}
