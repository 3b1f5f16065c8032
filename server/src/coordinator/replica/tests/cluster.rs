//! A few nodes in one thread: simulated disks, a manual clock, and a network that tests can cut.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus_engine::io::{Clock, Environment, InlineBackground, ManualClock, SimulatedDisk};
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{CellKind, counter};
use helenus_internode::service::Message;
use helenus_internode::transport::{CallError, Destination, Transport};
use helenus_query::bind::BorrowedValues;
use helenus_query::error::Result;
use helenus_query::functions::CallContext;
use helenus_query::schema::catalog::{Catalog, CatalogView, Table};
use helenus_query::schema::ddl::{self, DdlContext};
use helenus_query::schema::system_tables::initial_catalog;
use helenus_query::statement::Statement;
use helenus_ring::HostId;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::topology::Topology;
use helenus_ring::view::ClusterView;
use uuid::Uuid;

use crate::config::Config;
use crate::coordinator::batch_log::store;
use crate::coordinator::{Execution, Outcome, RequestOptions, replica};
use crate::files::node_files::NodeFiles;
use crate::node::assembly::{self, Addresses, NodeParts};
use crate::node::dispatch::dispatch;
use crate::node::identity::Identity;
use crate::node::serve::serve;
use crate::session::request;
use crate::shard::context::{ShardContext, ShardParts};
use crate::shard::engine_options::engine_tables;

/// The first time of the clock, in microseconds since the epoch.
const START_MICROS: i64 = 1_700_000_000_000_000;
const SHARDS: usize = 2;
const TOKENS: u64 = 8;

const SCHEMA: [&str; 10] = [
    "CREATE KEYSPACE three WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
    "CREATE TABLE three.t (k int PRIMARY KEY, v int)",
    "CREATE TABLE three.blobs (k int PRIMARY KEY, v blob)",
    "CREATE TABLE three.c (k int PRIMARY KEY, n counter)",
    "CREATE KEYSPACE one WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE one.t (k int PRIMARY KEY, v int, l list<int>)",
    "CREATE TABLE one.c (k int PRIMARY KEY, n counter)",
    "CREATE TABLE three.rows (k int, c int, s int static, v int, PRIMARY KEY (k, c))",
    "CREATE TABLE three.lists (k int PRIMARY KEY, l list<int>)",
    "CREATE TABLE three.unrepaired (k int PRIMARY KEY, v int) WITH read_repair = 'NONE'",
];

/// The reachability of the nodes.
#[derive(Default)]
struct Network {
    shards: RefCell<BTreeMap<SocketAddr, Vec<Rc<ShardContext>>>>,
    silent: RefCell<BTreeSet<SocketAddr>>,
    /// The outcomes of the next calls, in order.
    fates: RefCell<VecDeque<Fate>>,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    Answered { after: Duration },
    Broken { after: Duration },
}

/// The network as one node sees it.
struct Link {
    network: Rc<Network>,
    clock: Rc<ManualClock>,
    from: HostId,
    address: SocketAddr,
}

impl Transport for Link {
    fn call(
        &self,
        to: Destination,
        request: Message,
        deadline: Duration,
    ) -> LocalBoxFuture<'static, Result<Bytes, CallError>> {
        let (network, clock, from) = (self.network.clone(), self.clock.clone(), self.from);
        Box::pin(async move {
            let address = to.address;
            let unreachable =
                || CallError::Unreachable { address, reason: "no node listens there".to_owned() };
            let fate = network.fates.borrow_mut().pop_front();
            match fate {
                Some(Fate::Answered { after }) => clock.sleep(after).await,
                Some(Fate::Broken { after }) => {
                    clock.sleep(after).await;
                    return Err(unreachable());
                }
                None => {}
            }
            if network.silent.borrow().contains(&address) {
                clock.sleep(deadline).await;
                return Err(CallError::TimedOut { address, after_ms: deadline.as_millis() as u64 });
            }
            let shard = {
                let shards = network.shards.borrow();
                let shards = shards.get(&address).ok_or_else(unreachable)?;
                shards[usize::from(to.shard) % shards.len()].clone()
            };
            tokio::select! {
                biased;
                answer = dispatch(&shard, from, &request.bytes, true) => answer.ok_or_else(unreachable),
                () = clock.sleep(deadline) => {
                    Err(CallError::TimedOut { address, after_ms: deadline.as_millis() as u64 })
                }
            }
        })
    }

    fn send(&self, to: Destination, message: Message) {
        let is_silent = |address| self.network.silent.borrow().contains(address);
        if is_silent(&to.address) || is_silent(&self.address) {
            return;
        }
        let shards = self.network.shards.borrow();
        if let Some(shards) = shards.get(&to.address) {
            let shard = shards[usize::from(to.shard) % shards.len()].clone();
            let from = self.from;
            tokio::task::spawn_local(async move { dispatch(&shard, from, &message.bytes, false).await });
        }
    }
}

