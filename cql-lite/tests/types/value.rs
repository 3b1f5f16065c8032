//! Validity and decoding of wire bytes.

use crate::arbitrary::{clustering_type, value_of};
use cql_lite::types::canonical::canonical;
use cql_lite::types::compare::compare;
use cql_lite::types::validate::validate;
use cql_lite::types::{CqlType, Value, codec};
use proptest::prelude::*;
use std::borrow::Cow;
use std::cmp::Ordering;

fn error(ty: &CqlType, bytes: &[u8]) -> String {
    validate(ty, bytes).unwrap_err().to_string()
}

#[test]
fn messages_are_cassandras() {
    assert_eq!(error(&CqlType::Int, &[1, 2, 3]), "Expected 4 or 0 byte int (3)");
    assert_eq!(error(&CqlType::Bigint, &[1]), "Expected 8 or 0 byte long (1)");
    assert_eq!(error(&CqlType::Timestamp, &[1]), "Expected 8 or 0 byte long for date (1)");
    assert_eq!(error(&CqlType::Boolean, &[1, 1]), "Expected 1 or 0 byte value (2)");
    assert_eq!(error(&CqlType::Float, &[1]), "Expected 4 or 0 byte value for a float (1)");
    assert_eq!(error(&CqlType::Tinyint, &[]), "Expected 1 byte for a tinyint (0)");
    assert_eq!(error(&CqlType::Smallint, &[]), "Expected 2 bytes for a smallint (0)");
    assert_eq!(error(&CqlType::Date, &[]), "Expected 4 byte long for date (0)");
    assert_eq!(error(&CqlType::Text, &[0xFF]), "String didn't validate.");
    assert_eq!(error(&CqlType::Ascii, &[0xFF]), "Invalid byte for ascii: -1");
    assert_eq!(error(&CqlType::Uuid, &[1]), "UUID should be 16 or 0 bytes (1)");
    assert_eq!(error(&CqlType::Timeuuid, &[0; 16]), "Invalid version for TimeUUID type.");
    assert_eq!(error(&CqlType::Inet, &[1, 2]), "Expected 4 or 16 byte inetaddress; got 0102");
    assert_eq!(error(&CqlType::Decimal, &[1, 2]), "Expected 0 or at least 4 bytes (2)");
    assert_eq!(error(&CqlType::Duration, &[0]), "Expected at least 3 bytes for a duration (1)");
    let list = CqlType::list(CqlType::Int, false);
    assert_eq!(error(&list, &[0, 0, 0, 1]), "Not enough bytes to read a list");
    assert_eq!(error(&list, &[0, 0, 0, 0, 9]), "Unexpected extraneous bytes after list value");
    assert_eq!(error(&list, &[0, 0, 0, 1, 0, 0, 0, 1, 9]), "Expected 4 or 0 byte int (1)");
    let tuple = CqlType::tuple([CqlType::Int]);
    assert_eq!(error(&tuple, &[0]), "Not enough bytes to read size of 0th component");
    assert_eq!(
        error(&tuple, &[0xFF, 0xFF, 0xFF, 0xFF, 1]),
        "Invalid remaining data after end of tuple value"
    );
    let vector = CqlType::vector(CqlType::Float, 2);
    assert_eq!(error(&vector, &[0; 4]), "Not enough bytes to read a vector<float, 2>");
    assert_eq!(error(&vector, &[0; 9]), "Unexpected 1 extraneous bytes after vector<float, 2> value");
}

#[test]
fn most_types_have_an_empty_value() {
    for ty in CqlType::natives() {
        let refuses = matches!(
            ty,
            CqlType::Tinyint | CqlType::Smallint | CqlType::Date | CqlType::Time | CqlType::Duration
        );
        assert_eq!(validate(&ty, &[]).is_err(), refuses, "{ty}");
    }
}

#[test]
fn short_tuples_end_with_nulls() {
    let tuple = CqlType::tuple([CqlType::Int, CqlType::Text]);
    let short = [0, 0, 0, 4, 0, 0, 0, 7];
    assert_eq!(Value::decode(&tuple, &short).unwrap(), Value::Tuple(vec![Some(Value::Int(7))]));
    let padded = codec::encode_fields([Some(&short[4..]), None].into_iter());
    assert_eq!(compare(&tuple, &short, &padded), Ordering::Equal);
    assert_eq!(codec::field(&short, 1), Ok(None));
    assert_eq!(codec::field(&short, 0), Ok(Some(&short[4..])));
}

