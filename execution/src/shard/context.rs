//! What a shard's thread works with: its engine shard, what all shards of the node share, and the senders of the queues through which
//! shards ask each other for work.
//!
//! Invariant: everything in a [`ShardContext`] belongs to one thread; other threads reach it only through its [`ShardSender`].

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Event;
use cql_lite::types::{timeuuid, token};
use futures::future::LocalBoxFuture;
use helenus_config::Config;
use helenus_engine::TableId;
use helenus_engine::commit_log::LogPosition;
use helenus_engine::io::{Clock, DiskReserve, Environment, SplitMix64};
use helenus_engine::shard::{CommonResources, Shard};
use helenus_guardrails::NodeGuardrails;
use helenus_internode::incoming::Peer;
use helenus_internode::transport::Transport;
use helenus_observe::metrics::ShardMetrics;
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::user::UserFunctionRuntime;
use helenus_query::functions::{CallContext, UuidSource};
use helenus_query::plan::select::SelectPlan;
use helenus_query::schema::catalog::{Catalog, CatalogView};
use helenus_query::schema::virtual_tables::NodeInformation;
use helenus_query::statement::{Registry, StatementCache};
use helenus_ring::denylist::Denylist;
use helenus_ring::view::ClusterView;
use helenus_roles::password_policy::PasswordRules;
use helenus_roles::{Roles, RolesStep};
use helenus_tls::stream::DetachedStream;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use uuid::Uuid;

use super::disk_status::DiskTable;
use super::file_handling::FileHandling;
use super::last_snapshot::LastSnapshot;
use super::layers::{NodeLayers, ShardLayers};
use super::runtime_settings::RuntimeSettings;
use super::status_table::{ServingState, StatusTable};
use crate::planted::PlantedBug;
use helenus_fair_shares::{RoleShare, ShardShares};
use helenus_node_files::small_files::NodeFiles;

pub use helenus_ring::change_feed::IGNORE_MSB;
/// Capacity of a shard's queue, in messages.
pub const QUEUE_LENGTH: usize = 4_096;

type Job = Box<dyn FnOnce(Rc<ShardContext>) -> LocalBoxFuture<'static, ()> + Send>;

/// A message to a shard's thread.
pub enum Message {
    /// Work on the shard's data.
    Job(Job),
    /// A connection of a client to serve, with the share that makes roles take turns until the client has logged in.
    Connection(std::net::TcpStream, SocketAddr, Option<Arc<RoleShare>>),
    /// A link of another node to serve; its handshake is complete.
    Link(DetachedStream, Peer),
    /// Stop serving, make everything durable, and end the thread.
    Stop,
}

/// The sending end of a shard's queue.
pub type ShardSender = mpsc::Sender<Message>;

/// The progress of the end of a node's membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The node is a member, or is joining.
    Staying,
    /// The node has learned that it is not a member any more.
    Going,
    /// The removal is recorded on disk as well: the process should end.
    Gone,
}

/// The state that all threads of a node share.
pub struct NodeShared {
    pub config: Config,
    /// The limits for clients with which the node has started.
    pub first_guardrails: NodeGuardrails,
    /// What the node does with the files of all tables.
    pub file_handling: FileHandling,
    /// What new passwords must be like.
    pub password_rules: PasswordRules,
    pub host_id: Uuid,
    pub links: Vec<ShardSender>,
    pub registry: Registry,
    pub information: NodeInformation,
    pub events: broadcast::Sender<Event>,
    pub metrics: Vec<Arc<ShardMetrics>>,
    /// True once the node is stopping.
    pub stopping: watch::Sender<bool>,
    /// Whether this node is (or becomes) a member, or should end.
    pub departure: watch::Sender<Departure>,
    /// Liveness and status of the members.
    pub status: StatusTable,
    pub shard_aware_port: u16,
    /// State that upper layers keep with this node.
    pub layers: NodeLayers,
    /// The version of the topology that every shard has installed: how far the metadata log is applied.
    pub applied: watch::Sender<u64>,
    /// The node's own small files.
    pub files: NodeFiles,
    /// Whether there was a catalog when the node was started. A node without one is new.
    pub has_catalog: bool,
    /// The engine tables in which the node keeps rows of its own.
    pub private_tables: BTreeSet<TableId>,
    pub last_snapshot: LastSnapshot,
    /// How full the disks of the nodes are.
    pub disks: DiskTable,
    /// The room on this node's disk.
    pub reserve: Arc<DiskReserve>,
    /// What the shards use together.
    pub common: CommonResources,
    /// What an operator can change while the node runs.
    pub settings: RuntimeSettings,
    /// Why the process must end at once (`cluster/failure.rs`, `cluster/applying.rs`).
    pub fatal: watch::Sender<Option<String>>,
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

