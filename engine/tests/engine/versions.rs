//! Versions: replicas with equal contents answer with equal bytes, whatever their histories, in one page or in many. The merge of
//! several answers shows what a reader of all writes sees, and repairs each replica to the same contents.

use std::rc::Rc;
use std::time::Duration;

use helenus_engine::io::{Clock, ManualClock, SimulatedDisk, SplitMix64};
use helenus_engine::key::full_key;
use helenus_engine::read::Purgeable;
use helenus_engine::read::reconcile_answers::{Reconciled, ReplicaAnswer, reconcile_answers};
use helenus_engine::{
    Cell, CellKind, Deletion, Mutation, MutationBuilder, Operation, RowBuilder, Shard, VersionLimit,
    VersionScanRequest, Versions,
};

use crate::support::model::{Model, VisibleRow};
use crate::support::random_operations::Generator;
use crate::support::{START_MICROS, TABLE, environment, run_local, small_options, table_options};

const SEEDS: u64 = 40;

async fn open(clock: &Rc<ManualClock>) -> Rc<Shard> {
    let shard = Shard::open(environment(&SimulatedDisk::new(1), clock), small_options()).await.unwrap();
    shard.create_table(TABLE, table_options()).await.unwrap();
    shard
}

fn clock() -> Rc<ManualClock> {
    Rc::new(ManualClock::new(START_MICROS))
}

fn request<'a>(range: (&'a [u8], &'a [u8]), reversed: bool, now_seconds: u32) -> VersionScanRequest<'a> {
    VersionScanRequest {
        table: TABLE,
        start: range.0,
        end: range.1,
        reversed,
        now_seconds,
        purgeable: Purgeable::LeftOut,
        is_long: false,
        part: None,
        limit: VersionLimit::UNLIMITED,
    }
}

const ALL: (&[u8], &[u8]) = (&[], &[0xFF; 9]);

/// A random history in random order with flushes and compactions in between.
async fn apply(shard: &Shard, mutations: &[Mutation], random: &mut SplitMix64) {
    let mut order: Vec<usize> = (0..mutations.len()).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, random.below(index as u64 + 1) as usize);
    }
    for index in order {
        shard.apply(&mutations[index].view().unwrap()).unwrap();
        match random.below(100) {
            0..3 => shard.flush(TABLE).await.unwrap(),
            3 => shard.compact(TABLE).await.unwrap(),
            _ => {}
        }
    }
}

/// Every other seed deletes ranges at volume.
fn generator(seed: u64) -> Generator {
    let range_deletes = if seed.is_multiple_of(2) { 1 } else { 14 };
    Generator { partitions: 6, rows: 20, range_deletes, ..Generator::new(seed) }
}

fn mutations(seed: u64, clock: &ManualClock, count: usize) -> Vec<Mutation> {
    let mut generator = generator(seed);
    (0..count).map(|_| generator.mutation(TABLE, clock.now_micros())).collect()
}

fn visible(reconciled: &Reconciled, now_seconds: u32) -> Vec<VisibleRow> {
    let rows = reconciled.rows.iter();
    rows.map(|row| {
        let key = [row.prefix, row.position].concat();
        let parsed = helenus_engine::key::KeyRef::parse(&key).unwrap();
        VisibleRow::of(&helenus_engine::RowView {
            key: &key,
            token: parsed.token,
            partition_key: parsed.partition_key,
            position: row.position,
            row: row.row,
            now_seconds,
        })
    })
    .collect()
}

fn answer(versions: &Versions) -> ReplicaAnswer<'_> {
    ReplicaAnswer { partitions: &versions.partitions, resume: versions.resume.as_deref() }
}

