//! A node: its identity, its shards' threads, its listeners, and the way from start to stop.
//!
//! Steps of a start: lock the data directory, read (or make) identity and catalog, bind the ports, open every shard on its
//! own thread (recovery), replay the batch logs, and only then accept clients. A stop is the reverse; every shard flushes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use cql_lite::frame::Event;
use cql_lite::types::token;
use helenus_engine::commit_log::{CommitLogOptions, SyncMode};
use helenus_engine::io::{BackgroundPool, Clock, Environment, RealClock, ThreadedDisk};
use helenus_engine::{Shard, ShardOptions, TableId};
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use uuid::Uuid;

use crate::admin::NodeAdmin;
use crate::batch_log;
use crate::cluster::view::ClusterView;
use crate::config::{CommitLogMode, Config, ConfigError};
use crate::coordinator::schema::engine_tables;
use crate::error::{RequestError, Result};
use crate::files::{self, DirectoryLock};
use crate::internode::message::PROTOCOL_VERSION;
use crate::internode::transport::Isolated;
use crate::observe::http::{self, HttpServer};
use crate::observe::metrics::ShardMetrics;
use crate::ring::member::{Member, MemberState};
use crate::ring::topology::Topology;
use crate::schema::catalog::Catalog;
use crate::schema::store;
use crate::schema::system_keyspaces::initial_catalog;
use crate::schema::virtual_tables::NodeInformation;
use crate::session::prepared::Registry;
use crate::shard_thread::{
    self, CatalogView, IGNORE_MSB, Message, QUEUE_LENGTH, ShardContext, ShardLink, ShardParts,
};

/// Tokens of a node in the ring.
const TOKENS: usize = 16;
/// Events that a slow connection may fall behind.
const EVENT_BACKLOG: usize = 1_024;
/// Bytes appended to a commit log and not yet written above which writers wait.
const UNWRITTEN_BYTES_MAX: usize = 32 << 20;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{what} {path}: {source}")]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{path}: {message}")]
    Damaged { path: PathBuf, message: String },
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error(
        "the data directory was made with {stored} shards and cannot be opened with {asked}; leave `shards` out or set it to {stored}"
    )]
    ShardCount { stored: usize, asked: usize },
    #[error("shard {shard}: {message}")]
    Shard { shard: usize, message: String },
}

/// What a node keeps of itself in `node.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    format: u32,
    host_id: Uuid,
    shards: usize,
    tokens: Vec<i64>,
}

/// What all threads of a node know.
pub struct NodeShared {
    pub config: Config,
    pub host_id: Uuid,
    pub links: Vec<ShardLink>,
    pub registry: Registry,
    pub information: NodeInformation,
    pub events: broadcast::Sender<Event>,
    pub metrics: Vec<Arc<ShardMetrics>>,
    /// True once the node is to stop.
    pub stopping: watch::Sender<bool>,
    pub shard_aware_port: u16,
    connections: AtomicUsize,
    catalog_path: PathBuf,
}

impl NodeShared {
    pub fn shard_count(&self) -> usize {
        self.links.len()
    }

    /// The shard that owns a token.
    #[inline]
    pub fn shard_of(&self, token: i64) -> usize {
        token::shard_of(token, self.links.len() as u32, IGNORE_MSB) as usize
    }

