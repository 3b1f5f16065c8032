//! Logging in: from what a client sends to the name of its role.
//!
//! Steps of a login with a password:
//! 1. The stored hash of the role is looked up; a name without one gets the hash of nobody, so that it costs the same.
//! 2. Credentials that were verified lately are in.
//! 3. The attempt waits, if others from its source as that role have failed.
//! 4. The password is hashed beside the shards' threads.
//! 5. The role is looked up again: what has changed meanwhile counts.
//!
//! Invariant: wrong names and wrong passwords cost the same number of hashes, and get the same text.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cql_lite::frame::sasl_plain::{Credentials, PlainError};
use cql_lite::frame::{ErrorKind, ErrorResponse};
use helenus_observe::metrics::LoginResult;
use helenus_query::error::RequestError;
use helenus_roles::password::{NOBODYS_HASH, PasswordError};

use super::throttle::Throttle;
use super::verified::Verified;
use crate::cluster::confirmation;
use crate::session::request_logs::RequestLogs;
use helenus_answers::errors::to_response;
use helenus_execution::shard::context::{NodeShared, ShardContext};
use helenus_fair_shares::{RoleShare, RoleShares};
use helenus_passwords::digest::DigestKey;
use helenus_passwords::pool::{HashingPool, PoolFull};
use helenus_tls::login_slots::{LoginSlots, Slot};
use helenus_tls::source::Source;

/// What the shards of a node share about logins.
#[derive(Default)]
pub struct Logins {
    throttle: Mutex<Throttle>,
    verified: Mutex<Verified>,
    /// Made with the first login.
    key: OnceLock<DigestKey>,
    slots: Arc<LoginSlots>,
}

/// Why a client is not logged in.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Malformed(#[from] PlainError),
    #[error("Provided username {0} and/or password are incorrect")]
    WrongCredentials(String),
    #[error("{0} is not permitted to log in")]
    NotPermitted(String),
    #[error("Invalid or not supported certificate")]
    NoCertificate,
    #[error("Certificate identity '{0}' not authorized")]
    UnknownIdentity(String),
    #[error("Too many attempts to log in as {role} from {address}; try again later")]
    TooManyAttempts { role: String, address: std::net::IpAddr },
    /// The roles of this node may be too old.
    #[error(transparent)]
    Unconfirmed(RequestError),
    #[error(transparent)]
    PoolFull(#[from] PoolFull),
    #[error("Unable to perform authentication: {0}")]
    Failed(#[from] PasswordError),
}

impl Refusal {
    pub fn result(&self) -> LoginResult {
        match self {
            Self::Malformed(_) => LoginResult::Malformed,
            Self::WrongCredentials(_) => LoginResult::WrongCredentials,
            Self::NotPermitted(_) => LoginResult::NotPermitted,
            Self::Unconfirmed(_) => LoginResult::RolesUnconfirmed,
            Self::NoCertificate | Self::UnknownIdentity(_) => LoginResult::Certificate,
            Self::TooManyAttempts { .. } | Self::PoolFull(_) | Self::Failed(_) => LoginResult::Overloaded,
        }
    }
}

impl From<&Refusal> for ErrorResponse {
    fn from(refusal: &Refusal) -> Self {
        let kind = match refusal {
            Refusal::Unconfirmed(error) => return to_response(error),
            _ if refusal.result() == LoginResult::Overloaded => ErrorKind::Overloaded,
            _ => ErrorKind::BadCredentials,
        };
        Self::new(kind, refusal.to_string())
    }
}

impl Logins {
    pub fn of(context: &ShardContext) -> &Self {
        context.node.layers.get()
    }

    /// A place among the connections that have not logged in, for one that was accepted. `None`: clients need not log in.
    pub fn slot(context: &ShardContext, peer: SocketAddr) -> Option<Slot> {
        let config = &context.node.config;
        let max = config.max_connections_before_login.unwrap_or(config.max_connections / 4);
        let logs_in = config.authenticator.requires_login();
        logs_in.then(|| Self::of(context).slots.enter(Source::of(peer.ip()), max))
    }

    fn key(&self) -> Result<&DigestKey, PasswordError> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let key = DigestKey::random()?;
        Ok(self.key.get_or_init(|| key))
    }
}

/// What makes roles take turns while a client that was accepted logs in. `None`: clients need not log in, or roles have no shares.
pub fn share(node: &NodeShared) -> Option<Arc<RoleShare>> {
    let config = &node.config;
    let takes_turns = config.fair_shares_enabled && config.authenticator.requires_login();
    takes_turns.then(|| node.layers.get::<RoleShares>().of_login())
}