#[test]
fn timeuuids_compare_their_other_bytes_as_signed() {
    let with_last = |last: u8| {
        let mut bytes = *uuid::Uuid::parse_str("6bddc89a-5644-11e4-97fc-56847afe9799").unwrap().as_bytes();
        bytes[15] = last;
        bytes
    };
    assert_eq!(compare(&CqlType::Timeuuid, &with_last(0x80), &with_last(0x7F)), Ordering::Less);
    assert_eq!(compare(&CqlType::Uuid, &with_last(0x80), &with_last(0x7F)), Ordering::Greater);
}

#[test]
fn unsigned_vints() {
    for number in
        [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), 1 << 49, (1 << 56) - 1, 1 << 56, u64::MAX]
    {
        let mut bytes = Vec::new();
        codec::write_unsigned_vint(number, &mut bytes);
        let mut rest = bytes.as_slice();
        assert_eq!(codec::take_unsigned_vint(&mut rest), Some(number), "{number} {bytes:x?}");
        assert!(rest.is_empty());
    }
    let mut bytes = Vec::new();
    codec::write_unsigned_vint(0x1234, &mut bytes);
    assert_eq!(bytes, [0x92, 0x34]);
}

proptest! {
    #[test]
    fn decoding_and_encoding_gives_the_bytes_back(
        (ty, wire) in clustering_type().prop_flat_map(|ty| (Just(ty.clone()), value_of(&ty)))
    ) {
        let value = Value::decode(&ty, &wire).unwrap();
        // An empty varint, and an empty list inside a vector, encode to the bytes of the empty value.
        prop_assert_eq!(value.encode(&ty), wire);
    }

    #[test]
    fn any_bytes_are_judged_without_panic(
        ty in clustering_type(), bytes in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let valid = validate(&ty, &bytes).is_ok();
        prop_assert_eq!(Value::decode(&ty, &bytes).is_ok(), valid);
    }

    #[test]
    fn comparing_is_a_total_order(
        (ty, values) in clustering_type()
            .prop_flat_map(|ty| (Just(ty.clone()), proptest::collection::vec(value_of(&ty), 3)))
    ) {
        let order = |left: usize, right: usize| compare(&ty, &values[left], &values[right]);
        prop_assert_eq!(order(0, 1), order(1, 0).reverse());
        if order(0, 1).is_le() && order(1, 2).is_le() {
            prop_assert!(order(0, 2).is_le());
        }
    }
}

/// An equal value that is not canonical: sets and maps, not those inside tuples and vectors, in descending order, with the last element
/// or entry twice.
fn scrambled(ty: &CqlType, bytes: &[u8]) -> Vec<u8> {
    let parts = |element: &CqlType| -> Vec<Vec<u8>> {
        codec::elements(bytes).unwrap().map(|item| scrambled(element, item.unwrap())).collect()
    };
    match ty {
        _ if bytes.is_empty() => Vec::new(),
        CqlType::List { element, .. } => codec::encode_elements(parts(element).iter().map(Vec::as_slice)),
        CqlType::Set { element, .. } => {
            let mut items = parts(element);
            items.extend(items.last().cloned());
            items.reverse();
            codec::encode_elements(items.iter().map(Vec::as_slice))
        }
        CqlType::Map { key, value, .. } => {
            let mut entries: Vec<_> = codec::entries(bytes)
                .unwrap()
                .map(|entry| entry.map(|(k, v)| (scrambled(key, k), scrambled(value, v))).unwrap())
                .collect();
            entries.extend(entries.last().cloned());
            entries.reverse();
            codec::encode_entries(entries.iter().map(|(k, v)| (k.as_slice(), v.as_slice())))
        }
        _ => bytes.to_vec(),
    }
}

proptest! {
    #[test]
    fn whatever_order_a_client_sends_the_bytes_that_are_kept_are_the_same(
        (ty, bytes) in clustering_type().prop_flat_map(|ty| (Just(ty.clone()), value_of(&ty)))
    ) {
        prop_assert!(matches!(canonical(&ty, &bytes).unwrap(), Cow::Borrowed(same) if same == bytes));
        let sent = scrambled(&ty, &bytes);
        validate(&ty, &sent).unwrap();
        prop_assert_eq!(canonical(&ty, &sent).unwrap().into_owned(), bytes);
    }
}