    /// Makes a catalog the one that the next start reads.
    pub async fn store_catalog(&self, catalog: &Catalog) -> Result<()> {
        let bytes = store::encode(catalog).map_err(|error| RequestError::Server(error.to_string()))?;
        let path = self.catalog_path.clone();
        let (sender, receiver) = oneshot::channel();
        // Schema changes are rare: a thread of their own keeps the shard's turn short.
        std::thread::Builder::new()
            .name("catalog".to_owned())
            .spawn(move || {
                let _ = sender.send(files::replace(&path, &bytes));
            })
            .map_err(|error| RequestError::Server(error.to_string()))?;
        match receiver.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(RequestError::Server(format!("the schema could not be stored: {error}"))),
            Err(_) => Err(RequestError::Server("the schema could not be stored".to_owned())),
        }
    }

    fn connection_begun(&self) -> bool {
        let open = self.connections.fetch_add(1, Ordering::Relaxed);
        if open >= self.config.max_connections {
            self.connections.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    pub fn connection_ended(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A running node.
pub struct Node {
    shared: Arc<NodeShared>,
    address: SocketAddr,
    shard_aware_address: SocketAddr,
    http_address: Option<SocketAddr>,
    threads: Vec<JoinHandle<Result<(), String>>>,
    http: Mutex<Option<HttpServer>>,
    _lock: DirectoryLock,
}

impl Node {
    /// Starts a node and returns when it serves clients.
    pub fn start(config: Config) -> Result<Self, StartError> {
        config.validate()?;
        let data_dir = config.data_dir.clone();
        let file_error =
            |what: &'static str, path: PathBuf| move |source| StartError::File { what, path, source };
        files::create_directory(&data_dir)
            .map_err(file_error("cannot make the data directory", data_dir.clone()))?;
        let lock = DirectoryLock::acquire(&data_dir).map_err(file_error("cannot lock", data_dir.clone()))?;
        let identity = identity(&config)?;
        let catalog_path = data_dir.join("catalog");
        let stored =
            files::read_optional(&catalog_path).map_err(file_error("cannot read", catalog_path.clone()))?;
        let catalog = match stored {
            None => initial_catalog(Uuid::new_v4()),
            Some(bytes) => store::decode(&bytes).map_err(|error| StartError::Damaged {
                path: catalog_path.clone(),
                message: error.to_string(),
            })?,
        };
        let listener = listen(config.listen)?;
        let address = local_address(&listener, config.listen)?;
        let shard_aware = SocketAddr::new(config.listen.ip(), shard_aware_port(&config));
        let shard_aware_listener = listen(shard_aware)?;
        let shard_aware_address = local_address(&shard_aware_listener, shard_aware)?;
        let http_listener = if config.http_enabled {
            Some(listen(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), config.http_port))?)
        } else {
            None
        };
        let (links, queues): (Vec<_>, Vec<_>) =
            (0..identity.shards).map(|_| mpsc::channel(QUEUE_LENGTH)).unzip();
        let information = information(&config, &identity, address);
        let shared = Arc::new(NodeShared {
            host_id: identity.host_id,
            links,
            registry: Registry::default(),
            information,
            events: broadcast::channel(EVENT_BACKLOG).0,
            metrics: (0..identity.shards).map(|_| Arc::new(ShardMetrics::default())).collect(),
            stopping: watch::channel(false).0,
            shard_aware_port: shard_aware_address.port(),
            connections: AtomicUsize::new(0),
            catalog_path,
            config,
        });
        let view = CatalogView { generation: 1, catalog: Arc::new(catalog) };
        let threads = start_shards(&shared, queues, &view)?;
        let mut node = Self {
            shared: shared.clone(),
            address,
            shard_aware_address,
            http_address: None,
            threads,
            http: Mutex::new(None),
            _lock: lock,
        };
        node.finish_start(listener, shard_aware_listener, http_listener)?;
        Ok(node)
    }

    fn finish_start(
        &mut self,
        listener: TcpListener,
        shard_aware_listener: TcpListener,
        http_listener: Option<TcpListener>,
    ) -> Result<(), StartError> {
        for shard in 0..self.shared.shard_count() {
            let replayed =
                self.wait_for(shard, |context| Box::pin(async move { batch_log::replay(&context).await }));
            match replayed {
                Ok(0) => {}
                Ok(count) => tracing::info!(shard, count, "batches replayed"),
                Err(error) => return Err(StartError::Shard { shard, message: error.to_string() }),
            }
        }
        self.accept_on(listener, None)?;
        let shards = self.shared.shard_count();
        self.accept_on(shard_aware_listener, Some(shards))?;
        if let Some(listener) = http_listener {
            let address = local_address(&listener, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
            let server = http::serve(listener, Arc::new(NodeAdmin::new(self.shared.clone())))
                .map_err(StartError::Thread)?;
            self.http_address = Some(address);
            if let Ok(mut http) = self.http.lock() {
                *http = Some(server);
            }
        }
        Ok(())
    }

    /// Runs a job on a shard and blocks until it is done.
    fn wait_for<T: Send + 'static>(
        &self,
        shard: usize,
        job: impl FnOnce(Rc<ShardContext>) -> futures::future::LocalBoxFuture<'static, Result<T>> + Send + 'static,
    ) -> Result<T> {
        futures::executor::block_on(shard_thread::run_on(&self.shared.links[shard], job))?
    }

    /// Accepts clients on the first shard's thread and hands them to the shards: in turn, or (`by_source_port`) to the one
    /// that the client has chosen.
    fn accept_on(&self, listener: TcpListener, by_source_port: Option<usize>) -> Result<(), StartError> {
        let address = self.address;
        self.wait_for(0, move |context| {
            Box::pin(async move {
                let listener = tokio::net::TcpListener::from_std(listener)
                    .map_err(|error| RequestError::Server(error.to_string()))?;
                tokio::task::spawn_local(accept_clients(context, listener, by_source_port));
                Ok(())
            })
        })
        .map_err(|error| StartError::Listen { address, source: io::Error::other(error.to_string()) })
    }

    /// Where CQL clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where a client's source port chooses the shard.
    pub fn shard_aware_address(&self) -> SocketAddr {
        self.shard_aware_address
    }

    /// Where metrics, health and administration are.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    pub fn shared(&self) -> &Arc<NodeShared> {
        &self.shared
    }

    /// Stops serving, makes everything durable, and returns when all threads have ended.
    pub fn shutdown(mut self) -> Result<(), String> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), String> {
        self.shared.stopping.send_replace(true);
        if let Ok(mut http) = self.http.lock()
            && let Some(server) = http.take()
        {
            server.stop();
        }
        for link in &self.shared.links {
            // A shard whose queue is closed has ended already.
            let _ = futures::executor::block_on(link.send(Message::Stop));
        }
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err("a shard's thread has panicked".to_owned()));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.threads.is_empty()
            && let Err(error) = self.stop()
        {
            tracing::error!(%error, "the node did not stop cleanly");
        }
    }
}

