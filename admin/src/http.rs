//! One request to a node, over its port, with or without TLS, or its Unix socket, and its answer, which is JSON.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::time::Duration;

use helenus_tls::error::TlsError;
use helenus_tls::material::{for_program, now_seconds, server_name};
use helenus_tls::stream::connect_to;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::login::{Login, LoginError, TlsFiles, is_tls};
use crate::password::Password;
use crate::place::Place;
use crate::socket::SocketAddress;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// How long a connection may take: the node is on the same machine, or at the other end of a tunnel.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Default timeout for the answer to a query.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

pub use hyper::Method;

/// A request.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: Method,
    pub path: &'static str,
    pub parameters: Vec<(&'static str, String)>,
    /// The body.
    pub password: Option<Password>,
}

impl Call {
    /// The default timeout. Queries are answered at once. Operations that change the node take as long as its data
    /// requires, and have no limit.
    fn answer_timeout(&self) -> Option<Duration> {
        (self.method == Method::GET).then_some(ANSWER_TIMEOUT)
    }

    /// The path with its parameters.
    fn target(&self) -> String {
        let mut target = self.path.to_owned();
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            target.push(if index == 0 { '?' } else { '&' });
            target.extend([name, "="]);
            target.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
        target
    }
}

impl fmt::Display for Call {
    /// Writes the beginning of the request's first line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.method, self.target())
    }
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("'{0}' is no address of a node: http://HOST:PORT or https://HOST:PORT is expected")]
    Url(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An https URL without the authorities that vouch for nodes.
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error("cannot reach the node at {authority}: {source}")]
    Unreachable { authority: String, source: std::io::Error },
    #[error("cannot reach the node at {authority}: no connection within {} seconds", timeout.as_secs_f64())]
    NoConnection { authority: String, timeout: Duration },
    #[error("the node at {authority} has not answered within {} seconds", timeout.as_secs_f64())]
    NoAnswer { authority: String, timeout: Duration },
    /// The node's reason.
    #[error("{reason}")]
    Refused {
        reason: String,
        /// The request names something that there is not, or says something that cannot be.
        is_invalid: bool,
    },
    /// The node answers, but serves no clients; with its reason.
    #[error("{reason}")]
    NotServing { reason: String, answer: Value },
    #[error("the server at {authority} is no node of Helenus, or one that is asked with https")]
    Nonsense { authority: String },
}

/// A connection to a node.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An open connection, the place where it ends as errors name it, and the value of the header `Host`.
struct Connected {
    stream: Box<dyn Stream>,
    place: String,
    host: String,
}

/// Waits for a connection, but not for ever.
#[allow(clippy::disallowed_methods, reason = "a program of its own, not a part of the node")]
async fn in_time<S: Stream + 'static>(
    place: &str,
    host: &str,
    connecting: impl Future<Output = io::Result<S>>,
) -> Result<Connected, CallError> {
    let authority = || place.to_owned();
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting)
        .await
        .map_err(|_| CallError::NoConnection { authority: authority(), timeout: CONNECT_TIMEOUT })?
        .map_err(|source| CallError::Unreachable { authority: authority(), source })?;
    Ok(Connected { stream: Box::new(stream), place: authority(), host: host.to_owned() })
}

#[allow(clippy::disallowed_methods, reason = "a program of its own, not a part of the node")]
async fn connect_url(url: &str, login: &Login) -> Result<Connected, CallError> {
    let authority = authority(url)?;
    if !is_tls(url) {
        return in_time(authority, authority, TcpStream::connect(authority)).await;
    }
    let TlsFiles { authority: trusted, own } = login.tls.as_ref().ok_or(LoginError::NoAuthority)?;
    let own = own.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    let config = for_program(trusted, own, true, now_seconds())?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host).trim_matches(['[', ']']);
    let name = server_name(host).ok_or_else(|| CallError::Url(url.to_owned()))?;
    let connecting = async {
        let socket = TcpStream::connect(authority).await?;
        connect_to(socket, config, name).await
    };
    in_time(authority, authority, connecting).await
}

