//! `toJson` and `fromJson`.

use crate::arbitrary::{clustering_type, value_of};
use cql_lite::types::compare::compare;
use cql_lite::types::json::{from_json, json_name, name_of_json_key, to_json};
use cql_lite::types::{CqlType, UserType, literal};
use proptest::prelude::*;
use std::sync::Arc;

fn round(ty: &CqlType, json: &str) -> String {
    let wire = from_json(ty, json).unwrap();
    to_json(ty, wire.as_deref()).unwrap()
}

fn error(ty: &CqlType, json: &str) -> String {
    from_json(ty, json).unwrap_err().to_string()
}

fn user_type() -> CqlType {
    let definition = UserType {
        keyspace: "ks".into(),
        name: "ut".into(),
        field_names: vec!["a".into(), "B".into()],
        field_types: vec![CqlType::Int, CqlType::set(CqlType::Text, true)],
    };
    CqlType::UserType { definition: Arc::new(definition), frozen: true }
}

#[test]
fn native_types() {
    for (ty, json, expected) in [
        (CqlType::Int, "123", "123"),
        (CqlType::Int, "\"123\"", "123"),
        (CqlType::Bigint, "-123123123123", "-123123123123"),
        (CqlType::Boolean, "\"false\"", "false"),
        (CqlType::Blob, "\"0x00000001\"", "\"0x00000001\""),
        (CqlType::Date, "\"1987-03-23\"", "\"1987-03-23\""),
        (CqlType::Decimal, "123123.123123", "123123.123123"),
        (CqlType::Decimal, "\"-1.23E-12\"", "-1.23E-12"),
        (CqlType::Double, "123123", "123123.0"),
        (CqlType::Inet, "\"::1\"", "\"0:0:0:0:0:0:0:1\""),
        (CqlType::Text, "\"a\\\"b\\u0000\"", "\"a\\\"b\\u0000\""),
        (CqlType::Time, "\"07:35:07.000111222\"", "\"07:35:07.000111222\""),
        (CqlType::Timestamp, "\"2014-01-01\"", "\"2014-01-01 00:00:00.000Z\""),
        (CqlType::Timestamp, "123", "\"1970-01-01 00:00:00.123Z\""),
        (CqlType::Duration, "\"P2W\"", "\"14d\""),
        (CqlType::Varint, "123123123123123123123", "123123123123123123123"),
        (
            CqlType::Uuid,
            "\"6BDDC89A-5644-11E4-97FC-56847AFE9799\"",
            "\"6bddc89a-5644-11e4-97fc-56847afe9799\"",
        ),
        (CqlType::Int, "null", "null"),
    ] {
        assert_eq!(round(&ty, json), expected, "{ty}");
    }
    assert_eq!(to_json(&CqlType::Double, Some(&f64::NAN.to_be_bytes())).unwrap(), "null");
}

#[test]
fn nested_types() {
    let int_map = CqlType::map(CqlType::Int, CqlType::Boolean, false);
    assert_eq!(round(&int_map, "{\"1\": false, \"0\": true}"), "{\"0\": true, \"1\": false}");
    let set_map = CqlType::map(CqlType::set(CqlType::Text, true), CqlType::Int, false);
    assert_eq!(round(&set_map, "{\"[\\\"b\\\", \\\"a\\\"]\": 1}"), "{\"[\\\"a\\\", \\\"b\\\"]\": 1}");
    assert_eq!(round(&CqlType::set(CqlType::Int, false), "[3, 1, 2, 3]"), "[1, 2, 3]");
    assert_eq!(round(&CqlType::tuple([CqlType::Int, CqlType::Text]), "[1, null]"), "[1, null]");
    assert_eq!(round(&CqlType::vector(CqlType::Float, 2), "[1, 2.5]"), "[1.0, 2.5]");
    let json = "{\"a\": 1, \"\\\"B\\\"\": [\"x\"]}";
    assert_eq!(round(&user_type(), json), json);
    assert_eq!(round(&user_type(), "{\"A\": 1}"), "{\"a\": 1, \"\\\"B\\\"\": null}");
}

#[test]
fn errors_are_cassandras() {
    assert_eq!(error(&CqlType::Int, "true"), "Expected an int value, but got a Boolean: true");
    assert_eq!(error(&CqlType::Int, "123.5"), "Expected an int value, but got a Double: 123.5");
    assert_eq!(error(&CqlType::Int, "\"abc\""), "Unable to make int from 'abc'");
    assert_eq!(error(&CqlType::Text, "1"), "Expected a UTF-8 string, but got a Integer: 1");
    assert_eq!(error(&CqlType::Varint, "\"\""), "Value '' is not a valid representation of a varint value");
    assert_eq!(error(&CqlType::Blob, "\"xyzz\""), "String representation of blob is missing 0x prefix: xyzz");
    assert_eq!(error(&CqlType::list(CqlType::Int, false), "[null]"), "Invalid null element in list");
    assert_eq!(
        error(&CqlType::map(CqlType::Text, CqlType::Int, false), "{\"a\": null}"),
        "Invalid null value in map"
    );
    assert_eq!(error(&user_type(), "{\"xxx\": 1}"), "Unknown field 'xxx' in value of user defined type ut");
    assert_eq!(
        error(&CqlType::tuple([CqlType::Int]), "[1, 2]"),
        "Tuple contains extra items (expected 1): [1,2]"
    );
    assert!(error(&CqlType::Int, "{").starts_with("Could not decode JSON string '{': "));
    assert!(from_json(&CqlType::list(CqlType::Int, false), &"[".repeat(100_000)).is_err());
}

#[test]
fn names_in_inner_quotes_are_case_sensitive() {
    assert_eq!(json_name("Abc"), "\"Abc\"");
    assert_eq!(name_of_json_key("\"Abc\""), "Abc");
    assert_eq!(name_of_json_key("ABC"), "abc");
}

proptest! {
    #[test]
    fn json_of_a_value_reads_back(
        (ty, wire) in clustering_type().prop_flat_map(|ty| (Just(ty.clone()), value_of(&ty)))
    ) {
        // JSON has no infinities, cannot tell an IPv4 address from its IPv6 form, and its dates end with the year 9999.
        prop_assume!(!ty.any(&|inner| matches!(
            inner,
            CqlType::Float | CqlType::Double | CqlType::Inet | CqlType::Timestamp | CqlType::Blob
        )));
        let json = to_json(&ty, Some(&wire)).unwrap();
        let back = from_json(&ty, &json).unwrap().unwrap();
        prop_assert!(compare(&ty, &back, &wire).is_eq(), "{} {} {}", ty, json, literal::format(&ty, &back));
    }
}
