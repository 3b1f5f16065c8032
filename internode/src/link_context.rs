//! The state that all outgoing links of a shard share: options, metrics, unreachable nodes, and the next deadline.
//!
//! Invariant: connecting to an unreachable node is retried at growing intervals (with jitter). In between requests to
//! it fail at once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_engine::io::{Clock, SplitMix64};
use helenus_ring::HostId;
use helenus_ring::view::ClusterView;
use tokio::sync::Notify;

use super::encryption::LinkEncryption;
use super::frame::FrameError;
use super::handshake::{HandshakeError, Local, REMOVED_CODE, Refusal};
use super::metrics::InternodeMetrics;
use super::service::TrafficClass;
use super::transport::CallError;

/// The first pause after a failed attempt to connect to a node.
const RECONNECT_MIN: Duration = Duration::from_millis(50);
/// How long a node that did not take part in optional encryption is not asked again for a further link.
const PLAIN_PAUSE: Duration = Duration::from_secs(30);
/// Limits and timeouts of links.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    pub frame_bytes_max: u32,
    pub queue_bytes_max: usize,
    pub calls_per_link_max: usize,
    pub requests_per_link_max: usize,
    pub connect_timeout: Duration,
    pub keepalive: Duration,
    pub reconnect_max: Duration,
    /// Source address of links for other nodes; `None`: the system chooses.
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

/// The identity of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkKey {
    pub address: SocketAddr,
    pub shard: u16,
    pub class: TrafficClass,
}

/// The reason why a link has ended, or was never made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkFailure {
    #[error("{0}")]
    Unreachable(String),
    /// Either side has refused the other.
    #[error("{reason}")]
    Refused { code: u16, reason: String },
    /// The other node reports that this one was removed from the cluster.
    #[error("{0}")]
    Removed(String),
    #[error("{0}")]
    Nonsense(String),
}

impl LinkFailure {
    /// The error for a request of the link.
    pub fn as_call_error(&self, address: SocketAddr) -> CallError {
        let reason = self.to_string();
        match self {
            Self::Unreachable(_) => CallError::Unreachable { address, reason },
            Self::Refused { code, .. } => CallError::Refused { address, code: *code, reason },
            Self::Removed(_) => CallError::Removed { address, reason },
            Self::Nonsense(_) => CallError::Malformed { address, reason },
        }
    }
}

impl From<HandshakeError> for LinkFailure {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Io(error) => error.into(),
            HandshakeError::Magic | HandshakeError::Malformed(_) => Self::Nonsense(error.to_string()),
            HandshakeError::RefusedByPeer { code: REMOVED_CODE, .. } => Self::Removed(error.to_string()),
            HandshakeError::RefusedByPeer { code, .. } => Self::Refused { code, reason: error.to_string() },
            HandshakeError::Refused(refusal) => refusal.into(),
        }
    }
}

impl From<Refusal> for LinkFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { code: refusal.code(), reason: refusal.to_string() }
    }
}

impl From<io::Error> for LinkFailure {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(match error.kind() {
            io::ErrorKind::UnexpectedEof => "it has closed the link".to_owned(),
            _ => error.to_string(),
        })
    }
}

impl From<FrameError> for LinkFailure {
    fn from(error: FrameError) -> Self {
        Self::Nonsense(error.to_string())
    }
}

/// The state shared by the links of a transport.
pub struct LinkContext {
    pub local: Arc<Local>,
    pub options: LinkOptions,
    /// `None`: links are plain.
    pub encryption: Option<LinkEncryption>,
    pub clock: Rc<dyn Clock>,
    pub metrics: Arc<InternodeMetrics>,
    /// Nodes that do not take part in optional encryption, with the time at which they are asked again.
    plain: RefCell<BTreeMap<SocketAddr, Duration>>,
    random: RefCell<SplitMix64>,
    /// Nodes that could not be reached.
    absent: RefCell<BTreeMap<SocketAddr, Absent>>,
    view: RefCell<Option<Arc<ClusterView>>>,
    /// The earliest deadline of a waiting request; the timer runs exactly while there is one.
    next_expiry: Cell<Option<Duration>>,
    expiry_advanced: Notify,
}

struct Absent {
    failure: LinkFailure,
    pause: Duration,
    /// On the monotonic clock.
    retry_at: Duration,
}

