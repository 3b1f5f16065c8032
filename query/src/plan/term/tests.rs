//! Expressions at the places of a statement.

use std::borrow::Cow;

use cql_lite::syntax::{self, ast};
use cql_lite::types::CqlType;

use super::{Bindings, Bound, MarkerSpec, Markers, Receiver, resolve};
use crate::functions::CallContext;
use crate::plan::names::{NameScope, resolve_type};
use crate::plan::row_layout::{RowValues, SlotBuffer};
use crate::plan::selection::{Fetched, MaskedColumns, Selection, SelectionResolver};
use crate::run::evaluate::{RowContext, evaluate};
use crate::schema::catalog::{Catalog, Table};
use crate::schema::test_catalog::catalog_of;

const SCHEMA: [&str; 3] = [
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE k.u (f int, g text)",
    "CREATE TABLE k.t (p int PRIMARY KEY, i int, b bigint, x text, l list<int>, m map<text, int>, u frozen<u>, \
     v vector<float, 2>)",
];

fn with_table<T>(test: impl FnOnce(&Catalog, &Table) -> T) -> T {
    let view = catalog_of(&SCHEMA);
    let keyspace = view.catalog.keyspace("k").unwrap();
    test(&view.catalog, &keyspace.tables["t"])
}

fn scope<'a>(catalog: &'a Catalog, table: &'a Table) -> NameScope<'a> {
    NameScope { catalog, keyspace: Some("k"), table: Some(table) }
}

fn select(text: &str) -> Result<(Selection, Vec<MarkerSpec>), String> {
    let ast::Statement::Select(select) = syntax::parse(&format!("SELECT {text} FROM k.t")).unwrap() else {
        panic!("a SELECT")
    };
    with_table(|catalog, table| {
        let (mut markers, mut fetched) = (Markers::default(), Fetched::default());
        let resolver = SelectionResolver::new(
            scope(catalog, table),
            table,
            &mut markers,
            &mut fetched,
            MaskedColumns::Clear,
        );
        let selection = resolver.resolve(&select.clause).map_err(|error| error.to_string())?;
        Ok((selection, markers.finish().map_err(|error| error.to_string())?))
    })
}

/// The value of a selected expression without columns.
fn selected(text: &str) -> Result<Option<Vec<u8>>, String> {
    let (selection, _) = select(text)?;
    let columns = Vec::new();
    let mut slots = SlotBuffer::default();
    let values = RowValues::from_owned(&columns, &[], &mut slots);
    let call = CallContext::at(0);
    let bindings = Bindings { values: &[], call: &call };
    let row = RowContext { values: &values, aggregates: &[], bindings, now_seconds: 0 };
    let value = evaluate(&selection.selectors[0], &row).map_err(|error| error.to_string())?;
    Ok(value.map(Cow::into_owned))
}

/// The value of an expression in an INSERT into a column of that type.
fn inserted(value_type: &str, text: &str) -> Result<Option<Vec<u8>>, String> {
    let statement = syntax::parse(&format!("INSERT INTO k.t (c) VALUES (({value_type}) {text})")).unwrap();
    let ast::Statement::Insert(ast::Insert { source: ast::InsertSource::Values { values, .. }, .. }) =
        statement
    else {
        panic!("an INSERT")
    };
    let ast::Expression::TypeHint { type_name, operand } = &values[0] else { panic!("a type hint") };
    with_table(|catalog, table| {
        let scope = scope(catalog, table);
        let receiver = Receiver::new("c", resolve_type(type_name, &scope).unwrap());
        let term = resolve(operand, &receiver, &scope, &mut Markers::default())
            .map_err(|error| error.to_string())?;
        let call = CallContext::at(0);
        match term.evaluate(&Bindings { values: &[], call: &call }).map_err(|error| error.to_string())? {
            Bound::Bytes(bytes) => Ok(Some(bytes.into_owned())),
            Bound::Null | Bound::Unset => Ok(None),
        }
    })
}

#[test]
fn an_expression_has_the_same_value_in_every_place() {
    for (value_type, text) in [
        ("int", "1"),
        ("bigint", "(1 + 2 * 3)"),
        ("text", "'it''s'"),
        ("list<bigint>", "[1, 2, 1]"),
        ("set<int>", "{3, 1, 3}"),
        ("set<int>", "{}"),
        ("map<text, int>", "{}"),
        ("map<text, int>", "{'b': 1, 'a': 2, 'b': 3}"),
        ("map<text, list<int>>", "{'a': [1], 'b': []}"),
        ("tuple<int, text>", "(1, 'x')"),
        ("tuple<int, text>", "(1, NULL)"),
        ("u", "{g: 'x'}"),
        ("u", "{f: 1 + 1, g: 'x'}"),
        ("vector<float, 2>", "[1, 2.5]"),
        ("int", "CAST(1.5 AS int)"),
        ("blob", "int_as_blob(1)"),
        ("list<int>", "[abs(-1), (int)2]"),
    ] {
        let expected = inserted(value_type, text);
        assert!(expected.is_ok(), "{value_type} {text}: {expected:?}");
        assert_eq!(selected(&format!("({value_type}) {text}")), expected, "{value_type} {text}");
    }
    assert_eq!(inserted("map<text, int>", "{'a': 1, 'a': 2}"), inserted("map<text, int>", "{'a': 2}"));
}

