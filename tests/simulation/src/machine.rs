//! A machine with a node on it: the node's tasks are in a set of their own, which is dropped to simulate a crash.
//!
//! Invariants:
//! * Disk, clock skew and identity survive a crash; nothing else does.
//! * A node's tasks are polled by one task of the simulation. A task that crashes, pauses or starts a node must not
//!   be a task of that node.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use helenus::cluster::failure;
use helenus::config::Config;
use helenus::files::node_files::NodeFiles;
use helenus::node::assembly::{self, Addresses, Assembled, NodeParts};
use helenus::node::error::StartError;
use helenus::node::identity::Identity;
use helenus::node::serve::serve;
use helenus::planted::PlantedBug;
use helenus::shard::context::{ShardContext, ShardParts};
use helenus_engine::io::{Clock, CrashStyle, Disk, Environment, InlineBackground, SimulatedDisk, SplitMix64};
use helenus_ring::HostId;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::Instant;

use crate::clock::{NodeClock, Skew};
use crate::disk::{PacedDisk, RateLimiter};
use crate::network::{Network, SimulatedTransport};
use crate::trace::Trace;
use crate::uuids::{SEEDED_UUIDS, random_uuid};

/// The properties of a machine that do not change with restarts of its node.
pub struct Hardware {
    pub index: usize,
    pub host_id: HostId,
    pub address: SocketAddr,
    pub config: Config,
    pub planted_bug: Option<PlantedBug>,
    /// The part at the beginning.
    pub part: Part,
    pub seed: u64,
}

/// The part of a machine in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It may join later.
    Spare,
    /// It is a member, or is joining.
    Member,
    /// It was a member, or died while joining; it is not a member any more.
    Gone,
}

/// A machine and, while it is up, its node.
pub struct Machine {
    pub index: usize,
    pub host_id: HostId,
    /// The address for other nodes.
    pub address: SocketAddr,
    pub config: Config,
    planted_bug: Option<PlantedBug>,
    pub disk: SimulatedDisk,
    pub pace: Arc<RateLimiter>,
    pub skew: Rc<Skew>,
    trace: Arc<Trace>,
    simulation: Weak<LocalSet>,
    network: Rc<Network>,
    start: Instant,
    random: RefCell<SplitMix64>,
    tasks: RefCell<Option<Pin<Box<LocalSet>>>>,
    poller: RefCell<Option<AbortHandle>>,
    contexts: RefCell<Vec<Rc<ShardContext>>>,
    pub part: Cell<Part>,
    /// Whether it was asked to leave.
    pub is_leaving: Cell<bool>,
    is_serving: Cell<bool>,
    is_paused: Cell<bool>,
    paused: RefCell<Option<Waker>>,
}

impl Machine {
    /// A machine that is switched off, with an empty disk. `start`: the start of the simulation.
    pub fn new(
        hardware: Hardware,
        simulation: &Rc<LocalSet>,
        network: Rc<Network>,
        trace: Arc<Trace>,
        start: Instant,
    ) -> Self {
        let mut random = SplitMix64::new(hardware.seed);
        Self {
            index: hardware.index,
            host_id: hardware.host_id,
            address: hardware.address,
            config: hardware.config,
            planted_bug: hardware.planted_bug,
            disk: SimulatedDisk::new(random.next_u64()),
            pace: Arc::new(RateLimiter::new(random.next_u64())),
            skew: Rc::default(),
            trace,
            simulation: Rc::downgrade(simulation),
            network,
            start,
            random: RefCell::new(random),
            tasks: RefCell::default(),
            poller: RefCell::default(),
            contexts: RefCell::default(),
            part: Cell::new(hardware.part),
            is_leaving: Cell::new(false),
            is_serving: Cell::new(false),
            is_paused: Cell::new(false),
            paused: RefCell::default(),
        }
    }

    /// Whether other nodes reach it.
    pub fn is_up(&self) -> bool {
        !self.contexts.borrow().is_empty()
    }

    /// Whether it has tasks: it is up, or coming up.
    pub fn is_running(&self) -> bool {
        self.tasks.borrow().is_some()
    }

    /// Whether clients reach it.
    pub fn is_serving(&self) -> bool {
        self.is_serving.get()
    }

    /// The reason why a shard accepts no more writes, if one has failed.
    pub fn failure(&self) -> Option<String> {
        self.contexts.borrow().iter().find_map(|context| failure::reason(context))
    }

    /// A shard of the node, taken modulo the number of shards; `None` while the node is down.
    pub fn context(&self, shard: usize) -> Option<Rc<ShardContext>> {
        let contexts = self.contexts.borrow();
        contexts.get(shard % contexts.len().max(1)).cloned()
    }

    /// All shards of the node; none while it is down.
    pub fn contexts(&self) -> Vec<Rc<ShardContext>> {
        self.contexts.borrow().clone()
    }

    /// The disk of the machine, as its node sees it.
    pub fn node_disk(&self) -> Arc<dyn Disk> {
        Arc::new(PacedDisk::new(self.index, self.disk.clone(), self.pace.clone(), self.trace.clone()))
    }

    /// Whether the machine is a member, or is joining.
    pub fn is_member(&self) -> bool {
        self.part.get() == Part::Member
    }

