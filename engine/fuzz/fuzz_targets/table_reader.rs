//! Whatever the bytes of a table file are: errors or rows, never a panic.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use helenus_engine::io::Mapped;
use helenus_engine::table::{KeyHash, TableCursor, TableReader};
use libfuzzer_sys::fuzz_target;

/// A damaged index may lead a cursor in circles; a real table of this size has fewer rows.
const STEPS_MAX: usize = 10_000;

struct Input(Vec<u8>);

impl Mapped for Input {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(table) = TableReader::open(Arc::new(Input(data.to_vec())), Path::new("input"), 1) else { return };
    let table = Arc::new(table);
    let range_tombstones = table.range_tombstones();
    for index in 0..range_tombstones.len().min(STEPS_MAX) {
        range_tombstones.get(index);
    }
    let mut cursor = TableCursor::new(Arc::clone(&table), None);
    let mut keys = Vec::new();
    let mut more = cursor.seek_first();
    for _ in 0..STEPS_MAX {
        let Ok(true) = more else { break };
        keys.push(cursor.key().to_vec());
        cursor.row().cells().count();
        more = cursor.next();
    }
    more = cursor.seek_last();
    for _ in 0..STEPS_MAX {
        let Ok(true) = more else { break };
        cursor.row().validate().ok();
        more = cursor.prev();
    }
    for key in keys.iter().take(100) {
        table.may_contain_row(KeyHash::of(key));
        table.get(None, key).ok();
        cursor.seek(key).ok();
        cursor.seek_before(key).ok();
        range_tombstones.covering(key);
    }
});
