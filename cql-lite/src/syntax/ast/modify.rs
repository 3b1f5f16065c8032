//! INSERT, UPDATE, DELETE and BATCH.

use super::{
    expression::{BindMarker, Expression},
    identifier::{Identifier, QualifiedName},
    select::{Comparison, InValues, Relation},
};

/// The USING clause of a modification. Values are integers, of TIMEOUT a duration, or markers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Using {
    /// `TIMESTAMP`: microseconds since the epoch.
    pub timestamp: Option<Expression>,
    /// `TTL`: seconds. Never in DELETE.
    pub time_to_live: Option<Expression>,
    /// `TIMEOUT`: an extension of ScyllaDB.
    pub timeout: Option<Expression>,
}

/// `INSERT INTO …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    /// The table.
    pub table: QualifiedName,
    /// The inserted values.
    pub source: InsertSource,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// `USING …`
    pub using: Using,
}

/// The source of the inserted values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertSource {
    /// `(columns) VALUES (values)`. The parser accepts different numbers of them; the planner does not.
    Values {
        /// The columns.
        columns: Vec<Identifier>,
        /// The values.
        values: Vec<Expression>,
    },
    /// `JSON value [DEFAULT …]`
    Json {
        /// The document.
        value: JsonValue,
        /// The treatment of columns missing from the document.
        default: JsonDefault,
    },
}

/// The document of INSERT JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonValue {
    /// A string.
    Text(String),
    /// A marker.
    Marker(BindMarker),
}

/// The treatment of columns that the document of an INSERT JSON does not mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonDefault {
    /// `DEFAULT NULL`, the default: they are deleted.
    Null,
    /// `DEFAULT UNSET`: they are left unchanged.
    Unset,
}

/// `UPDATE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The table.
    pub table: QualifiedName,
    /// `USING …`
    pub using: Using,
    /// `SET …`; at least one.
    pub assignments: Vec<Assignment>,
    /// `WHERE …`; at least one.
    pub relations: Vec<Relation>,
    /// `IF …`
    pub condition: Option<IfClause>,
}

/// One item of SET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The column.
    pub column: Identifier,
    /// The operation on it.
    pub operation: AssignmentOperation,
}

/// The operation of an UPDATE on a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssignmentOperation {
    /// `c = value`
    Set(Expression),
    /// `c = c + value`, `c += value`
    Add(Expression),
    /// `c = value + c`
    Prepend(Expression),
    /// `c = c - value`, `c -= value`
    Subtract(Expression),
    /// `c[key] = value`
    SetElement {
        /// The key (map) or index (list).
        key: Expression,
        /// The new value.
        value: Expression,
    },
    /// `c.field = value`
    SetField {
        /// The field of a user type.
        field: Identifier,
        /// The new value.
        value: Expression,
    },
}

/// `DELETE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The deleted parts of each row. Empty: whole rows.
    pub deletions: Vec<Deletion>,
    /// The table.
    pub table: QualifiedName,
    /// `USING …`
    pub using: Using,
    /// `WHERE …`; at least one.
    pub relations: Vec<Relation>,
    /// `IF …`
    pub condition: Option<IfClause>,
}

/// A part of a row that a DELETE deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// `c`
    Column(Identifier),
    /// `c[key]`
    Element {
        /// A collection.
        column: Identifier,
        /// The key, element or index.
        key: Expression,
    },
    /// `c.field`
    Field {
        /// A value of a user type.
        column: Identifier,
        /// The field.
        field: Identifier,
    },
}

/// The IF clause of an UPDATE or DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfClause {
    /// `IF EXISTS`
    Exists,
    /// `IF condition AND …`; at least one.
    Conditions(Vec<Condition>),
}

/// One condition of an IF clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The left side.
    pub subject: ConditionSubject,
    /// The test of the left side.
    pub test: ConditionTest,
}

/// The left side of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionSubject {
    /// `c`
    Column(Identifier),
    /// `c[key]`
    Element {
        /// A collection.
        column: Identifier,
        /// The key or index.
        key: Expression,
    },
    /// `c.field`
    Field {
        /// A value of a user type.
        column: Identifier,
        /// The field.
        field: Identifier,
    },
}

impl ConditionSubject {
    /// The column of the left side.
    pub fn column(&self) -> &Identifier {
        match self {
            ConditionSubject::Column(column)
            | ConditionSubject::Element { column, .. }
            | ConditionSubject::Field { column, .. } => column,
        }
    }
}

/// The test of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionTest {
    /// `operator value`
    Compare(Comparison, Expression),
    /// `IN values`
    In(InValues),
    /// `CONTAINS [KEY] value`; only of a column.
    Contains {
        /// `CONTAINS KEY`
        key: bool,
        /// The value or key to look for.
        value: Expression,
    },
}

/// `BEGIN … BATCH … APPLY BATCH`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its kind.
    pub kind: BatchKind,
    /// `USING …`
    pub using: Using,
    /// The statements, possibly none.
    pub statements: Vec<Modification>,
}

/// The kind of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchKind {
    /// `BEGIN BATCH`
    Logged,
    /// `BEGIN UNLOGGED BATCH`
    Unlogged,
    /// `BEGIN COUNTER BATCH`
    Counter,
}

/// A statement of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Modification {
    /// `INSERT`
    Insert(Insert),
    /// `UPDATE`
    Update(Update),
    /// `DELETE`
    Delete(Delete),
}
