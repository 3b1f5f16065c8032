//! Wire bytes to JSON text and JSON text to wire bytes, as `toJson` and `fromJson` do.
//!
//! JSON object keys are strings, so a map key of another type is written as the text of its JSON. Numbers are accepted
//! as strings. A field name in inner quotes (`{"\"Name\"": 1}`) is case-sensitive; any other is read as lower case.
//! Error texts are Cassandra's.

use std::fmt::Write;

use serde_json::Value as Json;

use super::canonical::{sort_elements, sort_entries};
use super::codec;
use super::cql_type::{CqlType, UserType};
use super::duration::Duration;
use super::literal::{self, LiteralError};
use super::number::Decimal;
use super::time;
use super::value::Value;
use super::value_error::ValueError;

/// Error of converting between values and JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON.
    #[error("Could not decode JSON string '{text}': {problem}")]
    Syntax {
        /// The text.
        text: String,
        /// The message of the JSON parser.
        problem: String,
    },
    /// The JSON has the wrong kind for the type.
    #[error("Expected {expected}, but got a {found}: {json}")]
    Unexpected {
        /// The expected kind.
        expected: &'static str,
        /// The kind found, by its Java class name.
        found: &'static str,
        /// The JSON found.
        json: String,
    },
    /// A string that is not a value of the type.
    #[error(transparent)]
    Literal(#[from] LiteralError),
    /// Any other invalid value.
    #[error("{0}")]
    Invalid(String),
    /// Bytes that are not a value of the type.
    #[error(transparent)]
    Value(#[from] ValueError),
}

impl From<codec::CodecError> for JsonError {
    fn from(error: codec::CodecError) -> Self {
        JsonError::Value(error.into())
    }
}

/// The value as JSON text; null is `null`.
pub fn to_json(ty: &CqlType, bytes: Option<&[u8]>) -> Result<String, JsonError> {
    let mut out = String::new();
    match bytes {
        Some(bytes) => write_json(ty, bytes, &mut out)?,
        None => out.push_str("null"),
    }
    Ok(out)
}

/// Appends text as a JSON string.
pub fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{08}' => out.push_str("\\b"),
            '\u{0C}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{:04X}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

/// The JSON key of a column or field: in inner quotes unless the name is lower case.
pub fn json_name(name: &str) -> String {
    if name.to_lowercase() == name { name.to_owned() } else { format!("\"{name}\"") }
}

/// The column or field name of a JSON key (the inverse of [`json_name`]).
pub fn name_of_json_key(key: &str) -> String {
    match key.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(name) => name.to_owned(),
        None => key.to_lowercase(),
    }
}

/// Appends the value as JSON text.
pub(crate) fn write_json(ty: &CqlType, bytes: &[u8], out: &mut String) -> Result<(), JsonError> {
    match ty {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            write_array(codec::elements(bytes)?, out, |item, out| write_json(element, item?, out))
        }
        CqlType::Vector { element, dimension } => {
            let elements = codec::vector_elements(element, *dimension, bytes);
            write_array(elements, out, |item, out| write_json(element, item?, out))
        }
        CqlType::Map { key, value, .. } => {
            out.push('{');
            for (index, entry) in codec::entries(bytes)?.enumerate() {
                let (key_bytes, value_bytes) = entry?;
                out.push_str(if index > 0 { ", " } else { "" });
                let key_json = to_json(key, Some(key_bytes))?;
                if key_json.starts_with('"') {
                    out.push_str(&key_json);
                } else {
                    write_json_string(&key_json, out);
                }
                out.push_str(": ");
                write_json(value, value_bytes, out)?;
            }
            out.push('}');
            Ok(())
        }
        CqlType::Tuple(fields) => {
            let mut values = codec::fields(bytes);
            write_array(fields.iter(), out, |field, out| write_field(field, values.next(), out))
        }
        CqlType::UserType { definition, .. } => {
            let mut values = codec::fields(bytes);
            out.push('{');
            for (index, (name, field)) in
                definition.field_names.iter().zip(&definition.field_types).enumerate()
            {
                out.push_str(if index > 0 { ", " } else { "" });
                write_json_string(&json_name(name), out);
                out.push_str(": ");
                write_field(field, values.next(), out)?;
            }
            out.push('}');
            Ok(())
        }
        scalar => {
            write_scalar(scalar, bytes, out)?;
            Ok(())
        }
    }
}

