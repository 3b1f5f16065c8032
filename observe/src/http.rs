//! The HTTP server: one thread with a runtime of its own.
//!
//! Invariants:
//! * Memory and time for each client are bounded: connections, bytes and number of headers, the time for a request to
//!   arrive and for its answer to be read. Only the operation itself may take as long as it needs.
//! * A connection serves one request: then the limits above need no further state.
//! * Where roles are asked, a connection has one of few places until its client has logged in, from its accept on: those who do not log in
//!   cannot keep those out who do.
//! * `stop` lets answers in progress be sent, but waits no longer than `STOP_GRACE`.
#![allow(
    clippy::disallowed_methods,
    reason = "HTTP is served on a thread of its own, beside all that must be repeatable"
)]

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use helenus_tls::encryption::Encryption;
use helenus_tls::login_slots::{self, LoginSlots, Slot};
use helenus_tls::names::Names;
use helenus_tls::policy::Mode;
use helenus_tls::source::Source;
use helenus_tls::stream::{self, Stream};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet, LocalSet};
use tokio::time::{Instant, sleep, timeout};

use super::access::Access;
use super::admin::Admin;
use super::routes::{self, Caller};

/// Most concurrent connections; further ones wait in the queue of the listener.
const CONNECTIONS_MAX: usize = 64;
/// Most of them whose clients have to log in and have not. For one more, the oldest of the source with most of them ends.
pub(super) const LOGIN_SLOTS: usize = 32;
/// Time limit for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two logged handshakes that have failed.
const LOG_PAUSE: Duration = Duration::from_secs(1);
/// Most bytes of request line and headers. A longer head is answered with 431.
pub(super) const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Time limit for the head of a request to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a client to read its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which bytes that a client still sends are read and dropped after the answer. A socket closed with unread
/// bytes would be reset, and the answer lost.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: u64 = 1 << 20;
/// The pause after a failed `accept`: it fails again at once while the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time that a stop waits for answers in progress.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// A running server. Dropping it stops it too.
#[derive(Debug)]
pub struct HttpServer {
    stop: watch::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

/// Where connections arrive.
pub enum Listener {
    Tcp(std::net::TcpListener),
    /// With TLS as the mode has it.
    Tls(std::net::TcpListener, Mode, Arc<Encryption>),
    Unix(StdUnixListener),
}

impl From<std::net::TcpListener> for Listener {
    fn from(listener: std::net::TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<StdUnixListener> for Listener {
    fn from(listener: StdUnixListener) -> Self {
        Self::Unix(listener)
    }
}

/// Serves what `access` allows of `admin` on a listener, on a thread of its own, until the returned server is stopped.
pub fn serve(listener: impl Into<Listener>, access: Access, admin: Arc<dyn Admin>) -> io::Result<HttpServer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let listener = {
        let _inside = runtime.enter();
        Registered::of(listener.into())?
    };
    let (stop, stopped) = watch::channel(());
    let serve = move || {
        let service =
            Rc::new(Service { admin, access, slots: Arc::default(), failure_logged: Cell::default() });
        LocalSet::new().block_on(&runtime, accept(listener, service, stopped));
    };
    let thread = std::thread::Builder::new().name("helenus-http".to_owned()).spawn(serve)?;
    Ok(HttpServer { stop, thread: Some(thread) })
}

/// What is served at an address.
struct Service {
    admin: Arc<dyn Admin>,
    access: Access,
    /// Of connections whose clients have to log in and have not.
    slots: Arc<LoginSlots>,
    /// When the last failed handshake was logged.
    failure_logged: Cell<Option<Instant>>,
}

/// A listener of a runtime.
enum Registered {
    Tcp(TcpListener, Option<Tls>),
    Unix(UnixListener),
}

/// How connections of a listener are encrypted.
type Tls = (Mode, Arc<Encryption>);

enum Connection {
    Tcp(TcpStream, SocketAddr, Option<Tls>),
    Unix(UnixStream),
}

impl Registered {
    /// Call within the runtime.
    fn of(listener: Listener) -> io::Result<Self> {
        let tcp = |listener: std::net::TcpListener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        Ok(match listener {
            Listener::Tcp(listener) => Self::Tcp(tcp(listener)?, None),
            Listener::Tls(listener, mode, encryption) => Self::Tcp(tcp(listener)?, Some((mode, encryption))),
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(listener)?)
            }
        })
    }

    async fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Tcp(listener, tls) => {
                let (stream, peer) = listener.accept().await?;
                // On a wildcard address of IPv6 clients with IPv4 have addresses that stand for theirs.
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                Ok(Connection::Tcp(stream, peer, tls.clone()))
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Connection::Unix(stream)),
        }
    }
}

impl HttpServer {
    /// Stops listening, waits a few seconds at most until answers in progress are sent, and joins the thread.
    pub fn stop(mut self) {
        self.stop_and_join();
    }

