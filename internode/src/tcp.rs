//! The transport of a real node: links over TCP, made on demand, kept while they work.
//!
//! Invariants:
//! * A node that cannot be reached is tried at growing intervals (with jitter); in between requests to it fail at once.
//! * Every request ends by its deadline, whatever the network does: one timer for all of them looks when the earliest
//!   is over.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use helenus_engine::io::{Clock, SplitMix64};
use helenus_ring::HostId;
use helenus_ring::view::ClusterView;
use tokio::sync::Notify;

use super::handshake::Local;
use super::link::{Answer, Link, LinkFailure, LinkKey};
use super::service::Message;
use super::transport::{CallError, Destination, Transport};
use crate::endpoint::Endpoint;
use crate::metrics::InternodeMetrics;

/// The first pause after a failed attempt to reach a node.
const RECONNECT_MIN: Duration = Duration::from_millis(50);
/// Deadlines are looked at no more often than this.
const EXPIRY_GRAIN: Duration = Duration::from_millis(4);

/// Bounds and times of links.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    pub frame_bytes_max: u32,
    pub queue_bytes_max: usize,
    pub calls_per_link_max: usize,
    pub requests_per_link_max: usize,
    pub connect_timeout: Duration,
    pub keepalive: Duration,
    pub reconnect_max: Duration,
    /// Where links come from, as others see it; `None`: the system chooses.
    pub source_ip: Option<IpAddr>,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            frame_bytes_max: 256 << 20,
            queue_bytes_max: 64 << 20,
            calls_per_link_max: 16_384,
            requests_per_link_max: 1_024,
            connect_timeout: Duration::from_secs(2),
            keepalive: Duration::from_secs(5),
            reconnect_max: Duration::from_secs(1),
            source_ip: None,
        }
    }
}

/// The links of one shard to other nodes. Must be used within a `LocalSet`.
pub struct TcpTransport {
    shared: Rc<Shared>,
}

/// What the links of a transport share.
pub(super) struct Shared {
    pub local: Arc<Local>,
    pub options: LinkOptions,
    pub clock: Rc<dyn Clock>,
    pub metrics: Arc<InternodeMetrics>,
    random: RefCell<SplitMix64>,
    links: RefCell<BTreeMap<LinkKey, Rc<Link>>>,
    /// Nodes that could not be reached.
    absent: RefCell<BTreeMap<SocketAddr, Absent>>,
    view: RefCell<Option<Arc<ClusterView>>>,
    /// When the earliest request is over, if any waits; the timer runs exactly then.
    next_expiry: Cell<Option<Duration>>,
    expiry_advanced: Notify,
}

struct Absent {
    failure: LinkFailure,
    pause: Duration,
    /// On the monotonic clock.
    retry_at: Duration,
}

impl TcpTransport {
    /// `random_seed` is for the jitter of reconnecting.
    pub fn new(
        local: Arc<Local>,
        options: LinkOptions,
        clock: Rc<dyn Clock>,
        random_seed: u64,
        metrics: Arc<InternodeMetrics>,
    ) -> Self {
        let shared = Rc::new(Shared {
            local,
            options,
            clock,
            metrics,
            random: RefCell::new(SplitMix64::new(random_seed)),
            links: RefCell::default(),
            absent: RefCell::default(),
            view: RefCell::new(None),
            next_expiry: Cell::new(None),
            expiry_advanced: Notify::new(),
        });
        Self { shared }
    }

    fn request(&self, to: Destination, request: Message, deadline: Duration) -> Result<Answer, CallError> {
        self.shared.metrics.calls.increment();
        let link = self.link(to, &request)?;
        let had_expiry = self.shared.next_expiry.get().is_some();
        let answer = link.request(&self.shared, to, request.bytes, deadline)?;
        if !had_expiry {
            tokio::task::spawn_local(expire(self.shared.clone()));
        }
        Ok(answer)
    }

    fn link(&self, to: Destination, message: &Message) -> Result<Rc<Link>, CallError> {
        let limit_bytes = self.shared.options.frame_bytes_max;
        if message.bytes.len() > limit_bytes as usize {
            return Err(CallError::TooLarge { address: to.address, bytes: message.bytes.len(), limit_bytes });
        }
        let key = LinkKey { address: to.address, shard: to.shard, lane: message.lane };
        if let Some(link) = self.shared.links.borrow().get(&key) {
            return Ok(link.clone());
        }
        if let Some(absent) = self.shared.absent.borrow().get(&to.address)
            && self.shared.clock.monotonic() < absent.retry_at
        {
            return Err(absent.failure.as_call_error(to.address));
        }
        let link = Rc::new(Link::new(key));
        self.shared.links.borrow_mut().insert(key, link.clone());
        tokio::task::spawn_local(link.clone().run(self.shared.clone()));
        Ok(link)
    }
}

