//! Nodes of a cluster in one thread. Each node has its tasks in a set of its own, which is dropped to simulate a
//! crash.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cql_lite::frame::Consistency;
use futures::future::LocalBoxFuture;
use helenus_engine::io::{Clock, CrashStyle, Disk, Environment, InlineBackground, SimulatedDisk, SplitMix64};
use helenus_internode::endpoint::Endpoint;
use helenus_internode::handshake::OTHER_HOST_CODE;
use helenus_internode::service::Message;
use helenus_internode::transport::{CallError, Destination, Transport};
use helenus_query::bind::BorrowedValues;
use helenus_query::error::Result;
use helenus_query::functions::CallContext;
use helenus_query::schema::catalog::Catalog;
use helenus_query::statement::Statement;
use helenus_ring::HostId;
use helenus_ring::member::{MemberState, TransitionPhase};
use helenus_ring::metadata::{Command, CommandOutcome};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::Instant;

use super::DEADLINE;
use crate::cluster::join::{JoinError, join};
use crate::cluster::membership::{self, MembershipError};
use crate::cluster::schema::change;
use crate::cluster::{propose, start};
use crate::config::Config;
use crate::coordinator::{self, Execution, RequestOptions, replica};
use crate::files::node_files::NodeFiles;
use crate::node::assembly::{self, Addresses, Assembled, NodeParts};
use crate::node::dispatch::dispatch;
use crate::node::error::StartError;
use crate::node::identity::Identity;
use crate::node::serve::serve;
use crate::session::request;
use crate::shard::context::{ShardContext, ShardParts};

const SHARDS: usize = 2;
const LATENCY: Duration = Duration::from_micros(300);

/// Runs `body` in virtual time.
pub fn simulate<F: Future<Output = ()>>(seed: u64, body: impl FnOnce(Rc<World>) -> F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let world = Rc::new(World {
            start: Instant::now(),
            random: RefCell::new(SplitMix64::new(seed)),
            machines: RefCell::default(),
            running: RefCell::default(),
            this: RefCell::default(),
        });
        *world.this.borrow_mut() = Rc::downgrade(&world);
        body(world.clone()).await;
        for index in world.up() {
            world.crash(index);
        }
    });
}

/// The state that survives a crash.
struct Machine {
    disk: SimulatedDisk,
    host_id: HostId,
    address: SocketAddr,
    config: Config,
    clock_ahead: Rc<Cell<Duration>>,
}

type Job = LocalBoxFuture<'static, ()>;

struct Running {
    contexts: Vec<Rc<ShardContext>>,
    jobs: mpsc::UnboundedSender<Job>,
    tasks: AbortHandle,
}

pub struct World {
    start: Instant,
    random: RefCell<SplitMix64>,
    machines: RefCell<BTreeMap<usize, Machine>>,
    running: RefCell<BTreeMap<usize, Running>>,
    this: RefCell<Weak<World>>,
}

/// The first shard of a node.
#[derive(Clone)]
pub struct Node(Rc<ShardContext>);

impl std::ops::Deref for Node {
    type Target = Rc<ShardContext>;

    fn deref(&self) -> &Rc<ShardContext> {
        &self.0
    }
}

impl Node {
    pub async fn ddl(&self, statement: &str) -> Result<coordinator::Outcome> {
        let statement = Statement::new(statement, None, &self.catalog_view())?;
        let Statement::Schema(statement) = statement else {
            panic!("{} changes no schema", &*statement.text)
        };
        change(self.0.clone(), statement).await
    }
}

