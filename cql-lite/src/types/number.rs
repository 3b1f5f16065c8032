//! Arbitrary-precision numbers and Java's way of printing numbers.
//!
//! A `varint` is a big-endian two's complement number, a `decimal` a 32-bit scale followed by such a number:
//! the value is `unscaled × 10^-scale`. Arithmetic follows Java's `BigDecimal`, as in Cassandra.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{Pow, Signed, ToPrimitive, Zero};

/// Largest difference of two scales that is evened out by appending zeros. A client can send a scale of billions in a
/// few bytes; this bounds the work that such a number causes.
const MAXIMUM_SCALE_GAP: i64 = 100_000;

/// A decimal number: `unscaled × 10^-scale`.
///
/// Equality is numeric (`1.0 == 1.00`), as in CQL. The scale is kept for printing.
#[derive(Debug, Clone)]
pub struct Decimal {
    /// The digits as an integer.
    pub unscaled: BigInt,
    /// Number of digits after the decimal point; may be negative.
    pub scale: i32,
}

/// Error of parsing, converting or computing a decimal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// The text is not a number.
    #[error("unable to read a number from '{text}'")]
    Syntax {
        /// The text.
        text: String,
    },
    /// Division by zero.
    #[error("BigInteger divide by zero")]
    DivideByZero,
    /// The exponent or the number of digits exceeds the supported range.
    #[error("the number has too many digits")]
    TooManyDigits,
    /// The floating-point number is NaN or infinite.
    #[error("{0} cannot be converted into a decimal")]
    NotFinite(&'static str),
}

/// Decodes a varint. Empty bytes decode to zero.
pub fn varint_from_wire(bytes: &[u8]) -> BigInt {
    BigInt::from_signed_bytes_be(bytes)
}

/// The digits of a number, most significant first, without sign.
pub fn digit_count(number: &BigInt) -> u64 {
    if number.is_zero() {
        return 1;
    }
    // The estimate from log10(2) is exact or one too low; one comparison decides.
    let bits = number.bits();
    if bits < 60 {
        return number.magnitude().to_string().len() as u64;
    }
    let estimate = ((bits - 1) as f64 * std::f64::consts::LOG10_2) as u64;
    let power = BigInt::from(10u8).pow(estimate);
    let mut count = estimate;
    let mut bound = power;
    while number.magnitude() >= bound.magnitude() {
        bound *= 10u8;
        count += 1;
    }
    count
}

/// Ten to the power of `exponent`. The caller bounds the exponent.
fn power_of_ten(exponent: u64) -> BigInt {
    BigInt::from(10u8).pow(exponent)
}

impl Decimal {
    /// The number `unscaled × 10^-scale`.
    pub fn new(unscaled: impl Into<BigInt>, scale: i32) -> Decimal {
        Decimal { unscaled: unscaled.into(), scale }
    }

    /// Zero.
    pub fn zero() -> Decimal {
        Decimal::new(0, 0)
    }

    /// Decodes the wire bytes; `None` if there are fewer than four.
    pub fn from_wire(bytes: &[u8]) -> Option<Decimal> {
        let (scale, unscaled) = bytes.split_first_chunk::<4>()?;
        Some(Decimal { unscaled: varint_from_wire(unscaled), scale: i32::from_be_bytes(*scale) })
    }

