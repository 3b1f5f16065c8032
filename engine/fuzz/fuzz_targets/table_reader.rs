//! Whatever the bytes of a table file are: errors or rows, never a panic.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use helenus_engine::io::{CompleteFile, DiskError};
use helenus_engine::table::{KeyHash, ResidentParts, TableCursor, TableReader};
use libfuzzer_sys::fuzz_target;

/// A damaged index may lead a cursor in circles; a real table of this size has fewer rows.
const STEPS_MAX: usize = 10_000;

struct Input(Vec<u8>);

impl CompleteFile for Input {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DiskError> {
        let start = offset as usize;
        buffer.copy_from_slice(&self.0[start..start + buffer.len()]);
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    // With all parts in memory, and with none.
    for resident in [ResidentParts::unlimited(), ResidentParts::new(0)] {
        read(data, &resident);
    }
});

fn read(data: &[u8], resident: &ResidentParts) {
    let file = Arc::new(Input(data.to_vec()));
    let Ok(table) = TableReader::open_within(file, Path::new("input"), 1, resident) else { return };
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
        table.may_contain_partition(None, KeyHash::of(key)).ok();
        table.may_contain_row(None, KeyHash::of(key)).ok();
        table.get(None, key).ok();
        cursor.seek(key).ok();
        cursor.seek_before(key).ok();
        range_tombstones.covering(key);
    }
}
