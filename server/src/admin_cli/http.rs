//! One request to a node's HTTP port and its answer, which is JSON.

use std::fmt;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: Method,
    pub path: &'static str,
    pub parameters: Vec<(&'static str, String)>,
}

impl fmt::Display for Call {
    /// The beginning of the request's first line.
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

/// Why there is no answer, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("'{0}' is no address of a node: http://HOST:PORT is expected")]
    Url(String),
    #[error("cannot reach the node at {authority}: {source}")]
    Unreachable { authority: String, source: std::io::Error },
    /// The node says why.
    #[error("{0}")]
    Refused(String),
    #[error("what answers at {authority} is no node of Helenus")]
    Nonsense { authority: String },
}

/// Sends a request and waits for its answer, however long the work takes.
#[allow(clippy::disallowed_methods, reason = "a program of its own, not a part of the node")]
pub async fn call(url: &str, call: &Call) -> Result<Value, CallError> {
    let authority = authority(url)?;
    let unreachable = |source| CallError::Unreachable { authority: authority.to_owned(), source };
    let mut stream = TcpStream::connect(authority).await.map_err(unreachable)?;
    let request =
        format!("{call} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(unreachable)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await.map_err(unreachable)?;
    parse(&answer).unwrap_or_else(|| Err(CallError::Nonsense { authority: authority.to_owned() }))
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

/// An answer with its status; `None`: it is none.
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
    let reason = body.get("error").and_then(Value::as_str)?;
    Some(Err(CallError::Refused(reason.to_owned())))
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
        for nonsense in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n<html>", "HTTP/1.1 500 x\r\n\r\n{}"] {
            assert!(parse(nonsense.as_bytes()).is_none(), "{nonsense}");
        }
    }
}
