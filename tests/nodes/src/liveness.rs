//! Nodes of two shards each that detect each other: the effects on their shards, their clients and their hooks.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Event;
use helenus::cluster::liveness::{Change, LivenessMonitor, start};
use helenus::config::Config;
use helenus_execution::shard::disk_status::DiskStatus;
use helenus_execution::shard::status_table::ServingState;
use helenus_ring::member::{MemberState, TransitionPhase};
use tokio::sync::broadcast;

use crate::cluster::{Cluster, host_id, with_cluster};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Starts all detectors; the nodes have just begun to serve.
async fn begin(cluster: &Cluster) {
    for shards in &cluster.nodes {
        start(&shards[0]).await.unwrap();
        shards[0].node.status.set_state(ServingState::Serving);
    }
    cluster.pass(seconds(4)).await;
}

/// The nodes that every shard of a node counts as alive.
fn alive(cluster: &Cluster, node: usize) -> Vec<usize> {
    let views: Vec<Vec<usize>> = cluster.nodes[node]
        .iter()
        .map(|shard| {
            let view = shard.cluster();
            (0..cluster.nodes.len()).filter(|other| view.is_alive(&host_id(*other))).collect()
        })
        .collect();
    assert!(views.windows(2).all(|pair| pair[0] == pair[1]), "{views:?}");
    views[0].clone()
}

fn events(cluster: &Cluster, node: usize) -> broadcast::Receiver<Event> {
    cluster.nodes[node][0].node.events.subscribe()
}

fn heard(events: &mut broadcast::Receiver<Event>) -> Vec<Event> {
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}

fn native(node: u8) -> SocketAddr {
    ([127, 0, 0, node + 1], 9042).into()
}

#[test]
fn nodes_find_each_other_and_tell_their_clients() {
    with_cluster(3, &Config::default(), |cluster| async move {
        let mut events = events(&cluster, 0);
        begin(&cluster).await;
        for node in 0..3 {
            assert_eq!(alive(&cluster, node), [0, 1, 2]);
        }
        let mut events = heard(&mut events);
        events.sort_by_key(|event| format!("{event:?}"));
        assert_eq!(events, [Event::NodeUp(native(1)), Event::NodeUp(native(2))]);
        let status = cluster.nodes[0][0].node.status.of(&host_id(1)).unwrap();
        assert_eq!(status.state, ServingState::Serving);
        assert_eq!(status.schema_version, cluster.nodes[1][0].catalog().version);
    });
}

#[test]
fn a_node_that_does_not_serve_yet_is_alive_but_not_up() {
    with_cluster(2, &Config::default(), |cluster| async move {
        let mut events = events(&cluster, 0);
        for shards in &cluster.nodes {
            start(&shards[0]).await.unwrap();
        }
        cluster.pass(seconds(10)).await;
        assert_eq!(alive(&cluster, 0), [0, 1]);
        assert_eq!(heard(&mut events), []);
        cluster.nodes[1][0].node.status.set_state(ServingState::Serving);
        LivenessMonitor::of(&cluster.nodes[1][0]).wake();
        cluster.pass(seconds(1)).await;
        assert_eq!(heard(&mut events), [Event::NodeUp(native(1))]);
    });
}

#[test]
fn a_silent_node_is_down_for_every_shard_and_up_again_when_it_is_back() {
    with_cluster(3, &Config::default(), |cluster| async move {
        begin(&cluster).await;
        let mut events = events(&cluster, 0);
        let changes: Rc<RefCell<Vec<Change>>> = Rc::default();
        let noted = changes.clone();
        LivenessMonitor::of(&cluster.nodes[0][0])
            .on_change(move |_, change| noted.borrow_mut().push(change.clone()));
        cluster.set_silent(2, true);
        cluster.pass(seconds(10)).await;
        assert_eq!(alive(&cluster, 0), [0, 1]);
        assert_eq!(alive(&cluster, 1), [0, 1]);
        // It counts itself as alive, whatever the others think.
        assert_eq!(alive(&cluster, 2), [2]);
        assert_eq!(heard(&mut events), [Event::NodeDown(native(2))]);
        cluster.set_silent(2, false);
        cluster.pass(seconds(6)).await;
        for node in 0..3 {
            assert_eq!(alive(&cluster, node), [0, 1, 2]);
        }
        assert_eq!(heard(&mut events), [Event::NodeUp(native(2))]);
        let id = host_id(2);
        assert_eq!(*changes.borrow(), [Change::Down(id), Change::Up(id)]);
    });
}

