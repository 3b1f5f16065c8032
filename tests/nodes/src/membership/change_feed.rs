//! Change feeds and members that join: streams that are right for them come first.

use helenus_execution::coordinator::change_feed::confirmed;
use helenus_query::error::RequestError;
use helenus_ring::change_feed::Generation;

use super::*;
use helenus::cluster::feed_confirmation;

const TABLE: &str = "CREATE TABLE ks.t (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true}";

#[test]
fn a_node_is_taken_in_when_the_streams_that_are_right_for_it_are_active() {
    simulate(211, |world| async move {
        world.grow_to(2).await;
        let node = world.node(0);
        node.ddl(KEYSPACE).await.unwrap();
        node.ddl(TABLE).await.unwrap();
        let began = node.clock.monotonic();
        world.try_join(2).await.unwrap();
        let delay = Duration::from_millis(node.node.config.cdc_generation_delay_ms);
        let waited = node.clock.monotonic().saturating_sub(began);
        assert!(waited >= delay * 3 / 2, "{waited:?}");
        let view = world.node(2).cluster();
        let members = view.topology.members.values().map(AsRef::as_ref);
        let ring = Generation::of(0, members);
        let now_ms = node.clock.now_micros() / 1_000;
        let active = view.change_feed().active_at(now_ms).unwrap();
        assert!(active.generation().covers(&ring));
        assert_eq!(view.change_feed().generations().len(), 2);
        assert_eq!(view.change_feed(), world.node(0).cluster().change_feed());
    });
}

#[test]
fn a_member_that_cannot_ask_the_leader_refuses_entries_after_the_limit() {
    simulate(214, |world| async move {
        world.grow_to(3).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        world.node(0).ddl(TABLE).await.unwrap();
        for index in 0..3 {
            world.on(index, async |context| feed_confirmation::begin(&context).await).await.unwrap();
        }
        world.settle().await;
        let member = (world.leader().unwrap() + 1) % 3;
        let limit = confirmed::limit(&world.node(member).node.config);
        confirmed::check(&world.node(member)).unwrap();
        let others: Vec<usize> = (0..3).filter(|index| *index != member).collect();
        for other in &others {
            world.links.set_silent(*other, true);
        }
        tokio::time::sleep(limit * 3 / 2).await;
        let refused = confirmed::check(&world.node(member));
        assert!(matches!(refused, Err(RequestError::StreamsUnconfirmed { .. })), "{refused:?}");
        for other in &others {
            world.links.set_silent(*other, false);
        }
        world.settle().await;
        confirmed::check(&world.node(member)).unwrap();
    });
}

#[test]
fn without_a_feed_a_node_does_not_wait() {
    simulate(212, |world| async move {
        world.grow_to(1).await;
        let node = world.node(0);
        node.ddl(KEYSPACE).await.unwrap();
        node.ddl(TABLE).await.unwrap();
        node.ddl("DROP TABLE ks.t").await.unwrap();
        let began = node.clock.monotonic();
        world.try_join(1).await.unwrap();
        assert!(node.clock.monotonic().saturating_sub(began) < Duration::from_secs(5));
        assert!(world.node(1).cluster().change_feed().is_empty());
    });
}

#[test]
fn a_restart_keeps_the_streams() {
    simulate(213, |world| async move {
        world.grow_to(1).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        world.node(0).ddl(TABLE).await.unwrap();
        let before = world.node(0).cluster().change_feed().clone();
        assert!(!before.is_empty());
        world.crash(0);
        let node = world.boot(0, &[]).await;
        assert_eq!(*node.cluster().change_feed(), before);
        assert!(node.catalog().table("ks", "t_scylla_cdc_log").unwrap().options.is_feed_log);
    });
}