#[test]
fn equal_contents_give_equal_bytes_and_show_what_a_reader_sees() {
    for seed in 0..SEEDS {
        run_local(async {
            let clock = clock();
            let (first, second) = (open(&clock).await, open(&clock).await);
            let history = mutations(seed, &clock, 150);
            let mut model = Model::default();
            for mutation in &history {
                model.apply(&mutation.view().unwrap());
            }
            let mut random = SplitMix64::new(seed);
            apply(&first, &history, &mut random).await;
            apply(&second, &history, &mut random).await;
            let mut generator = generator(seed);
            for round in 0..40 {
                let (start, end) = if round == 0 { (vec![], vec![0xFF; 9]) } else { generator.range() };
                let now_seconds = clock.now_seconds();
                for reversed in [false, true] {
                    let mut request = request((&start, &end), reversed, now_seconds);
                    let left = first.scan_versions(&request).unwrap();
                    assert_eq!(left, second.scan_versions(&request).unwrap(), "seed {seed}");
                    let seen = reconcile_answers(&[answer(&left)], reversed, now_seconds).unwrap();
                    let expected = model.read((&start, &end), reversed, now_seconds);
                    assert_eq!(visible(&seen, now_seconds), expected, "seed {seed}");
                    let is_static = |row: &&VisibleRow| row.key[10 + "partition-0".len()..] == [1];
                    let statics = expected.iter().filter(is_static).count();
                    assert_eq!(left.live_rows as usize, expected.len() - statics, "seed {seed}");
                    request.limit.live_rows = 1 + generator.random.below(5);
                    request.limit.bytes = 1 + generator.random.below(2000);
                    request.limit.tombstones = 1 + generator.random.below(20);
                    assert_eq!(
                        first.scan_versions(&request).unwrap(),
                        second.scan_versions(&request).unwrap(),
                        "seed {seed}"
                    );
                }
            }
        });
    }
}

#[test]
fn what_compaction_has_forgotten_is_not_missed() {
    for seed in 0..SEEDS {
        run_local(async {
            let clock = clock();
            let (first, second) = (open(&clock).await, open(&clock).await);
            let history = mutations(seed, &clock, 120);
            for shard in [&first, &second] {
                for mutation in &history {
                    shard.apply(&mutation.view().unwrap()).unwrap();
                }
            }
            clock.advance(Duration::from_secs(150));
            first.flush(TABLE).await.unwrap();
            first.compact(TABLE).await.unwrap();
            let request = request(ALL, false, clock.now_seconds());
            let left = first.scan_versions(&request).unwrap();
            assert_eq!(left, second.scan_versions(&request).unwrap(), "seed {seed}");
        });
    }
}

#[test]
fn pieces_make_up_the_whole() {
    for seed in 0..SEEDS {
        run_local(async {
            let clock = clock();
            let (shard, copy) = (open(&clock).await, open(&clock).await);
            apply(&shard, &mutations(seed, &clock, 150), &mut SplitMix64::new(seed)).await;
            let mut random = SplitMix64::new(seed ^ 0x4D);
            for reversed in [false, true] {
                let (mut start, mut end) = (ALL.0.to_vec(), ALL.1.to_vec());
                loop {
                    let mut request = request((&start, &end), reversed, clock.now_seconds());
                    request.limit = VersionLimit {
                        live_rows: 1 + random.below(4),
                        bytes: 1 + random.below(400),
                        tombstones: random.below(4),
                        scanned_bytes: 1 + random.below(400),
                    };
                    let piece = shard.scan_versions(&request).unwrap();
                    for mutation in &piece.partitions {
                        copy.apply(&mutation.view().unwrap()).unwrap();
                    }
                    match piece.resume {
                        None => break,
                        Some(bound) if reversed => {
                            assert!(bound < end);
                            end = bound;
                        }
                        Some(bound) => {
                            assert!(bound > start);
                            start = bound;
                        }
                    }
                }
                let whole = request(ALL, reversed, clock.now_seconds());
                assert_eq!(
                    shard.scan_versions(&whole).unwrap(),
                    copy.scan_versions(&whole).unwrap(),
                    "seed {seed}"
                );
            }
        });
    }
}

