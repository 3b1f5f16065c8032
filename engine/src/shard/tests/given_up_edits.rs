//! A shard after an edit of the manifest whose future was dropped before its end.

use super::*;

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
