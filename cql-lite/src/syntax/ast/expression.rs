//! Expressions: everything that has a value, from a constant to a selected column.
//!
//! All clauses share one type. The parser restricts it: values of INSERT, UPDATE and WHERE do not read the row; the
//! SELECT list and GROUP BY can (columns, their fields and elements, and functions of rows).

use super::{
    identifier::{FunctionName, Identifier},
    types::{CqlTypeName, NativeType},
};
use crate::types::literal::LiteralKind;

/// A constant as written. Numbers and others keep their text, which is parsed when the type is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Literal {
    /// A string, without its quotes.
    String(String),
    /// Digits with an optional `-`, of any length.
    Integer(String),
    /// A decimal number with a point or an exponent, or `NaN`, `Infinity`, `-Infinity` (spelled so).
    Float(String),
    /// `true`, `false`
    Boolean(bool),
    /// A duration in any of its notations (`1h30m`, `P1DT2H`, …), as written.
    Duration(String),
    /// A UUID, as written.
    Uuid(String),
    /// A blob: the hexadecimal digits after `0x`, as written.
    Blob(String),
    /// `NULL`
    Null,
}

impl Literal {
    /// The kind of the literal; `None` for `NULL`.
    pub fn kind(&self) -> Option<LiteralKind> {
        Some(match self {
            Literal::String(_) => LiteralKind::String,
            Literal::Integer(_) => LiteralKind::Integer,
            Literal::Float(_) => LiteralKind::Float,
            Literal::Boolean(_) => LiteralKind::Boolean,
            Literal::Duration(_) => LiteralKind::Duration,
            Literal::Uuid(_) => LiteralKind::Uuid,
            Literal::Blob(_) => LiteralKind::Hex,
            Literal::Null => return None,
        })
    }

    /// The text of the constant without quotes; `None` for `NULL`.
    pub fn raw_text(&self) -> Option<String> {
        match self {
            Literal::String(text)
            | Literal::Integer(text)
            | Literal::Float(text)
            | Literal::Duration(text)
            | Literal::Uuid(text) => Some(text.clone()),
            Literal::Boolean(value) => Some(value.to_string()),
            Literal::Blob(digits) => Some(format!("0x{digits}")),
            Literal::Null => None,
        }
    }
}

/// `?` or `:name`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BindMarker {
    /// Its index among the markers of the statement, in the order of the text.
    pub index: usize,
    /// The name of a named marker.
    pub name: Option<Identifier>,
}

/// A binary arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArithmeticOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl ArithmeticOperator {
    /// The operator as written.
    pub const fn symbol(self) -> &'static str {
        match self {
            ArithmeticOperator::Add => "+",
            ArithmeticOperator::Subtract => "-",
            ArithmeticOperator::Multiply => "*",
            ArithmeticOperator::Divide => "/",
            ArithmeticOperator::Modulo => "%",
        }
    }
}

/// The property of a cell that a function of the SELECT list reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteMetadata {
    /// `WRITETIME`
    Writetime,
    /// `MAXWRITETIME`
    MaxWritetime,
    /// `TTL`
    Ttl,
}