impl World {
    pub fn random(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    fn up(&self) -> Vec<usize> {
        self.running.borrow().keys().copied().collect()
    }

    pub fn host_id(&self, index: usize) -> HostId {
        self.machines.borrow()[&index].host_id
    }

    pub fn node(&self, index: usize) -> Node {
        Node(self.running.borrow()[&index].contexts[0].clone())
    }

    pub fn catalog(&self, index: usize) -> Catalog {
        Catalog::clone(&self.node(index).catalog())
    }

    /// The leader, according to the nodes that know it and are up.
    pub fn leader(&self) -> Option<usize> {
        self.up().into_iter().find(|index| {
            let log = self.node(*index).metadata_log().unwrap();
            log.leader() == Some(self.host_id(*index))
        })
    }

    pub fn configure(&self, index: usize, change: impl FnOnce(&mut Config)) {
        let mut config = Config {
            data_dir: PathBuf::from("/data"),
            shards: Some(SHARDS),
            commit_log_segment_bytes: 1 << 20,
            ..Config::default()
        };
        change(&mut config);
        let seed = self.random.borrow_mut().next_u64();
        self.machines.borrow_mut().entry(index).or_insert(Machine {
            disk: SimulatedDisk::new(seed),
            host_id: uuid::Uuid::from_u128((u128::from(seed) << 64) | (index as u128 + 1)),
            address: format!("10.0.0.{}:7000", index + 1).parse().unwrap(),
            config,
            clock_ahead: Rc::default(),
        });
    }

    pub fn set_clock_ahead(&self, index: usize, ahead: Duration) {
        self.machines.borrow()[&index].clock_ahead.set(ahead);
    }

    pub fn move_to_another_address(&self, index: usize) -> SocketAddr {
        let address = format!("10.0.1.{}:7000", index + 1).parse().unwrap();
        self.machines.borrow_mut().get_mut(&index).unwrap().address = address;
        address
    }

    /// Starts a node and returns when it participates in the metadata log.
    pub async fn boot(&self, index: usize, seeds: &[SocketAddr]) -> Node {
        self.configure(index, |_| {});
        let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
        let tasks = LocalSet::new();
        let runner = tokio::task::spawn_local(async move {
            tasks
                .run_until(async {
                    while let Some(job) = queue.recv().await {
                        tokio::task::spawn_local(job);
                    }
                })
                .await;
        });
        let (sender, receiver) = oneshot::channel();
        let world = self.this.borrow().upgrade().unwrap();
        let seeds: Vec<Endpoint> = seeds.iter().map(|seed| (*seed).into()).collect();
        let tasks = runner.abort_handle();
        let own_jobs = jobs.clone();
        let boot = async move {
            let contexts = world.open(index).await;
            let running = Running { contexts: contexts.clone(), jobs: own_jobs, tasks };
            world.running.borrow_mut().insert(index, running);
            start::start(&contexts[0], &seeds).await.unwrap();
            world.show_who_is_alive();
            let _ = sender.send(());
        };
        assert!(jobs.send(Box::pin(boot)).is_ok());
        receiver.await.unwrap();
        self.node(index)
    }

    fn disk(&self, index: usize) -> Arc<dyn Disk> {
        Arc::new(self.machines.borrow()[&index].disk.clone())
    }

    fn clock(&self, index: usize) -> Rc<dyn Clock> {
        let ahead = self.machines.borrow()[&index].clock_ahead.clone();
        Rc::new(VirtualClock { start: self.start, ahead })
    }

    /// Assembles a node, or returns the reason why it does not start.
    pub async fn assemble(&self, index: usize) -> std::result::Result<Assembled, StartError> {
        let (host_id, address, config) = {
            let machines = self.machines.borrow();
            let machine = &machines[&index];
            (machine.host_id, machine.address, machine.config.clone())
        };
        let (disk, clock) = (self.disk(index), self.clock(index));
        let files = NodeFiles::open(disk.clone(), config.data_dir.clone()).await.unwrap();
        let identity =
            Identity::load_or_store(&files, Some(SHARDS), || Identity::new(host_id, SHARDS)).await.unwrap();
        let native = SocketAddr::new(address.ip(), 9042);
        let parts = NodeParts {
            config,
            identity,
            addresses: Addresses { native, shard_aware_port: 19042, internode: Some(address) },
            files,
            started_seconds: clock.now_seconds(),
            catalog_version: uuid::Uuid::from_u128(u128::from(self.random.borrow_mut().next_u64())),
        };
        assembly::assemble(parts).await
    }

    async fn open(&self, index: usize) -> Vec<Rc<ShardContext>> {
        let Assembled { shared, queues, catalog, cluster } = self.assemble(index).await.unwrap();
        let (disk, clock, host_id) = (self.disk(index), self.clock(index), self.host_id(index));
        let mut contexts = Vec::new();
        for (shard, queue) in queues.into_iter().enumerate() {
            let background = Rc::new(InlineBackground::new(disk.clone(), clock.clone()));
            let transport = Memory { world: self.this.borrow().clone(), from: host_id };
            let parts = ShardParts {
                environment: Environment { disk: disk.clone(), background, clock: clock.clone() },
                transport: Rc::new(transport),
                random_seed: self.random.borrow_mut().next_u64(),
                uuids: CallContext::process_uuids(),
                planted_bug: None,
            };
            let context =
                assembly::open_shard(shard, shared.clone(), parts, catalog.clone(), cluster.clone())
                    .await
                    .unwrap();
            tokio::task::spawn_local(serve(context.clone(), queue));
            contexts.push(context);
        }
        contexts
    }

    /// Crashes a node; data that was not synced is lost.
    pub fn crash(&self, index: usize) {
        let Some(running) = self.running.borrow_mut().remove(&index) else { return };
        running.tasks.abort();
        let machines = self.machines.borrow();
        machines[&index].disk.crash();
        machines[&index].disk.restart(CrashStyle::LoseAll, self.random.borrow_mut().next_u64());
        drop(machines);
        self.show_who_is_alive();
    }

    /// Publishes the liveness of all nodes at once: the failure detector is tested elsewhere.
    pub fn show_who_is_alive(&self) {
        let up = self.up();
        let alive: Arc<BTreeSet<HostId>> = Arc::new(up.iter().map(|index| self.host_id(*index)).collect());
        for running in self.running.borrow().values() {
            for context in &running.contexts {
                let view = context.cluster().with_alive(alive.clone());
                context.install_cluster(Arc::new(view));
            }
        }
    }

    /// Boots a node and lets it ask the others to join.
    pub async fn try_join(&self, index: usize) -> Result<u64, JoinError> {
        let seeds: Vec<SocketAddr> = self
            .up()
            .into_iter()
            .filter(|up| *up != index)
            .map(|up| self.machines.borrow()[&up].address)
            .collect();
        if !self.running.borrow().contains_key(&index) {
            self.boot(index, &seeds).await;
        }
        let seeds: Vec<Endpoint> = seeds.into_iter().map(Endpoint::from).collect();
        join(&self.node(index), &seeds, DEADLINE).await
    }

    /// Grows the cluster to this number of members, all `Normal`.
    pub async fn grow_to(&self, count: usize) {
        for index in self.up().len()..count {
            if index == 0 {
                self.boot(0, &[]).await;
                continue;
            }
            self.try_join(index).await.unwrap();
            let host_id = self.host_id(index);
            for phase in [TransitionPhase::WriteBoth, TransitionPhase::ReadNew] {
                let advance = Command::Advance { host_id, from: MemberState::Joining(phase) };
                let outcome = propose(&self.node(index), advance, DEADLINE).await.unwrap();
                assert!(matches!(outcome, CommandOutcome::Applied { .. }), "{outcome:?}");
            }
            self.settle().await;
        }
    }

    /// Runs a function on a node's first shard; `None`: the node crashed meanwhile.
    pub async fn on<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        index: usize,
        job: impl FnOnce(Rc<ShardContext>) -> F,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        {
            let running = self.running.borrow();
            let running = running.get(&index)?;
            let job = job(running.contexts[0].clone());
            let job = async move {
                let _ = sender.send(job.await);
            };
            running.jobs.send(Box::pin(job)).ok()?;
        }
        receiver.await.ok()
    }

