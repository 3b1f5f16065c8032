//! Clustering components: `memcmp` orders as the values do, components are prefix-free, decoding inverts encoding.

use crate::arbitrary::{clustering_type, value_of};
use cql_lite::types::compare::compare;
use cql_lite::types::ordered::{decode, encode};
use cql_lite::types::validate::validate;
use cql_lite::types::{CqlType, Value, literal};
use proptest::prelude::*;
use std::cmp::Ordering;

fn component(ty: &CqlType, wire: &[u8], descending: bool) -> Vec<u8> {
    let mut out = Vec::new();
    encode(ty, wire, descending, &mut out).unwrap();
    out
}

fn decoded(ty: &CqlType, component: &[u8], descending: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = component;
    decode(ty, &mut rest, descending, &mut out).unwrap();
    assert!(rest.is_empty());
    out
}

fn check_pair(ty: &CqlType, left: &[u8], right: &[u8]) {
    assert_eq!(validate(ty, left), Ok(()), "{ty}");
    for descending in [false, true] {
        let (a, b) = (component(ty, left, descending), component(ty, right, descending));
        let expected = compare(ty, left, right);
        let expected = if descending { expected.reverse() } else { expected };
        assert_eq!(a.cmp(&b), expected, "{ty} {left:?} {right:?} {descending}");
        assert!(a == b || !b.starts_with(&a), "{ty}: a component is the beginning of another");
        for bytes in [&a, &b] {
            assert!(!matches!(bytes.first(), None | Some(0x00 | 0xFF)));
        }
        let back = decoded(ty, &a, descending);
        assert_eq!(compare(ty, &back, left), Ordering::Equal, "{ty} {left:?} {back:?}");
        assert_eq!(validate(ty, &back), Ok(()));
        assert_eq!(component(ty, &back, descending), a);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn order_of_components_is_order_of_values(
        (ty, left, right) in clustering_type().prop_flat_map(|ty| {
            (Just(ty.clone()), value_of(&ty), value_of(&ty))
        })
    ) {
        check_pair(&ty, &left, &right);
        check_pair(&ty, &right, &left);
        check_pair(&ty, &left, &left);
    }

    #[test]
    fn any_bytes_decode_without_panic(
        ty in clustering_type(), bytes in proptest::collection::vec(any::<u8>(), 0..24), marker in 0x3E..0x52u8,
    ) {
        let mut input = vec![marker];
        input.extend_from_slice(&bytes);
        let _ = decode(&ty, &mut input.as_slice(), false, &mut Vec::new());
        let _ = decode(&ty, &mut bytes.as_slice(), true, &mut Vec::new());
        let _ = encode(&ty, &bytes, false, &mut Vec::new());
        let _ = compare(&ty, &bytes, &input);
    }
}

#[test]
fn decoding_inverts_encoding() {
    let cases = [
        (CqlType::Int, vec![0x80, 0, 0, 1]),
        (CqlType::Text, b"a\0b".to_vec()),
        (CqlType::Text, Vec::new()),
        (CqlType::Decimal, vec![0, 0, 0, 2, 0x30, 0x39]),
        (CqlType::Decimal, vec![0, 0, 0, 0, 100]),
        (CqlType::Varint, vec![0, 0x80]),
        (
            CqlType::Timeuuid,
            uuid::Uuid::parse_str("6bddc89a-5644-11e4-97fc-56847afe9799").unwrap().into_bytes().to_vec(),
        ),
        (CqlType::Double, (-1.5f64).to_be_bytes().to_vec()),
    ];
    for (ty, wire) in cases {
        for descending in [false, true] {
            assert_eq!(decoded(&ty, &component(&ty, &wire, descending), descending), wire, "{ty}");
        }
    }
}

#[test]
fn golden_components() {
    let hex = |ty: CqlType, wire: &[u8], descending| {
        literal::format_hex(&component(&ty, wire, descending)).split_off(2)
    };
    assert_eq!(hex(CqlType::Int, &5i32.to_be_bytes(), false), "4180000005");
    assert_eq!(hex(CqlType::Int, &5i32.to_be_bytes(), true), "be7ffffffa");
    assert_eq!(hex(CqlType::Int, &[], false), "40");
    assert_eq!(hex(CqlType::Bigint, &(-1i64).to_be_bytes(), false), "417fffffffffffffff");
    assert_eq!(hex(CqlType::Text, b"a\0b", false), "416100ff620000");
    assert_eq!(hex(CqlType::Varint, &[0x01, 0x00], false), "41820100");
    assert_eq!(hex(CqlType::Varint, &[0xFF], false), "417eff");
    assert_eq!(hex(CqlType::Decimal, &[0, 0, 0, 1, 15], false), "4102800000000000000110".to_owned() + "00");
    let tuple = CqlType::tuple([CqlType::Int, CqlType::Text]);
    let wire = Value::Tuple(vec![None, Some(Value::Text("x".into()))]).encode(&tuple);
    assert_eq!(hex(tuple, &wire, false), "413f417800003e");
    let list = CqlType::list(CqlType::Tinyint, true);
    assert_eq!(hex(list, &[0, 0, 0, 1, 0, 0, 0, 1, 7], false), "4141873e");
}

#[test]
fn decimals_that_are_equal_have_one_component() {
    let one = component(&CqlType::Decimal, &[0, 0, 0, 0, 1], false);
    assert_eq!(one, component(&CqlType::Decimal, &[0, 0, 0, 1, 10], false));
    assert_eq!(one, component(&CqlType::Decimal, &[0, 0, 0, 2, 100], false));
}

#[test]
fn invalid_values_have_no_component() {
    assert!(encode(&CqlType::Int, &[1, 2], false, &mut Vec::new()).is_err());
    assert!(encode(&CqlType::Decimal, &[1, 2], false, &mut Vec::new()).is_err());
    assert!(encode(&CqlType::list(CqlType::Int, true), &[0, 0, 0, 9], false, &mut Vec::new()).is_err());
}
