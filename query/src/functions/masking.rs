//! Functions that hide values: `mask_null`, `mask_default`, `mask_replace`, `mask_inner`, `mask_outer`, `mask_hash`.

use std::net::{IpAddr, Ipv4Addr};

use cql_lite::types::duration::Duration;
use cql_lite::types::number::Decimal;
use cql_lite::types::{CqlType, Value, codec, timeuuid};
use md5::{Digest, Md5};
use num_bigint::BigInt;
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};
use uuid::Uuid;

use super::failure::{CallResult, Failure};

/// Most bytes of a value of `mask_default`. Vectors of vectors have the product of their dimensions.
const DEFAULT_BYTES_MAX: usize = 1 << 20;

/// A function that hides a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MaskingFunction {
    Null,
    /// One value for each type.
    Default,
    /// The second argument.
    Replace,
    /// All characters but some at the ends.
    Inner,
    /// Some characters at the ends.
    Outer,
    Hash,
}

/// The functions by name.
pub(super) const MASKING_FUNCTIONS: [(&str, MaskingFunction); 6] = [
    ("mask_null", MaskingFunction::Null),
    ("mask_default", MaskingFunction::Default),
    ("mask_replace", MaskingFunction::Replace),
    ("mask_inner", MaskingFunction::Inner),
    ("mask_outer", MaskingFunction::Outer),
    ("mask_hash", MaskingFunction::Hash),
];

impl MaskingFunction {
    /// The parameters, as messages show them.
    pub(super) fn parameters(self) -> &'static str {
        match self {
            Self::Null | Self::Default => "any",
            Self::Replace => "any, same",
            Self::Inner | Self::Outer => "string, int, int, [text]",
            Self::Hash => "any, [text]",
        }
    }

    /// How many arguments there may be.
    pub(super) fn arity(self) -> std::ops::RangeInclusive<usize> {
        match self {
            Self::Null | Self::Default => 1..=1,
            Self::Replace => 2..=2,
            Self::Inner | Self::Outer => 3..=4,
            Self::Hash => 1..=2,
        }
    }

    /// The types of all parameters, for a first argument of this type.
    pub(super) fn parameter_types(self, first: &CqlType) -> Vec<CqlType> {
        let first = first.clone();
        match self {
            Self::Null | Self::Default => vec![first],
            Self::Replace => vec![first.clone(), first],
            Self::Inner | Self::Outer => vec![first, CqlType::Int, CqlType::Int, CqlType::Text],
            Self::Hash => vec![first, CqlType::Text],
        }
    }

    pub(super) fn return_type(self, first: &CqlType) -> CqlType {
        match self {
            Self::Hash => CqlType::Blob,
            _ => first.clone(),
        }
    }
}

/// Applies a function to a value of that type.
pub(super) fn apply(
    function: MaskingFunction,
    name: &str,
    of: &CqlType,
    arguments: &[Option<&[u8]>],
) -> CallResult {
    let argument = |index: usize| arguments.get(index).copied().flatten();
    match function {
        MaskingFunction::Null => Ok(None),
        MaskingFunction::Default => default_value(of).map(Some),
        MaskingFunction::Replace => Ok(argument(1).map(<[u8]>::to_vec)),
        MaskingFunction::Inner | MaskingFunction::Outer => {
            let number = |index: usize| {
                let bytes = argument(index).and_then(|bytes| bytes.first_chunk::<4>());
                i64::from(bytes.map_or(0, |bytes| i32::from_be_bytes(*bytes)))
            };
            let Some(value) = argument(0) else { return Ok(None) };
            let padding = padding(name, argument(3))?;
            let is_inner = function == MaskingFunction::Inner;
            Ok(Some(mask_parts(value, (number(1), number(2)), is_inner, padding)))
        }
        MaskingFunction::Hash => {
            let Some(value) = argument(0) else { return Ok(None) };
            let algorithm = argument(1).map_or("SHA-256".into(), String::from_utf8_lossy);
            hash(&algorithm, value).map(Some)
        }
    }
}

fn padding(name: &str, argument: Option<&[u8]>) -> Result<u16, Failure> {
    let Some(bytes) = argument else { return Ok(u16::from(b'*')) };
    let text = String::from_utf8_lossy(bytes);
    let units: Vec<u16> = text.encode_utf16().collect();
    match units[..] {
        [unit] => Ok(unit),
        _ => Err(Failure::Invalid(format!(
            "The padding argument for function {name} should be single-character, but '{text}' has {} characters.",
            units.len()
        ))),
    }
}

