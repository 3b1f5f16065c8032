//! A shard's thread: its engine shard, its connections, and the queue through which other shards ask it for work.
//!
//! Invariants:
//! * Everything in a [`ShardContext`] belongs to one thread; other threads reach it only through its [`ShardLink`].
//! * Jobs of other shards run as local tasks: one that waits does not hold up the next.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use cql_lite::types::timeuuid;
use futures::future::LocalBoxFuture;
use hashbrown::HashMap;
use helenus_engine::commit_log::LogPosition;
use helenus_engine::io::{Clock, Environment, SplitMix64};
use helenus_engine::shard::Shard;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::cluster;
use crate::cluster::liveness::Liveness;
use crate::cluster::raft::MetadataLog;
use crate::cluster::view::ClusterView;
use crate::coordinator::paxos::replica::PaxosState;
use crate::coordinator::replica::ReplicationState;
use crate::error::{RequestError, Result};
use crate::functions::{CallContext, UuidSource};
use crate::internode::incoming::{self, Peer};
use crate::internode::tcp::LinkOptions;
use crate::internode::transport::Transport;
use crate::node::NodeShared;
use crate::observe::metrics::ShardMetrics;
use crate::planted::PlantedBug;
use crate::schema::catalog::Catalog;
use crate::session::connection::{self, Connection};
use crate::session::prepared::StatementCache;

/// How many of a token's highest bits do not choose the shard (ScyllaDB's default, which drivers assume).
pub const IGNORE_MSB: u32 = 12;
/// Jobs that may wait for a shard.
pub const QUEUE_LENGTH: usize = 4_096;

/// A catalog with its number within this run of the node.
#[derive(Debug, Clone)]
pub struct CatalogView {
    pub generation: u64,
    pub catalog: Arc<Catalog>,
}

type Job = Box<dyn FnOnce(Rc<ShardContext>) -> LocalBoxFuture<'static, ()> + Send>;

/// What a shard's thread is sent.
pub enum Message {
    /// Work on the shard's data.
    Job(Job),
    /// A client's connection to serve.
    Connection(std::net::TcpStream, SocketAddr),
    /// A link of another node to serve; its handshake is done.
    Link(std::net::TcpStream, Peer),
    /// Stop serving, make everything durable, and end.
    Stop,
}

/// The way to a shard.
pub type ShardLink = mpsc::Sender<Message>;

/// What a shard's thread works with.
pub struct ShardContext {
    pub index: usize,
    pub node: Arc<NodeShared>,
    pub shard: Rc<Shard>,
    pub clock: Rc<dyn Clock>,
    /// The way to other nodes.
    pub transport: Rc<dyn Transport>,
    /// For everything that is to be random: ids, jitter, choices among equals.
    pub random: RefCell<SplitMix64>,
    pub statements: StatementCache,
    pub metrics: Arc<ShardMetrics>,
    pub connections: RefCell<HashMap<SocketAddr, Weak<Connection>>>,
    /// Hints, batches, and what is under way to replicas.
    pub replication: ReplicationState,
    /// Transactions.
    pub paxos: PaxosState,
    uuids: &'static dyn UuidSource,
    planted_bug: Option<PlantedBug>,
    /// Held by the schema change under way (used on the first shard).
    pub schema_turn: tokio::sync::Mutex<()>,
    metadata_log: RefCell<Option<Rc<MetadataLog>>>,
    /// Who is alive (at work on the first shard).
    pub liveness: Liveness,
    catalog: RefCell<CatalogView>,
    cluster: RefCell<Arc<ClusterView>>,
    last_timestamp: Cell<i64>,
    last_append: Cell<Option<LogPosition>>,
}

/// What a shard is handed from outside.
pub struct ShardParts {
    pub environment: Environment,
    pub transport: Rc<dyn Transport>,
    pub random_seed: u64,
    /// For the CQL functions that make UUIDs.
    pub uuids: &'static dyn UuidSource,
    /// `None`, but for simulations.
    pub planted_bug: Option<PlantedBug>,
}

