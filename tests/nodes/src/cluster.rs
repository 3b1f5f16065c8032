//! A few nodes with [`SCHEMA`], whose links and topology tests set by hand.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use cql_lite::syntax;
use helenus_config::Config;
use helenus_engine::io::CrashStyle;
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{CellKind, counter};
use helenus_feed_logs::{log_table, with_columns_of};
use helenus_query::error::Result;
use helenus_query::schema::catalog::{Catalog, Keyspace};
use helenus_query::schema::ddl::{self, DdlContext};
use helenus_query::schema::options::DataCenters;
use helenus_query::schema::view::{self, CHANGES_TTL_SECONDS};
use helenus_ring::change_feed::{ChangeFeed, Generation};
use helenus_ring::member::MemberState;
use helenus_testing::{catalog_of, virtual_time};
use tokio::task::JoinHandle;
use uuid::Uuid;

use helenus::testing::client::{self, StatementResponse};
use helenus::testing::cluster::simulate;
use helenus::testing::links::Links;
use helenus::testing::members::Members;
pub use helenus::testing::members::host_id;
use helenus_execution::coordinator::RequestOptions;
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::status_table::{NodeStatus, ServingState};

const SHARDS: usize = 2;
const TOKENS: u64 = 8;

const SCHEMA: [&str; 14] = [
    "CREATE KEYSPACE three WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
    "CREATE TABLE three.t (k int PRIMARY KEY, v int)",
    "CREATE TABLE three.blobs (k int PRIMARY KEY, v blob)",
    "CREATE TABLE three.c (k int PRIMARY KEY, n counter)",
    "CREATE TABLE three.large (k blob PRIMARY KEY, v blob)",
    "CREATE KEYSPACE one WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE one.t (k int PRIMARY KEY, v int, l list<int>)",
    "CREATE TABLE one.c (k int PRIMARY KEY, n counter)",
    "CREATE TABLE three.rows (k int, c int, s int static, v int, PRIMARY KEY (k, c))",
    "CREATE TABLE three.lists (k int PRIMARY KEY, l list<int>)",
    "CREATE TABLE three.unrepaired (k int PRIMARY KEY, v int) WITH read_repair = 'NONE'",
    "CREATE TABLE three.graced (k int PRIMARY KEY, v int) WITH gc_grace_seconds = 3600 AND tombstone_gc = \
     {'mode': 'repair', 'propagation_delay_in_seconds': 1}",
    "CREATE TABLE three.timed (k int PRIMARY KEY, v int) WITH gc_grace_seconds = 3600 AND tombstone_gc = {'mode': 'timeout'}",
    "CREATE TABLE three.brief (k int PRIMARY KEY, v int) WITH gc_grace_seconds = 0",
];

/// What is in the schema, too, where the nodes are in these two data centers.
const CENTERS_SCHEMA: [&str; 2] = [
    "CREATE KEYSPACE centers WITH replication = {'class': 'NetworkTopologyStrategy', 'near': 2, 'far': 2}",
    "CREATE TABLE centers.t (k int PRIMARY KEY, v int)",
];

/// Nodes that know each other.
pub struct Cluster {
    members: Members,
    /// The shards of each node.
    pub nodes: Vec<Vec<Rc<ShardContext>>>,
}

impl Deref for Cluster {
    type Target = Members;

    fn deref(&self) -> &Members {
        &self.members
    }
}

