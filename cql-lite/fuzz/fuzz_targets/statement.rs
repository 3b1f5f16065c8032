//! The text of a statement: the parser must not panic, and an accepted statement must print as text that parses to the
//! same statement.

#![no_main]

use cql_lite::syntax;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(statement) = syntax::parse(text) else { return };
    let printed = statement.to_string();
    match syntax::parse(&printed) {
        Ok(again) => assert_eq!(statement, again, "{printed}"),
        Err(error) => panic!("{printed}: {error}"),
    }
});