    /// Records that this node is not a member any more. From now on the node serves nothing. `learned_from` is for
    /// the log. The rest is done by the task that watches `departure`. A second call has no effect.
    pub fn learn_removed(&self, learned_from: &dyn std::fmt::Display) {
        let is_first = self.departure.send_if_modified(|departure| {
            let is_first = *departure == Departure::Staying;
            if is_first {
                *departure = Departure::Going;
            }
            is_first
        });
        if is_first {
            tracing::warn!(
                host_id = %self.host_id, %learned_from,
                "this node is not a member of the cluster any more; it stops serving and ends"
            );
            self.status.set_state(ServingState::Removed);
        }
    }
}

/// The state of a shard's thread.
pub struct ShardContext {
    pub index: usize,
    pub node: Arc<NodeShared>,
    pub shard: Rc<Shard>,
    pub clock: Rc<dyn Clock>,
    /// Sends requests to other nodes.
    pub transport: Rc<dyn Transport>,
    /// Source of all randomness: ids, jitter, choices among equals.
    pub random: RefCell<SplitMix64>,
    pub statements: StatementCache,
    pub metrics: Arc<ShardMetrics>,
    /// Shares the thread among the roles of clients.
    pub shares: Rc<ShardShares>,
    /// State that upper layers keep with this shard.
    pub layers: ShardLayers,
    view_changes: fn(&ShardContext, &ClusterView),
    roles_change: fn(&ShardContext, &Roles, RolesStep),
    uuids: &'static dyn UuidSource,
    user_functions: &'static dyn UserFunctionRuntime,
    planted_bug: Option<PlantedBug>,
    catalog: RefCell<CatalogView>,
    cluster: RefCell<Arc<ClusterView>>,
    roles: RefCell<Arc<Roles>>,
    guardrails: RefCell<Arc<NodeGuardrails>>,
    denylist: RefCell<Arc<Denylist>>,
    /// Whether partitions are denied.
    denies: Cell<bool>,
    last_timestamp: Cell<i64>,
    last_append: Cell<Option<LogPosition>>,
}

/// The parts of a shard that are created outside of its thread.
pub struct ShardParts {
    pub environment: Environment,
    pub transport: Rc<dyn Transport>,
    pub random_seed: u64,
    /// For the CQL functions that make UUIDs.
    pub uuids: &'static dyn UuidSource,
    /// Calls the functions of users.
    pub user_functions: &'static dyn UserFunctionRuntime,
    /// `None` except in simulations.
    pub planted_bug: Option<PlantedBug>,
}

/// What the members had agreed on when the node was started, as far as this node knows.
#[derive(Clone)]
pub struct FirstState {
    pub catalog: CatalogView,
    pub cluster: Arc<ClusterView>,
    pub roles: Arc<Roles>,
    pub denylist: Arc<Denylist>,
}

