//! Clusters in one thread: simulated disks, virtual time, messages in memory.

mod change_feed;
mod cleanup;
mod delivery;
mod denylist;
mod drops;
mod encryption;
mod harness;
mod joins_and_leaves;
mod recovery;
mod removals;
mod replacement;
mod replication;
mod roles;

use helenus::cluster::raft::MetadataLog;
use std::time::Duration;

use helenus_ring::member::{MemberState, TransitionPhase};
use helenus_ring::metadata::{Command, CommandOutcome, Refusal};

use self::harness::{World, simulate};

const DEADLINE: Duration = Duration::from_secs(20);
const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}";

#[test]
fn a_single_node_is_a_cluster_and_remains_one() {
    simulate(1, |world| async move {
        let node = world.boot(0, &[]).await;
        assert!(node.cluster().is_alone());
        node.ddl(KEYSPACE).await.unwrap();
        node.ddl("CREATE TABLE ks.t (k int PRIMARY KEY)").await.unwrap();
        let mut before = world.catalog(0);
        world.crash(0);
        for _ in 0..3 {
            let node = world.boot(0, &[]).await;
            assert_eq!(format!("{:?}", world.catalog(0)), format!("{before:?}"));
            node.ddl("ALTER TABLE ks.t WITH comment = 'x'").await.unwrap();
            node.ddl("ALTER TABLE ks.t WITH comment = ''").await.unwrap();
            before = world.catalog(0);
            world.crash(0);
        }
    });
}

#[test]
fn members_agree_on_what_rivals_create() {
    for seed in 0..5 {
        simulate(seed, |world| async move {
            world.grow_to(3).await;
            world.node(0).ddl(KEYSPACE).await.unwrap();
            for round in 0..4 {
                let rivals = (0..3).map(|index| {
                    let node = world.node(index);
                    async move {
                        let kind = ["int", "text", "bigint"][index];
                        node.ddl(&format!("CREATE TABLE ks.t{round} (k {kind} PRIMARY KEY)")).await
                    }
                });
                let results = futures::future::join_all(rivals).await;
                let created = results.iter().filter(|result| result.is_ok()).count();
                assert_eq!(created, 1, "{results:?}");
                for error in results.iter().filter_map(|result| result.as_ref().err()) {
                    assert!(error.to_string().contains("already existing table"), "{error}");
                }
                world.assert_same_catalogs();
            }
        });
    }
}

#[test]
fn the_log_continues_without_its_leader() {
    simulate(7, |world| async move {
        world.grow_to(3).await;
        world.node(1).ddl(KEYSPACE).await.unwrap();
        let leader = world.leader().unwrap();
        world.crash(leader);
        let other = (leader + 1) % 3;
        world.node(other).ddl("CREATE TABLE ks.t (k int PRIMARY KEY)").await.unwrap();
        // The node that was away learns of the change.
        world.boot(leader, &[]).await;
        world.settle().await;
        assert!(world.catalog(leader).table("ks", "t").is_some());
        world.node(leader).ddl("CREATE TABLE ks.u (k int PRIMARY KEY)").await.unwrap();
        world.assert_same_catalogs();
    });
}

#[test]
fn without_a_majority_nothing_is_changed() {
    simulate(8, |world| async move {
        world.grow_to(3).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        world.crash(1);
        world.crash(2);
        let error = world.node(0).ddl("CREATE TABLE ks.t (k int PRIMARY KEY)").await.unwrap_err();
        assert!(error.to_string().contains("no leader"), "{error}");
        world.boot(1, &[]).await;
        world.boot(2, &[]).await;
        // The change may have been in the log already: it exists, or can be made.
        let created = world.node(1).ddl("CREATE TABLE ks.t (k int PRIMARY KEY)").await;
        assert!(created.is_ok() || created.unwrap_err().to_string().contains("already existing"));
        world.settle().await;
        world.assert_same_catalogs();
    });
}

#[test]
fn a_fourth_and_more_join_and_the_five_eldest_vote() {
    simulate(9, |world| async move {
        world.grow_to(3).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        // More changes than the log keeps: a node that joins now is sent a snapshot.
        for number in 0..150 {
            world.node(number % 3).ddl(&format!("CREATE TYPE ks.t{number} (x int)")).await.unwrap();
        }
        world.grow_to(6).await;
        world.assert_same_catalogs();
        world.settle().await;
        let log = MetadataLog::of(&world.node(world.leader().unwrap())).unwrap();
        let (voters, learners) = log.participants();
        assert_eq!((voters.len(), learners.len()), (5, 1));
        assert!(learners.contains(&world.host_id(5)));
        world.node(5).ddl("CREATE TABLE ks.t (k int PRIMARY KEY)").await.unwrap();
        world.assert_same_catalogs();
    });
}

