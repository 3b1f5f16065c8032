//! Credentials of an HTTP request: a name and a password (HTTP Basic, RFC 7617), or the identity of a client certificate.
//!
//! Invariant: passwords are in no text of an error, and shown by no `Debug`.

use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cql_lite::frame::sasl_plain::Credentials;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;

const BASIC: &str = "basic";

/// What a client shows of itself.
#[derive(Debug)]
pub struct Claim {
    pub peer: SocketAddr,
    /// The identity that its certificate names; `None`: it has shown none, or it names none.
    pub identity: Option<String>,
    pub credentials: Option<Credentials>,
}

/// A role that has logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Administrator {
    pub role: String,
    pub is_superuser: bool,
}

/// The reason why a client is not logged in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    #[error(
        "a login is needed: the name and the password of a role (HTTP Basic), or a certificate with an identity"
    )]
    Missing,
    #[error("the header Authorization is malformed: Basic, a name and a password are expected")]
    Malformed,
    /// What it has shown is wrong.
    #[error("{0}")]
    Refused(String),
    /// The role may not be here.
    #[error("{0}")]
    Forbidden(String),
    /// It cannot be decided now.
    #[error("{0}")]
    Unavailable(String),
}

/// The name and the password of a request; `None`: it has none.
pub(crate) fn credentials(headers: &HeaderMap) -> Result<Option<Credentials>, LoginError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| values.next().is_none());
    text.and_then(basic).map(Some).ok_or(LoginError::Malformed)
}

fn basic(value: &str) -> Option<Credentials> {
    let (scheme, token) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case(BASIC) {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(token.trim()).ok()?).ok()?;
    let (role, password) = text.split_once(':')?;
    let is_valid = !role.is_empty() && !password.is_empty() && !text.contains('\0');
    is_valid.then(|| Credentials { role: role.to_owned(), password: password.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&str]) -> Result<Option<(String, String)>, LoginError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        let found = credentials(&headers)?;
        Ok(found.map(|Credentials { role, password }| (role, password)))
    }

    fn encoded(bytes: &[u8]) -> String {
        format!("Basic {}", STANDARD.encode(bytes))
    }

    #[test]
    fn a_name_ends_at_the_first_colon() {
        assert_eq!(read(&[]), Ok(None));
        for (text, name, password) in [("anna:secret", "anna", "secret"), ("ännä:a:b c", "ännä", "a:b c")]
        {
            let expected = Ok(Some((name.to_owned(), password.to_owned())));
            assert_eq!(read(&[&encoded(text.as_bytes())]), expected);
            assert_eq!(read(&[&encoded(text.as_bytes()).replace("Basic", "BASIC")]), expected);
        }
    }

    #[test]
    fn what_is_no_name_and_password_is_malformed() {
        for value in ["", "Basic", "Basic ???", "Bearer YTpi", "YTpi"] {
            assert_eq!(read(&[value]), Err(LoginError::Malformed), "{value}");
        }
        for bytes in [&b"anna"[..], b":secret", b"anna:", b"anna:\xff", b"an\0na:secret"] {
            assert_eq!(read(&[&encoded(bytes)]), Err(LoginError::Malformed), "{bytes:?}");
        }
        let twice = encoded(b"anna:secret");
        assert_eq!(read(&[&twice, &twice]), Err(LoginError::Malformed));
    }
}