/// The state and the hooks that upper layers give to a shard.
pub struct Layers {
    /// State that the layers keep with the shard.
    pub states: ShardLayers,
    /// Called with the next view of the cluster before the shard installs it.
    pub view_changes: fn(&ShardContext, &ClusterView),
    /// Called with the next roles before the shard installs them.
    pub roles_change: fn(&ShardContext, &Roles, RolesStep),
}

/// Steps of users' functions after which other requests of the shard come to their turn: some tens of milliseconds.
const FUNCTION_TURN_STEPS: u64 = 20_000;

/// Watches the work that functions of users do in one turn of this thread.
pub struct FunctionTurn {
    /// `None`: none can be called.
    functions: Option<&'static dyn UserFunctionRuntime>,
    begun_at: u64,
}

impl FunctionTurn {
    /// Whether the functions have done the work of a turn. The next turn begins then.
    #[inline]
    pub fn is_over(&mut self) -> bool {
        self.functions.is_some_and(|functions| self.is_over_after(functions.steps_on_this_thread()))
    }

    fn is_over_after(&mut self, now: u64) -> bool {
        let is_over = now.wrapping_sub(self.begun_at) >= FUNCTION_TURN_STEPS;
        if is_over {
            self.begun_at = now;
        }
        is_over
    }
}

impl ShardContext {
    pub fn new(
        index: usize,
        node: Arc<NodeShared>,
        shard: Rc<Shard>,
        parts: ShardParts,
        state: FirstState,
        layers: Layers,
    ) -> Self {
        let FirstState { catalog, cluster, roles, denylist } = state;
        let metrics = node.metrics[index].clone();
        parts.transport.view_changed(&cluster);
        let denies = Cell::new(!denylist.is_empty());
        let guardrails = RefCell::new(Arc::new(node.first_guardrails.clone()));
        Self {
            index,
            node,
            shard,
            shares: ShardShares::new(parts.environment.clock.clone(), metrics.clone()),
            clock: parts.environment.clock,
            transport: parts.transport,
            random: RefCell::new(SplitMix64::new(parts.random_seed)),
            statements: StatementCache::default(),
            metrics,
            layers: layers.states,
            view_changes: layers.view_changes,
            roles_change: layers.roles_change,
            uuids: parts.uuids,
            user_functions: parts.user_functions,
            planted_bug: parts.planted_bug,
            catalog: RefCell::new(catalog),
            cluster: RefCell::new(cluster),
            roles: RefCell::new(roles),
            guardrails,
            denylist: RefCell::new(denylist),
            denies,
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

    /// The installed view of the cluster, as a further reference to it.
    pub fn cluster(&self) -> Arc<ClusterView> {
        self.cluster.borrow().clone()
    }

    /// The installed view of the cluster, borrowed: spares a reference count.
    pub fn cluster_view(&self) -> std::cell::Ref<'_, Arc<ClusterView>> {
        self.cluster.borrow()
    }

    /// Installs a new view of the cluster.
    pub fn install_cluster(&self, view: Arc<ClusterView>) {
        let view = match self.node.status.detected() {
            Some(alive) if alive != view.alive => Arc::new(view.with_alive(alive)),
            _ => view,
        };
        self.transport.view_changed(&view);
        (self.view_changes)(self, &view);
        *self.cluster.borrow_mut() = view;
    }

    /// The roles as of the last entry of the metadata log that this node has applied.
    pub fn roles(&self) -> Arc<Roles> {
        self.roles.borrow().clone()
    }

    /// The same, borrowed: spares a reference count.
    pub fn roles_view(&self) -> std::cell::Ref<'_, Arc<Roles>> {
        self.roles.borrow()
    }

    /// Whether a client is a superuser. `user`: its role; `None`: it is anonymous, and none.
    pub fn is_superuser(&self, user: Option<&str>) -> bool {
        user.is_some_and(|user| self.roles_view().is_superuser(user))
    }

    /// Installs changed roles.
    pub fn install_roles(&self, roles: Arc<Roles>, step: RolesStep) {
        (self.roles_change)(self, &roles, step);
        *self.roles.borrow_mut() = roles;
    }