    fn stop_and_join(&mut self) {
        // Fails only if the thread has ended already.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the HTTP thread panicked");
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

async fn accept(listener: Registered, service: Rc<Service>, mut stop: watch::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stop.changed() => break,
            Some(ended) = connections.join_next() => report_panic(ended),
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok(Connection::Tcp(stream, peer, tls)) => {
                    let slot = service.slot(peer);
                    connections.spawn_local(serve_tcp(stream, peer, tls, slot, service.clone(), stop.clone()));
                }
                Ok(Connection::Unix(stream)) => {
                    let service = service.clone();
                    let stop = stop.clone();
                    connections.spawn_local(async move {
                        converse(stream, &service, &Caller::default(), stop).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an HTTP connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            report_panic(ended);
        }
    };
    if timeout(STOP_GRACE, all_ended).await.is_err() {
        tracing::warn!("HTTP connections were cut: their operations took too long");
    }
}

fn report_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "an HTTP connection panicked");
    }
}

impl Service {
    /// The place of a connection whose client has to log in.
    fn slot(&self, peer: SocketAddr) -> Option<Slot> {
        let asks = matches!(self.access, Access::Roles { .. });
        asks.then(|| self.slots.enter(Source::of(peer.ip()), LOGIN_SLOTS))
    }

    fn note_failed_handshake(&self, peer: SocketAddr, error: &io::Error) {
        self.admin.note_failed_handshake();
        let now = Instant::now();
        if self.failure_logged.get().is_none_or(|before| now.duration_since(before) >= LOG_PAUSE) {
            self.failure_logged.set(Some(now));
            tracing::info!(%peer, %error, "administration: a TLS handshake has failed");
        }
    }
}

/// Serves a connection of a port to its end, or until its place is needed for others.
async fn serve_tcp(
    socket: TcpStream,
    peer: SocketAddr,
    tls: Option<Tls>,
    mut slot: Option<Slot>,
    service: Rc<Service>,
    mut stop: watch::Receiver<()>,
) {
    let mut caller = Caller { peer: Some(peer), ..Caller::default() };
    let opened = tokio::select! {
        biased;
        opened = shake_hands(socket, tls) => opened,
        () = login_slots::given_up(&mut slot) => Err(io::Error::other("its place was needed for others")),
        _ = stop.changed() => return,
    };
    let stream = match opened {
        Ok(Some(stream)) => stream,
        Ok(None) => return,
        Err(error) => return service.note_failed_handshake(peer, &error),
    };
    caller.identity = stream.peer_names().and_then(Names::identity).map(str::to_owned);
    let displaced = async {
        tokio::select! {
            () = login_slots::given_up(&mut slot) => return,
            () = caller.logged_in.notified() => {}
        }
        slot = None;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = converse(stream, &service, &caller, stop) => {}
        () = displaced => tracing::debug!(%peer, "an HTTP connection without a login ended: its place was needed"),
    }
}

async fn shake_hands(socket: TcpStream, tls: Option<Tls>) -> io::Result<Option<Stream>> {
    let Some((mode, encryption)) = tls else { return Ok(Some(Stream::Plain(socket))) };
    let material = encryption.material();
    let accepted = stream::accept_as(mode, socket, &material);
    timeout(HANDSHAKE_TIMEOUT, accepted).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Serves one connection to its end.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    service: &Service,
    caller: &Caller,
    stop: watch::Receiver<()>,
) {
    let mut stop_lingering = stop.clone();
    if let Err(error) = serve_one(&mut stream, service, caller, stop).await {
        tracing::debug!(%error, "an HTTP connection failed");
    }
    let end = async {
        // The client may have disconnected, or not read its answer. In any case the connection is finished.
        let _ = stream.shutdown().await;
        let (mut rest, mut nowhere) = (stream.take(LINGER_BYTES_MAX), tokio::io::sink());
        let _ = tokio::io::copy(&mut rest, &mut nowhere).await;
    };
    tokio::select! {
        () = end => {}
        () = sleep(LINGER_TIMEOUT) => {}
        _ = stop_lingering.changed() => {}
    }
}

async fn serve_one<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    served: &Service,
    caller: &Caller,
    mut stop: watch::Receiver<()>,
) -> Result<(), hyper::Error> {
    let answered = Notify::new();
    let service = service_fn(async |request: Request<Incoming>| {
        let answer = routes::answer(&*served.admin, served.access, caller, request).await;
        answered.notify_one();
        Ok::<_, Infallible>(answer)
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service)
    );
    let to_the_end = async {
        tokio::select! {
            result = connection.as_mut() => return result,
            _ = stop.changed() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    let overdue = async {
        answered.notified().await;
        sleep(ANSWER_TIMEOUT).await;
    };
    tokio::select! {
        result = to_the_end => result,
        () = overdue => Ok(()),
    }
}
