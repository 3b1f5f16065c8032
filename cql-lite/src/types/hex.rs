//! Bytes as hexadecimal digits.

use std::fmt::Write;

/// `0x` and the bytes in hexadecimal.
pub fn format_hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 + bytes.len() * 2);
    out.push_str("0x");
    write_digits(bytes, &mut out);
    out
}

/// The bytes in hexadecimal, without a prefix.
pub(crate) fn digits(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    write_digits(bytes, &mut out);
    out
}

fn write_digits(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(out, "{byte:02x}");
    }
}
