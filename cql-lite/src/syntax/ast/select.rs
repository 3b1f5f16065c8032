//! SELECT: selected expressions, relations, ordering.

use super::{
    expression::{BindMarker, Expression},
    identifier::{Identifier, QualifiedName},
};

/// `SELECT …`
#[allow(clippy::struct_excessive_bools, reason = "each is a word of the statement")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// `SELECT JSON`
    pub json: bool,
    /// `SELECT DISTINCT`
    pub distinct: bool,
    /// The selected expressions.
    pub clause: SelectClause,
    /// The table or view.
    pub from: QualifiedName,
    /// `WHERE`: the relations, joined by AND. Empty: no WHERE clause.
    pub relations: Vec<Relation>,
    /// `GROUP BY`
    pub group_by: Vec<Expression>,
    /// `ORDER BY`
    pub order_by: Vec<OrderBy>,
    /// `PER PARTITION LIMIT`: an integer or a marker.
    pub per_partition_limit: Option<Expression>,
    /// `LIMIT`: an integer or a marker.
    pub limit: Option<Expression>,
    /// `ALLOW FILTERING`
    pub allow_filtering: bool,
    /// `BYPASS CACHE`, as ScyllaDB has it.
    pub bypass_cache: bool,
    /// `USING TIMEOUT`: a duration or a marker.
    pub timeout: Option<Expression>,
    /// `WITH FRESHNESS`: a duration, an integer or a marker.
    pub freshness: Option<Expression>,
}

/// The clause between SELECT and FROM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectClause {
    /// `*`
    All,
    /// Expressions; at least one.
    Items(Vec<SelectedItem>),
}

/// A selected expression with its alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedItem {
    /// The expression.
    pub expression: Expression,
    /// `AS alias`
    pub alias: Option<Identifier>,
}

/// A comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// The operator as written.
    pub const fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

/// The left side of a relation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// `column`
    Column(Identifier),
    /// `(a, b)`
    Columns(Vec<Identifier>),
    /// `token(a, b)`
    Token(Vec<Identifier>),
    /// `column[key]`
    Element {
        /// A map column.
        column: Identifier,
        /// The key.
        key: Expression,
    },
}

/// The right side of IN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InValues {
    /// `(a, b)`, also `()`; tuples or markers of tuples for several columns.
    Values(Vec<Expression>),
    /// A marker for the whole list.
    Marker(BindMarker),
}

/// One condition of a WHERE clause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `subject operator value`
    Compare {
        /// The left side.
        subject: Subject,
        /// The operator.
        operator: Comparison,
        /// The right side: a tuple or a marker for several columns.
        value: Expression,
    },
    /// `subject BETWEEN from AND to`, both included. The subject is not a map element.
    Between {
        /// The left side.
        subject: Subject,
        /// The lower bound.
        from: Expression,
        /// The upper bound.
        to: Expression,
    },
    /// `subject [NOT] IN values`; the subject is a column or several.
    In {
        /// The left side.
        subject: Subject,
        /// `NOT IN`
        negated: bool,
        /// The right side.
        values: InValues,
    },
    /// `column [NOT] CONTAINS [KEY] value`
    Contains {
        /// A collection.
        column: Identifier,
        /// `CONTAINS KEY`
        key: bool,
        /// `NOT CONTAINS`
        negated: bool,
        /// The value or key to look for.
        value: Expression,
    },
    /// `column LIKE pattern`
    Like {
        /// The column.
        column: Identifier,
        /// The pattern.
        pattern: Expression,
    },
    /// `column IS NOT NULL`
    IsNotNull {
        /// The column.
        column: Identifier,
    },
    /// `expr(index, value)`: an expression of a custom index.
    CustomIndex {
        /// The index.
        index: QualifiedName,
        /// The argument.
        value: Expression,
    },
    /// `table.relation`: of a column of the table that this name is for. Only in a projection.
    Qualified {
        /// The name or the alias of a table.
        table: Identifier,
        /// The relation. It begins with its column.
        relation: Box<Relation>,
    },
}

impl Subject {
    /// The columns that it names.
    pub fn columns(&self) -> &[Identifier] {
        match self {
            Subject::Column(column) | Subject::Element { column, .. } => std::slice::from_ref(column),
            Subject::Columns(columns) | Subject::Token(columns) => columns,
        }
    }
}

impl Relation {
    /// The expressions in it, in the order of the text.
    pub fn expressions(&self) -> Vec<&Expression> {
        match self {
            Relation::Compare { subject: Subject::Element { key, .. }, value, .. } => vec![key, value],
            Relation::Between { from, to, .. } => vec![from, to],
            Relation::In { values: InValues::Values(values), .. } => values.iter().collect(),
            Relation::In { values: InValues::Marker(_), .. } | Relation::IsNotNull { .. } => Vec::new(),
            Relation::Compare { value, .. }
            | Relation::Contains { value, .. }
            | Relation::Like { pattern: value, .. }
            | Relation::CustomIndex { value, .. } => vec![value],
            Relation::Qualified { relation, .. } => relation.expressions(),
        }
    }

    /// The columns that it restricts.
    pub fn columns(&self) -> &[Identifier] {
        match self {
            Relation::Compare { subject, .. }
            | Relation::Between { subject, .. }
            | Relation::In { subject, .. } => subject.columns(),
            Relation::Contains { column, .. }
            | Relation::Like { column, .. }
            | Relation::IsNotNull { column } => std::slice::from_ref(column),
            Relation::CustomIndex { .. } => &[],
            Relation::Qualified { relation, .. } => relation.columns(),
        }
    }
}

/// The direction of sorting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `ASC`, the default
    Ascending,
    /// `DESC`
    Descending,
}

/// One item of ORDER BY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// The column.
    pub column: Identifier,
    /// `ANN OF vector`: sorts by distance to the vector.
    pub nearest_to: Option<Expression>,
    /// The direction.
    pub direction: Direction,
}
