//! Which statements use which indexes with which terms, and which are refused.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use cql_lite::syntax;
use cql_lite::types::{CqlType, ordered};
use helenus_engine::key::REGULAR_TAG;
use helenus_engine::secondary_index::{IndexSearch, TermRange};
use helenus_engine::{Cell, CellKind, Liveness, RowBuilder, RowRef};
use uuid::Uuid;

use crate::functions::CallContext;
use crate::plan::select::SelectPlan;
use crate::plan::term::{BindValue, Bindings};
use crate::plan::{Plan, plan};
use crate::run::row_filters::RowFilters;
use crate::schema::catalog::{Catalog, Table};
use crate::schema::index::IndexKind::{Legacy, Sasi, StorageAttached};
use crate::schema::index::IndexedPart::{Entries, Full, Keys, Value, Values};
use crate::schema::index::{Index, IndexKind, IndexedPart};
use crate::schema::index_terms::{encoding_of, engine_id};
use crate::schema::test_catalog::catalog_of;
use crate::stored_key::SourceRow;

const SCHEMA: [&str; 2] = [
    "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE k.t (p int, q int, x int, y int, z int, i int, j int, w text, l list<int>, m map<text, int>, \
     f frozen<list<int>>, e vector<float, 2>, s int static, PRIMARY KEY ((p, q), x, y, z))",
];

type Declared<'a> = (&'a str, IndexKind, IndexedPart, &'a [(&'a str, &'a str)]);

const NO_OPTIONS: &[(&str, &str)] = &[];

fn attached<'a>(columns: &[&'a str]) -> Vec<Declared<'a>> {
    columns.iter().map(|column| (*column, StorageAttached, Value, NO_OPTIONS)).collect()
}

fn legacy<'a>(columns: &[&'a str]) -> Vec<Declared<'a>> {
    columns.iter().map(|column| (*column, Legacy, Value, NO_OPTIONS)).collect()
}

