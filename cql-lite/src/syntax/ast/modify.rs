//! INSERT, UPDATE, DELETE and BATCH.

use super::{
    identifier::{Identifier, QualifiedName},
    select::{Comparison, InValues, Relation},
    term::{BindMarker, Term},
};

/// The USING clause of a modification. Values are integers or markers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Using {
    /// `TIMESTAMP`: microseconds since the epoch.
    pub timestamp: Option<Term>,
    /// `TTL`: seconds.
    pub time_to_live: Option<Term>,
}

/// `INSERT INTO …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Insert {
    /// The table.
    pub table: QualifiedName,
    /// What is inserted.
    pub source: InsertSource,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// `USING …`
    pub using: Using,
}

/// What an INSERT inserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InsertSource {
    /// `(columns) VALUES (values)`. Their numbers may differ: that is for the planner to refuse.
    Values {
        /// The columns.
        columns: Vec<Identifier>,
        /// The values.
        values: Vec<Term>,
    },
    /// `JSON value [DEFAULT …]`
    Json {
        /// The document.
        value: JsonValue,
        /// What columns missing from the document become.
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

/// What columns that an INSERT JSON does not mention become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonDefault {
    /// `DEFAULT NULL`, also when nothing is written: they are deleted.
    Null,
    /// `DEFAULT UNSET`: they are left alone.
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
    /// What happens to it.
    pub operation: AssignmentOperation,
}

/// What an UPDATE does to a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssignmentOperation {
    /// `c = value`
    Set(Term),
    /// `c = c + value`, `c += value`
    Add(Term),
    /// `c = value + c`
    Prepend(Term),
    /// `c = c - value`, `c -= value`
    Subtract(Term),
    /// `c[key] = value`
    SetElement {
        /// The key (map) or index (list).
        key: Term,
        /// The new value.
        value: Term,
    },
    /// `c.field = value`
    SetField {
        /// The field of a user type.
        field: Identifier,
        /// The new value.
        value: Term,
    },
}

/// `DELETE …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// What is deleted of each row. Empty: the rows themselves.
    pub deletions: Vec<Deletion>,
    /// The table.
    pub table: QualifiedName,
    /// `USING TIMESTAMP`: an integer or a marker.
    pub timestamp: Option<Term>,
    /// `WHERE …`; at least one.
    pub relations: Vec<Relation>,
    /// `IF …`
    pub condition: Option<IfClause>,
}

/// What a DELETE deletes of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// `c`
    Column(Identifier),
    /// `c[key]`
    Element {
        /// A collection.
        column: Identifier,
        /// The key, element or index.
        key: Term,
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
    /// What must hold of it.
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
        key: Term,
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
    /// The column it is about.
    pub fn column(&self) -> &Identifier {
        match self {
            ConditionSubject::Column(column)
            | ConditionSubject::Element { column, .. }
            | ConditionSubject::Field { column, .. } => column,
        }
    }
}

/// What must hold of the left side of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionTest {
    /// `operator value`
    Compare(Comparison, Term),
    /// `IN values`
    In(InValues),
    /// `CONTAINS [KEY] value`; only of a column.
    Contains {
        /// `CONTAINS KEY`
        key: bool,
        /// The value or key sought.
        value: Term,
    },
}

/// `BEGIN … BATCH … APPLY BATCH`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its kind.
    pub kind: BatchKind,
    /// `USING …`
    pub using: Using,
    /// The statements; may be none.
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
