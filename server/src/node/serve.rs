//! The work of a shard's thread: jobs of other shards, connections of clients, links of other nodes.
//!
//! Invariant: jobs run as local tasks. A job that waits does not delay the next one.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use helenus_internode::incoming::{self, Peer};
use helenus_tls::stream::DetachedStream;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::dispatch::Dispatcher;
use crate::cluster;
use crate::session::authentication::logins::Logins;
use crate::session::connection;
use crate::session::connection_places::ConnectionPlaces;
use crate::session::encryption::{self, Certificates};
use helenus_execution::shard::context::{Message, ShardContext};
use helenus_fair_shares::RoleShare;

/// Serves the queue of a shard until it gets [`Message::Stop`], or all senders have been dropped.
pub async fn serve(context: Rc<ShardContext>, mut queue: mpsc::Receiver<Message>) {
    while let Some(message) = queue.recv().await {
        match message {
            Message::Job(job) => {
                tokio::task::spawn_local(job(context.clone()));
            }
            Message::Connection(stream, peer, login_share) => {
                if let Err(error) = accept(&context, stream, peer, login_share) {
                    tracing::warn!(%peer, %error, "cannot serve a connection");
                }
            }
            Message::Link(stream, peer) => {
                if let Err(error) = accept_link(&context, stream, peer) {
                    tracing::warn!(address = %peer.address, %error, "cannot serve a link");
                }
            }
            Message::Stop => break,
        }
    }
    cluster::start::stop(&context).await;
}

fn accept(
    context: &Rc<ShardContext>,
    stream: std::net::TcpStream,
    peer: SocketAddr,
    login_share: Option<Arc<RoleShare>>,
) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let stream = TcpStream::from_std(stream)?;
    let context = context.clone();
    context.metrics.connections.increment();
    let counted = CountedConnection(context.clone());
    let places = context.node.layers.get::<Arc<ConnectionPlaces>>();
    let Some(place) = places.take(&context.node.config, peer.ip()) else {
        tracing::warn!(%peer, "a connection is closed: there are too many");
        return Ok(());
    };
    let mut slot = Logins::slot(&context, peer);
    tokio::task::spawn_local(async move {
        if let Some(stream) = encryption::open(&context, stream, peer, &mut slot).await {
            connection::serve(context, stream, peer, slot, login_share, place).await;
        }
        drop(counted);
    });
    Ok(())
}

/// A connection being served. It is counted until it ends for any reason.
struct CountedConnection(Rc<ShardContext>);

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.metrics.connections.decrement();
    }
}

fn accept_link(context: &Rc<ShardContext>, stream: DetachedStream, peer: Peer) -> std::io::Result<()> {
    let stream = stream.attach()?;
    let server = incoming::Server {
        handler: Rc::new(Dispatcher(context.clone())),
        options: context.node.config.link_options(),
        encryption: Certificates::of(context).of_links(&context.node.config),
        clock: context.clock.clone(),
        metrics: context.metrics.internode.clone(),
        stopping: context.node.stopping.subscribe(),
    };
    tokio::task::spawn_local(incoming::serve(server, stream, peer));
    Ok(())
}
