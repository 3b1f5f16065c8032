//! TLS of the node: what is loaded from files, and the handshakes of clients.
//!
//! Invariants: a handshake has a time limit, and is over before the connection is one of the protocol; where TLS is off a connection
//! begins at once. Failed handshakes are counted; at most one a second is logged on each shard.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use helenus_config::{ClientEncryption, Config};
use helenus_execution::shard::context::ShardContext;
use helenus_internode::encryption::LinkEncryption;
use helenus_tls::encryption::Encryption;
use helenus_tls::error::TlsError;
use helenus_tls::login_slots::{self, Slot};
use helenus_tls::material::Use;
use helenus_tls::policy::Mode;
use helenus_tls::stream::{self, Stream};
use tokio::net::TcpStream;

/// How long a handshake, or the first byte of a connection that may be either, may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two looks at the files.
const LOOK_PAUSE: Duration = Duration::from_secs(5);
/// Time between two logged failures of a shard.
const LOG_PAUSE: Duration = Duration::from_secs(1);
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The certificates of a node; empty where TLS is off.
#[derive(Default, Clone)]
pub struct Certificates {
    clients: Option<Arc<Encryption>>,
    nodes: Option<Arc<Encryption>>,
    administration: Option<Arc<Encryption>>,
}

/// The certificates of a node that has been started.
#[derive(Default)]
pub struct OpenCertificates(OnceLock<Certificates>);

/// When the last failed handshake was logged, on the monotonic clock of the shard.
#[derive(Default)]
pub struct LoggedFailures(Cell<Option<Duration>>);

impl Certificates {
    /// Loads the files that the settings name.
    pub fn open(config: &Config, now_seconds: i64) -> Result<Self, TlsError> {
        let open = |files, purpose| Encryption::open(files, purpose, now_seconds).map(Arc::new);
        let open_clients = |settings: &ClientEncryption| {
            let purpose = Use::Clients(settings.client_certificates);
            settings.files().map(|files| open(files, purpose)).transpose()
        };
        Ok(Self {
            clients: open_clients(&config.client_encryption)?,
            administration: open_clients(&config.admin_encryption)?,
            nodes: config.internode_encryption.files().map(|files| open(files, Use::Nodes)).transpose()?,
        })
    }

    /// Those of a node.
    pub fn of(context: &ShardContext) -> Self {
        context.node.layers.get::<OpenCertificates>().0.get().cloned().unwrap_or_default()
    }

    /// With the names of their uses.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &Arc<Encryption>)> {
        let uses =
            [("clients", &self.clients), ("nodes", &self.nodes), ("administration", &self.administration)];
        uses.into_iter().filter_map(|(name, present)| Some((name, present.as_ref()?)))
    }

    /// Those of administration over HTTP; `None`: it is plain.
    pub fn of_administration(&self) -> Option<Arc<Encryption>> {
        self.administration.clone()
    }

    /// TLS of links; `None`: they are plain.
    pub fn of_links(&self, config: &Config) -> Option<LinkEncryption> {
        let nodes = self.nodes.clone()?;
        LinkEncryption::new(config.internode_encryption.mode, nodes)
    }
}

impl OpenCertificates {
    /// Gives a node its certificates.
    ///
    /// # Panics
    /// If it has some already: that is a bug.
    pub fn set(&self, certificates: Certificates) {
        assert!(self.0.set(certificates).is_ok(), "a node gets its certificates once");
    }

    pub fn get(&self) -> Certificates {
        self.0.get().cloned().unwrap_or_default()
    }
}

/// Makes the handshake of a client, if there is to be one. `slot`: its place among those that have not logged in. `None`: the connection has
/// ended, or is refused.
pub async fn open(
    context: &ShardContext,
    socket: TcpStream,
    peer: SocketAddr,
    slot: &mut Option<Slot>,
) -> Option<Stream> {
    let mode = context.node.config.client_encryption.mode;
    if mode == Mode::Off {
        return Some(Stream::Plain(socket));
    }
    let opened = tokio::select! {
        biased;
        opened = shake_hands(context, socket, mode) => opened,
        () = context.clock.sleep(HANDSHAKE_TIMEOUT) => Err(io::ErrorKind::TimedOut.into()),
        () = login_slots::given_up(slot) => Err(io::Error::other("its place was needed for others")),
    };
    match opened {
        Ok(opened) => opened,
        Err(error) => {
            note_failure(context, peer, &error);
            None
        }
    }
}

async fn shake_hands(context: &ShardContext, socket: TcpStream, mode: Mode) -> io::Result<Option<Stream>> {
    let material = Certificates::of(context).clients.map(|clients| clients.material());
    let material = material.ok_or_else(|| io::Error::other("there are no certificates"))?;
    stream::accept_as(mode, socket, &material).await
}

fn note_failure(context: &ShardContext, peer: SocketAddr, error: &io::Error) {
    context.metrics.failed_handshakes.increment();
    let logged = &context.layers.get::<LoggedFailures>().0;
    let now = context.clock.monotonic();
    if logged.get().is_none_or(|before| now.saturating_sub(before) >= LOG_PAUSE) {
        logged.set(Some(now));
        tracing::info!(%peer, %error, "a client's TLS handshake has failed");
    }
}

/// Looks at the files every few seconds and loads those that have changed, until the node stops.
#[allow(
    clippy::disallowed_methods,
    reason = "the files of certificates are read beside the thread of the shard; simulated nodes have none"
)]
pub fn watch(context: &Rc<ShardContext>) {
    let certificates = Certificates::of(context);
    if certificates.all().next().is_none() {
        return;
    }
    hint_at_expiry(context, &certificates);
    context.repeat(LOOK_PAUSE, async |context| {
        let certificates = Certificates::of(context);
        for (purpose, encryption) in certificates.all() {
            let (encryption, now_seconds) = (encryption.clone(), i64::from(context.now_seconds()));
            let reloaded = tokio::task::spawn_blocking(move || encryption.reload_if_changed(now_seconds)).await;
            match reloaded {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::info!(purpose, "changed certificates are in use from now on"),
                Ok(Err(error)) => {
                    tracing::error!(purpose, %error, "changed certificates cannot be used: the former ones stay in use");
                }
                Err(error) => tracing::error!(purpose, %error, "the files of certificates were not looked at"),
            }
        }
        hint_at_expiry(context, &certificates);
    });
}

fn hint_at_expiry(context: &ShardContext, certificates: &Certificates) {
    for (purpose, encryption) in certificates.all() {
        if let Some(left) = encryption.take_expiry_hint(i64::from(context.now_seconds())) {
            let path = encryption.certificate_path().display();
            if left > 0 {
                tracing::warn!(purpose, %path, days = left / DAY_SECONDS, "a certificate expires soon");
            } else {
                tracing::error!(purpose, %path, "a certificate has expired");
            }
        }
    }
}