async fn connect_socket(path: &Path) -> Result<Connected, CallError> {
    let place = path.display().to_string();
    let address = SocketAddress::of(path)
        .map_err(|source| CallError::Unreachable { authority: place.clone(), source })?;
    in_time(&place, "localhost", UnixStream::connect(address.path())).await
}

async fn connect(place: &Place, login: &Login) -> Result<Connected, CallError> {
    let (path, url) = match place {
        Place::Url(url) => return connect_url(url, login).await,
        Place::Socket(path) => return connect_socket(path).await,
        Place::Either(path, url) => (path, url),
    };
    let no_socket = match connect_socket(path).await {
        Ok(connected) => return Ok(connected),
        Err(error) => error,
    };
    let socket = match &no_socket {
        CallError::Unreachable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            format!("{} ({source})", path.display())
        }
        _ => path.display().to_string(),
    };
    // Errors name both places.
    connect_url(url, login).await.map_err(|error| match error {
        CallError::Unreachable { authority, source } => {
            CallError::Unreachable { authority: format!("{socket} or {authority}"), source }
        }
        CallError::NoConnection { authority, timeout } => {
            CallError::NoConnection { authority: format!("{socket} or {authority}"), timeout }
        }
        other => other,
    })
}

/// Sends a request and waits for its answer. `timeout` replaces the default of the call.
#[allow(clippy::disallowed_methods, reason = "a program of its own, not a part of the node")]
pub async fn call(
    place: &Place,
    login: &Login,
    call: &Call,
    timeout: Option<Duration>,
) -> Result<Value, CallError> {
    let Connected { stream, place: authority, host } = connect(place, login).await?;
    let unreachable = |source| CallError::Unreachable { authority: authority.clone(), source };
    let body = call.password.as_ref().map_or_else(Bytes::new, |it| Bytes::copy_from_slice(it.as_bytes()));
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(call.target())
        .header(header::HOST, host)
        .header(header::CONNECTION, "close");
    if let Some(authorization) = login.authorization() {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(Full::new(body)).map_err(|_| CallError::Url(authority.clone()))?;
    let exchanged = exchange(stream, request);
    let exchanged = match timeout.or_else(|| call.answer_timeout()) {
        None => exchanged.await,
        Some(timeout) => tokio::time::timeout(timeout, exchanged)
            .await
            .map_err(|_| CallError::NoAnswer { authority: authority.clone(), timeout })?,
    };
    let nonsense = || CallError::Nonsense { authority: authority.clone() };
    match exchanged {
        Ok((status, body)) => read(status, &body).unwrap_or_else(|| Err(nonsense())),
        Err(error) => Err(io_error(&*error).map_or_else(nonsense, unreachable)),
    }
}

/// Sends the request and reads what comes back, to its end.
async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), Box<dyn Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // An error of the connection shows in the answer.
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes();
    connection.abort();
    Ok((status, body))
}

/// The error of the connection, if it is the reason for the missing answer. Otherwise the bytes received are no answer.
fn io_error(error: &(dyn Error + 'static)) -> Option<std::io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<std::io::Error>() {
            return Some(std::io::Error::new(found.kind(), found.to_string()));
        }
        cause = error.source();
    }
    None
}

fn authority(url: &str) -> Result<&str, CallError> {
    let rest = match url.split_once("://") {
        None => url,
        Some(("http" | "https", rest)) => rest,
        Some(_) => return Err(CallError::Url(url.to_owned())),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let is_valid = authority.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok() && !authority.contains(['/', '@', '?', '#'])
    });
    if is_valid { Ok(authority) } else { Err(CallError::Url(url.to_owned())) }
}

