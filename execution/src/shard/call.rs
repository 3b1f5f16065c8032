//! Requests from a shard to a shard of any node, including this one.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use helenus_internode::service::{self, Failure, ServiceRequest};
use helenus_internode::transport::{CallError, Destination, PeerError};
use helenus_observe::receipt::{Count, Receipt};
use helenus_ring::HostId;
use helenus_ring::member::Member;
use helenus_ring::metadata::{RECEIPTS, SHARES_BETWEEN_NODES, TRACES};
use tokio::sync::oneshot;

use super::context::{Message, ShardContext, run_on};
use super::receipt;
use super::trace::{self, TraceEvent};
use helenus_fair_shares::{self as shares, RoleShare, ShardShare, ShardShares};

/// A request that a shard of this node can execute. Implemented by the layer that owns the service.
pub trait Serve: ServiceRequest + Clone + Send + 'static {
    /// Executes the request of node `from`.
    fn serve(
        self,
        context: Rc<ShardContext>,
        from: HostId,
    ) -> LocalBoxFuture<'static, Result<Self::Response, Failure>>;

    /// The name of the request in traces.
    fn name(&self) -> &'static str;
}

/// The result of another shard, with the counts and the steps of the request there.
type OfOtherShard<T> = ((T, Option<Box<Receipt>>), Vec<TraceEvent>);

impl ShardContext {
    /// Sends a request to a shard of another member, or of this node, and resolves with the response.
    pub async fn ask<R: Serve>(
        self: &Rc<Self>,
        member: &Member,
        shard: u16,
        request: &R,
        deadline: Duration,
    ) -> Result<R::Response, PeerError> {
        if member.host_id == self.node.host_id {
            return self.ask_own(member.internode_address, shard, request.clone(), deadline).await;
        }
        self.ask_other::<R>(member, shard, request.name(), service::encode_request(request)?, deadline).await
    }

    /// Sends an already encoded request to a shard of another member. A request to several members is encoded only
    /// once. `name`: see [`Serve::name`].
    pub async fn ask_other<R: ServiceRequest>(
        self: &Rc<Self>,
        member: &Member,
        shard: u16,
        name: &'static str,
        request: service::Message,
        deadline: Duration,
    ) -> Result<R::Response, PeerError> {
        let address = member.internode_address;
        let request = match trace::current() {
            Some(log) => {
                log.note(self, format!("Sending {name} message to {address}"));
                // An older program does not know such requests.
                if self.cluster_view().topology.feature_level >= TRACES {
                    service::traced(&request, log.session.as_u128())
                } else {
                    request
                }
            }
            None => request,
        };
        let request = if receipt::is_wanted() { self.with_receipt_wanted(request) } else { request };
        let request = self.for_role(request);
        let answer = self.exchange::<R>(member, shard, request, deadline).await;
        trace::note(self, || match &answer {
            Ok(_) => format!("{name} response received from {address}"),
            Err(error) => format!("{name} message to {address} has failed: {error}"),
        });
        answer
    }

    /// A request of a request that gets a receipt.
    #[cold]
    fn with_receipt_wanted(&self, request: service::Message) -> service::Message {
        // An older program does not know such requests.
        let request = if self.cluster_view().topology.feature_level >= RECEIPTS {
            service::with_receipt_wanted(&request)
        } else {
            request
        };
        receipt::count(|receipt| {
            receipt.add(Count::Messages, 1);
            receipt.add(Count::BytesBetweenNodes, request.bytes.len() as u64);
        });
        request
    }

    /// A request that names the role that it is sent for, if there is one.
    fn for_role(&self, request: service::Message) -> service::Message {
        let Some(role) = self.shares.role() else { return request };
        // An older program does not know such requests.
        if self.cluster_view().topology.feature_level < SHARES_BETWEEN_NODES {
            return request;
        }
        match service::shared(&request, &role) {
            Ok(of_role) => of_role,
            Err(error) => {
                debug_assert!(false, "the name of a role can be encoded: {error}");
                request
            }
        }
    }

