//! The syntax of CQL. Each case of `tests/syntax/*.txt` is a statement, `----`, and its printed form or its error. With
//! `REWRITE=1` in the environment the expected outputs are rewritten; review the difference.
//!
//! For any text, parsing does not panic, and the tree prints as CQL that parses to the same tree.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{fmt::Write, fs, path::PathBuf};

use cql_lite::syntax::{self, Limits, SyntaxError, ast};
use proptest::{prelude::*, sample::select};

const SEPARATOR: &str = "----";

fn files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/syntax");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The cases of a file: the comment lines before the statement, the statement, and the expected output.
fn cases(text: &str) -> Vec<(String, String, String)> {
    let mut cases = Vec::new();
    for block in text.split("\n\n").map(str::trim_end).filter(|block| !block.trim().is_empty()) {
        let mut comments = String::new();
        let mut rest = block.trim_start_matches('\n');
        while let Some((line, after)) = rest.split_once('\n').filter(|(line, _)| line.starts_with('#')) {
            comments += line;
            comments.push('\n');
            rest = after;
        }
        let separator = format!("\n{SEPARATOR}");
        let (statement, expected) = rest.split_once(&separator).unwrap_or((rest, ""));
        cases.push((comments, statement.to_owned(), expected.trim_start_matches('\n').to_owned()));
    }
    cases
}