/// An answer with its status; `None`: it is not from a node.
fn read(status: StatusCode, body: &[u8]) -> Option<Result<Value, CallError>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    if status == StatusCode::OK {
        return Some(Ok(body));
    }
    let text = |name| body.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(reason) = text("error") {
        return Some(Err(CallError::Refused { reason, is_invalid: status == StatusCode::BAD_REQUEST }));
    }
    let reason = text("reason")?;
    Some(Err(CallError::NotServing { reason, answer: body }))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn addresses_are_taken_with_and_without_a_scheme() {
        for url in ["http://127.0.0.1:9180", "http://127.0.0.1:9180/", "127.0.0.1:9180"] {
            assert_eq!(authority(url).unwrap(), "127.0.0.1:9180");
        }
        assert_eq!(authority("http://[::1]:9180").unwrap(), "[::1]:9180");
        assert_eq!(authority("https://db1:9180").unwrap(), "db1:9180");
        for url in ["ftp://a:1", "http://a", "a:b", ":1", "http://a:1/admin", "http://u@a:1"] {
            assert!(authority(url).is_err(), "{url}");
        }
    }

    /// The result of a call whose request is answered with these bytes.
    #[allow(clippy::disallowed_methods, reason = "the other end of the connection that is tested")]
    async fn answered(bytes: &'static [u8]) -> Result<Value, CallError> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answering = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(bytes).await.unwrap();
            String::from_utf8(request).unwrap()
        };
        let parameters = vec![("keyspace", "a b".to_owned())];
        let question = Call { method: Method::POST, path: "/admin/flush", parameters, password: None };
        let (place, nobody) = (Place::Url(url), Login::default());
        let (answer, request) = futures::join!(call(&place, &nobody, &question, None), answering);
        assert!(request.starts_with("POST /admin/flush?keyspace=a%20b HTTP/1.1\r\n"), "{request}");
        answer
    }

    #[tokio::test]
    async fn answers_are_read_and_refusals_say_why() {
        let ok = answered(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\": 1}\n").await;
        assert_eq!(ok.unwrap()["a"], 1);
        let refused = [
            (&b"HTTP/1.1 400 x\r\n\r\n{\"error\":\"no such keyspace\"}"[..], "no such keyspace", true),
            (b"HTTP/1.1 500 x\r\n\r\n{\"error\":\"no room\"}", "no room", false),
        ];
        for (bytes, expected, is_wrong) in refused {
            match answered(bytes).await {
                Err(CallError::Refused { reason, is_invalid }) => {
                    assert_eq!((reason.as_str(), is_invalid), (expected, is_wrong));
                }
                other => panic!("{other:?}"),
            }
        }
        let down = b"HTTP/1.1 503 x\r\n\r\n{\"status\":\"down\",\"reason\":\"the node is joining\"}";
        match answered(down).await {
            Err(CallError::NotServing { reason, answer }) => {
                assert_eq!(
                    (reason.as_str(), answer["status"].as_str()),
                    ("the node is joining", Some("down"))
                );
            }
            other => panic!("{other:?}"),
        }
        let nonsense: [&[u8]; 4] =
            [b"", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n<html>", b"HTTP/1.1 500 x\r\n\r\n{}"];
        for bytes in nonsense {
            let error = answered(bytes).await.unwrap_err();
            assert!(matches!(error, CallError::Nonsense { .. }), "{bytes:?}: {error}");
        }
    }

    /// A listener that accepts connections and never answers.
    #[allow(clippy::disallowed_methods, reason = "the other end of the connection that is tested")]
    async fn silent() -> (tokio::net::TcpListener, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (listener, url)
    }

    #[tokio::test]
    async fn a_node_that_never_answers_causes_a_timeout() {
        let (_listener, url) = silent().await;
        let question =
            Call { method: Method::GET, path: "/admin/status", parameters: Vec::new(), password: None };
        let timeout = Duration::from_millis(200);
        let place = Place::Url(url.clone());
        let asked = call(&place, &Login::default(), &question, Some(timeout)).await;
        let error = asked.unwrap_err().to_string();
        let authority = authority(&url).unwrap();
        assert_eq!(error, format!("the node at {authority} has not answered within 0.2 seconds"));
    }

    #[test]
    fn only_queries_have_a_timeout_by_default() {
        let limit =
            |method| Call { method, path: "/", parameters: Vec::new(), password: None }.answer_timeout();
        assert_eq!(limit(Method::GET), Some(ANSWER_TIMEOUT));
        assert_eq!(limit(Method::POST), None);
    }
}
