//! One request to a node's HTTP port and its answer, which is JSON.

use std::fmt;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// Timeout for a connection: the node is on the same machine, or at the other end of a tunnel.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Default timeout for the answer to a query.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: Method,
    pub path: &'static str,
    pub parameters: Vec<(&'static str, String)>,
}

impl Call {
    /// The default timeout. Queries are answered at once. Operations that change the node take as long as its data
    /// requires, and have no limit.
    fn answer_timeout(&self) -> Option<Duration> {
        match self.method {
            Method::Get => Some(ANSWER_TIMEOUT),
            Method::Post => None,
        }
    }
}

impl fmt::Display for Call {
    /// Writes the beginning of the request's first line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = match self.method {
            Method::Get => "GET",
            Method::Post => "POST",
        };
        write!(formatter, "{method} {}", self.path)?;
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            write!(formatter, "{separator}{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))?;
        }
        Ok(())
    }
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("'{0}' is no address of a node: http://HOST:PORT is expected")]
    Url(String),
    #[error("cannot reach the node at {authority}: {source}")]
    Unreachable { authority: String, source: std::io::Error },
    #[error("cannot reach the node at {authority}: no connection within {} seconds", timeout.as_secs_f64())]
    NoConnection { authority: String, timeout: Duration },
    #[error("the node at {authority} has not answered within {} seconds", timeout.as_secs_f64())]
    NoAnswer { authority: String, timeout: Duration },
    /// The node's reason.
    #[error("{0}")]
    Refused(String),
    /// The node answers, but serves no clients; with its reason.
    #[error("{reason}")]
    NotServing { reason: String, answer: Value },
    #[error("what answers at {authority} is no node of Helenus")]
    Nonsense { authority: String },
}

/// Sends a request and waits for its answer. `timeout` replaces the default of the call.
#[allow(clippy::disallowed_methods, reason = "a program of its own, not a part of the node")]
pub async fn call(url: &str, call: &Call, timeout: Option<Duration>) -> Result<Value, CallError> {
    let authority = authority(url)?;
    let unreachable = |source| CallError::Unreachable { authority: authority.to_owned(), source };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(authority)).await;
    let stream = connected
        .map_err(|_| CallError::NoConnection { authority: authority.to_owned(), timeout: CONNECT_TIMEOUT })?
        .map_err(unreachable)?;
    let request =
        format!("{call} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let exchanged = exchange(stream, &request);
    let answer = match timeout.or_else(|| call.answer_timeout()) {
        None => exchanged.await,
        Some(timeout) => tokio::time::timeout(timeout, exchanged)
            .await
            .map_err(|_| CallError::NoAnswer { authority: authority.to_owned(), timeout })?,
    };
    parse(&answer.map_err(unreachable)?)
        .unwrap_or_else(|| Err(CallError::Nonsense { authority: authority.to_owned() }))
}

/// Sends the request and reads the answer to its end.
async fn exchange(mut stream: TcpStream, request: &str) -> std::io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn authority(url: &str) -> Result<&str, CallError> {
    let rest = match url.split_once("://") {
        None => url,
        Some(("http", rest)) => rest,
        Some(_) => return Err(CallError::Url(url.to_owned())),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let is_valid = authority.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok() && !authority.contains(['/', '@', '?', '#'])
    });
    if is_valid { Ok(authority) } else { Err(CallError::Url(url.to_owned())) }
}

/// Parses an answer with its status; `None`: it is not a valid answer.
fn parse(answer: &[u8]) -> Option<Result<Value, CallError>> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut status_line = head.lines().next()?.split(' ');
    status_line.next().filter(|version| version.starts_with("HTTP/1."))?;
    let status: u16 = status_line.next()?.parse().ok()?;
    let body: Value = serde_json::from_str(body).ok()?;
    if status == 200 {
        return Some(Ok(body));
    }
    let text = |name| body.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(reason) = text("error") {
        return Some(Err(CallError::Refused(reason)));
    }
    let reason = text("reason")?;
    Some(Err(CallError::NotServing { reason, answer: body }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_with_and_without_a_scheme() {
        for url in ["http://127.0.0.1:9180", "http://127.0.0.1:9180/", "127.0.0.1:9180"] {
            assert_eq!(authority(url).unwrap(), "127.0.0.1:9180");
        }
        assert_eq!(authority("http://[::1]:9180").unwrap(), "[::1]:9180");
        for url in ["https://a:1", "http://a", "a:b", ":1", "http://a:1/admin", "http://u@a:1"] {
            assert!(authority(url).is_err(), "{url}");
        }
    }

    #[test]
    fn answers_are_read_and_refusals_say_why() {
        let ok = parse(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{\"a\": 1}\n");
        assert_eq!(ok.unwrap().unwrap()["a"], 1);
        let refused = parse(b"HTTP/1.1 400 Bad Request\r\n\r\n{\"error\":\"no such path\"}");
        assert_eq!(refused.unwrap().unwrap_err().to_string(), "no such path");
        let down = b"HTTP/1.1 503 x\r\n\r\n{\"status\":\"down\",\"reason\":\"the node is joining\"}";
        match parse(down) {
            Some(Err(CallError::NotServing { reason, answer })) => {
                assert_eq!(
                    (reason.as_str(), answer["status"].as_str()),
                    ("the node is joining", Some("down"))
                );
            }
            other => panic!("{other:?}"),
        }
        for nonsense in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n<html>", "HTTP/1.1 500 x\r\n\r\n{}"] {
            assert!(parse(nonsense.as_bytes()).is_none(), "{nonsense}");
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
        let question = Call { method: Method::Get, path: "/admin/status", parameters: Vec::new() };
        let timeout = Duration::from_millis(200);
        let error = call(&url, &question, Some(timeout)).await.unwrap_err().to_string();
        let authority = authority(&url).unwrap();
        assert_eq!(error, format!("the node at {authority} has not answered within 0.2 seconds"));
    }

    #[test]
    fn only_queries_have_a_timeout_by_default() {
        let limit = |method| Call { method, path: "/", parameters: Vec::new() }.answer_timeout();
        assert_eq!(limit(Method::Get), Some(ANSWER_TIMEOUT));
        assert_eq!(limit(Method::Post), None);
    }
}
