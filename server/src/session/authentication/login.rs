//! The attempts of one connection to log in.

use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::ErrorResponse;
use cql_lite::frame::sasl_plain::{self, Credentials, PlainError};
use futures::future::LocalBoxFuture;
use helenus_tls::login_slots::Slot;

use super::logins;
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
    let identity = connection.identity.as_deref();
    let outcome = logins::log_in(&connection.context, connection.peer, identity, credentials).await;
    connection.answer_login(stream, outcome.map_err(|refusal| ErrorResponse::from(&refusal)));
}

/// Resolves when the login that is under way has ended; never if there is none.
pub async fn ended(login: &mut Option<LocalBoxFuture<'static, ()>>) {
    match login {
        Some(login) => login.await,
        None => std::future::pending().await,
    }
}

/// Resolves when a client that has to log in has taken too long, or its place was needed for others. `slot`: `None` for clients that need
/// not log in.
pub async fn overdue(connection: &Connection, slot: Option<Slot>) {
    let context = &connection.context;
    if let Some(mut slot) = slot {
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
