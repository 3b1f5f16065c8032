//! A node: its threads, its listeners, its start and its stop.
//!
//! Steps of a start: lock the data directory, read (or create) identity and catalog, bind the ports, open every shard
//! on its own thread (recovery), replay the batch logs, and only then accept clients. A stop is the reverse; every
//! shard flushes. [`assembly`] puts a node together independently of its threads, disk and network.
#![allow(
    clippy::disallowed_methods,
    reason = "the start of a node: the real parts are made here that all others are handed"
)]

pub mod addresses;
mod admin_ports;
pub mod assembly;
mod checks;
pub mod dispatch;
pub mod error;
pub mod identity;
mod layers;
mod listeners;
pub mod offline;
pub mod secure;
pub mod serve;

use crate::cluster::liveness::LivenessMonitor;
use crate::cluster::own_files;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::future::{Either, Fuse, FutureExt, select};
use helenus_config::Config;
use helenus_engine::io::{
    BackgroundPool, Clock, Environment, PartThreads, ReadPool, RealClock, SystemRandom, ThreadedDisk,
};
use helenus_internode::endpoint::Endpoint;
use helenus_internode::handshake::Local;
use helenus_internode::tcp::TcpTransport;
use helenus_internode::transport::{Isolated, Transport};
use helenus_lua::LUA;
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::CallContext;
use helenus_query::functions::user::{NoUserFunctions, UserFunctionRuntime};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use self::addresses::Addresses;
use self::admin_ports::{AdminPorts, AdminServers};
use self::assembly::{Assembled, NodeParts};
use self::checks::machine::Machine;
use self::identity::Identity;
use self::listeners::{BoundPort, accept_clients, listen, local_address, shard_aware_port};
use self::secure::OwnCertificates;
use crate::node::error::StartError;
use crate::session::encryption::{self, Certificates, OpenCertificates};
use crate::session::request_logs::RequestLogs;
use helenus_execution::shard::context::{
    self, Departure, FirstState, Message, NodeShared, ShardContext, ShardParts,
};
use helenus_execution::shard::status_table::ServingState;
use helenus_node_files::at_rest::{AtRest, OpenAtRest};
use helenus_node_files::small_files::NodeFiles;
use helenus_node_files::{self as plain_files, DirectoryLock};

/// Threads that read blocks from the disk for a shard: as many reads are on their way to the device at once.
const READ_THREADS: usize = 16;

/// A running node.
pub struct Node {
    shared: Arc<NodeShared>,
    address: SocketAddr,
    shard_aware_address: SocketAddr,
    internode_address: Option<SocketAddr>,
    threads: Vec<JoinHandle<Result<(), String>>>,
    http_address: Option<SocketAddr>,
    administration: Mutex<Option<AdminServers>>,
    _lock: DirectoryLock,
}

