//! Parsing and formatting: CQL literals, and the plain text of casts and error messages.

use std::net::IpAddr;
use std::str::FromStr;

use num_bigint::BigInt;
use uuid::Uuid;

use super::codec;
use super::cql_type::{CqlType, quote_identifier};
use super::duration::{Duration, DurationError};
pub use super::hex::format_hex;
use super::number::{self, Decimal};
use super::time::{self, TimeError};
use super::value::Value;
use super::value_error::ValueError;

/// The kinds of literals in CQL's grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiteralKind {
    /// `'text'`
    String,
    /// `42`
    Integer,
    /// `4.2`, `1e3`, `NaN`, `-Infinity`
    Float,
    /// `true`
    Boolean,
    /// `123e4567-e89b-12d3-a456-426614174000`
    Uuid,
    /// `0xCAFE`
    Hex,
    /// `1h30m`
    Duration,
}

/// The name that error messages use: `Invalid STRING constant (x) for "v" of type int`.
impl std::fmt::Display for LiteralKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LiteralKind::String => "STRING",
            LiteralKind::Integer => "INTEGER",
            LiteralKind::Float => "FLOAT",
            LiteralKind::Boolean => "BOOLEAN",
            LiteralKind::Uuid => "UUID",
            LiteralKind::Hex => "HEX",
            LiteralKind::Duration => "DURATION",
        })
    }
}

impl LiteralKind {
    /// The type of the literal when the context requires none.
    pub fn preferred_type(self, text: &str) -> CqlType {
        match self {
            LiteralKind::String if text.is_ascii() => CqlType::Ascii,
            LiteralKind::String => CqlType::Text,
            LiteralKind::Integer if text.parse::<i32>().is_ok() => CqlType::Int,
            LiteralKind::Integer if text.parse::<i64>().is_ok() => CqlType::Bigint,
            LiteralKind::Integer => CqlType::Varint,
            LiteralKind::Float => match text.trim_start_matches('-').to_ascii_lowercase().as_str() {
                "nan" | "infinity" => CqlType::Double,
                _ if Decimal::from_str(text).is_ok_and(|decimal| fits_double(&decimal)) => CqlType::Double,
                _ => CqlType::Decimal,
            },
            LiteralKind::Boolean => CqlType::Boolean,
            LiteralKind::Uuid if text.as_bytes().get(14) == Some(&b'1') => CqlType::Timeuuid,
            LiteralKind::Uuid => CqlType::Uuid,
            LiteralKind::Hex => CqlType::Blob,
            LiteralKind::Duration => CqlType::Duration,
        }
    }

    /// Whether a literal of this kind can be assigned to the type.
    pub fn is_assignable_to(self, ty: &CqlType) -> bool {
        match self {
            LiteralKind::String => matches!(
                ty,
                CqlType::Ascii
                    | CqlType::Text
                    | CqlType::Inet
                    | CqlType::Date
                    | CqlType::Time
                    | CqlType::Timestamp
                    | CqlType::Custom(_)
            ),
            LiteralKind::Integer => {
                ty.is_numeric()
                    || matches!(ty, CqlType::Date | CqlType::Time | CqlType::Timestamp | CqlType::Duration)
            }
            LiteralKind::Float => matches!(ty, CqlType::Decimal | CqlType::Double | CqlType::Float),
            LiteralKind::Boolean => *ty == CqlType::Boolean,
            LiteralKind::Uuid => matches!(ty, CqlType::Uuid | CqlType::Timeuuid),
            LiteralKind::Hex => matches!(ty, CqlType::Blob | CqlType::Custom(_)),
            LiteralKind::Duration => *ty == CqlType::Duration,
        }
    }
}

/// Whether the decimal is exactly what its nearest double prints as, digits after the point included.
fn fits_double(decimal: &Decimal) -> bool {
    Decimal::from_f64(decimal.to_f64())
        .is_ok_and(|back| back.unscaled == decimal.unscaled && back.scale == decimal.scale)
}

/// Error of parsing a literal. The texts are Cassandra's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LiteralError {
    /// The text is not a number, address, UUID, … of the type.
    #[error("{expected} from '{text}'")]
    Malformed {
        /// The beginning of the message, e.g. `Unable to make int`.
        expected: &'static str,
        /// The text.
        text: String,
    },
    /// Text that is not hexadecimal.
    #[error("cannot parse '{text}' as hex bytes")]
    Hex {
        /// The text.
        text: String,
    },
    /// Characters beyond ASCII.
    #[error("Invalid ASCII character in string literal: {text}")]
    Ascii {
        /// The text.
        text: String,
    },
    /// A UUID of a version other than 1.
    #[error("TimeUUID supports only version 1 UUIDs")]
    TimeuuidVersion,
    /// Not a date, time or timestamp.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// Not a duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// The type has no literal of one token.
    #[error("a value of type {ty} cannot be written as one literal")]
    NoLiteral {
        /// The type.
        ty: String,
    },
    /// Bytes that are not a value of the type.
    #[error(transparent)]
    Value(#[from] ValueError),
}

