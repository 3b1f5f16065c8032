//! Transfers between nodes of one thread, over a network in memory: all data arrives, whichever node dies on the way.

mod cluster;

use helenus::streaming::progress::Transfers;
use std::time::Duration;

use helenus_engine::io::CrashStyle;
use helenus_ring::member::{MemberState, TransitionPhase};

use self::cluster::{Cluster, TABLES, damage, with_cluster};
use helenus::streaming::attempt::TransferError;
use helenus::streaming::receiver::{self, Estimates};

const WRITE_BOTH: MemberState = MemberState::Joining(TransitionPhase::WriteBoth);
const LEAVING: MemberState = MemberState::Leaving(TransitionPhase::WriteBoth);

/// Lets a node that gains ranges stream until it has everything.
async fn fetch(cluster: &Cluster, number: usize) -> Result<(), TransferError> {
    let context = cluster.first_shard(number);
    let received = async move { receiver::run(&context, &mut Estimates::default(), false).await };
    cluster.machine(number).run(received).await.unwrap()
}

/// Like [`fetch`], where a dead member was the only replica of some system tables' ranges.
async fn fetch_rest(cluster: &Cluster, number: usize) {
    match fetch(cluster, number).await {
        Ok(()) | Err(TransferError::Lost(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_joiner_gets_all_versions_of_its_ranges_whatever_the_shard_counts() {
    for factor in [1, 2, 3] {
        with_cluster(7, factor, |cluster| async move {
            for shards in [2, 3, 1] {
                cluster.add(shards, MemberState::Normal).await;
            }
            cluster.write(600, 200).await;
            let joiner = cluster.add(4, WRITE_BOTH).await;
            fetch(&cluster, joiner).await.unwrap();
            let gained = cluster.check_receiver(joiner);
            assert!(gained > 100, "{gained} partitions of factor {factor}");
            let report = helenus::streaming::progress(&cluster.first_shard(joiner)).receiving.unwrap();
            assert!(report.is_done && report.bytes > 0, "{report:?}");
            assert!(report.peers.iter().all(|peer| peer.units_done == peer.units));
        });
    }
}

#[test]
fn remaining_members_get_the_data_of_a_leaving_member() {
    with_cluster(8, 2, |cluster| async move {
        for shards in [2, 1, 2, 3] {
            cluster.add(shards, MemberState::Normal).await;
        }
        cluster.write(500, 100).await;
        cluster.set_state(1, LEAVING);
        let mut gained = 0;
        for number in [0, 2, 3] {
            fetch(&cluster, number).await.unwrap();
            gained += cluster.check_receiver(number);
        }
        assert!(gained > 100, "{gained}");
    });
}

#[test]
fn a_dead_member_is_replaced_with_the_data_of_the_others() {
    with_cluster(9, 3, |cluster| async move {
        for shards in [1, 2, 1, 2] {
            cluster.add(shards, MemberState::Normal).await;
        }
        cluster.write(400, 100).await;
        cluster.stop(1);
        cluster.set_state(1, LEAVING);
        for number in [0, 2, 3] {
            fetch_rest(&cluster, number).await;
            cluster.check_receiver(number);
        }
    });
}

#[test]
fn with_one_replica_no_member_takes_a_dead_members_slot() {
    with_cluster(10, 1, |cluster| async move {
        for _ in 0..2 {
            cluster.add(1, MemberState::Normal).await;
        }
        cluster.write(100, 10).await;
        let joiner = cluster.add(1, WRITE_BOTH).await;
        for number in 0..2 {
            cluster.stop(number);
        }
        let error = fetch(&cluster, joiner).await.unwrap_err();
        assert!(matches!(error, TransferError::Lost(_) | TransferError::Blocked(_)), "{error}");
        for number in 0..2 {
            cluster.restart(number).await;
        }
        fetch(&cluster, joiner).await.unwrap();
        cluster.check_receiver(joiner);
    });
}

#[test]
fn data_of_a_dead_source_counts_as_missing() {
    with_cluster(10, 1, |cluster| async move {
        for _ in 0..2 {
            cluster.add(1, MemberState::Normal).await;
        }
        cluster.write(400, 10).await;
        let joiner = cluster.add(1, WRITE_BOTH).await;
        let mut estimates = Estimates::default();
        let mut expected = Vec::new();
        cluster.stop(0);
        // It sends its estimate, and nothing more.
        cluster.links.fail_after(1, 1);
        for _ in 0..2 {
            receiver::run(&cluster.first_shard(joiner), &mut estimates, false).await.unwrap_err();
            let report = helenus::streaming::progress(&cluster.first_shard(joiner)).receiving.unwrap();
            expected.push(report);
            cluster.stop(1);
        }
        // The one that died first was never asked.
        let [first, second] = &expected[..] else { panic!("{expected:?}") };
        assert!(first.estimated_bytes > 0, "{first:?}");
        assert!(first.bytes < first.estimated_bytes, "{first:?}");
        assert_eq!((first.bytes, first.estimated_bytes), (second.bytes, second.estimated_bytes));
    });
}

#[test]
fn a_transfer_continues_after_the_source_died() {
    with_cluster(11, 1, |cluster| async move {
        cluster.add(2, MemberState::Normal).await;
        cluster.write(800, 20_000).await;
        let joiner = cluster.add(2, WRITE_BOTH).await;
        cluster.links.fail_after(0, 10);
        let error = fetch(&cluster, joiner).await.unwrap_err();
        assert!(matches!(error, TransferError::Peer { .. } | TransferError::Cancelled), "{error}");
        let first = cluster.received_bytes(joiner);
        assert!(first > 0);
        cluster.stop(0);
        cluster.restart(0).await;
        fetch(&cluster, joiner).await.unwrap();
        cluster.check_receiver(joiner);
        let all = cluster.received_bytes(joiner);
        let again = cluster.sent_bytes(0);
        assert!(again < all, "{again} bytes were sent after the restart, of {all}");
    });
}

#[test]
fn a_transfer_continues_after_the_receiver_died() {
    for style in CrashStyle::ALL {
        with_cluster(12, 1, |cluster| async move {
            cluster.add(2, MemberState::Normal).await;
            cluster.write(800, 20_000).await;
            let joiner = cluster.add(2, WRITE_BOTH).await;
            cluster.links.fail_after(0, 10);
            fetch(&cluster, joiner).await.unwrap_err();
            let before = cluster.sent_bytes(0);
            cluster.crash(joiner, style).await;
            cluster.links.heal(0);
            fetch(&cluster, joiner).await.unwrap();
            cluster.check_receiver(joiner);
            let again = cluster.sent_bytes(0) - before;
            let all = cluster.received_bytes(joiner);
            assert!(again < all, "{again} bytes were sent after the crash ({style:?}), of {all}");
        });
    }
}

#[test]
fn a_receiver_that_dies_between_chunks_has_stored_only_progress_that_is_in_files() {
    const ENOUGH: u64 = 5 << 20;
    for style in CrashStyle::ALL {
        with_cluster(13, 1, |cluster| async move {
            cluster.add(2, MemberState::Normal).await;
            cluster.write(800, 20_000).await;
            let joiner = cluster.add(2, WRITE_BOTH).await;
            {
                let enough = async {
                    let mut turns = 0;
                    while cluster.received_bytes(joiner) < ENOUGH {
                        tokio::task::yield_now().await;
                        turns += 1;
                        if turns % 100 == 0 {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    }
                };
                tokio::select! {
                    outcome = fetch(&cluster, joiner) => panic!("{outcome:?}: there is nothing more to stream"),
                    () = enough => {}
                }
            }
            let before = cluster.sent_bytes(0);
            cluster.crash(joiner, style).await;
            fetch(&cluster, joiner).await.unwrap();
            cluster.check_receiver(joiner);
            let again = cluster.sent_bytes(0) - before;
            let all = cluster.received_bytes(joiner);
            assert!(again < all, "{again} bytes were sent after the crash ({style:?}), of {all}");
        });
    }
}

#[test]
fn a_damaged_chunk_is_not_applied_but_requested_again() {
    with_cluster(13, 1, |cluster| async move {
        cluster.add(1, MemberState::Normal).await;
        cluster.write(200, 20_000).await;
        let joiner = cluster.add(1, WRITE_BOTH).await;
        cluster.links.change_next_answer(damage);
        fetch(&cluster, joiner).await.unwrap();
        cluster.check_receiver(joiner);
    });
}

#[test]
fn a_row_that_no_message_could_hold_is_sent_in_parts() {
    with_cluster(17, 2, |cluster| async move {
        for _ in 0..2 {
            cluster.add(1, MemberState::Normal).await;
        }
        cluster.write(50, 1_000).await;
        cluster.grow_rows(8, 40, 60_000).await;
        // The part of a row is half of the largest mutation.
        let limit = cluster.first_shard(0).node.config.mutation_bytes_max() / 2 + 2 * (64 << 10);
        for name in TABLES {
            let (sizes, inside) = cluster.chunks(0, name).await;
            assert!(inside >= 8 && sizes.iter().all(|size| *size <= limit), "{inside} of {sizes:?}");
        }
        let joiner = cluster.add(2, WRITE_BOTH).await;
        fetch(&cluster, joiner).await.unwrap();
        assert!(cluster.check_receiver(joiner) > 0);
    });
}

#[test]
fn another_source_is_asked_when_one_dies_on_the_way() {
    with_cluster(14, 3, |cluster| async move {
        for _ in 0..4 {
            cluster.add(1, MemberState::Normal).await;
        }
        cluster.write(300, 5_000).await;
        let joiner = cluster.add(1, WRITE_BOTH).await;
        cluster.links.fail_after(0, 2);
        fetch(&cluster, joiner).await.unwrap_err();
        cluster.stop(0);
        fetch_rest(&cluster, joiner).await;
        cluster.check_receiver(joiner);
    });
}

#[test]
fn streamed_ranges_are_not_streamed_again_when_a_dead_source_comes_back() {
    with_cluster(18, 2, |cluster| async move {
        for _ in 0..3 {
            cluster.add(1, MemberState::Normal).await;
        }
        cluster.write(300, 20_000).await;
        cluster.stop(0);
        let joiner = cluster.add(2, WRITE_BOTH).await;
        fetch(&cluster, joiner).await.unwrap_err();
        let before = [1, 2].map(|holder| cluster.sent_bytes(holder));
        assert!(before.iter().sum::<u64>() > 0);
        cluster.restart(0).await;
        fetch(&cluster, joiner).await.unwrap();
        cluster.check_receiver(joiner);
        assert_eq!([1, 2].map(|holder| cluster.sent_bytes(holder)), before);
    });
}

#[test]
fn writes_during_a_transfer_are_kept() {
    with_cluster(15, 1, |cluster| async move {
        cluster.add(1, MemberState::Normal).await;
        cluster.write(300, 10_000).await;
        let joiner = cluster.add(2, WRITE_BOTH).await;
        let (fetched, ()) = futures::join!(fetch(&cluster, joiner), cluster.write(300, 500));
        fetched.unwrap();
        cluster.check_receiver(joiner);
    });
}

#[test]
fn a_source_with_another_epoch_sends_nothing() {
    with_cluster(16, 1, |cluster| async move {
        cluster.add(1, MemberState::Normal).await;
        cluster.write(50, 10).await;
        let joiner = cluster.add(1, WRITE_BOTH).await;
        // The source has applied the next step, or the one before.
        cluster.install_on(0, 1_000);
        assert!(matches!(fetch(&cluster, joiner).await, Err(TransferError::RingChanged)));
        cluster.install_on(0, 1);
        assert!(matches!(fetch(&cluster, joiner).await, Err(TransferError::Peer { .. })));
        assert_eq!(cluster.sent_bytes(0), 0);
    });
}

#[test]
fn a_transfer_that_is_done_is_not_done_again_after_a_restart() {
    with_cluster(17, 1, |cluster| async move {
        cluster.add(1, MemberState::Normal).await;
        cluster.write(50, 10).await;
        let joiner = cluster.add(1, WRITE_BOTH).await;
        fetch(&cluster, joiner).await.unwrap();
        let sent = cluster.sent_bytes(0);
        cluster.crash(joiner, CrashStyle::LoseAll).await;
        fetch(&cluster, joiner).await.unwrap();
        assert_eq!(cluster.sent_bytes(0), sent);
        let epoch = cluster.first_shard(joiner).cluster().topology.epoch;
        assert!(Transfers::of(&cluster.first_shard(joiner).node).is_done(epoch));
        cluster.check_receiver(joiner);
    });
}