impl Node {
    /// Starts a node and returns when it serves clients. Administration is served as soon as the shards are open, so
    /// that operators can watch the progress of a join.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let (_nobody, never) = oneshot::channel();
        Self::start_unless(config, None, never)
    }

    /// Like [`Node::start`], but returns [`StartError::Interrupted`] when `interrupted` fires first: waiting for a
    /// cluster and streaming data may take hours. The data that the node has by then is flushed, and a later start
    /// continues from there. `own`: certificates that the node makes for itself.
    pub fn start_unless(
        mut config: Config,
        own: Option<&OwnCertificates>,
        interrupted: oneshot::Receiver<()>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        let data_dir = config.data_dir.clone();
        let file_error =
            |what: &'static str, path: PathBuf| move |source| StartError::File { what, path, source };
        plain_files::create_directory(&data_dir)
            .map_err(file_error("cannot make the data directory", data_dir.clone()))?;
        let lock = DirectoryLock::acquire(&data_dir).map_err(file_error("cannot lock", data_dir.clone()))?;
        let machine = Machine::read(&data_dir, i64::from(RealClock::new().now_seconds()));
        for warning in checks::warnings(&machine, &config) {
            tracing::warn!("{warning}");
        }
        let disk = ReadPool::start(1).and_then(|reads| ThreadedDisk::start("disk-node", reads));
        let at_rest = AtRest::open(&config)?;
        refuse_plain_files(&config, &at_rest)?;
        let disk = at_rest.disk(disk.map_err(StartError::Thread)?);
        let files = futures::executor::block_on(NodeFiles::open(disk, data_dir))?;
        let identity = futures::executor::block_on(Identity::load_or_create(&files, config.shards, || {
            let shards = config
                .shards
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
            Identity::with_tokens(Uuid::new_v4(), shards, config.num_tokens)
        }))?;
        if let Some(own) = own {
            own.make(&mut config, identity.host_id)?;
        }
        let certificates = Certificates::open(&config, i64::from(RealClock::new().now_seconds()))?;
        // Bound now, so that no other process takes them. Clients are refused until the node serves.
        let client_port = BoundPort::bind(config.listen)?;
        let address = client_port.address;
        let shard_aware_port =
            BoundPort::bind(SocketAddr::new(config.listen.ip(), shard_aware_port(&config)))?;
        let shard_aware_address = shard_aware_port.address;
        let admin_ports = AdminPorts::bind(&config)?;
        let internode = addresses::resolve_internode(&config)?;
        let internode_listener = internode.map(listen).transpose()?;
        let internode_address = match (&internode_listener, internode) {
            (Some(listener), Some(asked)) => Some(local_address(listener, asked)?),
            _ => None,
        };
        config.internode = internode_address.map(Endpoint::from);
        let addresses = Addresses::of_bound(&config, address, shard_aware_address.port(), internode_address)?;
        let assembled = futures::executor::block_on(assembly::assemble(NodeParts {
            config,
            identity,
            addresses,
            files,
            started_seconds: RealClock::new().now_seconds(),
            catalog_version: Uuid::new_v4(),
        }))?;
        let shared = assembled.shared.clone();
        if at_rest.encrypts_by_table() {
            at_rest.note_catalog(&assembled.state.catalog.catalog);
            refuse_plain_files(&shared.config, &at_rest)?;
        }
        RequestLogs::of(&shared).start(&shared.config)?;
        shared.layers.get::<OpenCertificates>().set(certificates);
        shared.layers.get::<OpenAtRest>().set(at_rest);
        let local = Arc::new(Local {
            cluster_name: shared.config.cluster_name.clone(),
            host_id: shared.host_id,
            run_id: Uuid::new_v4().as_u64_pair().0,
            shard_count: shared.shard_count() as u16,
        });
        let threads = start_shards(assembled, &local)?;
        let mut node = Self {
            shared,
            address,
            shard_aware_address,
            internode_address,
            threads,
            http_address: None,
            administration: Mutex::new(None),
            _lock: lock,
        };
        node.serve_administration(admin_ports)?;
        node.watch_certificates()?;
        if let Some(listener) = internode_listener {
            node.accept_links(listener, local)?;
        }
        match node.finish_start(client_port, shard_aware_port, interrupted.fuse()) {
            Err(StartError::Interrupted) => {
                node.stop().map_err(StartError::NotStopped)?;
                return Err(StartError::Interrupted);
            }
            finished => finished?,
        }
        Ok(node)
    }

    fn serve_administration(&mut self, ports: AdminPorts) -> Result<(), StartError> {
        let servers = ports.serve(&self.shared)?;
        self.http_address = servers.http_address();
        if let Ok(mut administration) = self.administration.lock() {
            *administration = Some(servers);
        }
        Ok(())
    }

    fn watch_certificates(&self) -> Result<(), StartError> {
        let watching = self.wait_for(0, |context| {
            encryption::watch(&context);
            Box::pin(std::future::ready(Ok(())))
        });
        watching.map_err(|error| StartError::Shard { shard: 0, message: error.to_string() })
    }

    fn finish_start(
        &self,
        client_port: BoundPort,
        shard_aware_port: BoundPort,
        mut interrupted: Fuse<oneshot::Receiver<()>>,
    ) -> Result<(), StartError> {
        for shard in 0..self.shared.shard_count() {
            let begun = context::run_on(&self.shared.links[shard], |context| {
                Box::pin(async move { assembly::begin(&context).await })
            });
            let begun = match futures::executor::block_on(select(pin!(begun), &mut interrupted)) {
                Either::Left((begun, _)) => begun,
                Either::Right((Ok(()), _)) => return Err(StartError::Interrupted),
                // The sender was dropped, so nothing can interrupt the start any more.
                Either::Right((Err(_), begun)) => futures::executor::block_on(begun),
            };
            begun.and_then(|begun| begun).map_err(|error| match self.shared.status.state() {
                ServingState::Removed => StartError::Removed { host_id: self.shared.host_id },
                _ => StartError::Shard { shard, message: error.to_string() },
            })?;
        }
        self.accept_on(client_port.listen()?, None)?;
        let shards = self.shared.shard_count();
        self.accept_on(shard_aware_port.listen()?, Some(shards))?;
        self.shared.status.set_state(ServingState::Serving);
        self.wait_for(0, |context| {
            LivenessMonitor::of(&context).wake();
            Box::pin(std::future::ready(Ok(())))
        })
        .map_err(|error| StartError::Shard { shard: 0, message: error.to_string() })
    }

    /// Runs a job on a shard and blocks until it is done.
    fn wait_for<T: Send + 'static>(
        &self,
        shard: usize,
        job: impl FnOnce(Rc<ShardContext>) -> futures::future::LocalBoxFuture<'static, Result<T>> + Send + 'static,
    ) -> Result<T> {
        futures::executor::block_on(context::run_on(&self.shared.links[shard], job))?
    }

    /// Accepts clients on the first shard's thread and distributes them to the shards: round robin, or
    /// (`by_source_port`) to the shard that the client has chosen.
    fn accept_on(&self, listener: TcpListener, by_source_port: Option<usize>) -> Result<(), StartError> {
        let address = self.address;
        let port_address = local_address(&listener, address)?;
        self.wait_for(0, move |context| {
            Box::pin(async move {
                let listener = tokio::net::TcpListener::from_std(listener)
                    .map_err(|error| RequestError::Server(error.to_string()))?;
                tokio::task::spawn_local(accept_clients(context, listener, port_address, by_source_port));
                Ok(())
            })
        })
        .map_err(|error| StartError::Listen { address, source: io::Error::other(error.to_string()) })
    }

    /// Accepts links of other nodes on the first shard's thread.
    fn accept_links(&self, listener: TcpListener, local: Arc<Local>) -> Result<(), StartError> {
        let address = self.internode_address.unwrap_or(self.address);
        self.wait_for(0, move |context| {
            Box::pin(async move { listeners::accept_links(&context, listener, local) })
        })
        .map_err(|error| StartError::Listen { address, source: io::Error::other(error.to_string()) })
    }

    /// The address for CQL clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address at which a client's source port chooses the shard.
    pub fn shard_aware_address(&self) -> SocketAddr {
        self.shard_aware_address
    }

    /// The address for other nodes; `None`: this node has no neighbours.
    pub fn internode_address(&self) -> Option<SocketAddr> {
        self.internode_address
    }

    /// The address of metrics, health and administration, if a port is served.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    pub fn shared(&self) -> &Arc<NodeShared> {
        &self.shared
    }

    /// Resolves when this node has left its cluster or was removed from it. Then the node must be shut down.
    pub async fn removed(&self) {
        let mut departure = self.shared.departure.subscribe();
        // The sender lives as long as the node.
        let _ = departure.wait_for(|departure| *departure == Departure::Gone).await;
    }

    /// Resolves when the process must end at once: the disk has failed, and `disk_failure_policy` or `commit_failure_policy` says so, or the
    /// node would write files plain that must be encrypted.
    pub async fn failed(&self) {
        let mut fatal = self.shared.fatal.subscribe();
        // The sender lives as long as the node.
        let _ = fatal.wait_for(Option::is_some).await;
    }

    /// Stops serving, makes everything durable, and returns when all threads have ended.
    pub fn shutdown(mut self) -> Result<(), String> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), String> {
        self.shared.stopping.send_replace(true);
        if let Ok(mut administration) = self.administration.lock()
            && let Some(servers) = administration.take()
        {
            servers.stop();
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
        RequestLogs::of(&self.shared).stop();
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

fn start_shards(
    assembled: Assembled,
    local: &Arc<Local>,
) -> Result<Vec<JoinHandle<Result<(), String>>>, StartError> {
    let Assembled { shared, queues, state } = assembled;
    let mut threads = Vec::with_capacity(queues.len());
    let mut ready = Vec::with_capacity(queues.len());
    // Deadlines go from shard to shard, so all have the same monotonic time.
    let clock = RealClock::new();
    let part_threads = part_threads(&shared).map_err(StartError::Thread)?;
    for (index, queue) in queues.into_iter().enumerate() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (shared, state) = (shared.clone(), state.clone());
        let (local, clock, part_threads) = (local.clone(), clock.clone(), part_threads.clone());
        let parts = move |shared: &NodeShared| real_parts(index, shared, local, clock, part_threads);
        let thread = std::thread::Builder::new()
            .name(format!("shard-{index}"))
            .spawn(move || run_shard(index, shared, queue, state, parts, &sender))
            .map_err(StartError::Thread)?;
        threads.push(thread);
        ready.push(receiver);
    }
    for (shard, receiver) in ready.into_iter().enumerate() {
        match receiver.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(StartError::Shard { shard, message: "its thread has ended".to_owned() }),
        }
    }
    Ok(threads)
}

