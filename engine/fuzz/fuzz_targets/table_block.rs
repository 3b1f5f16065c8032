//! Whatever the bytes of a block are: unpacking, searching and walking it never panics.
#![no_main]

use helenus_engine::table::{BlockView, EntryOffset, unpack_block};
use libfuzzer_sys::fuzz_target;

fn walk(body: &[u8], target: &[u8]) {
    let Some(view) = BlockView::new(body) else { return };
    view.search(target).ok();
    let mut place = EntryOffset::default();
    let mut key_length = 0;
    while let Some(entry) = view.entry(place, key_length) {
        view.row(entry.row.clone()).validate().ok();
        key_length = entry.key_length();
        place = entry.end();
    }
}

fuzz_target!(|data: &[u8]| {
    let (target, body) = data.split_at(data.len().min(20));
    walk(body, target);
    if let Ok(unpacked) = unpack_block(body) {
        walk(&unpacked, target);
    }
});
