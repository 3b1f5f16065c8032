//! The plan of one INSERT, UPDATE or DELETE, and which tables that are computed can be changed.

use cql_lite::syntax::ast;

use super::modify::{ModifyPlan, plan_delete, plan_insert, plan_update};
use super::names::{NameScope, table_of};
use super::term::Markers;
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Catalog, Table, TableKind};
use crate::schema::system_keyspaces::{
    SYSTEM_DISTRIBUTED, SYSTEM_SCHEMA, SYSTEM_VIEWS, SYSTEM_VIRTUAL_SCHEMA,
};
use crate::schema::virtual_tables;

/// Plans a modification by a client.
pub(super) fn plan_modification(
    statement: &ast::Modification,
    catalog: &Catalog,
    keyspace: Option<&str>,
    markers: &mut Markers,
) -> Result<ModifyPlan> {
    let plan = plan_of_node(statement, catalog, keyspace, markers)?;
    if !sets_table_extensions(statement, &plan.table) {
        check_writable(&plan.table, &plan)?;
    }
    Ok(plan)
}

/// Plans a modification by the node, which also writes the tables that clients may not write.
pub(super) fn plan_of_node(
    statement: &ast::Modification,
    catalog: &Catalog,
    keyspace: Option<&str>,
    markers: &mut Markers,
) -> Result<ModifyPlan> {
    let name = match statement {
        ast::Modification::Insert(insert) => &insert.table,
        ast::Modification::Update(update) => &update.table,
        ast::Modification::Delete(delete) => &delete.table,
    };
    let (_, table) = table_of(catalog, name, keyspace)?;
    let scope = NameScope { catalog, keyspace: Some(&table.keyspace), table: Some(table) };
    match statement {
        ast::Modification::Insert(insert) => plan_insert(insert, table, &scope, markers),
        ast::Modification::Update(update) => plan_update(update, table, &scope, markers),
        ast::Modification::Delete(delete) => plan_delete(delete, table, &scope, markers),
    }
}

/// Refuses a modification of a table that is computed, unless it changes the node itself. `plan`: the modification.
fn check_writable(table: &Table, plan: &ModifyPlan) -> Result<()> {
    if table.view.is_some() || table.is_hidden() {
        return Err(RequestError::invalid("Cannot directly modify a materialized view"));
    }
    if is_of_nodes(table) {
        return Err(not_modifiable(table));
    }
    if table.options.is_feed_log {
        let name = table.full_name();
        return Err(RequestError::invalid(format!(
            "Cannot modify CDC log table {name}: write to its base table"
        )));
    }
    if table.kind != TableKind::Virtual {
        return Ok(());
    }
    check_modifiable(table)?;
    if plan.conditions.is_some() {
        return Err(RequestError::invalid("Conditional updates are not supported by virtual tables"));
    }
    if plan.time_to_live.is_some() {
        return Err(RequestError::invalid("Expiring columns are not supported by virtual tables"));
    }
    if !virtual_tables::is_writable(table) {
        return Err(RequestError::invalid(format!(
            "Modification is not supported by table {}",
            table.full_name()
        )));
    }
    Ok(())
}

/// Whether a modification sets the extensions of tables, which some clients of Cassandra write into its schema tables.
fn sets_table_extensions(statement: &ast::Modification, table: &Table) -> bool {
    let ast::Modification::Update(update) = statement else { return false };
    let [assignment] = &update.assignments[..] else { return false };
    table.keyspace == SYSTEM_SCHEMA
        && table.name == "tables"
        && assignment.column.as_str() == "extensions"
        && matches!(assignment.operation, ast::AssignmentOperation::Set(_))
        && update.condition.is_none()
        && update.using == ast::Using::default()
}

/// Refuses any modification of a computed table that is an ordinary one in Cassandra, unless clients can change it here as well.
pub(super) fn check_modifiable(table: &Table) -> Result<()> {
    if is_of_views(table) || virtual_tables::is_writable(table) { Ok(()) } else { Err(not_modifiable(table)) }
}

/// Whether the table is computed in Cassandra as well, so that clients know its errors.
pub(super) fn is_of_views(table: &Table) -> bool {
    [SYSTEM_VIEWS, SYSTEM_VIRTUAL_SCHEMA].contains(&table.keyspace.as_str())
}

pub(super) fn not_modifiable(table: &Table) -> RequestError {
    let reason = if is_of_nodes(table) { "only nodes write to it" } else { "it is a virtual table" };
    RequestError::Unauthorized(format!("Cannot modify {}: {reason}", table.full_name()))
}

/// Whether a stored table is written by nodes only: they keep there who keeps views, and how far these are.
pub(super) fn is_of_nodes(table: &Table) -> bool {
    table.keyspace == SYSTEM_DISTRIBUTED && table.kind == TableKind::Stored
}
