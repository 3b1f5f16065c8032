//! The token of SASL's mechanism PLAIN (RFC 4616), with which clients log in: names and a password.

use std::fmt;

/// The name of a role and a password, as a client sent them.
pub struct Credentials {
    pub role: String,
    pub password: String,
}

/// Without the password: it has no place in logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Credentials").field("role", &self.role).finish_non_exhaustive()
    }
}

/// Why a token is refused. The texts are Cassandra's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlainError {
    #[error("Password must not be null")]
    NoPassword,
    #[error("Authentication ID must not be null")]
    NoName,
    #[error("Credential format error: username or password is empty or contains NUL(\\0) character")]
    Nul,
}

/// Reads `authorisation NUL name NUL password`. The authorisation, another name to act for, has no effect, as in Cassandra.
pub fn decode(token: &[u8]) -> Result<Credentials, PlainError> {
    let mut parts = token.rsplit(|byte| *byte == 0);
    let last = parts.next().unwrap_or_default();
    let second = parts.next();
    let third = parts.next();
    if parts.next().is_some() {
        return Err(PlainError::Nul);
    }
    // Without a NUL before it a part does not count.
    let password = second.is_some().then_some(last).filter(|password| !password.is_empty());
    let role = third.and(second).filter(|role| !role.is_empty());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let password = text(password.ok_or(PlainError::NoPassword)?);
    Ok(Credentials { role: text(role.ok_or(PlainError::NoName)?), password })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_name_and_a_password() {
        for token in ["\0ann\0secret", "admin\0ann\0secret"] {
            let credentials = decode(token.as_bytes()).unwrap();
            assert_eq!((credentials.role.as_str(), credentials.password.as_str()), ("ann", "secret"));
            assert!(!format!("{credentials:?}").contains("secret"));
        }
    }

    #[test]
    fn malformed_tokens_are_refused_with_cassandras_texts() {
        for (token, text) in [
            ("", "Password must not be null"),
            ("ann", "Password must not be null"),
            ("\0ann\0", "Password must not be null"),
            ("\0\0", "Password must not be null"),
            ("\0secret", "Authentication ID must not be null"),
            ("ann\0secret", "Authentication ID must not be null"),
            ("\0\0secret", "Authentication ID must not be null"),
            (
                "\0\0ann\0secret",
                "Credential format error: username or password is empty or contains NUL(\\0) character",
            ),
            (
                "\0ann\0secret\0",
                "Credential format error: username or password is empty or contains NUL(\\0) character",
            ),
        ] {
            assert_eq!(decode(token.as_bytes()).unwrap_err().to_string(), text, "{token:?}");
        }
    }
}
