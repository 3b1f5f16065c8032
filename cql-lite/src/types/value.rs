//! Decoded values.
//!
//! Null is not a [`Value`]: a field that can be null is an `Option`. Decoding accepts exactly what
//! [`validate`](super::validate::validate) accepts. Empty bytes decode to [`Value::Empty`], except for text, ascii and
//! blob.

use std::net::IpAddr;

use num_bigint::BigInt;
use uuid::Uuid;

use super::codec;
use super::cql_type::CqlType;
use super::duration::Duration;
use super::number::{self, Decimal};

pub use super::value_error::ValueError;

/// A value of any CQL type.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The empty value (no bytes) of a type that is not text, ascii or blob.
    Empty,
    /// `ascii`
    Ascii(String),
    /// `bigint`
    Bigint(i64),
    /// `blob`, and the bytes of a custom type
    Blob(Vec<u8>),
    /// `boolean`
    Boolean(bool),
    /// `counter`
    Counter(i64),
    /// `date`: days, 2^31 is 1970-01-01
    Date(u32),
    /// `decimal`
    Decimal(Decimal),
    /// `double`
    Double(f64),
    /// `duration`
    Duration(Duration),
    /// `float`
    Float(f32),
    /// `inet`
    Inet(IpAddr),
    /// `int`
    Int(i32),
    /// `smallint`
    Smallint(i16),
    /// `text`
    Text(String),
    /// `time`: nanoseconds since midnight
    Time(i64),
    /// `timestamp`: milliseconds since the epoch
    Timestamp(i64),
    /// `timeuuid`
    Timeuuid(Uuid),
    /// `tinyint`
    Tinyint(i8),
    /// `uuid`
    Uuid(Uuid),
    /// `varint`
    Varint(BigInt),
    /// `list`
    List(Vec<Value>),
    /// `set`, in wire order
    Set(Vec<Value>),
    /// `map`, in wire order
    Map(Vec<(Value, Value)>),
    /// `tuple`; may be shorter than its type, which means nulls at the end
    Tuple(Vec<Option<Value>>),
    /// A user type's fields in order; may be shorter than its type, which means nulls at the end
    UserType(Vec<Option<Value>>),
    /// `vector`
    Vector(Vec<Value>),
}

impl Value {
    /// Decodes wire bytes.
    pub fn decode(ty: &CqlType, bytes: &[u8]) -> Result<Value, ValueError> {
        super::validate::validate(ty, bytes)?;
        Self::decode_valid(ty, bytes)
    }

