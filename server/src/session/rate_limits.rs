//! Requests a second of a role: more than its option `requests_per_second_max`, or the setting `role_requests_per_second_max`, are
//! refused before they have any effect.
//!
//! Invariant: without a limit a request looks at one number.

use cql_lite::frame::request::Request;
use helenus_audit::entry::{ANONYMOUS, Category};
use helenus_audit::statement_text::describe;
use helenus_query::error::{RequestError, Result};
use helenus_query::statement::Statement;

use crate::session::allowance::Allowance;
use crate::session::connection_state::Connection;

/// Refuses a request of a role that has used its allowance up.
#[inline]
pub fn admit(connection: &Connection, request: &Request<'_>) -> Result<()> {
    match &*connection.allowance.borrow() {
        None => Ok(()),
        Some(allowance) => admit_within(connection, request, allowance),
    }
}

fn admit_within(connection: &Connection, request: &Request<'_>, allowance: &Allowance) -> Result<()> {
    if allowance.admit(connection.context.clock.monotonic()) {
        return Ok(());
    }
    connection.context.metrics.rate_limited.increment();
    let user = connection.user.borrow();
    Err(RequestError::RateLimited {
        message: format!(
            "Role {} makes more than {} requests a second",
            user.as_deref().unwrap_or(ANONYMOUS),
            allowance.per_second()
        ),
        is_write: is_write(connection, request),
    })
}

fn is_write(connection: &Connection, request: &Request<'_>) -> bool {
    match request {
        Request::Query(query) => {
            let described = describe(query.statement, None).entry_type;
            described.is_some_and(|own| own.category() != Category::Query)
        }
        Request::Execute(execute) => {
            let context = &connection.context;
            let known = context.statements.get(&context.node.registry, execute.id, &context.catalog_view());
            known.is_ok_and(|statement| !matches!(statement, Statement::Select(_)))
        }
        Request::Batch(_) => true,
        _ => false,
    }
}
