//! Terms: values that do not depend on a row.

use super::{
    identifier::{FunctionName, Identifier},
    types::{CqlTypeName, NativeType},
};
use crate::types::literal::LiteralKind;

/// A constant as written. Numbers and the like keep their text: how it is read depends on the type it is for.
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
    /// What the grammar takes it for. `None` for `NULL`.
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

    /// The text of the constant without quotes, as property values are read. `None` for `NULL`.
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
    /// Its place among the statement's markers, from 0 in the order of the text.
    pub index: usize,
    /// The name of a named marker.
    pub name: Option<Identifier>,
}

/// An operator of arithmetic on two values.
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

    /// Whether it binds as tightly as `*`.
    pub const fn is_multiplicative(self) -> bool {
        !matches!(self, ArithmeticOperator::Add | ArithmeticOperator::Subtract)
    }
}

/// A value that does not depend on a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// A constant.
    Literal(Literal),
    /// A bind marker.
    Marker(BindMarker),
    /// `[a, b]`: a list or a vector.
    List(Vec<Term>),
    /// `{a, b}`; `{}` is an empty set or an empty map.
    Set(Vec<Term>),
    /// `{a: b}`; never empty.
    Map(Vec<(Term, Term)>),
    /// `{field: value}`: a value of a user type; never empty.
    UserType(Vec<(Identifier, Term)>),
    /// `(a, b)`: a tuple, or a term in parentheses when it has one element.
    Tuple(Vec<Term>),
    /// `name(arguments)`
    Function {
        /// The function.
        name: FunctionName,
        /// Its arguments.
        arguments: Vec<Term>,
    },
    /// `(type) term`: a type hint, not a conversion.
    TypeHint {
        /// The type.
        type_name: CqlTypeName,
        /// The value it is for.
        term: Box<Term>,
    },
    /// `CAST(term AS type)`: a conversion.
    Cast {
        /// The value.
        term: Box<Term>,
        /// What it is converted to.
        target: NativeType,
    },
    /// `left operator right`
    Arithmetic {
        /// The left operand.
        left: Box<Term>,
        /// The operator.
        operator: ArithmeticOperator,
        /// The right operand.
        right: Box<Term>,
    },
    /// `-term`
    Negation(Box<Term>),
}
