//! Terms compared with the values that they stand for, and the terms of rows.

use std::cmp::Ordering;
use std::ops::Bound;

use cql_lite::types::{CqlType, codec, compare, ordered};
use helenus_engine::key::{KeyRef, STATIC_POSITION};
use helenus_engine::secondary_index::{Subject, TERM_BYTES_MAX};
use helenus_engine::{Cell, CellKind, Deletion, Expiry, Liveness, RowBuilder, RowRef};
use uuid::Uuid;

use super::{TermEncoding, TextAnalysis, definitions, encoding_of};
use crate::schema::catalog::Table;
use crate::schema::index::{Index, IndexKind, IndexedPart};
use crate::schema::test_catalog::catalog_of;
use crate::stored_key::composite_key;

fn parsed(name: &str) -> CqlType {
    CqlType::parse(name, &|_| None).unwrap()
}

fn index(part: IndexedPart, options: &[(&str, &str)]) -> Index {
    Index {
        name: "i".to_owned(),
        id: Uuid::from_u128(1),
        kind: IndexKind::StorageAttached,
        column_id: 0,
        part,
        options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    }
}

fn text_encoding(options: &[(&str, &str)]) -> TermEncoding {
    TermEncoding::value(CqlType::Text, TextAnalysis::of(&index(IndexedPart::Value, options), &CqlType::Text))
}

/// Terms of one type compare as its values do, also if they are equal in different bytes.
fn compare_all(type_name: &str, values: &[Vec<u8>]) {
    let value_type = parsed(type_name);
    let encoding = TermEncoding::value(value_type.clone(), None);
    for left in values {
        for right in values {
            let expected = compare::compare(&value_type, left, right);
            let found = encoding.term(left).unwrap().cmp(&encoding.term(right).unwrap());
            assert_eq!(found, expected, "{type_name}: {left:?} and {right:?}");
        }
    }
}

fn bytes_of<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<Vec<u8>> {
    values.into_iter().map(|bytes| bytes.to_vec()).collect()
}

#[test]
fn terms_of_numbers_compare_as_the_numbers_do() {
    compare_all("tinyint", &bytes_of([i8::MIN, -1, 0, 1, i8::MAX].map(i8::to_be_bytes)));
    compare_all("smallint", &bytes_of([i16::MIN, -1, 0, 1, i16::MAX].map(i16::to_be_bytes)));
    compare_all("int", &bytes_of([i32::MIN, -256, -1, 0, 1, 255, i32::MAX].map(i32::to_be_bytes)));
    compare_all("bigint", &bytes_of([i64::MIN, -1, 0, 1, 1 << 40, i64::MAX].map(i64::to_be_bytes)));
    let floats = [
        f32::NEG_INFINITY,
        -1.5,
        -f32::MIN_POSITIVE,
        -0.0,
        0.0,
        1e-40,
        1.5,
        f32::INFINITY,
        f32::NAN,
        -f32::NAN,
    ];
    compare_all("float", &bytes_of(floats.map(f32::to_be_bytes)));
    let doubles =
        [f64::NEG_INFINITY, -1.5, -0.0, 0.0, f64::MIN_POSITIVE, 1.5, f64::INFINITY, f64::NAN, -f64::NAN];
    compare_all("double", &bytes_of(doubles.map(f64::to_be_bytes)));
    let long = |first: u8, length: usize| [vec![first], vec![7; length]].concat();
    let varints = [
        vec![0],
        vec![0, 0],
        vec![0xFF],
        vec![0xFF, 0xFF],
        vec![1],
        vec![0x7F],
        vec![0, 0x80],
        vec![0x80],
        vec![0xFF, 0x7F],
    ];
    compare_all("varint", &[&varints[..], &[long(1, 130), long(0xFE, 130), long(1, 131)]].concat());
    // The scale and the unscaled number: 1, 1.0, 1.00, 0, 0.0, -1, -1.0, 0.1, 10, 1E+2, -1E+2, 1.01.
    let decimal = |scale: i32, unscaled: i8| [&scale.to_be_bytes()[..], &unscaled.to_be_bytes()].concat();
    let decimals = [
        (0, 1),
        (1, 10),
        (2, 100),
        (0, 0),
        (1, 0),
        (0, -1),
        (1, -10),
        (1, 1),
        (0, 10),
        (-2, 1),
        (-2, -1),
        (2, 101),
    ];
    compare_all("decimal", &decimals.map(|(scale, unscaled)| decimal(scale, unscaled)));
}