fn outcome(text: &str) -> String {
    match syntax::parse(text) {
        Ok(statement) => statement.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

/// Parses, prints, parses again; the two trees and their texts must be equal.
fn check_round_trip(text: &str) {
    let Ok(parsed) = syntax::parse_with(text, Limits::default()) else { return };
    let printed = parsed.statement.to_string();
    let again = syntax::parse_with(&printed, Limits::default());
    assert_eq!(again.as_ref(), Ok(&parsed), "\n{text}\n{printed}");
}

#[test]
fn statements_print_as_expected() {
    let rewrite = std::env::var_os("REWRITE").is_some();
    for file in files() {
        let text = fs::read_to_string(&file).unwrap();
        let mut actual = String::new();
        for (comments, statement, expected) in cases(&text) {
            let outcome = outcome(&statement);
            if !rewrite {
                assert_eq!(outcome, expected, "{}: {statement}", file.display());
            }
            write!(actual, "{comments}{statement}\n{SEPARATOR}\n{outcome}\n\n").unwrap();
        }
        if rewrite {
            fs::write(&file, actual.trim_end().to_owned() + "\n").unwrap();
        }
    }
}

#[test]
fn printed_statements_parse_to_the_same_tree() {
    for file in files() {
        for (_, statement, _) in cases(&fs::read_to_string(file).unwrap()) {
            check_round_trip(&statement);
        }
    }
}

#[test]
fn bind_markers_are_numbered_in_the_order_of_the_text() {
    let text =
        "UPDATE t USING TTL ? AND TIMESTAMP :time SET a = ?, b[?] = :b WHERE k = ? AND c IN ? IF d = ?";
    let parsed = syntax::parse_with(text, Limits::default()).unwrap();
    let names: Vec<_> =
        parsed.markers.iter().map(|name| name.as_ref().map(ast::Identifier::as_str)).collect();
    assert_eq!(names, [None, Some("time"), None, None, Some("b"), None, None, None]);
    let ast::Statement::Update(update) = &parsed.statement else { panic!("an UPDATE") };
    let marker = |index, name: Option<&str>| {
        ast::Expression::Marker(ast::BindMarker { index, name: name.map(ast::Identifier::unquoted) })
    };
    assert_eq!(update.using.time_to_live, Some(marker(0, None)));
    assert_eq!(update.using.timestamp, Some(marker(1, Some("time"))));
    check_round_trip(text);
}

#[test]
fn columns_of_results_are_named_as_in_cassandra() {
    let keyspace_of = |name: &ast::FunctionName| {
        if name.name == "mine" { "ks".to_owned() } else { "system".to_owned() }
    };
    for (selector, name) in [
        ("a", "a"),
        ("\"Ab c\"", "Ab c"),
        ("a AS \"B\"", "B"),
        ("count(*)", "count"),
        ("COUNT(1)", "count"),
        ("count(a)", "system.count(a)"),
        ("Token(a, b)", "system.token(a, b)"),
        ("max(a)", "system.max(a)"),
        ("blobAsInt(intAsBlob(a))", "system.blobasint(system.intasblob(a))"),
        ("mine(a)", "ks.mine(a)"),
        ("other.f()", "other.f()"),
        ("writetime(a)", "writetime(a)"),
        ("MAXWRITETIME(a.b)", "maxwritetime(a.b)"),
        ("TTL(m['x'])", "ttl(m['x'])"),
        ("CAST(a AS text)", "cast(a as text)"),
        ("u.f.g", "u.f.g"),
        ("m[1..2]", "m[1..2]"),
        ("m[..?]", "m[..?]"),
        ("(a, b)", "(a, b)"),
        ("[a, 1]", "[a, 1]"),
        ("{a, 1}", "{a, 1}"),
        ("{'x': a}", "{'x': a}"),
        ("(a + 1) * -b", "(a + 1) * -b"),
        ("'it''s'", "'it''s'"),
    ] {
        let statement = syntax::parse(&format!("SELECT {selector} FROM t")).unwrap();
        let ast::Statement::Select(select) = statement else { panic!("a SELECT") };
        let ast::SelectClause::Items(items) = select.clause else { panic!("selectors") };
        assert_eq!(items[0].result_name(keyspace_of), name, "{selector}");
    }
}

#[test]
fn nesting_is_limited_and_never_overflows_the_stack() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!("INSERT INTO t (a) VALUES ({open}{close})")
    };
    assert!(syntax::parse(&nested(64)).is_ok());
    assert_eq!(
        syntax::parse(&nested(65)).unwrap_err().to_string(),
        "line 1:90 nested too deeply (at most 64 levels)"
    );
    let shallow = Limits { nesting: 2 };
    assert!(matches!(syntax::parse_with(&nested(3), shallow), Err(SyntaxError::TooDeep { limit: 2, .. })));

    let unlimited = Limits { nesting: usize::MAX };
    for (open, inner, close) in [
        ("[", "1", "]"),
        ("(", "1", ")"),
        ("{", "1", "}"),
        ("{1: ", "1", "}"),
        ("{a: ", "1", "}"),
        ("f(", "1", ")"),
        ("(int)", "1", ""),
        ("CAST(", "1", " AS int)"),
        ("- (", "1", ")"),
    ] {
        for (depth, fits) in [(120, true), (100_000, false)] {
            let value = open.repeat(depth) + inner + &close.repeat(depth);
            for text in [format!("INSERT INTO t (a) VALUES ({value})"), format!("SELECT {value} FROM t")] {
                let result = syntax::parse_with(&text, unlimited);
                match &result {
                    Ok(parsed) => {
                        assert!(fits);
                        assert_eq!(parsed.statement.clone(), parsed.statement);
                        assert!(!parsed.statement.to_string().is_empty());
                    }
                    Err(error) => assert!(!fits, "{open}: {error}"),
                }
            }
        }
    }
    for text in [
        format!("SELECT {}a FROM t", "- ".repeat(100_000)),
        format!("CREATE TABLE t (a {}int{})", "list<".repeat(100_000), ">".repeat(100_000)),
        format!("SELECT * FROM t WHERE {}a = 1", "(".repeat(100_000)),
        format!("SELECT a{} FROM t", "[1]".repeat(100_000)),
        format!("SELECT a{} FROM t", ".b".repeat(100_000)),
        format!("SELECT a{} FROM t", " + a".repeat(100_000)),
        format!("INSERT INTO t (a) VALUES (1{})", " * 1".repeat(100_000)),
    ] {
        assert!(syntax::parse_with(&text, unlimited).is_err());
    }
}