    /// The limits for clients.
    pub fn guardrails(&self) -> Arc<NodeGuardrails> {
        self.guardrails.borrow().clone()
    }

    /// Installs changed limits for clients.
    pub fn install_guardrails(&self, guardrails: NodeGuardrails) {
        *self.guardrails.borrow_mut() = Arc::new(guardrails);
    }

    /// Whether there are partitions whose requests are refused, unless the settings have that not obeyed.
    #[inline]
    pub fn denies(&self) -> bool {
        self.denies.get()
    }

    /// The partition denylist as of the last entry of the metadata log that this node has applied, whether it is obeyed or not.
    pub fn denylist(&self) -> Arc<Denylist> {
        self.denylist.borrow().clone()
    }

    /// The same, borrowed: spares a reference count.
    pub fn denylist_view(&self) -> std::cell::Ref<'_, Arc<Denylist>> {
        self.denylist.borrow()
    }

    /// Installs a changed partition denylist.
    pub fn install_denylist(&self, denylist: Arc<Denylist>) {
        self.denies.set(!denylist.is_empty());
        *self.denylist.borrow_mut() = denylist;
    }

    /// Installs a new catalog.
    pub fn install(&self, view: CatalogView) {
        *self.catalog.borrow_mut() = view;
    }

    /// The newest timestamp that this shard has issued, in microseconds.
    pub fn last_timestamp(&self) -> i64 {
        self.last_timestamp.get()
    }

    /// A timestamp for a write, in microseconds. Strictly increasing on this shard.
    pub fn next_timestamp(&self) -> i64 {
        self.next_timestamp_at(self.clock.now_micros())
    }

    /// Like [`ShardContext::next_timestamp`], with a clock value that was already read in this turn.
    pub fn next_timestamp_at(&self, clock_micros: i64) -> i64 {
        let next = clock_micros.max(self.last_timestamp.get() + 1);
        self.last_timestamp.set(next);
        next
    }

    pub fn now_seconds(&self) -> u32 {
        self.clock.now_seconds()
    }

    /// The time and the UUID source for CQL functions of a request that is executed now.
    pub fn call_context(&self) -> CallContext {
        CallContext::with_uuids(self.clock.now_micros(), self.uuids).with_user_functions(self.user_functions)
    }

    /// Checks and calls the functions of users.
    pub fn user_functions(&self) -> &'static dyn UserFunctionRuntime {
        self.user_functions
    }

    /// The work from now on of the functions of users that a SELECT may call for its rows.
    pub fn function_turn(&self, plan: &SelectPlan) -> FunctionTurn {
        let only_copies = plan.plain_slots.is_some();
        let functions = (!only_copies && self.user_functions.is_enabled()).then_some(self.user_functions);
        let begun_at = functions.map_or(0, UserFunctionRuntime::steps_on_this_thread);
        FunctionTurn { functions, begun_at }
    }

    /// Checks guardrails. What they warn of, and what they refuse, is counted.
    pub fn guard<T>(
        &self,
        warnings: &mut Vec<String>,
        check: impl FnOnce(&mut Vec<String>) -> Result<T>,
    ) -> Result<T> {
        let before = warnings.len();
        let checked = check(warnings);
        match &checked {
            Ok(_) => self.metrics.guardrail_warnings.add((warnings.len() - before) as u64),
            Err(error) if helenus_guardrails::is_violation(error) => {
                self.metrics.guardrail_failures.increment();
            }
            Err(_) => {}
        }
        checked
    }

    /// Whether the simulation has planted this bug.
    #[inline]
    pub fn has_bug(&self, bug: PlantedBug) -> bool {
        cfg!(feature = "planted-bugs") && self.planted_bug == Some(bug)
    }

    /// A random (version 4) UUID.
    pub fn random_uuid(&self) -> Uuid {
        let mut random = self.random.borrow_mut();
        let bits = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }

    /// A time-based (version 1) UUID with a new timestamp.
    pub fn time_uuid(&self) -> Uuid {
        let mut node = [0; 6];
        node.copy_from_slice(&self.node.host_id.as_bytes()[..6]);
        // The multicast bit: no network card has this address.
        node[0] |= 1;
        timeuuid::from_micros(self.next_timestamp(), 0, self.index as u16, node)
    }

    /// Remembers the position of the last record in the commit log. Positions of tables that are not logged sort
    /// before all others.
    pub fn note_append(&self, position: LogPosition) {
        self.last_append.set(self.last_append.get().max(Some(position)));
    }

    /// The position of the last record that this process has appended to the commit log, if any. An answer that shows
    /// the present state waits until this position is durable.
    pub fn last_append(&self) -> Option<LogPosition> {
        self.last_append.get()
    }

    /// Runs a job repeatedly on this shard, with a pause before each run, until the node stops.
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
}