#[test]
fn a_leaving_node_is_down_at_once_and_reported_as_down() {
    with_cluster(3, &Config::default(), |cluster| async move {
        begin(&cluster).await;
        let mut events = events(&cluster, 0);
        let leaver = &cluster.nodes[2][0];
        leaver.node.status.set_state(ServingState::Draining);
        LivenessMonitor::of(leaver).leave(leaver);
        cluster.pass(seconds(2)).await;
        assert_eq!(alive(&cluster, 0), [0, 1]);
        assert_eq!(heard(&mut events), [Event::NodeDown(native(2))]);
        cluster.pass(seconds(10)).await;
        assert_eq!(alive(&cluster, 0), [0, 1]);
        assert_eq!(heard(&mut events), []);
    });
}

#[test]
fn a_removed_node_learns_it_and_does_not_count_any_more() {
    with_cluster(3, &Config::default(), |cluster| async move {
        begin(&cluster).await;
        let mut events = events(&cluster, 0);
        cluster.change_ring(&[(2, None)]);
        cluster.show(0);
        cluster.show(1);
        cluster.pass(seconds(5)).await;
        assert_eq!(alive(&cluster, 0), [0, 1]);
        assert_eq!(heard(&mut events), [Event::NodeRemoved(native(2))]);
        assert_eq!(cluster.nodes[2][0].node.status.state(), ServingState::Removed);
        assert_eq!(cluster.nodes[0][0].node.status.state(), ServingState::Serving);
        assert_eq!(cluster.nodes[0][0].node.status.of(&host_id(2)), None);
    });
}

#[test]
fn clients_see_a_member_when_it_has_joined() {
    with_cluster(3, &Config::default(), |cluster| async move {
        cluster.change_ring(&[(2, Some(MemberState::Joining(TransitionPhase::WriteBoth)))]);
        (0..3).for_each(|node| cluster.show(node));
        let mut events = events(&cluster, 0);
        begin(&cluster).await;
        // It gets writes, so it must be known to be alive.
        assert_eq!(alive(&cluster, 0), [0, 1, 2]);
        assert_eq!(heard(&mut events), [Event::NodeUp(native(1))]);
        cluster.change_ring(&[(2, Some(MemberState::Normal))]);
        (0..3).for_each(|node| cluster.show(node));
        cluster.pass(seconds(2)).await;
        assert_eq!(heard(&mut events), [Event::NodeAdded(native(2)), Event::NodeUp(native(2))]);
    });
}

#[test]
fn a_view_made_from_outdated_liveness_is_corrected() {
    with_cluster(2, &Config::default(), |cluster| async move {
        begin(&cluster).await;
        let context = &cluster.nodes[0][0];
        let nobody = Arc::new(BTreeSet::from([context.node.host_id]));
        context.install_cluster(Arc::new(context.cluster().with_alive(nobody)));
        cluster.pass(seconds(2)).await;
        assert_eq!(alive(&cluster, 0), [0, 1]);
    });
}

#[test]
fn what_a_node_tells_of_its_disk_is_known_everywhere_at_once_and_forgotten_with_it() {
    with_cluster(3, &Config::default(), |cluster| async move {
        begin(&cluster).await;
        let announced = DiskStatus { is_reserve_reached: true, ..DiskStatus::default() };
        let node = &cluster.nodes[2][0];
        assert!(node.node.disks.set_own(announced));
        LivenessMonitor::of(node).wake();
        cluster.pass(Duration::from_millis(500)).await;
        for other in 0..2 {
            let disks = &cluster.nodes[other][0].node.disks;
            assert!(disks.of(&host_id(2)) == announced && disks.is_any_short());
        }
        node.node.disks.set_own(DiskStatus::default());
        LivenessMonitor::of(node).wake();
        cluster.pass(Duration::from_millis(500)).await;
        assert!(!cluster.nodes[0][0].node.disks.is_any_short());
        node.node.disks.set_own(announced);
        LivenessMonitor::of(node).wake();
        cluster.pass(seconds(1)).await;
        cluster.change_ring(&[(2, None)]);
        cluster.show(0);
        cluster.show(1);
        cluster.pass(seconds(5)).await;
        assert!(!cluster.nodes[0][0].node.disks.is_any_short());
    });
}