/// Runs a test in virtual time on a cluster of `count` nodes.
pub fn with_cluster<F>(count: usize, config: &Config, test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()>,
{
    let config = Config { shards: Some(SHARDS), ..config.clone() };
    with_nodes(vec![config; count], test);
}

/// As [`with_cluster`], with each node in its data center.
pub fn with_centers<F>(centers: &[&str], config: &Config, test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()>,
{
    let of_center =
        |center: &&str| Config { shards: Some(SHARDS), data_center: (*center).to_owned(), ..config.clone() };
    with_nodes(centers.iter().map(of_center).collect(), test);
}

/// The schema of nodes in these data centers.
fn catalog(centers: &[&str]) -> Arc<Catalog> {
    let mut catalog = catalog_of(&SCHEMA).catalog;
    if centers.contains(&"near") {
        let mut data_centers = DataCenters::new();
        for center in centers {
            *data_centers.entry((*center).to_owned()).or_default() += 1;
        }
        for (number, text) in (1_000..).zip(CENTERS_SCHEMA) {
            let context = DdlContext {
                now_micros: 1_700_000_000_000_000,
                new_id: Uuid::from_u128(number),
                new_version: Uuid::from_u128(number << 64),
                data_centers: data_centers.clone(),
                user_functions: &helenus_query::functions::user::NoUserFunctions,
                may_drop_compact_storage: false,
            };
            let statement = syntax::parse(text).unwrap();
            catalog = ddl::execute(&catalog, &statement, None, &context).unwrap().catalog;
        }
    }
    catalog
}

/// Runs a test in virtual time on a cluster of nodes with these settings.
pub fn with_nodes<F>(configs: Vec<Config>, test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()>,
{
    let catalog = {
        let centers: Vec<&str> = configs.iter().map(|config| config.data_center.as_str()).collect();
        catalog(&centers)
    };
    with_catalog(configs, catalog, test);
}

/// The table `three.rows` has a log of its changes, as if views were computed of it.
pub fn with_view_log<F>(count: usize, test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()>,
{
    let mut catalog = Catalog::clone(&catalog(&[]));
    let mut keyspace = Keyspace::clone(catalog.keyspace("three").unwrap());
    let context = DdlContext {
        now_micros: 1_700_000_000_000_000,
        new_id: Uuid::from_u128(2_000),
        new_version: Uuid::from_u128(2_000),
        data_centers: DataCenters::new(),
        user_functions: &helenus_query::functions::user::NoUserFunctions,
        may_drop_compact_storage: false,
    };
    let base = keyspace.tables["rows"].clone();
    let log = log_table(view::log_name("rows"), &base, CHANGES_TTL_SECONDS, &context).unwrap();
    let log = with_columns_of(&log, None, &base, &context).unwrap();
    keyspace.tables.insert(log.name.clone(), Arc::new(log));
    catalog.keyspaces.insert("three".to_owned(), Arc::new(keyspace));
    with_feed_streams(count, Arc::new(catalog), test);
}

/// As [`with_cluster`], with views and other tables that these statements create.
pub fn with_views<F>(count: usize, statements: &[&str], test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()>,
{
    let mut catalog = catalog(&[]);
    for (number, text) in (3_000..).zip(statements) {
        let context = DdlContext {
            now_micros: 1_700_000_000_000_000,
            new_id: Uuid::from_u128(number),
            new_version: Uuid::from_u128(number << 64),
            data_centers: DataCenters::new(),
            user_functions: &helenus_query::functions::user::NoUserFunctions,
            may_drop_compact_storage: false,
        };
        let statement = syntax::parse(text).unwrap();
        let change = helenus_views::statement::execute(&catalog, &statement, None, &context).unwrap();
        catalog = helenus_views::following::followed(&catalog, change, &context).unwrap().catalog;
    }
    with_feed_streams(count, catalog, |cluster| async move {
        cluster.keep_views().await;
        test(cluster).await;
    });
}

/// Nodes with a schema, and with streams for the logs of tables.
fn with_feed_streams<F>(count: usize, catalog: Arc<Catalog>, test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()>,
{
    let config = Config { shards: Some(SHARDS), ..Config::default() };
    with_catalog(vec![config; count], catalog, |cluster| {
        cluster.change_topology(|topology| {
            let members = topology.members.values().map(AsRef::as_ref);
            topology.change_feed = ChangeFeed::from(vec![Generation::of(0, members)]);
        });
        cluster.show_all();
        test(cluster)
    });
}

fn with_catalog<F>(configs: Vec<Config>, catalog: Arc<Catalog>, test: impl FnOnce(Cluster) -> F)
where
    F: Future<Output = ()>,
{
    let count = configs.len();
    simulate(count as u64, Links::default(), |cluster| async move {
        let members = Members::new(cluster, catalog);
        for (node, config) in configs.into_iter().enumerate() {
            let token = |index: u64| {
                cql_lite::types::token::token(
                    &[host_id(node).as_bytes().as_slice(), &index.to_be_bytes()].concat(),
                )
            };
            let mut tokens: Vec<i64> = (0..TOKENS).map(token).collect();
            tokens.sort_unstable();
            let config = Config { data_dir: "/node".into(), ..config };
            members.add_member(&tokens, MemberState::Normal, config);
        }
        let mut cluster = Cluster { members, nodes: Vec::new() };
        for node in 0..count {
            cluster.start(node).await;
            cluster.nodes.push(cluster.machine(node).contexts());
        }
        cluster.show_all();
        test(cluster).await;
    });
}

impl Cluster {
    /// Has the nodes keep views, as they do once they know of each other that they serve, and with which schema.
    async fn keep_views(&self) {
        for (node, shards) in self.nodes.iter().enumerate() {
            for other in (0..self.nodes.len()).filter(|other| *other != node) {
                let status = NodeStatus {
                    generation: 1,
                    sequence: 1,
                    state: ServingState::Serving,
                    schema_version: shards[0].catalog().version,
                    topology_version: 1,
                    data_bytes: 0,
                };
                shards[0].node.status.learn(host_id(other), status);
            }
            let shards = shards.clone();
            let start = async move { shards.iter().for_each(helenus_projector::service::start) };
            self.machine(node).run(start).await.unwrap();
        }
    }

    /// Marks a node as down, or alive again, for all nodes.
    pub fn set_alive(&self, node: usize, is_alive: bool) {
        self.links.set_silent(node, !is_alive);
        self.show_alive(node, is_alive);
    }

    /// Makes a node stop answering, or answer again. No other node notices.
    pub fn set_silent(&self, node: usize, is_silent: bool) {
        self.links.set_silent(node, is_silent);
    }

    /// Runs tasks until none can continue without time passing.
    pub async fn settle(&self) {
        virtual_time::settle().await;
    }

    /// Lets time pass.
    pub async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
        self.settle().await;
    }

    /// Executes a statement on a node.
    pub async fn execute(&self, node: usize, text: &str, consistency: Consistency) -> Result<()> {
        self.query(node, text, consistency).await.map(drop)
    }

    /// Executes a statement on a node and returns its answer.
    pub async fn query(
        &self,
        node: usize,
        text: &str,
        consistency: Consistency,
    ) -> Result<StatementResponse> {
        self.page(node, text, consistency, None, None).await
    }

    /// Executes a SELECT on a node and returns one page.
    pub async fn page(
        &self,
        node: usize,
        text: &str,
        consistency: Consistency,
        page_rows: Option<usize>,
        cursor: Option<Vec<u8>>,
    ) -> Result<StatementResponse> {
        let options = RequestOptions { page_rows, paging_state: cursor, ..client::options(consistency) };
        self.ask(node, text, options).await.unwrap()
    }

    /// Starts a statement on a node.
    pub fn begin(
        &self,
        node: usize,
        text: &str,
        consistency: Consistency,
    ) -> JoinHandle<Result<StatementResponse>> {
        self.ask(node, text, client::options(consistency))
    }

    /// Starts a statement on a node, with these options.
    pub fn ask(
        &self,
        node: usize,
        text: &str,
        options: RequestOptions,
    ) -> JoinHandle<Result<StatementResponse>> {
        let (machine, text) = (self.machine(node), text.to_owned());
        tokio::task::spawn_local(async move {
            let context = machine.context(0).unwrap();
            let asked = async move { client::ask(&context, &text, &options).await };
            machine.run(asked).await.unwrap()
        })
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
        self.links.fail_after(node, 0);
    }

    /// Crashes a node and restarts it from its disk.
    pub async fn restart(&mut self, node: usize) {
        self.nodes[node].clear();
        self.crash(node, CrashStyle::LoseAll);
        self.start(node).await;
        self.nodes[node] = self.machine(node).contexts();
    }
}