    /// Appends the wire bytes.
    pub fn write_wire(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.scale.to_be_bytes());
        out.extend_from_slice(&self.unscaled.to_signed_bytes_be());
    }

    /// The wire bytes.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        self.write_wire(&mut out);
        out
    }

    /// The decimal that a double prints as (Java's `BigDecimal.valueOf`).
    pub fn from_f64(number: f64) -> Result<Decimal, NumberError> {
        check_finite(number)?;
        java_double(number).parse()
    }

    /// The decimal that a float prints as.
    pub fn from_f32(number: f32) -> Result<Decimal, NumberError> {
        check_finite(f64::from(number))?;
        java_float(number).parse()
    }

    /// The nearest double.
    pub fn to_f64(&self) -> f64 {
        // Rust's parser rounds correctly whatever the number of digits.
        format!("{}e{}", self.unscaled, -i64::from(self.scale)).parse().unwrap_or(f64::NAN)
    }

    /// The nearest float.
    pub fn to_f32(&self) -> f32 {
        format!("{}e{}", self.unscaled, -i64::from(self.scale)).parse().unwrap_or(f32::NAN)
    }

    /// The integer part, rounded towards zero.
    pub fn to_integer(&self) -> Result<BigInt, NumberError> {
        match u64::try_from(self.scale) {
            Ok(scale) if scale > digit_count(&self.unscaled) => Ok(BigInt::zero()),
            Ok(scale) => Ok(&self.unscaled / power_of_ten(scale)),
            Err(_) if self.unscaled.is_zero() => Ok(BigInt::zero()),
            Err(_) => {
                let zeros = -i64::from(self.scale);
                if zeros > MAXIMUM_SCALE_GAP {
                    return Err(NumberError::TooManyDigits);
                }
                Ok(&self.unscaled * power_of_ten(zeros.unsigned_abs()))
            }
        }
    }

    /// The same number without trailing zeros in its digits (zero has scale 0). The scale saturates.
    #[must_use]
    pub fn normalized(&self) -> Decimal {
        if self.unscaled.is_zero() {
            return Decimal::zero();
        }
        let mut unscaled = self.unscaled.clone();
        let mut scale = self.scale;
        // Divide by 10^(2^n), largest n first, so that long runs of zeros cost few divisions.
        let mut step = 1u32 << digit_count(&unscaled).min(1 << 30).ilog2();
        while step > 0 {
            let (quotient, remainder) = unscaled.div_rem(&power_of_ten(u64::from(step)));
            match scale.checked_sub_unsigned(step) {
                Some(stripped) if remainder.is_zero() => (unscaled, scale) = (quotient, stripped),
                _ => {}
            }
            step /= 2;
        }
        Decimal { unscaled, scale }
    }

    /// The exponent `e` in `0.d1d2d3… × 10^e`, d1 ≠ 0, for a number that is not zero.
    pub fn exponent(&self) -> i64 {
        digit_count(&self.unscaled) as i64 - i64::from(self.scale)
    }

    /// The unscaled values of both numbers at the larger of the two scales.
    fn aligned(&self, other: &Decimal) -> Result<(BigInt, BigInt, i32), NumberError> {
        let scale = self.scale.max(other.scale);
        Ok((self.digits_at(scale)?, other.digits_at(scale)?, scale))
    }

    fn digits_at(&self, scale: i32) -> Result<BigInt, NumberError> {
        let zeros = i64::from(scale) - i64::from(self.scale);
        if self.unscaled.is_zero() {
            return Ok(BigInt::zero());
        }
        if !(0..=MAXIMUM_SCALE_GAP).contains(&zeros) {
            return Err(NumberError::TooManyDigits);
        }
        Ok(&self.unscaled * power_of_ten(zeros.unsigned_abs()))
    }

    /// The sum.
    pub fn add(&self, other: &Decimal) -> Result<Decimal, NumberError> {
        let (left, right, scale) = self.aligned(other)?;
        Ok(Decimal { unscaled: left + right, scale })
    }

    /// The difference.
    pub fn subtract(&self, other: &Decimal) -> Result<Decimal, NumberError> {
        let (left, right, scale) = self.aligned(other)?;
        Ok(Decimal { unscaled: left - right, scale })
    }

    /// The product.
    pub fn multiply(&self, other: &Decimal) -> Result<Decimal, NumberError> {
        let scale = self.scale.checked_add(other.scale).ok_or(NumberError::TooManyDigits)?;
        Ok(Decimal { unscaled: &self.unscaled * &other.unscaled, scale })
    }

    /// The quotient as Cassandra computes it: at least 32 digits after the point, at most 1,000, rounded half up,
    /// without trailing zeros.
    pub fn divide(&self, other: &Decimal) -> Result<Decimal, NumberError> {
        const MINIMUM_SIGNIFICANT_DIGITS: i64 = 32;
        const MINIMUM_SCALE: i64 = 32;
        const MAXIMUM_SCALE: i64 = 1000;
        if other.unscaled.is_zero() {
            return Err(NumberError::DivideByZero);
        }
        if self.unscaled.is_zero() {
            return Ok(Decimal::zero());
        }
        // The position of the first significant digit of the quotient, estimated as Cassandra does.
        let first_digit = (other.exponent() - 1) - (self.exponent() - 1);
        let scale = (MINIMUM_SIGNIFICANT_DIGITS + first_digit)
            .max(i64::from(self.scale))
            .max(i64::from(other.scale))
            .clamp(MINIMUM_SCALE, MAXIMUM_SCALE);
        let quotient = self.divide_to_scale(other, scale as i32)?;
        Ok(quotient.normalized())
    }

    /// The quotient with exactly `scale`, rounded half away from zero.
    pub(crate) fn divide_to_scale(&self, other: &Decimal, scale: i32) -> Result<Decimal, NumberError> {
        if other.unscaled.is_zero() {
            return Err(NumberError::DivideByZero);
        }
        let zeros = i64::from(scale) - i64::from(self.scale) + i64::from(other.scale);
        if zeros.abs() > MAXIMUM_SCALE_GAP {
            return Err(NumberError::TooManyDigits);
        }
        let (dividend, divisor) = if zeros >= 0 {
            (&self.unscaled * power_of_ten(zeros.unsigned_abs()), other.unscaled.clone())
        } else {
            (self.unscaled.clone(), &other.unscaled * power_of_ten(zeros.unsigned_abs()))
        };
        Ok(Decimal { unscaled: divide_half_up(&dividend, &divisor), scale })
    }

    /// The remainder, with the sign of the dividend.
    pub fn remainder(&self, other: &Decimal) -> Result<Decimal, NumberError> {
        if other.unscaled.is_zero() {
            return Err(NumberError::DivideByZero);
        }
        let (left, right, scale) = self.aligned(other)?;
        Ok(Decimal { unscaled: left % right, scale })
    }

    /// The number with the sign changed.
    #[must_use]
    pub fn negate(&self) -> Decimal {
        Decimal { unscaled: -&self.unscaled, scale: self.scale }
    }

    /// The number without its sign.
    #[must_use]
    pub fn absolute(&self) -> Decimal {
        Decimal { unscaled: self.unscaled.abs(), scale: self.scale }
    }

    /// The nearest number with `scale` digits after the point, halves away from zero.
    pub fn rounded(&self, scale: i32) -> Result<Decimal, NumberError> {
        if scale >= self.scale {
            return Ok(Decimal { unscaled: self.digits_at(scale)?, scale });
        }
        let dropped = i64::from(self.scale) - i64::from(scale);
        // With fewer digits than are dropped the number is below half a unit and rounds to zero.
        if dropped > MAXIMUM_SCALE_GAP && dropped.unsigned_abs() > digit_count(&self.unscaled) {
            return Ok(Decimal { unscaled: BigInt::zero(), scale });
        }
        let divisor = power_of_ten(dropped.unsigned_abs());
        Ok(Decimal { unscaled: divide_half_up(&self.unscaled, &divisor), scale })
    }

    /// All digits without an exponent (Java's `toPlainString`).
    pub fn to_plain_string(&self) -> Result<String, NumberError> {
        if i64::from(self.scale).abs() > MAXIMUM_SCALE_GAP {
            return Err(NumberError::TooManyDigits);
        }
        let sign = if self.unscaled.is_negative() { "-" } else { "" };
        let digits = self.unscaled.magnitude().to_string();
        let Ok(scale) = usize::try_from(self.scale) else {
            if self.unscaled.is_zero() {
                return Ok("0".to_owned());
            }
            return Ok(format!("{sign}{digits}{}", "0".repeat(self.scale.unsigned_abs() as usize)));
        };
        Ok(format!("{sign}{}", with_point(&digits, scale)))
    }
}