fn identity(config: &Config) -> Result<Identity, StartError> {
    let path = config.data_dir.join("node.json");
    let file_error = |what: &'static str| {
        let path = path.clone();
        move |source| StartError::File { what, path, source }
    };
    let damaged =
        |error: serde_json::Error| StartError::Damaged { path: path.clone(), message: error.to_string() };
    if let Some(bytes) = files::read_optional(&path).map_err(file_error("cannot read"))? {
        let identity: Identity = serde_json::from_slice(&bytes).map_err(damaged)?;
        return match config.shards {
            Some(asked) if asked != identity.shards => {
                Err(StartError::ShardCount { stored: identity.shards, asked })
            }
            _ => Ok(identity),
        };
    }
    let shards = config
        .shards
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    let host_id = Uuid::new_v4();
    let tokens = (0..TOKENS as u64)
        .map(|index| token::token(&[host_id.as_bytes().as_slice(), &index.to_be_bytes()].concat()))
        .collect();
    let identity = Identity { format: 1, host_id, shards, tokens };
    let bytes = serde_json::to_vec_pretty(&identity).map_err(damaged)?;
    files::replace(&path, &bytes).map_err(file_error("cannot write"))?;
    Ok(identity)
}

fn information(config: &Config, identity: &Identity, address: SocketAddr) -> NodeInformation {
    // Clients connect to what the system tables say: an address that stands for all of them would lead nowhere.
    let reachable =
        if address.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { address.ip() };
    let clock = RealClock::new();
    let settings = toml::Table::try_from(config)
        .map(|table| {
            let text = |value: toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            table.into_iter().map(|(key, value)| (key, text(value))).collect()
        })
        .unwrap_or_default();
    NodeInformation {
        cluster_name: config.cluster_name.clone(),
        data_center: config.data_center.clone(),
        rack: config.rack.clone(),
        host_id: identity.host_id,
        listen_address: reachable,
        broadcast_address: reachable,
        rpc_address: reachable,
        storage_port: 7000,
        native_port: address.port(),
        tokens: identity.tokens.clone(),
        generation: clock.now_seconds() as i32,
        settings,
        peers: Vec::new(),
        live: Arc::new(()),
    }
}

