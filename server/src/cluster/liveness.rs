//! Liveness: runs the failure detector on the first shard, and passes on its results.
//!
//! Invariants:
//! * A node counts itself as alive, always.
//! * `alive` holds members of the topology only. It is in the [`ClusterView`](helenus_ring::view::ClusterView) of every shard, and on the
//!   node's [`StatusTable`](helenus_execution::shard::status_table::StatusTable).
//! * The topology decides which nodes are members, gossip never does: a joining member is contacted once the metadata log has
//!   it, a leaving one is declared down, and a removed one is informed.
//! * Clients are notified of members that `system.peers` shows (those that own tokens): `NEW_NODE` when such a member appears,
//!   `REMOVED_NODE` when it disappears, UP when it is alive and announces that it serves clients, DOWN when that ends. There are
//!   no events about this node.
//! * A node without an internode address runs none of this.

pub mod detector;
pub(crate) mod generation;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Event;
use helenus_config::Config;
use helenus_internode::service;
use helenus_internode::transport::Destination;
use helenus_query::error::Result;
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::metadata::DISK_STATUS;
use helenus_ring::topology::Topology;
use tokio::sync::Notify;

use self::detector::{Detector, NodeIdentity, Settings};
use super::message::ClusterRequest;
use helenus_execution::shard::context::{Message, ShardContext};
use helenus_execution::shard::disk_status::{DiskAnnouncement, DiskStatus};
use helenus_execution::shard::status_table::{NodeStatus, ServingState};

/// Interval at which a node announces its status to all others if it has not changed.
const FACTS_PERIOD: Duration = Duration::from_secs(5);
/// Interval at which the size of the data is measured.
const DATA_SIZE_PERIOD: Duration = Duration::from_secs(10);
/// Interval of checks for changes that were not announced with [`LivenessMonitor::wake`].
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Time for which a joining member counts as alive before the detector has heard from it.
const PRESUMED_ALIVE: Duration = Duration::from_secs(5);

/// A change that other parts of this node may need to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A member answers (again). Every view of the cluster created from now on has it as alive.
    Up(HostId),
    /// A member stopped answering.
    Down(HostId),
    /// The cluster has removed this node, which must not serve any more.
    Removed,
}

type Hook = Rc<dyn Fn(&Rc<ShardContext>, &Change)>;

/// Runs the failure detector for a shard: active on the first shard, idle on all others.
#[derive(Default)]
pub struct LivenessMonitor {
    running: RefCell<Option<Running>>,
    hooks: RefCell<Vec<Hook>>,
    wake: Notify,
}

impl LivenessMonitor {
    /// The failure detector of a shard; active on the first shard.
    pub fn of(context: &ShardContext) -> &Self {
        context.layers.get()
    }
}

struct Running {
    detector: Detector,
    /// The topology that the detector was given.
    topology: Option<Arc<Topology>>,
    /// The generations of the members that answered at the last check.
    active: BTreeMap<HostId, u64>,
    /// Members that have just joined, and the time until which they count as alive before the detector has heard from
    /// them.
    presumed: BTreeMap<HostId, Duration>,
    /// The members that clients know from events, and whether they were reported as up.
    shown: BTreeMap<HostId, Shown>,
    has_looked: bool,
    announced: Option<NodeStatus>,
    announced_disk: DiskStatus,
    next_announcement: Duration,
    data_bytes: u64,
    next_data_size: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Shown {
    address: SocketAddr,
    is_up: bool,
}

/// The settings of the detector.
pub fn settings(config: &Config) -> Settings {
    Settings {
        probe_period: Duration::from_millis(config.liveness_probe_period_ms),
        probe_timeout: Duration::from_millis(config.liveness_probe_timeout_ms),
        suspicion: Duration::from_millis(config.liveness_suspicion_ms),
    }
}

/// Starts the failure detector of a node. Call once, on its first shard, if it has an internode address.
pub async fn start(context: &Rc<ShardContext>) -> Result<()> {
    let information = &context.node.information;
    let identity = NodeIdentity {
        host_id: context.node.host_id,
        address: SocketAddr::new(information.broadcast_address, information.storage_port),
        generation: generation::begin(&context.node.files, context.clock.now_micros()).await?,
    };
    let now = context.clock.monotonic();
    let seed = context.random.borrow_mut().next_u64();
    *LivenessMonitor::of(context).running.borrow_mut() = Some(Running {
        detector: Detector::new(identity, settings(&context.node.config), seed, now),
        topology: None,
        active: BTreeMap::new(),
        presumed: BTreeMap::new(),
        shown: BTreeMap::new(),
        has_looked: false,
        announced: None,
        announced_disk: DiskStatus::default(),
        next_announcement: now,
        data_bytes: 0,
        next_data_size: now,
    });
    // No other member is alive until it has answered.
    context.node.status.set_alive(context.node.status.alive());
    show_all_shards(context);
    tokio::task::spawn_local(run(context.clone()));
    Ok(())
}

async fn run(context: Rc<ShardContext>) {
    let mut stopping = context.node.stopping.subscribe();
    loop {
        let wait = LivenessMonitor::of(&context).turn(&context);
        tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => {
                LivenessMonitor::of(&context).leave(&context);
                return;
            }
            () = LivenessMonitor::of(&context).wake.notified() => {}
            () = context.clock.sleep(wait) => {}
        }
    }
}

