//! Statements and what they come to, as text: every file of `tests/cql` runs on one node of its own, in this thread, on a
//! simulated disk.
//!
//! `REWRITE=1 cargo test -p helenus-query --test cql` writes the answers into the files; read what has changed before you
//! keep it. `RUN=lwt.txt` takes one file. The format is that of the crate `datadriven`: a directive, its input, `----`, what
//! it comes to. Directives:
//!
//! * `cql`: statements, each ended by `;` at the end of a line. Of several, each is repeated above its answer.
//! * `each`: a statement with a `$`, then lines; each line takes the place of the `$`, and its answer is one line. With
//!   `drop=TABLE` that table is dropped after each.
//! * `prepare`: one statement; its markers and columns are shown. `execute`: values for it, a line each: JSON, `null`, `unset`
//!   or `hex:` and bytes, with `name:` before it where they go by names.
//! * `clock advance=SECONDS`, `flush`, `compact`, `restart`.
//! * `settings`: lines of `helenus.toml`, with which the node starts again; without lines it has the defaults.
//!
//! In statements `{{x*5}}` stands for `xxxxx` and `{{1..3}}` for `1,2,3`.
//!
//! `cql`, `each` and `execute` take `page=ROWS` (all pages are shown), `timestamp=MICROSECONDS`, `now=SECONDS`,
//! `consistency=LEVEL` and `serial=LEVEL`.
//!
//! Time stands at 2023-11-14 22:13:20 and moves a millisecond a statement. A statement marked with `DIFFERS` in the comment
//! above it is not answered as Apache Cassandra 5.0 answers it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the runtime's virtual time")]

mod runner;

use runner::Suite;

#[test]
fn statements_come_to_what_the_suites_say() {
    datadriven::walk(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cql"), |file| {
        let mut suite = Suite::new();
        file.run(|case| suite.run(case));
    });
}