fn write_array<T>(
    items: impl Iterator<Item = T>,
    out: &mut String,
    mut write_item: impl FnMut(T, &mut String) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    out.push('[');
    for (index, item) in items.enumerate() {
        out.push_str(if index > 0 { ", " } else { "" });
        write_item(item, out)?;
    }
    out.push(']');
    Ok(())
}

fn write_field(
    ty: &CqlType,
    field: Option<Result<Option<&[u8]>, codec::CodecError>>,
    out: &mut String,
) -> Result<(), JsonError> {
    if let Some(bytes) = field.transpose()?.flatten() {
        return write_json(ty, bytes, out);
    }
    out.push_str("null");
    Ok(())
}

fn write_scalar(ty: &CqlType, bytes: &[u8], out: &mut String) -> Result<(), ValueError> {
    match Value::decode(ty, bytes)? {
        Value::Ascii(text) | Value::Text(text) => write_json_string(&text, out),
        // JSON has neither NaN nor infinities.
        Value::Double(number) if !number.is_finite() => out.push_str("null"),
        Value::Float(number) if !number.is_finite() => out.push_str("null"),
        Value::Timestamp(millis) => write_json_string(&time::format_timestamp_json(millis), out),
        Value::Empty => out.push_str("\"\""),
        _ if ty.is_numeric() || *ty == CqlType::Boolean => out.push_str(&literal::to_text(ty, bytes)),
        _ => write_json_string(&literal::to_text(ty, bytes), out),
    }
    Ok(())
}

/// Reads JSON text as a value of the type; `null` is null.
pub fn from_json(ty: &CqlType, text: &str) -> Result<Option<Vec<u8>>, JsonError> {
    from_parsed(ty, &parse(text)?)
}

/// Parses JSON text; numbers keep their digits.
pub fn parse(text: &str) -> Result<Json, JsonError> {
    serde_json::from_str(text)
        .map_err(|error| JsonError::Syntax { text: text.to_owned(), problem: error.to_string() })
}

/// Converts parsed JSON to a value of the type; `null` is null.
pub fn from_parsed(ty: &CqlType, json: &Json) -> Result<Option<Vec<u8>>, JsonError> {
    if json.is_null() {
        return Ok(None);
    }
    value_from(ty, json).map(Some)
}

/// The Java class to which Cassandra's parser maps the JSON value.
fn java_kind(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "Boolean",
        Json::String(_) => "String",
        Json::Array(_) => "ArrayList",
        Json::Object(_) => "LinkedHashMap",
        Json::Number(number) => {
            let text = number.to_string();
            if text.contains(['.', 'e', 'E']) {
                "Double"
            } else if text.parse::<i32>().is_ok() {
                "Integer"
            } else if text.parse::<i64>().is_ok() {
                "Long"
            } else {
                "BigInteger"
            }
        }
    }
}

