//! The transport of a real node: links over TCP, created on demand, kept while they work.
//!
//! Invariants:
//! * Connecting to an unreachable node is retried at growing intervals (with jitter); in between requests to it fail
//!   at once.
//! * Every request ends by its deadline, whatever the network does: one timer for all of them runs to the earliest
//!   deadline.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::LocalBoxFuture;
use helenus_engine::io::Clock;
use helenus_ring::view::ClusterView;

use super::handshake::Local;
use super::link::{Link, PendingResponse};
use super::link_context::{LinkContext, LinkKey, LinkOptions};
use super::service::Message;
use super::transport::{CallError, Destination, Transport};
use crate::encryption::LinkEncryption;
use crate::endpoint::Endpoint;
use crate::metrics::InternodeMetrics;

/// Shortest interval between two checks of deadlines.
const EXPIRY_GRAIN: Duration = Duration::from_millis(4);

type Links = RefCell<BTreeMap<LinkKey, Rc<Link>>>;

/// The links of one shard to other nodes. Must be used within a `LocalSet`.
pub struct TcpTransport {
    shared: Rc<LinkContext>,
    links: Rc<Links>,
}

impl TcpTransport {
    /// `random_seed` is for the jitter of reconnecting; `encryption` is `None` for plain links.
    pub fn new(
        local: Arc<Local>,
        options: LinkOptions,
        encryption: Option<LinkEncryption>,
        clock: Rc<dyn Clock>,
        random_seed: u64,
        metrics: Arc<InternodeMetrics>,
    ) -> Self {
        let shared = Rc::new(LinkContext::new(local, options, encryption, clock, random_seed, metrics));
        Self { shared, links: Rc::default() }
    }

    fn request(
        &self,
        to: Destination,
        request: Message,
        deadline: Duration,
    ) -> Result<PendingResponse, CallError> {
        self.shared.metrics.calls.increment();
        let link = self.link(to, &request)?;
        let had_expiry = self.shared.next_expiry().is_some();
        let answer = link.request(&self.shared, to, request.bytes, deadline)?;
        if !had_expiry {
            tokio::task::spawn_local(expire(self.shared.clone(), self.links.clone()));
        }
        Ok(answer)
    }

    fn link(&self, to: Destination, message: &Message) -> Result<Rc<Link>, CallError> {
        let limit_bytes = self.shared.options.frame_bytes_max;
        if message.bytes.len() > limit_bytes as usize {
            return Err(CallError::TooLarge { address: to.address, bytes: message.bytes.len(), limit_bytes });
        }
        let key = LinkKey { address: to.address, shard: to.shard, class: message.class };
        if let Some(link) = self.links.borrow().get(&key) {
            return Ok(link.clone());
        }
        if let Some(error) = self.shared.absence(to.address) {
            return Err(error);
        }
        let link = Rc::new(Link::new(key, self.shared.metrics.outbound(to.address)));
        self.links.borrow_mut().insert(key, link.clone());
        let (running, shared, links) = (link.clone(), self.shared.clone(), self.links.clone());
        tokio::task::spawn_local(async move {
            running.run(shared).await;
            // The next request creates another link.
            links.borrow_mut().remove(&key);
        });
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
            tracing::trace!(%error, "a message was lost");
        }
    }

    fn resolve(&self, endpoint: &Endpoint) -> LocalBoxFuture<'static, std::io::Result<Vec<SocketAddr>>> {
        let endpoint = endpoint.clone();
        Box::pin(async move { Ok(tokio::net::lookup_host(endpoint.host_and_port()).await?.collect()) })
    }

    fn view_changed(&self, view: &Arc<ClusterView>) {
        self.shared.view_changed(view);
    }
}

/// Ends requests whose deadlines have passed, until none waits.
async fn expire(shared: Rc<LinkContext>, links: Rc<Links>) {
    while let Some(at) = shared.next_expiry() {
        let wait = at.saturating_sub(shared.clock.monotonic()).max(EXPIRY_GRAIN);
        tokio::select! {
            biased;
            () = shared.expiry_advanced() => continue,
            () = shared.clock.sleep(wait) => {}
        }
        let now = shared.clock.monotonic();
        let open: Vec<Rc<Link>> = links.borrow().values().cloned().collect();
        let mut next: Option<Duration> = None;
        for link in open {
            let (expired, next_of_link) = link.expire(now);
            shared.metrics.timeouts.add(expired);
            next = [next, next_of_link].into_iter().flatten().min();
        }
        shared.set_next_expiry(next);
    }
}