/// A page of rows of ints, bigints and nulls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub rows: Vec<Vec<Option<i64>>>,
    pub paging_state: Option<Vec<u8>>,
}

fn options(consistency: Consistency) -> RequestOptions {
    RequestOptions {
        consistency,
        serial_consistency: None,
        page_rows: None,
        paging_state: None,
        timestamp: None,
        now_seconds: None,
    }
}

/// Executes a statement without values.
async fn carry_out(
    context: &Rc<ShardContext>,
    text: &str,
    options: &RequestOptions,
) -> Result<(Statement, Outcome)> {
    let statement = Statement::new(text, None, &context.catalog_view())?;
    let values = BorrowedValues::new();
    let execution = request::execute(context, &statement, &values, options, &mut Vec::new())?;
    let outcome = match execution {
        Execution::Ready(outcome) => outcome,
        Execution::Pending(outcome) => outcome.await,
    };
    outcome.map(|outcome| (statement, outcome))
}

/// Nodes that know each other, with [`SCHEMA`].
pub struct Cluster {
    pub clock: Rc<ManualClock>,
    network: Rc<Network>,
    /// The shards of each node.
    pub nodes: Vec<Vec<Rc<ShardContext>>>,
    disks: Vec<SimulatedDisk>,
    configs: Vec<Config>,
    catalog: Arc<Catalog>,
    topology: RefCell<Topology>,
    down: RefCell<BTreeSet<usize>>,
}

pub fn host_id(node: usize) -> HostId {
    Uuid::from_bytes([node as u8 + 1; 16])
}

fn address(node: usize) -> SocketAddr {
    ([127, 0, 0, node as u8 + 1], 7000).into()
}

fn catalog() -> Arc<Catalog> {
    let mut catalog = Arc::new(initial_catalog(Uuid::from_u128(1)));
    for (index, text) in SCHEMA.iter().enumerate() {
        let context = DdlContext {
            now_micros: START_MICROS,
            new_table_id: Uuid::from_u128(100 + index as u128),
            new_version: Uuid::from_u128(200 + index as u128),
            data_centers: BTreeMap::from([("datacenter1".to_owned(), 3)]),
        };
        let statement = cql_lite::syntax::parse(text).unwrap();
        catalog = ddl::execute(&catalog, &statement, None, &context).unwrap().catalog;
    }
    catalog
}

/// Runs a test on a cluster of `count` nodes.
pub fn with_cluster<F>(count: usize, config: &Config, test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let cluster = Cluster::new(count, config).await;
        let network = cluster.network.clone();
        test(cluster).await;
        // Breaks the reference cycle between network and shards, so that the memory of one test is freed before the
        // next.
        network.shards.borrow_mut().clear();
    });
}

impl Cluster {
    async fn new(count: usize, config: &Config) -> Self {
        let members = (0..count).map(|node| (host_id(node), Arc::new(member(node, MemberState::Normal))));
        let mut cluster = Self {
            clock: Rc::new(ManualClock::new(START_MICROS)),
            network: Rc::default(),
            nodes: Vec::new(),
            disks: (0..count).map(|node| SimulatedDisk::new(node as u64)).collect(),
            configs: (0..count)
                .map(|node| Config { data_dir: PathBuf::from(format!("/node-{node}")), ..config.clone() })
                .collect(),
            catalog: catalog(),
            topology: RefCell::new(Topology {
                version: 1,
                epoch: 1,
                members: members.collect(),
                ..Topology::default()
            }),
            down: RefCell::default(),
        };
        for node in 0..count {
            let shards = cluster.open(node).await;
            cluster.nodes.push(shards);
        }
        cluster.show_all();
        cluster
    }

    async fn open(&self, node: usize) -> Vec<Rc<ShardContext>> {
        let disk = Arc::new(self.disks[node].clone());
        let config = self.configs[node].clone();
        let files = NodeFiles::open(disk.clone(), config.data_dir.clone()).await.unwrap();
        let assembled = assembly::assemble(NodeParts {
            config,
            identity: Identity::new(host_id(node), SHARDS),
            addresses: Addresses {
                native: SocketAddr::new(address(node).ip(), 9042),
                shard_aware_port: 19042,
                internode: Some(address(node)),
            },
            files,
            started_seconds: self.clock.now_seconds(),
            catalog_version: Uuid::from_u128(1),
        })
        .await
        .unwrap();
        let view = CatalogView::new(2, self.catalog.clone());
        let mut shards = Vec::new();
        for (index, queue) in assembled.queues.into_iter().enumerate() {
            let parts = ShardParts {
                environment: Environment {
                    disk: disk.clone(),
                    background: Rc::new(InlineBackground::new(disk.clone(), self.clock.clone())),
                    clock: self.clock.clone(),
                },
                transport: Rc::new(Link {
                    network: self.network.clone(),
                    clock: self.clock.clone(),
                    from: host_id(node),
                    address: address(node),
                }),
                random_seed: (node * SHARDS + index) as u64,
                uuids: CallContext::process_uuids(),
                planted_bug: None,
            };
            let (shared, cluster) = (assembled.shared.clone(), self.view());
            let context = assembly::open_shard(index, shared, parts, view.clone(), cluster).await.unwrap();
            context.shard.create_tables(&engine_tables(&self.catalog).unwrap()).await.unwrap();
            tokio::task::spawn_local(serve(context.clone(), queue));
            shards.push(context);
        }
        for context in &shards {
            // There is no metadata log: tests install the cluster on their nodes.
            store::replay(context).await.unwrap();
            replica::start(context).await.unwrap();
        }
        self.network.shards.borrow_mut().insert(address(node), shards.clone());
        shards
    }

