//! DESCRIBE.

use super::{
    identifier::{FunctionName, Identifier, QualifiedName},
    schema::ViewKind,
};

/// `DESCRIBE target [WITH INTERNALS]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Describe {
    /// The object to describe.
    pub target: DescribeTarget,
    /// `WITH INTERNALS`
    pub with_internals: bool,
}

/// The object of a DESCRIBE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescribeTarget {
    /// `CLUSTER`
    Cluster,
    /// `[FULL] SCHEMA`
    Schema {
        /// `FULL`: system keyspaces too.
        full: bool,
    },
    /// `KEYSPACES`
    Keyspaces,
    /// `[ONLY] KEYSPACE [name]`
    Keyspace {
        /// `ONLY`: without the objects in it.
        only: bool,
        /// The keyspace; otherwise the session's.
        name: Option<Identifier>,
    },
    /// `TABLES`
    Tables,
    /// `TABLE name`
    Table(QualifiedName),
    /// `INDEX name`
    Index(QualifiedName),
    /// `MATERIALIZED VIEW name` or `PROJECTION name`
    View {
        /// What the statement calls it.
        kind: ViewKind,
        /// The view.
        name: QualifiedName,
    },
    /// `TYPES`
    Types,
    /// `TYPE name`
    Type(QualifiedName),
    /// `FUNCTIONS`
    Functions,
    /// `FUNCTION name`
    Function(FunctionName),
    /// `AGGREGATES`
    Aggregates,
    /// `AGGREGATE name`
    Aggregate(FunctionName),
    /// A name alone: the keyspace, table, index or view of that name.
    Name(QualifiedName),
}
