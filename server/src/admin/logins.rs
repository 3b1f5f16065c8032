//! Logins of those who administer over HTTP: the path of clients of the native protocol, with each request.

use std::net::SocketAddr;

use cql_lite::frame::sasl_plain::{Credentials, PlainError};
use futures::future::LocalBoxFuture;
use helenus_access::check_data_center;
use helenus_config::NetworkAuthorizer;
use helenus_execution::shard::context::{NodeShared, ShardContext, run_on};
use helenus_observe::metrics::LoginResult;
use helenus_observe::{Administrator, Claim, LoginError};
use helenus_query::error::RequestError;
use tokio::sync::oneshot;

use crate::session::authentication::admission::Admission;
use crate::session::authentication::logins::{self, Refusal};

/// Logs a client in, and checks that its role may be here. A login ends with its connection: those that are under way are bounded with these.
pub(super) async fn log_in(node: &NodeShared, claim: Claim) -> Result<Administrator, LoginError> {
    // Dropped with this future.
    let (_connection, connection_ended) = oneshot::channel::<()>();
    let logged_in = run_on(&node.links[0], move |context| {
        let logged_in: LocalBoxFuture<'static, _> = Box::pin(async move {
            tokio::select! {
                logged_in = log_in_on(&context, claim) => logged_in,
                _ = connection_ended => Err(LoginError::Missing),
            }
        });
        logged_in
    });
    logged_in.await.map_err(|error| LoginError::Unavailable(error.to_string()))?
}

async fn log_in_on(context: &ShardContext, claim: Claim) -> Result<Administrator, LoginError> {
    let Claim { peer, identity, credentials } = claim;
    let identity = identity.as_deref();
    if credentials.is_none() && !logins::is_by_certificate(context, identity) {
        return Err(LoginError::Missing);
    }
    let credentials = credentials.ok_or(PlainError::NoPassword);
    let outcome = admit(context, peer, identity, credentials).await;
    if outcome.is_err() {
        context.metrics.failed_admin_logins.increment();
    }
    outcome
}

async fn admit(
    context: &ShardContext,
    peer: SocketAddr,
    identity: Option<&str>,
    credentials: Result<Credentials, PlainError>,
) -> Result<Administrator, LoginError> {
    let outcome = logins::log_in(context, peer, identity, credentials).await;
    let role = outcome.map_err(|refusal| login_error(&refusal))?;
    let now = context.clock.monotonic();
    Admission::default()
        .check(context, Some(&role), peer.ip(), now)
        .map_err(|error| request_error(&error))?;
    let (roles, config) = (context.roles_view(), &context.node.config);
    if config.network_authorizer == NetworkAuthorizer::CassandraNetworkAuthorizer {
        check_data_center(&roles, &role, &config.data_center).map_err(|error| request_error(&error))?;
    }
    Ok(Administrator { is_superuser: roles.is_superuser(&role), role: role.to_string() })
}

fn login_error(refusal: &Refusal) -> LoginError {
    match refusal.result() {
        LoginResult::Overloaded | LoginResult::RolesUnconfirmed => {
            LoginError::Unavailable(refusal.to_string())
        }
        _ => LoginError::Refused(refusal.to_string()),
    }
}

fn request_error(error: &RequestError) -> LoginError {
    match error {
        RequestError::Unauthorized(_) => LoginError::Forbidden(error.to_string()),
        _ => LoginError::Unavailable(error.to_string()),
    }
}
