//! The network between machines. Its [`Conditions`] say how long messages take, and which get lost.
//!
//! Invariants:
//! * A message is lost if its link is cut when it leaves or when it would arrive. Nothing reaches a node that is
//!   down. Answers to requests of an earlier run of a node do not reach the next run.
//! * Messages in flight belong to the network: they survive their sender.
//! * A call is never executed twice; a message without an answer may be.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use helenus_internode::handshake::OTHER_HOST_CODE;
use helenus_internode::service::Message;
use helenus_internode::transport::{CallError, Destination, Transport};
use helenus_ring::HostId;
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use super::machine::{Hardware, Machine};
use crate::node::dispatch::dispatch;

/// Time until a caller learns that its connection broke.
const RESET: Duration = Duration::from_millis(2);

/// The fate of a message.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// It arrives, unless the link is cut by then.
    Arrives {
        after: Duration,
    },
    Lost,
    /// The connection breaks, and the caller learns it.
    Broken {
        after: Duration,
    },
}

/// How long messages take, and which get lost. Machines are given by their numbers.
pub trait Conditions {
    /// A message leaves. `is_call`: an answer is expected.
    fn request(&self, from: usize, to: usize, is_call: bool) -> Fate;

    /// An answer leaves. `None`: it gets lost.
    fn answer(&self, from: usize, to: usize) -> Option<Duration>;

    /// Whether nothing that left before arrives now.
    fn is_cut(&self, _from: usize, _to: usize) -> bool {
        false
    }

    /// Whether a message without an answer arrives twice.
    fn is_repeated(&self) -> bool {
        false
    }

    /// Whether a caller learns at once that no process listens, or that no answer will come. Otherwise it waits for its deadline.
    fn is_noticed(&self, from: usize, to: usize) -> bool;

    /// Called for each message when it leaves.
    fn sent(&self, _from: usize, _to: usize, _message: &[u8]) {}

    /// Called for each message and answer that arrives.
    fn delivered(&self, _from: usize, _to: usize) {}

    /// Called for each message and answer that does not arrive.
    fn lost(&self, _from: usize, _to: usize) {}

    /// Called for each answer when it leaves. Returns the answer that travels.
    fn answered(&self, _from: usize, _to: usize, answer: Bytes) -> Bytes {
        answer
    }
}

/// All machines and the conditions between them.
pub struct Network {
    outside: Weak<LocalSet>,
    conditions: Rc<dyn Conditions>,
    machines: RefCell<Vec<Weak<Machine>>>,
}

type ResponseSender = oneshot::Sender<Result<Bytes, CallError>>;

impl Network {
    /// A network whose messages are tasks of `outside`.
    pub fn new(outside: &Rc<LocalSet>, conditions: Rc<dyn Conditions>) -> Rc<Self> {
        Rc::new(Self { outside: Rc::downgrade(outside), conditions, machines: RefCell::default() })
    }

    /// Connects a machine that is switched off.
    pub fn connect(self: &Rc<Self>, hardware: Hardware) -> Rc<Machine> {
        let sender = Sender { index: hardware.index, host_id: hardware.host_id };
        let transport = MachineTransport { network: self.clone(), sender };
        let machine = Rc::new(Machine::new(hardware, self.outside.clone(), Rc::new(transport)));
        self.machines.borrow_mut().push(Rc::downgrade(&machine));
        machine
    }

    fn machine_at(&self, address: SocketAddr) -> Option<Rc<Machine>> {
        self.machines
            .borrow()
            .iter()
            .filter_map(Weak::upgrade)
            .find(|machine| machine.address.get() == address)
    }

    fn dispatch(
        self: &Rc<Self>,
        sender: &Sender,
        to: Destination,
        message: Bytes,
        answer: Option<ResponseSender>,
    ) {
        let Some(outside) = self.outside.upgrade() else { return };
        let Some(target) = self.machine_at(to.address) else { return };
        self.conditions.sent(sender.index, target.index, &message);
        if answer.is_none() && self.conditions.is_repeated() {
            outside.spawn_local(self.clone().carry(*sender, target.clone(), to, message.clone(), None));
        }
        outside.spawn_local(self.clone().carry(*sender, target, to, message, answer));
    }

