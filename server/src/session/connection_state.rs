//! The state of a connection that its task and the requests in flight share.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use cql_lite::frame::compression::compress_envelope;
use cql_lite::frame::{Compression, ProtocolVersion};
use helenus_observe::receipt::Receipt;
use helenus_query::error::Result;
use helenus_query::statement::Description;
use tokio::sync::Notify;

use crate::session::allowance::{self, Allowance};
use crate::session::authentication::admission::Admission;
use crate::session::authentication::stage::Stage;
use crate::session::connection_places::Place;
use crate::session::decisions::Decisions;
use crate::session::handshake::Startup;
use crate::session::latencies::{Latencies, Measured, micros};
use crate::session::receipts::CostWishes;
use crate::session::request_logs::RequestLogs;
use crate::session::slow_requests;
use helenus_execution::shard::context::ShardContext;
use helenus_fair_shares::{RoleShare, RoleShares, ShardShare, Shared};

/// A request that is under way.
#[derive(Debug, Clone)]
pub struct WaitingRequest {
    /// Monotonic time.
    pub started: Duration,
    /// The statement; `None` for a batch of the protocol.
    pub text: Option<Arc<str>>,
}

/// The state of a connection, shared by its task and the requests in flight.
pub struct Connection {
    pub context: Rc<ShardContext>,
    pub peer: SocketAddr,
    pub(super) stage: Cell<Stage>,
    /// What its role may still ask now; `None`: what it wants.
    pub allowance: RefCell<Option<Arc<Allowance>>>,
    /// The most that a request of its role may be charged; `None`: any charge.
    pub(super) max_charge: Cell<Option<u64>>,
    /// Those that record its requests, while they are on.
    pub logs: Arc<RequestLogs>,
    /// Its place among the connections of the node.
    pub place: Place,
    /// The identity that the client's certificate names; `None`: it has shown none, or it names none.
    pub identity: Option<Rc<str>>,
    pub keyspace: RefCell<Option<Rc<str>>>,
    pub startup: RefCell<Option<Startup>>,
    /// The role that the client logged in as; `None`: it is anonymous.
    pub user: RefCell<Option<Rc<str>>>,
    /// Its share of the thread, unless roles have none.
    pub(super) share: OnceCell<Rc<ShardShare>>,
    /// Makes roles take turns until its client has logged in; `None`: it has, or need not.
    pub(super) login_share: RefCell<Option<Arc<RoleShare>>>,
    /// What that role may do, as far as it was decided.
    pub decisions: Decisions,
    pub(super) admission: Admission,
    /// Notified when the client has logged in.
    pub(super) logged_in: Notify,
    pub(super) registered: Cell<[bool; 3]>,
    /// Finished envelopes, not compressed or packed yet.
    pub(super) out: RefCell<BytesMut>,
    /// Notified when something was added to `out`.
    pub answered: Notify,
    /// The requests under way that wait for something, by their number on the connection.
    pub(super) waiting: RefCell<BTreeMap<u64, WaitingRequest>>,
    pub(super) closing: Cell<bool>,
    pub request_count: Cell<u64>,
    /// The monotonic time at which the last request was answered, or was left to be answered later, if the next one follows at once: then one
    /// reading of the clock serves both.
    pub(super) answered_at: Cell<Option<Duration>>,
    /// The monotonic time at which the first request began that was carried out since the connection's task got the thread.
    pub(super) turn_began: Cell<Option<Duration>>,
    pub version: Cell<ProtocolVersion>,
}

impl Shared for Connection {
    #[inline]
    fn share(&self) -> Option<&Rc<ShardShare>> {
        self.share.get()
    }
}

impl Connection {
    /// The client is in. `role`: `None` if it need not log in.
    pub(super) fn is_in(&self, role: Option<Rc<str>>) {
        let context = &self.context;
        if let Some(role) = &role
            && context.node.config.fair_shares_enabled
        {
            let share = context.node.layers.get::<RoleShares>().of(role);
            self.share.get_or_init(|| context.shares.of(share));
        }
        *self.login_share.borrow_mut() = None;
        *self.user.borrow_mut() = role;
        self.learn_options();
        self.stage.set(Stage::Ready);
        self.logged_in.notify_one();
    }

