//! Names of types: parsing, printing, freezing, compatibility.

use crate::arbitrary::clustering_type;
use cql_lite::types::cql_type::{TypeParseError, quote_identifier};
use cql_lite::types::{CqlType, UserType};
use proptest::prelude::*;
use std::sync::Arc;

fn no_user_types(_: &str) -> Option<Arc<UserType>> {
    None
}

fn address() -> Arc<UserType> {
    Arc::new(UserType {
        keyspace: "ks".into(),
        name: "Address".into(),
        field_names: vec!["street".into(), "tags".into()],
        field_types: vec![CqlType::Text, CqlType::set(CqlType::Text, true)],
    })
}

fn parse(text: &str) -> CqlType {
    let definition = address();
    CqlType::parse(text, &move |name| (name == "Address").then(|| definition.clone())).unwrap()
}

#[test]
fn text_of_types_is_that_of_the_schema_tables() {
    for text in [
        "int",
        "text",
        "list<int>",
        "frozen<list<int>>",
        "map<int, text>",
        "frozen<map<int, frozen<set<text>>>>",
        "frozen<tuple<int, text>>",
        "vector<float, 3>",
        "\"Address\"",
        "frozen<\"Address\">",
        "list<frozen<\"Address\">>",
        "'com.example.It''s'",
    ] {
        if text.contains("''") {
            assert_eq!(parse(text), CqlType::Custom("com.example.It's".into()));
            continue;
        }
        assert_eq!(parse(text).to_string(), text);
    }
    assert_eq!(parse(" Map < INT , varchar > ").to_string(), "map<int, text>");
    assert_eq!(parse("tuple<int>").to_string(), "frozen<tuple<int>>");
    assert_eq!(parse("list<list<int>>").to_string(), "list<frozen<list<int>>>");
}

#[test]
fn bad_text_is_refused() {
    for text in [
        "",
        "list<int",
        "list<>",
        "map<int>",
        "int>",
        "int<int>",
        "vector<int, 0>",
        "vector<int>",
        "'x",
        "a b",
    ] {
        assert!(CqlType::parse(text, &no_user_types).is_err(), "{text}");
    }
    let deep = "list<".repeat(5000);
    assert!(matches!(CqlType::parse(&deep, &no_user_types), Err(TypeParseError::Syntax { .. })));
    let unknown = CqlType::parse("ks.thing", &no_user_types).unwrap_err();
    assert_eq!(unknown.to_string(), "Unknown type ks.thing");
}

#[test]
fn frozen_is_one_cell() {
    assert!(parse("list<int>").is_multi_cell());
    assert!(!parse("list<int>").freeze().is_multi_cell());
    assert!(parse("\"Address\"").is_multi_cell());
    assert!(!parse("tuple<int>").is_multi_cell());
    assert_eq!(parse("frozen<list<int>>").unfreeze(), parse("list<int>"));
}

#[test]
fn compatible_types() {
    assert!(parse("text").is_assignable_from(&parse("ascii")));
    assert!(!parse("ascii").is_assignable_from(&parse("text")));
    assert!(parse("blob").is_assignable_from(&parse("map<int, int>")));
    assert!(parse("varint").is_assignable_from(&parse("int")));
    assert!(parse("frozen<list<text>>").is_assignable_from(&parse("list<ascii>")));
    assert!(!parse("bigint").is_assignable_from(&parse("int")));
    assert!(parse("uuid").is_assignable_from(&parse("timeuuid")));
}

#[test]
fn user_types_are_found_and_replaced() {
    let outer = parse("map<int, frozen<\"Address\">>");
    assert!(outer.references_user_type("ks", "Address"));
    assert!(!outer.references_user_type("ks", "address"));
    let mut changed = UserType::clone(&address());
    changed.field_names.push("zip".into());
    changed.field_types.push(CqlType::Int);
    let changed = Arc::new(changed);
    let replaced = outer.with_user_type(&changed);
    assert_ne!(replaced, outer);
    assert!(replaced.is_assignable_from(&outer));
}

#[test]
fn class_names() {
    assert_eq!(CqlType::Int.class_name(), "org.apache.cassandra.db.marshal.Int32Type");
    assert_eq!(
        parse("vector<float, 3>").class_name(),
        "org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)"
    );
    assert_eq!(
        parse("frozen<list<int>>").class_name(),
        "org.apache.cassandra.db.marshal.FrozenType(org.apache.cassandra.db.marshal.ListType(\
         org.apache.cassandra.db.marshal.Int32Type))"
    );
}

#[test]
fn identifiers_are_quoted_where_needed() {
    for (name, text) in [
        ("abc_1", "abc_1"),
        ("Abc", "\"Abc\""),
        ("1a", "\"1a\""),
        ("a\"b", "\"a\"\"b\""),
        ("select", "\"select\""),
    ] {
        assert_eq!(quote_identifier(name), text);
    }
}

proptest! {
    #[test]
    fn printed_types_parse_to_themselves(ty in clustering_type()) {
        // User types in random types differ in their fields but not in their names.
        prop_assume!(!ty.any(&CqlType::is_user_type));
        prop_assert_eq!(CqlType::parse(&ty.to_string(), &no_user_types).unwrap(), ty);
    }
}