    async fn carry(
        self: Rc<Self>,
        sender: Sender,
        target: Rc<Machine>,
        to: Destination,
        message: Bytes,
        answer: Option<ResponseSender>,
    ) {
        let (from, index) = (sender.index, target.index);
        let unreachable =
            |reason: &str| CallError::Unreachable { address: to.address, reason: reason.to_owned() };
        let refuse = |answer: Option<ResponseSender>, error: CallError| {
            // The caller may have timed out.
            let _ = answer.map(|answer| answer.send(Err(error)));
        };
        match self.conditions.request(from, index, answer.is_some()) {
            Fate::Arrives { after } => tokio::time::sleep(after).await,
            Fate::Lost => return self.conditions.lost(from, index),
            Fate::Broken { after } => {
                tokio::time::sleep(after).await;
                self.conditions.lost(from, index);
                return refuse(answer, unreachable("connection reset"));
            }
        }
        if self.conditions.is_cut(from, index) {
            return self.conditions.lost(from, index);
        }
        if !target.is_up() {
            self.conditions.lost(from, index);
            // The machine refuses the connection, unless the whole machine is down.
            if answer.is_some() && self.conditions.is_noticed(from, index) {
                refuse(answer, unreachable("connection refused"));
            }
            return;
        }
        if to.host_id.is_some_and(|expected| expected != target.host_id) {
            let reason = "another node has this address".to_owned();
            return refuse(answer, CallError::Refused { address: to.address, code: OTHER_HOST_CODE, reason });
        }
        self.conditions.delivered(from, index);
        let Some(context) = target.context(usize::from(to.shard)) else { return };
        let network = self.clone();
        target.spawn(async move {
            let response = dispatch(&context, sender.host_id, &message, answer.is_some()).await;
            if let (Some(response), Some(answer)) = (response, answer) {
                network.answer(from, index, response, answer);
            }
        });
    }

    fn answer(self: &Rc<Self>, asker: usize, from: usize, response: Bytes, answer: ResponseSender) {
        let Some(outside) = self.outside.upgrade() else { return };
        let response = self.conditions.answered(from, asker, response);
        let network = self.clone();
        outside.spawn_local(async move {
            let conditions = &network.conditions;
            let Some(latency) = conditions.answer(from, asker) else { return conditions.lost(from, asker) };
            tokio::time::sleep(latency).await;
            if conditions.is_cut(from, asker) {
                return conditions.lost(from, asker);
            }
            conditions.delivered(from, asker);
            // The caller has timed out, or its node has crashed.
            let _ = answer.send(Ok(response));
        });
    }
}

#[derive(Clone, Copy)]
struct Sender {
    index: usize,
    host_id: HostId,
}

/// The transport of the shards of a machine.
struct MachineTransport {
    network: Rc<Network>,
    sender: Sender,
}

impl Transport for MachineTransport {
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
            let target = network.machine_at(address).map(|machine| machine.index);
            let answer = async {
                match answered.await {
                    Ok(answer) => answer,
                    // Lost, or the other node crashed: either the connection breaks, or no answer ever arrives.
                    Err(_)
                        if target
                            .is_none_or(|target| network.conditions.is_noticed(sender.index, target)) =>
                    {
                        tokio::time::sleep(RESET).await;
                        let reason = "connection reset".to_owned();
                        Err(CallError::Unreachable { address, reason })
                    }
                    Err(_) => std::future::pending().await,
                }
            };
            match tokio::time::timeout(deadline, answer).await {
                Ok(answer) => answer,
                Err(_) => Err(CallError::TimedOut { address, after_ms: deadline.as_millis() as u64 }),
            }
        })
    }

    fn send(&self, to: Destination, message: Message) {
        self.network.dispatch(&self.sender, to, message.bytes, None);
    }
}
