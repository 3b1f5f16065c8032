//! Whatever a stranger opens a link with: an opening or an error, never a panic. Openings come out as they went in. Where the
//! first byte is odd, length and checksum are made right first.
#![no_main]

use helenus_internode::handshake::Opening;
use libfuzzer_sys::fuzz_target;

const HEAD_BYTES: usize = 13;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if choice & 1 == 1 && bytes.len() >= HEAD_BYTES {
        bytes[..8].copy_from_slice(b"HLNSLINK");
        let body_bytes = (bytes.len() - HEAD_BYTES) as u32;
        bytes[9..HEAD_BYTES].copy_from_slice(&body_bytes.to_le_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    if let Ok(opening) = Opening::decode(&bytes) {
        let again = Opening::decode(&opening.encode()).expect("what was encoded can be decoded");
        assert_eq!(again, opening);
    }
});
