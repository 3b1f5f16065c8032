//! What a view is computed of, resolved against the tables.
//!
//! A view is computed by *units* of its base table: rows, or for `GROUP BY` groups of rows. A unit is named by the first columns of the base
//! table's primary key, the whole partition key at least, and has at most one row in the view.

use std::sync::Arc;

use cql_lite::syntax::ast::Relation;
use cql_lite::types::CqlType;
use helenus_query::schema::catalog::Table;

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
