//! The ports of a node: binds them, and distributes accepted clients to the shards.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_config::Config;
use helenus_internode::handshake::Local;
use helenus_internode::listener::{self, Acceptor};
use helenus_query::error::RequestError;

use crate::node::error::StartError;
use crate::session::authentication::logins;
use crate::session::encryption::Certificates;
use helenus_execution::shard::context::{Message, ShardContext};

/// The configured port on which a client's source port chooses the shard; 0: a free one.
pub fn shard_aware_port(config: &Config) -> u16 {
    config.shard_aware_port.unwrap_or_else(|| match config.listen.port() {
        0 => 0,
        port => port.checked_add(10_000).unwrap_or(0),
    })
}

/// Most connections that wait to be accepted.
const BACKLOG: i32 = 1_024;

/// A port that is reserved for this process. Connections are refused until it listens.
pub struct BoundPort {
    socket: socket2::Socket,
    /// With the port chosen by the system if port 0 was requested.
    pub address: SocketAddr,
}

impl BoundPort {
    pub fn bind(address: SocketAddr) -> Result<Self, StartError> {
        let bind = || -> io::Result<Self> {
            let socket =
                socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
            // A configured port may still have closing connections of the last run. A port chosen by the system must
            // be exclusive, also before it listens.
            socket.set_reuse_address(address.port() != 0)?;
            socket.bind(&address.into())?;
            socket.set_nonblocking(true)?;
            let bound = socket.local_addr()?.as_socket();
            Ok(Self { socket, address: bound.unwrap_or(address) })
        };
        bind().map_err(|source| StartError::Listen { address, source })
    }

    /// Starts listening: from now on connections wait to be accepted.
    pub fn listen(self) -> Result<TcpListener, StartError> {
        let address = self.address;
        // Connections inherit this from the listener. A node that restarts on this port can bind beside closing
        // connections only if both sides have it. While the port listens it does not make the port less exclusive.
        let begun = self.socket.set_reuse_address(true).and_then(|()| self.socket.listen(BACKLOG));
        begun.map_err(|source| StartError::Listen { address, source })?;
        Ok(self.socket.into())
    }
}

/// Binds a port and listens. Nothing is accepted yet.
pub fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    BoundPort::bind(address)?.listen()
}

/// The address that was bound; `address` is the requested one.
pub fn local_address(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen { address, source })
}

/// Accepts links of other nodes until the node stops, and passes each to the shard that it requests.
pub fn accept_links(
    context: &Rc<ShardContext>,
    listener: TcpListener,
    local: Arc<Local>,
) -> helenus_query::error::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)
        .map_err(|error| RequestError::Server(error.to_string()))?;
    let (members, links) = (context.clone(), context.node.clone());
    let acceptor = Acceptor {
        local,
        clock: context.clock.clone(),
        timeout: Duration::from_millis(context.node.config.internode_connect_timeout_ms),
        encryption: Certificates::of(context).of_links(&context.node.config),
        is_removed: Box::new(move |host_id| members.cluster_view().topology.removed.contains(host_id)),
        hand_over: Box::new(move |shard, stream, peer| {
            let link = links.links.get(usize::from(shard));
            if link.is_none_or(|link| link.try_send(Message::Link(stream, peer)).is_err()) {
                tracing::warn!(address = %peer.address, shard, "a link was closed: the queue of its shard is full");
            }
        }),
        stopping: context.node.stopping.subscribe(),
    };
    tokio::task::spawn_local(listener::accept(listener, acceptor));
    Ok(())
}

/// Pause before a port is tried again that cannot be listened on.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);

/// Accepts clients until the node stops or drains, and passes them to the shards: round robin, or (`by_source_port`:
/// the number of shards) to the shard that the client has chosen. While clients are not to be accepted, the port is closed.
pub async fn accept_clients(
    context: Rc<ShardContext>,
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    by_source_port: Option<usize>,
) {
    let mut stopping = context.node.stopping.subscribe();
    let serves = async {
        let mut listener = Some(listener);
        loop {
            match listener.take() {
                Some(open) => {
                    pass_on_clients(&context, &open, by_source_port).await;
                    tracing::info!(%address, "clients are not accepted any more");
                }
                None => listener = Some(listen_again(&context, address).await),
            }
        }
    };
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => {}
        () = context.node.status.closed() => {}
        () = serves => {}
    }
}

/// Waits until clients are to be accepted, and opens their port.
async fn listen_again(context: &ShardContext, address: SocketAddr) -> tokio::net::TcpListener {
    let mut accepts = context.node.settings.accepts_clients();
    // The sender lives as long as the node.
    let _ = accepts.wait_for(|accepts| *accepts).await;
    let mut is_told = false;
    loop {
        let opened = listen(address).and_then(|listener| {
            tokio::net::TcpListener::from_std(listener)
                .map_err(|source| StartError::Listen { address, source })
        });
        match opened {
            Ok(listener) => {
                tracing::info!(%address, "clients are accepted again");
                return listener;
            }
            Err(error) if !is_told => {
                tracing::warn!(%address, %error, "the port for clients cannot be opened; it is tried again");
                is_told = true;
            }
            Err(_) => {}
        }
        context.clock.sleep(LISTEN_PAUSE).await;
    }
}

/// Accepts clients and passes them to the shards, until they are not to be accepted.
async fn pass_on_clients(
    context: &ShardContext,
    listener: &tokio::net::TcpListener,
    by_source_port: Option<usize>,
) {
    let mut accepts = context.node.settings.accepts_clients();
    let mut next = 0;
    loop {
        // Only here: a client that was accepted is passed on.
        let accepted = tokio::select! {
            biased;
            _ = accepts.wait_for(|accepts| !*accepts) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Most likely there are no file descriptors left: other connections must end first.
                context.clock.sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // On a wildcard address of IPv6 clients with IPv4 have addresses that stand for theirs.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let shard = if let Some(shards) = by_source_port {
            usize::from(peer.port()) % shards
        } else {
            next = (next + 1) % context.node.shard_count();
            next
        };
        if let Ok(stream) = stream.into_std() {
            let login_share = logins::share(&context.node);
            // Sending fails only while the shard stops. The connection is closed then.
            let _ = context.node.links[shard].send(Message::Connection(stream, peer, login_share)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn a_port_chosen_by_the_system_is_exclusive_before_it_listens() {
        let port = BoundPort::bind(ANY).unwrap();
        assert!(BoundPort::bind(port.address).is_err());
        let address = port.address;
        let listener = port.listen().unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
    }

    #[test]
    fn a_node_starts_again_on_the_port_of_connections_that_it_closed() {
        let listener = listen(ANY).unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(false).unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        // The side that closes first keeps the connection for a while (TIME-WAIT).
        drop(accepted);
        drop(listener);
        drop(client);
        let again = listen(address).unwrap();
        assert_eq!(again.local_addr().unwrap(), address);
    }
}