fn unexpected(expected: &'static str, json: &Json) -> JsonError {
    let text = match json {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    JsonError::Unexpected { expected, found: java_kind(json), json: text }
}

fn value_from(ty: &CqlType, json: &Json) -> Result<Vec<u8>, JsonError> {
    match ty {
        CqlType::Tinyint => integer_from(ty, json, "a byte value"),
        CqlType::Smallint => integer_from(ty, json, "a short value"),
        CqlType::Int => integer_from(ty, json, "an int value"),
        CqlType::Bigint | CqlType::Counter => integer_from(ty, json, "a bigint value"),
        CqlType::Float => number_from(ty, json, "a float value"),
        CqlType::Double => number_from(ty, json, "a double value"),
        CqlType::Varint => big_number_from(ty, json, "varint"),
        CqlType::Decimal => big_number_from(ty, json, "decimal"),
        CqlType::Boolean => match json {
            Json::Bool(truth) => Ok(vec![u8::from(*truth)]),
            Json::String(text) => Ok(literal::parse(ty, text)?),
            _ => Err(unexpected("a boolean value", json)),
        },
        CqlType::Timestamp => match json {
            Json::String(text) => Ok(literal::parse(ty, text)?),
            Json::Number(number) => {
                number.to_string().parse::<i64>().map(|millis| millis.to_be_bytes().to_vec()).map_err(|_| {
                    unexpected("a long or a datestring representation of a timestamp value", json)
                })
            }
            _ => Err(unexpected("a long or a datestring representation of a timestamp value", json)),
        },
        CqlType::Ascii => string_from(ty, json, "an ascii string"),
        CqlType::Text => string_from(ty, json, "a UTF-8 string"),
        CqlType::Date => string_from(ty, json, "a string representation of a date value"),
        CqlType::Time => string_from(ty, json, "a string representation of a time value"),
        CqlType::Inet => string_from(ty, json, "a string representation of an inet value"),
        CqlType::Uuid => string_from(ty, json, "a string representation of a uuid"),
        CqlType::Timeuuid => string_from(ty, json, "a string representation of a timeuuid"),
        CqlType::Duration => match json {
            Json::String(text) => {
                let mut out = Vec::new();
                Duration::parse(text).map_err(LiteralError::from)?.write_wire(&mut out);
                Ok(out)
            }
            _ => Err(unexpected("a string representation of a duration", json)),
        },
        CqlType::Blob | CqlType::Custom(_) => blob_from(json),
        CqlType::Empty => string_from(&CqlType::Blob, json, "an empty string"),
        CqlType::List { element, .. } => {
            let elements = elements_from(element, json, "a list", "list")?;
            Ok(codec::encode_elements(elements.iter().map(Vec::as_slice)))
        }
        CqlType::Set { element, .. } => {
            let mut elements = elements_from(element, json, "a list (representing a set)", "set")?;
            sort_elements(element, &mut elements);
            Ok(codec::encode_elements(elements.iter().map(Vec::as_slice)))
        }
        CqlType::Map { key, value, .. } => map_from(key, value, json),
        CqlType::Tuple(fields) => tuple_from(fields, json),
        CqlType::UserType { definition, .. } => user_type_from(definition, json),
        CqlType::Vector { element, dimension } => vector_from(element, *dimension, json),
    }
}

/// Parses a collection given as a string, as map keys are.
fn unwrap_string(json: &Json) -> Result<std::borrow::Cow<'_, Json>, JsonError> {
    Ok(match json {
        Json::String(text) => std::borrow::Cow::Owned(parse(text)?),
        other => std::borrow::Cow::Borrowed(other),
    })
}

fn integer_from(ty: &CqlType, json: &Json, expected: &'static str) -> Result<Vec<u8>, JsonError> {
    match json {
        Json::String(text) => Ok(literal::parse(ty, text)?),
        Json::Number(number) => {
            literal::parse(ty, &number.to_string()).map_err(|_| unexpected(expected, json))
        }
        _ => Err(unexpected(expected, json)),
    }
}

fn number_from(ty: &CqlType, json: &Json, expected: &'static str) -> Result<Vec<u8>, JsonError> {
    match json {
        Json::String(text) => Ok(literal::parse(ty, text)?),
        Json::Number(number) => Ok(literal::parse(ty, &number.to_string())?),
        _ => Err(unexpected(expected, json)),
    }
}

