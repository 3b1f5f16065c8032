//! Accepts the links of other nodes: reads their HELLO, answers it, and passes the socket to the requested shard.
//!
//! Invariants: a handshake has a time limit and the number of handshakes is bounded, so that other programs on the
//! port cost little. The handshake of TLS, if there is one, is a part of it. Refusals are logged with the address and the reason, once a minute for each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_engine::io::Clock;
use helenus_ring::HostId;
use helenus_tls::stream::{DetachedStream, Stream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::encryption::LinkEncryption;
use super::handshake::{HandshakeError, Local, Opening};
use super::incoming::Peer;

/// Most concurrent handshakes.
const HANDSHAKES_MAX: usize = 256;
/// Time after which an equal refusal of an address is logged again.
const LOG_PAUSE: Duration = Duration::from_mins(1);
/// Most refusals remembered for that.
const LOGGED_MAX: usize = 256;

/// The parts of the listener.
pub struct Acceptor {
    pub local: Arc<Local>,
    pub clock: Rc<dyn Clock>,
    pub timeout: Duration,
    /// Whether a node has left the cluster for good.
    pub is_removed: Box<dyn Fn(&HostId) -> bool>,
    /// `None`: links are plain.
    pub encryption: Option<LinkEncryption>,
    /// Passes a link to one of the node's shards.
    pub hand_over: Box<dyn Fn(u16, DetachedStream, Peer)>,
    /// True once the node is stopping.
    pub stopping: watch::Receiver<bool>,
}

struct Logged {
    text: String,
    at: Duration,
}

/// Accepts links until the node stops.
pub async fn accept(listener: TcpListener, acceptor: Acceptor) {
    let mut stopping = acceptor.stopping.clone();
    let acceptor = Rc::new(acceptor);
    let logged = Rc::new(RefCell::new(BTreeMap::new()));
    let turns = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a link");
                // Most likely there are no file descriptors left: other connections must end first.
                acceptor.clock.sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // On a wildcard address of IPv6 others with IPv4 have addresses that stand for theirs.
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let Ok(turn) = turns.clone().try_acquire_owned() else {
            acceptor.log(&logged, address, "too many handshakes at a time".to_owned());
            continue;
        };
        let (acceptor, logged) = (acceptor.clone(), logged.clone());
        tokio::task::spawn_local(async move {
            let timeout = acceptor.clock.sleep(acceptor.timeout);
            let outcome = tokio::select! {
                biased;
                outcome = acceptor.shake_hands(stream, address) => outcome.map_err(|error| error.to_string()),
                () = timeout => Err("it did not finish the handshake in time".to_owned()),
            };
            if let Err(reason) = outcome {
                acceptor.log(&logged, address, reason);
            }
            drop(turn);
        });
    }
}

impl Acceptor {
    async fn shake_hands(&self, socket: TcpStream, address: SocketAddr) -> Result<(), HandshakeError> {
        socket.set_nodelay(true)?;
        let mut stream = match &self.encryption {
            None => Stream::Plain(socket),
            Some(encryption) => encryption.accept(socket).await?,
        };
        let Opening::Hello { version_min, version_max, node, wanted_shard } =
            Opening::read(&mut stream).await?
        else {
            return Err(HandshakeError::Malformed("it does not begin with a HELLO"));
        };
        let now_micros = self.clock.now_micros();
        let checked = self
            .local
            .choose_version(version_min, version_max)
            .and_then(|version| self.local.check(&node, now_micros, &self.is_removed).map(|()| version));
        let checked = match (&self.encryption, checked) {
            (Some(encryption), Ok(version)) => {
                encryption.check(&stream, node.host_id, address.ip()).await.map(|()| version)
            }
            (_, checked) => checked,
        };
        let version = match checked {
            Ok(version) => version,
            Err(refusal) => {
                Opening::refusal(&refusal).write(&mut stream).await?;
                return Err(refusal.into());
            }
        };
        let shard = wanted_shard % self.local.shard_count.max(1);
        let welcome = Opening::Welcome { version, node: self.local.greeting(now_micros), shard };
        welcome.write(&mut stream).await?;
        let peer = Peer { host_id: node.host_id, address, version };
        (self.hand_over)(shard, stream.detach()?, peer);
        Ok(())
    }

    fn log(&self, logged: &RefCell<BTreeMap<IpAddr, Logged>>, address: SocketAddr, text: String) {
        let mut logged = logged.borrow_mut();
        let now = self.clock.monotonic();
        let is_old_news = logged
            .get(&address.ip())
            .is_some_and(|before| before.text == text && now.saturating_sub(before.at) < LOG_PAUSE);
        if is_old_news {
            tracing::debug!(%address, reason = text, "a link is refused");
            return;
        }
        tracing::warn!(%address, reason = text, "a link is refused");
        if logged.len() >= LOGGED_MAX {
            logged.clear();
        }
        logged.insert(address.ip(), Logged { text, at: now });
    }
}