impl ShardContext {
    pub fn new(
        index: usize,
        node: Arc<NodeShared>,
        shard: Rc<Shard>,
        parts: ShardParts,
        catalog: CatalogView,
        cluster: Arc<ClusterView>,
    ) -> Self {
        let metrics = node.metrics[index].clone();
        parts.transport.view_changed(&cluster);
        Self {
            index,
            node,
            shard,
            clock: parts.environment.clock,
            transport: parts.transport,
            random: RefCell::new(SplitMix64::new(parts.random_seed)),
            statements: StatementCache::default(),
            metrics,
            connections: RefCell::new(HashMap::new()),
            replication: ReplicationState::default(),
            paxos: PaxosState::default(),
            uuids: parts.uuids,
            planted_bug: parts.planted_bug,
            schema_turn: tokio::sync::Mutex::new(()),
            metadata_log: RefCell::new(None),
            liveness: Liveness::default(),
            catalog: RefCell::new(catalog),
            cluster: RefCell::new(cluster),
            last_timestamp: Cell::new(0),
            last_append: Cell::new(None),
        }
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.borrow().catalog.clone()
    }

    pub fn catalog_view(&self) -> std::cell::Ref<'_, CatalogView> {
        self.catalog.borrow()
    }

    /// The cluster as this shard sees it.
    pub fn cluster(&self) -> Arc<ClusterView> {
        self.cluster.borrow().clone()
    }

    /// The same without another owner of it.
    pub fn cluster_view(&self) -> std::cell::Ref<'_, Arc<ClusterView>> {
        self.cluster.borrow()
    }

    /// The metadata log; on the first shard of a node that has started and is not stopping.
    pub fn metadata_log(&self) -> Result<Rc<MetadataLog>> {
        let log = self.metadata_log.borrow().clone();
        log.ok_or_else(|| RequestError::Server("the metadata log is not open here".to_owned()))
    }

    pub fn begin_metadata_log(&self, log: Rc<MetadataLog>) {
        *self.metadata_log.borrow_mut() = Some(log);
    }

    /// Takes the metadata log away, so that nothing uses it any more.
    pub fn end_metadata_log(&self) -> Option<Rc<MetadataLog>> {
        self.metadata_log.borrow_mut().take()
    }

    /// Takes a new view of the cluster over.
    pub fn install_cluster(&self, view: Arc<ClusterView>) {
        let view = match self.node.board.detected() {
            Some(alive) if alive != view.alive => Arc::new(view.with_alive(alive)),
            _ => view,
        };
        self.transport.view_changed(&view);
        if !view.is_single && self.cluster.borrow().is_single {
            self.paxos.leave_alone(self.last_timestamp.get());
        }
        *self.cluster.borrow_mut() = view;
    }

    /// Takes a new catalog over.
    pub fn install(&self, view: CatalogView) {
        *self.catalog.borrow_mut() = view;
    }

    /// A timestamp for a write: microseconds, strictly increasing on this shard.
    pub fn next_timestamp(&self) -> i64 {
        self.next_timestamp_at(self.clock.now_micros())
    }

    /// As [`ShardContext::next_timestamp`] in a turn in which the clock was asked already.
    pub fn next_timestamp_at(&self, clock_micros: i64) -> i64 {
        let next = clock_micros.max(self.last_timestamp.get() + 1);
        self.last_timestamp.set(next);
        next
    }

    pub fn now_seconds(&self) -> u32 {
        self.clock.now_seconds()
    }

    /// The circumstances of a request that is carried out now.
    pub fn call_context(&self) -> CallContext {
        CallContext::with_uuids(self.clock.now_micros(), self.uuids)
    }

    /// Whether a simulation has planted this bug.
    #[inline]
    pub fn has_bug(&self, bug: PlantedBug) -> bool {
        cfg!(feature = "planted-bugs") && self.planted_bug == Some(bug)
    }

    /// A version 4 UUID.
    pub fn random_uuid(&self) -> Uuid {
        let mut random = self.random.borrow_mut();
        let bits = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }

    /// A version 1 UUID of now.
    pub fn time_uuid(&self) -> Uuid {
        let mut node = [0; 6];
        node.copy_from_slice(&self.node.host_id.as_bytes()[..6]);
        // The multicast bit: no network card has this address.
        node[0] |= 1;
        timeuuid::from_micros(self.next_timestamp(), 0, self.index as u16, node)
    }

    /// Remembers the last record of the commit log. Those of tables that are not logged come before all others.
    pub fn note_append(&self, position: LogPosition) {
        self.last_append.set(self.last_append.get().max(Some(position)));
    }

    /// The last record of the commit log, if this run of the node has appended any: an answer that tells of the present
    /// state waits until it is durable.
    pub fn last_append(&self) -> Option<LogPosition> {
        self.last_append.get()
    }

    /// Does something again and again on this shard, with a pause before each time, until the node stops.
    pub fn repeat(self: &Rc<Self>, pause: Duration, job: impl AsyncFn(&Rc<Self>) + 'static) {
        let (weak, clock) = (Rc::downgrade(self), self.clock.clone());
        tokio::task::spawn_local(async move {
            loop {
                clock.sleep(pause).await;
                let Some(context) = weak.upgrade() else { return };
                if *context.node.stopping.borrow() {
                    return;
                }
                job(&context).await;
            }
        });
    }

    /// Has a job done on a shard's thread and waits for its result.
    pub async fn run_on<T: Send + 'static>(
        self: &Rc<Self>,
        shard: usize,
        job: impl FnOnce(Rc<ShardContext>) -> LocalBoxFuture<'static, T> + Send + 'static,
    ) -> Result<T> {
        if shard == self.index {
            return Ok(job(self.clone()).await);
        }
        run_on(&self.node.links[shard], job).await
    }
}