/// Words and symbols of the language, so that random sequences resemble statements.
const PIECES: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "INSERT INTO",
    "VALUES",
    "UPDATE",
    "SET",
    "DELETE",
    "BEGIN BATCH",
    "APPLY BATCH",
    "CREATE TABLE",
    "CREATE TYPE",
    "CREATE INDEX",
    "CREATE PROJECTION",
    "CREATE MATERIALIZED VIEW",
    "AS SELECT * FROM",
    "JOIN",
    "WITH FRESHNESS",
    "CHECK PROJECTION",
    "REPAIR",
    "a.b",
    "ALTER TABLE",
    "DROP",
    "PRIMARY KEY",
    "WITH",
    "AND",
    "IN",
    "CONTAINS",
    "KEY",
    "NOT",
    "LIKE",
    "BETWEEN",
    "IS",
    "NULL",
    "TOKEN",
    "USING",
    "TTL",
    "TIMESTAMP",
    "IF",
    "EXISTS",
    "ORDER BY",
    "GROUP BY",
    "LIMIT",
    "PER PARTITION LIMIT",
    "ALLOW FILTERING",
    "JSON",
    "DISTINCT",
    "COUNT",
    "CAST",
    "AS",
    "int",
    "text",
    "list",
    "map",
    "set",
    "frozen",
    "vector",
    "tuple",
    "a",
    "b",
    "k",
    "ks",
    "t",
    "\"Q\"",
    "'s'",
    "1",
    "-1",
    "1.5",
    "1h",
    "0xab",
    "true",
    "NaN",
    "-Infinity",
    "?",
    ":x",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "<=",
    "=",
    "!=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "+=",
    "-=",
    ",",
    ".",
    "..",
    ":",
    ";",
    "GRANT",
    "REVOKE",
    "LIST",
    "ROLE",
    "USER",
    "ALL",
    "ON",
    "TO",
    "DESCRIBE",
    "KEYSPACE",
    "TABLES",
    "FULL",
    "SCHEMA",
    "expr",
    "writetime",
];

/// The expression of `INSERT INTO t (a) VALUES (…)`.
fn inserted(text: &str) -> Option<ast::Expression> {
    let ast::Statement::Insert(insert) = syntax::parse(&format!("INSERT INTO t (a) VALUES ({text})")).ok()?
    else {
        return None;
    };
    match insert.source {
        ast::InsertSource::Values { mut values, .. } if values.len() == 1 => values.pop(),
        _ => None,
    }
}

/// The expression of `SELECT … FROM t`.
fn selected(text: &str) -> Option<ast::Expression> {
    let ast::Statement::Select(select) = syntax::parse(&format!("SELECT {text} FROM t")).ok()? else {
        return None;
    };
    match select.clause {
        ast::SelectClause::Items(mut items) if items.len() == 1 => items.pop().map(|item| item.expression),
        _ => None,
    }
}

/// Parts of expressions.
const EXPRESSION_PIECES: &[&str] = &[
    "1",
    "-1",
    "1.5",
    "'s'",
    "?",
    ":x",
    "NULL",
    "true",
    "0xab",
    "1h",
    "f(",
    "ks.g(",
    "CAST(",
    "AS int",
    "(int)",
    "(list<int>)",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "a:",
    "+",
    "-",
    "*",
    "/",
    "%",
    "now()",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_parses_or_is_rejected(text in ".{0,80}") {
        check_round_trip(&text);
    }

    #[test]
    fn any_sequence_of_words_parses_or_is_rejected(pieces in prop::collection::vec(select(PIECES), 0..40)) {
        check_round_trip(&pieces.join(" "));
        check_round_trip(&pieces.concat());
    }

    /// Every value parses to the same expression in the SELECT list.
    #[test]
    fn values_are_selectors(pieces in prop::collection::vec(select(EXPRESSION_PIECES), 0..12)) {
        let text = pieces.join(" ");
        if let Some(value) = inserted(&text) {
            prop_assert_eq!(selected(&text), Some(value), "{}", text);
        }
    }

    #[test]
    fn statements_with_a_changed_word_parse_or_are_rejected(
        statement in select(statements()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), select(PIECES)), 1..4),
    ) {
        let mut words: Vec<&str> = statement.split(' ').collect();
        for (place, piece) in &changes {
            *place.get_mut(&mut words) = piece;
        }
        check_round_trip(&words.join(" "));
    }
}

/// The printed forms of the valid statements of the files.
fn statements() -> Vec<String> {
    let texts = files().into_iter().map(|file| fs::read_to_string(file).unwrap());
    texts
        .flat_map(|text| cases(&text))
        .filter_map(|(_, text, _)| Some(syntax::parse(&text).ok()?.to_string()))
        .collect()
}
