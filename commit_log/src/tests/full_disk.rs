//! A full disk: the log waits, loses nothing, and goes on by itself.

use super::*;

/// Lets the log's task run until nothing happens any more without time passing.
async fn settle() {
    for _ in 0..300 {
        yield_now().await;
    }
}

/// Appends and waits, as a writer does that tries again when it is refused.
async fn write(
    log: &Rc<CommitLog>,
    clock: &ManualClock,
    bytes: &[u8],
) -> Result<LogPosition, CommitLogError> {
    loop {
        match log.admit().await {
            Ok(()) => break,
            Err(CommitLogError::NoRoom(_)) => {
                clock.advance(Duration::from_secs(1));
                settle().await;
            }
            Err(error) => return Err(error),
        }
    }
    let position = log.append(bytes)?;
    let mut durable = std::pin::pin!(log.on_disk(position));
    loop {
        if let Some(outcome) = durable.as_mut().now_or_never() {
            return outcome.map(|()| position);
        }
        settle().await;
        clock.advance(Duration::from_millis(500));
    }
}

#[test]
fn no_call_that_fails_for_want_of_room_stops_the_log_unless_it_is_a_sync_of_records() {
    for sync in [SyncMode::Group, PERIODIC] {
        let run = |fault_at: Option<u64>| {
            let disk = SimulatedDisk::new(5);
            let clock = Rc::new(ManualClock::new(0));
            let (written, failure) = block_on(async {
                let (log, _) = recover(&disk, options(sync), &clock).await.unwrap();
                if let Some(fault_at) = fault_at {
                    disk.fail_at(disk.operations() + fault_at, Fault::NoSpace);
                }
                let mut written = Vec::new();
                let outcome = beside(&log, async {
                    for number in 0..40 {
                        let position = write(&log, &clock, &record(number)).await?;
                        written.push((position, Bytes::from(record(number))));
                        if number % 8 == 7 {
                            log.discard_before(position);
                        }
                    }
                    log.close().await
                })
                .await;
                if outcome.is_some_and(|outcome| outcome.is_ok()) {
                    let oldest = log.oldest_position().unwrap();
                    written.retain(|(position, _)| *position >= oldest);
                }
                (written, log.failure())
            });
            (disk, written, failure)
        };
        let (rehearsal, ..) = run(None);
        let mut poisoned = 0;
        let operations = rehearsal.operations();
        for fault_at in 0..operations {
            let (disk, written, failure) = run(Some(fault_at));
            disk.restart(CrashStyle::LoseAll, fault_at);
            let read = replayed(&disk).unwrap();
            match failure {
                None | Some(CommitLogError::Closed) => {
                    assert!(read.ends_with(&written), "{sync:?}, {fault_at}");
                }
                Some(CommitLogError::Poisoned(error)) => {
                    assert!(error.is_sync(), "{sync:?}, {fault_at}: {error}");
                    poisoned += 1;
                }
                Some(error) => panic!("{sync:?}, {fault_at}: {error}"),
            }
        }
        assert!(poisoned > 5 && poisoned < operations / 2, "{poisoned} of {operations}");
    }
}

#[test]
fn a_log_without_room_for_its_next_segment_refuses_writes_and_goes_on_when_there_is_room() {
    for sync in [SyncMode::Group, PERIODIC] {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(0));
        let expected = block_on(async {
            let (log, _) = recover(&disk, options(sync), &clock).await.unwrap();
            beside(&log, async {
                let first = write(&log, &clock, b"first").await.unwrap();
                settle().await;
                // The next segment is there. No other one has room.
                disk.set_capacity_bytes(disk.used_bytes());
                let mut expected = vec![(first, Bytes::from_static(b"first"))];
                while !log.lacks_room() {
                    let position = write(&log, &clock, &[7; 200]).await.unwrap();
                    expected.push((position, Bytes::from_static(&[7; 200])));
                    settle().await;
                }
                assert!(matches!(log.admit().await, Err(CommitLogError::NoRoom(_))));
                // Records that must not wait have room in the segment that is being written.
                log.admit_essential().await.unwrap();
                let essential = log.append(b"essential").unwrap();
                assert!(log.durable_at_once(essential).is_none(), "not before it is on disk");
                log.on_disk(essential).await.unwrap();
                expected.push((essential, Bytes::from_static(b"essential")));
                // More than the segment holds is kept in memory and not acknowledged.
                let waiting: Vec<_> = (0..20).map(|_| log.append(&[8; 200]).unwrap()).collect();
                settle().await;
                clock.advance(Duration::from_mins(1));
                settle().await;
                let mut last = std::pin::pin!(log.durable(*waiting.last().unwrap()));
                assert!(futures::poll!(last.as_mut()).is_pending());
                assert!(log.failure().is_none());
                disk.set_capacity_bytes(u64::MAX);
                clock.advance(Duration::from_secs(1));
                settle().await;
                assert!(!log.lacks_room());
                log.admit().await.unwrap();
                log.on_disk(*waiting.last().unwrap()).await.unwrap();
                last.await.unwrap();
                expected.extend(waiting.into_iter().map(|at| (at, Bytes::from_static(&[8; 200]))));
                expected
            })
            .await
            .unwrap()
        });
        disk.restart(CrashStyle::LoseAll, 0);
        assert_eq!(replayed(&disk).unwrap(), expected, "{sync:?}");
    }
}