#[test]
fn terms_of_other_values_compare_as_the_values_do() {
    let texts =
        ["", "a", "a\0", "a\0b", "aa", "b", "ab\u{1F600}", "é", "z"].map(|text| text.as_bytes().to_vec());
    compare_all("text", &texts);
    compare_all("ascii", &texts[..6]);
    compare_all("blob", &[vec![], vec![0], vec![0, 0], vec![0, 0xFF], vec![1], vec![0xFF], vec![0xFF, 0xFF]]);
    compare_all("boolean", &[vec![0], vec![1], vec![2]]);
    compare_all("inet", &[vec![10, 0, 0, 1], vec![9, 255, 0, 1], vec![10; 16], vec![0; 16]]);
    let uuids = [
        "00000000-0000-1000-8000-000000000000",
        "ffffffff-0000-1000-8000-000000000000",
        "00000000-0001-1000-8000-000000000000",
        "00000000-0001-1000-7f00-000000000000",
        "00000000-0000-1001-8080-000000000001",
    ];
    let bytes = |text: &str| Uuid::parse_str(text).unwrap().into_bytes().to_vec();
    compare_all("timeuuid", &uuids.map(bytes));
    let random = ["f47ac10b-58cc-4372-a567-0e02b2c3d479", "00000000-58cc-4372-a567-0e02b2c3d479"];
    compare_all("uuid", &[&uuids.map(bytes)[..], &random.map(bytes)].concat());
    compare_all("timestamp", &bytes_of([i64::MIN, -1, 0, i64::MAX].map(i64::to_be_bytes)));
    compare_all("date", &bytes_of([0_u32, 1 << 31, u32::MAX].map(u32::to_be_bytes)));
    compare_all("time", &bytes_of([0_i64, 1, 86_399_999_999_999].map(i64::to_be_bytes)));
    let list = |items: &[&str]| codec::encode_elements(items.iter().map(|item| item.as_bytes()));
    let lists = [list(&[]), list(&["a"]), list(&["a", "b"]), list(&["a", ""]), list(&["b"])];
    compare_all("frozen<list<text>>", &lists);
    compare_all("frozen<set<text>>", &lists[..3]);
    let map = |entries: &[(&str, &str)]| {
        codec::encode_entries(entries.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())))
    };
    compare_all(
        "frozen<map<text, text>>",
        &[map(&[]), map(&[("a", "b")]), map(&[("a", "b"), ("b", "a")]), map(&[("ab", "")])],
    );
    let tuple = |fields: &[Option<&str>]| codec::encode_fields(fields.iter().map(|f| f.map(str::as_bytes)));
    compare_all(
        "frozen<tuple<text, text>>",
        &[
            tuple(&[Some("a"), None]),
            tuple(&[Some("a")]),
            tuple(&[None, Some("a")]),
            tuple(&[Some("a"), Some("")]),
        ],
    );
}

#[test]
fn terms_that_are_cut_keep_their_order_and_their_ranges_hold_the_values_behind_the_cut() {
    let encoding = text_encoding(&[]);
    let (short, long, longer) = ("a".repeat(1_000), "a".repeat(2_000), "a".repeat(2_000) + "b");
    let term = |text: &str| encoding.term(text.as_bytes()).unwrap();
    assert_eq!(term(&long).len(), TERM_BYTES_MAX);
    assert_eq!(term(&long), term(&longer));
    assert_eq!(term(&short).cmp(&term(&long)), Ordering::Less);
    assert_eq!(encoding.bound(long.as_bytes(), false), Ok(Bound::Included(term(&long))));
    assert_eq!(encoding.bound(short.as_bytes(), false), Ok(Bound::Excluded(term(&short))));
    assert_eq!(encoding.bound(short.as_bytes(), true), Ok(Bound::Included(term(&short))));
}

