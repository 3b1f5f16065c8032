//! The attempts of one connection to log in.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::ErrorResponse;
use cql_lite::frame::sasl_plain::{self, Credentials, PlainError};
use futures::future::LocalBoxFuture;
use helenus_observe::metrics::LoginResult;

use super::logins::{self, Logins, Refusal};
use super::stage::Stage;
use crate::session::connection_state::Connection;

/// What a client sent to log in.
#[derive(Debug)]
pub struct Attempt {
    stream: i16,
    credentials: Result<Credentials, PlainError>,
}

impl Attempt {
    pub fn new(stream: i16, token: &[u8]) -> Self {
        Self { stream, credentials: sasl_plain::decode(token) }
    }
}

/// Carries an attempt out, and answers it.
pub async fn carry_out(connection: Rc<Connection>, attempt: Attempt) {
    let Attempt { stream, credentials } = attempt;
    let name = credentials.as_ref().ok().map(|credentials| credentials.role.clone());
    let outcome = log_in(&connection, credentials).await;
    let name = outcome.as_deref().ok().or(name.as_deref());
    let refusal = outcome.as_ref().err().map(ToString::to_string);
    let millis = connection.context.clock.now_micros() / 1_000;
    let logged = refusal.as_deref().map_or(Ok(()), Err);
    connection.logs.audit.login(name, connection.peer, millis, logged);
    let result = outcome.as_ref().map_or_else(Refusal::result, |_| LoginResult::Success);
    connection.context.metrics.logins[result as usize].increment();
    if let Err(refusal) = &outcome {
        tracing::debug!(peer = %connection.peer, %refusal, "a client is not logged in");
    }
    connection.answer_login(stream, outcome.map_err(|refusal| ErrorResponse::from(&refusal)));
}

async fn log_in(
    connection: &Connection,
    credentials: Result<Credentials, PlainError>,
) -> Result<Rc<str>, Refusal> {
    let (context, authenticator) = (&connection.context, connection.context.node.config.authenticator);
    let identity = connection.identity.as_deref();
    if authenticator.takes_certificates() && (identity.is_some() || !authenticator.takes_passwords()) {
        return logins::with_certificate(context, identity);
    }
    logins::with_password(context, connection.peer, credentials?).await
}

/// Resolves when the login that is under way has ended; never if there is none.
pub async fn ended(login: &mut Option<LocalBoxFuture<'static, ()>>) {
    match login {
        Some(login) => login.await,
        None => std::future::pending().await,
    }
}

/// Resolves when a client that has to log in has taken too long, or its place was needed for others.
pub async fn overdue(connection: &Connection) {
    let context = &connection.context;
    if context.node.config.authenticator.requires_login() {
        let mut slot = Logins::slot(context, connection.peer);
        let time = context.clock.sleep(Duration::from_millis(context.node.config.login_timeout_ms));
        tokio::select! {
            () = time => {}
            () = slot.given_up() => {}
            () = connection.logged_in.notified() => {}
        }
        if connection.stage.get() != Stage::Ready {
            return;
        }
    }
    std::future::pending::<()>().await;
}
