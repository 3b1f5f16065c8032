//! A metadata log that has lost the majority of its voters.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use helenus_config::Authenticator;
use helenus_query::error::RequestError;
use helenus_ring::HostId;
use helenus_testing::virtual_time::wait_until;

use super::KEYSPACE;
use super::harness::{World, simulate};
use super::joins_and_leaves::LOSING;
use helenus::cluster::confirmation;
use helenus::cluster::membership;
use helenus::cluster::raft::MetadataLog;
use helenus::cluster::recovery::{RecoveryError, recover};

async fn recovered(world: &Rc<World>, by: usize) -> Result<Vec<HostId>, RecoveryError> {
    world.on(by, |context| async move { recover(&context).await }).await.unwrap()
}

/// The member among these that is to recover the log does it.
async fn recovered_by_one(world: &Rc<World>, left: &[usize]) -> usize {
    for by in left {
        match recovered(world, *by).await {
            Ok(_) => return *by,
            Err(RecoveryError::Behind { host_id, .. }) => {
                assert!(left.iter().any(|index| world.host_id(*index) == host_id));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("each refers to another one");
}

async fn create(world: &World, by: usize, table: &str) {
    world.node(by).ddl(&format!("CREATE TABLE ks.{table} (k int PRIMARY KEY)")).await.unwrap();
}

fn voters(world: &World, of: usize) -> BTreeSet<HostId> {
    MetadataLog::of(&world.node(of)).unwrap().participants().0
}

fn ids(world: &World, indexes: &[usize]) -> BTreeSet<HostId> {
    indexes.iter().map(|index| world.host_id(*index)).collect()
}

#[test]
fn the_last_member_goes_on_alone_and_removes_the_dead() {
    simulate(91, |world| async move {
        for index in 0..3 {
            world.enter(index).await.unwrap().unwrap();
        }
        world.node(0).ddl(KEYSPACE).await.unwrap();
        create(&world, 1, "before").await;
        world.settle().await;
        world.crash(1);
        world.crash(2);
        assert!(world.node(0).ddl("CREATE TABLE ks.t (k int PRIMARY KEY)").await.is_err());
        let down = recovered(&world, 0).await.unwrap();
        assert_eq!(down.into_iter().collect::<BTreeSet<_>>(), ids(&world, &[1, 2]));
        create(&world, 0, "after").await;
        assert!(world.catalog(0).table("ks", "before").is_some());
        // Those that do not answer do not vote again.
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(voters(&world, 0), ids(&world, &[0]));
        let dead = ids(&world, &[1, 2]);
        let removed =
            world.on(0, |context| async move { membership::removenode(&context, &dead, LOSING).await }).await;
        removed.unwrap().unwrap();
        assert_eq!(world.node(0).cluster().topology.members.len(), 1);
        create(&world, 0, "alone").await;
    });
}

#[test]
fn members_that_answer_vote_again_and_those_that_come_back_follow() {
    simulate(92, |world| async move {
        world.grow_to(5).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        world.settle().await;
        for dead in [2, 3, 4] {
            world.crash(dead);
        }
        let by = recovered_by_one(&world, &[0, 1]).await;
        wait_until(|| voters(&world, by) == ids(&world, &[0, 1])).await;
        create(&world, 1 - by, "after").await;
        for back in [2, 3, 4] {
            world.boot(back, &[]).await;
        }
        wait_until(|| voters(&world, by).len() == 5).await;
        world.settle().await;
        world.assert_same_catalogs();
        create(&world, 4, "again").await;
        world.assert_same_catalogs();
    });
}

#[test]
fn nothing_is_forced_while_a_majority_answers() {
    simulate(93, |world| async move {
        world.grow_to(3).await;
        world.crash(2);
        let refused = recovered(&world, 0).await.unwrap_err();
        assert!(matches!(refused, RecoveryError::HasMajority { alive: 2, voters: 3 }), "{refused}");
        world.node(0).ddl(KEYSPACE).await.unwrap();
    });
}

#[test]
fn a_member_that_knows_less_than_another_does_not_recover_the_log() {
    simulate(94, |world| async move {
        world.grow_to(5).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        world.settle().await;
        // One misses a change, and is back when the majority is gone.
        world.crash(1);
        create(&world, 0, "missed").await;
        for dead in [2, 3, 4] {
            world.crash(dead);
        }
        world.boot(1, &[]).await;
        let refused = recovered(&world, 1).await.unwrap_err();
        let newer = world.host_id(0);
        assert!(matches!(refused, RecoveryError::Behind { host_id, .. } if host_id == newer), "{refused}");
        recovered(&world, 0).await.unwrap();
        wait_until(|| world.catalog(1).table("ks", "missed").is_some()).await;
        create(&world, 1, "after").await;
    });
}

#[test]
fn of_two_that_recover_at_once_one_does_it() {
    simulate(95, |world| async move {
        world.grow_to(5).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        world.settle().await;
        for dead in [2, 3, 4] {
            world.crash(dead);
        }
        let (first, second) = futures::future::join(recovered(&world, 0), recovered(&world, 1)).await;
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        create(&world, 0, "after").await;
        world.settle().await;
        world.assert_same_catalogs();
    });
}

#[test]
fn a_node_that_has_just_started_is_not_misled_by_what_it_sees() {
    simulate(96, |world| async move {
        world.grow_to(3).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        // It takes the others for dead, and they answer.
        let node = world.node(2);
        let alone = node.cluster().with_alive(std::sync::Arc::new(ids(&world, &[2])));
        node.install_cluster(std::sync::Arc::new(alone));
        let refused = recovered(&world, 2).await.unwrap_err();
        assert!(matches!(refused, RecoveryError::HasMajority { alive: 3, .. }), "{refused}");
    });
}

#[test]
fn a_voter_that_has_applied_what_was_lost_does_not_follow_silently() {
    simulate(97, |world| async move {
        world.grow_to(5).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        world.settle().await;
        // A majority agrees on a table while two are away, and is lost then.
        world.crash(0);
        world.crash(1);
        create(&world, 2, "lost").await;
        world.settle().await;
        for dead in [2, 3, 4] {
            world.crash(dead);
        }
        world.boot(0, &[]).await;
        world.boot(1, &[]).await;
        let by = recovered_by_one(&world, &[0, 1]).await;
        create(&world, by, "kept").await;
        world.boot(2, &[]).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        create(&world, by, "more").await;
        // It keeps what it knows, and nothing of the others.
        let (there, left) = (world.catalog(2), world.catalog(by));
        assert!(there.table("ks", "lost").is_some() && there.table("ks", "kept").is_none());
        assert!(left.table("ks", "lost").is_none() && left.table("ks", "more").is_some());
    });
}

/// What it has applied is not what the cluster has agreed on: it may know roles that nobody else does, or lack what was revoked.
#[test]
fn a_voter_that_has_applied_what_was_lost_serves_no_client_that_logs_in() {
    simulate(98, |world| async move {
        for index in 0..5 {
            world.configure(index, |config| {
                config.authenticator = Authenticator::PasswordAuthenticator;
                config.unconfirmed_roles_limit_ms = 10_000;
            });
        }
        world.grow_to(5).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        world.settle().await;
        world.crash(0);
        world.crash(1);
        create(&world, 2, "lost").await;
        world.settle().await;
        for dead in [2, 3, 4] {
            world.crash(dead);
        }
        world.boot(0, &[]).await;
        world.boot(1, &[]).await;
        let by = recovered_by_one(&world, &[0, 1]).await;
        create(&world, by, "kept").await;
        world.boot(2, &[]).await;
        for index in [by, 2] {
            world.on(index, async |context| confirmation::begin(&context).await).await.unwrap();
        }
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let refused = confirmation::check(&world.node(2));
            assert!(matches!(refused, Err(RequestError::RolesUnconfirmed { .. })), "{refused:?}");
            confirmation::check(&world.node(by)).unwrap();
        }
    });
}