#[test]
fn texts_that_are_equal_for_the_options_have_one_term() {
    let equal = |options: &[(&str, &str)], left: &str, right: &str| {
        let encoding = text_encoding(options);
        encoding.term(left.as_bytes()) == encoding.term(right.as_bytes())
    };
    assert!(!equal(&[], "Abc", "abc"));
    assert!(equal(&[("case_sensitive", "false")], "ABC Ä", "abc ä"));
    assert!(!equal(&[("case_sensitive", "true")], "Abc", "abc"));
    let (composed, decomposed) = ("\u{e9}", "e\u{301}");
    assert!(!equal(&[], composed, decomposed));
    assert!(equal(&[("normalize", "true")], composed, decomposed));
    assert!(!equal(&[("normalize", "true")], composed, "e"));
    assert!(equal(&[("ascii", "true")], "Éœß Ｚürich", "Eoess Zurich"));
    assert!(!equal(&[("ascii", "true")], "語", ""));
    assert!(equal(&[("ascii", "true"), ("case_sensitive", "FALSE")], "ÇA", "ca"));
    let unreadable = [0xC3, 0x28];
    let encoding = text_encoding(&[("case_sensitive", "false")]);
    assert_eq!(encoding.term(&unreadable), text_encoding(&[]).term(&unreadable));
}

const SCHEMA: [&str; 2] = [
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE k.t (p int, q text, x int, y text, v text, l list<text>, s set<text>, m map<text, int>, \
     f frozen<list<int>>, t text static, PRIMARY KEY ((p, q), x, y)) WITH CLUSTERING ORDER BY (x DESC, y ASC)",
];

/// The table with one index.
fn table(column: &str, part: IndexedPart, options: &[(&str, &str)]) -> Table {
    let view = catalog_of(&SCHEMA);
    let mut table = Table::clone(view.catalog.table("k", "t").unwrap());
    let column_id = table.column(column).unwrap().id;
    table.indexes = vec![Index { column_id, ..index(part, options) }.into()];
    table
}

const FAR: Expiry = Expiry { ttl: 10, expires_at: 20 };

/// The terms of a row whose cells are of one column.
fn terms(
    table: &Table,
    column: &str,
    position: &[u8],
    cells: &[(&[u8], CellKind, &[u8])],
) -> Vec<(Subject, Vec<u8>)> {
    let column = table.column(column).unwrap().id;
    let mut builder = RowBuilder::new();
    for (path, kind, value) in cells {
        builder.cell(Cell { column, path, timestamp: 1, kind: *kind, value });
    }
    terms_of(table, position, builder)
}

fn terms_of(table: &Table, position: &[u8], mut builder: RowBuilder) -> Vec<(Subject, Vec<u8>)> {
    let partition_key = composite_key(&[&7_i32.to_be_bytes()[..], b"q"]).unwrap();
    let bytes = builder.to_bytes();
    let mut found = Vec::new();
    let key = KeyRef { token: 0, partition_key: &partition_key, position };
    for definition in definitions(table) {
        let row = RowRef::new(&bytes, 0);
        definition.terms.visit(&key, row, &mut |subject, term| found.push((subject, term.to_vec())));
    }
    found
}

fn text_term(text: &str) -> Vec<u8> {
    text_encoding(&[]).term(text.as_bytes()).unwrap()
}

fn position(x: i32, y: &str) -> Vec<u8> {
    let mut position = vec![helenus_engine::key::REGULAR_TAG];
    ordered::encode(&CqlType::Int, &x.to_be_bytes(), true, &mut position).unwrap();
    ordered::encode(&CqlType::Text, y.as_bytes(), false, &mut position).unwrap();
    position
}

const TOMBSTONE: CellKind = CellKind::Tombstone { local_deletion_time: 1 };

#[test]
fn a_cell_has_its_value_as_a_term_and_a_deleted_one_has_none() {
    let at = position(1, "y");
    let t = table("v", IndexedPart::Value, &[]);
    assert_eq!(terms(&t, "v", &at, &[(b"", CellKind::Live, b"a")]), [(Subject::Row, text_term("a"))]);
    assert_eq!(
        terms(&t, "v", &at, &[(b"", CellKind::Expiring(FAR), b"a")]),
        [(Subject::Row, text_term("a"))]
    );
    assert_eq!(terms(&t, "v", &at, &[(b"", TOMBSTONE, b"")]), []);
    assert_eq!(terms(&t, "t", STATIC_POSITION, &[(b"", CellKind::Live, b"a")]), []);
    let t = table("t", IndexedPart::Value, &[]);
    let of_static = terms(&t, "t", STATIC_POSITION, &[(b"", CellKind::Live, b"a")]);
    assert_eq!(of_static, [(Subject::Partition, text_term("a"))]);
}