    /// Runs a job on a shard's thread and waits for its result. Fails when the node is shutting down.
    pub async fn run_on<T: Send + 'static>(
        self: &Rc<Self>,
        shard: usize,
        job: impl FnOnce(Rc<ShardContext>) -> LocalBoxFuture<'static, T> + Send + 'static,
    ) -> helenus_query::error::Result<T> {
        if shard == self.index {
            return Ok(job(self.clone()).await);
        }
        let (passed, share, charged) = (trace::passed(), self.shares.passed(), receipt::passed());
        trace::note(self, || format!("Shard {shard} is asked"));
        let job = move |context: Rc<Self>| -> LocalBoxFuture<'static, OfOtherShard<T>> {
            let (shares, share) = context.shares_of(share);
            let job = receipt::on_other_shard(charged, context.clone(), job(context));
            Box::pin(shares::within(shares, share, trace::on_other_shard(passed, job)))
        };
        let ((value, receipt), events) = run_on(&self.node.links[shard], job).await?;
        trace::take_back(events);
        receipt::take_back(receipt.as_deref());
        Ok(value)
    }

    /// What a future of another shard's turn needs to be polled in turns here.
    fn shares_of(&self, share: Option<Arc<RoleShare>>) -> (Rc<ShardShares>, Option<Rc<ShardShare>>) {
        (self.shares.clone(), share.map(|share| self.shares.of(share)))
    }

    async fn exchange<R: ServiceRequest>(
        self: &Rc<Self>,
        member: &Member,
        shard: u16,
        request: service::Message,
        deadline: Duration,
    ) -> Result<R::Response, PeerError> {
        let to = Destination { host_id: Some(member.host_id), address: member.internode_address, shard };
        let response = match self.transport.call(to, request, deadline).await {
            Ok(response) => response,
            Err(error) => {
                if let CallError::Removed { address, .. } = &error {
                    self.node.learn_removed(address);
                }
                return Err(error.into());
            }
        };
        let decoded = match service::split_receipt(&response) {
            Ok((numbers, rest)) => {
                receipt::count(|receipt| {
                    receipt.add(Count::BytesBetweenNodes, response.len() as u64);
                    if let Some(numbers) = numbers {
                        receipt.add_all(&Receipt::of_numbers(&numbers));
                    }
                });
                service::decode_response::<R>(rest)
            }
            Err(error) => Err(error),
        };
        match decoded {
            Ok(response) => Ok(response?),
            Err(error) => Err(CallError::Malformed { address: to.address, reason: error.to_string() }.into()),
        }
    }

    /// Executes a request on a shard of this node, without the network. As on other nodes, execution continues after
    /// the deadline has passed.
    async fn ask_own<R: Serve>(
        self: &Rc<Self>,
        address: SocketAddr,
        shard: u16,
        request: R,
        deadline: Duration,
    ) -> Result<R::Response, PeerError> {
        let shard = usize::from(shard) % self.node.shard_count();
        let from = self.node.host_id;
        let (sender, receiver) = oneshot::channel();
        let is_here = shard == self.index;
        let passed = trace::passed().filter(|_| !is_here);
        let charged = receipt::passed().filter(|_| !is_here);
        let share = self.shares.passed();
        let job = move |context: Rc<Self>| -> LocalBoxFuture<'static, ()> {
            let (shares, share) = context.shares_of(share);
            Box::pin(shares::within(shares, share, async move {
                let served = receipt::on_other_shard(charged, context.clone(), request.serve(context, from));
                // The caller may have stopped waiting.
                let _ = sender.send(trace::on_other_shard(passed, served).await);
            }))
        };
        if is_here {
            tokio::task::spawn_local(trace::carry(receipt::carry(self, job(self.clone()))));
        } else if self.node.links[shard].try_send(Message::Job(Box::new(job))).is_err() {
            return Err(CallError::Overloaded { address }.into());
        }
        tokio::select! {
            biased;
            response = receiver => {
                let reason = || "this node is shutting down".to_owned();
                let ((response, receipt), events) =
                    response.map_err(|_| CallError::Unreachable { address, reason: reason() })?;
                trace::take_back(events);
                receipt::take_back(receipt.as_deref());
                Ok(response?)
            }
            () = self.clock.sleep(deadline) => {
                let after_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
                Err(CallError::TimedOut { address, after_ms }.into())
            }
        }
    }
}