impl LivenessMonitor {
    /// Calls a function, on the first shard, at every change from now on.
    pub fn on_change(&self, hook: impl Fn(&Rc<ShardContext>, &Change) + 'static) {
        self.hooks.borrow_mut().push(Rc::new(hook));
    }

    /// Makes the detector check at once: the members, the schema, or the status of this node have changed.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Counts a member that has just begun to join as alive from now on, before the detector has heard from it: it
    /// must get writes at once, and its join came through the metadata log. Call before views with the member are
    /// installed.
    pub fn presume_alive(&self, context: &ShardContext, host_id: HostId) {
        let mut running = self.running.borrow_mut();
        let Some(running) = running.as_mut() else { return };
        running.presumed.insert(host_id, context.clock.monotonic() + PRESUMED_ALIVE);
        let mut alive = BTreeSet::clone(&context.node.status.alive());
        if alive.insert(host_id) {
            tracing::info!(%host_id, "node is up: it is joining");
            context.node.status.set_alive(Arc::new(alive));
        }
    }

    /// Announces to the others that this node leaves, so that they need not detect it. Afterwards the detector is
    /// inactive.
    pub fn leave(&self, context: &Rc<ShardContext>) {
        let mut running = self.running.borrow_mut();
        let Some(running) = running.as_mut() else { return };
        if let Err(error) = running.detector.leave(context.clock.monotonic()) {
            tracing::debug!(%error, "leaving was not announced");
        }
        running.send(context);
    }

    /// Takes a message from another node's failure detector.
    pub fn receive_gossip(&self, context: &Rc<ShardContext>, from: HostId, bytes: &[u8]) {
        if context.cluster_view().topology.removed.contains(&from) {
            // The sender is not a member any more, but it may not know that.
            if let Some(sender) = detector::sender(bytes).filter(|sender| sender.host_id == from) {
                send(context, &sender, &ClusterRequest::YouWereRemoved);
            }
            return;
        }
        {
            let mut running = self.running.borrow_mut();
            let Some(running) = running.as_mut() else { return };
            if let Err(error) = running.detector.receive(bytes, context.clock.monotonic()) {
                tracing::warn!(%from, %error, "a node sent invalid gossip");
            }
        }
        // Only the periodic task sleeps as long as the turn says.
        let _ = self.turn(context);
        // The message may have created a timer that is due before the present sleep ends.
        self.wake.notify_one();
    }

    /// Takes the status that another node announces.
    pub fn receive_status(&self, context: &Rc<ShardContext>, from: HostId, status: NodeStatus) {
        if context.cluster_view().topology.member(&from).is_some() && context.node.status.learn(from, status)
        {
            let _ = self.turn(context);
        }
    }

    /// Takes the disk status that another node announces.
    pub fn receive_disk(&self, context: &ShardContext, from: HostId, announcement: DiskAnnouncement) {
        if context.cluster_view().topology.member(&from).is_some() {
            context.node.disks.learn(from, announcement);
        }
    }

    /// Another node reports that this one is not a member any more.
    pub fn receive_removed(&self, context: &Rc<ShardContext>, from: HostId) {
        let is_running = self.running.borrow().is_some();
        let is_member = context.cluster_view().topology.member(&from).is_some();
        if !is_running || !is_member || context.node.status.state() == ServingState::Removed {
            return;
        }
        context.node.learn_removed(&from);
        self.leave(context);
        self.call_hooks(context, &[Change::Removed]);
    }