fn shard_aware_port(config: &Config) -> u16 {
    config.shard_aware_port.unwrap_or_else(|| match config.listen.port() {
        0 => 0,
        port => port.checked_add(10_000).unwrap_or(0),
    })
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let bind = || -> io::Result<TcpListener> {
        let socket =
            socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(1_024)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    bind().map_err(|source| StartError::Listen { address, source })
}

fn local_address(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen { address, source })
}

fn start_shards(
    shared: &Arc<NodeShared>,
    queues: Vec<mpsc::Receiver<Message>>,
    view: &CatalogView,
) -> Result<Vec<JoinHandle<Result<(), String>>>, StartError> {
    let mut threads = Vec::with_capacity(queues.len());
    let mut ready = Vec::with_capacity(queues.len());
    for (index, queue) in queues.into_iter().enumerate() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (shared, view) = (shared.clone(), view.clone());
        let thread = std::thread::Builder::new()
            .name(format!("shard-{index}"))
            .spawn(move || run_shard(index, shared, queue, view, &sender))
            .map_err(StartError::Thread)?;
        threads.push(thread);
        ready.push(receiver);
    }
    for (shard, receiver) in ready.into_iter().enumerate() {
        match receiver.recv() {
            Ok(Ok(())) => {}
            Ok(Err(message)) => return Err(StartError::Shard { shard, message }),
            Err(_) => return Err(StartError::Shard { shard, message: "its thread has ended".to_owned() }),
        }
    }
    Ok(threads)
}

