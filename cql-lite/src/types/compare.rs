//! Comparison of wire bytes in Cassandra's order of each type.
//!
//! Empty bytes sort first. Invalid bytes are compared as plain bytes, so the order is total for any input.

use std::cmp::Ordering;

use super::codec;
use super::cql_type::CqlType;
use super::number::{self, Decimal};
use super::timeuuid;

/// Compares two values of a type.
pub fn compare(ty: &CqlType, left: &[u8], right: &[u8]) -> Ordering {
    if left.is_empty() || right.is_empty() {
        return left.len().cmp(&right.len());
    }
    let ordering = match ty {
        CqlType::Tinyint => compare_fixed(left, right, i8::from_be_bytes),
        CqlType::Smallint => compare_fixed(left, right, i16::from_be_bytes),
        CqlType::Int => compare_fixed(left, right, i32::from_be_bytes),
        CqlType::Bigint | CqlType::Counter | CqlType::Timestamp => {
            compare_fixed(left, right, i64::from_be_bytes)
        }
        CqlType::Boolean => compare_fixed(left, right, |byte: [u8; 1]| byte != [0]),
        CqlType::Float => compare_fixed(left, right, |bits| java_order_f32(f32::from_be_bytes(bits))),
        CqlType::Double => compare_fixed(left, right, |bits| java_order_f64(f64::from_be_bytes(bits))),
        CqlType::Uuid => compare_fixed(left, right, timeuuid::uuid_sort_key),
        CqlType::Timeuuid => compare_fixed(left, right, timeuuid::timeuuid_sort_key),
        CqlType::Varint => Some(number::varint_from_wire(left).cmp(&number::varint_from_wire(right))),
        CqlType::Decimal => match (Decimal::from_wire(left), Decimal::from_wire(right)) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => None,
        },
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            compare_elements(element, left, right)
        }
        CqlType::Map { key, value, .. } => compare_entries(key, value, left, right),
        CqlType::Tuple(fields) => compare_fields(fields, left, right),
        CqlType::UserType { definition, .. } => compare_fields(&definition.field_types, left, right),
        CqlType::Vector { element, dimension } => compare_vectors(element, *dimension, left, right),
        CqlType::Ascii
        | CqlType::Blob
        | CqlType::Custom(_)
        | CqlType::Date
        | CqlType::Duration
        | CqlType::Empty
        | CqlType::Inet
        | CqlType::Text
        | CqlType::Time => None,
    };
    ordering.unwrap_or_else(|| left.cmp(right))
}

fn compare_fixed<const N: usize, T: Ord>(
    left: &[u8],
    right: &[u8],
    key: impl Fn([u8; N]) -> T,
) -> Option<Ordering> {
    Some(key(left.try_into().ok()?).cmp(&key(right.try_into().ok()?)))
}

/// A number that orders doubles as Java's `Double.compare`: -0.0 before 0.0, NaN last and equal to itself.
pub(crate) fn java_order_f64(number: f64) -> i64 {
    let bits = if number.is_nan() { f64::NAN.abs().to_bits() } else { number.to_bits() } as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// A number that orders floats as Java's `Float.compare`.
pub(crate) fn java_order_f32(number: f32) -> i32 {
    let bits = if number.is_nan() { f32::NAN.abs().to_bits() } else { number.to_bits() } as i32;
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

fn compare_elements(element: &CqlType, left: &[u8], right: &[u8]) -> Option<Ordering> {
    let (mut left, mut right) = (codec::elements(left).ok()?, codec::elements(right).ok()?);
    loop {
        match (left.next(), right.next()) {
            (Some(Ok(a)), Some(Ok(b))) => match compare(element, a, b) {
                Ordering::Equal => {}
                unequal => return Some(unequal),
            },
            (Some(Err(_)), _) | (_, Some(Err(_))) => return None,
            (a, b) => return Some(a.is_some().cmp(&b.is_some())),
        }
    }
}

fn compare_entries(key: &CqlType, value: &CqlType, left: &[u8], right: &[u8]) -> Option<Ordering> {
    let (mut left, mut right) = (codec::entries(left).ok()?, codec::entries(right).ok()?);
    loop {
        match (left.next(), right.next()) {
            (Some(Ok(a)), Some(Ok(b))) => match compare(key, a.0, b.0).then_with(|| compare(value, a.1, b.1))
            {
                Ordering::Equal => {}
                unequal => return Some(unequal),
            },
            (Some(Err(_)), _) | (_, Some(Err(_))) => return None,
            (a, b) => return Some(a.is_some().cmp(&b.is_some())),
        }
    }
}

/// Nulls sort before values. Missing trailing fields equal nulls; a tuple that ends earlier sorts before one whose next
/// field is not null.
fn compare_fields(types: &[CqlType], left: &[u8], right: &[u8]) -> Option<Ordering> {
    let (mut left, mut right) = (codec::fields(left), codec::fields(right));
    for ty in types {
        let (a, b) = (left.next().transpose().ok()?, right.next().transpose().ok()?);
        let (a, b) = match (a, b) {
            (Some(a), Some(b)) => (a, b),
            (None, None) => return Some(Ordering::Equal),
            (Some(a), None) => {
                return Some(if a.is_none() && only_nulls(left) {
                    Ordering::Equal
                } else {
                    Ordering::Greater
                });
            }
            (None, Some(b)) => {
                return Some(if b.is_none() && only_nulls(right) { Ordering::Equal } else { Ordering::Less });
            }
        };
        let ordering = match (a, b) {
            (Some(a), Some(b)) => compare(ty, a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        if ordering != Ordering::Equal {
            return Some(ordering);
        }
    }
    Some(Ordering::Equal)
}

fn only_nulls(mut rest: codec::Fields<'_>) -> bool {
    rest.all(|field| matches!(field, Ok(None)))
}

fn compare_vectors(element: &CqlType, dimension: usize, left: &[u8], right: &[u8]) -> Option<Ordering> {
    let left = codec::vector_elements(element, dimension, left);
    let right = codec::vector_elements(element, dimension, right);
    for (a, b) in left.zip(right) {
        match compare(element, a.ok()?, b.ok()?) {
            Ordering::Equal => {}
            unequal => return Some(unequal),
        }
    }
    Some(Ordering::Equal)
}
