//! Closing a shard: it takes no longer than it may, and loses nothing.

use std::rc::Rc;
use std::time::Duration;

use helenus_engine::io::{ManualClock, SimulatedDisk};
use helenus_engine::{
    Cell, CellKind, Load, Mutation, MutationBuilder, RowBuilder, Shard, ShardOptions, TableId,
};

use crate::support::{START_MICROS, environment, run_local, small_options, table_options};

const TABLES: u8 = 20;

fn table(number: u8) -> TableId {
    TableId([number; 16])
}

fn put(number: u8, token: i64, bytes: usize) -> Mutation {
    let mut builder = MutationBuilder::new(table(number), token, b"key").unwrap();
    let mut row = RowBuilder::new();
    row.cell(Cell { column: 1, path: &[], timestamp: 1, kind: CellKind::Live, value: &vec![number; bytes] });
    builder.row(&[2, 1], &mut row);
    builder.build()
}

async fn open(disk: &SimulatedDisk, close_flush_max: Duration) -> Rc<Shard> {
    let clock = Rc::new(ManualClock::new(START_MICROS));
    let options = ShardOptions { close_flush_max, ..small_options() };
    let shard = Shard::open(environment(disk, &clock), options).await.unwrap();
    let mut tables: Vec<_> = (0..TABLES).map(|number| (table(number), table_options())).collect();
    tables[5].1.is_logged = false;
    shard.create_tables(&tables).await.unwrap();
    shard
}

fn files(shard: &Shard) -> usize {
    (0..TABLES).map(|number| shard.statistics(table(number)).unwrap().file_count).sum()
}

fn rows(shard: &Shard, number: u8) -> u64 {
    shard.statistics(table(number)).unwrap().row_versions
}

async fn fill(shard: &Shard) {
    for number in 0..TABLES {
        let load = if number == 7 { Load::PastLog } else { Load::Logged };
        for token in 0..3 {
            let position = shard.load(&put(number, token, 100).view().unwrap(), load).unwrap();
            assert_eq!(position.is_none(), number == 5 || number == 7);
            if let Some(position) = position {
                shard.durable(position).await.unwrap();
            }
        }
    }
}

#[test]
fn what_is_not_in_the_commit_log_is_flushed_and_the_rest_is_read_from_there() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open(&disk, Duration::ZERO).await;
        fill(&shard).await;
        shard.close().await.unwrap();
        assert_eq!(files(&shard), 2);
    });
    run_local(async {
        let shard = open(&disk, Duration::ZERO).await;
        for number in 0..TABLES {
            assert_eq!(rows(&shard, number), 3, "table {number}");
        }
        // What such a table gets afterwards is in the log.
        let position = shard.apply(&put(7, 9, 100).view().unwrap()).unwrap();
        shard.durable(position).await.unwrap();
        shard.close().await.unwrap();
    });
    run_local(async {
        let shard = open(&disk, Duration::ZERO).await;
        assert_eq!((rows(&shard, 7), rows(&shard, 8)), (4, 3));
    });
}

#[test]
fn a_shard_that_has_the_time_leaves_nothing_to_replay() {
    let disk = SimulatedDisk::new(1);
    run_local(async {
        let shard = open(&disk, Duration::from_secs(1)).await;
        fill(&shard).await;
        shard.close().await.unwrap();
        assert_eq!(files(&shard), usize::from(TABLES));
    });
    run_local(async {
        let shard = open(&disk, Duration::from_secs(1)).await;
        assert_eq!((files(&shard), shard.memtable_bytes()), (usize::from(TABLES), 0));
    });
}
