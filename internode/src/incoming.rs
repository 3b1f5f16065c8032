//! A link that another node has made: its requests are executed on this shard and answered.
//!
//! Invariants:
//! * The requests of a link in flight, and the bytes of its unsent answers, are bounded: above a limit nothing is
//!   read.
//! * A request whose deadline has passed when it would begin is dropped.
//! * All frames of one read are started before anything is written; all answers that are ready leave in one write.
//! * A link is closed if the other node sends invalid bytes, or nothing for long.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helenus_engine::io::Clock;
use helenus_ring::HostId;
use helenus_tls::stream::Stream;
use thiserror::Error;
use tokio::io::Interest;
use tokio::sync::{Notify, watch};

use super::frame::{Frame, FrameError, FrameKind};
use super::link_context::LinkOptions;
use super::transport::Handler;
use super::wire::{Inbox, Outbox};
use crate::encryption::LinkEncryption;
use crate::metrics::{InboundTraffic, InternodeMetrics};

/// Number of keepalive periods of silence after which a link is closed (the node that made it sends a ping after
/// one).
const SILENT_KEEPALIVES: u32 = 3;

/// The node at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub host_id: HostId,
    /// The remote address of the link.
    pub address: SocketAddr,
    /// The version of the protocol on the link.
    pub version: u16,
}

/// The parts with which a shard serves links.
pub struct Server {
    pub handler: Rc<dyn Handler>,
    pub options: LinkOptions,
    /// `None`: links are plain.
    pub encryption: Option<LinkEncryption>,
    pub clock: Rc<dyn Clock>,
    pub metrics: Arc<InternodeMetrics>,
    /// True once the node is stopping.
    pub stopping: watch::Receiver<bool>,
}

#[derive(Debug, Error)]
enum Ended {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("a frame of kind {0:?} on a link for requests")]
    Kind(FrameKind),
    #[error("closed")]
    Closed,
    #[error("silent for {0} ms")]
    Silent(u128),
    #[error("its certificate is not accepted any more: {0}")]
    Certificate(String),
}

/// The state that the link's task shares with the requests in flight.
struct Incoming {
    peer: Peer,
    traffic: Arc<InboundTraffic>,
    outbox: RefCell<Outbox>,
    under_way: Cell<usize>,
    /// Notified when a request has ended.
    ended: Notify,
}

/// Serves a link until it ends. Its handshake is complete.
pub async fn serve(server: Server, stream: Stream, peer: Peer) {
    let incoming = Rc::new(Incoming {
        peer,
        traffic: server.metrics.inbound(peer.host_id),
        outbox: RefCell::default(),
        under_way: Cell::new(0),
        ended: Notify::new(),
    });
    let mut stopping = server.stopping.clone();
    server.metrics.link_begun(stream.is_encrypted());
    let ended = tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => None,
        ended = incoming.run(&server, &stream) => Some(ended),
    };
    server.metrics.link_ended(stream.is_encrypted());
    let Peer { host_id, address, .. } = peer;
    match ended {
        // Bytes that the socket does not accept at once are lost with the link.
        None => {
            incoming.outbox.borrow_mut().push(FrameKind::Goodbye, 0, 0, Bytes::new());
            let _ = incoming.outbox.borrow_mut().flush(&stream);
        }
        Some(reason @ (Ended::Frame(_) | Ended::Kind(_))) => {
            incoming.traffic.errors.increment();
            tracing::warn!(%address, %host_id, %reason, "a link was dropped: invalid data");
        }
        Some(reason @ Ended::Certificate(_)) => {
            tracing::warn!(%address, %host_id, %reason, "a link was dropped");
        }
        Some(reason) => tracing::debug!(%address, %host_id, %reason, "a link of another node has ended"),
    }
    stream.close();
}

