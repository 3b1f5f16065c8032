//! Arbitrary-precision numbers as byte-comparable bytes.
//!
//! ```text
//! varint   := class, [length (u32, inverted if negative)], minimal two's complement bytes
//!             class = 0x80 + n for a number >= 0 of n bytes, 0x7F - n for one < 0; n >= 0x7F is written as
//!             0x7F and the length follows
//! decimal  := 0x01 (zero) | 0x02 magnitude (positive) | 0x00 inverted magnitude (negative)
//! magnitude:= exponent (i64, sign flipped), pairs of digits (1 + 0..99) most significant first, 0x00
//!             where the value is 0.d1d2d3… × 10^exponent with d1 ≠ 0 and no trailing zero digits
//! ```

use num_bigint::{BigInt, Sign};

use super::super::number::Decimal;
use super::error::OrderedError;

/// Lengths of at least this many bytes follow the class as a number.
const LONG: usize = 0x7F;

const NEGATIVE: u8 = 0x00;
const ZERO: u8 = 0x01;
const POSITIVE: u8 = 0x02;

/// Up to this many trailing zeros before the point are decoded as digits, so that 100 does not decode as 1E+2.
const MAXIMUM_INTEGER_ZEROS: i64 = 64;

/// Source of bytes, given as in ascending order.
pub(super) trait Source {
    /// The next byte, if there is one.
    fn next_byte(&mut self) -> Option<u8>;
}

/// Strips leading bytes that only repeat the sign.
fn minimal(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let [first, second, ..] = rest {
        let redundant = (*first == 0x00 && second & 0x80 == 0) || (*first == 0xFF && second & 0x80 != 0);
        if !redundant {
            break;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    rest
}

pub(super) fn encode_varint(wire: &[u8], out: &mut Vec<u8>) {
    let bytes = minimal(wire);
    let negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    let class = bytes.len().min(LONG) as u8;
    out.push(if negative { 0x7F - class } else { 0x80 + class });
    if bytes.len() >= LONG {
        let length = bytes.len() as u32;
        out.extend_from_slice(&(if negative { !length } else { length }).to_be_bytes());
    }
    out.extend_from_slice(bytes);
}

pub(super) fn decode_varint(source: &mut impl Source, out: &mut Vec<u8>) -> Option<()> {
    let class = source.next_byte()?;
    let negative = class < 0x80;
    let mut length = u32::from(if negative { 0x7F - class } else { class - 0x80 });
    if length as usize >= LONG {
        let written = take_be(source, 4)? as u32;
        length = if negative { !written } else { written };
    }
    for _ in 0..length {
        out.push(source.next_byte()?);
    }
    Some(())
}

fn take_be(source: &mut impl Source, bytes: usize) -> Option<u64> {
    (0..bytes).try_fold(0, |value, _| Some((value << 8) | u64::from(source.next_byte()?)))
}

/// Appends a decimal; `None` if the wire bytes are not a decimal.
pub(super) fn encode_decimal(wire: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let decimal = Decimal::from_wire(wire)?;
    let negative = match decimal.unscaled.sign() {
        Sign::NoSign => {
            out.push(ZERO);
            return Some(());
        }
        Sign::Minus => true,
        Sign::Plus => false,
    };
    out.push(if negative { NEGATIVE } else { POSITIVE });
    let start = out.len();
    let text = decimal.unscaled.magnitude().to_string();
    let exponent = text.len() as i64 - i64::from(decimal.scale);
    out.extend_from_slice(&((exponent as u64) ^ (1 << 63)).to_be_bytes());
    for pair in text.trim_end_matches('0').as_bytes().chunks(2) {
        let tens = pair.first().map_or(0, |digit| digit - b'0');
        let ones = pair.get(1).map_or(0, |digit| digit - b'0');
        out.push(1 + tens * 10 + ones);
    }
    out.push(0);
    if negative {
        out.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
    }
    Some(())
}

/// Reads a decimal and appends its wire bytes.
pub(super) fn decode_decimal(source: &mut impl Source, out: &mut Vec<u8>) -> Result<(), OrderedError> {
    let sign = source.next_byte().ok_or(OrderedError::Truncated)?;
    let mask = match sign {
        ZERO => {
            Decimal::zero().write_wire(out);
            return Ok(());
        }
        POSITIVE => 0,
        NEGATIVE => 0xFF,
        byte => return Err(OrderedError::UnexpectedByte { byte }),
    };
    let mut next = || source.next_byte().map(|byte| byte ^ mask).ok_or(OrderedError::Truncated);
    let mut exponent: u64 = 0;
    for _ in 0..8 {
        exponent = (exponent << 8) | u64::from(next()?);
    }
    let exponent = (exponent ^ (1 << 63)) as i64;
    let mut digits = Vec::new();
    loop {
        match next()? {
            0 => break,
            pair @ 1..=100 => digits.extend_from_slice(&[b'0' + (pair - 1) / 10, b'0' + (pair - 1) % 10]),
            byte => return Err(OrderedError::UnexpectedByte { byte }),
        }
    }
    if digits.last() == Some(&b'0') {
        digits.pop();
    }
    let zeros = exponent.saturating_sub(digits.len() as i64);
    if (1..=MAXIMUM_INTEGER_ZEROS).contains(&zeros) {
        digits.extend(std::iter::repeat_n(b'0', zeros as usize));
    }
    let scale = i32::try_from((digits.len() as i64).saturating_sub(exponent));
    let magnitude = BigInt::parse_bytes(&digits, 10);
    let (Ok(scale), Some(magnitude)) = (scale, magnitude) else {
        return Err(OrderedError::UnexpectedByte { byte: sign });
    };
    let unscaled = if mask == 0 { magnitude } else { -magnitude };
    Decimal { unscaled, scale }.write_wire(out);
    Ok(())
}