#[test]
fn a_former_member_does_not_participate_and_another_votes_instead() {
    simulate(10, |world| async move {
        world.grow_to(4).await;
        let leaving = world.leader().unwrap();
        let host_id = world.host_id(leaving);
        let node = world.node(leaving);
        let steps = [
            Command::ForceLeave { host_id, is_removal: false },
            Command::Advance { host_id, from: MemberState::Leaving(TransitionPhase::WriteBoth) },
            Command::Advance { host_id, from: MemberState::Leaving(TransitionPhase::ReadNew) },
        ];
        for step in steps {
            let outcome = helenus::cluster::propose(&node, step, DEADLINE).await.unwrap();
            assert!(matches!(outcome, CommandOutcome::Applied { .. }), "{outcome:?}");
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        world.crash(leaving);
        let leader = world.leader().unwrap();
        let (voters, learners) = MetadataLog::of(&world.node(leader)).unwrap().participants();
        assert!(!voters.contains(&host_id) && !learners.contains(&host_id), "{voters:?} {learners:?}");
        assert_eq!(voters.len(), 3);
        world.node(leader).ddl(KEYSPACE).await.unwrap();
    });
}

#[test]
fn nodes_that_cannot_be_members_get_the_reason() {
    simulate(11, |world| async move {
        world.grow_to(2).await;
        let refusal = |result: Result<u64, helenus::cluster::join::JoinError>| match result {
            Err(helenus::cluster::join::JoinError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        };
        world.configure(2, |config| config.cluster_name = "another".to_owned());
        assert!(matches!(refusal(world.try_join(2).await), Refusal::OtherCluster { .. }));
        world.configure(3, |_| {});
        world.set_clock_ahead(3, Duration::from_secs(11));
        assert!(matches!(refusal(world.try_join(3).await), Refusal::ClockSkew { .. }));
        world.set_clock_ahead(3, Duration::from_secs(9));
        world.try_join(3).await.unwrap();
        // The node is joining now: the next one waits, and then gives up.
        match world.try_join(4).await {
            Err(helenus::cluster::join::JoinError::TimedOut { last, .. }) => {
                assert!(last.contains("joining"), "{last}");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_member_is_found_where_it_has_moved() {
    simulate(12, |world| async move {
        world.grow_to(3).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        let moved = (world.leader().unwrap() + 1) % 3;
        world.crash(moved);
        world.node(world.leader().unwrap()).ddl("CREATE TABLE ks.t (k int PRIMARY KEY)").await.unwrap();
        let address = world.move_to_another_address(moved);
        world.boot(moved, &[]).await;
        world.settle().await;
        for index in 0..3 {
            let cluster = world.node(index).cluster();
            let member = cluster.topology.member(&world.host_id(moved)).unwrap();
            assert_eq!(member.internode_address, address);
        }
        world.assert_same_catalogs();
    });
}

#[test]
fn crashes_at_any_moment_leave_one_history() {
    for seed in 20..26 {
        simulate(seed, |world: std::rc::Rc<World>| async move {
            world.grow_to(3).await;
            world.node(0).ddl(KEYSPACE).await.unwrap();
            let mut acknowledged = Vec::new();
            for number in 0..12_usize {
                let victim = world.random(3) as usize;
                let pause = Duration::from_micros(world.random(40_000));
                let node = world.node(number % 3);
                let name = format!("t{number}");
                let statement = format!("CREATE TABLE ks.{name} (k int PRIMARY KEY)");
                let change = tokio::task::spawn_local(async move { node.ddl(&statement).await });
                tokio::time::sleep(pause).await;
                world.crash(victim);
                tokio::time::sleep(Duration::from_millis(world.random(4_000))).await;
                world.boot(victim, &[]).await;
                if change.await.unwrap().is_ok() {
                    acknowledged.push(name);
                }
            }
            world.settle().await;
            world.assert_same_catalogs();
            let catalog = world.catalog(0);
            for name in &acknowledged {
                assert!(catalog.table("ks", name).is_some(), "{name} was acknowledged");
            }
            assert!(acknowledged.len() > 4, "{acknowledged:?}");
        });
    }
}

#[test]
fn a_member_removed_while_it_was_down_learns_of_it() {
    simulate(13, |world| async move {
        world.grow_to(3).await;
        let leader = world.leader().unwrap();
        let removed = (leader + 1) % 3;
        let host_id = world.host_id(removed);
        world.crash(removed);
        let steps = [
            Command::ForceLeave { host_id, is_removal: false },
            Command::Advance { host_id, from: MemberState::Leaving(TransitionPhase::WriteBoth) },
            Command::Advance { host_id, from: MemberState::Leaving(TransitionPhase::ReadNew) },
        ];
        for step in steps {
            let outcome = helenus::cluster::propose(&world.node(leader), step, DEADLINE).await.unwrap();
            assert!(matches!(outcome, CommandOutcome::Applied { .. }), "{outcome:?}");
        }
        let node = world.boot(removed, &[]).await;
        let member = helenus::cluster::own_member::own_member(&node, MemberState::Normal);
        let update = Command::Update(helenus_ring::metadata::MemberUpdate::of(&member));
        let outcome = helenus::cluster::propose(&node, update, DEADLINE).await.unwrap();
        assert_eq!(outcome, CommandOutcome::Refused(Refusal::Removed { host_id }));
        world.node(leader).ddl(KEYSPACE).await.unwrap();
    });
}