    fn view(&self) -> Arc<ClusterView> {
        let topology = Arc::new(self.topology.borrow().clone());
        let down = self.down.borrow();
        let alive = (0..topology.members.len()).filter(|node| !down.contains(node)).map(host_id).collect();
        Arc::new(ClusterView::new(topology, Arc::new(alive), &self.catalog))
    }

    /// Installs the present cluster on a node.
    pub fn show(&self, node: usize) {
        for context in &self.nodes[node] {
            context.install_cluster(self.view());
        }
    }

    fn show_all(&self) {
        (0..self.nodes.len()).for_each(|node| self.show(node));
    }

    /// Marks a node as down, or alive again, for all nodes.
    pub fn set_alive(&self, node: usize, is_alive: bool) {
        if is_alive {
            self.down.borrow_mut().remove(&node);
        } else {
            self.down.borrow_mut().insert(node);
        }
        self.set_silent(node, !is_alive);
        self.show_all();
    }

    /// Makes a node stop answering, or answer again. No other node notices.
    pub fn set_silent(&self, node: usize, is_silent: bool) {
        if is_silent {
            self.network.silent.borrow_mut().insert(address(node));
        } else {
            self.network.silent.borrow_mut().remove(&address(node));
        }
    }

    /// Sets the outcomes of the next calls between nodes. Later calls are answered at once.
    pub fn set_fates(&self, fates: impl IntoIterator<Item = Fate>) {
        *self.network.fates.borrow_mut() = fates.into_iter().collect();
    }

    /// Starts the next epoch, with these states of members. It is installed on no node.
    pub fn change_ring(&self, states: &[(usize, Option<MemberState>)]) {
        let mut topology = self.topology.borrow_mut();
        topology.version += 1;
        topology.epoch = topology.version;
        for (node, state) in states {
            if let Some(state) = state {
                topology.members.insert(host_id(*node), Arc::new(member(*node, *state)));
            } else {
                topology.members.remove(&host_id(*node));
                topology.removed.insert(host_id(*node));
            }
        }
    }

    /// Pretends that no member has ever left.
    pub fn forget_removed(&self) {
        self.topology.borrow_mut().removed.clear();
    }

    /// Pretends that nothing has been agreed yet.
    pub fn forget_agreements(&self) {
        self.forget_removed();
        self.topology.borrow_mut().version = 0;
    }

    /// Runs tasks until none can continue without time passing.
    pub async fn settle(&self) {
        for _ in 0..2_000 {
            tokio::task::yield_now().await;
        }
    }

    /// Advances the clock.
    pub async fn pass(&self, duration: Duration) {
        let end = self.clock.monotonic() + duration;
        while self.clock.monotonic() < end {
            self.settle().await;
            let left = end.saturating_sub(self.clock.monotonic());
            self.clock.advance(Duration::from_millis(250).min(left));
        }
        self.settle().await;
    }

    /// Executes a statement on a node, advancing the clock as needed.
    pub async fn execute(&self, node: usize, text: &str, consistency: Consistency) -> Result<()> {
        self.query(node, text, consistency).await.map(drop)
    }

    /// Executes a statement on a node, advancing the clock as needed, and returns its outcome.
    pub async fn query(&self, node: usize, text: &str, consistency: Consistency) -> Result<Outcome> {
        let request = self.begin(node, text, consistency);
        loop {
            self.settle().await;
            if request.is_finished() {
                return request.await.unwrap();
            }
            self.clock.advance(Duration::from_millis(50));
        }
    }

    /// Starts a statement on a node.
    pub fn begin(
        &self,
        node: usize,
        text: &str,
        consistency: Consistency,
    ) -> tokio::task::JoinHandle<Result<Outcome>> {
        let context = self.nodes[node][0].clone();
        let options = options(consistency);
        let text = text.to_owned();
        tokio::task::spawn_local(async move {
            carry_out(&context, &text, &options).await.map(|(_, outcome)| outcome)
        })
    }