impl Incoming {
    async fn run(self: &Rc<Self>, server: &Server, stream: &Stream) -> Ended {
        match self.exchange(server, stream).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn exchange(
        self: &Rc<Self>,
        server: &Server,
        stream: &Stream,
    ) -> Result<std::convert::Infallible, Ended> {
        let mut inbox = Inbox::new(server.options.frame_bytes_max);
        let tick = server.options.keepalive;
        let mut ticking = server.clock.sleep(tick);
        let mut last_read = server.clock.monotonic();
        loop {
            while self.takes_requests(server) {
                match inbox.next()? {
                    Some(frame) => self.take(server, frame, last_read)?,
                    None => break,
                }
            }
            let sent = self.outbox.borrow_mut().flush(stream)?;
            server.metrics.sent_bytes.add(sent as u64);
            let reads = self.takes_requests(server);
            if reads {
                match inbox.read(stream)? {
                    Some(0) => return Err(Ended::Closed),
                    Some(read) => {
                        server.metrics.received_bytes.add(read as u64);
                        self.traffic.received_bytes.add(read as u64);
                        last_read = server.clock.monotonic();
                        continue;
                    }
                    None => {}
                }
            }
            let is_all_sent = self.outbox.borrow().is_empty() && !stream.has_unsent();
            let interest = match (reads, is_all_sent) {
                (true, true) => Some(Interest::READABLE),
                (true, false) => Some(Interest::READABLE | Interest::WRITABLE),
                (false, false) => Some(Interest::WRITABLE),
                (false, true) => None,
            };
            tokio::select! {
                biased;
                () = self.ended.notified() => {
                    // Answers of requests that became ready with this one get into the same write.
                    tokio::task::yield_now().await;
                }
                ready = stream.ready(interest.unwrap_or(Interest::READABLE)), if interest.is_some() => {
                    ready?;
                }
                () = &mut ticking => {
                    ticking = server.clock.sleep(tick);
                    let silence = server.clock.monotonic().saturating_sub(last_read);
                    if reads && silence >= SILENT_KEEPALIVES * server.options.keepalive {
                        return Err(Ended::Silent(silence.as_millis()));
                    }
                    let encryption = server.encryption.as_ref();
                    if let Some(reason) = encryption.and_then(|it| it.objection(stream, server.clock.now_micros())) {
                        return Err(Ended::Certificate(reason));
                    }
                }
            }
        }
    }

    /// Whether another request may begin.
    fn takes_requests(&self, server: &Server) -> bool {
        self.under_way.get() < server.options.requests_per_link_max
            && self.outbox.borrow().bytes() < server.options.queue_bytes_max
    }

    /// Takes a frame. `arrived`: the time at which its last byte was read, or later.
    fn take(self: &Rc<Self>, server: &Server, frame: Frame, arrived: Duration) -> Result<(), Ended> {
        let needs_answer = match frame.kind {
            FrameKind::Request => true,
            FrameKind::OneWay => false,
            FrameKind::Ping => {
                self.outbox.borrow_mut().push(FrameKind::Pong, frame.call_id, 0, Bytes::new());
                return Ok(());
            }
            FrameKind::Goodbye => return Err(Ended::Closed),
            kind @ (FrameKind::Answer | FrameKind::Pong | FrameKind::Failed) => {
                return Err(Ended::Kind(kind));
            }
        };
        server.metrics.requests.increment();
        self.traffic.received.increment();
        let deadline = Duration::from_millis(u64::from(frame.deadline_ms));
        if needs_answer && server.clock.monotonic().saturating_sub(arrived) >= deadline {
            server.metrics.dropped.increment();
            self.traffic.expired.increment();
            return Ok(());
        }
        self.under_way.set(self.under_way.get() + 1);
        let (incoming, limit_bytes) = (self.clone(), server.options.frame_bytes_max as usize);
        let handled = server.handler.clone().handle(self.peer.host_id, frame.payload, needs_answer);
        tokio::task::spawn_local(async move {
            let answer = handled.await;
            incoming.under_way.set(incoming.under_way.get() - 1);
            incoming.traffic.processed.increment();
            if needs_answer && let Some(answer) = answer {
                incoming.answer(frame.call_id, answer, limit_bytes);
            }
            incoming.ended.notify_one();
        });
        Ok(())
    }

    fn answer(&self, call_id: u64, answer: Bytes, limit_bytes: usize) {
        let mut outbox = self.outbox.borrow_mut();
        if answer.len() > limit_bytes {
            let bytes = answer.len();
            let reason = format!("the answer has {bytes} bytes, above the limit of {limit_bytes}");
            outbox.push(FrameKind::Failed, call_id, 0, Bytes::from(reason));
        } else {
            outbox.push(FrameKind::Answer, call_id, 0, answer);
        }
    }
}