impl WriteMetadata {
    /// The function's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            WriteMetadata::Writetime => "writetime",
            WriteMetadata::MaxWritetime => "maxwritetime",
            WriteMetadata::Ttl => "ttl",
        }
    }
}

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expression {
    /// A constant.
    Literal(Literal),
    /// A bind marker.
    Marker(BindMarker),
    /// A column. Only in the SELECT list and GROUP BY, and as a field name in [`Expression::MapOrUserType`].
    Column(Identifier),
    /// `COUNT(*)`. Only in the SELECT list.
    CountRows,
    /// `WRITETIME(target)`, `MAXWRITETIME(target)`, `TTL(target)`. Only in the SELECT list.
    WriteMetadata {
        /// The function.
        kind: WriteMetadata,
        /// A column, possibly with fields and elements of it ([`Expression::Column`], `Field`, `Element`, `Slice`).
        target: Box<Expression>,
    },
    /// `name(arguments)`, also `token(…)` and `count(1)`.
    Function {
        /// The function or aggregate.
        name: FunctionName,
        /// Its arguments.
        arguments: Vec<Expression>,
    },
    /// `CAST(operand AS type)`: a conversion.
    Cast {
        /// The value.
        operand: Box<Expression>,
        /// The type to convert to.
        target: NativeType,
    },
    /// `(type) operand`: a type hint, not a conversion.
    TypeHint {
        /// The type.
        type_name: CqlTypeName,
        /// The value it is for.
        operand: Box<Expression>,
    },
    /// `left operator right`
    Arithmetic {
        /// The left operand.
        left: Box<Expression>,
        /// The operator.
        operator: ArithmeticOperator,
        /// The right operand.
        right: Box<Expression>,
    },
    /// `-operand`
    Negation(Box<Expression>),
    /// `operand.field`. Only in the SELECT list.
    Field {
        /// A value of a user type.
        operand: Box<Expression>,
        /// The field.
        field: Identifier,
    },
    /// `operand[key]`. Only in the SELECT list.
    Element {
        /// A collection.
        operand: Box<Expression>,
        /// The key (map), the element (set) or the index (list, vector). It does not read the row.
        key: Box<Expression>,
    },
    /// `operand[from..to]`. Only in the SELECT list.
    Slice {
        /// A collection.
        operand: Box<Expression>,
        /// The first key, included. `None`: from the start. It does not read the row.
        from: Option<Box<Expression>>,
        /// The last key, included. `None`: to the end. It does not read the row.
        to: Option<Box<Expression>>,
    },
    /// `[a, b]`: a list or a vector.
    List(Vec<Expression>),
    /// `{a, b}`; `{}` is an empty set or an empty map.
    Set(Vec<Expression>),
    /// `{a: b}`: a map, or a value of a user type, whose field names are [`Expression::Column`]. Never empty.
    MapOrUserType(Vec<(Expression, Expression)>),
    /// `row.column`: a value of a row with a name. Only in a transaction.
    Reference(RowReference),
    /// `(a, b)`: a tuple, or an expression in parentheses if it has one element.
    Tuple(Vec<Expression>),
}

impl Expression {
    /// Hands over the name of each function that is called in the expression, in the order of the text.
    pub fn visit_functions<'e>(&'e self, visit: &mut dyn FnMut(&'e FunctionName)) {
        match self {
            Expression::Literal(_)
            | Expression::Marker(_)
            | Expression::Column(_)
            | Expression::CountRows
            | Expression::Reference(_) => {}
            Expression::Function { name, arguments } => {
                visit(name);
                for argument in arguments {
                    argument.visit_functions(visit);
                }
            }
            Expression::WriteMetadata { target: operand, .. }
            | Expression::Cast { operand, .. }
            | Expression::TypeHint { operand, .. }
            | Expression::Negation(operand)
            | Expression::Field { operand, .. } => operand.visit_functions(visit),
            Expression::Arithmetic { left: first, right: second, .. }
            | Expression::Element { operand: first, key: second } => {
                first.visit_functions(visit);
                second.visit_functions(visit);
            }
            Expression::Slice { operand, from, to } => {
                operand.visit_functions(visit);
                for bound in [from, to].into_iter().flatten() {
                    bound.visit_functions(visit);
                }
            }
            Expression::List(elements) | Expression::Set(elements) | Expression::Tuple(elements) => {
                for element in elements {
                    element.visit_functions(visit);
                }
            }
            Expression::MapOrUserType(entries) => {
                for (key, value) in entries {
                    key.visit_functions(visit);
                    value.visit_functions(visit);
                }
            }
        }
    }
}

/// `row`, `row.column`, `row.column[key]` or `row.column.field`: a row with a name, or a value of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowReference {
    /// The name of the row.
    pub row: Identifier,
    /// The column. `None`: the row as a whole.
    pub column: Option<Identifier>,
    /// The part of the column's value. `None`: all of it. Only of a column.
    pub part: Option<ReferencePart>,
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReferencePart {
    /// `[key]`
    Element(Box<Expression>),
    /// `.field`
    Field(Identifier),
}
