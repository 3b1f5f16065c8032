//! Nodes of one thread: simulated disks, a clock that advances when no task can run, and a network in memory.
//! Topologies are installed manually, and writes go to the replicas' shards directly.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cql_lite::types::token;
use futures::future::LocalBoxFuture;
use helenus_engine::io::{
    Clock, CrashStyle, Disk, Environment, InlineBackground, ManualClock, SimulatedDisk, SplitMix64,
};
use helenus_engine::key::{KeyRef, token_bounds};
use helenus_engine::read::{VersionLimit, VersionScanRequest};
use helenus_engine::{
    Cell as EngineCell, CellKind, Deletion, Liveness, Mutation, MutationBuilder, RowBuilder, TableId,
};
use helenus_internode::service::{self, Message};
use helenus_internode::transport::{CallError, Destination, Transport};
use helenus_query::functions::CallContext;
use helenus_query::schema::catalog::Catalog;
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::placement::Placement;
use helenus_ring::topology::Topology;
use helenus_ring::view::ClusterView;
use helenus_testing::catalog_of;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::cluster::stored::CATALOG_FILE;
use crate::config::Config;
use crate::files::node_files::NodeFiles;
use crate::node::assembly::{Addresses, NodeParts, assemble, open_shard};
use crate::node::dispatch::dispatch;
use crate::node::identity::Identity;
use crate::node::serve::serve;
use crate::shard::context::{ShardContext, ShardParts};
use crate::streaming::message::{StreamRequest, StreamResponse};
use crate::streaming::plan::Sides;

/// The tables that are written to; writes to the second one are not logged.
pub const TABLES: [&str; 2] = ["ks.logged", "quick.t"];
const TOKENS: usize = 4;
const START_MICROS: i64 = 1_700_000_000_000_000;

pub fn run_local<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

struct Running {
    contexts: Vec<Rc<ShardContext>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

struct TestNode {
    member: Member,
    disk: SimulatedDisk,
    running: Option<Running>,
}

/// Calls the contexts of the node at an address directly.
#[derive(Default)]
pub struct Network {
    nodes: RefCell<BTreeMap<SocketAddr, Vec<Rc<ShardContext>>>>,
    /// The number of calls that a node still answers.
    left: RefCell<BTreeMap<SocketAddr, u32>>,
    damages: Cell<bool>,
}

fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, number as u8 + 1], 7000))
}

impl Network {
    /// Makes a node answer only `calls` more calls.
    pub fn fail_after(&self, number: usize, calls: u32) {
        self.left.borrow_mut().insert(address(number), calls);
    }

    pub fn heal(&self, number: usize) {
        self.left.borrow_mut().remove(&address(number));
    }

    /// Changes a byte of the next chunk on its way.
    pub fn damage_next_piece(&self) {
        self.damages.set(true);
    }

    async fn call(
        self: Rc<Self>,
        from: HostId,
        to: Destination,
        request: Message,
    ) -> Result<Bytes, CallError> {
        let gone = || CallError::Unreachable { address: to.address, reason: "gone".to_owned() };
        if let Some(left) = self.left.borrow_mut().get_mut(&to.address) {
            *left = left.checked_sub(1).ok_or_else(gone)?;
        }
        let node = self.nodes.borrow().get(&to.address).cloned().ok_or_else(gone)?;
        let shard = node.get(usize::from(to.shard) % node.len()).cloned().ok_or_else(gone)?;
        let answer = dispatch(&shard, from, &request.bytes, true).await.ok_or_else(gone)?;
        let decoded = service::decode_response::<StreamRequest>(&answer).unwrap();
        if let Ok(StreamResponse::StreamChunk(mut piece)) = decoded
            && piece.count > 0
            && self.damages.take()
        {
            piece.mutations[40] ^= 1;
            return Ok(
                service::encode_response::<StreamRequest>(&Ok(StreamResponse::StreamChunk(piece))).unwrap()
            );
        }
        Ok(answer)
    }
}

struct Wire {
    network: Rc<Network>,
    from: HostId,
}