fn malformed(expected: &'static str, text: &str) -> LiteralError {
    LiteralError::Malformed { expected, text: text.to_owned() }
}

/// Parses a literal of a kind that is assignable to the type; returns wire bytes. `0x` before a blob is optional.
pub fn parse(ty: &CqlType, text: &str) -> Result<Vec<u8>, LiteralError> {
    if text.is_empty() && !matches!(ty, CqlType::Date | CqlType::Time | CqlType::Duration) {
        let has_empty_value = !matches!(ty, CqlType::Tinyint | CqlType::Smallint);
        return if has_empty_value { Ok(Vec::new()) } else { Err(number_error(ty, text)) };
    }
    Ok(match ty {
        CqlType::Ascii if !text.is_ascii() => return Err(LiteralError::Ascii { text: text.to_owned() }),
        CqlType::Ascii | CqlType::Text => text.as_bytes().to_vec(),
        CqlType::Tinyint => parse_number::<i8>(ty, text)?.to_be_bytes().to_vec(),
        CqlType::Smallint => parse_number::<i16>(ty, text)?.to_be_bytes().to_vec(),
        CqlType::Int => parse_number::<i32>(ty, text)?.to_be_bytes().to_vec(),
        CqlType::Bigint | CqlType::Counter => parse_number::<i64>(ty, text)?.to_be_bytes().to_vec(),
        CqlType::Varint => parse_number::<BigInt>(ty, text)?.to_signed_bytes_be(),
        CqlType::Decimal => parse_number::<Decimal>(ty, text)?.to_wire(),
        CqlType::Float => parse_float::<f32>(ty, text)?.to_be_bytes().to_vec(),
        CqlType::Double => parse_float::<f64>(ty, text)?.to_be_bytes().to_vec(),
        CqlType::Boolean => vec![u8::from(parse_boolean(text)?)],
        CqlType::Blob | CqlType::Custom(_) => parse_hex(text)?,
        CqlType::Date => time::parse_date(text)?.to_be_bytes().to_vec(),
        CqlType::Time => time::parse_time(text)?.to_be_bytes().to_vec(),
        CqlType::Timestamp => time::parse_timestamp(text)?.to_be_bytes().to_vec(),
        CqlType::Duration => {
            let mut out = Vec::new();
            Duration::parse(text)?.write_wire(&mut out);
            out
        }
        CqlType::Inet => parse_inet(text)?,
        CqlType::Uuid => parse_uuid(text)?.as_bytes().to_vec(),
        CqlType::Timeuuid => {
            let uuid = parse_uuid(text)?;
            if uuid.get_version_num() != 1 {
                return Err(LiteralError::TimeuuidVersion);
            }
            uuid.as_bytes().to_vec()
        }
        CqlType::Empty
        | CqlType::List { .. }
        | CqlType::Set { .. }
        | CqlType::Map { .. }
        | CqlType::Tuple(_)
        | CqlType::UserType { .. }
        | CqlType::Vector { .. } => return Err(LiteralError::NoLiteral { ty: ty.to_string() }),
    })
}

fn number_error(ty: &CqlType, text: &str) -> LiteralError {
    let expected = match ty {
        CqlType::Tinyint => "Unable to make byte",
        CqlType::Smallint => "Unable to make short",
        CqlType::Int => "Unable to make int",
        CqlType::Bigint | CqlType::Counter => "Unable to make long",
        CqlType::Varint => "unable to make int",
        CqlType::Decimal => "unable to make BigDecimal",
        CqlType::Float => "Unable to make float",
        _ => "Unable to make double",
    };
    malformed(expected, text)
}

fn parse_number<N: FromStr>(ty: &CqlType, text: &str) -> Result<N, LiteralError> {
    text.parse().map_err(|_| number_error(ty, text))
}

fn parse_float<N: FromStr>(ty: &CqlType, text: &str) -> Result<N, LiteralError> {
    // Rust's parser takes `inf` too, Java's does not.
    let unsigned = text.trim_start_matches(['+', '-']);
    if unsigned.eq_ignore_ascii_case("inf") {
        return Err(number_error(ty, text));
    }
    parse_number(ty, text)
}

fn parse_boolean(text: &str) -> Result<bool, LiteralError> {
    if text.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err(malformed("Unable to make boolean", text))
    }
}

/// Bytes from hexadecimal digits, with or without `0x` before them.
pub fn parse_hex(text: &str) -> Result<Vec<u8>, LiteralError> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let error = || LiteralError::Hex { text: text.to_owned() };
    if !digits.len().is_multiple_of(2) {
        return Err(error());
    }
    let nibble = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    digits
        .as_bytes()
        .chunks_exact(2)
        .map(|pair| match pair {
            [high, low] => Some((nibble(*high)? << 4) | nibble(*low)?),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(error)
}

fn parse_inet(text: &str) -> Result<Vec<u8>, LiteralError> {
    let address: IpAddr = text.parse().map_err(|_| malformed("Unable to make inet address", text))?;
    Ok(match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    })
}

