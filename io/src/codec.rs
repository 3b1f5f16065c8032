//! Variable-length integers, and the bounds-checked reader that decodes every format of the engine.
//!
//! Unsigned integers are little-endian base 128 (at most ten bytes); signed ones are zigzag first. Decoding
//! never panics and never reads past the slice it was given.

use thiserror::Error;

/// Why bytes could not be decoded. The container adds the source: file and offset, or request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    #[error("the bytes end inside {what}")]
    Truncated { what: &'static str },
    #[error("{what} does not fit its type")]
    Overflow { what: &'static str },
    #[error("{value:#04x} is no valid {what}")]
    Invalid { what: &'static str, value: u64 },
    #[error("{what} are not in order")]
    Disorder { what: &'static str },
    #[error("{count} bytes are left over after {what}")]
    Trailing { what: &'static str, count: usize },
}

/// Appends `value` as a base-128 varint.
#[inline]
pub fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `value` as a zigzag varint.
#[inline]
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends the length of `bytes` as a varint, then the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_unsigned(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a slice from front to back.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    pub fn byte(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated { what })?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated { what })?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated { what })?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub fn unsigned(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        match self.rest.split_first() {
            Some((&first, rest)) if first < 0x80 => {
                self.rest = rest;
                Ok(u64::from(first))
            }
            _ => self.unsigned_long(what),
        }
    }

    #[inline]
    fn unsigned_long(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        const CONTINUED: u64 = 0x8080_8080_8080_8080;
        // Up to eight bytes at once: present-day timestamps take eight.
        if let Some(bytes) = self.rest.first_chunk::<8>() {
            let word = u64::from_le_bytes(*bytes);
            let ends = !word & CONTINUED;
            if ends != 0 {
                let end_bit = ends.trailing_zeros();
                let groups = word & !CONTINUED & (u64::MAX >> (63 - end_bit));
                // Groups of 7 bits become groups of 14, of 28, and one of 56.
                let pairs = groups & 0x007F_007F_007F_007F | (groups & 0x7F00_7F00_7F00_7F00) >> 1;
                let fours = pairs & 0x0000_3FFF_0000_3FFF | (pairs & 0x3FFF_0000_3FFF_0000) >> 2;
                let value = fours & 0x0FFF_FFFF | (fours & 0x0FFF_FFFF_0000_0000) >> 4;
                // Never behind the eight bytes above, so the default is not used. It keeps a panic off the hottest path.
                self.rest = self.rest.get(end_bit as usize / 8 + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        self.unsigned_bytewise(what)
    }

    #[cold]
    fn unsigned_bytewise(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for (index, &byte) in self.rest.iter().enumerate() {
            if index == 9 && byte > 1 {
                return Err(DecodeError::Overflow { what });
            }
            value |= u64::from(byte & 0x7F) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(DecodeError::Truncated { what })
    }

    #[inline]
    pub fn signed(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        let raw = self.unsigned(what)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    #[inline]
    pub fn unsigned32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        u32::try_from(self.unsigned(what)?).map_err(|_| DecodeError::Overflow { what })
    }

    /// A varint length, then that many bytes.
    #[inline]
    pub fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.unsigned(what)?;
        self.take(usize::try_from(length).map_err(|_| DecodeError::Overflow { what })?, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_survive_a_round_trip() {
        let powers = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1, 0xA5A5 << bit]);
        for value in powers.chain([u64::MAX - 1, u64::MAX]) {
            let mut out = Vec::new();
            put_unsigned(&mut out, value);
            put_signed(&mut out, value as i64);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.unsigned("a"), Ok(value));
            assert_eq!(reader.signed("b"), Ok(value as i64));
            assert!(reader.is_empty());
            // Bytes behind the integer are not read.
            out.extend_from_slice(&[0xFF; 9]);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.unsigned("a"), Ok(value));
            assert_eq!(reader.signed("b"), Ok(value as i64));
            assert_eq!(reader.rest(), [0xFF; 9]);
        }
    }

    #[test]
    fn damaged_integers_are_errors() {
        assert!(matches!(Reader::new(&[0x80, 0x80]).unsigned("x"), Err(DecodeError::Truncated { .. })));
        assert!(matches!(Reader::new(&[0xFF; 11]).unsigned("x"), Err(DecodeError::Overflow { .. })));
        assert!(matches!(Reader::new(&[5, 1]).bytes("x"), Err(DecodeError::Truncated { .. })));
    }
}
