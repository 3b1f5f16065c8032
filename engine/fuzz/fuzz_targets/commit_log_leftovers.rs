//! A client writes what looks like groups of the commit log, segments are recycled, and the log is crashed. Every start succeeds and
//! finds what was appended, nothing else.
#![no_main]

use helenus_engine::commit_log::adversary;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| adversary::check(script));