fn parse_uuid(text: &str) -> Result<Uuid, LiteralError> {
    // Only the hyphenated form is CQL; the parser knows others.
    if text.len() != 36 {
        return Err(malformed("Unable to make UUID", text));
    }
    Uuid::parse_str(text).map_err(|_| malformed("Unable to make UUID", text))
}

/// An address as Java prints it: IPv6 without `::`.
pub(crate) fn format_inet(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            address.segments().iter().map(|segment| format!("{segment:x}")).collect::<Vec<_>>().join(":")
        }
    }
}

/// Text as a CQL string literal.
pub fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Formats a value as a CQL literal, for `DESCRIBE` and error messages. Bytes that are not a value of the type are
/// formatted as a blob.
pub fn format(ty: &CqlType, bytes: &[u8]) -> String {
    if bytes.is_empty() && !matches!(ty, CqlType::Text | CqlType::Ascii | CqlType::Blob | CqlType::Custom(_))
    {
        return "''".to_owned();
    }
    match ty {
        CqlType::Text | CqlType::Ascii => match std::str::from_utf8(bytes) {
            Ok(text) => quote_text(text),
            Err(_) => format_hex(bytes),
        },
        CqlType::Inet | CqlType::Date | CqlType::Time | CqlType::Timestamp => quote_text(&to_text(ty, bytes)),
        CqlType::List { element, .. } => format!("[{}]", format_elements(element, bytes)),
        CqlType::Set { element, .. } => format!("{{{}}}", format_elements(element, bytes)),
        CqlType::Map { key, value, .. } => {
            let entries: Vec<String> = codec::entries(bytes)
                .into_iter()
                .flatten()
                .map_while(Result::ok)
                .map(|(k, v)| format!("{}: {}", format(key, k), format(value, v)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        CqlType::Tuple(fields) => {
            let mut values = codec::fields(bytes);
            let texts: Vec<String> = fields.iter().map(|field| format_field(field, &mut values)).collect();
            format!("({})", texts.join(", "))
        }
        CqlType::UserType { definition, .. } => {
            let mut values = codec::fields(bytes);
            let texts: Vec<String> = definition
                .field_names
                .iter()
                .zip(&definition.field_types)
                .map(|(name, field)| {
                    format!("{}: {}", quote_identifier(name), format_field(field, &mut values))
                })
                .collect();
            format!("{{{}}}", texts.join(", "))
        }
        CqlType::Vector { element, dimension } => {
            let texts: Vec<String> = codec::vector_elements(element, *dimension, bytes)
                .map_while(Result::ok)
                .map(|item| format(element, item))
                .collect();
            format!("[{}]", texts.join(", "))
        }
        _ => to_text(ty, bytes),
    }
}

fn format_field(ty: &CqlType, values: &mut codec::Fields<'_>) -> String {
    match values.next() {
        Some(Ok(Some(bytes))) => format(ty, bytes),
        _ => "null".to_owned(),
    }
}

fn format_elements(element: &CqlType, bytes: &[u8]) -> String {
    let texts: Vec<String> = codec::elements(bytes)
        .into_iter()
        .flatten()
        .map_while(Result::ok)
        .map(|item| format(element, item))
        .collect();
    texts.join(", ")
}

/// Formats a value as plain text without quotes, as `CAST(… AS text)` does. Collections, tuples and user types are
/// formatted as literals, and bytes that are not a value of the type as a blob.
pub fn to_text(ty: &CqlType, bytes: &[u8]) -> String {
    if ty.is_collection()
        || matches!(ty, CqlType::Tuple(_) | CqlType::UserType { .. } | CqlType::Vector { .. })
    {
        return format(ty, bytes);
    }
    let Ok(value) = Value::decode(ty, bytes) else { return format_hex(bytes) };
    match value {
        Value::Ascii(text) | Value::Text(text) => text,
        Value::Bigint(number) | Value::Counter(number) => number.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Smallint(number) => number.to_string(),
        Value::Tinyint(number) => number.to_string(),
        Value::Varint(number) => number.to_string(),
        Value::Decimal(number) => number.to_string(),
        Value::Double(number) => number::java_double(number),
        Value::Float(number) => number::java_float(number),
        Value::Blob(bytes) => format_hex(&bytes),
        Value::Boolean(truth) => truth.to_string(),
        Value::Date(date) => time::format_date(date),
        Value::Time(nanoseconds) => time::format_time(nanoseconds),
        Value::Timestamp(millis) => time::format_timestamp(millis),
        Value::Duration(duration) => duration.to_string(),
        Value::Inet(address) => format_inet(address),
        Value::Timeuuid(uuid) | Value::Uuid(uuid) => uuid.to_string(),
        Value::Empty
        | Value::List(_)
        | Value::Set(_)
        | Value::Map(_)
        | Value::Tuple(_)
        | Value::UserType(_)
        | Value::Vector(_) => String::new(),
    }
}
