//! Whatever bytes come over a link, in whatever pieces: frames or an error, never a panic, and no memory beyond what has
//! come. The first byte chooses the pieces, and whether the first header's checksums are made right first, so that the
//! fuzzer gets past them.
#![no_main]

use bytes::BytesMut;
use helenus_internode::frame::{Decoder, HEADER_BYTES, encode};
use libfuzzer_sys::fuzz_target;

const PAYLOAD_BYTES_MAX: u32 = 1 << 20;

fn with_right_checksums(bytes: &mut [u8]) {
    let Some((header, payload)) = bytes.split_at_mut_checked(HEADER_BYTES) else { return };
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    if let Some(payload) = payload.get(..length) {
        header[20..24].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    }
    let checksum = crc32fast::hash(&header[..24]);
    header[24..].copy_from_slice(&checksum.to_le_bytes());
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if choice & 1 == 1 {
        with_right_checksums(&mut bytes);
    }
    let (mut decoder, mut input) = (Decoder::new(PAYLOAD_BYTES_MAX), BytesMut::new());
    for piece in bytes.chunks(1 + usize::from(choice >> 1)) {
        input.extend_from_slice(piece);
        loop {
            match decoder.next(&mut input) {
                Ok(Some(frame)) => {
                    let mut again = BytesMut::new();
                    encode(&mut again, &frame);
                    assert_eq!(Decoder::new(PAYLOAD_BYTES_MAX).next(&mut again), Ok(Some(frame)));
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
});