    /// Decodes bytes that have been validated. Lengths are still checked.
    fn decode_valid(ty: &CqlType, bytes: &[u8]) -> Result<Value, ValueError> {
        if bytes.is_empty() {
            return Ok(match ty {
                CqlType::Ascii => Value::Ascii(String::new()),
                CqlType::Text => Value::Text(String::new()),
                CqlType::Blob | CqlType::Custom(_) => Value::Blob(Vec::new()),
                _ => Value::Empty,
            });
        }
        Ok(match ty {
            CqlType::Ascii => Value::Ascii(String::from_utf8_lossy(bytes).into_owned()),
            CqlType::Text => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
            CqlType::Blob | CqlType::Custom(_) => Value::Blob(bytes.to_vec()),
            CqlType::Empty => Value::Empty,
            CqlType::Bigint => Value::Bigint(i64::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Counter => Value::Counter(i64::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Boolean => Value::Boolean(fixed::<1>(ty, bytes)? != [0]),
            CqlType::Date => Value::Date(u32::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Decimal => Value::Decimal(
                Decimal::from_wire(bytes).ok_or_else(|| ValueError::wrong_length(ty, bytes.len()))?,
            ),
            CqlType::Double => Value::Double(f64::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Duration => Value::Duration(Duration::from_wire(bytes)?),
            CqlType::Float => Value::Float(f32::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Inet => {
                Value::Inet(codec::inet(bytes).ok_or_else(|| ValueError::wrong_length(ty, bytes.len()))?)
            }
            CqlType::Int => Value::Int(i32::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Smallint => Value::Smallint(i16::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Time => Value::Time(i64::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Timestamp => Value::Timestamp(i64::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Timeuuid => Value::Timeuuid(Uuid::from_bytes(fixed(ty, bytes)?)),
            CqlType::Tinyint => Value::Tinyint(i8::from_be_bytes(fixed(ty, bytes)?)),
            CqlType::Uuid => Value::Uuid(Uuid::from_bytes(fixed(ty, bytes)?)),
            CqlType::Varint => Value::Varint(number::varint_from_wire(bytes)),
            CqlType::List { element, .. } => Value::List(decode_elements(element, bytes)?),
            CqlType::Set { element, .. } => Value::Set(decode_elements(element, bytes)?),
            CqlType::Map { key, value, .. } => {
                let mut entries = Vec::new();
                for entry in codec::entries(bytes)? {
                    let (key_bytes, value_bytes) = entry?;
                    entries
                        .push((Self::decode_valid(key, key_bytes)?, Self::decode_valid(value, value_bytes)?));
                }
                Value::Map(entries)
            }
            CqlType::Tuple(fields) => Value::Tuple(decode_fields(fields, bytes)?),
            CqlType::UserType { definition, .. } => {
                Value::UserType(decode_fields(&definition.field_types, bytes)?)
            }
            CqlType::Vector { element, dimension } => {
                let elements = codec::vector_elements(element, *dimension, bytes)
                    .map(|item| Self::decode_valid(element, item?))
                    .collect::<Result<_, _>>()?;
                Value::Vector(elements)
            }
        })
    }

    /// Returns the wire bytes of the value. Elements keep their order: sets and maps must already be sorted.
    pub fn encode(&self, ty: &CqlType) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(ty, &mut out);
        out
    }

    /// Appends the wire bytes of the value. The type decides only how a vector frames its elements.
    pub(crate) fn encode_into(&self, ty: &CqlType, out: &mut Vec<u8>) {
        match self {
            Value::Empty => {}
            Value::Ascii(text) | Value::Text(text) => out.extend_from_slice(text.as_bytes()),
            Value::Bigint(number)
            | Value::Counter(number)
            | Value::Time(number)
            | Value::Timestamp(number) => {
                out.extend_from_slice(&number.to_be_bytes());
            }
            Value::Blob(bytes) => out.extend_from_slice(bytes),
            Value::Boolean(truth) => out.push(u8::from(*truth)),
            Value::Date(days) => out.extend_from_slice(&days.to_be_bytes()),
            Value::Decimal(decimal) => decimal.write_wire(out),
            Value::Double(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Duration(duration) => duration.write_wire(out),
            Value::Float(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Inet(IpAddr::V4(address)) => out.extend_from_slice(&address.octets()),
            Value::Inet(IpAddr::V6(address)) => out.extend_from_slice(&address.octets()),
            Value::Int(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Smallint(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Tinyint(number) => out.extend_from_slice(&number.to_be_bytes()),
            Value::Timeuuid(uuid) | Value::Uuid(uuid) => out.extend_from_slice(uuid.as_bytes()),
            Value::Varint(number) => out.extend_from_slice(&number.to_signed_bytes_be()),
            Value::List(elements) | Value::Set(elements) => {
                let components = ty.components();
                let element = component(&components, 0);
                codec::write_count(elements.len(), out);
                for value in elements {
                    codec::write_element_with(out, |out| value.encode_into(element, out));
                }
            }
            Value::Map(entries) => {
                let components = ty.components();
                let (key_type, value_type) = (component(&components, 0), component(&components, 1));
                codec::write_count(entries.len(), out);
                for (key, value) in entries {
                    codec::write_element_with(out, |out| key.encode_into(key_type, out));
                    codec::write_element_with(out, |out| value.encode_into(value_type, out));
                }
            }
            Value::Tuple(fields) | Value::UserType(fields) => {
                let components = ty.components();
                for (index, field) in fields.iter().enumerate() {
                    let field_type = component(&components, index);
                    match field {
                        Some(value) => {
                            codec::write_element_with(out, |out| value.encode_into(field_type, out));
                        }
                        None => codec::write_null(out),
                    }
                }
            }
            Value::Vector(elements) => {
                let components = ty.components();
                let element = component(&components, 0);
                let mut buffer = Vec::new();
                for value in elements {
                    buffer.clear();
                    value.encode_into(element, &mut buffer);
                    codec::write_vector_element(element, &buffer, out);
                }
            }
        }
    }
}

fn decode_elements(element: &CqlType, bytes: &[u8]) -> Result<Vec<Value>, ValueError> {
    codec::elements(bytes)?.map(|item| Value::decode_valid(element, item?)).collect()
}

fn decode_fields(types: &[CqlType], bytes: &[u8]) -> Result<Vec<Option<Value>>, ValueError> {
    let mut values = Vec::with_capacity(types.len());
    for (ty, field) in types.iter().zip(codec::fields(bytes)) {
        values.push(match field? {
            Some(field_bytes) => Some(Value::decode_valid(ty, field_bytes)?),
            None => None,
        });
    }
    Ok(values)
}

fn fixed<const N: usize>(ty: &CqlType, bytes: &[u8]) -> Result<[u8; N], ValueError> {
    bytes.try_into().map_err(|_| ValueError::wrong_length(ty, bytes.len()))
}
/// A component of a type. A value that does not fit its type is written as it is: the type decides about vectors only.
fn component<'t>(components: &[&'t CqlType], index: usize) -> &'t CqlType {
    components.get(index).copied().unwrap_or(&CqlType::Blob)
}