#[test]
fn answers_of_replicas_that_missed_writes_are_merged_and_repaired() {
    for seed in 0..SEEDS {
        run_local(async {
            let clock = clock();
            let mut replicas = Vec::new();
            for _ in 0..3 {
                replicas.push(open(&clock).await);
            }
            let history = mutations(seed, &clock, 150);
            let mut random = SplitMix64::new(seed);
            let mut model = Model::default();
            for mutation in &history {
                model.apply(&mutation.view().unwrap());
                let sure = random.below(3);
                for (number, replica) in replicas.iter().enumerate() {
                    if number as u64 == sure || random.chance(1, 2) {
                        replica.apply(&mutation.view().unwrap()).unwrap();
                    }
                }
            }
            let now_seconds = clock.now_seconds();
            for reversed in [false, true] {
                let (mut start, mut end) = (ALL.0.to_vec(), ALL.1.to_vec());
                let mut seen = Vec::new();
                loop {
                    let mut request = request((&start, &end), reversed, now_seconds);
                    request.limit.live_rows = 1 + random.below(10);
                    request.limit.tombstones = 1 + random.below(10);
                    let read = || -> Vec<Versions> {
                        replicas.iter().map(|replica| replica.scan_versions(&request).unwrap()).collect()
                    };
                    let versions = read();
                    let answers: Vec<_> = versions.iter().map(answer).collect();
                    let merged = reconcile_answers(&answers, reversed, now_seconds).unwrap();
                    seen.extend(visible(&merged, now_seconds));
                    for (replica, lacking) in replicas.iter().zip(&merged.lacking) {
                        for mutation in lacking {
                            mutation.view().unwrap().validate().unwrap();
                            replica.apply(&mutation.view().unwrap()).unwrap();
                        }
                    }
                    match merged.resume {
                        None => break,
                        Some(bound) if reversed => end = bound,
                        Some(bound) => start = bound,
                    }
                }
                assert_eq!(seen, model.read(ALL, reversed, now_seconds), "seed {seed}");
                let whole = request(ALL, reversed, now_seconds);
                let repaired: Vec<_> =
                    replicas.iter().map(|replica| replica.scan_versions(&whole).unwrap()).collect();
                assert!(repaired.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}");
            }
        });
    }
}

fn cell(timestamp: i64, value: &[u8]) -> RowBuilder {
    let mut row = RowBuilder::new();
    row.cell(Cell { column: 1, path: &[], timestamp, kind: CellKind::Live, value });
    row
}

#[test]
fn spans_are_cut_to_the_range_and_hide_what_they_cover() {
    run_local(async {
        let clock = clock();
        let shard = open(&clock).await;
        let deletion = Deletion { timestamp: 10, local_deletion_time: clock.now_seconds() };
        let mut builder = MutationBuilder::new(TABLE, 7, b"key").unwrap();
        builder
            .row(&[2, 1], &mut cell(5, b"old"))
            .row(&[2, 3], &mut cell(11, b"new"))
            .delete_range(&[2, 0], &[2, 2], deletion)
            .delete_range(&[2, 2], &[2, 9], deletion);
        shard.apply(&builder.build().view().unwrap()).unwrap();
        let (start, end) = (full_key(7, b"key", &[2, 1]).unwrap(), full_key(7, b"key", &[2, 4]).unwrap());
        let versions = shard.scan_versions(&request((&start, &end), false, clock.now_seconds())).unwrap();
        assert_eq!((versions.partitions.len(), versions.live_rows, versions.tombstones), (1, 1, 1));
        let operations: Vec<_> =
            versions.partitions[0].view().unwrap().operations().map(Result::unwrap).collect();
        assert!(matches!(operations[0], Operation::Row { position: [2, 3], .. }));
        assert_eq!(operations[1], Operation::RangeTombstone { start: &[2, 1], end: &[2, 4], deletion });
        assert_eq!(operations.len(), 2);
    });
}

#[test]
fn only_what_is_lacking_is_sent() {
    run_local(async {
        let clock = clock();
        let (first, second) = (open(&clock).await, open(&clock).await);
        let write = |shard: &Shard, column: u32, timestamp: i64| {
            let mut row = RowBuilder::new();
            row.cell(Cell { column, path: &[], timestamp, kind: CellKind::Live, value: b"v" });
            let mut builder = MutationBuilder::new(TABLE, 7, b"key").unwrap();
            builder.row(&[2], &mut row);
            shard.apply(&builder.build().view().unwrap()).unwrap();
        };
        write(&first, 1, 10);
        write(&first, 2, 10);
        write(&second, 1, 10);
        write(&second, 2, 9);
        let request = request(ALL, false, clock.now_seconds());
        let versions = [&first, &second].map(|shard| shard.scan_versions(&request).unwrap());
        let answers: Vec<_> = versions.iter().map(answer).collect();
        let merged = reconcile_answers(&answers, false, clock.now_seconds()).unwrap();
        assert!(merged.lacking[0].is_empty());
        let lacking = merged.lacking[1][0].view().unwrap();
        let Some(Ok(Operation::Row { row, .. })) = lacking.operations().next() else { panic!("no row") };
        assert_eq!(row.cells().map(|cell| cell.column).collect::<Vec<_>>(), [2]);
    });
}
