//! The network between simulated nodes: messages take a while, overtake each other, and get lost on cut links.
//!
//! Invariants:
//! * A message is lost if its link is cut when it leaves or when it would arrive. Nothing reaches a node that is
//!   down. Answers to requests of an earlier run of a node do not reach the next run.
//! * Messages in flight belong to the network: they survive their sender.
//! * A call is never executed twice; a message without an answer may be.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use helenus::node::dispatch::dispatch;
use helenus_engine::io::SplitMix64;
use helenus_internode::handshake::OTHER_HOST_CODE;
use helenus_internode::service::{self, Message};
use helenus_internode::transport::{CallError, Destination, Transport};
use helenus_ring::HostId;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::machine::Machine;
use crate::trace::{Event, Trace};

/// One direction between two nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Link {
    /// No message gets through.
    pub is_cut: bool,
    /// Added to the usual latency.
    pub delay: Duration,
    /// How many of 1000 messages get lost.
    pub loss_per_mille: u64,
}

/// All links.
pub struct Network {
    tasks: Weak<LocalSet>,
    trace: Arc<Trace>,
    random: RefCell<SplitMix64>,
    links: RefCell<BTreeMap<(usize, usize), Link>>,
    machines: RefCell<Vec<Weak<Machine>>>,
    /// How many of 1000 messages without an answer arrive twice.
    pub duplicates_per_mille: Cell<u64>,
}

type Answer = oneshot::Sender<Result<Bytes, CallError>>;

impl Network {
    /// A network whose messages are tasks of `tasks`.
    pub fn new(tasks: &Rc<LocalSet>, trace: Arc<Trace>, seed: u64) -> Self {
        Self {
            tasks: Rc::downgrade(tasks),
            trace,
            random: RefCell::new(SplitMix64::new(seed)),
            links: RefCell::default(),
            machines: RefCell::default(),
            duplicates_per_mille: Cell::new(0),
        }
    }

    /// Connects a machine. Its index is its number.
    pub fn connect(&self, machine: &Rc<Machine>) {
        self.machines.borrow_mut().push(Rc::downgrade(machine));
    }

    /// Changes the link of one direction.
    pub fn set_link(&self, from: usize, to: usize, link: Link) {
        self.links.borrow_mut().insert((from, to), link);
    }

    /// The present state of one direction.
    pub fn link(&self, from: usize, to: usize) -> Link {
        self.links.borrow().get(&(from, to)).copied().unwrap_or_default()
    }

    /// Makes all links reliable and fast.
    pub fn heal(&self) {
        self.links.borrow_mut().clear();
        self.duplicates_per_mille.set(0);
    }

    fn machine_at(&self, address: SocketAddr) -> Option<Rc<Machine>> {
        self.machines.borrow().iter().filter_map(Weak::upgrade).find(|machine| machine.address == address)
    }

    /// The latency of a message; `None`: it gets lost.
    fn latency(&self, from: usize, to: usize) -> Option<Duration> {
        let link = self.link(from, to);
        let mut random = self.random.borrow_mut();
        let micros = if random.chance(1, 50) { random.below(30_000) } else { 100 + random.below(2_500) };
        let is_lost = link.is_cut || random.chance(link.loss_per_mille, 1_000);
        (!is_lost).then(|| link.delay + Duration::from_micros(micros))
    }

    fn chance(&self, numerator: u64, denominator: u64) -> bool {
        self.random.borrow_mut().chance(numerator, denominator)
    }

    fn dispatch(self: &Rc<Self>, sender: &Sender, to: Destination, message: Bytes, answer: Option<Answer>) {
        let Some(tasks) = self.tasks.upgrade() else { return };
        let Some(target) = self.machine_at(to.address) else { return };
        self.trace
            .record(Event::Sent { from: sender.node, to: target.index, bytes: message.len() }, &message);
        if answer.is_none() && self.chance(self.duplicates_per_mille.get(), 1_000) {
            tasks.spawn_local(self.clone().carry(*sender, target.clone(), to, message.clone(), None));
        }
        tasks.spawn_local(self.clone().carry(*sender, target, to, message, answer));
    }