#[test]
fn selected_expressions_have_a_type() {
    let parsed = |text: &str| CqlType::parse(text, &|_| None).unwrap();
    for (text, value_type) in [
        ("i", "int"),
        ("i + b", "bigint"),
        ("-i", "int"),
        ("1", "int"),
        ("1.5 + 1", "double"),
        ("[i, 1]", "frozen<list<int>>"),
        ("[1, b]", "frozen<list<int>>"),
        ("{x, 'y'}", "frozen<set<text>>"),
        ("{x: i}", "frozen<map<text, int>>"),
        ("(i, x, 1)", "frozen<tuple<int, text, int>>"),
        ("(i)", "int"),
        ("m['a']", "int"),
        ("m['a'..'b']", "map<text, int>"),
        ("u.g", "text"),
        ("writetime(i)", "bigint"),
        ("ttl(l)", "frozen<list<int>>"),
        ("token(p)", "bigint"),
        ("count(*)", "bigint"),
        ("max(i) + 1", "int"),
        ("CAST(i AS text)", "text"),
        ("to_json([i, 1])", "text"),
        ("collection_count([1, 2])", "int"),
        ("similarity_cosine(v, [1, 2])", "float"),
    ] {
        let result = select(text);
        if text == "[1, b]" {
            assert_eq!(result.unwrap_err(), "Cannot assign value b to [selection] of type int");
            continue;
        }
        let (selection, _) = result.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(selection.columns[0].column_type, parsed(value_type), "{text}");
    }
}

#[test]
fn markers_of_a_selection_share_their_name() {
    for (text, value_type) in
        [("(int)?", "int"), ("(i, (text)?)", "text"), ("(list<text>)[?]", "text"), ("int_as_blob(?)", "int")]
    {
        let (_, markers) = select(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(markers.len(), 1);
        assert_eq!(
            (markers[0].name.as_str(), markers[0].value_type.to_string().as_str()),
            ("[selection]", value_type)
        );
    }
    let (_, markers) = select("m[?]").unwrap();
    assert_eq!(markers[0].name, "key(m)");
}

#[test]
fn errors_have_cassandras_texts() {
    let mut wrong = Vec::new();
    for (text, error) in [
        ("?", "Cannot infer type for term ? in selection clause (try using a cast to force a type)"),
        ("[]", "Cannot infer type for term [] in selection clause (try using a cast to force a type)"),
        ("u.h", "u of type frozen<u> has no field h"),
        ("i.f", "Invalid field selection: i of type int is not a user type"),
        ("l[0]", "Element selection is only allowed on sets and maps, but l is a list"),
        ("nothing(i)", "Unknown function 'nothing'"),
        ("max(count(*))", "aggregate functions cannot be used as arguments of aggregate functions"),
        ("max(max(i))", "aggregate functions cannot be used as arguments of aggregate functions"),
        ("(int)x", "Cannot assign value (int)x to (int)x of type int"),
        ("token(x)", "Type error: x cannot be passed as argument 0 of function system.token of type int"),
        ("(u){h: 1}", "Unknown field 'h' in value of user defined type u"),
        ("(list<int>)['a']", "Cannot assign value (list<int>)['a'] to (list<int>)['a'] of type list<int>"),
    ] {
        let found = select(text).map(|_| ()).unwrap_err();
        wrong.extend((found != error).then(|| format!("{text}: {found}")));
    }
    for (value_type, text, error) in [
        ("int", "'a'", "Invalid STRING constant (a) for \"c\" of type int"),
        ("map<text, int>", "{f: 1}", "Invalid user type literal for c of type map<text, int>"),
        ("u", "{'f': 1}", "Invalid map literal for c of type u"),
        ("int", "max(1)", "Aggregation function are not supported in the where clause"),
        ("text", "abs(-1)", "Type error: cannot assign result of function abs (type int) to c (type text)"),
        ("int", "CAST(? AS int)", "Cannot infer type for term ?"),
    ] {
        let found = inserted(value_type, text).unwrap_err();
        wrong.extend((found != error).then(|| format!("{value_type} {text}: {found}")));
    }
    assert_eq!(wrong, [""; 0]);
}

/// Each part of an expression is resolved once: with two attempts at each level, these tests would never end.
#[test]
fn deep_expressions_are_resolved() {
    let sum = format!("(1{})", " + 1".repeat(200));
    assert_eq!(inserted("int", &sum).unwrap().unwrap(), 201_i32.to_be_bytes());
    let calls = format!("{}-1{}", "abs(".repeat(50), ")".repeat(50));
    assert_eq!(inserted("int", &calls).unwrap().unwrap(), 1_i32.to_be_bytes());
    assert_eq!(selected(&format!("(int) {sum}")).unwrap(), inserted("int", &sum).unwrap());
    assert!(select(&format!("{}i{}", "abs(".repeat(50), ")".repeat(50))).is_ok());
}