/// The whole life of a shard's thread.
fn run_shard(
    index: usize,
    shared: Arc<NodeShared>,
    queue: mpsc::Receiver<Message>,
    view: CatalogView,
    ready: &std::sync::mpsc::Sender<Result<(), String>>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // One look at the sockets for each round of tasks, so that a round's requests share it.
        .event_interval(31)
        .build()
        .map_err(|error| error.to_string())?;
    let tasks = tokio::task::LocalSet::new();
    let outcome = tasks.block_on(&runtime, async {
        let context = match open_shard(index, shared, view).await {
            Ok(context) => {
                // The starter waits for this; when it is gone, so is the reason to run.
                let _ = ready.send(Ok(()));
                context
            }
            Err(message) => {
                let _ = ready.send(Err(message.clone()));
                return Err(message);
            }
        };
        shard_thread::serve(context.clone(), queue).await;
        context.shard.close().await.map_err(|error| error.to_string())
    });
    drop(tasks);
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn open_shard(
    index: usize,
    shared: Arc<NodeShared>,
    view: CatalogView,
) -> Result<Rc<ShardContext>, String> {
    let config = &shared.config;
    let share = shared.shard_count() as u64;
    let clock: Rc<dyn Clock> = Rc::new(RealClock::new());
    let environment = Environment {
        disk: Arc::new(ThreadedDisk::start(&format!("disk-{index}")).map_err(|error| error.to_string())?),
        background: Rc::new(BackgroundPool::start(1).map_err(|error| error.to_string())?),
        clock: clock.clone(),
    };
    let mut options = ShardOptions::new(config.data_dir.join(format!("shard-{index}")));
    options.memtable_bytes_max = (config.memtable_bytes / share) as usize;
    options.commit_log_bytes_max = config.commit_log_total_bytes / share;
    options.block_cache_bytes = (config.block_cache_bytes / share) as usize;
    options.compaction_bytes_per_second =
        (config.compaction_bytes_per_second > 0).then_some(config.compaction_bytes_per_second / share);
    options.commit_log = CommitLogOptions {
        sync: match config.commit_log {
            CommitLogMode::Group => SyncMode::Group,
            CommitLogMode::Batch => SyncMode::Batch,
            CommitLogMode::Periodic => {
                SyncMode::Periodic { period: Duration::from_millis(config.commit_log_sync_period_ms) }
            }
        },
        segment_bytes: config.commit_log_segment_bytes,
        unwritten_bytes_max: UNWRITTEN_BYTES_MAX,
        ..CommitLogOptions::default()
    };
    let shard = Shard::open(environment, options).await.map_err(|error| error.to_string())?;
    let mut tables = engine_tables(&view.catalog).map_err(|error| error.to_string())?;
    tables.push((batch_log::TABLE, helenus_engine::TableOptions::default()));
    let known: BTreeSet<TableId> = tables.iter().map(|(id, _)| *id).collect();
    shard.create_tables(&tables).await.map_err(|error| error.to_string())?;
    for id in shard.table_ids() {
        if !known.contains(&id) {
            tracing::info!(shard = index, table = %id, "a table that the catalog does not name is removed");
            shard.drop_table(id).await.map_err(|error| error.to_string())?;
        }
    }
    let cluster = Arc::new(alone(&shared, &view.catalog));
    let parts =
        ShardParts { clock, transport: Rc::new(Isolated), random_seed: Uuid::new_v4().as_u128() as u64 };
    Ok(Rc::new(ShardContext::new(index, shared.clone(), shard, parts, view, cluster)))
}

/// The cluster of a node that is alone.
fn alone(shared: &NodeShared, catalog: &Catalog) -> ClusterView {
    let information = &shared.information;
    let member = Member {
        host_id: shared.host_id,
        internode_address: SocketAddr::new(information.broadcast_address, information.storage_port),
        native_address: SocketAddr::new(information.rpc_address, information.native_port),
        shard_aware_port: shared.shard_aware_port,
        shard_count: shared.shard_count() as u16,
        data_center: information.data_center.clone(),
        rack: information.rack.clone(),
        tokens: information.tokens.clone(),
        state: MemberState::Normal,
        release_version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol_version: PROTOCOL_VERSION,
    };
    let topology = Topology {
        version: 1,
        epoch: 1,
        members: BTreeMap::from([(shared.host_id, Arc::new(member))]),
        removed: BTreeSet::new(),
    };
    ClusterView::new(Arc::new(topology), Arc::new(BTreeSet::from([shared.host_id])), catalog)
}

async fn accept_clients(
    context: Rc<ShardContext>,
    listener: tokio::net::TcpListener,
    by_source_port: Option<usize>,
) {
    let mut next = 0;
    let mut stopping = context.node.stopping.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Out of file descriptors, most likely: others must end first.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        if !context.node.connection_begun() {
            tracing::warn!(%peer, "refused: too many connections");
            continue;
        }
        let shard = if let Some(shards) = by_source_port {
            usize::from(peer.port()) % shards
        } else {
            next = (next + 1) % context.node.shard_count();
            next
        };
        let handed_over = match stream.into_std() {
            Ok(stream) => context.node.links[shard].send(Message::Connection(stream, peer)).await.is_ok(),
            Err(_) => false,
        };
        if !handed_over {
            context.node.connection_ended();
        }
    }
}