/// Hides the characters within or outside of the first `begin` and the last `end` ones. Characters are Java's.
fn mask_parts(value: &[u8], (begin, end): (i64, i64), is_inner: bool, padding: u16) -> Vec<u8> {
    let mut units: Vec<u16> = String::from_utf8_lossy(value).encode_utf16().collect();
    let last = units.len() as i64 - 1 - end;
    for (position, unit) in (0_i64..).zip(&mut units) {
        let is_within = position >= begin && position <= last;
        if is_within == is_inner {
            *unit = padding;
        }
    }
    String::from_utf16_lossy(&units).into_bytes()
}

fn hash(algorithm: &str, value: &[u8]) -> Result<Vec<u8>, Failure> {
    Ok(match algorithm.to_ascii_uppercase().as_str() {
        "MD5" => Md5::digest(value).to_vec(),
        "SHA" | "SHA1" | "SHA-1" => Sha1::digest(value).to_vec(),
        "SHA-224" | "SHA224" => Sha224::digest(value).to_vec(),
        "SHA-256" | "SHA256" => Sha256::digest(value).to_vec(),
        "SHA-384" | "SHA384" => Sha384::digest(value).to_vec(),
        "SHA-512" | "SHA512" => Sha512::digest(value).to_vec(),
        "SHA-512/224" | "SHA512/224" => Sha512_224::digest(value).to_vec(),
        "SHA-512/256" | "SHA512/256" => Sha512_256::digest(value).to_vec(),
        _ => return Err(Failure::Invalid(format!("Hash algorithm not found: {algorithm}"))),
    })
}

/// The bytes of the value that stands for all values of a type. A type whose value has too many bytes is refused before they are
/// written.
pub(super) fn default_value(of: &CqlType) -> Result<Vec<u8>, Failure> {
    let value = match of {
        CqlType::Ascii | CqlType::Text => Value::Text("****".to_owned()),
        CqlType::Bigint | CqlType::Counter => Value::Bigint(0),
        CqlType::Blob | CqlType::Custom(_) => Value::Blob(Vec::new()),
        CqlType::Boolean => Value::Boolean(false),
        CqlType::Date => Value::Date(1 << 31),
        CqlType::Decimal => Value::Decimal(Decimal { unscaled: BigInt::ZERO, scale: 0 }),
        CqlType::Double => Value::Double(0.0),
        CqlType::Duration => Value::Duration(Duration { months: 0, days: 0, nanoseconds: 0 }),
        CqlType::Empty => Value::Empty,
        CqlType::Float => Value::Float(0.0),
        CqlType::Inet => Value::Inet(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        CqlType::Int => Value::Int(0),
        CqlType::Smallint => Value::Smallint(0),
        CqlType::Time => Value::Time(0),
        CqlType::Timestamp => Value::Timestamp(0),
        CqlType::Timeuuid => Value::Timeuuid(timeuuid::minimum(0)),
        CqlType::Tinyint => Value::Tinyint(0),
        CqlType::Uuid => Value::Uuid(Uuid::nil()),
        CqlType::Varint => Value::Varint(BigInt::ZERO),
        CqlType::List { .. } => Value::List(Vec::new()),
        CqlType::Set { .. } => Value::Set(Vec::new()),
        CqlType::Map { .. } => Value::Map(Vec::new()),
        CqlType::Tuple(fields) => return default_fields(of, fields),
        CqlType::UserType { definition, .. } => return default_fields(of, &definition.field_types),
        CqlType::Vector { element, dimension } => {
            let mut bytes = Vec::new();
            codec::write_vector_element(element, &default_value(element)?, &mut bytes);
            check_default_bytes(of, bytes.len().checked_mul(*dimension))?;
            return Ok(bytes.repeat(*dimension));
        }
    };
    Ok(value.encode(of))
}

fn default_fields(of: &CqlType, fields: &[CqlType]) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    for field in fields {
        codec::write_element(&default_value(field)?, &mut bytes);
        check_default_bytes(of, Some(bytes.len()))?;
    }
    Ok(bytes)
}

/// `bytes`: those of the value of a type. `None`: more than can be counted.
fn check_default_bytes(of: &CqlType, bytes: Option<usize>) -> Result<(), Failure> {
    if bytes.is_some_and(|bytes| bytes <= DEFAULT_BYTES_MAX) {
        return Ok(());
    }
    Err(Failure::Invalid(format!(
        "Function system.mask_default cannot be used for type {of}: its value has more than {DEFAULT_BYTES_MAX} bytes"
    )))
}
