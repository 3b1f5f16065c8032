//! A machine with a node on it: the node's tasks are in a set of their own, which is dropped to simulate a crash.
//!
//! Invariants:
//! * Disk, clock and identity survive a crash; nothing else does.
//! * A node's tasks are polled by one task outside of all nodes. A task that crashes, pauses or starts a node must not
//!   be a task of that node.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};

use helenus_config::Config;
use helenus_engine::io::{CrashStyle, Disk, SimulatedDisk, SplitMix64};
use helenus_internode::transport::Transport;
use helenus_query::functions::UuidSource;
use helenus_ring::HostId;
use helenus_testing::clock::VirtualClock;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, LocalSet};

use super::node::NodeParts;
use crate::node::error::StartError;
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::ShardContext;

/// The parts of a machine.
pub struct Hardware {
    /// The machine's number in its network.
    pub index: usize,
    pub host_id: HostId,
    /// For other nodes.
    pub address: SocketAddr,
    pub config: Config,
    pub disk: SimulatedDisk,
    /// The disk as the node sees it.
    pub node_disk: Arc<dyn Disk>,
    pub clock: VirtualClock,
    pub uuids: &'static dyn UuidSource,
    pub planted_bug: Option<PlantedBug>,
    pub random: SplitMix64,
}

/// A machine and, while it is up, its node.
pub struct Machine {
    pub index: usize,
    pub host_id: HostId,
    pub address: Cell<SocketAddr>,
    pub config: Config,
    /// The dead member whose place its next node is to take, and whether what only that one had is given up.
    pub replaces: Cell<Option<(HostId, bool)>>,
    pub disk: SimulatedDisk,
    node_disk: Arc<dyn Disk>,
    pub clock: VirtualClock,
    uuids: &'static dyn UuidSource,
    planted_bug: Option<PlantedBug>,
    random: RefCell<SplitMix64>,
    outside: Weak<LocalSet>,
    transport: Rc<dyn Transport>,
    tasks: RefCell<Option<Pin<Box<LocalSet>>>>,
    poller: RefCell<Option<AbortHandle>>,
    contexts: RefCell<Vec<Rc<ShardContext>>>,
    is_paused: Cell<bool>,
    paused: RefCell<Option<Waker>>,
}

impl Machine {
    /// A machine that is switched off. `outside`: the tasks that do not belong to a node.
    pub(super) fn new(hardware: Hardware, outside: Weak<LocalSet>, transport: Rc<dyn Transport>) -> Self {
        Self {
            index: hardware.index,
            host_id: hardware.host_id,
            address: Cell::new(hardware.address),
            replaces: Cell::new(hardware.config.replace.map(|of| (of, hardware.config.replace_accept_loss))),
            config: hardware.config,
            disk: hardware.disk,
            node_disk: hardware.node_disk,
            clock: hardware.clock,
            uuids: hardware.uuids,
            planted_bug: hardware.planted_bug,
            random: RefCell::new(hardware.random),
            outside,
            transport,
            tasks: RefCell::default(),
            poller: RefCell::default(),
            contexts: RefCell::default(),
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

    /// A shard of the node, taken modulo the number of shards; `None` while the node is down.
    pub fn context(&self, shard: usize) -> Option<Rc<ShardContext>> {
        let contexts = self.contexts.borrow();
        contexts.get(shard % contexts.len().max(1)).cloned()
    }

    /// All shards of the node; none while it is down.
    pub fn contexts(&self) -> Vec<Rc<ShardContext>> {
        self.contexts.borrow().clone()
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

    /// Switches the machine on: opens its node, and starts the node's work with `begin`. Returns when that is done;
    /// other nodes reach it before. An error if it crashed or refused to start.
    pub async fn boot<F>(
        self: &Rc<Self>,
        begin: impl FnOnce(Vec<Rc<ShardContext>>) -> F + 'static,
    ) -> Result<(), String>
    where
        F: Future<Output = Result<(), StartError>>,
    {
        let Some(outside) = self.outside.upgrade() else { return Err("the test is over".to_owned()) };
        let tasks = Box::pin(LocalSet::new());
        let (sender, receiver) = oneshot::channel();
        let machine = self.clone();
        tasks.spawn_local(async move {
            let started = async {
                let contexts = machine.parts().open().await?;
                machine.contexts.borrow_mut().clone_from(&contexts);
                begin(contexts).await
            };
            // The test may have ended meanwhile.
            let _ = sender.send(started.await);
        });
        *self.tasks.borrow_mut() = Some(tasks);
        let machine = self.clone();
        let poller = outside.spawn_local(poll_fn(move |context| {
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
            Ok(started) => started.map_err(|error| error.to_string()),
            Err(_) => Err("crashed during the start".to_owned()),
        }
    }

    /// The parts of its next node.
    pub fn parts(&self) -> NodeParts<'_> {
        let (replace, accept_loss) = self.replaces.get().unzip();
        NodeParts {
            config: Config {
                replace,
                replace_accept_loss: accept_loss.unwrap_or_default(),
                ..self.config.clone()
            },
            host_id: self.host_id,
            address: self.address.get(),
            disk: self.node_disk.clone(),
            clock: Rc::new(self.clock.clone()),
            transport: self.transport.clone(),
            uuids: self.uuids,
            planted_bug: self.planted_bug,
            random: &self.random,
        }
    }

    /// Crashes the node. `style` decides which un-synced contents of the disk survive.
    pub fn crash(&self, style: CrashStyle) {
        self.disk.crash();
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

    /// Pauses the node's tasks, as SIGSTOP does, or resumes them.
    pub fn set_paused(&self, is_paused: bool) {
        self.is_paused.set(is_paused);
        if !is_paused && let Some(waker) = self.paused.take() {
            waker.wake();
        }
    }
}
