//! The check itself: what it finds in small trees, and that this tree is clean.

use std::fs;
use std::path::Path;

use super::complaints;

/// A tree of one crate, `a`, from the order of its modules and its files.
fn check(order: &str, files: &[(&str, &str)]) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    let workspace = [
        ("docs/layers.txt", order),
        ("Cargo.toml", "[workspace]\nmembers = [\n    \"a\",\n]\n"),
        ("a/Cargo.toml", "[package]\nname = \"a-crate\"\n"),
    ];
    for (path, text) in workspace.iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    complaints(root.path()).unwrap()
}

#[test]
fn an_import_against_the_order_is_named_with_both_files() {
    let files = [
        ("a/src/lib.rs", "pub mod low; pub mod high;"),
        ("a/src/low.rs", "pub struct Low;\nfn f() { crate::high::make(); }"),
        ("a/src/high.rs", "pub fn make() {}"),
    ];
    let found = check("a a\n  low\n  high\n", &files);
    assert_eq!(found, ["a/src/low.rs:2 imports make from a/src/high.rs, which stands above it or beside it"]);
    assert_eq!(check("a a\n  high\n  low\n", &files), [""; 0]);
    assert_eq!(check("a a\n  high low\n", &files).len(), 1);
}

#[test]
fn a_circle_behind_re_exports_is_found() {
    let found = check(
        "a a\n  m\n",
        &[
            ("a/src/lib.rs", "pub mod m;"),
            ("a/src/m/mod.rs", "mod one; mod two; pub use one::One; pub use two::*;"),
            ("a/src/m/one.rs", "use super::Two; pub struct One(Two);"),
            (
                "a/src/m/two.rs",
                "pub struct Two; impl Two { fn f() { let _: Option<crate::m::One> = None; } }",
            ),
        ],
    );
    assert_eq!(
        found,
        [
            "2 files import each other in a circle:",
            "  a/src/m/one.rs:1 imports Two from a/src/m/two.rs",
            "  a/src/m/two.rs:1 imports One from a/src/m/one.rs",
        ]
    );
}

#[test]
fn tests_and_mere_modules_do_not_count() {
    let found = check(
        "a a\n  low\n  high\n",
        &[
            ("a/src/lib.rs", "pub mod low; pub mod high;"),
            (
                "a/src/low.rs",
                "pub mod part; pub struct Low; #[cfg(test)] mod tests { use crate::high::High; } use self::part::X;",
            ),
            ("a/src/low/part.rs", "pub struct X; #[cfg(test)] use super::Low;"),
            ("a/src/high.rs", "use crate::low::{self, part}; pub struct High(low::Low, part::X);"),
        ],
    );
    assert_eq!(found, [""; 0]);
}

#[test]
fn modules_without_a_place_are_named() {
    let found = check("a a\n  gone\n", &[("a/src/lib.rs", "mod new;"), ("a/src/new.rs", "")]);
    assert_eq!(
        found,
        ["docs/layers.txt: a does not say where module new stands", "docs/layers.txt: a has no module gone"]
    );
}

#[test]
fn a_program_without_src_is_read() {
    let files = [
        ("a/src/lib.rs", ""),
        ("a/b/main.rs", "mod one; mod two;"),
        ("a/b/one.rs", "use crate::two::Two;"),
        ("a/b/two.rs", "pub struct Two;"),
    ];
    assert_eq!(check("b a/b\n  two\n  one\n", &files), [""; 0]);
    assert_eq!(check("b a/b\n  one\n  two\n", &files).len(), 1);
}

#[test]
fn a_crate_that_is_too_large_is_named_with_its_lines() {
    let library =
        "mod part;\n#[cfg(test)]\nmod suite;\n#[cfg(any(test, feature = \"testing\"))]\nmod nodes;\n";
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(100));
    let tree = |lines: usize| {
        let part = "// A line.\n".repeat(lines - 1) + &tests;
        let long = "\n".repeat(30_000);
        let files = [
            // One line counts, the others are for tests.
            ("a/src/lib.rs", library),
            ("a/src/part.rs", &part),
            ("a/src/suite.rs", &long),
            ("a/src/suite/deep.rs", &long),
            ("a/src/nodes/mod.rs", &long),
        ];
        check("a a\n  part\n  nodes\n", &files)
    };
    assert_eq!(tree(24_999), [""; 0]);
    assert_eq!(
        tree(25_000),
        ["the crate a-crate has 25000 lines outside of tests, and must have fewer than 25000"]
    );
}

#[test]
fn this_tree_keeps_its_layers_and_no_crate_is_too_large() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = complaints(&root).unwrap();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
