//! Members that join and leave, while others write and nodes crash: no acknowledged write is lost.

use helenus::cluster::raft::MetadataLog;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_ring::member::{MemberState, TransitionPhase};
use helenus_ring::metadata::{Command, CommandOutcome};
use helenus_testing::virtual_time::wait_until;

use super::harness::{World, simulate};
use helenus::cluster::membership::{self, Consent, MembershipError};
use helenus::cluster::propose;
use helenus::node::error::StartError;
use helenus_execution::coordinator::paxos;
use helenus_execution::shard::context::Departure;
use helenus_execution::shard::status_table::ServingState;

/// What an operator says who knows that rows with one replica are lost with it.
pub const LOSING: Consent = Consent { to_old_data: false, to_loss: true };
/// Keyspaces with their replication factors.
const KEYSPACES: [(&str, u32); 2] = [("one", 1), ("three", 3)];

/// The acknowledged writes, by keyspace.
pub struct Load {
    world: Rc<World>,
    next: Cell<u32>,
    pub acknowledged: RefCell<BTreeMap<&'static str, Vec<u32>>>,
    is_over: Cell<bool>,
}

impl Load {
    /// Creates the tables.
    pub async fn new(world: &Rc<World>) -> Rc<Self> {
        let node = world.node(0);
        for (name, replicas) in KEYSPACES {
            let keyspace = format!(
                "CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
            );
            node.ddl(&keyspace).await.unwrap();
            node.ddl(&format!("CREATE TABLE {name}.t (k int PRIMARY KEY, v text)")).await.unwrap();
        }
        Rc::new(Self {
            world: world.clone(),
            next: Cell::new(0),
            acknowledged: RefCell::default(),
            is_over: Cell::new(false),
        })
    }

    /// Creates a cluster of `members` members and writes `rows` rows at QUORUM through all of them.
    pub async fn of_members(world: &Rc<World>, members: usize, rows: u32) -> Rc<Self> {
        for index in 0..members {
            world.enter(index).await.unwrap().unwrap();
        }
        let load = Self::new(world).await;
        load.write(&(0..members).collect::<Vec<_>>(), rows, Consistency::Quorum).await;
        load
    }

    /// Writes `count` rows through these nodes in turn.
    pub async fn write(&self, nodes: &[usize], count: u32, consistency: Consistency) {
        for _ in 0..count {
            let key = self.next.replace(self.next.get() + 1);
            let node = nodes[key as usize % nodes.len()];
            for (name, _) in KEYSPACES {
                let text = format!("INSERT INTO {name}.t (k, v) VALUES ({key}, 'value of {key}')");
                if let Some(Ok(_)) = self.world.cql(node, &text, consistency).await {
                    self.acknowledged.borrow_mut().entry(name).or_default().push(key);
                }
            }
        }
    }