    /// Handles everything that is due and publishes the results. Returns the time until something is due again.
    fn turn(&self, context: &Rc<ShardContext>) -> Duration {
        let now = context.clock.monotonic();
        let (changes, wait) = {
            let mut running = self.running.borrow_mut();
            let Some(running) = running.as_mut() else { return LOOK_PERIOD };
            running.look_at_members(context, now);
            if let Err(error) = running.detector.tick(now) {
                tracing::debug!(%error, "the failure detector failed");
            }
            running.send(context);
            let changes = running.publish(context, now);
            running.announce_facts(context, now, &changes);
            running.notify_clients(context);
            let due = running.detector.next_due().map_or(LOOK_PERIOD, |due| due.saturating_sub(now));
            (changes, due.min(LOOK_PERIOD))
        };
        self.call_hooks(context, &changes);
        wait
    }

    fn call_hooks(&self, context: &Rc<ShardContext>, changes: &[Change]) {
        let hooks: Vec<Hook> = self.hooks.borrow().clone();
        for change in changes {
            for hook in &hooks {
                hook(context, change);
            }
        }
    }

    fn set_data_bytes(&self, bytes: u64) {
        if let Some(running) = self.running.borrow_mut().as_mut() {
            running.data_bytes = bytes;
        }
    }
}

impl Running {
    fn look_at_members(&mut self, context: &ShardContext, now: Duration) {
        let topology = context.cluster_view().topology.clone();
        if self.topology.as_ref().is_some_and(|known| Arc::ptr_eq(known, &topology)) {
            return;
        }
        let others = topology.members.values().filter(|member| member.host_id != context.node.host_id);
        let others: BTreeMap<HostId, SocketAddr> =
            others.map(|member| (member.host_id, member.internode_address)).collect();
        let known = self.topology.as_ref();
        self.presumed.retain(|host_id, _| {
            // The join was aborted; but not if the member is only about to enter the topology.
            others.contains_key(host_id) || known.is_none_or(|known| known.member(host_id).is_none())
        });
        context.node.status.forget_others_than(|host_id| others.contains_key(host_id));
        context.node.disks.forget_others_than(|host_id| others.contains_key(host_id));
        if let Err(error) = self.detector.set_members(others, now) {
            tracing::warn!(%error, "the failure detector did not accept the members");
        }
        self.topology = Some(topology);
    }

    fn send(&mut self, context: &ShardContext) {
        for (to, bytes) in self.detector.take_sends() {
            send(context, &to, &ClusterRequest::Gossip { bytes: bytes.to_vec() });
        }
    }

    /// Publishes liveness to every shard if it has changed.
    fn publish(&mut self, context: &Rc<ShardContext>, now: Duration) -> Vec<Change> {
        let active = self.detector.active();
        let own = context.node.host_id;
        let before = context.node.status.alive();
        self.presumed.retain(|host_id, until| {
            // The node is not a member yet, but is about to become one.
            now < *until && !active.contains_key(host_id)
        });
        let alive: BTreeSet<HostId> =
            active.keys().chain(self.presumed.keys()).copied().chain([own]).collect();
        self.active = active;
        let mut changes = Vec::new();
        changes.extend(before.difference(&alive).map(|&host_id| Change::Down(host_id)));
        changes.extend(alive.difference(&before).map(|&host_id| Change::Up(host_id)));
        for change in &changes {
            match change {
                Change::Up(host_id) => tracing::info!(%host_id, "node is up"),
                Change::Down(host_id) => tracing::warn!(%host_id, "node is down"),
                Change::Removed => {}
            }
        }
        if !changes.is_empty() {
            context.node.status.set_alive(Arc::new(alive));
            show_all_shards(context);
        }
        changes
    }

