//! Validation of wire bytes against a type, without allocation. Every bound value passes it.
//!
//! Rules and messages are Cassandra's. Most types accept zero bytes as the *empty* value; `tinyint`, `smallint`, `date`,
//! `time`, `duration` and vectors do not.

use super::codec::{self, CodecError};
use super::cql_type::{CqlType, UserType};
use super::duration::Duration;
use super::hex;
use super::value_error::ValueError;

/// Validates that `bytes` are a value of the type.
pub fn validate(ty: &CqlType, bytes: &[u8]) -> Result<(), ValueError> {
    let length = bytes.len();
    let length_is = |allowed: bool| if allowed { Ok(()) } else { Err(ValueError::wrong_length(ty, length)) };
    match ty {
        CqlType::Int | CqlType::Float => length_is(length == 4 || length == 0),
        CqlType::Bigint | CqlType::Counter | CqlType::Timestamp | CqlType::Double => {
            length_is(length == 8 || length == 0)
        }
        CqlType::Text => match std::str::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err(ValueError::InvalidUtf8),
        },
        CqlType::Ascii => match bytes.iter().find(|byte| !byte.is_ascii()) {
            None => Ok(()),
            Some(byte) => Err(ValueError::InvalidAscii { byte: *byte as i8 }),
        },
        CqlType::Blob | CqlType::Varint | CqlType::Custom(_) => Ok(()),
        CqlType::Boolean => length_is(length <= 1),
        CqlType::Date => length_is(length == 4),
        CqlType::Time => length_is(length == 8),
        CqlType::Smallint => length_is(length == 2),
        CqlType::Tinyint => length_is(length == 1),
        CqlType::Decimal => length_is(length == 0 || length >= 4),
        CqlType::Uuid => length_is(length == 16 || length == 0),
        CqlType::Timeuuid => {
            length_is(length == 16 || length == 0)?;
            match bytes.get(6) {
                Some(version) if version & 0xF0 != 0x10 => Err(ValueError::InvalidTimeuuidVersion),
                _ => Ok(()),
            }
        }
        CqlType::Empty => {
            if bytes.is_empty() {
                Ok(())
            } else {
                Err(ValueError::NotEmpty)
            }
        }
        CqlType::Inet => {
            if matches!(length, 0 | 4 | 16) {
                return Ok(());
            }
            Err(ValueError::InvalidInet { hex: hex::digits(bytes) })
        }
        CqlType::Duration => Duration::from_wire(bytes).map(|_| ()),
        CqlType::List { element, .. } => validate_elements(element, bytes, "list"),
        CqlType::Set { element, .. } => validate_elements(element, bytes, "set"),
        CqlType::Map { key, value, .. } => validate_map(key, value, bytes),
        CqlType::Tuple(fields) => validate_tuple(fields, bytes),
        CqlType::UserType { definition, .. } => validate_user_type(definition, bytes),
        CqlType::Vector { element, dimension } => validate_vector(ty, element, *dimension, bytes),
    }
}

fn malformed(text: impl Into<String>) -> ValueError {
    ValueError::Malformed(text.into())
}

/// The framing error with Cassandra's text. `what` names the kind of collection.
fn framing(error: &CodecError, what: &str) -> ValueError {
    malformed(match error {
        CodecError::NullElement => "Null value read when not allowed".to_owned(),
        CodecError::TooManyElements { .. } => error.to_string(),
        CodecError::NegativeCount { .. } => format!("The data cannot be deserialized as a {what}"),
        CodecError::Truncated { .. } => format!("Not enough bytes to read a {what}"),
        CodecError::TrailingBytes { .. } => format!("Unexpected extraneous bytes after {what} value"),
    })
}

fn validate_elements(element: &CqlType, bytes: &[u8], what: &str) -> Result<(), ValueError> {
    let mut elements = codec::elements(bytes).map_err(|error| framing(&error, what))?;
    for item in elements.by_ref() {
        validate(element, item.map_err(|error| framing(&error, what))?)?;
    }
    no_trailing_bytes(elements.rest(), what)
}

fn validate_map(key: &CqlType, value: &CqlType, bytes: &[u8]) -> Result<(), ValueError> {
    let mut entries = codec::entries(bytes).map_err(|error| framing(&error, "map"))?;
    for entry in entries.by_ref() {
        let (key_bytes, value_bytes) = entry.map_err(|error| framing(&error, "map"))?;
        validate(key, key_bytes)?;
        validate(value, value_bytes)?;
    }
    no_trailing_bytes(entries.rest(), "map")
}

fn no_trailing_bytes(rest: &[u8], what: &str) -> Result<(), ValueError> {
    if rest.is_empty() {
        return Ok(());
    }
    Err(malformed(format!("Unexpected extraneous bytes after {what} value")))
}

fn validate_tuple(types: &[CqlType], bytes: &[u8]) -> Result<(), ValueError> {
    let mut fields = codec::fields(bytes);
    for (index, ty) in types.iter().enumerate() {
        let before = fields.rest().len();
        match fields.next() {
            None => return Ok(()),
            Some(Ok(Some(field))) => validate(ty, field)?,
            Some(Ok(None)) => {}
            Some(Err(_)) if before < 4 => {
                return Err(malformed(format!("Not enough bytes to read size of {index}th component")));
            }
            Some(Err(_)) => return Err(malformed(format!("Not enough bytes to read {index}th component"))),
        }
    }
    if fields.rest().is_empty() {
        return Ok(());
    }
    Err(malformed("Invalid remaining data after end of tuple value"))
}

fn validate_user_type(definition: &UserType, bytes: &[u8]) -> Result<(), ValueError> {
    let mut fields = codec::fields(bytes);
    for (index, (name, ty)) in definition.field_names.iter().zip(&definition.field_types).enumerate() {
        let before = fields.rest().len();
        match fields.next() {
            None => return Ok(()),
            Some(Ok(Some(field))) => validate(ty, field).map_err(|source| ValueError::Field {
                index,
                name: name.to_string(),
                source: Box::new(source),
            })?,
            Some(Ok(None)) => {}
            Some(Err(_)) if before < 4 => {
                return Err(malformed(format!("Not enough bytes to read size of {index}th field {name}")));
            }
            Some(Err(_)) => {
                return Err(malformed(format!("Not enough bytes to read {index}th field {name}")));
            }
        }
    }
    if fields.rest().is_empty() {
        return Ok(());
    }
    Err(malformed("Invalid remaining data after end of UDT value"))
}

fn validate_vector(
    ty: &CqlType,
    element: &CqlType,
    dimension: usize,
    bytes: &[u8],
) -> Result<(), ValueError> {
    if bytes.is_empty() {
        return Err(malformed("Invalid empty vector value"));
    }
    let mut elements = codec::vector_elements(element, dimension, bytes);
    for item in elements.by_ref() {
        validate(element, item.map_err(|_| malformed(format!("Not enough bytes to read a {ty}")))?)?;
    }
    match elements.rest().len() {
        0 => Ok(()),
        extra => Err(malformed(format!("Unexpected {extra} extraneous bytes after {ty} value"))),
    }
}
