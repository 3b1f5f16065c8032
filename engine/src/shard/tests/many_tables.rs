//! A shard with 10,000 tables: what an edit of one of them writes.

use super::*;

const TABLES: u64 = 10_000;
/// More than a file of one row and a change of the manifest in two copies.
const BYTES_MAX: u64 = 8_000;

fn id(number: u64) -> TableId {
    TableId(u128::from(number + 1_000).to_be_bytes())
}

/// No segment of the log is prepared while bytes are counted.
fn options() -> ShardOptions {
    let mut options = ShardOptions::new(Path::new("shard"));
    options.commit_log.segment_bytes = 64 << 10;
    options
}

async fn written(disk: &SimulatedDisk, work: impl Future<Output = ()>) -> u64 {
    let before = disk.written_bytes();
    work.await;
    disk.written_bytes() - before
}

#[test]
fn an_edit_writes_what_it_changes_and_not_what_the_shard_has() {
    let disk = SimulatedDisk::new(1);
    let write_row = async |shard: &Shard, table: TableId| {
        let mut builder = MutationBuilder::new(table, 1, b"key").unwrap();
        let mut row = RowBuilder::new();
        row.cell(Cell { column: 1, path: &[], timestamp: 5, kind: CellKind::Live, value: b"value" });
        builder.row(&[2, 1], &mut row);
        let position = shard.apply(&builder.build().view().unwrap()).unwrap();
        shard.durable(position).await.unwrap();
    };
    run(async {
        let shard = open_with(&disk, options()).await;
        let tables: Vec<_> = (0..TABLES).map(|number| (id(number), TableOptions::default())).collect();
        shard.create_tables(&tables).await.unwrap();
        let manifest_bytes = disk.files()[Path::new("shard/manifest")].len() as u64;
        assert!(manifest_bytes > 20 * TABLES, "{manifest_bytes}");
        for number in (0..TABLES).step_by(500) {
            write_row(&shard, id(number)).await;
            let flushed = written(&disk, async { shard.flush(id(number)).await.unwrap() });
            let bytes = flushed.await;
            assert!(bytes < BYTES_MAX, "{bytes} bytes for a flush");
            let created = written(&disk, async {
                shard.create_table(id(TABLES + number), TableOptions::default()).await.unwrap();
            });
            let bytes = created.await;
            assert!(bytes < 500, "{bytes} bytes for a new table");
            let dropped = written(&disk, async { shard.drop_table(id(TABLES + number)).await.unwrap() });
            let bytes = dropped.await;
            assert!(bytes < 500, "{bytes} bytes for a drop");
        }
    });
    run(async {
        let shard = open_with(&disk, options()).await;
        assert_eq!(shard.table_ids().len() as u64, TABLES + 1);
    });
}