impl LinkContext {
    /// `random_seed` is for the jitter of reconnecting.
    pub fn new(
        local: Arc<Local>,
        options: LinkOptions,
        encryption: Option<LinkEncryption>,
        clock: Rc<dyn Clock>,
        random_seed: u64,
        metrics: Arc<InternodeMetrics>,
    ) -> Self {
        Self {
            local,
            options,
            encryption,
            plain: RefCell::default(),
            clock,
            metrics,
            random: RefCell::new(SplitMix64::new(random_seed)),
            absent: RefCell::default(),
            view: RefCell::new(None),
            next_expiry: Cell::new(None),
            expiry_advanced: Notify::new(),
        }
    }

    /// The error for requests to a node that may not be retried yet.
    pub fn absence(&self, address: SocketAddr) -> Option<CallError> {
        let absent = self.absent.borrow();
        let absent = absent.get(&address).filter(|absent| self.clock.monotonic() < absent.retry_at)?;
        Some(absent.failure.as_call_error(address))
    }

    /// Installs a new view of the cluster. Members that are alive again may be retried at once.
    pub fn view_changed(&self, view: &Arc<ClusterView>) {
        let before = self.view.borrow_mut().replace(view.clone());
        for host_id in view.alive.iter() {
            let was_alive = before.as_ref().is_some_and(|before| before.is_alive(host_id));
            if !was_alive && let Some(member) = view.topology.member(host_id) {
                self.absent.borrow_mut().remove(&member.internode_address);
            }
        }
    }

    /// Whether a node did not take part in optional encryption a moment ago.
    pub fn is_plain(&self, address: SocketAddr) -> bool {
        self.plain.borrow().get(&address).is_some_and(|until| self.clock.monotonic() < *until)
    }

    /// Notes that a node does not take part in optional encryption, or that this is not known any more.
    pub fn note_plain(&self, address: SocketAddr, is_plain: bool) {
        let mut plain = self.plain.borrow_mut();
        if is_plain {
            plain.insert(address, self.clock.monotonic() + PLAIN_PAUSE);
        } else {
            plain.remove(&address);
        }
    }

    /// The earliest deadline, if any request waits.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.next_expiry.get()
    }

    /// Sets the earliest deadline.
    pub fn set_next_expiry(&self, at: Option<Duration>) {
        self.next_expiry.set(at);
    }

    /// Resolves when a request with an earlier deadline than all others waits.
    pub async fn expiry_advanced(&self) {
        self.expiry_advanced.notified().await;
    }

    pub fn is_removed(&self, host_id: &HostId) -> bool {
        self.view.borrow().as_ref().is_some_and(|view| view.topology.removed.contains(host_id))
    }

    /// Announces a request that ends at this time at the latest.
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

    pub fn connected(&self, key: &LinkKey, host_id: HostId) {
        tracing::debug!(address = %key.address, shard = key.shard, class = ?key.class, %host_id, "linked");
    }

    pub fn disconnected(&self, key: &LinkKey, host_id: HostId, since: Duration, failure: &LinkFailure) {
        let now = self.clock.monotonic();
        if now.saturating_sub(since) < self.options.reconnect_max {
            // The node cannot keep a link, which counts like one that cannot be reached.
            self.note_absent(key, failure, now);
        } else {
            self.absent.borrow_mut().remove(&key.address);
        }
        if let LinkFailure::Nonsense(reason) = failure {
            tracing::warn!(address = %key.address, %host_id, reason, "a link was dropped: invalid data");
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
            // Another link to this node has failed at the same time.
            return;
        }
        let is_news = before.is_none_or(|before| before.failure.to_string() != failure.to_string());
        if is_news {
            tracing::warn!(address = %key.address, reason = %failure, "a node cannot be reached");
        }
        let pause = before.map_or(RECONNECT_MIN, |before| (before.pause * 2).min(self.options.reconnect_max));
        let half_ms = u64::from(milliseconds(pause)) / 2;
        let jitter = Duration::from_millis(self.random.borrow_mut().below(half_ms + 1));
        let retry_at = now + pause / 2 + jitter;
        absent.insert(key.address, Absent { failure: failure.clone(), pause, retry_at });
    }
}

/// Whole milliseconds, at least one.
pub fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).max(1)
}