/// Runs a shard's thread from its start to its end.
fn run_shard(
    index: usize,
    shared: Arc<NodeShared>,
    queue: mpsc::Receiver<Message>,
    state: FirstState,
    parts: impl FnOnce(&NodeShared) -> io::Result<ShardParts>,
    ready: &std::sync::mpsc::Sender<Result<(), StartError>>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // One poll of the sockets for each round of tasks, so that the requests of a round share it.
        .event_interval(31)
        .build()
        .map_err(|error| error.to_string())?;
    let tasks = tokio::task::LocalSet::new();
    let outcome = tasks.block_on(&runtime, async {
        let opened = match parts(&shared) {
            Ok(parts) => assembly::open_shard(index, shared, parts, state).await,
            Err(error) => Err(StartError::Thread(error)),
        };
        let context = match opened {
            Ok(context) => {
                // The starting thread waits for this. If it has ended, so has the reason to run.
                let _ = ready.send(Ok(()));
                context
            }
            Err(error) => {
                let message = error.to_string();
                let _ = ready.send(Err(error));
                return Err(message);
            }
        };
        serve::serve(context.clone(), queue).await;
        context.shard.close().await.map_err(|error| error.to_string())
    });
    drop(tasks);
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// Refuses files that are not encrypted, where the settings want that.
fn refuse_plain_files(config: &Config, at_rest: &AtRest) -> Result<(), StartError> {
    if !at_rest.refuses_plain_files() {
        return Ok(());
    }
    let plain = own_files::plain(config, at_rest)?;
    if plain.is_empty() { Ok(()) } else { Err(StartError::PlainFiles(own_files::named(&plain))) }
}

/// What checks and calls the functions of users.
pub(crate) fn user_functions(config: &Config) -> &'static dyn UserFunctionRuntime {
    if config.user_defined_functions_enabled { &LUA } else { &NoUserFunctions }
}