    /// Boots a node as in production, with all others as its seeds. Resolves when it would serve clients. `None`: it
    /// crashed meanwhile.
    pub async fn enter(&self, index: usize) -> Option<std::result::Result<(), MembershipError>> {
        let seeds: Vec<SocketAddr> =
            self.up().into_iter().map(|up| self.machines.borrow()[&up].address).collect();
        self.boot(index, &seeds).await;
        let seeds: Vec<Endpoint> = seeds.into_iter().map(Endpoint::from).collect();
        let contexts = self.running.borrow().get(&index)?.contexts.clone();
        self.on(index, move |context| async move {
            membership::start(&context);
            membership::enter(&context, &seeds).await?;
            for context in &contexts {
                replica::start(context).await?;
            }
            membership::wait_until_normal(&context).await
        })
        .await
    }

    /// Executes a statement on a node. Returns the number of rows of the answer; `None`: the node crashed meanwhile.
    pub async fn cql(&self, index: usize, text: &str, consistency: Consistency) -> Option<Result<usize>> {
        let text = text.to_owned();
        let options = RequestOptions {
            consistency,
            serial_consistency: None,
            page_rows: None,
            paging_state: None,
            timestamp: None,
            now_seconds: None,
        };
        self.on(index, move |context| async move {
            let statement = Statement::new(&text, None, &context.catalog_view())?;
            let values = BorrowedValues::new();
            let execution = request::execute(&context, &statement, &values, &options, &mut Vec::new())?;
            let outcome = match execution {
                Execution::Ready(outcome) => outcome?,
                Execution::Pending(outcome) => outcome.await?,
            };
            Ok(match outcome {
                coordinator::Outcome::Rows(page) => page.row_count,
                _ => 0,
            })
        })
        .await
    }

