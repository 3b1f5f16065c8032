//! Whether the role of a connection may execute a statement.
//!
//! Invariants:
//! * A decision holds for the roles and the catalog on which it was made, and for no others: what is revoked is refused from the moment in
//!   which this node applies it.
//! * Where permissions are not enforced, a statement costs one branch.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashSet;
use helenus_access::{Demand, Subject, check_data_center, demands};
use helenus_config::{Authorizer, NetworkAuthorizer};
use helenus_query::error::Result;
use helenus_query::statement::{Statement, StatementId};
use helenus_roles::Roles;

use crate::session::connection_state::Connection;
use helenus_execution::shard::context::ShardContext;

/// Most decisions that a connection remembers.
const DECISIONS_MAX: usize = 4_096;

/// What a connection may do, as far as it was decided.
#[derive(Debug, Default)]
pub struct Decisions {
    /// The roles on which the decisions were made.
    version: Cell<Option<u64>>,
    is_superuser: Cell<bool>,
    /// The statements that it may execute, with the generations of their catalogs.
    allowed: RefCell<HashSet<(StatementId, u64)>>,
}

impl Decisions {
    /// Forgets what was decided for another role.
    pub fn forget(&self) {
        self.version.set(None);
    }

    /// Forgets what was decided on other roles.
    fn renew(&self, roles: &Roles, user: Option<&str>) {
        if self.version.get() == Some(roles.version()) {
            return;
        }
        self.version.set(Some(roles.version()));
        self.is_superuser.set(user.is_some_and(|user| roles.is_superuser(user)));
        self.allowed.borrow_mut().clear();
    }
}

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
        return Ok(None);
    }
    decide(connection, statement)
}

#[inline(never)]
fn decide(connection: &Connection, statement: &Statement) -> Result<Option<Statement>> {
    let context = &connection.context;
    let roles: Arc<Roles> = context.roles();
    let user: Option<Rc<str>> = connection.user.borrow().clone();
    let known = &connection.decisions;
    known.renew(&roles, user.as_deref());
    let config = &context.node.config;
    let is_bound = config.network_authorizer == NetworkAuthorizer::CassandraNetworkAuthorizer
        && !matches!(statement, Statement::Describe(_) | Statement::Roles(_));
    if let Some(user) = user.as_deref().filter(|_| is_bound) {
        check_data_center(&roles, user, &config.data_center)?;
    }
    if !is_enforced(context) {
        return Ok(None);
    }
    let subject = Subject { roles: &roles, user: user.as_deref(), is_enforced: true };
    let decision = (statement.id, statement.generation);
    // Superusers are checked too: there are things that nobody may do.
    if !known.allowed.borrow().contains(&decision) {
        let found: Vec<Demand> = demands(statement, &context.catalog_view().catalog);
        subject.ensure_all(&found)?;
        let mut allowed = known.allowed.borrow_mut();
        if allowed.len() >= DECISIONS_MAX {
            allowed.clear();
        }
        // What a schema statement demands depends on the catalog at its execution.
        if !matches!(statement, Statement::Schema(_)) {
            allowed.insert(decision);
        }
    }
    match statement {
        Statement::Select(select) if !select.plan.table.masks.is_empty() && !known.is_superuser.get() => {
            let table = &select.plan.table;
            if subject.sees_masked_values(&table.keyspace, &table.name) {
                return Ok(None);
            }
            Ok(Some(Statement::Select(select.masked(&context.catalog_view())?)))
        }
        _ => Ok(None),
    }
}
