//! Whatever another node asks or answers: a message or an error, never a panic, and no memory beyond what it says.
#![no_main]

use helenus::internode::message::{Request, Response, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    decode::<Request>(data).ok();
    decode::<Response>(data).ok();
});