    /// Executes a SELECT on a node, advancing the clock as needed, and returns one page.
    pub async fn page(
        &self,
        node: usize,
        text: &str,
        consistency: Consistency,
        page_rows: Option<usize>,
        paging_state: Option<Vec<u8>>,
    ) -> Result<Page> {
        let context = self.nodes[node][0].clone();
        let options = RequestOptions { page_rows, paging_state, ..options(consistency) };
        let owned = text.to_owned();
        let request = tokio::task::spawn_local(async move { carry_out(&context, &owned, &options).await });
        loop {
            self.settle().await;
            if request.is_finished() {
                break;
            }
            self.clock.advance(Duration::from_millis(50));
        }
        let (statement, outcome) = request.await.unwrap()?;
        let Outcome::Rows(page) = outcome else { panic!("{text} returns no rows") };
        let columns = statement.result_columns.len();
        let mut rest = page.rows.as_slice();
        let mut values = Vec::new();
        while let Some((length, tail)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).ok();
            let (value, tail) = tail.split_at(length.unwrap_or(0));
            values.push(length.map(|_| match value.try_into() {
                Ok(bytes) => i64::from(i32::from_be_bytes(bytes)),
                Err(_) => i64::from_be_bytes(value.try_into().unwrap()),
            }));
            rest = tail;
        }
        let rows = values.chunks(columns).map(<[_]>::to_vec).collect();
        Ok(Page {
            rows,
            paging_state: page.paging_state.map(|paging_state| paging_state.encode(statement.fingerprint)),
        })
    }

    pub fn table(&self, keyspace: &str, name: &str) -> Arc<Table> {
        self.catalog.table(keyspace, name).unwrap().clone()
    }

    /// The local content on one node of a table with one value column: the value (or the sum of a counter) by key.
    pub fn stored(&self, node: usize, keyspace: &str, table: &str) -> BTreeMap<i32, i64> {
        let id = self.table(keyspace, table).engine_id();
        let mut rows = BTreeMap::new();
        for context in &self.nodes[node] {
            let mut scan = context
                .shard
                .scan(&ScanRequest {
                    table: id,
                    start: &[],
                    end: &[0xFF; 9],
                    reversed: false,
                    now_seconds: context.now_seconds(),
                    budget: Budget::UNLIMITED,
                })
                .unwrap();
            while let Step::Row(view) = scan.next().unwrap() {
                let key = i32::from_be_bytes(view.partition_key.try_into().unwrap());
                let value = view.row.cells().next().map_or(0, |cell| match cell.kind {
                    CellKind::Counter => counter::total(cell.value),
                    _ => cell.value.try_into().map_or(0, |bytes| i64::from(i32::from_be_bytes(bytes))),
                });
                rows.insert(key, value);
            }
        }
        rows
    }

    /// The number of batches in the logs of all nodes.
    pub fn logged_batches(&self) -> usize {
        self.nodes.iter().flatten().map(|context| context.replication().batches.borrow().len()).sum()
    }

    /// Size of the hints that a node keeps for another, in bytes.
    pub fn hinted_bytes(&self, node: usize, target: usize) -> u64 {
        let hints = |context: &Rc<ShardContext>| context.replication().hints.pending_bytes(&host_id(target));
        self.nodes[node].iter().map(hints).sum()
    }

    /// Cuts a node off: calls to it fail at once.
    pub fn disconnect(&self, node: usize) {
        self.network.shards.borrow_mut().remove(&address(node));
    }

    /// Crashes a node and restarts it from its disk.
    pub async fn restart(&mut self, node: usize) {
        self.network.shards.borrow_mut().remove(&address(node));
        self.disks[node].crash();
        self.nodes[node].clear();
        self.settle().await;
        self.clock.advance(Duration::from_secs(11));
        self.settle().await;
        self.disks[node].restart(helenus_engine::io::CrashStyle::LoseAll, 1);
        self.nodes[node] = self.open(node).await;
        self.show(node);
    }
}

fn member(node: usize, state: MemberState) -> Member {
    let tokens = (0..TOKENS).map(|index| {
        cql_lite::types::token::token(&[host_id(node).as_bytes().as_slice(), &index.to_be_bytes()].concat())
    });
    let mut tokens: Vec<i64> = tokens.collect();
    tokens.sort_unstable();
    Member {
        host_id: host_id(node),
        internode_address: address(node),
        native_address: SocketAddr::new(address(node).ip(), 9042),
        shard_aware_port: 19042,
        shard_count: SHARDS as u16,
        data_center: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        tokens,
        state,
        release_version: "1".to_owned(),
        protocol_version: 1,
        feature_version: 1,
    }
}
