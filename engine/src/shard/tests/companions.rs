//! Mutations with companions: all tables or none, whatever is flushed, dropped or lost between.

use super::*;
use crate::commit_log::LogPosition;
use crate::io::CrashStyle;

const COMPANION: TableId = TableId([8; 16]);

fn of_table(table: TableId, position: u8) -> Mutation {
    let mut builder = MutationBuilder::new(table, 1, b"key").unwrap();
    let mut row = RowBuilder::new();
    row.cell(Cell { column: 1, path: &[], timestamp: 5, kind: CellKind::Live, value: b"value" });
    builder.row(&[2, position], &mut row);
    builder.build()
}

fn write_both(shard: &Shard, position: u8) -> Result<LogPosition, EngineError> {
    let both = Mutation::with_companions(&of_table(TABLE, position), &[of_table(COMPANION, position)]);
    shard.apply(&both.unwrap().view().unwrap())
}

async fn open_both(disk: &SimulatedDisk) -> Rc<Shard> {
    let shard = open(disk).await;
    shard.create_table(COMPANION, TableOptions::default()).await.unwrap();
    shard
}

fn rows_of(shard: &Shard, table: TableId) -> usize {
    let mut scan = shard.scan(&ScanRequest { table, ..RANGE }).unwrap();
    let mut rows = 0;
    while let Step::Row(_) = scan.next().unwrap() {
        rows += 1;
    }
    rows
}

#[test]
fn companions_survive_a_crash_with_their_mutation() {
    for flushed in [None, Some(TABLE), Some(COMPANION)] {
        let disk = SimulatedDisk::new(1);
        run(async {
            let shard = open_both(&disk).await;
            let mut position = write_both(&shard, 1).unwrap();
            if let Some(table) = flushed {
                shard.flush(table).await.unwrap();
                position = write_both(&shard, 2).unwrap();
            }
            shard.on_disk(position).await.unwrap();
        });
        disk.restart(CrashStyle::LoseAll, 0);
        run(async {
            let shard = open_both(&disk).await;
            let expected = if flushed.is_some() { 2 } else { 1 };
            assert_eq!(rows_of(&shard, TABLE), expected, "{flushed:?}");
            assert_eq!(rows_of(&shard, COMPANION), expected, "{flushed:?}");
        });
    }
}

#[test]
fn a_mutation_whose_companion_has_no_table_changes_nothing() {
    let disk = SimulatedDisk::new(1);
    run(async {
        let shard = open(&disk).await;
        let refused = write_both(&shard, 1).unwrap_err();
        assert!(matches!(refused, EngineError::UnknownTable(COMPANION)), "{refused}");
        assert_eq!(rows_of(&shard, TABLE), 0);
    });
}

#[test]
fn a_dropped_companion_does_not_keep_its_mutation_from_replay() {
    let disk = SimulatedDisk::new(1);
    run(async {
        let shard = open_both(&disk).await;
        let position = write_both(&shard, 1).unwrap();
        shard.on_disk(position).await.unwrap();
        shard.drop_table(COMPANION).await.unwrap();
    });
    disk.restart(CrashStyle::LoseAll, 0);
    run(async {
        let shard = open(&disk).await;
        assert_eq!(rows_of(&shard, TABLE), 1);
    });
}
