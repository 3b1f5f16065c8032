//! Random types and values for the property tests.

use cql_lite::types::compare::compare;
use cql_lite::types::duration::Duration;
use cql_lite::types::number::Decimal;
use cql_lite::types::{CqlType, UserType, Value, codec, timeuuid};
use num_bigint::BigInt;
use proptest::prelude::*;
use std::sync::Arc;

/// A type that a clustering column can have: any without counters and durations.
pub fn clustering_type() -> impl Strategy<Value = CqlType> {
    let native: Vec<CqlType> = CqlType::natives()
        .filter(|ty| !matches!(ty, CqlType::Counter | CqlType::Duration | CqlType::Empty))
        .collect();
    proptest::sample::select(native).prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|element| CqlType::list(element, true)),
            inner.clone().prop_map(|element| CqlType::set(element, true)),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| CqlType::map(key, value, true)),
            (inner.clone(), 1..3usize).prop_map(|(element, dimension)| CqlType::vector(element, dimension)),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(CqlType::tuple),
            proptest::collection::vec(inner, 1..4).prop_map(|fields| {
                let definition = UserType {
                    keyspace: "ks".into(),
                    name: "ut".into(),
                    field_names: (0..fields.len()).map(|index| format!("f{index}").into()).collect(),
                    field_types: fields,
                };
                CqlType::UserType { definition: Arc::new(definition), frozen: true }
            }),
        ]
    })
}

/// Wire bytes of a random value of the type. Values are drawn from few alternatives, so that equal prefixes and
/// equal values are common.
pub fn value_of(ty: &CqlType) -> BoxedStrategy<Vec<u8>> {
    let encoded = |value: BoxedStrategy<Value>, ty: &CqlType| {
        let ty = ty.clone();
        value.prop_map(move |value| value.encode(&ty)).boxed()
    };
    let small = prop_oneof![Just(0i64), Just(1), Just(-1), -300..300i64, any::<i64>()];
    let value = match ty {
        CqlType::Text => "[a\u{0}\u{1}é]{0,4}".prop_map(Value::Text).boxed(),
        CqlType::Ascii => "[ab\u{0}\u{1}]{0,4}".prop_map(Value::Ascii).boxed(),
        CqlType::Blob | CqlType::Custom(_) => proptest::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(0xFE), Just(0xFF), any::<u8>()],
            0..5,
        )
        .prop_map(Value::Blob)
        .boxed(),
        CqlType::Bigint => small.prop_map(Value::Bigint).boxed(),
        CqlType::Counter => small.prop_map(Value::Counter).boxed(),
        CqlType::Timestamp => small.prop_map(Value::Timestamp).boxed(),
        CqlType::Int => small.prop_map(|n| Value::Int(n as i32)).boxed(),
        CqlType::Smallint => small.prop_map(|n| Value::Smallint(n as i16)).boxed(),
        CqlType::Tinyint => small.prop_map(|n| Value::Tinyint(n as i8)).boxed(),
        CqlType::Date => any::<u32>().prop_map(Value::Date).boxed(),
        CqlType::Time => (0..86_400_000_000_000i64).prop_map(Value::Time).boxed(),
        CqlType::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        CqlType::Float => {
            prop_oneof![Just(0.0f32), Just(-0.0), Just(f32::NAN), any::<f32>()].prop_map(Value::Float).boxed()
        }
        CqlType::Double => prop_oneof![Just(0.0f64), Just(-0.0), Just(f64::INFINITY), any::<f64>()]
            .prop_map(Value::Double)
            .boxed(),
        CqlType::Varint => prop_oneof![
            small.prop_map(BigInt::from),
            proptest::collection::vec(any::<u8>(), 0..200)
                .prop_map(|bytes| BigInt::from_signed_bytes_be(&bytes)),
        ]
        .prop_map(Value::Varint)
        .boxed(),
        CqlType::Decimal => (small, prop_oneof![-3..4i32, Just(40), Just(-40)])
            .prop_map(|(unscaled, scale)| Value::Decimal(Decimal::new(unscaled, scale)))
            .boxed(),
        CqlType::Duration => (0..100i32, 0..100i32, 0..1_000_000i64)
            .prop_map(|(months, days, nanoseconds)| Value::Duration(Duration { months, days, nanoseconds }))
            .boxed(),
        CqlType::Inet => prop_oneof![
            any::<[u8; 4]>().prop_map(|octets| Value::Inet(octets.into())),
            any::<[u8; 16]>().prop_map(|octets| Value::Inet(octets.into())),
        ]
        .boxed(),
        CqlType::Timeuuid => (any::<i32>(), any::<u16>(), any::<[u8; 6]>())
            .prop_map(|(time, sequence, node)| {
                Value::Timeuuid(timeuuid::from_micros(i64::from(time), 0, sequence, node))
            })
            .boxed(),
        CqlType::Uuid => prop_oneof![
            any::<[u8; 16]>().prop_map(|bytes| Value::Uuid(uuid::Uuid::from_bytes(bytes))),
            any::<u16>().prop_map(|time| {
                Value::Uuid(timeuuid::from_micros(i64::from(time), 0, 1, [0, 1, 0x80, 0xFF, 3, 4]))
            }),
        ]
        .boxed(),
        CqlType::Empty => Just(Value::Empty).boxed(),
        CqlType::List { element, .. } => return elements_of(element, false),
        CqlType::Set { element, .. } => return elements_of(element, true),
        CqlType::Map { key, value, .. } => {
            let key_type = key.clone();
            return proptest::collection::vec((value_of(key), value_of(value)), 0..3)
                .prop_map(move |mut entries| {
                    entries.sort_by(|a, b| compare(&key_type, &a.0, &b.0));
                    entries.dedup_by(|a, b| compare(&key_type, &a.0, &b.0).is_eq());
                    codec::encode_entries(entries.iter().map(|(k, v)| (k.as_slice(), v.as_slice())))
                })
                .boxed();
        }
        CqlType::Tuple(fields) => return fields_of(fields),
        CqlType::UserType { definition, .. } => return fields_of(&definition.field_types),
        CqlType::Vector { element, dimension } => {
            let element_type = element.clone();
            return proptest::collection::vec(value_of(element), *dimension)
                .prop_map(move |items| {
                    let mut out = Vec::new();
                    for item in &items {
                        codec::write_vector_element(&element_type, item, &mut out);
                    }
                    out
                })
                .boxed();
        }
    };
    encoded(value, ty)
}

fn elements_of(element: &Arc<CqlType>, sorted: bool) -> BoxedStrategy<Vec<u8>> {
    let element_type = element.clone();
    proptest::collection::vec(value_of(element), 0..4)
        .prop_map(move |mut items| {
            if sorted {
                items.sort_by(|a, b| compare(&element_type, a, b));
                items.dedup_by(|a, b| compare(&element_type, a, b).is_eq());
            }
            codec::encode_elements(items.iter().map(Vec::as_slice))
        })
        .boxed()
}

fn fields_of(types: &[CqlType]) -> BoxedStrategy<Vec<u8>> {
    let fields: Vec<_> = types.iter().map(|ty| proptest::option::of(value_of(ty))).collect();
    fields.prop_map(|values| codec::encode_fields(values.iter().map(Option::as_deref))).boxed()
}