    /// Runs a future on the node and returns its result. An error if the node is down or crashes meanwhile.
    pub async fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Result<T, String> {
        let (sender, receiver) = oneshot::channel();
        self.spawn(async move {
            // The caller may have ended.
            let _ = sender.send(future.await);
        });
        receiver.await.map_err(|_| "the node has died".to_owned())
    }

    /// Adds a task to the node; the task is dropped when the node is down or crashes.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        if let Some(tasks) = &*self.tasks.borrow() {
            tasks.spawn_local(future);
        }
    }

    /// Switches the machine on and returns when the node serves clients. An error if it crashed or refused to start.
    pub async fn boot(self: &Rc<Self>) -> Result<(), String> {
        let Some(simulation) = self.simulation.upgrade() else {
            return Err("the simulation is over".to_owned());
        };
        let tasks = Box::pin(LocalSet::new());
        let (sender, receiver) = oneshot::channel();
        let machine = self.clone();
        tasks.spawn_local(async move {
            // The simulation may have ended meanwhile.
            let _ = sender.send(machine.start().await);
        });
        *self.tasks.borrow_mut() = Some(tasks);
        let machine = self.clone();
        let poller = simulation.spawn_local(poll_fn(move |context| {
            if machine.is_paused.get() {
                *machine.paused.borrow_mut() = Some(context.waker().clone());
                return Poll::Pending;
            }
            match &mut *machine.tasks.borrow_mut() {
                Some(tasks) => {
                    // A set without tasks is ready at once, and has more to do when a task is added.
                    let _ = tasks.as_mut().poll(context);
                    Poll::Pending
                }
                None => Poll::Ready(()),
            }
        }));
        *self.poller.borrow_mut() = Some(poller.abort_handle());
        match receiver.await {
            Ok(Ok(())) => {
                self.is_serving.set(true);
                self.trace.note(format!("n{} serves", self.index));
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("crashed during the start".to_owned()),
        }
    }

    async fn start(self: &Rc<Self>) -> Result<(), StartError> {
        let clock: Rc<dyn Clock> = Rc::new(NodeClock::new(self.start, self.skew.clone()));
        let disk = self.node_disk();
        let files = NodeFiles::open(disk.clone(), PathBuf::from(&self.config.data_dir)).await?;
        let shards = self.config.shards.unwrap_or(1);
        let identity = Identity::load_or_store(&files, Some(shards), || {
            Identity::with_tokens(self.host_id, shards, self.config.num_tokens)
        })
        .await?;
        let addresses = Addresses {
            native: SocketAddr::new(self.address.ip(), 9042),
            shard_aware_port: 19042,
            internode: Some(self.address),
        };
        let catalog_version = random_uuid(&mut self.random.borrow_mut());
        let parts = NodeParts {
            config: self.config.clone(),
            identity,
            addresses,
            files,
            started_seconds: clock.now_seconds(),
            catalog_version,
        };
        let Assembled { shared, queues, catalog, cluster } = assembly::assemble(parts).await?;
        let mut contexts = Vec::with_capacity(queues.len());
        for (index, queue) in queues.into_iter().enumerate() {
            let environment = Environment {
                disk: disk.clone(),
                background: Rc::new(InlineBackground::new(disk.clone(), clock.clone())),
                clock: clock.clone(),
            };
            let parts = ShardParts {
                environment,
                transport: Rc::new(SimulatedTransport::new(self.network.clone(), self.index, self.host_id)),
                random_seed: self.random.borrow_mut().next_u64(),
                uuids: &SEEDED_UUIDS,
                planted_bug: self.planted_bug,
            };
            let context =
                assembly::open_shard(index, shared.clone(), parts, catalog.clone(), cluster.clone()).await?;
            tokio::task::spawn_local(serve(context.clone(), queue));
            contexts.push(context);
        }
        self.contexts.borrow_mut().clone_from(&contexts);
        for context in contexts {
            assembly::begin(&context)
                .await
                .map_err(|error| StartError::Shard { shard: context.index, message: error.to_string() })?;
        }
        Ok(())
    }

    /// Crashes the node. `style` decides which un-synced contents of the disk survive.
    pub fn crash(&self, style: CrashStyle) {
        self.trace.note(format!("n{} crashes ({style:?})", self.index));
        self.disk.crash();
        self.is_serving.set(false);
        self.is_paused.set(false);
        *self.paused.borrow_mut() = None;
        // Destructors of tasks may ask whether the node is up.
        let contexts = self.contexts.take();
        if let Some(poller) = self.poller.take() {
            poller.abort();
        }
        let tasks = self.tasks.take();
        drop(tasks);
        drop(contexts);
        self.disk.restart(style, self.random.borrow_mut().next_u64());
    }

    /// Sets its clock to the time of the others.
    pub fn set_clock_right(&self) {
        self.skew.offset_micros.set(0);
        self.skew.drift_ppm.set(0);
    }

    /// Pauses the node's tasks, as SIGSTOP does, or resumes them.
    pub fn set_paused(&self, is_paused: bool) {
        self.is_paused.set(is_paused);
        if !is_paused && let Some(waker) = self.paused.take() {
            waker.wake();
        }
    }
}
