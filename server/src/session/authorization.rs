//! Whether the role of a connection may execute a statement.
//!
//! Invariants:
//! * A decision holds for the roles and the catalog on which it was made, and for no others: what is revoked is refused from the moment in
//!   which this node applies it.
//! * Where permissions are not enforced, a statement costs one branch.
//! * Where clients log in, only superusers change the node itself and what the members agree on by writing to virtual tables, also where
//!   permissions are not enforced: the same changes over HTTP are for superusers.

use helenus_access::{Demand, Subject, check_data_center, demands};
use helenus_config::{Authorizer, NetworkAuthorizer};
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::TableKind;
use helenus_query::statement::Statement;

use crate::session::connection_state::Connection;
use helenus_execution::shard::context::ShardContext;

/// Whether permissions are enforced on this node.
#[inline]
pub fn is_enforced(context: &ShardContext) -> bool {
    context.node.config.authorizer == Authorizer::CassandraAuthorizer
}

/// Refuses a statement for which the role has no permission. Statements about roles have rules of their own. Returns the
/// statement as it is to be executed: for who may not see the values of masked columns, it hides them.
#[inline]
pub fn authorize(connection: &Connection, statement: &Statement) -> Result<Option<Statement>> {
    let config = &connection.context.node.config;
    if config.authorizer == Authorizer::AllowAllAuthorizer
        && config.network_authorizer == NetworkAuthorizer::AllowAllNetworkAuthorizer
    {
        if changes_node(statement) {
            check_superuser(connection, statement)?;
        }
        return Ok(None);
    }
    decide(connection, statement)
}

/// Whether a statement writes to a virtual table, and so changes the node or what the members agree on. The schema is another thing: who may
/// change that says the authorizer.
#[inline]
fn changes_node(statement: &Statement) -> bool {
    match statement {
        Statement::Modify(modify) => {
            modify.plan.table.kind == TableKind::Virtual && !modify.plan.sets_table_extensions()
        }
        Statement::Truncate(truncate) => truncate.plan.kind == TableKind::Virtual,
        Statement::Explain(explain) => changes_node(&explain.plan.statement),
        _ => false,
    }
}

/// Returns an error unless the role is a superuser, or clients need no login.
#[cold]
fn check_superuser(connection: &Connection, statement: &Statement) -> Result<()> {
    let (context, user) = (&connection.context, connection.user.borrow());
    if !context.node.config.authenticator.requires_login() || context.is_superuser(user.as_deref()) {
        return Ok(());
    }
    let table = statement.table().map(|table| table.full_name()).unwrap_or_default();
    Err(RequestError::Unauthorized(format!("Only superusers are allowed to change {table}")))
}

#[inline(never)]
fn decide(connection: &Connection, statement: &Statement) -> Result<Option<Statement>> {
    let context = &connection.context;
    let (roles, user) = (context.roles_view(), connection.user.borrow());
    let known = &connection.decisions;
    known.renew(&roles, user.as_deref());
    let config = &context.node.config;
    let is_bound = config.network_authorizer == NetworkAuthorizer::CassandraNetworkAuthorizer
        && !matches!(statement, Statement::Describe(_) | Statement::Roles(_));
    if let Some(user) = user.as_deref().filter(|_| is_bound) {
        check_data_center(&roles, user, &config.data_center)?;
    }
    if !is_enforced(context) {
        if changes_node(statement) {
            check_superuser(connection, statement)?;
        }
        return Ok(None);
    }
    let subject = Subject { roles: &roles, user: user.as_deref(), is_enforced: true };
    // Superusers are checked too: there are things that nobody may do.
    if !known.allow(statement) {
        let found: Vec<Demand> = demands(statement, &context.catalog_view().catalog);
        subject.ensure_all(&found)?;
        // What a schema statement demands depends on the catalog at its execution.
        if !matches!(statement, Statement::Schema(_)) {
            known.remember(statement);
        }
    }
    match statement {
        Statement::Select(select) if !select.plan.table.masks.is_empty() && !known.is_superuser() => {
            let table = &select.plan.table;
            // Reading a view demands UNMASK on the tables that it is computed of.
            if table.view.is_some() {
                return Ok(None);
            }
            if subject.sees_masked_values(&table.keyspace, &table.name) {
                return Ok(None);
            }
            Ok(Some(Statement::Select(select.masked(&context.catalog_view())?)))
        }
        _ => Ok(None),
    }
}
