//! Expressions.

use std::fmt::{self, Display, Formatter, Write};

use super::write::{If, List, Quoted, write_quoted, write_separated};
use crate::syntax::ast::{BindMarker, Expression, Literal};

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

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Literal(literal) => literal.fmt(f),
            Expression::Marker(marker) => marker.fmt(f),
            // After SELECT these names would parse as keywords.
            Expression::Column(name) if matches!(name.as_str(), "json" | "distinct" | "as") => {
                write_quoted(f, name.as_str())
            }
            Expression::Column(name) => name.fmt(f),
            Expression::CountRows => f.write_str("count(*)"),
            Expression::WriteMetadata { kind, target } => write!(f, "{}({target})", kind.name()),
            Expression::Function { name, arguments } => write!(f, "{name}({})", List(arguments)),
            Expression::Cast { operand, target } => write!(f, "CAST({operand} AS {target})"),
            Expression::TypeHint { type_name, operand } => write!(f, "({type_name}){operand}"),
            Expression::Arithmetic { left, operator, right } => {
                write!(f, "{left} {} {right}", operator.symbol())
            }
            Expression::Negation(operand) => write_negation(f, operand),
            Expression::Field { operand, field } => {
                // The point would become part of the number.
                let blank = If(matches!(**operand, Expression::Literal(Literal::Integer(_))), " ");
                write!(f, "{operand}{blank}.{field}")
            }
            Expression::Element { operand, key } => write!(f, "{operand}[{key}]"),
            Expression::Slice { operand, from, to } => {
                write!(f, "{operand}[")?;
                if let Some(from) = from {
                    from.fmt(f)?;
                }
                f.write_str("..")?;
                if let Some(to) = to {
                    to.fmt(f)?;
                }
                f.write_char(']')
            }
            Expression::List(elements) => write!(f, "[{}]", List(elements)),
            Expression::Set(elements) => write!(f, "{{{}}}", List(elements)),
            Expression::MapOrUserType(entries) => {
                f.write_char('{')?;
                write_separated(f, ", ", entries, |f, (key, value)| write!(f, "{key}: {value}"))?;
                f.write_char('}')
            }
            Expression::Reference(reference) => reference.fmt(f),
            Expression::Tuple(elements) => write!(f, "({})", List(elements)),
        }
    }
}

/// Writes a minus that does not become part of a number or a comment.
fn write_negation(f: &mut Formatter<'_>, operand: &Expression) -> fmt::Result {
    let operand = operand.to_string();
    let is_joined =
        operand.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | 'P' | 'N' | 'I'));
    write!(f, "-{}{operand}", if is_joined { " " } else { "" })
}