fn big_number_from(ty: &CqlType, json: &Json, name: &'static str) -> Result<Vec<u8>, JsonError> {
    let text = match json {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let invalid =
        || JsonError::Invalid(format!("Value '{text}' is not a valid representation of a {name} value"));
    match ty {
        CqlType::Decimal => text.parse::<Decimal>().map(|decimal| decimal.to_wire()).map_err(|_| invalid()),
        _ => text
            .parse::<num_bigint::BigInt>()
            .map(|number| number.to_signed_bytes_be())
            .map_err(|_| invalid()),
    }
}

fn string_from(ty: &CqlType, json: &Json, expected: &'static str) -> Result<Vec<u8>, JsonError> {
    match json {
        Json::String(text) => Ok(literal::parse(ty, text)?),
        _ => Err(unexpected(expected, json)),
    }
}

fn blob_from(json: &Json) -> Result<Vec<u8>, JsonError> {
    let text = match json {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    if !text.starts_with("0x") {
        return Err(JsonError::Invalid(format!(
            "String representation of blob is missing 0x prefix: {text}"
        )));
    }
    literal::parse_hex(&text).map_err(|error| {
        JsonError::Invalid(format!("Value '{text}' is not a valid blob representation: {error}"))
    })
}

fn elements_from(
    element: &CqlType,
    json: &Json,
    expected: &'static str,
    what: &'static str,
) -> Result<Vec<Vec<u8>>, JsonError> {
    match unwrap_string(json)?.as_ref() {
        Json::Array(items) => items
            .iter()
            .map(|item| {
                from_parsed(element, item)?
                    .ok_or_else(|| JsonError::Invalid(format!("Invalid null element in {what}")))
            })
            .collect(),
        other => Err(unexpected(expected, other)),
    }
}

fn map_from(key: &CqlType, value: &CqlType, json: &Json) -> Result<Vec<u8>, JsonError> {
    let json = unwrap_string(json)?;
    let Json::Object(object) = json.as_ref() else { return Err(unexpected("a map", &json)) };
    let mut entries = Vec::with_capacity(object.len());
    for (name, item) in object {
        let key_bytes = value_from(key, &Json::String(name.clone()))?;
        let value_bytes = from_parsed(value, item)?
            .ok_or_else(|| JsonError::Invalid("Invalid null value in map".to_owned()))?;
        entries.push((key_bytes, value_bytes));
    }
    // Of two spellings of one key the later one wins.
    sort_entries(key, &mut entries);
    Ok(codec::encode_entries(entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))))
}

fn tuple_from(fields: &[CqlType], json: &Json) -> Result<Vec<u8>, JsonError> {
    let json = unwrap_string(json)?;
    let Json::Array(items) = json.as_ref() else {
        return Err(unexpected("a list representation of a tuple", &json));
    };
    if items.len() != fields.len() {
        let problem = if items.len() > fields.len() { "contains extra items" } else { "is missing items" };
        return Err(JsonError::Invalid(format!("Tuple {problem} (expected {}): {json}", fields.len())));
    }
    let values: Vec<_> =
        fields.iter().zip(items).map(|(field, item)| from_parsed(field, item)).collect::<Result<_, _>>()?;
    Ok(codec::encode_fields(values.iter().map(Option::as_deref)))
}

fn user_type_from(definition: &UserType, json: &Json) -> Result<Vec<u8>, JsonError> {
    let json = unwrap_string(json)?;
    let Json::Object(object) = json.as_ref() else { return Err(unexpected("a map", &json)) };
    let mut values = vec![None; definition.field_types.len()];
    for (key, item) in object {
        let name = name_of_json_key(key);
        let index = definition.field_index(&name);
        let field = index.and_then(|index| definition.field_types.get(index).zip(values.get_mut(index)));
        let Some((ty, slot)) = field else {
            return Err(JsonError::Invalid(format!(
                "Unknown field '{name}' in value of user defined type {}",
                definition.name
            )));
        };
        *slot = from_parsed(ty, item)?;
    }
    Ok(codec::encode_fields(values.iter().map(Option::as_deref)))
}

fn vector_from(element: &CqlType, dimension: usize, json: &Json) -> Result<Vec<u8>, JsonError> {
    let items = elements_from(element, json, "a list", "list")?;
    if items.len() != dimension {
        let given = items.len();
        return Err(JsonError::Invalid(format!(
            "List had incorrect size: expected {dimension} but given {given}; {json}"
        )));
    }
    let mut out = Vec::new();
    for item in &items {
        codec::write_vector_element(element, item, &mut out);
    }
    Ok(out)
}
