//! Constants in statements that change the schema: literals of any type, without calls and bind markers.

use cql_lite::syntax::ast::Expression;
use cql_lite::types::{CqlType, canonical, codec, literal};

use super::invalid;
use crate::error::{RequestError, Result};

/// The wire bytes of a constant as a value of a type; `None` is null. `name` stands for its receiver in messages.
pub fn constant(expression: &Expression, of: &CqlType, name: &str) -> Result<Option<Vec<u8>>> {
    let wrong = |kind: &str| invalid(format!("Invalid {kind} literal for {name} of type {of}"));
    Ok(Some(match (expression, of) {
        (Expression::Literal(value), _) => {
            let (Some(kind), Some(text)) = (value.kind(), value.raw_text()) else { return Ok(None) };
            if !kind.is_assignable_to(of) {
                return invalid(format!("Invalid {kind} constant ({text}) for \"{name}\" of type {of}"));
            }
            literal::parse(of, &text).map_err(|error| RequestError::invalid(error.to_string()))?
        }
        (Expression::List(items), CqlType::List { element, .. }) => {
            let items = elements(items, element, &format!("value({name})"))?;
            codec::encode_elements(items.iter().map(AsRef::as_ref))
        }
        (Expression::List(items), CqlType::Vector { element, dimension }) => {
            if items.len() != *dimension {
                return invalid(format!(
                    "Invalid vector literal for {name} of type {of}; expected {dimension} elements, but given {}",
                    items.len()
                ));
            }
            let items = elements(items, element, &format!("value({name})"))?;
            let mut out = Vec::new();
            for item in &items {
                codec::write_vector_element(element, item, &mut out);
            }
            out
        }
        (Expression::List(_), _) => return wrong("list"),
        (Expression::Set(items), CqlType::Set { element, .. }) => {
            let mut items = elements(items, element, &format!("value({name})"))?;
            canonical::sort_elements(element, &mut items);
            codec::encode_elements(items.iter().map(AsRef::as_ref))
        }
        (Expression::Set(items), CqlType::Map { .. }) if items.is_empty() => {
            codec::encode_entries(std::iter::empty())
        }
        (Expression::Set(_), _) => return wrong("set"),
        (Expression::MapOrUserType(entries), CqlType::Map { key, value, .. }) => {
            let mut encoded = Vec::with_capacity(entries.len());
            for (entry_key, entry_value) in entries {
                encoded.push((
                    part(entry_key, key, &format!("key({name})"))?,
                    part(entry_value, value, &format!("value({name})"))?,
                ));
            }
            canonical::sort_entries(key, &mut encoded);
            codec::encode_entries(encoded.iter().map(|(key, value)| (key.as_ref(), value.as_ref())))
        }
        (Expression::MapOrUserType(entries), CqlType::UserType { definition, .. }) => {
            let mut fields = vec![None; definition.field_names.len()];
            for (field, value) in entries {
                let Expression::Column(field) = field else { return wrong("map") };
                let Some(index) = definition.field_index(field.as_str()) else {
                    return invalid(format!(
                        "Unknown field '{field}' in value of user defined type {}",
                        definition.name
                    ));
                };
                fields[index] = constant(value, &definition.field_types[index], &format!("{name}.{field}"))?;
            }
            codec::encode_fields(fields.iter().map(Option::as_deref))
        }
        (Expression::MapOrUserType(_), _) => return wrong("map"),
        (Expression::Tuple(items), CqlType::Tuple(types)) => {
            if items.len() > types.len() {
                return invalid(format!(
                    "Invalid tuple literal for {name}: too many elements. Type {of} expects {} but got {}",
                    types.len(),
                    items.len()
                ));
            }
            let fields = items.iter().zip(types.iter()).enumerate();
            let fields =
                fields.map(|(index, (item, field))| constant(item, field, &format!("{name}[{index}]")));
            let fields = fields.collect::<Result<Vec<_>>>()?;
            codec::encode_fields(fields.iter().map(Option::as_deref))
        }
        (Expression::Tuple(items), _) => match &items[..] {
            [single] => return constant(single, of, name),
            _ => return wrong("tuple type"),
        },
        (Expression::TypeHint { operand, .. }, _) => return constant(operand, of, name),
        _ => return invalid(format!("{expression} is no constant of type {of}")),
    }))
}

fn elements(items: &[Expression], of: &CqlType, name: &str) -> Result<Vec<Vec<u8>>> {
    items.iter().map(|item| part(item, of, name)).collect()
}

fn part(expression: &Expression, of: &CqlType, name: &str) -> Result<Vec<u8>> {
    match constant(expression, of, name)? {
        Some(bytes) => Ok(bytes),
        None => invalid("null is not supported inside collections"),
    }
}