/// Inserts a decimal point before the last `scale` digits.
fn with_point(digits: &str, scale: usize) -> String {
    if scale == 0 {
        return digits.to_owned();
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (integer, fraction) = padded.split_at(padded.len() - scale);
    format!("{integer}.{fraction}")
}

fn check_finite(number: f64) -> Result<(), NumberError> {
    if number.is_nan() {
        Err(NumberError::NotFinite("A NaN"))
    } else if number.is_infinite() {
        Err(NumberError::NotFinite("An infinite number"))
    } else {
        Ok(())
    }
}

/// The quotient rounded to the nearest, halves away from zero. The divisor is not zero.
fn divide_half_up(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let (quotient, remainder) = dividend.div_rem(divisor);
    if (remainder.abs() * 2u8) < divisor.abs() {
        return quotient;
    }
    if (dividend.sign() == Sign::Minus) == (divisor.sign() == Sign::Minus) {
        quotient + 1
    } else {
        quotient - 1
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.scale == other.scale {
            return self.unscaled.cmp(&other.unscaled);
        }
        let signs = self.unscaled.signum().cmp(&other.unscaled.signum());
        if signs != Ordering::Equal || self.unscaled.is_zero() {
            return signs;
        }
        let negative = self.unscaled.is_negative();
        let magnitudes = self.exponent().cmp(&other.exponent()).then_with(|| {
            // Equal exponents: the scales differ by no more than the digit counts do, so aligning them stays
            // within the size of the operands.
            let scale = i64::from(self.scale.max(other.scale));
            let left = self.unscaled.abs() * power_of_ten((scale - i64::from(self.scale)).unsigned_abs());
            let right = other.unscaled.abs() * power_of_ten((scale - i64::from(other.scale)).unsigned_abs());
            left.cmp(&right)
        });
        if negative { magnitudes.reverse() } else { magnitudes }
    }
}

/// Formats as Java's `BigDecimal.toString`: plain digits, or scientific notation for a negative scale or many zeros.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.unscaled.magnitude().to_string();
        let sign = if self.unscaled.is_negative() { "-" } else { "" };
        let adjusted = digits.len() as i64 - 1 - i64::from(self.scale);
        if let Ok(scale) = usize::try_from(self.scale)
            && adjusted >= -6
        {
            return write!(f, "{sign}{}", with_point(&digits, scale));
        }
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{sign}{first}{point}{rest}")?;
        if adjusted == 0 { Ok(()) } else { write!(f, "E{adjusted:+}") }
    }
}