    /// The number of rows of a table on all shards of a node, whether the node is a replica or not.
    pub fn stored_rows(&self, index: usize, keyspace: &str, table: &str) -> u64 {
        let id = *self.catalog(index).table(keyspace, table).unwrap().id.as_bytes();
        let running = self.running.borrow();
        let shards = running[&index].contexts.iter();
        shards
            .map(|context| context.shard.statistics(helenus_engine::TableId(id)).unwrap().row_versions)
            .sum()
    }

    /// Advances the clock without requests to the cluster.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(15)).await;
    }

    /// Asserts that all running nodes have the same schema and the same members.
    pub fn assert_same_catalogs(&self) {
        let up = self.up();
        let first = self.node(up[0]);
        for index in up {
            let node = self.node(index);
            let (theirs, ours) = (format!("{:?}", node.catalog()), format!("{:?}", first.catalog()));
            assert_eq!(theirs, ours, "node {index}");
            assert_eq!(node.cluster().topology, first.cluster().topology, "node {index}");
            for context in &self.running.borrow()[&index].contexts {
                assert!(Arc::ptr_eq(&context.catalog(), &node.catalog()));
                assert_eq!(
                    context.shard.table_ids().len(),
                    node.shard.table_ids().len() - usize::from(context.index > 0)
                );
            }
        }
    }
}

struct VirtualClock {
    start: Instant,
    ahead: Rc<Cell<Duration>>,
}

impl Clock for VirtualClock {
    fn now_micros(&self) -> i64 {
        1_700_000_000_000_000 + (self.start.elapsed() + self.ahead.get()).as_micros() as i64
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> LocalBoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// The network between the nodes of a world.
struct Memory {
    world: Weak<World>,
    from: HostId,
}

impl Transport for Memory {
    fn call(
        &self,
        to: Destination,
        request: Message,
        deadline: Duration,
    ) -> LocalBoxFuture<'static, Result<Bytes, CallError>> {
        let (world, from) = (self.world.clone(), self.from);
        let unreachable =
            move |reason: &str| CallError::Unreachable { address: to.address, reason: reason.to_owned() };
        let call = async move {
            tokio::time::sleep(LATENCY).await;
            let receiver = {
                let world = world.upgrade().ok_or_else(|| unreachable("the world has ended"))?;
                let machines = world.machines.borrow();
                let found = machines.iter().find(|(_, machine)| machine.address == to.address);
                let (index, machine) = found.ok_or_else(|| unreachable("no node is there"))?;
                if to.host_id.is_some_and(|host_id| host_id != machine.host_id) {
                    return Err(CallError::Refused {
                        address: to.address,
                        code: OTHER_HOST_CODE,
                        reason: "another host".to_owned(),
                    });
                }
                let running = world.running.borrow();
                let running = running.get(index).ok_or_else(|| unreachable("it is down"))?;
                let context = running.contexts[usize::from(to.shard) % running.contexts.len()].clone();
                let (sender, receiver) = oneshot::channel();
                let job = async move {
                    let answer = dispatch(&context, from, &request.bytes, true).await;
                    let _ = sender.send(answer);
                };
                running.jobs.send(Box::pin(job)).map_err(|_| unreachable("it is going down"))?;
                receiver
            };
            let answer = receiver.await.map_err(|_| unreachable("it went down"))?;
            tokio::time::sleep(LATENCY).await;
            answer.ok_or_else(|| unreachable("no answer"))
        };
        Box::pin(async move {
            tokio::time::timeout(deadline, call).await.unwrap_or(Err(CallError::TimedOut {
                address: to.address,
                after_ms: deadline.as_millis() as u64,
            }))
        })
    }

    fn send(&self, _to: Destination, _message: Message) {}
}