    /// Writes until [`Load::end`], a little at a time.
    pub fn begin(
        self: &Rc<Self>,
        nodes: &'static [usize],
        consistency: Consistency,
    ) -> tokio::task::JoinHandle<()> {
        self.is_over.set(false);
        let load = self.clone();
        tokio::task::spawn_local(async move {
            while !load.is_over.get() {
                load.write(nodes, 1, consistency).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    }

    pub async fn end(&self, writing: tokio::task::JoinHandle<()>) {
        self.is_over.set(true);
        writing.await.unwrap();
    }

    /// Asserts that every node finds every row at this level.
    pub async fn check(&self, nodes: &[usize], consistency: Consistency) {
        let acknowledged = self.acknowledged.borrow().clone();
        for (name, keys) in acknowledged {
            for (number, key) in keys.iter().enumerate() {
                let node = nodes[number % nodes.len()];
                let text = format!("SELECT v FROM {name}.t WHERE k = {key}");
                let rows = self.world.cql(node, &text, consistency).await.unwrap().unwrap();
                assert_eq!(rows, 1, "row {key} of {name}, asked of node {node} at {consistency:?}");
            }
        }
    }
}

pub async fn decommission(world: &World, index: usize, force: bool) -> Option<Result<(), MembershipError>> {
    world
        .on(index, move |context| async move { membership::decommission(&context, force, false).await })
        .await
}

pub fn state_of(world: &World, asked: usize, member: usize) -> Option<MemberState> {
    let view = world.node(asked).cluster();
    view.topology.member(&world.host_id(member)).map(|member| member.state)
}

#[test]
fn a_cluster_grows_and_shrinks_under_load_and_loses_nothing() {
    simulate(21, |world| async move {
        world.enter(0).await.unwrap().unwrap();
        let load = Load::new(&world).await;
        load.write(&[0], 150, Consistency::One).await;
        for index in 1..4 {
            let writing = load.begin(&[0], if index < 3 { Consistency::One } else { Consistency::Quorum });
            world.enter(index).await.unwrap().unwrap();
            load.end(writing).await;
            world.settle().await;
            let nodes: Vec<usize> = (0..=index).collect();
            load.check(&nodes, Consistency::One).await;
        }
        let writing = load.begin(&[0, 2, 3], Consistency::Quorum);
        decommission(&world, 1, false).await.unwrap().unwrap();
        load.end(writing).await;
        world.crash(1);
        wait_until(|| [0, 2, 3].iter().all(|asked| state_of(&world, *asked, 1).is_none())).await;
        world.settle().await;
        load.check(&[0, 2, 3], Consistency::One).await;
        load.check(&[0, 2, 3], Consistency::Quorum).await;
        // Three members and three replicas: no member may leave without `force`.
        let error = decommission(&world, 2, false).await.unwrap().unwrap_err();
        assert!(matches!(error, MembershipError::TooFewMembers { factor: 3, members: 3, .. }), "{error}");
        decommission(&world, 2, true).await.unwrap().unwrap();
        world.crash(2);
        world.settle().await;
        load.check(&[0, 3], Consistency::One).await;
        // A former member does not come back.
        let refusal = world.assemble(1).await.err().unwrap();
        assert!(matches!(refusal, StartError::Removed { .. }), "{refusal}");
    });
}

#[test]
fn a_joiner_that_crashes_continues_after_a_restart() {
    for seed in 0..4 {
        simulate(30 + seed, |world| async move {
            world.enter(0).await.unwrap().unwrap();
            let load = Load::new(&world).await;
            load.write(&[0], 100, Consistency::One).await;
            world.enter(1).await.unwrap().unwrap();
            let writing = load.begin(&[0, 1], Consistency::One);
            let mut attempts = 0;
            loop {
                attempts += 1;
                let patience = Duration::from_millis(1 + world.random(40 << attempts.min(8)));
                let entered = tokio::time::timeout(patience, world.enter(2)).await;
                match entered {
                    Ok(entered) => {
                        entered.unwrap().unwrap();
                        break;
                    }
                    Err(_) => world.crash(2),
                }
            }
            load.end(writing).await;
            world.settle().await;
            assert_eq!(state_of(&world, 0, 2), Some(MemberState::Normal));
            load.check(&[0, 1, 2], Consistency::One).await;
        });
    }
}

/// The crash points include the moment when the joiner knows the founder's state, and is not a member yet.
#[test]
fn a_joiner_of_a_single_node_that_crashes_at_any_moment_joins_after_a_restart() {
    for step in 0..40 {
        simulate(60 + step, |world| async move {
            world.enter(0).await.unwrap().unwrap();
            let _ = tokio::time::timeout(Duration::from_micros(1_000 + 250 * step), world.enter(1)).await;
            world.crash(1);
            world.enter(1).await.unwrap().unwrap();
            assert_eq!(state_of(&world, 0, 1), Some(MemberState::Normal));
        });
    }
}

#[test]
fn a_join_waits_for_the_one_that_has_the_data() {
    for seed in 0..3 {
        simulate(40 + seed, |world| async move {
            for index in 0..2 {
                world.enter(index).await.unwrap().unwrap();
            }
            let load = Load::new(&world).await;
            load.write(&[0, 1], 150, Consistency::One).await;
            world.enter(2).await.unwrap().unwrap();
            let joining = {
                let world = world.clone();
                tokio::task::spawn_local(async move { world.enter(3).await })
            };
            tokio::time::sleep(Duration::from_millis(1 + world.random(60))).await;
            world.crash(1);
            tokio::time::sleep(Duration::from_secs(20)).await;
            world.enter(1).await.unwrap().unwrap();
            joining.await.unwrap().unwrap().unwrap();
            world.settle().await;
            load.check(&[0, 1, 2, 3], Consistency::One).await;
        });
    }
}

#[test]
fn a_leaving_member_that_crashes_continues_after_a_restart() {
    for seed in 0..3 {
        simulate(50 + seed, |world| async move {
            let load = Load::of_members(&world, 4, 150).await;
            let leaving = {
                let world = world.clone();
                tokio::task::spawn_local(async move { decommission(&world, 3, false).await })
            };
            tokio::time::sleep(Duration::from_millis(1 + world.random(60))).await;
            world.crash(3);
            let _ = leaving.await;
            if state_of(&world, 0, 3) == Some(MemberState::Leaving(TransitionPhase::WriteBoth)) {
                tokio::time::sleep(Duration::from_secs(20)).await;
                assert!(state_of(&world, 0, 3).is_some(), "it is the only one that has some of the rows");
            }
            if state_of(&world, 0, 3).is_some() {
                let entered = world.enter(3).await.unwrap();
                let has_left = matches!(entered, Err(MembershipError::Removed { .. }));
                assert!(has_left || entered.is_ok());
                if !has_left {
                    let outcome = decommission(&world, 3, false).await.unwrap();
                    assert!(matches!(outcome, Ok(()) | Err(MembershipError::Removed { .. })), "{outcome:?}");
                }
            }
            wait_until(|| state_of(&world, 0, 3).is_none()).await;
            world.crash(3);
            world.settle().await;
            load.check(&[0, 1, 2], Consistency::One).await;
        });
    }
}

#[test]
fn a_dead_member_is_removed_and_the_others_have_what_quorums_wrote() {
    simulate(60, |world| async move {
        let load = Load::of_members(&world, 4, 150).await;
        let error = removenode(&world, 0, 2).await.unwrap_err();
        assert!(matches!(error, MembershipError::StillAlive { .. }), "{error}");
        let error = removenode(&world, 2, 2).await.unwrap_err();
        assert!(matches!(error, MembershipError::OwnRemoval), "{error}");
        world.crash(2);
        removenode(&world, 0, 2).await.unwrap();
        world.settle().await;
        assert_eq!(state_of(&world, 1, 2), None);
        // With one replica, data does not survive the loss of its node.
        load.acknowledged.borrow_mut().remove("one");
        load.check(&[0, 1, 3], Consistency::One).await;
    });
}

pub async fn removenode(world: &World, by: usize, dead: usize) -> Result<(), MembershipError> {
    let id = world.host_id(dead);
    let removed = world
        .on(by, move |context| async move { membership::removenode(&context, &[id].into(), LOSING).await });
    removed.await.unwrap()
}

fn is_staying(world: &World, index: usize) -> bool {
    let node = world.node(index);
    let departure = *node.node.departure.borrow();
    departure == Departure::Staying && node.node.status.state() < ServingState::Leaving
}

#[test]
fn a_member_that_is_back_stays_though_a_failed_removal_of_it_is_carried_out_later() {
    simulate(61, |world| async move {
        let load = Load::of_members(&world, 3, 50).await;
        world.settle().await;
        let leader = world.leader().unwrap();
        let (other, dead) = ((leader + 1) % 3, (leader + 2) % 3);
        let epoch = world.node(leader).cluster().topology.epoch;
        world.crash(dead);
        world.settle().await;
        // The leader does not know yet that it has lost its majority: the removal enters its log.
        world.crash(other);
        let error = removenode(&world, leader, dead).await.unwrap_err();
        assert!(error.to_string().contains("may still be carried out"), "{error}");
        for index in [other, dead] {
            world.enter(index).await.unwrap().unwrap();
        }
        world.settle().await;
        for asked in 0..3 {
            assert!(
                world.node(asked).cluster().topology.epoch >= epoch + 2,
                "the removal was applied, and then cancelled"
            );
            assert_eq!(state_of(&world, asked, dead), Some(MemberState::Normal));
        }
        assert!(is_staying(&world, dead));
        load.check(&[0, 1, 2], Consistency::Quorum).await;
    });
}

#[test]
fn a_removal_ends_where_its_member_is_back_and_not_where_it_stays_away() {
    simulate(62, |world| async move {
        let load = Load::of_members(&world, 5, 100).await;
        world.settle().await;
        // The node that was asked for the removal crashes after it has begun; the dead member comes back before
        // another node is asked.
        world.crash(2);
        let host_id = world.host_id(2);
        let begun = world.on(0, move |context| async move {
            propose(&context, Command::StartRemoval { host_id }, Duration::from_secs(30)).await
        });
        assert!(matches!(begun.await, Some(Ok(CommandOutcome::Applied { .. }))));
        world.crash(0);
        world.settle().await;
        assert_eq!(state_of(&world, 1, 2), Some(MemberState::Leaving(TransitionPhase::WriteBoth)));
        world.enter(0).await.unwrap().unwrap();
        world.enter(2).await.unwrap().unwrap();
        wait_until(|| state_of(&world, 1, 2) == Some(MemberState::Normal)).await;
        assert!(is_staying(&world, 2));
        world.settle().await;
        // Now the member is dead for good. Another node continues the removal.
        world.crash(2);
        let remove_by = |by: usize| {
            let world = world.clone();
            let removing = move |context| async move {
                membership::removenode(&context, &[host_id].into(), LOSING).await
            };
            tokio::task::spawn_local(async move { world.on(by, removing).await })
        };
        let removing = remove_by(0);
        wait_until(|| state_of(&world, 1, 2) != Some(MemberState::Normal)).await;
        world.crash(0);
        let ended = removing.await.unwrap();
        assert!(matches!(ended, None | Some(Ok(()))), "{ended:?}");
        let removing = remove_by(1);
        // The restarted node gains some of the ranges.
        world.enter(0).await.unwrap().unwrap();
        removing.await.unwrap().unwrap().unwrap();
        world.settle().await;
        assert!([0, 1, 3, 4].iter().all(|asked| state_of(&world, *asked, 2).is_none()));
        let _ = world.enter(2).await;
        wait_until(|| world.node(2).node.status.state() == ServingState::Removed).await;
        load.acknowledged.borrow_mut().remove("one");
        load.check(&[0, 1, 3, 4], Consistency::Quorum).await;
    });
}

#[test]
fn a_removal_that_waits_ends_when_its_member_is_back() {
    simulate(63, |world| async move {
        let load = Load::of_members(&world, 5, 100).await;
        world.settle().await;
        // Each of the two gains ranges from the other, so neither removal can complete.
        world.crash(3);
        world.crash(4);
        let removing = {
            let world = world.clone();
            tokio::task::spawn_local(async move { removenode(&world, 0, 4).await })
        };
        wait_until(|| state_of(&world, 1, 4) == Some(MemberState::Leaving(TransitionPhase::WriteBoth))).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!removing.is_finished());
        world.enter(4).await.unwrap().unwrap();
        let error = removing.await.unwrap().unwrap_err();
        assert!(matches!(error, MembershipError::RemovalTakenBack { .. }), "{error}");
        assert!(is_staying(&world, 4));
        world.enter(3).await.unwrap().unwrap();
        world.settle().await;
        assert_eq!(state_of(&world, 2, 4), Some(MemberState::Normal));
        load.check(&[0, 1, 2, 3, 4], Consistency::Quorum).await;
    });
}

#[test]
fn the_removal_of_a_member_without_data_is_not_waited_for() {
    simulate(64, |world| async move {
        for index in 0..3 {
            world.enter(index).await.unwrap().unwrap();
        }
        // All of them vote.
        world.settle().await;
        let asked = world.leader().unwrap();
        let dead = (asked + 1) % 3;
        world.crash(dead);
        world.settle().await;
        let begun = tokio::time::Instant::now();
        removenode(&world, asked, dead).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    });
}

/// `until`: the condition after which the joiner is restarted when its join was cancelled.
fn a_join_is_aborted_and_tried_again(seed: u64, until: impl Fn(&World) -> bool + 'static) {
    simulate(seed, |world| async move {
        world.enter(0).await.unwrap().unwrap();
        let load = Load::new(&world).await;
        load.write(&[0], 100, Consistency::One).await;
        world.configure(1, |_| {});
        let joining = {
            let world = world.clone();
            tokio::task::spawn_local(async move { world.enter(1).await })
        };
        wait_until(|| state_of(&world, 0, 1).is_some()).await;
        world.crash(1);
        joining.await.unwrap();
        let id = world.host_id(1);
        let aborted =
            world.on(0, move |context| async move { membership::abort_join(&context, id).await }).await;
        aborted.unwrap().unwrap();
        assert_eq!(state_of(&world, 0, 1), None);
        load.write(&[0], 50, Consistency::One).await;
        wait_until(|| until(&world)).await;
        // The stored state shows the node as joining. It learns that it is not, and ends. Restarted once more, it
        // joins again.
        let error = world.enter(1).await.unwrap().unwrap_err();
        assert!(matches!(error, MembershipError::JoinAborted), "{error}");
        world.crash(1);
        world.enter(1).await.unwrap().unwrap();
        world.settle().await;
        load.check(&[0, 1], Consistency::One).await;
    });
}

#[test]
fn a_join_that_is_aborted_can_be_tried_again() {
    a_join_is_aborted_and_tried_again(70, |_| true);
}

#[test]
fn a_joiner_that_was_away_for_long_learns_that_its_join_was_aborted() {
    a_join_is_aborted_and_tried_again(71, |world| {
        let (voters, learners) = MetadataLog::of(&world.node(0)).unwrap().participants();
        !voters.contains(&world.host_id(1)) && !learners.contains(&world.host_id(1))
    });
}

#[test]
fn a_leaving_that_waits_for_a_dead_member_can_be_cancelled() {
    simulate(90, |world| async move {
        let load = Load::of_members(&world, 4, 150).await;
        // The dead member has to gain some of the ranges.
        world.crash(2);
        let leaving = {
            let world = world.clone();
            tokio::task::spawn_local(async move { decommission(&world, 3, false).await })
        };
        wait_until(|| state_of(&world, 0, 3) == Some(MemberState::Leaving(TransitionPhase::WriteBoth))).await;
        let id = world.host_id(3);
        let aborted =
            world.on(0, move |context| async move { membership::abort_join(&context, id).await }).await;
        aborted.unwrap().unwrap();
        let outcome = leaving.await.unwrap().unwrap();
        assert!(matches!(outcome, Err(MembershipError::LeaveAborted { .. })), "{outcome:?}");
        assert_eq!(state_of(&world, 0, 3), Some(MemberState::Normal));
        // Now the dead member can be removed.
        let id = world.host_id(2);
        let removed = world
            .on(0, move |context| async move { membership::removenode(&context, &[id].into(), LOSING).await })
            .await;
        removed.unwrap().unwrap();
        world.settle().await;
        load.acknowledged.borrow_mut().remove("one");
        load.check(&[0, 1, 3], Consistency::Quorum).await;
    });
}

#[test]
fn a_member_that_is_a_single_node_again_knows_earlier_transactions() {
    simulate(27, |world| async move {
        world.enter(0).await.unwrap().unwrap();
        Load::new(&world).await;
        let alone = |world: &World| !paxos::store::has_state(&world.node(0).shard);
        let run = async |text: &str| world.cql(0, text, Consistency::One).await.unwrap().unwrap();
        let is_b = "SELECT v FROM three.t WHERE k = 1 AND v = 'b' ALLOW FILTERING";
        run("INSERT INTO three.t (k, v) VALUES (0, 'a') IF NOT EXISTS").await;
        assert!(alone(&world));
        world.enter(1).await.unwrap().unwrap();
        for key in 0..20 {
            run(&format!("INSERT INTO three.t (k, v) VALUES ({key}, 'a') IF NOT EXISTS")).await;
        }
        assert!(!alone(&world));
        decommission(&world, 1, true).await.unwrap().unwrap();
        world.crash(1);
        assert!(world.node(0).cluster().is_alone());
        // By agreement with itself, which finds what others have left undecided.
        run("UPDATE three.t SET v = 'b' WHERE k = 1 IF v = 'a'").await;
        assert_eq!(run(is_b).await, 1);
        run("UPDATE three.t SET v = 'c' WHERE k = 1 IF v = 'a'").await;
        assert_eq!(run(is_b).await, 1);
    });
}