    /// What a client wants to know of the cost of a request, with the limit of its role.
    #[inline]
    pub fn limited(&self, wishes: CostWishes) -> CostWishes {
        match (wishes.max_charge, self.max_charge.get()) {
            (Some(own), Some(of_role)) => CostWishes { max_charge: Some(own.min(of_role)), ..wishes },
            (own, of_role) => CostWishes { max_charge: own.or(of_role), ..wishes },
        }
    }

    /// Goes by the options of its role as they are now.
    fn learn_options(&self) {
        let (context, user) = (&self.context, self.user.borrow());
        let options = |user: &str| Some(context.roles_view().role(user)?.options);
        self.max_charge.set(user.as_deref().and_then(options).and_then(|options| options.max_charge));
        *self.allowance.borrow_mut() = allowance::of_role(context, user.as_deref());
        if let (Some(share), Some(user)) = (self.share.get(), user.as_deref()) {
            share.set_shares(context.roles_view().role(user).and_then(|role| role.options.shares));
        }
    }

    /// Appends to the answers.
    pub fn write(&self, write: impl FnOnce(&mut BytesMut)) {
        let mut out = self.out.borrow_mut();
        let start = out.len();
        write(&mut out);
        if let Some(compression) = self.body_compression()
            && out.len() > start
        {
            compress_envelope(&mut out, start, compression);
        }
    }

    /// The compression of single bodies (v3, v4).
    pub(super) fn body_compression(&self) -> Option<Compression> {
        if self.version.get() >= ProtocolVersion::V5 {
            return None;
        }
        self.startup.borrow().as_ref().and_then(|startup| startup.compression)
    }

    /// Adds the duration of a request that began at `started` (monotonic time) to the metrics, and to the log if it was long. `statement`:
    /// `None` for a batch of the protocol. `receipt`: what the request cost, if that is known.
    pub fn record_duration(
        &self,
        started: Duration,
        measured: Option<Measured>,
        statement: Option<&Description>,
        receipt: Option<&Receipt>,
    ) {
        let context = &self.context;
        let now = context.clock.monotonic();
        self.answered_at.set(Some(now));
        let duration = now.saturating_sub(started);
        let duration_us = micros(duration);
        context.metrics.request_duration.record(duration_us);
        if let Some(measured) = measured {
            Latencies::record(context, measured, duration_us, now);
        }
        slow_requests::note(context, self.peer, statement, duration, receipt);
    }

    /// Refuses the requests of a client whose role may not send them any more. `now`: when the request began, monotonic time.
    #[inline]
    pub(super) fn check_admission(&self, now: Duration) -> Result<()> {
        if self.admission.check(&self.context, self.user.borrow().as_deref(), self.peer.ip(), now)? {
            self.learn_options();
        }
        Ok(())
    }

    /// Whether the requests that were carried out since the connection's task got the thread have taken long enough: others are to have it.
    #[inline]
    pub(super) fn is_turn_over(&self) -> bool {
        let (Some(began), Some(now)) = (self.turn_began.get(), self.answered_at.get()) else { return false };
        now.saturating_sub(began) >= self.context.shares.turn_limit()
    }

    /// The number of requests that wait for something.
    pub(super) fn under_way(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Lists a request that will be answered later, and returns its number.
    pub fn begin_request(&self, request: WaitingRequest) -> u64 {
        // What was done for it belongs to the turn of the connection's task.
        self.answered_at.set(Some(self.context.clock.monotonic()));
        let number = self.request_count.get();
        self.waiting.borrow_mut().insert(number, request);
        number
    }

    /// The role of the client is gone: whatever role gets its name is another one.
    pub(super) fn end_session(&self) {
        self.admission.end();
        self.registered.set([false; 3]);
    }

    /// Accepts no more requests, and ends when those in flight are answered.
    pub(super) fn close(&self) {
        self.closing.set(true);
        self.answered.notify_one();
    }

    /// Writes the answer of a request that is in flight, and wakes the connection.
    pub fn end_request(&self, number: u64, write: impl FnOnce(&mut BytesMut)) {
        self.waiting.borrow_mut().remove(&number);
        self.write(write);
        self.answered.notify_one();
    }
}