/// Logs a client in with what the authenticator takes of it, counts the attempt and records it in the audit log. Returns the name of its
/// role.
pub async fn log_in(
    context: &ShardContext,
    peer: SocketAddr,
    identity: Option<&str>,
    credentials: Result<Credentials, PlainError>,
) -> Result<Rc<str>, Refusal> {
    let name = credentials.as_ref().ok().map(|credentials| credentials.role.clone());
    let audit = &RequestLogs::of(&context.node).audit;
    if audit.holds_requests() {
        let named = is_by_certificate(context, identity).then(|| with_certificate(context, identity).ok());
        audit.admits_login(named.flatten().as_deref().or(name.as_deref()), peer).await;
    }
    let outcome = match credentials {
        _ if is_by_certificate(context, identity) => with_certificate(context, identity),
        Ok(credentials) => with_password(context, peer, credentials).await,
        Err(error) => Err(error.into()),
    };
    let name = outcome.as_deref().ok().or(name.as_deref());
    let refusal = outcome.as_ref().err().map(ToString::to_string);
    let millis = context.clock.now_micros() / 1_000;
    audit.login(name, peer, millis, refusal.as_deref().map_or(Ok(()), Err));
    let result = outcome.as_ref().map_or_else(Refusal::result, |_| LoginResult::Success);
    context.metrics.logins[result as usize].increment();
    if let Some(refusal) = refusal {
        tracing::debug!(%peer, refusal, "a client is not logged in");
    }
    outcome
}

/// Whether a client with this identity logs in with its certificate, and with nothing else.
pub fn is_by_certificate(context: &ShardContext, identity: Option<&str>) -> bool {
    let authenticator = context.node.config.authenticator;
    authenticator.takes_certificates() && (identity.is_some() || !authenticator.takes_passwords())
}

/// Logs a client in with a name and a password. Returns the name of its role.
async fn with_password(
    context: &ShardContext,
    peer: SocketAddr,
    credentials: Credentials,
) -> Result<Rc<str>, Refusal> {
    confirmation::check(context).map_err(Refusal::Unconfirmed)?;
    let Credentials { role, password } = credentials;
    let (logins, source) = (Logins::of(context), Source::of(peer.ip()));
    let stored = stored_hash(context, &role);
    let hash = stored.as_deref().unwrap_or(NOBODYS_HASH);
    let digest = logins.key()?.digest(&role, hash, &password);
    let begun = context.clock.monotonic();
    let mut is_right = logins.verified.lock().unwrap_or_else(PoisonError::into_inner).holds(digest, begun);
    if !is_right {
        let wait_max = Duration::from_millis(context.node.config.login_timeout_ms) / 2;
        let attempt = logins.throttle().begin(source, &role, begun, wait_max);
        let Ok(wait) = attempt else {
            return Err(Refusal::TooManyAttempts { role, address: peer.ip() });
        };
        if !wait.is_zero() {
            context.clock.sleep(wait).await;
        }
        let verified = HashingPool::of(context).verify(source, digest, &password, hash, &context.metrics)?;
        is_right = verified.await.map_err(|_| PoolFull)? && stored.is_some();
        if is_right {
            logins.throttle().succeeded(source, &role);
            let validity = Duration::from_millis(context.node.config.credentials_validity_ms);
            let until = context.clock.monotonic() + validity;
            logins.verified.lock().unwrap_or_else(PoisonError::into_inner).remember(digest, until);
        }
    }
    if !is_right || stored_hash(context, &role) != stored {
        return Err(Refusal::WrongCredentials(role));
    }
    permitted(context, role)
}

/// Logs a client in with the identity of its certificate, if it has one. Returns the name of its role.
fn with_certificate(context: &ShardContext, identity: Option<&str>) -> Result<Rc<str>, Refusal> {
    confirmation::check(context).map_err(Refusal::Unconfirmed)?;
    let identity = identity.ok_or(Refusal::NoCertificate)?;
    let role = context.roles_view().role_of_identity(identity).map(str::to_owned);
    permitted(context, role.ok_or_else(|| Refusal::UnknownIdentity(identity.to_owned()))?)
}

impl Logins {
    fn throttle(&self) -> std::sync::MutexGuard<'_, Throttle> {
        self.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stored_hash(context: &ShardContext, role: &str) -> Option<String> {
    let hash = context.roles_view().role(role)?.salted_hash.clone()?;
    Some(hash.as_str().to_owned())
}

/// The role, if it may log in. As in Cassandra, what the roles may that it is a member of does not count.
fn permitted(context: &ShardContext, role: String) -> Result<Rc<str>, Refusal> {
    if context.roles_view().role(&role).is_some_and(|role| role.can_login) {
        return Ok(role.into());
    }
    Err(Refusal::NotPermitted(role))
}