    async fn carry(
        self: Rc<Self>,
        sender: Sender,
        target: Rc<Machine>,
        to: Destination,
        message: Bytes,
        answer: Option<Answer>,
    ) {
        let lost = Event::Lost { from: sender.node, to: target.index };
        let Some(latency) = self.latency(sender.node, target.index) else {
            return self.trace.record(lost, &[]);
        };
        tokio::time::sleep(latency).await;
        if self.link(sender.node, target.index).is_cut {
            return self.trace.record(lost, &[]);
        }
        if !target.is_up() {
            self.trace.record(lost, &[]);
            // The machine refuses the connection, unless the whole machine is down.
            if let Some(answer) = answer
                && self.chance(1, 2)
            {
                let reason = "connection refused".to_owned();
                let _ = answer.send(Err(CallError::Unreachable { address: to.address, reason }));
            }
            return;
        }
        if to.host_id.is_some_and(|expected| expected != target.host_id) {
            if let Some(answer) = answer {
                let reason = "another node has this address".to_owned();
                let _ = answer.send(Err(CallError::Refused {
                    address: to.address,
                    code: OTHER_HOST_CODE,
                    reason,
                }));
            }
            return;
        }
        self.trace.record(Event::Delivered { from: sender.node, to: target.index }, &[]);
        let Some(context) = target.context(usize::from(to.shard)) else { return };
        let network = self.clone();
        let index = target.index;
        target.spawn(async move {
            let response = dispatch(&context, sender.host_id, &message, answer.is_some()).await;
            if let (Some(response), Some(answer)) = (response, answer) {
                network.answer(sender, index, response, answer);
            }
        });
    }

    fn answer(self: &Rc<Self>, asker: Sender, from: usize, response: Bytes, answer: Answer) {
        let Some(tasks) = self.tasks.upgrade() else { return };
        self.trace.record(Event::Answered { from, to: asker.node, bytes: response.len() }, &response);
        if let Some(failure) = service::failure_in(&response) {
            self.trace.note(format!("n{from} refuses a request of n{}: {failure}", asker.node));
        }
        let network = self.clone();
        tasks.spawn_local(async move {
            let lost = Event::Lost { from, to: asker.node };
            let Some(latency) = network.latency(from, asker.node) else {
                return network.trace.record(lost, &[]);
            };
            tokio::time::sleep(latency).await;
            if network.link(from, asker.node).is_cut {
                return network.trace.record(lost, &[]);
            }
            network.trace.record(Event::Delivered { from, to: asker.node }, &[]);
            // The caller has timed out, or its node has crashed.
            let _ = answer.send(Ok(response));
        });
    }
}

#[derive(Clone, Copy)]
struct Sender {
    node: usize,
    host_id: HostId,
}

/// The transport of one shard in the network.
pub struct SimulatedTransport {
    network: Rc<Network>,
    sender: Sender,
}

impl SimulatedTransport {
    pub fn new(network: Rc<Network>, node: usize, host_id: HostId) -> Self {
        Self { network, sender: Sender { node, host_id } }
    }
}

impl Transport for SimulatedTransport {
    fn call(
        &self,
        to: Destination,
        request: Message,
        deadline: Duration,
    ) -> LocalBoxFuture<'static, Result<Bytes, CallError>> {
        let (network, sender) = (self.network.clone(), self.sender);
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            network.dispatch(&sender, to, request.bytes, Some(answer));
            let address = to.address;
            let after_ms = deadline.as_millis() as u64;
            let answer = async {
                match answered.await {
                    Ok(answer) => answer,
                    // Lost, or the other node crashed: either the connection breaks, or no answer ever arrives.
                    Err(_) if network.chance(1, 2) => {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        let reason = "connection reset".to_owned();
                        Err(CallError::Unreachable { address, reason })
                    }
                    Err(_) => std::future::pending().await,
                }
            };
            match tokio::time::timeout(deadline, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(CallError::TimedOut { address, after_ms }),
            }
        })
    }

    fn send(&self, to: Destination, message: Message) {
        self.network.dispatch(&self.sender, to, message.bytes, None);
    }
}
