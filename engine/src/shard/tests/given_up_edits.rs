//! A shard after an edit of the manifest whose future was dropped before its end.

use futures::FutureExt;

use super::*;
use crate::manifest::ManifestFiles;

const OTHER: TableId = TableId([8; 16]);

#[test]
fn a_shard_refuses_work_after_an_edit_that_was_given_up_until_it_is_opened_anew() {
    let (mut refused, mut made) = (0, 0);
    for calls in 1.. {
        let disk = SimulatedDisk::new(calls);
        let has_ended = run(async {
            let shard = open(&disk).await;
            write(&shard, 1, Load::Logged).unwrap();
            let end = disk.operations() + calls;
            let mut creating = Box::pin(shard.create_table(OTHER, TableOptions::default()));
            let mut has_ended = false;
            while disk.operations() < end && !has_ended {
                has_ended = futures::poll!(creating.as_mut()).is_ready();
            }
            drop(creating);
            if let Some(failure) = shard.failure() {
                assert!(!has_ended && failure.contains("given up"), "{failure}");
                refused += 1;
                let outcome = shard.drop_table(TABLE).await;
                assert!(matches!(outcome, Err(EngineError::Refusing(_))), "{outcome:?}");
                assert!(write(&shard, 2, Load::Logged).is_err());
                assert_eq!(rows(&shard).unwrap(), 1);
            } else {
                // It has not begun, or has ended.
                shard.create_table(OTHER, TableOptions::default()).await.unwrap();
            }
            has_ended
        });
        run(async {
            let shard = open(&disk).await;
            assert!(shard.failure().is_none());
            made += u64::from(shard.table_ids().contains(&OTHER));
            shard.create_table(OTHER, TableOptions::default()).await.unwrap();
            shard.drop_table(OTHER).await.unwrap();
            write(&shard, 2, Load::Logged).unwrap();
        });
        if has_ended {
            break;
        }
    }
    assert!(refused > 2 && made > 1, "{refused}, {made}");
}

#[test]
fn a_shard_that_is_closed_gives_up_no_edit() {
    let (mut made, mut refused) = (0, 0);
    for calls in 1.. {
        let disk = SimulatedDisk::new(calls);
        let (outcome, has_ended_before) = run(async {
            let shard = open(&disk).await;
            let end = disk.operations() + calls;
            let mut creating = Box::pin(shard.create_table(OTHER, TableOptions::default()));
            let mut outcome = None;
            while disk.operations() < end && outcome.is_none() {
                outcome = creating.as_mut().now_or_never();
            }
            let has_ended_before = outcome.is_some();
            // As long as the shard is being closed the edit goes on. What has not ended then is given up.
            let mut closing = std::pin::pin!(shard.close());
            while closing.as_mut().now_or_never().is_none() {
                if outcome.is_none() {
                    outcome = creating.as_mut().now_or_never();
                }
                tokio::task::yield_now().await;
            }
            drop(creating);
            assert_eq!(*shard.failure.borrow(), None, "{calls}");
            (outcome, has_ended_before)
        });
        run(async {
            let loaded = ManifestFiles::load(&disk, Path::new("shard")).await.unwrap().unwrap();
            assert_eq!(loaded.defects().count(), 0, "{calls}");
            let is_there = loaded.manifest.tables.contains_key(&OTHER);
            assert!(is_there || !matches!(outcome, Some(Ok(()))), "{calls}");
            made += u64::from(is_there);
            refused += u64::from(!is_there);
        });
        if has_ended_before {
            break;
        }
    }
    assert!(made > 2 && refused > 0, "{made}, {refused}");
}