/// Has a job done on the thread behind a link and waits for its result.
pub async fn run_on<T: Send + 'static>(
    link: &ShardLink,
    job: impl FnOnce(Rc<ShardContext>) -> LocalBoxFuture<'static, T> + Send + 'static,
) -> Result<T> {
    let stopped = || RequestError::Server("the node is shutting down".to_owned());
    let (sender, receiver) = oneshot::channel();
    let job: Job = Box::new(move |context| {
        Box::pin(async move {
            // The asker may have gone away meanwhile.
            let _ = sender.send(job(context).await);
        })
    });
    link.send(Message::Job(job)).await.map_err(|_| stopped())?;
    receiver.await.map_err(|_| stopped())
}

/// Serves the queue of a shard until it is told to stop, or nobody can tell it anything any more.
pub async fn serve(context: Rc<ShardContext>, mut queue: mpsc::Receiver<Message>) {
    while let Some(message) = queue.recv().await {
        match message {
            Message::Job(job) => {
                tokio::task::spawn_local(job(context.clone()));
            }
            Message::Connection(stream, peer) => {
                if let Err(error) = accept(&context, stream, peer) {
                    tracing::warn!(%peer, %error, "cannot serve a connection");
                    context.node.connection_ended();
                }
            }
            Message::Link(stream, peer) => {
                if let Err(error) = accept_link(&context, stream, peer) {
                    tracing::warn!(address = %peer.address, %error, "cannot serve a link");
                }
            }
            Message::Stop => break,
        }
    }
    cluster::start::stop(&context).await;
}

fn accept(context: &Rc<ShardContext>, stream: std::net::TcpStream, peer: SocketAddr) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let stream = TcpStream::from_std(stream)?;
    let context = context.clone();
    context.metrics.connections.increment();
    let counted = CountedConnection(context.clone());
    tokio::task::spawn_local(async move {
        connection::serve(context, stream, peer).await;
        drop(counted);
    });
    Ok(())
}

/// A connection that is served: counted until it ends, in whatever way.
struct CountedConnection(Rc<ShardContext>);

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.metrics.connections.decrement();
        self.0.node.connection_ended();
    }
}

fn accept_link(context: &Rc<ShardContext>, stream: std::net::TcpStream, peer: Peer) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream)?;
    let server = incoming::Server {
        handler: context.clone(),
        options: LinkOptions::from(&context.node.config),
        clock: context.clock.clone(),
        metrics: context.metrics.clone(),
        stopping: context.node.stopping.subscribe(),
    };
    tokio::task::spawn_local(incoming::serve(server, stream, peer));
    Ok(())
}
