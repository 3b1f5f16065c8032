//! A replica's registers in an engine on a simulated disk: promises survive any crash.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_engine::commit_log::{CommitLogOptions, SyncMode};
use helenus_engine::io::{
    CrashStyle, Environment, InlineBackground, ManualClock, SeededRandom, SimulatedDisk, SplitMix64,
};
use helenus_engine::{Shard, ShardOptions};
use helenus_testing::virtual_time;
use uuid::Uuid;

use super::super::ballot::{Ballot, SerialScope};
use super::super::message::PartitionName;
use super::super::state::{Commit, PromiseOutcome, Proposal, Registers, Trail};
use super::super::store::{self, Change, TABLE, table_options};

fn ballot(micros: i64) -> Ballot {
    Ballot { micros, salt: 7, host_id: Uuid::from_u128(3), scope: SerialScope::Global }
}

fn name() -> PartitionName {
    PartitionName { table_id: [9; 16], token: -4, key: b"key".to_vec() }
}

async fn open(disk: &SimulatedDisk, sync: SyncMode) -> Rc<Shard> {
    let clock = Rc::new(ManualClock::new(1_700_000_000_000_000));
    let arc = Arc::new(disk.clone());
    let environment = Environment {
        disk: arc.clone(),
        background: Rc::new(InlineBackground::new(arc, clock.clone())),
        clock,
        random: Rc::new(SeededRandom::new(disk.operations())),
    };
    let commit_log = CommitLogOptions { sync, ..CommitLogOptions::default() };
    let shard =
        Shard::open(environment, ShardOptions { commit_log, ..ShardOptions::new("/shard") }).await.unwrap();
    shard.create_table(TABLE, table_options()).await.unwrap();
    shard
}

fn run(test: impl Future<Output = ()>) {
    virtual_time::run(1, |_| test);
}

fn load(shard: &Shard) -> Registers {
    store::load(shard, &name()).unwrap()
}

#[test]
fn stored_registers_equal_those_of_the_state_machine() {
    run(async {
        for seed in 0..20 {
            let shard = open(&SimulatedDisk::new(seed), SyncMode::Group).await;
            let mut random = SplitMix64::new(seed);
            let mut expected = load(&shard);
            for _ in 0..60 {
                let at = ballot(random.below(40) as i64);
                let trail = Trail { origins: vec![at; random.below(4) as usize], complete_above_micros: 3 };
                match random.below(5) {
                    kind @ (0 | 1) => {
                        let is_write = kind == 0;
                        if expected.promise(at, is_write) == PromiseOutcome::Promised {
                            store::save(&shard, &name(), &expected, Change::Promise { is_write }).unwrap();
                        }
                    }
                    2 => {
                        // A ballot has one proposal only.
                        let mutation = (at.micros % 2 == 0).then(|| vec![1, 2, 3]);
                        if expected.accept(at, Proposal { origin: at, mutation, trail }).is_ok() {
                            store::save(&shard, &name(), &expected, Change::Accept).unwrap();
                        }
                    }
                    3 => {
                        store::forget(&shard, &name(), &at, 5, 60).unwrap();
                        expected.forget(at.micros);
                    }
                    _ => {
                        let commit = Commit { ballot: at, origin: at, mutation: vec![4], trail };
                        if expected.is_forgotten(&commit) {
                            continue;
                        }
                        store::save_commit(&shard, &name(), &commit).unwrap();
                        expected.commit(commit);
                    }
                }
                assert_eq!(load(&shard), expected, "seed {seed}");
            }
        }
    });
}

#[test]
fn a_promise_survives_a_crash_in_every_sync_mode_of_the_log() {
    let modes = [SyncMode::Group, SyncMode::Batch, SyncMode::Periodic { period: Duration::from_hours(1) }];
    run(async move {
        for sync in modes {
            let disk = SimulatedDisk::new(5);
            let shard = open(&disk, sync).await;
            let mut registers = load(&shard);
            registers.promise(ballot(10), true);
            let written =
                store::save(&shard, &name(), &registers, Change::Promise { is_write: true }).unwrap();
            shard.on_disk(written).await.unwrap();
            registers
                .accept(
                    ballot(10),
                    Proposal { origin: ballot(10), mutation: Some(vec![1]), trail: Trail::default() },
                )
                .unwrap();
            let written = store::save(&shard, &name(), &registers, Change::Accept).unwrap();
            shard.on_disk(written).await.unwrap();
            disk.crash();
            drop(shard);
            disk.restart(CrashStyle::LoseAll, 1);
            let recovered = open(&disk, sync).await;
            let mut recovered = load(&recovered);
            assert_eq!(recovered, registers, "{sync:?}");
            let refused = PromiseOutcome::Rejected { above_micros: 10 };
            assert_eq!(recovered.promise(ballot(9), true), refused);
        }
    });
}

#[test]
fn a_part_of_the_table_ends_where_the_next_begins() {
    run(async {
        let shard = open(&SimulatedDisk::new(1), SyncMode::Group).await;
        let names: Vec<_> = (0..7).map(|token| PartitionName { token, ..name() }).collect();
        for name in &names {
            let mut registers = store::load(&shard, name).unwrap();
            registers.promise(ballot(10), false);
            store::save(&shard, name, &registers, Change::Promise { is_write: false }).unwrap();
        }
        store::remove(&shard, &names[3], 1).unwrap();
        let (mut next, mut found) = (Some(Vec::new()), Vec::new());
        while let Some(start) = next {
            let part = store::load_part(&shard, &start, 2).unwrap();
            assert!(part.states.len() <= 2);
            found.extend(part.states.into_iter().map(|(name, _)| name));
            next = part.resume;
        }
        let left: Vec<_> = names.into_iter().filter(|name| name.token != 3).collect();
        assert_eq!(found, left);
    });
}