impl Transport for Wire {
    fn call(
        &self,
        to: Destination,
        request: Message,
        _deadline: Duration,
    ) -> LocalBoxFuture<'static, Result<Bytes, CallError>> {
        Box::pin(self.network.clone().call(self.from, to, request))
    }

    fn send(&self, _to: Destination, _message: Message) {}
}

pub struct Cluster {
    pub network: Rc<Network>,
    nodes: Vec<TestNode>,
    catalog: Arc<Catalog>,
    clock: Rc<ManualClock>,
    random: RefCell<SplitMix64>,
    epoch: u64,
    timestamp: Cell<i64>,
    ticking: JoinHandle<()>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.ticking.abort();
        self.network.nodes.borrow_mut().clear();
    }
}

impl Cluster {
    /// A cluster without nodes; its keyspaces have `replicas` replicas.
    pub fn new(seed: u64, replicas: u32) -> Self {
        let mut statements = Vec::new();
        for (keyspace, durable) in [("ks", true), ("quick", false)] {
            statements.push(format!(
                "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': \
                 {replicas}}} AND durable_writes = {durable}"
            ));
        }
        for table in TABLES {
            statements.push(format!("CREATE TABLE {table} (p blob, c blob, v blob, PRIMARY KEY (p, c))"));
        }
        let clock = Rc::new(ManualClock::new(START_MICROS));
        let ticking = tokio::task::spawn_local({
            let clock = clock.clone();
            async move {
                loop {
                    for _ in 0..100 {
                        tokio::task::yield_now().await;
                    }
                    clock.advance(Duration::from_millis(10));
                }
            }
        });
        Self {
            network: Rc::default(),
            nodes: Vec::new(),
            catalog: catalog_of(&statements).catalog,
            clock,
            random: RefCell::new(SplitMix64::new(seed)),
            epoch: 1,
            timestamp: Cell::new(1),
            ticking,
        }
    }

    /// Adds a node and returns its number.
    pub async fn add(&mut self, shards: u16, state: MemberState) -> usize {
        let number = self.nodes.len();
        let mut tokens: Vec<i64> = (0..TOKENS).map(|_| self.random.borrow_mut().next_u64() as i64).collect();
        tokens.sort_unstable();
        let member = Member {
            host_id: Uuid::from_u128(number as u128 + 1),
            internode_address: address(number),
            native_address: SocketAddr::new(address(number).ip(), 9042),
            shard_aware_port: 0,
            shard_count: shards,
            data_center: "datacenter1".to_owned(),
            rack: "rack1".to_owned(),
            tokens,
            state,
            release_version: String::new(),
            protocol_version: 1,
            feature_version: 1,
        };
        self.nodes.push(TestNode { member, disk: SimulatedDisk::new(number as u64), running: None });
        self.epoch += 1;
        self.start(number, CrashStyle::KeepAll).await;
        number
    }

    async fn start(&mut self, number: usize, style: CrashStyle) {
        // Tasks of the last run end first.
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        let seed = self.random.borrow_mut().next_u64();
        self.nodes[number].disk.restart(style, seed);
        let Self { nodes, clock, network, catalog, .. } = self;
        let node = &mut nodes[number];
        let disk: Arc<dyn Disk> = Arc::new(node.disk.clone());
        let shared_clock: Rc<dyn Clock> = clock.clone();
        let files = NodeFiles::open(disk.clone(), "/node".into()).await.unwrap();
        let (host_id, shards) = (node.member.host_id, usize::from(node.member.shard_count));
        let new = || Identity::new(host_id, shards);
        let identity = Identity::load_or_store(&files, None, new).await.unwrap();
        files.replace(CATALOG_FILE, helenus_testing::catalog_file(catalog).into()).await.unwrap();
        let mut config = Config { data_dir: "/node".into(), ..Config::default() };
        config.memtable_bytes = 4 << 20;
        config.commit_log_segment_bytes = 1 << 20;
        let assembled = assemble(NodeParts {
            config,
            identity,
            addresses: Addresses {
                native: node.member.native_address,
                shard_aware_port: 0,
                internode: Some(node.member.internode_address),
            },
            files,
            started_seconds: clock.now_seconds(),
            catalog_version: Uuid::nil(),
        })
        .await
        .unwrap();
        let mut running = Running { contexts: Vec::new(), tasks: Vec::new() };
        for (index, queue) in assembled.queues.into_iter().enumerate() {
            let background = Rc::new(InlineBackground::new(disk.clone(), shared_clock.clone()));
            let parts = ShardParts {
                environment: Environment { disk: disk.clone(), background, clock: shared_clock.clone() },
                transport: Rc::new(Wire { network: network.clone(), from: host_id }),
                random_seed: index as u64,
                uuids: CallContext::process_uuids(),
                planted_bug: None,
            };
            let (view, cluster) = (assembled.catalog.clone(), assembled.cluster.clone());
            let context = open_shard(index, assembled.shared.clone(), parts, view, cluster).await.unwrap();
            running.tasks.push(tokio::task::spawn_local(serve(context.clone(), queue)));
            running.contexts.push(context);
        }
        network.nodes.borrow_mut().insert(node.member.internode_address, running.contexts.clone());
        network.heal(number);
        node.running = Some(running);
        self.install();
    }