/// The threads that share large compactions of all shards. `None`: each has one.
fn part_threads(shared: &NodeShared) -> io::Result<Option<PartThreads>> {
    let threads = shared.config.compaction_threads.unwrap_or(shared.shard_count());
    let at_rest = shared.layers.get::<OpenAtRest>().get();
    (threads > 1)
        .then(|| PartThreads::start_on(threads, shared.shard_count(), &at_rest.disk_of_jobs()))
        .transpose()
}

/// The real disk, threads, network and randomness of the machine.
fn real_parts(
    index: usize,
    shared: &NodeShared,
    local: Arc<Local>,
    clock: RealClock,
    part_threads: Option<PartThreads>,
) -> io::Result<ShardParts> {
    let clock: Rc<dyn Clock> = Rc::new(clock);
    let at_rest = shared.layers.get::<OpenAtRest>().get();
    let environment = Environment {
        disk: at_rest.disk(ThreadedDisk::start(&format!("disk-{index}"), ReadPool::start(READ_THREADS)?)?),
        background: Rc::new(BackgroundPool::start_with(1, &at_rest.disk_of_jobs(), part_threads)?),
        clock: clock.clone(),
        random: Rc::new(SystemRandom),
    };
    let random_seed = || Uuid::new_v4().as_u128() as u64;
    let transport: Rc<dyn Transport> = if shared.config.internode.is_some() {
        let options = shared.config.link_options();
        Rc::new(TcpTransport::new(
            local,
            options,
            shared.layers.get::<OpenCertificates>().get().of_links(&shared.config),
            clock,
            random_seed(),
            shared.metrics[index].internode.clone(),
        ))
    } else {
        Rc::new(Isolated)
    };
    Ok(ShardParts {
        environment,
        transport,
        random_seed: random_seed(),
        uuids: CallContext::process_uuids(),
        user_functions: user_functions(&shared.config),
        planted_bug: None,
    })
}
