//! What a view is computed of, resolved against the tables.
//!
//! A view is computed by *units* of its base table: rows, or for `GROUP BY` groups of rows. A unit is named by the first columns of the base
//! table's primary key, the whole partition key at least, and has at most one row in the view.

use std::sync::Arc;

use cql_lite::syntax::ast::{QualifiedName, Relation};
use cql_lite::types::CqlType;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Catalog, Table};
use helenus_query::schema::view::{View, lookups_name, rows_name};

use crate::resolving::resolve;

/// A view with all that is needed to compute its rows.
#[derive(Debug, Clone)]
pub struct Definition {
    pub view: Arc<Table>,
    pub base: Arc<Table>,
    /// `view$rows`: its partition key is that of the base table, its clustering key the other columns of the unit and then those columns of the
    /// view's primary key that the unit does not have.
    pub rows: Arc<Table>,
    pub joined: Option<Joined>,
    /// The number of columns of the base table's primary key, in its order, that name a unit.
    pub unit_columns: usize,
    /// For each column of the view, in the order of its columns.
    pub outputs: Vec<Output>,
    /// Conditions on columns of the unit and of the joined table: what a row of a view without groups has to fulfil beside
    /// [`Definition::conditions_of_rows`]. `IS NOT NULL` of columns of the key is implied.
    pub conditions_of_units: Vec<Condition>,
    /// Conditions on other columns of the base table. With groups they choose the rows that are aggregated.
    pub conditions_of_rows: Vec<Condition>,
    /// Whether outputs are aggregates over the rows of a unit.
    pub is_aggregate: bool,
}

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

/// The table in which columns are looked up.
#[derive(Debug, Clone)]
pub struct Joined {
    pub table: Arc<Table>,
    /// `view$lookups`: its partition key is the primary key of the joined table, its clustering key the unit.
    pub lookups: Arc<Table>,
    /// For each column of the joined table's primary key, in its order, the column of the base table (its index) that has the value.
    pub on: Vec<usize>,
}

/// A column of a view.
#[derive(Debug, Clone)]
pub struct Output {
    pub source: Source,
    pub column_type: CqlType,
}

/// Where the value of a view's column comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The column of the base table with this index.
    Base(usize),
    /// The column of the joined table with this index.
    Joined(usize),
    /// An expression over columns of the base table, as CQL, of one row or an aggregate of the rows of a unit.
    Expression(String),
}

/// A condition of WHERE. The table's name or alias is not in the relation any more.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The column that is compared.
    pub column: Source,
    pub relation: Relation,
}