    /// Stops a node as it is: it does not answer any more.
    pub fn stop(&mut self, number: usize) {
        self.network.nodes.borrow_mut().remove(&address(number));
        self.nodes[number].running = None;
        self.nodes[number].disk.crash();
        self.install();
    }

    pub async fn restart(&mut self, number: usize) {
        self.start(number, CrashStyle::LoseAll).await;
    }

    /// Simulates a power failure and a restart of a node.
    pub async fn crash(&mut self, number: usize, style: CrashStyle) {
        self.stop(number);
        self.start(number, style).await;
    }

    pub fn set_state(&mut self, number: usize, state: MemberState) {
        self.nodes[number].member.state = state;
        self.epoch += 1;
        self.install();
    }

    fn topology(&self, epoch: u64) -> Topology {
        let members = self.nodes.iter().map(|node| (node.member.host_id, Arc::new(node.member.clone())));
        Topology { version: epoch, epoch, members: members.collect(), ..Topology::default() }
    }

    fn view(&self, epoch: u64) -> Arc<ClusterView> {
        let living = self.nodes.iter().filter(|node| node.running.is_some());
        let alive: BTreeSet<_> = living.map(|node| node.member.host_id).collect();
        Arc::new(ClusterView::new(Arc::new(self.topology(epoch)), Arc::new(alive), &self.catalog))
    }

    /// Installs the present members on every live node.
    fn install(&self) {
        for number in 0..self.nodes.len() {
            self.install_on(number, self.epoch);
        }
    }

    /// Installs the present members on one node, as of some epoch.
    pub fn install_on(&self, number: usize, epoch: u64) {
        let view = self.view(epoch);
        for context in self.nodes[number].running.iter().flat_map(|running| &running.contexts) {
            context.install_cluster(view.clone());
        }
    }

    pub fn first_shard(&self, number: usize) -> Rc<ShardContext> {
        self.nodes[number].running.as_ref().unwrap().contexts[0].clone()
    }

    fn table(&self, name: &str) -> TableId {
        let (keyspace, table) = name.split_once('.').unwrap();
        self.catalog.keyspaces[keyspace].tables[table].engine_id()
    }

    /// Writes partitions to all live replicas, also pending ones: rows, deletions, overwritten rows.
    pub async fn write(&self, partitions: usize, value_bytes: usize) {
        for name in TABLES {
            let table = self.table(name);
            let keyspace = name.split_once('.').unwrap().0;
            for _ in 0..partitions {
                let mutation = self.mutation(table, value_bytes);
                let token = mutation.view().unwrap().token;
                let view = self.view(self.epoch);
                let replicas = view.placement(keyspace).unwrap().replicas(token);
                for member in replicas.all() {
                    let node = self.nodes.iter().find(|node| node.member.host_id == member.host_id);
                    let Some(running) = node.and_then(|node| node.running.as_ref()) else { continue };
                    let shard = running.contexts[0].node.shard_of(token);
                    let context = &running.contexts[shard];
                    context.shard.admit().await.unwrap();
                    context.shard.apply(&mutation.view().unwrap()).unwrap();
                }
                if self.random.borrow_mut().chance(1, 200) {
                    self.flush(table).await;
                }
            }
            // Data that is not logged would not survive a restart.
            self.flush(table).await;
        }
    }

