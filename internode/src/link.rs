//! One outgoing link: from a shard of this node to a shard of another, for one traffic class.
//!
//! It is created with the first request for its destination, connects (requests wait meanwhile), carries requests and
//! their answers, and ends with its first failure. It never reconnects: the next request creates another link.
//!
//! Invariants:
//! * Every request gets exactly one outcome: its answer, a timeout, or the failure of the link.
//! * A request reaches only the host for which it was intended, whichever node has the address now.
//! * Waiting messages are bounded, in bytes and in requests.
//! * All requests of one turn leave in one write.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helenus_ring::HostId;
use helenus_tls::stream::Stream;
use tokio::io::Interest;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Notify, oneshot};

use super::encryption::LinkEncryption;
use super::frame::{Frame, FrameKind};
use super::handshake::{HandshakeError, Opening, Refusal};
use super::link_context::{LinkContext, LinkFailure, LinkKey, milliseconds};
use super::metrics::OutboundTraffic;
use super::transport::{CallError, Destination};
use super::wire::{Inbox, Outbox};

/// A request that waits for its answer.
struct Waiting {
    answer: oneshot::Sender<Result<Bytes, CallError>>,
    /// On the monotonic clock.
    expires: Duration,
    deadline: Duration,
}

/// A message that waits for the link to connect.
struct Queued {
    kind: FrameKind,
    call_id: u64,
    expected: Option<HostId>,
    /// On the monotonic clock; `None` for messages without answers.
    expires: Option<Duration>,
    payload: Bytes,
}

enum LinkState {
    Connecting { queued: Vec<Queued>, bytes: usize },
    Up { host_id: HostId, outbox: Outbox },
    Ended,
}

/// The future result of a request.
pub type PendingResponse = oneshot::Receiver<Result<Bytes, CallError>>;

pub struct Link {
    key: LinkKey,
    traffic: Arc<OutboundTraffic>,
    state: RefCell<LinkState>,
    waiting: RefCell<BTreeMap<u64, Waiting>>,
    next_call_id: Cell<u64>,
    /// Notified when something was queued.
    queued: Notify,
}

impl Link {
    pub fn new(key: LinkKey, traffic: Arc<OutboundTraffic>) -> Self {
        Self {
            key,
            traffic,
            state: RefCell::new(LinkState::Connecting { queued: Vec::new(), bytes: 0 }),
            waiting: RefCell::default(),
            next_call_id: Cell::new(1),
            queued: Notify::new(),
        }
    }

