//! What the manifest lists of tables that were dropped.

use super::*;
use crate::io::{CrashStyle, Fault};
use crate::manifest::{Manifest, ManifestFiles};

const OTHER_TABLE: TableId = TableId([8; 16]);

/// The manifest on the disk.
async fn manifest(disk: &SimulatedDisk) -> Manifest {
    ManifestFiles::load(disk, Path::new("shard")).await.unwrap().unwrap().manifest
}

/// Small log segments, so that a few rows need several.
fn options() -> ShardOptions {
    let mut options = ShardOptions::new(Path::new("shard"));
    options.commit_log.segment_bytes = 4_096;
    options
}

fn write_rows(shard: &Shard, table: TableId, rows: std::ops::Range<u8>) {
    for row in rows {
        let mut builder = MutationBuilder::new(table, 1, b"key").unwrap();
        let mut content = RowBuilder::new();
        content.cell(Cell { column: 1, path: &[], timestamp: 5, kind: CellKind::Live, value: &[row; 300] });
        builder.row(&[2, row], &mut content);
        shard.apply(&builder.build().view().unwrap()).unwrap();
    }
}

#[test]
fn a_dropped_table_is_listed_until_its_directory_and_its_records_are_gone() {
    let directory = Path::new("shard/tables").join(OTHER_TABLE.to_string());
    // False: the drop has failed, or its directory was removed.
    let drop_with_fault = async |disk: &SimulatedDisk, point: u64| {
        let shard = open_with(disk, options()).await;
        shard.create_table(OTHER_TABLE, TableOptions::default()).await.unwrap();
        write_rows(&shard, TABLE, 0..10);
        write_rows(&shard, OTHER_TABLE, 0..1);
        shard.durable(shard.log.end_position()).await.unwrap();
        disk.fail_at(disk.operations() + point, Fault::Error);
        let is_dropped = shard.drop_table(OTHER_TABLE).await.is_ok();
        disk.clear_faults();
        assert_eq!(shard.table_ids().len(), if is_dropped { 1 } else { 2 }, "fault at {point}");
        is_dropped && disk.list(&directory).await.is_ok()
    };
    let disk = (0..20).find_map(|point| {
        let disk = SimulatedDisk::new(1);
        run(drop_with_fault(&disk, point)).then_some(disk)
    });
    let disk = disk.unwrap();
    let lists_it = async || manifest(&disk).await.dropped.contains(&OTHER_TABLE);
    assert!(run(lists_it()));
    disk.restart(CrashStyle::KeepAll, 0);
    run(async {
        let shard = open_with(&disk, options()).await;
        assert_eq!(shard.table_ids(), [TABLE]);
        assert!(lists_it().await, "the log has a record of it");
        assert!(disk.list(&directory).await.is_err());
        // The log is released when nothing of it is needed any more.
        for rows in [10..20, 20..30] {
            write_rows(&shard, TABLE, rows);
            shard.flush(TABLE).await.unwrap();
        }
        assert!(!lists_it().await);
    });
    assert!(disk.files().into_keys().all(|path| !path.starts_with("shard/quarantine")));
}

#[test]
fn many_drops_do_not_make_the_manifest_grow() {
    let disk = SimulatedDisk::new(1);
    run(async {
        let shard = open(&disk).await;
        write_rows(&shard, TABLE, 0..3);
        for number in 100..200 {
            let id = TableId([number; 16]);
            shard.create_table(id, TableOptions::default()).await.unwrap();
            shard.drop_table(id).await.unwrap();
            assert!(manifest(&disk).await.dropped.len() <= 2, "after {number} drops");
        }
        let ids: Vec<_> = (100..200).map(|number| TableId([number; 16])).collect();
        let tables: Vec<_> = ids.iter().map(|id| (*id, TableOptions::default())).collect();
        shard.create_tables(&tables).await.unwrap();
        for id in ids {
            shard.drop_table(id).await.unwrap();
            assert!(manifest(&disk).await.dropped.len() <= 20);
        }
        assert_eq!(manifest(&disk).await.tables.len(), 1);
    });
}