impl FromStr for Decimal {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || NumberError::Syntax { text: text.to_owned() };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| syntax())?),
            None => (text, 0),
        };
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let unsigned = integer.strip_prefix(['+', '-']).unwrap_or(integer);
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(unsigned) || !is_digits(fraction) || (unsigned.is_empty() && fraction.is_empty()) {
            return Err(syntax());
        }
        let scale =
            i64::try_from(fraction.len()).map_err(|_| NumberError::TooManyDigits)? - i64::from(exponent);
        let scale = i32::try_from(scale).map_err(|_| NumberError::TooManyDigits)?;
        let digits = format!("{}{unsigned}{fraction}", if integer.starts_with('-') { "-" } else { "" });
        let unscaled = digits.parse().map_err(|_| syntax())?;
        Ok(Decimal { unscaled, scale })
    }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        Decimal::new(number, 0)
    }
}

impl From<BigInt> for Decimal {
    fn from(number: BigInt) -> Self {
        Decimal { unscaled: number, scale: 0 }
    }
}

/// A double as Java's `Double.toString` prints it: `1.0`, `1.0E10`, `NaN`, `-Infinity`.
pub fn java_double(number: f64) -> String {
    java_floating_point(number, &format!("{number:e}"))
}

/// A float as Java's `Float.toString` prints it.
pub fn java_float(number: f32) -> String {
    java_floating_point(f64::from(number), &format!("{number:e}"))
}

/// `scientific` is the shortest text that reads back as the number, such as `-1.25e-7`.
fn java_floating_point(number: f64, scientific: &str) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    if number == 0.0 {
        return format!("{sign}0.0");
    }
    if (-3..7).contains(&exponent) {
        return format!("{sign}{}", plain_with_fraction(&digits, exponent));
    }
    let (first, rest) = digits.split_at(1);
    format!("{sign}{first}.{}E{exponent}", if rest.is_empty() { "0" } else { rest })
}

/// `d.ddd × 10^exponent` without an exponent and with at least one digit after the point.
fn plain_with_fraction(digits: &str, exponent: i32) -> String {
    let Ok(exponent) = usize::try_from(exponent) else {
        return format!("0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
    };
    let padded = format!("{digits:0<width$}", width = exponent + 1);
    let (integer, fraction) = padded.split_at(exponent + 1);
    format!("{integer}.{}", if fraction.is_empty() { "0" } else { fraction })
}

/// The low 64 bits of a number, as Java's `BigInteger.longValue`.
pub fn low_i64(number: &BigInt) -> i64 {
    number.to_i64().unwrap_or_else(|| {
        let digits: u64 = number.magnitude().iter_u64_digits().next().unwrap_or(0);
        if number.is_negative() { digits.wrapping_neg() as i64 } else { digits as i64 }
    })
}