    /// Queues a request.
    pub fn request(
        &self,
        shared: &LinkContext,
        to: Destination,
        payload: Bytes,
        deadline: Duration,
    ) -> Result<PendingResponse, CallError> {
        if self.waiting.borrow().len() >= shared.options.calls_per_link_max {
            self.traffic.overloaded.increment();
            return Err(CallError::Overloaded { address: to.address });
        }
        let expires = shared.clock.monotonic() + deadline;
        let call_id = self.next_call_id.replace(self.next_call_id.get() + 1);
        self.queue(shared, FrameKind::Request, call_id, to, Some((expires, deadline)), payload)?;
        let (answer, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(call_id, Waiting { answer, expires, deadline });
        self.traffic.pending.increment();
        shared.expect_expiry(expires);
        Ok(receiver)
    }

    /// Queues a message without an answer.
    pub fn send(&self, shared: &LinkContext, to: Destination, payload: Bytes) -> Result<(), CallError> {
        self.queue(shared, FrameKind::OneWay, 0, to, None, payload)
    }

    fn queue(
        &self,
        shared: &LinkContext,
        kind: FrameKind,
        call_id: u64,
        to: Destination,
        deadline: Option<(Duration, Duration)>,
        payload: Bytes,
    ) -> Result<(), CallError> {
        // A single message may be larger than the limit.
        let is_full = |bytes: usize| bytes > 0 && bytes + payload.len() > shared.options.queue_bytes_max;
        match &mut *self.state.borrow_mut() {
            LinkState::Connecting { queued, bytes } => {
                if is_full(*bytes) || queued.len() >= shared.options.calls_per_link_max {
                    self.traffic.overloaded.increment();
                    return Err(CallError::Overloaded { address: to.address });
                }
                *bytes += payload.len();
                let expires = deadline.map(|(expires, _)| expires);
                queued.push(Queued { kind, call_id, expected: to.host_id, expires, payload });
            }
            LinkState::Up { host_id, outbox } => {
                check_host(to.host_id, *host_id)
                    .map_err(|refusal| LinkFailure::from(refusal).as_call_error(to.address))?;
                if is_full(outbox.bytes()) {
                    self.traffic.overloaded.increment();
                    return Err(CallError::Overloaded { address: to.address });
                }
                outbox.push(kind, call_id, deadline.map_or(0, |(_, left)| milliseconds(left)), payload);
            }
            LinkState::Ended => {
                let reason = "the link has just ended".to_owned();
                return Err(CallError::Unreachable { address: to.address, reason });
            }
        }
        self.traffic.sent.increment();
        self.queued.notify_one();
        Ok(())
    }

    /// Ends the requests whose deadlines have passed. Returns their number, and the next deadline.
    pub fn expire(&self, now: Duration) -> (u64, Option<Duration>) {
        let mut expired = Vec::new();
        let mut next: Option<Duration> = None;
        self.waiting.borrow_mut().retain(|_, waiting| {
            // The caller may have dropped the receiver: then the answer is lost.
            if waiting.expires <= now {
                let answer = mem::replace(&mut waiting.answer, oneshot::channel().0);
                expired.push((answer, waiting.deadline));
                return false;
            }
            next = Some(next.map_or(waiting.expires, |next| next.min(waiting.expires)));
            true
        });
        let count = expired.len() as u64;
        self.traffic.expired.add(count);
        self.traffic.pending.add(-(count as i64));
        for (answer, deadline) in expired {
            let after_ms = u64::from(milliseconds(deadline));
            let _ = answer.send(Err(CallError::TimedOut { address: self.key.address, after_ms }));
        }
        (count, next)
    }

    /// Runs the link's task.
    pub async fn run(self: Rc<Self>, shared: Rc<LinkContext>) {
        self.traffic.attempts.increment();
        let timeout = shared.clock.sleep(shared.options.connect_timeout);
        let connected = tokio::select! {
            biased;
            connected = self.connect(&shared) => connected,
            () = timeout => Err(LinkFailure::Unreachable(format!(
                "no link within {} ms", shared.options.connect_timeout.as_millis()
            ))),
        };
        let failure = match connected {
            Err(failure) => {
                shared.connect_failed(&self.key, &failure);
                failure
            }
            Ok((stream, host_id)) => {
                shared.connected(&self.key, host_id);
                self.traffic.successful_attempts.increment();
                self.traffic.links.increment();
                shared.metrics.link_begun(stream.is_encrypted());
                let since = shared.clock.monotonic();
                self.go_up(&shared, host_id);
                let failure = match self.exchange(&shared, &stream).await {
                    Ok(never) => match never {},
                    Err(failure) => failure,
                };
                stream.close();
                self.traffic.links.decrement();
                shared.metrics.link_ended(stream.is_encrypted());
                shared.disconnected(&self.key, host_id, since, &failure);
                failure
            }
        };
        *self.state.borrow_mut() = LinkState::Ended;
        let error = failure.as_call_error(self.key.address);
        for (_, waiting) in mem::take(&mut *self.waiting.borrow_mut()) {
            shared.metrics.failures.increment();
            self.traffic.errors.increment();
            self.traffic.pending.decrement();
            let _ = waiting.answer.send(Err(error.clone()));
        }
    }

    /// Connects, encrypted if this node encrypts its links. With optional encryption a node that does not take part is connected
    /// to without.
    async fn connect(&self, shared: &LinkContext) -> Result<(Stream, HostId), LinkFailure> {
        let address = self.key.address;
        let socket = self.connect_socket(shared).await?;
        let Some(encryption) = &shared.encryption else {
            return self.open(shared, Stream::Plain(socket)).await;
        };
        let mut plain_socket = socket;
        if encryption.is_required() || !shared.is_plain(address) {
            let failure = match self.open_encrypted(shared, encryption, plain_socket).await {
                Ok(opened) => return Ok(opened),
                Err(failure) => failure,
            };
            let is_refused = matches!(failure, LinkFailure::Refused { .. } | LinkFailure::Removed(_));
            if encryption.is_required() || is_refused {
                return Err(failure);
            }
            tracing::info!(%address, reason = %failure, "no encrypted link can be made: a plain one is tried");
            plain_socket = self.connect_socket(shared).await?;
        }
        let opened = self.open(shared, Stream::Plain(plain_socket)).await;
        shared.note_plain(address, opened.is_ok());
        opened
    }

    async fn open_encrypted(
        &self,
        shared: &LinkContext,
        encryption: &LinkEncryption,
        socket: TcpStream,
    ) -> Result<(Stream, HostId), LinkFailure> {
        let (stream, host_id) = self.open(shared, encryption.connect(socket).await?).await?;
        encryption.check(&stream, host_id, self.key.address.ip()).await.map_err(HandshakeError::from)?;
        Ok((stream, host_id))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the transport over TCP")]
    async fn connect_socket(&self, shared: &LinkContext) -> Result<TcpStream, LinkFailure> {
        let address = self.key.address;
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(own) = shared.options.source_ip
            && own.is_ipv4() == address.is_ipv4()
        {
            socket.bind(SocketAddr::new(own, 0))?;
        }
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Makes the handshake of the link.
    async fn open(&self, shared: &LinkContext, mut stream: Stream) -> Result<(Stream, HostId), LinkFailure> {
        shared.local.hello(shared.clock.now_micros(), self.key.shard).write(&mut stream).await?;
        let node = match Opening::read(&mut stream).await? {
            Opening::Welcome { version, node, .. } => {
                shared.local.choose_version(version, version).map_err(HandshakeError::from)?;
                node
            }
            Opening::Refusal { code, text } => {
                return Err(HandshakeError::RefusedByPeer { code, text }.into());
            }
            Opening::Hello { .. } => {
                return Err(LinkFailure::Nonsense("the answer to a HELLO is a HELLO".to_owned()));
            }
        };
        let now_micros = shared.clock.now_micros();
        shared
            .local
            .check(&node, now_micros, |host_id| shared.is_removed(host_id))
            .map_err(HandshakeError::from)?;
        Ok((stream, node.host_id))
    }

    /// Moves the messages that waited for the link into its outbox.
    fn go_up(&self, shared: &LinkContext, host_id: HostId) {
        let mut outbox = Outbox::default();
        let before = mem::replace(&mut *self.state.borrow_mut(), LinkState::Ended);
        let LinkState::Connecting { queued, .. } = before else { return };
        let now = shared.clock.monotonic();
        let mut mistaken = None;
        for message in queued {
            if let Err(refusal) = check_host(message.expected, host_id) {
                let failure = LinkFailure::from(refusal.clone());
                if let Some(waiting) = self.waiting.borrow_mut().remove(&message.call_id) {
                    self.traffic.pending.decrement();
                    let _ = waiting.answer.send(Err(failure.as_call_error(self.key.address)));
                }
                mistaken = Some(refusal);
                continue;
            }
            let left_ms = match message.expires {
                // It has timed out already.
                Some(expires) if expires <= now => continue,
                Some(expires) => milliseconds(expires.saturating_sub(now)),
                None => 0,
            };
            outbox.push(message.kind, message.call_id, left_ms, message.payload);
        }
        if let Some(refusal) = mistaken {
            tracing::warn!(address = %self.key.address, %refusal, "the address belongs to another node than expected");
        }
        *self.state.borrow_mut() = LinkState::Up { host_id, outbox };
    }

    /// Exchanges requests and answers until the link ends.
    async fn exchange(
        &self,
        shared: &LinkContext,
        stream: &Stream,
    ) -> Result<std::convert::Infallible, LinkFailure> {
        let mut inbox = Inbox::new(shared.options.frame_bytes_max);
        let tick = shared.options.keepalive / 2;
        let mut ticking = shared.clock.sleep(tick);
        let mut last_read = shared.clock.monotonic();
        loop {
            let is_written = self.flush(shared, stream)?;
            match inbox.read(stream)? {
                Some(0) => return Err(LinkFailure::Unreachable("it has closed the link".to_owned())),
                Some(read) => {
                    shared.metrics.received_bytes.add(read as u64);
                    last_read = shared.clock.monotonic();
                    while let Some(frame) = inbox.next()? {
                        self.take(frame)?;
                    }
                    // Callers that got their answers send new requests, and all of these leave in one write.
                    tokio::task::yield_now().await;
                    continue;
                }
                None => {}
            }
            let interest =
                if is_written { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
            tokio::select! {
                biased;
                () = self.queued.notified() => {
                    // Other requests of this turn get into the same write.
                    tokio::task::yield_now().await;
                }
                ready = stream.ready(interest) => {
                    ready?;
                }
                () = &mut ticking => {
                    ticking = shared.clock.sleep(tick);
                    let silence = shared.clock.monotonic().saturating_sub(last_read);
                    if silence >= 2 * shared.options.keepalive {
                        return Err(LinkFailure::Unreachable(format!("silent for {} ms", silence.as_millis())));
                    }
                    if silence >= shared.options.keepalive {
                        self.ping();
                    }
                    let encryption = shared.encryption.as_ref();
                    if let Some(reason) = encryption.and_then(|it| it.objection(stream, shared.clock.now_micros())) {
                        return Err(LinkFailure::Unreachable(format!(
                            "its certificate is not accepted any more: {reason}"
                        )));
                    }
                }
            }
        }
    }

    /// Writes the outbox. Returns whether everything is written.
    fn flush(&self, shared: &LinkContext, stream: &Stream) -> Result<bool, LinkFailure> {
        let mut state = self.state.borrow_mut();
        let LinkState::Up { outbox, .. } = &mut *state else { return Ok(true) };
        let written = outbox.flush(stream)?;
        shared.metrics.sent_bytes.add(written as u64);
        self.traffic.sent_bytes.add(written as u64);
        Ok(outbox.is_empty())
    }

    fn ping(&self) {
        if let LinkState::Up { outbox, .. } = &mut *self.state.borrow_mut() {
            outbox.push(FrameKind::Ping, 0, 0, Bytes::new());
        }
    }

    fn take(&self, frame: Frame) -> Result<(), LinkFailure> {
        let result = match frame.kind {
            FrameKind::Answer => Ok(frame.payload),
            FrameKind::Failed => {
                let reason = String::from_utf8_lossy(&frame.payload).into_owned();
                Err(CallError::Malformed { address: self.key.address, reason })
            }
            FrameKind::Pong => return Ok(()),
            FrameKind::Goodbye => return Err(LinkFailure::Unreachable("it is shutting down".to_owned())),
            FrameKind::Request | FrameKind::OneWay | FrameKind::Ping => {
                return Err(LinkFailure::Nonsense("a request on a link for answers".to_owned()));
            }
        };
        // Without a waiting request the answer came too late.
        if let Some(waiting) = self.waiting.borrow_mut().remove(&frame.call_id) {
            self.traffic.pending.decrement();
            let _ = waiting.answer.send(result);
        }
        Ok(())
    }
}

fn check_host(expected: Option<HostId>, found: HostId) -> Result<(), Refusal> {
    match expected {
        Some(expected) if expected != found => Err(Refusal::Host { expected, found }),
        _ => Ok(()),
    }
}
