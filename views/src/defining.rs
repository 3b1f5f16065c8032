//! The definition of a view of the catalog.

use std::sync::Arc;

use cql_lite::syntax::ast::QualifiedName;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_query::schema::view::{View, lookups_name, rows_name};

use crate::definition::{Definition, Joined, Output};
use crate::resolving::resolve;

impl Definition {
    /// The definition of a view of the catalog.
    pub fn new(catalog: &Catalog, view: &Arc<Table>) -> Result<Self> {
        let Some(declared) = &view.view else {
            return Err(RequestError::Invalid(format!("{} is no view", view.full_name())));
        };
        let (base, joined) = tables_of(catalog, view, declared)?;
        let resolved = resolve(catalog, &declared.statement, base, joined.map(AsRef::as_ref))?;
        let mut outputs = Vec::with_capacity(view.columns.len());
        for column in &view.columns {
            let Some(of) = resolved.columns.iter().find(|of| of.name == column.name) else {
                return Err(RequestError::Server(format!(
                    "the statement of view {} says nothing of its column {}",
                    view.full_name(),
                    column.name
                )));
            };
            outputs.push(Output { source: of.source.clone(), column_type: column.column_type.clone() });
        }
        let joined = match joined {
            None => None,
            Some(table) => Some(Joined {
                table: Arc::clone(table),
                lookups: Arc::clone(beside(catalog, view, &lookups_name(&view.name))?),
                on: resolved.on,
            }),
        };
        Ok(Self {
            view: Arc::clone(view),
            base: Arc::clone(base),
            rows: Arc::clone(beside(catalog, view, &rows_name(&view.name))?),
            joined,
            unit_columns: resolved.unit_columns,
            outputs,
            conditions_of_units: resolved.conditions_of_units,
            conditions_of_rows: resolved.conditions_of_rows,
            is_aggregate: resolved.is_aggregate,
        })
    }
}

/// The base table of a view, and the joined one.
pub(crate) fn tables_of<'c>(
    catalog: &'c Catalog,
    view: &Table,
    declared: &View,
) -> Result<(&'c Arc<Table>, Option<&'c Arc<Table>>)> {
    let statement = &declared.statement;
    let table = |name: &QualifiedName, id| {
        let keyspace = name.keyspace.as_ref().map_or(view.keyspace.as_str(), |keyspace| keyspace.as_str());
        let table = catalog.table(keyspace, name.name.as_str()).filter(|table| table.id == id);
        table.ok_or_else(|| {
            RequestError::Invalid(format!(
                "Cannot drop a table when materialized views still depend on it ({})",
                view.name
            ))
        })
    };
    let base = table(&statement.from, declared.base)?;
    let joined = match (&statement.join, declared.joined) {
        (Some(join), Some(id)) => Some(table(&join.table, id)?),
        _ => None,
    };
    Ok((base, joined))
}

fn beside<'c>(catalog: &'c Catalog, view: &Table, name: &str) -> Result<&'c Arc<Table>> {
    catalog
        .table(&view.keyspace, name)
        .ok_or_else(|| RequestError::Server(format!("the view {} has no table {name}", view.full_name())))
}