#[test]
fn collections_have_a_term_for_each_element() {
    let at = position(1, "y");
    let path = |text: &str| text_term(text);
    let one = 1_i32.to_be_bytes();
    let t = table("l", IndexedPart::Values, &[]);
    let of_list = terms(&t, "l", &at, &[(b"1", CellKind::Live, b"a"), (b"2", TOMBSTONE, b"")]);
    assert_eq!(of_list, [(Subject::Row, text_term("a"))]);
    let t = table("s", IndexedPart::Values, &[]);
    assert_eq!(terms(&t, "s", &at, &[(&path("e"), CellKind::Live, b"")]), [(Subject::Row, text_term("e"))]);
    let insensitive = table("s", IndexedPart::Values, &[("case_sensitive", "false")]);
    let of_set = terms(&insensitive, "s", &at, &[(&path("E"), CellKind::Live, b"")]);
    assert_eq!(of_set, [(Subject::Row, text_term("e"))]);
    let cells: [(&[u8], CellKind, &[u8]); 1] = [(&path("k"), CellKind::Live, &one)];
    let t = table("m", IndexedPart::Keys, &[]);
    assert_eq!(terms(&t, "m", &at, &cells), [(Subject::Row, text_term("k"))]);
    let int_term = TermEncoding::value(CqlType::Int, None).term(&one).unwrap();
    let t = table("m", IndexedPart::Values, &[]);
    assert_eq!(terms(&t, "m", &at, &cells), [(Subject::Row, int_term.clone())]);
    let t = table("m", IndexedPart::Entries, &[]);
    let entry = [text_term("k"), int_term].concat();
    assert_eq!(terms(&t, "m", &at, &cells), [(Subject::Row, entry.clone())]);
    let encoding = encoding_of(t.column("m").unwrap(), &t.indexes[0]).unwrap();
    assert_eq!(encoding.entry_term(b"k", &one), Ok(entry));
    let t = table("f", IndexedPart::Full, &[]);
    let list = codec::encode_elements([&one[..]].into_iter());
    let full = TermEncoding::value(parsed("frozen<list<int>>"), None).term(&list).unwrap();
    assert_eq!(terms(&t, "f", &at, &[(b"", CellKind::Live, &list)]), [(Subject::Row, full)]);
}

#[test]
fn keys_have_terms_in_rows_that_are_more_than_deletions() {
    let (at, live) = (position(3, "why"), Liveness { timestamp: 1, expiry: None });
    let mut row = RowBuilder::new();
    row.set_liveness(live);
    let mut deleted = RowBuilder::new();
    deleted.set_deletion(Deletion { timestamp: 1, local_deletion_time: 1 });
    let of_key = |column: &str, position: &[u8], row: &RowBuilder| {
        terms_of(&table(column, IndexedPart::Value, &[]), position, row.clone())
    };
    let int = |number: i32| TermEncoding::value(CqlType::Int, None).term(&number.to_be_bytes()).unwrap();
    assert_eq!(of_key("p", &at, &row), [(Subject::Partition, int(7))]);
    assert_eq!(of_key("q", STATIC_POSITION, &row), [(Subject::Partition, text_term("q"))]);
    assert_eq!(of_key("x", &at, &row), [(Subject::Row, int(3))]);
    assert_eq!(of_key("y", &at, &row), [(Subject::Row, text_term("why"))]);
    for column in ["p", "q", "x", "y"] {
        assert_eq!(of_key(column, &at, &deleted), []);
    }
    assert_eq!(of_key("x", STATIC_POSITION, &row), []);
    assert_eq!(of_key("y", &at[..3], &row), [], "a position that cannot be read");
}

#[test]
fn an_index_of_a_part_that_its_column_does_not_have_finds_nothing() {
    for (column, part) in [
        ("v", IndexedPart::Keys),
        ("l", IndexedPart::Full),
        ("s", IndexedPart::Entries),
        ("f", IndexedPart::Values),
    ] {
        assert!(definitions(&table(column, part, &[])).is_empty(), "{column} {part:?}");
    }
    let mut gone = table("v", IndexedPart::Value, &[]);
    gone.columns.retain(|column| column.name != "v");
    assert!(definitions(&gone).is_empty());
}
