//! Whatever the bytes of a commit-log segment are: records or an error, never a panic.
#![no_main]

use bytes::Bytes;
use helenus_engine::commit_log::read_segment;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    read_segment(&Bytes::copy_from_slice(data), 1).ok();
});