/// The catalog with these indexes. The id of an index is its place in the list, from 1.
fn catalog(indexes: &[Declared<'_>]) -> Catalog {
    let mut catalog = Catalog::clone(&catalog_of(&SCHEMA).catalog);
    let keyspace = Arc::make_mut(catalog.keyspaces.get_mut("k").unwrap());
    let mut table = Table::clone(&keyspace.tables["t"]);
    for (id, (column, kind, part, options)) in (1..).zip(indexes) {
        table.indexes.push(Arc::new(Index {
            name: format!("i{id}"),
            id: Uuid::from_u128(id),
            kind: *kind,
            column_id: table.column(column).unwrap().id,
            part: *part,
            options: options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
        }));
    }
    keyspace.tables.insert("t".to_owned(), Arc::new(table));
    catalog
}

fn select(indexes: &[Declared<'_>], rest: &str) -> Result<SelectPlan, String> {
    let statement = syntax::parse(&format!("SELECT * FROM k.t {rest}")).unwrap();
    match plan(statement, &catalog(indexes), None).map_err(|error| error.to_string())?.plan {
        Plan::Select(plan) => Ok(plan),
        _ => Err("no SELECT".to_owned()),
    }
}

fn bind(plan: &SelectPlan, values: &[BindValue<'_>]) -> Result<Option<IndexSearch>, String> {
    let call = CallContext::at(0);
    let index = plan.index.as_ref().unwrap();
    let search =
        index.bind(&plan.table, &Bindings { values, call: &call }).map_err(|error| error.to_string())?;
    Ok(search.map(|search| search.by_all()))
}

/// A search in words. Terms of numbers are shown as numbers.
fn shown(table: &Table, search: &IndexSearch) -> String {
    use std::ops::Bound;
    let term = |term: &Vec<u8>| match &term[..] {
        [0x41, number @ ..] if number.len() == 4 => {
            (i32::from_be_bytes(number.try_into().unwrap()) ^ i32::MIN).to_string()
        }
        other => String::from_utf8_lossy(
            &other.iter().copied().filter(|byte| (0x20..0x7F).contains(byte)).collect::<Vec<_>>(),
        )
        .into_owned(),
    };
    let restrictions = search.restrictions.iter().map(|restriction| {
        let terms = match &restriction.terms {
            TermRange::OneOf(terms) => format!("= {}", terms.iter().map(term).collect::<Vec<_>>().join("|")),
            TermRange::Between { lower, upper } => {
                let lower = match lower {
                    Bound::Included(bytes) => format!("[{}", term(bytes)),
                    Bound::Excluded(bytes) => format!("({}", term(bytes)),
                    Bound::Unbounded => "(".to_owned(),
                };
                let upper = match upper {
                    Bound::Included(bytes) => format!("{}]", term(bytes)),
                    Bound::Excluded(bytes) => format!("{})", term(bytes)),
                    Bound::Unbounded => ")".to_owned(),
                };
                format!("in {lower}, {upper}")
            }
        };
        let has_id = |index: &&Arc<Index>| {
            let column = table.indexed_column(index);
            let encoding = encoding_of(column, index).unwrap();
            engine_id(table, column, index, &encoding) == restriction.index
        };
        format!("{} {terms}", table.indexes.iter().find(has_id).unwrap().id.as_u128())
    });
    restrictions.collect::<Vec<_>>().join(" and ")
}

/// What the statement does: its search, `no index`, or the start of the error.
fn outcome(indexes: &[Declared<'_>], rest: &str) -> String {
    let plan = match select(indexes, rest) {
        Ok(plan) => plan,
        Err(error) => return error,
    };
    if plan.index.is_none() {
        return "no index".to_owned();
    }
    match bind(&plan, &[]) {
        Ok(Some(search)) => shown(&plan.table, &search),
        Ok(None) => "nothing".to_owned(),
        Err(error) => error,
    }
}

const FILTERING: &str = "Cannot execute this query as it might involve data filtering";

fn check(indexes: &[Declared<'_>], cases: &[(&str, &str)]) {
    for (rest, expected) in cases {
        let found = outcome(indexes, rest);
        let agrees = if expected.len() > 40 { found.starts_with(expected) } else { found == *expected };
        assert!(agrees, "{rest}\n  expected: {expected}\n  got:      {found}");
    }
}

#[test]
fn storage_attached_indexes_decide_together() {
    check(
        &attached(&["i", "j", "w", "s"]),
        &[
            ("WHERE i = 1", "1 = 1"),
            ("WHERE i = 1 AND j = 2 AND w = 'text'", "1 = 1 and 2 = 2 and 3 = Atext"),
            ("WHERE i > 1", "1 in (1, )"),
            ("WHERE i > 1 AND i <= 5 AND j = 2", "1 in (1, 5] and 2 = 2"),
            ("WHERE i BETWEEN 1 AND 3", "1 in [1, 3]"),
            ("WHERE i > 3 AND i < 3", "nothing"),
            ("WHERE i >= 3 AND i <= 3", "1 in [3, 3]"),
            ("WHERE i > 3 AND i < 1", "nothing"),
            ("WHERE s = 4", "4 = 4"),
            ("WHERE p = 1 AND q = 2 AND i = 3", "1 = 3"),
            ("WHERE p = 1 AND q = 2 AND x > 4 AND i = 3", "1 = 3"),
            ("WHERE token(p, q) > 4 AND i = 3", "1 = 3"),
            ("WHERE i = 1 AND y = 2", FILTERING),
            ("WHERE i = 1 AND y = 2 ALLOW FILTERING", "1 = 1"),
            ("WHERE w > 'a'", FILTERING),
            ("WHERE w > 'a' ALLOW FILTERING", "no index"),
            ("WHERE y = 2 ALLOW FILTERING", "no index"),
            ("WHERE i = NULL", "Unsupported null value for column i"),
        ],
    );
}

#[test]
fn in_needs_filtering_but_is_searched_by_index() {
    check(
        &attached(&["i"]),
        &[
            ("WHERE i IN (2, 1, 2)", FILTERING),
            ("WHERE i IN (2, 1, 2) ALLOW FILTERING", "1 = 1|2"),
            ("WHERE i IN (1)", "1 = 1"),
            ("WHERE i IN () ALLOW FILTERING", "nothing"),
            ("WHERE p IN (1, 2) AND q = 1 AND i IN (1, 2) ALLOW FILTERING", "no index"),
        ],
    );
    let plan = select(&attached(&["i"]), "WHERE i IN ? ALLOW FILTERING").unwrap();
    assert_eq!(bind(&plan, &[BindValue::Bytes(&0_i32.to_be_bytes())]), Ok(None));
    assert_eq!(bind(&plan, &[BindValue::Null]), Err("Invalid null value for column i".to_owned()));
}

#[test]
fn a_legacy_index_decides_one_equality() {
    check(
        &legacy(&["i", "j"]),
        &[
            ("WHERE i = 1", "1 = 1"),
            ("WHERE i = 1 AND j = 2", FILTERING),
            ("WHERE i = 1 AND j = 2 ALLOW FILTERING", "1 = 1 and 2 = 2"),
            ("WHERE i = 1 AND w = 'a'", FILTERING),
            ("WHERE i = 1 AND w = 'a' ALLOW FILTERING", "1 = 1"),
            ("WHERE i > 1", FILTERING),
            ("WHERE p = 1 AND q = 2 AND i = 1", "1 = 1"),
        ],
    );
    let mixed = [("i", Legacy, Value, NO_OPTIONS), ("j", StorageAttached, Value, NO_OPTIONS)];
    check(&mixed, &[("WHERE i = 1 AND j = 2", FILTERING), ("WHERE j >= 2", "2 in [2, )")]);
}

#[test]
fn a_sasi_index_decides_equality_and_ranges_of_numbers() {
    let indexes = [
        ("i", Sasi, Value, NO_OPTIONS),
        ("j", Sasi, Value, NO_OPTIONS),
        ("w", Sasi, Value, &[("mode", "CONTAINS")]),
    ];
    check(
        &indexes,
        &[
            ("WHERE i > 1 AND i < 9", "1 in (1, 9)"),
            ("WHERE i > 1 AND j = 2", FILTERING),
            ("WHERE w = 'a'", FILTERING),
        ],
    );
    let for_parts = [("j", Sasi, Value, &[("mode", "CONTAINS")][..])];
    check(&for_parts, &[("WHERE j > 1", FILTERING), ("WHERE j > 1 ALLOW FILTERING", "no index")]);
}

/// An index for LIKE, by its column and mode.
fn for_like<'a>(column: &'a str, mode: &'a [(&'a str, &'a str)]) -> Declared<'a> {
    (column, Sasi, Value, mode)
}

const PREFIX: &[(&str, &str)] = &[("mode", "PREFIX")];
const CONTAINS: &[(&str, &str)] = &[("mode", "Contains")];

#[test]
fn the_mode_of_an_index_decides_which_patterns_it_finds() {
    for mode in [NO_OPTIONS, PREFIX] {
        check(
            &[for_like("w", mode)],
            &[
                ("WHERE w LIKE 'abc%'", "1 in [Aabc, Aabd)"),
                ("WHERE w LIKE 'a%c%'", "1 in [Aa%c, Aa%d)"),
                ("WHERE w LIKE 'abc'", "1 = Aabc"),
                ("WHERE w = 'abc'", "1 = Aabc"),
                ("WHERE w LIKE '%abc'", "w LIKE '%<term>' abc is only supported on properly indexed columns"),
                ("WHERE w LIKE '%a%'", "w LIKE '%<term>%' a is only supported on properly indexed columns"),
            ],
        );
    }
    check(
        &[for_like("w", CONTAINS)],
        &[
            ("WHERE w LIKE 'abc%'", "1 in [Aabc, Aabd)"),
            ("WHERE w LIKE 'abc'", "1 = Aabc"),
            ("WHERE w LIKE '%abc'", "1 in (, )"),
            ("WHERE w LIKE '%abc%'", "1 in (, )"),
            ("WHERE w LIKE '%'", "LIKE value can't be empty."),
            ("WHERE w LIKE '%%'", "LIKE value can't be empty."),
            ("WHERE w LIKE ''", "LIKE value can't be empty."),
            ("WHERE w LIKE null", "Unsupported null value for column w"),
            ("WHERE w = 'abc'", FILTERING),
        ],
    );
    let both = [for_like("w", PREFIX), for_like("w", CONTAINS)];
    check(&both, &[("WHERE w LIKE '%abc'", "2 in (, )"), ("WHERE w = 'abc'", "1 = Aabc")]);
}

#[test]
fn like_needs_an_index_for_it() {
    let refusal = |relation: &str| {
        format!("LIKE restriction is only supported on properly indexed columns. {relation} is not valid.")
    };
    let like = refusal("w LIKE 'a%'");
    for indexes in [vec![], attached(&["w"]), legacy(&["w"]), vec![for_like("i", NO_OPTIONS)]] {
        check(&indexes, &[("WHERE w LIKE 'a%'", &like), ("WHERE w LIKE 'a%' ALLOW FILTERING", &like)]);
    }
    let numbers = [for_like("i", PREFIX)];
    check(
        &numbers,
        &[
            ("WHERE i LIKE ?", &refusal("i LIKE ?")),
            (
                "WHERE l LIKE 'a'",
                "Collection column 'l' (list<int>) cannot be restricted by a 'LIKE' relation",
            ),
        ],
    );
    let catalog = catalog(&[for_like("w", PREFIX)]);
    for statement in ["UPDATE k.t SET j = 1", "DELETE FROM k.t"] {
        let parsed = syntax::parse(&format!("{statement} WHERE w LIKE 'a%'")).unwrap();
        let error = plan(parsed, &catalog, None).unwrap_err();
        assert_eq!(error.to_string(), like, "{statement}");
    }
}

#[test]
fn like_goes_with_other_restrictions_as_an_index_of_its_own() {
    check(
        &[for_like("w", PREFIX), for_like("i", NO_OPTIONS)],
        &[
            ("WHERE w LIKE 'a%' AND i = 1", FILTERING),
            ("WHERE w LIKE 'a%' AND i = 1 ALLOW FILTERING", "1 in [Aa, Ab) and 2 = 1"),
            ("WHERE w LIKE 'a%' AND j = 1", FILTERING),
            ("WHERE w LIKE 'a%' AND j = 1 ALLOW FILTERING", "1 in [Aa, Ab)"),
            ("WHERE p = 1 AND q = 2 AND w LIKE 'a%'", "1 in [Aa, Ab)"),
            ("WHERE p = 1 AND q = 2 AND x > 3 AND w LIKE 'a%'", "1 in [Aa, Ab)"),
            (
                "WHERE w LIKE 'a%' AND w = 'a'",
                "w cannot be restricted by more than one relation if it includes a LIKE",
            ),
            (
                "WHERE w = 'a' AND w LIKE 'a%'",
                "w cannot be restricted by more than one relation if it includes an Equal",
            ),
            (
                "WHERE w > 'a' AND w LIKE 'a%'",
                "Column \"w\" cannot be restricted by both an equality and an inequality relation",
            ),
        ],
    );
}

#[test]
fn the_terms_of_a_prefix_are_cut_as_those_of_rows() {
    let plan = select(&[for_like("w", CONTAINS)], "WHERE w LIKE ?").unwrap();
    let bounds = |pattern: &[u8]| {
        let search = bind(&plan, &[BindValue::Bytes(pattern)])?;
        let Some(TermRange::Between { lower, upper }) =
            search.map(|search| search.restrictions[0].terms.clone())
        else {
            return Err("no range".to_owned());
        };
        Ok((lower, upper))
    };
    let range = |lower: &[u8], upper: &[u8]| Ok((Included(lower.to_vec()), Excluded(upper.to_vec())));
    assert_eq!(bounds(b"ab%"), range(b"\x41ab", b"\x41ac"));
    // A zero is written as two bytes.
    assert_eq!(bounds(b"a\0%"), range(b"\x41a\0\xFF", b"\x41a\x01"));
    assert_eq!(bounds(b"%ab"), Ok((Unbounded, Unbounded)));
    let long = [[b'x'; 2_000].as_slice(), b"%"].concat();
    let term = [b"\x41".as_slice(), &[b'x'; 1_023]].concat();
    let after = [&term[..1_023], b"y"].concat();
    assert_eq!(bounds(&long), range(&term, &after));
    assert_eq!(bounds(b"%"), Err("LIKE value can't be empty.".to_owned()));
    let unset = bind(&plan, &[BindValue::Unset]);
    assert_eq!(unset, Err("Unsupported unset value for column w".to_owned()));
}

#[test]
fn elements_of_collections_are_found() {
    let parts = |kind| {
        [
            ("l", kind, Values, NO_OPTIONS),
            ("m", kind, Keys, NO_OPTIONS),
            ("m", kind, Values, NO_OPTIONS),
            ("m", kind, Entries, NO_OPTIONS),
            ("f", kind, Full, NO_OPTIONS),
        ]
    };
    for kind in [Legacy, StorageAttached] {
        check(
            &parts(kind),
            &[
                ("WHERE l CONTAINS 7", "1 = 7"),
                ("WHERE m CONTAINS KEY 'key'", "2 = Akey"),
                ("WHERE m CONTAINS 8", "3 = 8"),
                ("WHERE m['key'] = 8", "4 = AkeyA"),
                ("WHERE f = [7]", "5 = AA>"),
                ("WHERE f CONTAINS 7", FILTERING),
                ("WHERE f > [7]", FILTERING),
            ],
        );
    }
    check(
        &parts(StorageAttached),
        &[
            ("WHERE l CONTAINS 7 AND l CONTAINS 8", "1 = 7 and 1 = 8"),
            ("WHERE m CONTAINS 7 AND m CONTAINS KEY 'k' AND l CONTAINS 8", "3 = 7 and 2 = Ak and 1 = 8"),
        ],
    );
    check(
        &parts(Legacy),
        &[
            ("WHERE l CONTAINS 7 AND l CONTAINS 8", FILTERING),
            ("WHERE l CONTAINS 7 AND l CONTAINS 8 ALLOW FILTERING", "1 = 7 and 1 = 8"),
        ],
    );
}

#[test]
fn columns_of_the_key_are_found() {
    for kind in [Legacy, StorageAttached] {
        let indexes = [("p", kind, Value, NO_OPTIONS), ("y", kind, Value, NO_OPTIONS)];
        check(
            &indexes,
            &[
                ("WHERE p = 1", "1 = 1"),
                ("WHERE y = 2", "2 = 2"),
                ("WHERE (y) = (2)", "2 = 2"),
                ("WHERE (y, z) = (2, 3)", FILTERING),
                ("WHERE p = 1 AND q = 2 AND y = 3", "2 = 3"),
                ("WHERE p = 1 AND q = 2", "no index"),
                ("WHERE p = 1 AND q = 2 AND x = 1 AND y = 3", "no index"),
                // All clustering columns count, also those in front, and an index of a part of the partition key.
                ("WHERE p = 1 AND q = 2 AND x = 1 AND z = 3", FILTERING),
            ],
        );
    }
    check(&attached(&["z"]), &[("WHERE p = 1 AND q = 2 AND x = 1 AND z = 3", FILTERING)]);
    check(
        &attached(&["x", "z"]),
        &[
            ("WHERE p = 1 AND q = 2 AND x = 1 AND z = 3", "2 = 3"),
            ("WHERE (x, y) > (1, 2) ALLOW FILTERING", "no index"),
            ("WHERE (x, y) IN ((1, 2), (3, 4)) ALLOW FILTERING", "no index"),
        ],
    );
    check(
        &attached(&["i"]),
        &[("WHERE p = 1 AND q = 2 AND x = 1 AND y = 3 AND z = 4 AND i = 5", "no index")],
    );
}

#[test]
fn what_a_read_by_index_does_not_offer_is_refused() {
    let vector = [("e", StorageAttached, Value, NO_OPTIONS)];
    check(&vector, &[("WHERE e = [1, 2]", "Vector indexes only support ANN queries")]);
    check(
        &attached(&["i"]),
        &[
            (
                "WHERE p IN (1, 2) AND q = 1 AND i = 1",
                "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported",
            ),
            (
                "WHERE p = 1 AND q = 1 AND i = 1 ORDER BY x DESC",
                "ORDER BY with 2ndary indexes is not supported, except for ANN queries.",
            ),
            ("WHERE p = 1 AND q = 1 ORDER BY x DESC", "no index"),
            ("WHERE p = 1 AND q = 1 AND j = 1 ORDER BY x DESC ALLOW FILTERING", "no index"),
        ],
    );
    // An index of a column of the key counts as soon as something else is restricted too.
    check(
        &attached(&["x"]),
        &[
            ("WHERE p IN (1, 2) AND q = 1 AND x = 1", "no index"),
            (
                "WHERE p IN (1, 2) AND q = 1 AND x = 1 AND j = 1 ALLOW FILTERING",
                "Select on indexed columns and with IN clause for the PRIMARY KEY are not supported",
            ),
            (
                "WHERE p = 1 AND q = 1 AND x = 1 AND j = 1 ORDER BY x DESC ALLOW FILTERING",
                "ORDER BY with 2ndary indexes is not supported, except for ANN queries.",
            ),
        ],
    );
    let catalog = catalog(&attached(&["i"]));
    let update = syntax::parse("UPDATE k.t SET j = 1 WHERE i = 1").unwrap();
    assert!(plan(update, &catalog, None).is_err());
}

/// Whether a row with this text in `w` passes the filters of a statement.
fn passes(indexes: &[Declared<'_>], rest: &str, text: &str) -> bool {
    let plan = select(indexes, rest).unwrap();
    let call = CallContext::at(0);
    let mut filters = RowFilters::new(&plan, &Bindings { values: &[], call: &call }, 1).unwrap();
    let mut row = RowBuilder::new();
    let column = plan.table.column("w").unwrap().id;
    row.cell(Cell { column, path: &[], timestamp: 1, kind: CellKind::Live, value: text.as_bytes() });
    let bytes = row.to_bytes();
    let row = RowRef::new(&bytes, 0);
    filters.pass(&SourceRow { partition_key: &[0, 1, 7, 0, 0, 1, 7, 0], position: &[2], row }).unwrap()
}

#[test]
fn rows_are_filtered_by_like_with_the_analysis_of_the_index() {
    let exact = [for_like("w", CONTAINS)];
    let any_case = [for_like(
        "w",
        &[
            ("mode", "CONTAINS"),
            ("analyzer_class", "org.apache.cassandra.index.sasi.analyzer.NonTokenizingAnalyzer"),
            ("case_sensitive", "false"),
        ],
    )];
    for (pattern, text, is_exact, is_in_any_case) in [
        ("tex%", "texts", true, true),
        ("TEX%", "texts", false, true),
        ("%XTS", "texts", false, true),
        ("%ext%", "texts", true, true),
        ("%eXt%", "TExTS", false, true),
        ("texts", "TEXTS", false, true),
        ("texts", "texts", true, true),
        ("text", "texts", false, false),
        ("%tex", "texts", false, false),
    ] {
        let rest = format!("WHERE w LIKE '{pattern}'");
        assert_eq!(passes(&exact, &rest, text), is_exact, "{pattern} {text}");
        assert_eq!(passes(&any_case, &rest, text), is_in_any_case, "{pattern} {text}");
    }
    check(&any_case, &[("WHERE w LIKE 'TeX%'", "1 in [Atex, Atey)"), ("WHERE w LIKE 'TeX'", "1 = Atex")]);
}

#[test]
fn an_analysis_is_done_to_the_texts_of_the_search_and_to_those_of_rows() {
    let index = [("w", StorageAttached, Value, &[("case_sensitive", "false")][..])];
    check(
        &index,
        &[("WHERE w = 'TeXt'", "1 = Atext"), ("WHERE w IN ('A', 'b') ALLOW FILTERING", "1 = Aa|Ab")],
    );
    let passes = |rest: &str, text: &str| passes(&index, rest, text);
    assert!(passes("WHERE w = 'TeXt'", "tExT"));
    assert!(!passes("WHERE w = 'TeXt'", "tExTs"));
    assert!(!passes("WHERE w IN ('A', 'b') ALLOW FILTERING", "a"));
    assert!(passes("WHERE w IN ('A', 'b') ALLOW FILTERING", "A"));
}

#[test]
fn a_tuple_is_compared_exactly_where_the_index_has_an_analysis() {
    let schema = [SCHEMA[0], "CREATE TABLE k.t (p int, w text, x int, PRIMARY KEY (p, w, x))"];
    let mut catalog = Catalog::clone(&catalog_of(&schema).catalog);
    let keyspace = Arc::make_mut(catalog.keyspaces.get_mut("k").unwrap());
    let mut table = Table::clone(&keyspace.tables["t"]);
    table.indexes.push(Arc::new(Index {
        name: "i".to_owned(),
        id: Uuid::from_u128(1),
        kind: StorageAttached,
        column_id: table.column("w").unwrap().id,
        part: Value,
        options: BTreeMap::from([("case_sensitive".to_owned(), "false".to_owned())]),
    }));
    keyspace.tables.insert("t".to_owned(), Arc::new(table));
    let statement = "SELECT * FROM k.t WHERE (w, x) = ('TeXt', 1) ALLOW FILTERING";
    let planned = plan(syntax::parse(statement).unwrap(), &catalog, None).unwrap().plan;
    let Plan::Select(plan) = planned else { unreachable!("it is a SELECT") };
    assert_eq!(shown(&plan.table, &bind(&plan, &[]).unwrap().unwrap()), "1 = Atext");
    let call = CallContext::at(0);
    for (text, number, is_found) in [("TeXt", 1_i32, true), ("text", 1, false), ("TeXt", 2, false)] {
        let mut position = vec![REGULAR_TAG];
        ordered::encode(&CqlType::Text, text.as_bytes(), false, &mut position).unwrap();
        ordered::encode(&CqlType::Int, &number.to_be_bytes(), false, &mut position).unwrap();
        let mut filters = RowFilters::new(&plan, &Bindings { values: &[], call: &call }, 1).unwrap();
        let mut row = RowBuilder::new();
        row.set_liveness(Liveness { timestamp: 1, expiry: None });
        let bytes = row.to_bytes();
        let row = RowRef::new(&bytes, 0);
        let source = SourceRow { partition_key: &7_i32.to_be_bytes(), position: &position, row };
        assert_eq!(filters.pass(&source).unwrap(), is_found, "{text} {number}");
    }
}
