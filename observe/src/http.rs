//! The HTTP server: one thread with a runtime of its own.
//!
//! Invariants:
//! * Memory and time for each client are bounded: connections, bytes and number of headers, the time for a request to
//!   arrive and for its answer to be read. Only the operation itself may take as long as it needs.
//! * A connection serves one request: then the limits above need no further state.
//! * `stop` lets answers in progress be sent, but waits no longer than `STOP_GRACE`.
#![allow(
    clippy::disallowed_methods,
    reason = "HTTP is served on a thread of its own, beside all that must be repeatable"
)]

use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use super::access::Access;
use super::admin::Admin;
use super::routes;

/// Most concurrent connections; further ones wait in the queue of the listener.
const CONNECTIONS_MAX: usize = 64;
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
#[derive(Debug)]
pub enum Listener {
    Tcp(std::net::TcpListener),
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
    let service = Service { admin, access };
    let (stop, stopped) = watch::channel(());
    let thread = std::thread::Builder::new()
        .name("helenus-http".to_owned())
        .spawn(move || runtime.block_on(accept(listener, service, stopped)))?;
    Ok(HttpServer { stop, thread: Some(thread) })
}

/// What is served at an address.
#[derive(Clone)]
struct Service {
    admin: Arc<dyn Admin>,
    access: Access,
}

/// A listener of a runtime.
enum Registered {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Connection {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Registered {
    /// Call within the runtime.
    fn of(listener: Listener) -> io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Self::Tcp(TcpListener::from_std(listener)?)
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(listener)?)
            }
        })
    }

    async fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Connection::Tcp(stream)),
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

async fn accept(listener: Registered, service: Service, mut stop: watch::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stop.changed() => break,
            Some(ended) = connections.join_next() => report_panic(ended),
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok(Connection::Tcp(stream)) => {
                    connections.spawn(converse(stream, service.clone(), stop.clone()));
                }
                Ok(Connection::Unix(stream)) => {
                    connections.spawn(converse(stream, service.clone(), stop.clone()));
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

/// Serves one connection to its end.
async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    service: Service,
    stop: watch::Receiver<()>,
) {
    let mut stop_lingering = stop.clone();
    if let Err(error) = serve_one(&mut stream, &service, stop).await {
        tracing::debug!(%error, "an HTTP connection failed");
    }
    // The client may have disconnected. In any case the connection is finished.
    let _ = stream.shutdown().await;
    let (mut rest, mut nowhere) = (stream.take(LINGER_BYTES_MAX), tokio::io::sink());
    tokio::select! {
        _ = tokio::io::copy(&mut rest, &mut nowhere) => {}
        () = sleep(LINGER_TIMEOUT) => {}
        _ = stop_lingering.changed() => {}
    }
}

async fn serve_one<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    served: &Service,
    mut stop: watch::Receiver<()>,
) -> Result<(), hyper::Error> {
    let answered = Notify::new();
    let service = service_fn(async |request: Request<Incoming>| {
        let answer = routes::answer(&*served.admin, served.access, request).await;
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