impl Transport for TcpTransport {
    fn call(
        &self,
        to: Destination,
        request: Message,
        deadline: Duration,
    ) -> LocalBoxFuture<'static, Result<Bytes, CallError>> {
        match self.request(to, request, deadline) {
            Ok(answer) => Box::pin(async move {
                answer.await.unwrap_or_else(|_| {
                    let reason = "this node is shutting down".to_owned();
                    Err(CallError::Unreachable { address: to.address, reason })
                })
            }),
            Err(error) => {
                self.shared.metrics.failures.increment();
                Box::pin(std::future::ready(Err(error)))
            }
        }
    }

    fn send(&self, to: Destination, message: Message) {
        self.shared.metrics.messages.increment();
        let sent = self.link(to, &message).and_then(|link| link.send(&self.shared, to, message.bytes));
        if let Err(error) = sent {
            tracing::trace!(%error, "a message is lost");
        }
    }

    fn resolve(&self, endpoint: &Endpoint) -> LocalBoxFuture<'static, std::io::Result<Vec<SocketAddr>>> {
        let endpoint = endpoint.clone();
        Box::pin(async move { Ok(tokio::net::lookup_host(endpoint.host_and_port()).await?.collect()) })
    }

    fn view_changed(&self, view: &Arc<ClusterView>) {
        // Who is known to be up again is tried at once.
        let before = self.shared.view.borrow_mut().replace(view.clone());
        for host_id in view.alive.iter() {
            let was_alive = before.as_ref().is_some_and(|before| before.is_alive(host_id));
            if !was_alive && let Some(member) = view.topology.member(host_id) {
                self.shared.absent.borrow_mut().remove(&member.internode_address);
            }
        }
    }
}

impl Shared {
    pub fn is_removed(&self, host_id: &HostId) -> bool {
        self.view.borrow().as_ref().is_some_and(|view| view.topology.removed.contains(host_id))
    }

    /// A request ends at this time at the latest.
    pub fn expect_expiry(&self, at: Duration) {
        match self.next_expiry.get() {
            Some(next) if next <= at => {}
            next => {
                self.next_expiry.set(Some(at));
                if next.is_some() {
                    self.expiry_advanced.notify_one();
                }
            }
        }
    }

    /// A link has ended: the next request makes another.
    pub fn forget(&self, key: &LinkKey) {
        self.links.borrow_mut().remove(key);
    }

    pub fn connected(&self, key: &LinkKey, host_id: HostId) {
        self.metrics.links.increment();
        tracing::debug!(address = %key.address, shard = key.shard, lane = ?key.lane, %host_id, "linked");
    }

    pub fn disconnected(&self, key: &LinkKey, host_id: HostId, since: Duration, failure: &LinkFailure) {
        self.metrics.links.decrement();
        let now = self.clock.monotonic();
        if now.saturating_sub(since) < self.options.reconnect_max {
            // It cannot keep a link: as bad as one that makes none.
            self.note_absent(key, failure, now);
        } else {
            self.absent.borrow_mut().remove(&key.address);
        }
        if let LinkFailure::Nonsense(reason) = failure {
            tracing::warn!(address = %key.address, %host_id, reason, "a link was dropped: nonsense");
        } else {
            tracing::info!(address = %key.address, %host_id, reason = %failure, "a link has ended");
        }
    }

    pub fn connect_failed(&self, key: &LinkKey, failure: &LinkFailure) {
        self.note_absent(key, failure, self.clock.monotonic());
    }

    fn note_absent(&self, key: &LinkKey, failure: &LinkFailure, now: Duration) {
        let mut absent = self.absent.borrow_mut();
        let before = absent.get(&key.address);
        if before.is_some_and(|before| now < before.retry_at) {
            // Another link to the same node has failed with this one.
            return;
        }
        let is_news = before.is_none_or(|before| before.failure.to_string() != failure.to_string());
        if is_news {
            tracing::warn!(address = %key.address, reason = %failure, "a node cannot be reached");
        }
        let pause = before.map_or(RECONNECT_MIN, |before| (before.pause * 2).min(self.options.reconnect_max));
        let half_ms = u64::from(super::link::milliseconds(pause)) / 2;
        let jitter = Duration::from_millis(self.random.borrow_mut().below(half_ms + 1));
        let retry_at = now + pause / 2 + jitter;
        absent.insert(key.address, Absent { failure: failure.clone(), pause, retry_at });
    }
}

/// Ends requests whose time is over, until none waits.
async fn expire(shared: Rc<Shared>) {
    while let Some(at) = shared.next_expiry.get() {
        let wait = at.saturating_sub(shared.clock.monotonic()).max(EXPIRY_GRAIN);
        tokio::select! {
            biased;
            () = shared.expiry_advanced.notified() => continue,
            () = shared.clock.sleep(wait) => {}
        }
        let now = shared.clock.monotonic();
        let links: Vec<Rc<Link>> = shared.links.borrow().values().cloned().collect();
        let mut next: Option<Duration> = None;
        for link in links {
            let (expired, next_of_link) = link.expire(now);
            shared.metrics.timeouts.add(expired);
            next = [next, next_of_link].into_iter().flatten().min();
        }
        shared.next_expiry.set(next);
    }
}