    async fn flush(&self, table: TableId) {
        for running in self.nodes.iter().filter_map(|node| node.running.as_ref()) {
            for context in &running.contexts {
                context.shard.flush(table).await.unwrap();
            }
        }
    }

    fn mutation(&self, table: TableId, value_bytes: usize) -> Mutation {
        let mut random = self.random.borrow_mut();
        let key = random.below(5_000).to_be_bytes();
        let timestamp = self.timestamp.replace(self.timestamp.get() + 1);
        let mut builder = MutationBuilder::new(table, token::token(&key), &key).unwrap();
        let deletion = Deletion { timestamp, local_deletion_time: (START_MICROS / 1_000_000) as u32 };
        match random.below(10) {
            0 => drop(builder.delete_partition(deletion)),
            1 => drop(builder.delete_range(&[2, 3], &[2, 6], deletion)),
            2 => {
                let mut row = RowBuilder::new();
                row.set_deletion(deletion);
                builder.row(&[2, 1 + random.below(8) as u8], &mut row);
            }
            _ => {
                let value: Vec<u8> = (0..value_bytes).map(|_| random.next_u64() as u8).collect();
                let mut row = RowBuilder::new();
                row.set_liveness(Liveness { timestamp, expiry: None });
                row.cell(EngineCell { column: 1, path: &[], timestamp, kind: CellKind::Live, value: &value });
                builder.row(&[2, 1 + random.below(8) as u8], &mut row);
            }
        }
        builder.build()
    }

    /// All versions that a node has of a table, by partition.
    fn versions(&self, number: usize, table: TableId) -> BTreeMap<Vec<u8>, Bytes> {
        let (start, end) = token_bounds(&(i64::MIN..=i64::MAX));
        let mut all = BTreeMap::new();
        for context in &self.nodes[number].running.as_ref().unwrap().contexts {
            let request = VersionScanRequest {
                table,
                start: &start,
                end: &end,
                reversed: false,
                now_seconds: self.clock.now_seconds(),
                keeps_purgeable: true,
                is_long: false,
                limit: VersionLimit::UNLIMITED,
            };
            for partition in context.shard.scan_versions(&request).unwrap().partitions {
                let view = partition.view().unwrap();
                assert_eq!(context.node.shard_of(view.token), context.index, "on the shard it belongs to");
                let key = helenus_engine::key::full_key(view.token, view.partition_key, &[]).unwrap();
                assert!(all.insert(key, partition.bytes().clone()).is_none());
            }
        }
        all
    }

    /// Checks that a node has, for all ranges that it gains, the data of an old replica. Returns the number of
    /// partitions.
    pub fn check_receiver(&self, number: usize) -> usize {
        let receiver = self.nodes[number].member.host_id;
        let sides = Sides::of(&self.topology(self.epoch)).unwrap();
        let mut gained = 0;
        for name in TABLES {
            let replication = &self.catalog.keyspaces[name.split_once('.').unwrap().0].replication;
            let before = Placement::new(&sides.before, replication);
            let after = Placement::new(&sides.after, replication);
            let has = |placement: &Placement, token: i64, host_id: HostId| {
                placement.replicas(token).read.iter().any(|member| member.host_id == host_id)
            };
            let table = self.table(name);
            let received = self.versions(number, table);
            for (other, node) in self.nodes.iter().enumerate() {
                if other == number || node.running.is_none() {
                    continue;
                }
                for (key, bytes) in self.versions(other, table) {
                    let token = KeyRef::parse(&key).unwrap().token;
                    let is_gained = has(&after, token, receiver) && !has(&before, token, receiver);
                    if is_gained && has(&before, token, node.member.host_id) {
                        assert!(received.get(&key) == Some(&bytes), "{name}, token {token} of node {other}");
                        gained += 1;
                    }
                }
            }
        }
        gained
    }

    pub fn received_bytes(&self, number: usize) -> u64 {
        let report = crate::streaming::progress(&self.first_shard(number));
        report.receiving.map_or(0, |receiving| receiving.bytes)
    }

    pub fn sent_bytes(&self, number: usize) -> u64 {
        crate::streaming::progress(&self.first_shard(number)).sent_bytes.values().sum()
    }
}
