//! Literals: their natural types, and their values for a receiver.
//!
//! Invariant: a literal becomes bytes that are valid for the type of its receiver, or an error that names both.

use cql_lite::syntax::ast;
use cql_lite::types::literal::{LiteralError, LiteralKind};
use cql_lite::types::{CqlType, codec, literal};

use super::{Expression, Receiver};
use crate::error::{RequestError, Result};

/// Whether an expression consists of literals and operators only: it can take the type of its receiver, like a
/// literal.
pub(super) fn is_literal_arithmetic(expression: &ast::Expression) -> bool {
    match expression {
        ast::Expression::Literal(_) => true,
        ast::Expression::Arithmetic { left, right, .. } => {
            is_literal_arithmetic(left) && is_literal_arithmetic(right)
        }
        ast::Expression::Negation(operand) => is_literal_arithmetic(operand),
        ast::Expression::Tuple(items) => matches!(&items[..], [single] if is_literal_arithmetic(single)),
        _ => false,
    }
}

/// Whether an expression has no type of its own and takes its receiver's.
pub(super) fn is_open(expression: &ast::Expression) -> bool {
    match expression {
        ast::Expression::Literal(_) | ast::Expression::Marker(_) => true,
        ast::Expression::List(items) | ast::Expression::Set(items) | ast::Expression::Tuple(items) => {
            items.iter().all(is_open)
        }
        ast::Expression::MapOrUserType(entries) => entries.iter().all(|(key, value)| {
            (is_open(key) || matches!(key, ast::Expression::Column(_))) && is_open(value)
        }),
        ast::Expression::Arithmetic { .. } | ast::Expression::Negation(_) => {
            is_literal_arithmetic(expression)
        }
        _ => false,
    }
}

/// The type that Cassandra gives a constant if no other type is expected. Text is `text` even if it could be `ascii`.
pub(super) fn literal_type(literal: &ast::Literal) -> Option<CqlType> {
    match literal.kind()? {
        LiteralKind::String => Some(CqlType::Text),
        kind => Some(kind.preferred_type(&literal.raw_text()?)),
    }
}

/// Whether bytes of type `actual` are valid as `expected`, with equal meaning.
pub fn is_assignable(expected: &CqlType, actual: &CqlType) -> bool {
    let (expected, actual) = (expected.freeze(), actual.freeze());
    expected == actual
        || matches!(
            (&expected, &actual),
            (CqlType::Blob, _)
                | (CqlType::Text, CqlType::Ascii)
                | (CqlType::Uuid, CqlType::Timeuuid)
                | (
                    CqlType::Bigint | CqlType::Counter,
                    CqlType::Bigint | CqlType::Counter | CqlType::Timestamp
                )
                | (CqlType::Varint, CqlType::Int | CqlType::Bigint)
        )
}

pub(super) fn resolve_literal<R>(value: &ast::Literal, receiver: &Receiver) -> Result<Expression<R>> {
    let expected = &receiver.value_type;
    if let (ast::Literal::String(text), CqlType::Tuple(types)) = (value, expected) {
        return tuple_from_text(text, types, receiver);
    }
    let (Some(kind), Some(text)) = (value.kind(), value.raw_text()) else {
        return Ok(Expression::Constant(None));
    };
    if !kind.is_assignable_to(expected) {
        return Err(RequestError::invalid(format!(
            "Invalid {kind} constant ({text}) for \"{}\" of type {expected}",
            receiver.name
        )));
    }
    let bytes = literal::parse(expected, &text).map_err(|error| {
        RequestError::invalid(match error {
            // Cassandra leaves out the prefix of a literal.
            LiteralError::Hex { text } => {
                LiteralError::Hex { text: text.trim_start_matches("0x").to_owned() }.to_string()
            }
            other => other.to_string(),
        })
    })?;
    Ok(Expression::Constant(Some(bytes)))
}

/// Parses the text form of a tuple: fields separated by `:`, null as `@`, both escaped by `\`.
fn tuple_from_text<R>(text: &str, types: &[CqlType], receiver: &Receiver) -> Result<Expression<R>> {
    let mut fields = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(&escaped @ (':' | '@'))) => {
                characters.next();
                // An escaped `@` must not be taken for null.
                if let Some(field) = fields.last_mut() {
                    field.extend(if escaped == '@' { "\\@".chars() } else { ":".chars() });
                }
            }
            (':', _) => fields.push(String::new()),
            (other, _) => {
                if let Some(field) = fields.last_mut() {
                    field.push(other);
                }
            }
        }
    }
    if fields.len() > types.len() {
        return Err(RequestError::invalid(format!(
            "Invalid tuple literal: too many elements. Type {} expects {} but got {}",
            receiver.value_type,
            types.len(),
            fields.len()
        )));
    }
    let mut out = Vec::new();
    for (field, value_type) in fields.iter().zip(types) {
        if field == "@" {
            codec::write_field(None, &mut out);
            continue;
        }
        let value = literal::parse(value_type, &field.replace("\\@", "@"))
            .map_err(|error| RequestError::invalid(error.to_string()))?;
        codec::write_field(Some(&value), &mut out);
    }
    Ok(Expression::Constant(Some(out)))
}

pub(super) fn wrong_literal(kind: &str, receiver: &Receiver) -> RequestError {
    RequestError::invalid(format!(
        "Invalid {kind} literal for {} of type {}",
        receiver.name, receiver.value_type
    ))
}

/// Names the component in the message if its type caused the error.
pub(super) fn wrong_component(
    error: RequestError,
    kind: &str,
    receiver: &Receiver,
    problem: impl FnOnce() -> String,
) -> RequestError {
    if is_wrong_literal(&error) {
        RequestError::invalid(format!("Invalid {kind} literal for {}: {}", receiver.name, problem()))
    } else {
        error
    }
}

/// Whether the error says that a literal does not fit the type of its receiver.
pub(super) fn is_wrong_literal(error: &RequestError) -> bool {
    matches!(error, RequestError::Invalid(message)
        if message.starts_with("Invalid ") && (message.contains(" of type ") || message.contains(" literal for ")))
}

pub(super) fn call_description(expression: &ast::Expression) -> String {
    match expression {
        ast::Expression::Function { name, .. } if name.keyspace.is_none() && name.name == "token" => {
            "function system.token".to_owned()
        }
        ast::Expression::Function { name, .. } => format!("function {name}"),
        other => format!("{other}"),
    }
}
