//! A start on a full disk, after an end in the middle of an edit of the manifest.

use super::*;
use crate::io::CrashStyle;

const OTHER: TableId = TableId([8; 16]);

fn options() -> ShardOptions {
    let mut options = ShardOptions::new(Path::new("shard"));
    options.commit_log.segment_bytes = 64 << 10;
    options
}

#[test]
fn a_shard_that_has_ended_in_an_edit_opens_on_a_full_disk() {
    let (mut cut_off, mut made) = (0, 0);
    for calls in 0.. {
        let mut has_ended = false;
        for style in CrashStyle::ALL {
            let disk = SimulatedDisk::new(calls);
            has_ended = run(async {
                let shard = open_with(&disk, options()).await;
                write(&shard, 1, Load::Logged).unwrap();
                shard.flush(TABLE).await.unwrap();
                disk.crash_at(disk.operations() + calls);
                shard.create_table(OTHER, TableOptions::default()).await.is_ok()
            });
            disk.restart(style, calls);
            disk.set_capacity_bytes(disk.used_bytes());
            cut_off += u64::from(!has_ended);
            // The power goes after the first of these starts, which has found no room to write anything.
            let mut tables = Vec::new();
            for _ in 0..2 {
                run(async {
                    let shard = open_with(&disk, options()).await;
                    assert_eq!(rows(&shard).unwrap(), 1);
                    tables.push(shard.table_ids());
                });
                disk.restart(CrashStyle::LoseAll, calls);
            }
            assert_eq!(tables[0], tables[1], "{calls}, {style:?}");
            let is_made = tables[0].contains(&OTHER);
            assert!(is_made || !has_ended, "{calls}, {style:?}");
            made += u64::from(is_made);
            disk.set_capacity_bytes(u64::MAX);
            run(async {
                let shard = open_with(&disk, options()).await;
                shard.create_table(OTHER, TableOptions::default()).await.unwrap();
                shard.flush(TABLE).await.unwrap();
            });
            // The next one finds nothing to be mended.
            run(async {
                let shard = open_with(&disk, options()).await;
                assert!(shard.table_ids().contains(&OTHER) && rows(&shard).unwrap() == 1);
            });
        }
        if has_ended {
            break;
        }
    }
    assert!(cut_off > 20 && made > 12, "{cut_off}, {made}");
}