#[test]
fn a_released_segment_is_room_enough() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(0));
        let options = CommitLogOptions { spare_segments_max: 0, ..options(SyncMode::Group) };
        let (log, _) = recover(&disk, options, &clock).await.unwrap();
        beside(&log, async {
            let mut last = write(&log, &clock, b"first").await.unwrap();
            settle().await;
            disk.set_capacity_bytes(disk.used_bytes());
            for round in 0..5 {
                while !log.lacks_room() {
                    last = write(&log, &clock, &[round; 200]).await.unwrap();
                    settle().await;
                }
                log.discard_before(last);
                settle().await;
                assert!(!log.lacks_room(), "the file of the released segment is the next one");
            }
            assert!(last.segment > 5);
        })
        .await
        .unwrap();
    });
}

#[test]
fn a_start_on_a_full_disk_goes_on_in_the_segment_that_was_prepared_or_in_one_that_is_released() {
    let disk = SimulatedDisk::new(1);
    let mut written = write_groups(&disk, 20);
    disk.restart(CrashStyle::LoseAll, 0);
    disk.set_capacity_bytes(0);
    let clock = Rc::new(ManualClock::new(0));
    block_on(async {
        for start in 0..3 {
            let (log, read) = recover(&disk, options(SyncMode::Group), &clock).await.unwrap();
            assert_eq!(read, written);
            let position = beside(&log, async {
                let position = log.append(b"more").unwrap();
                let mut durable = std::pin::pin!(log.durable(position));
                settle().await;
                if start > 0 {
                    assert!(futures::poll!(durable.as_mut()).is_pending());
                    let oldest = written[0].0.segment;
                    log.discard_before(LogPosition { segment: oldest + 1, offset: 0 });
                    written.retain(|(position, _)| position.segment > oldest);
                }
                durable.await.unwrap();
                position
            })
            .await
            .unwrap();
            written.push((position, Bytes::from_static(b"more")));
        }
    });
}

#[test]
fn a_log_that_is_closed_on_a_full_disk_ends() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let clock = Rc::new(ManualClock::new(0));
        let (log, _) = recover(&disk, options(SyncMode::Group), &clock).await.unwrap();
        disk.set_capacity_bytes(0);
        let ended = beside(&log, async {
            log.append(b"record").unwrap();
            let mut closed = std::pin::pin!(log.close());
            loop {
                match futures::poll!(closed.as_mut()) {
                    std::task::Poll::Ready(outcome) => return outcome,
                    std::task::Poll::Pending => {
                        settle().await;
                        clock.advance(Duration::from_secs(1));
                    }
                }
            }
        })
        .await;
        assert!(!matches!(ended, Some(Ok(()))));
        assert!(matches!(log.failure(), Some(CommitLogError::NoRoom(_))));
    });
}

#[test]
fn files_for_reuse_are_given_up_where_room_is_scarce() {
    block_on(async {
        let disk = SimulatedDisk::new(1);
        let options = CommitLogOptions { spare_segments_max: 4, ..options(SyncMode::Group) };
        let clock = Rc::new(ManualClock::new(0));
        let (log, _) = recover(&disk, options, &clock).await.unwrap();
        beside(&log, async {
            let mut last = LogPosition::default();
            for number in 0..200 {
                last = write(&log, &clock, &record(number)).await.unwrap();
            }
            log.discard_before(last);
            settle().await;
            let spares = async || LogDirectory::read(&disk, directory()).await.unwrap().spares.len();
            assert_eq!(spares().await, 4);
            let used = disk.used_bytes();
            log.set_room_is_scarce(true);
            settle().await;
            assert_eq!(spares().await, 1);
            assert_eq!(disk.used_bytes(), used - 3 * 4096);
        })
        .await
        .unwrap();
    });
}
