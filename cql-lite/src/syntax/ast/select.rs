//! SELECT: selectors, relations, ordering.

use super::{
    identifier::{FunctionName, Identifier, QualifiedName},
    term::{ArithmeticOperator, BindMarker, Literal, Term},
    types::{CqlTypeName, NativeType},
};

/// `SELECT …`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// `SELECT JSON`
    pub json: bool,
    /// `SELECT DISTINCT`
    pub distinct: bool,
    /// What is selected.
    pub clause: SelectClause,
    /// The table or view.
    pub from: QualifiedName,
    /// `WHERE`: all of them must hold. Empty: no WHERE clause.
    pub relations: Vec<Relation>,
    /// `GROUP BY`
    pub group_by: Vec<Selector>,
    /// `ORDER BY`
    pub order_by: Vec<OrderBy>,
    /// `PER PARTITION LIMIT`: an integer or a marker.
    pub per_partition_limit: Option<Term>,
    /// `LIMIT`: an integer or a marker.
    pub limit: Option<Term>,
    /// `ALLOW FILTERING`
    pub allow_filtering: bool,
    /// `USING TIMEOUT`: a duration or a marker.
    pub timeout: Option<Term>,
}

/// What stands between SELECT and FROM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectClause {
    /// `*`
    All,
    /// Selectors; at least one.
    Items(Vec<SelectedItem>),
}

/// A selector with its alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedItem {
    /// What is selected.
    pub selector: Selector,
    /// `AS alias`
    pub alias: Option<Identifier>,
}

/// Which property of a cell a function reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteMetadata {
    /// `WRITETIME`
    Writetime,
    /// `MAXWRITETIME`
    MaxWritetime,
    /// `TTL`
    Ttl,
}

/// A value computed from a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// A column.
    Column(Identifier),
    /// A constant.
    Literal(Literal),
    /// A bind marker.
    Marker(BindMarker),
    /// `COUNT(*)`
    CountRows,
    /// `WRITETIME(target)`, `MAXWRITETIME(target)`, `TTL(target)`.
    WriteMetadata {
        /// The function.
        kind: WriteMetadata,
        /// A column, possibly with fields and elements of it ([`Selector::Column`], `Field`, `Element`, `Slice`).
        target: Box<Selector>,
    },
    /// `CAST(selector AS type)`
    Cast {
        /// The value.
        selector: Box<Selector>,
        /// What it is converted to.
        target: NativeType,
    },
    /// `name(arguments)`, also `token(…)` and `count(1)`.
    Function {
        /// The function or aggregate.
        name: FunctionName,
        /// Its arguments.
        arguments: Vec<Selector>,
    },
    /// `selector.field`
    Field {
        /// A value of a user type.
        selector: Box<Selector>,
        /// The field.
        field: Identifier,
    },
    /// `selector[key]`
    Element {
        /// A collection.
        selector: Box<Selector>,
        /// The key (map), the element (set) or the index (list, vector).
        key: Term,
    },
    /// `selector[from..to]`
    Slice {
        /// A collection.
        selector: Box<Selector>,
        /// The first key, included. `None`: from the start.
        from: Option<Term>,
        /// The last key, included. `None`: to the end.
        to: Option<Term>,
    },
    /// `(type) selector`: a type hint, not a conversion.
    TypeHint {
        /// The type.
        type_name: CqlTypeName,
        /// The value it is for.
        selector: Box<Selector>,
    },
    /// `left operator right`
    Arithmetic {
        /// The left operand.
        left: Box<Selector>,
        /// The operator.
        operator: ArithmeticOperator,
        /// The right operand.
        right: Box<Selector>,
    },
    /// `-selector`
    Negation(Box<Selector>),
    /// `[a, b]`: a list or a vector.
    List(Vec<Selector>),
    /// `{a, b}`; `{}` is an empty set or an empty map.
    Set(Vec<Selector>),
    /// `{a: b}`: a map, or a value of a user type (keys are then [`Selector::Column`]). Never empty.
    MapOrUserType(Vec<(Selector, Selector)>),
    /// `(a, b)`: a tuple, or a selector in parentheses when it has one element.
    Tuple(Vec<Selector>),
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
        key: Term,
    },
}

/// The right side of IN.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InValues {
    /// `(a, b)`, also `()`; tuples or markers of tuples for several columns.
    Terms(Vec<Term>),
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
        value: Term,
    },
    /// `subject BETWEEN from AND to`, both included; the subject is no map element.
    Between {
        /// The left side.
        subject: Subject,
        /// The lower bound.
        from: Term,
        /// The upper bound.
        to: Term,
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
        /// The value or key sought.
        value: Term,
    },
    /// `column LIKE pattern`
    Like {
        /// The column.
        column: Identifier,
        /// The pattern.
        pattern: Term,
    },
    /// `column IS NOT NULL`
    IsNotNull {
        /// The column.
        column: Identifier,
    },
    /// `expr(index, value)`: an expression that a custom index understands.
    CustomIndex {
        /// The index.
        index: QualifiedName,
        /// What it is given.
        value: Term,
    },
}

/// The direction of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `ASC`, also when nothing is written
    Ascending,
    /// `DESC`
    Descending,
}

/// One item of ORDER BY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// The column.
    pub column: Identifier,
    /// `ANN OF vector`: by nearness to it.
    pub nearest_to: Option<Term>,
    /// The direction.
    pub direction: Direction,
}
