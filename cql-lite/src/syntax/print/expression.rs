//! Terms.

use std::fmt::{self, Display, Formatter, Write};

use super::write::{List, Quoted, write_separated};
use crate::syntax::ast::{BindMarker, Literal, Term};

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Literal::String(text) => Quoted(text).fmt(f),
            Literal::Integer(text) | Literal::Float(text) | Literal::Duration(text) | Literal::Uuid(text) => {
                f.write_str(text)
            }
            Literal::Boolean(value) => value.fmt(f),
            Literal::Blob(digits) => write!(f, "0x{digits}"),
            Literal::Null => f.write_str("NULL"),
        }
    }
}

impl Display for BindMarker {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.name {
            None => f.write_char('?'),
            Some(name) => write!(f, ":{name}"),
        }
    }
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Term::Literal(literal) => literal.fmt(f),
            Term::Marker(marker) => marker.fmt(f),
            Term::List(elements) => write!(f, "[{}]", List(elements)),
            Term::Set(elements) => write!(f, "{{{}}}", List(elements)),
            Term::Map(entries) => {
                f.write_char('{')?;
                write_separated(f, ", ", entries, |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_char('}')
            }
            Term::UserType(fields) => {
                f.write_char('{')?;
                write_separated(f, ", ", fields, |f, (field, value)| write!(f, "{field}: {value}"))?;
                f.write_char('}')
            }
            Term::Tuple(elements) => write!(f, "({})", List(elements)),
            Term::Function { name, arguments } => write!(f, "{name}({})", List(arguments)),
            Term::TypeHint { type_name, term } => write!(f, "({type_name}){term}"),
            Term::Cast { term, target } => write!(f, "CAST({term} AS {target})"),
            Term::Arithmetic { left, operator, right } => write!(f, "{left} {} {right}", operator.symbol()),
            Term::Negation(term) => write_negation(f, term),
        }
    }
}

/// Writes a minus that does not become part of a number or a comment.
pub(super) fn write_negation(f: &mut Formatter<'_>, operand: &impl Display) -> fmt::Result {
    let operand = operand.to_string();
    let is_joined =
        operand.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | 'P' | 'N' | 'I'));
    write!(f, "-{}{operand}", if is_joined { " " } else { "" })
}