/// Runs a job on the thread behind a shard's queue and waits for its result. Fails when the node is shutting down.
pub async fn run_on<T: Send + 'static>(
    link: &ShardSender,
    job: impl FnOnce(Rc<ShardContext>) -> LocalBoxFuture<'static, T> + Send + 'static,
) -> Result<T> {
    let stopped = || RequestError::Server("the node is shutting down".to_owned());
    let (sender, receiver) = oneshot::channel();
    let job: Job = Box::new(move |context| {
        Box::pin(async move {
            // The caller may have stopped waiting.
            let _ = sender.send(job(context).await);
        })
    });
    link.send(Message::Job(job)).await.map_err(|_| stopped())?;
    receiver.await.map_err(|_| stopped())
}

/// Runs a job on all shards of the node concurrently. Returns when all have ended, with the error of the first shard that has one: no
/// shard's job is given up in the middle because another one has failed.
pub async fn on_every_shard(
    context: &Rc<ShardContext>,
    job: impl Fn(Rc<ShardContext>) -> futures::future::LocalBoxFuture<'static, Result<()>>
    + Clone
    + Send
    + 'static,
) -> Result<()> {
    from_every_shard(context, job).await.map(drop)
}

/// Has the shards share items: each takes every n-th, one after the other. Returns when all have ended, with the results or the first error.
pub async fn share_among_shards<I: Send + 'static, T: Send + 'static>(
    context: &Rc<ShardContext>,
    items: Vec<I>,
    job: impl Fn(Rc<ShardContext>, I) -> futures::future::LocalBoxFuture<'static, Result<T>>
    + Clone
    + Send
    + 'static,
) -> Result<Vec<T>> {
    let shards = context.node.shard_count();
    let mut shares: Vec<Vec<I>> = (0..shards).map(|_| Vec::new()).collect();
    for (number, item) in items.into_iter().enumerate() {
        shares[number % shards].push(item);
    }
    let jobs = shares.into_iter().enumerate().map(|(shard, share)| {
        let job = job.clone();
        context.run_on(shard, move |context| {
            Box::pin(async move {
                let mut results = Vec::with_capacity(share.len());
                for item in share {
                    results.push(job(context.clone(), item).await?);
                }
                Ok::<_, RequestError>(results)
            })
        })
    });
    let mut results = Vec::new();
    for of_shard in futures::future::join_all(jobs).await {
        results.extend(of_shard??);
    }
    Ok(results)
}

/// As [`on_every_shard`], with the results in the order of the shards.
pub async fn from_every_shard<T: Send + 'static>(
    context: &Rc<ShardContext>,
    job: impl Fn(Rc<ShardContext>) -> futures::future::LocalBoxFuture<'static, Result<T>> + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let jobs = (0..context.node.shard_count()).map(|shard| {
        let job = job.clone();
        async move { context.run_on(shard, move |context| job(context)).await? }
    });
    futures::future::join_all(jobs).await.into_iter().collect()
}
