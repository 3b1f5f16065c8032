//! The index of memtables and the candidates for compactions name the tables that a look at all of them would find.

use super::*;
use crate::commit_log::LogPosition;
use crate::io::SplitMix64;

const TABLES: u64 = 12;
const STEPS: u64 = 600;

fn id(number: u64) -> TableId {
    TableId(u128::from(number + 1).to_be_bytes())
}

fn write_row(shard: &Shard, table: TableId, key: u64, load: Load) -> Option<LogPosition> {
    let mut builder = MutationBuilder::new(table, key as i64, &key.to_be_bytes()).unwrap();
    let mut row = RowBuilder::new();
    row.cell(Cell { column: 1, path: &[], timestamp: 5, kind: CellKind::Live, value: b"value" });
    builder.row(&[2, 1], &mut row);
    shard.load(&builder.build().view().unwrap(), load).unwrap()
}

fn assert_is_right(shard: &Shard) {
    let lowest: Option<LogPosition> =
        shard.all_tables().iter().filter_map(|table| table.lowest_position()).min();
    assert_eq!(shard.lowest_needed_position(&[]), lowest);
    let oldest = shard.tables_with_oldest(u64::MAX);
    assert_eq!(oldest.first().and_then(|table| table.lowest_position()), lowest);
    let has_frozen = shard.all_tables().iter().any(|table| !table.frozen.borrow().is_empty());
    assert_eq!(!shard.tables_with_frozen().is_empty(), has_frozen);
    let has_active = shard.all_tables().iter().any(|table| table.active_bytes() > 0);
    assert_eq!(!shard.tables_with_large().is_empty(), has_active);
}

#[test]
fn memtables_are_found_by_what_they_need_and_take() {
    let disk = SimulatedDisk::new(1);
    let mut random = SplitMix64::new(7);
    let tables: Vec<_> = (0..TABLES).map(|number| (id(number), TableOptions::default())).collect();
    for _ in 0..3 {
        run(async {
            let shard = open(&disk).await;
            shard.create_tables(&tables).await.unwrap();
            assert_is_right(&shard);
            let mut newest = None;
            for step in 0..STEPS {
                let table = id(random.below(TABLES));
                match random.below(20) {
                    0 => shard.flush(table).await.unwrap(),
                    1 => shard.truncate(table).await.unwrap(),
                    2 => {
                        shard.drop_table(table).await.unwrap();
                        assert_is_right(&shard);
                        shard.create_table(table, TableOptions::default()).await.unwrap();
                    }
                    3 | 4 => shard.freeze(&shard.table(table).unwrap(), shard.log.end_position()),
                    5 => assert_eq!(write_row(&shard, table, step, Load::PastLog), None),
                    _ => newest = write_row(&shard, table, step, Load::Logged),
                }
                assert_is_right(&shard);
            }
            shard.durable(newest.unwrap()).await.unwrap();
        });
    }
}

#[test]
fn the_largest_memtables_are_flushed_first_and_small_ones_together() {
    let disk = SimulatedDisk::new(1);
    run(async {
        let shard = open(&disk).await;
        let tables: Vec<_> = (0..TABLES).map(|number| (id(number), TableOptions::default())).collect();
        shard.create_tables(&tables).await.unwrap();
        let rows = |number: u64| if number == 5 { 10_000 } else { 10 * number };
        for number in 0..TABLES {
            for key in 0..rows(number) {
                write_row(&shard, id(number), key, Load::Logged);
            }
        }
        let chosen = || shard.tables_with_large().iter().map(|table| table.id).collect::<Vec<_>>();
        assert_eq!(chosen(), [id(5)]);
        shard.flush(id(5)).await.unwrap();
        // What was listed and is flushed now is passed over.
        let small = chosen();
        assert_eq!(small[0], id(TABLES - 1));
        assert!(small.len() > 2 && !small.contains(&id(1)), "{small:?}");
        for table in small {
            shard.flush(table).await.unwrap();
        }
        assert!(chosen().iter().all(|table| shard.table(*table).unwrap().active_bytes() > 0));
    });
}

#[test]
fn a_look_for_compactions_goes_over_what_has_changed() {
    let disk = SimulatedDisk::new(1);
    run(async {
        let clock = Rc::new(ManualClock::new(5_000_000));
        let environment = Environment { clock: Rc::clone(&clock) as Rc<dyn Clock>, ..environment(&disk) };
        let shard = Shard::open(environment, ShardOptions::new(Path::new("shard"))).await.unwrap();
        let tables: Vec<_> = (0..TABLES).map(|number| (id(number), TableOptions::default())).collect();
        shard.create_tables(&tables).await.unwrap();
        for number in 0..TABLES {
            write_row(&shard, id(number), 1, Load::Logged);
            shard.flush(id(number)).await.unwrap();
        }
        let settle = async || {
            while !shard.candidates().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        settle().await;
        write_row(&shard, id(3), 2, Load::Logged);
        shard.flush(id(3)).await.unwrap();
        let listed: Vec<_> = shard.candidates().iter().map(|table| table.id).collect();
        assert_eq!(listed, [id(3)]);
        settle().await;
        // Time alone may make something due.
        clock.advance(std::time::Duration::from_mins(1));
        assert_eq!(shard.candidates().len() as u64, TABLES);
    });
}