    /// Announces the status of this node to the others: when it has changed, when a member has just come up, and
    /// periodically.
    fn announce_facts(&mut self, context: &Rc<ShardContext>, now: Duration, changes: &[Change]) {
        if self.active.is_empty() {
            return;
        }
        if now >= self.next_data_size {
            self.next_data_size = now + DATA_SIZE_PERIOD;
            measure_data(context.clone());
        }
        let status = NodeStatus {
            generation: self.detector.identity().generation,
            sequence: self.announced.as_ref().map_or(0, |announced| announced.sequence),
            state: context.node.status.state(),
            schema_version: context.catalog_view().catalog.version,
            topology_version: context.cluster_view().topology.version,
            data_bytes: self.data_bytes,
        };
        let known = self.announced.as_ref();
        let disk = context.node.disks.own();
        // The size changes all the time; its announcement can wait.
        let has_changed = disk != self.announced_disk
            || known.is_none_or(|announced| {
                NodeStatus { data_bytes: announced.data_bytes, ..status.clone() } != *announced
            });
        let is_due = now >= self.next_announcement;
        let to: Vec<HostId> = if has_changed || is_due {
            self.active.keys().copied().collect()
        } else {
            let come_up = |change: &Change| match change {
                Change::Up(host_id) => Some(*host_id),
                Change::Down(_) | Change::Removed => None,
            };
            changes.iter().filter_map(come_up).collect()
        };
        if has_changed || is_due {
            self.next_announcement = now + FACTS_PERIOD;
            self.announced = Some(NodeStatus { sequence: status.sequence + 1, ..status });
            self.announced_disk = disk;
        }
        let Some(announced) = &self.announced else { return };
        let view = context.cluster();
        for member in to.iter().filter_map(|host_id| view.topology.member(host_id)) {
            let to =
                Destination { host_id: Some(member.host_id), address: member.internode_address, shard: 0 };
            send_to(context, to, &ClusterRequest::Status(announced.clone()));
            if view.topology.feature_level >= DISK_STATUS {
                let NodeStatus { generation, sequence, .. } = *announced;
                let status = self.announced_disk;
                send_to(
                    context,
                    to,
                    &ClusterRequest::Disk(DiskAnnouncement { generation, sequence, status }),
                );
            }
        }
    }

    /// Sends events to clients for the changes that they can see.
    fn notify_clients(&mut self, context: &ShardContext) {
        let view = context.cluster_view();
        let own = context.node.host_id;
        let visible = |member: &&Arc<Member>| member.owns_tokens() && member.host_id != own;
        let now: BTreeMap<HostId, Shown> = view
            .topology
            .members
            .values()
            .filter(visible)
            .map(|member| {
                let status = context.node.status.of(&member.host_id);
                // A status of an earlier generation says nothing about this one.
                let serves = self.active.get(&member.host_id).is_some_and(|&generation| {
                    status.is_some_and(|status| {
                        status.generation >= generation && status.state == ServingState::Serving
                    })
                });
                (member.host_id, Shown { address: member.native_address, is_up: serves })
            })
            .collect();
        let mut events = Vec::new();
        for (host_id, before) in &self.shown {
            if !now.contains_key(host_id) {
                events.push(Event::NodeRemoved(before.address));
            }
        }
        for (host_id, shown) in &now {
            let before = self.shown.get(host_id);
            if before.is_none() && self.has_looked {
                events.push(Event::NodeAdded(shown.address));
            }
            match (before.is_some_and(|before| before.is_up), shown.is_up) {
                (false, true) => events.push(Event::NodeUp(shown.address)),
                (true, false) => events.push(Event::NodeDown(shown.address)),
                _ => {}
            }
        }
        self.shown = now;
        self.has_looked = true;
        for event in events {
            // There may be no receiver.
            let _ = context.node.events.send(event);
        }
    }
}

/// Makes every shard install the newest liveness in its view.
fn show_all_shards(context: &ShardContext) {
    // Installing a view brings its liveness up to date.
    context.install_cluster(context.cluster());
    for link in context.node.links.iter().skip(1) {
        let link = link.clone();
        tokio::task::spawn_local(async move {
            let job = Message::Job(Box::new(|context: Rc<ShardContext>| {
                context.install_cluster(context.cluster());
                Box::pin(std::future::ready(()))
            }));
            // A shard that has ended needs no update.
            let _ = link.send(job).await;
        });
    }
}

fn send(context: &ShardContext, to: &NodeIdentity, request: &ClusterRequest) {
    send_to(context, Destination { host_id: Some(to.host_id), address: to.address, shard: 0 }, request);
}

fn send_to(context: &ShardContext, to: Destination, request: &ClusterRequest) {
    match service::encode_request(request) {
        Ok(message) => context.transport.send(to, message),
        Err(error) => tracing::error!(%error, "a message cannot be encoded"),
    }
}

/// Measures the size of the data on all shards.
fn measure_data(context: Rc<ShardContext>) {
    tokio::task::spawn_local(async move {
        let mut bytes = 0;
        for shard in 0..context.node.shard_count() {
            let measured = context.run_on(shard, |context| {
                let tables = context.shard.table_ids();
                let sizes = tables.into_iter().filter_map(|id| context.shard.statistics(id).ok());
                Box::pin(std::future::ready(
                    sizes.map(|statistics| statistics.disk_bytes + statistics.index_bytes).sum::<u64>(),
                ))
            });
            // A sum without this shard would be wrong: the last one stays.
            let Ok(measured) = measured.await else { return };
            bytes += measured;
        }
        LivenessMonitor::of(&context).set_data_bytes(bytes);
    });
}
