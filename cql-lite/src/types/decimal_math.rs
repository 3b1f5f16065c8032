//! Exponential and logarithms of decimals, to at least 32 significant digits.
//!
//! Numbers are in fixed point: an integer and a number of digits after the point, with guard digits that the result
//! drops. The exponential factors out powers of ten, so the arguments of its series are below ln 10. The logarithm
//! factors out the exponent and refines a double by Halley's iteration, which triples the digits each time.

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Pow, ToPrimitive, Zero};

use super::number::{Decimal, NumberError, digit_count};

/// The fewest significant digits of a result.
const MINIMUM_DIGITS: u64 = 32;

/// The most significant digits of a result: the cost grows with their square and more.
const MAXIMUM_DIGITS: u64 = 1000;

/// Digits computed beyond those of the result.
const GUARD_DIGITS: u64 = 12;

/// Largest magnitude of an argument for which the exponential is computed.
const MAXIMUM_EXPONENT: i64 = 1_000_000_000;

/// The number of significant digits of the argument, within the limits.
fn significant_digits(number: &Decimal) -> u64 {
    digit_count(&number.unscaled).clamp(MINIMUM_DIGITS, MAXIMUM_DIGITS)
}

fn power_of_ten(exponent: u64) -> BigInt {
    BigInt::from(10u8).pow(exponent)
}

/// Fixed-point numbers with `digits` digits after the point.
struct FixedPoint {
    digits: u64,
    one: BigInt,
}

impl FixedPoint {
    fn new(digits: u64) -> Self {
        Self { digits, one: power_of_ten(digits) }
    }

    fn multiply(&self, left: &BigInt, right: &BigInt) -> BigInt {
        (left * right).div_floor(&self.one)
    }

    fn divide(&self, left: &BigInt, right: &BigInt) -> BigInt {
        (left * &self.one).div_floor(right)
    }

    fn read(&self, number: &Decimal) -> Result<BigInt, NumberError> {
        Ok(number.rounded(self.digits as i32)?.unscaled)
    }

    /// e to a power of moderate size: the power is halved until the series converges quickly, then the result is
    /// squared as often.
    fn exponential(&self, power: &BigInt) -> BigInt {
        const HALVINGS: u32 = 8;
        let reduced = power >> HALVINGS;
        let mut sum = self.one.clone();
        let mut term = self.one.clone();
        let mut index = 1u32;
        // Division rounds down, so a vanishing negative term stays at -1.
        while !term.is_zero() && term != BigInt::from(-1) {
            term = self.multiply(&term, &reduced).div_floor(&BigInt::from(index));
            sum += &term;
            index += 1;
        }
        for _ in 0..HALVINGS {
            sum = self.multiply(&sum, &sum);
        }
        sum
    }

    /// The natural logarithm of a number from 0.1 to 10.
    fn logarithm(&self, number: &BigInt) -> BigInt {
        let start = Decimal { unscaled: number.clone(), scale: self.digits as i32 }.to_f64().ln();
        let scaled = BigInt::from((start * 1e15) as i64);
        let mut estimate = if self.digits >= 15 {
            scaled * power_of_ten(self.digits - 15)
        } else {
            scaled / power_of_ten(15 - self.digits)
        };
        let mut correct_digits = 14;
        while correct_digits < self.digits {
            let power = self.exponential(&estimate);
            let step = self.divide(&(number - &power), &(number + &power));
            estimate += step * 2u8;
            correct_digits *= 3;
        }
        estimate
    }

    fn ln_10(&self) -> BigInt {
        self.logarithm(&(&self.one * 10u8))
    }
}

/// Rounds the number to `digits` significant digits and drops trailing zeros.
fn finish(unscaled: BigInt, scale: i64, digits: u64) -> Result<Decimal, NumberError> {
    let scale = i32::try_from(scale).map_err(|_| NumberError::TooManyDigits)?;
    let exact = Decimal { unscaled, scale };
    let surplus = digit_count(&exact.unscaled).saturating_sub(digits);
    let rounded = i64::from(exact.scale) - surplus as i64;
    let rounded = i32::try_from(rounded).map_err(|_| NumberError::TooManyDigits)?;
    Ok(exact.rounded(rounded)?.normalized())
}

/// e to the power of a number.
pub fn exponential(number: &Decimal) -> Result<Decimal, NumberError> {
    if number.unscaled.is_zero() {
        return Ok(Decimal::new(1, 0));
    }
    if number.exponent() > i64::from(MAXIMUM_EXPONENT.ilog10()) {
        return Err(NumberError::TooManyDigits);
    }
    let digits = significant_digits(number);
    // The integer digits of the argument are lost when the multiple of ln 10 is subtracted.
    let fixed = FixedPoint::new(digits + GUARD_DIGITS + number.exponent().max(0).unsigned_abs());
    let power = fixed.read(number)?;
    let (tens, rest) = power.div_mod_floor(&fixed.ln_10());
    let tens = tens.to_i64().ok_or(NumberError::TooManyDigits)?;
    finish(fixed.exponential(&rest), fixed.digits as i64 - tens, digits)
}

/// The natural logarithm of a positive number.
pub fn natural_logarithm(number: &Decimal) -> Result<Decimal, NumberError> {
    let (fixed, value, digits) = logarithm(number)?;
    finish(value, fixed.digits as i64, digits)
}

/// The logarithm to base ten of a positive number.
pub fn decimal_logarithm(number: &Decimal) -> Result<Decimal, NumberError> {
    let normal = number.normalized();
    if normal.unscaled.is_one() {
        return Ok(Decimal::new(-i64::from(normal.scale), 0));
    }
    let (fixed, value, digits) = logarithm(number)?;
    finish(fixed.divide(&value, &fixed.ln_10()), fixed.digits as i64, digits)
}

/// The natural logarithm in fixed point, and the number of digits of the result.
fn logarithm(number: &Decimal) -> Result<(FixedPoint, BigInt, u64), NumberError> {
    let digits = significant_digits(number);
    // A number close to one has a logarithm close to zero, whose leading zeros cost digits.
    let fixed = FixedPoint::new(digits * 2 + GUARD_DIGITS);
    let exponent = number.exponent();
    let mantissa_scale = digit_count(&number.unscaled);
    let mantissa_scale = i32::try_from(mantissa_scale).map_err(|_| NumberError::TooManyDigits)?;
    let (mantissa, exponent) = if exponent == 1 {
        // From one to ten: there is no multiple of ln 10 that would have to cancel out.
        (fixed.read(number)?, 0)
    } else {
        (fixed.read(&Decimal { unscaled: number.unscaled.clone(), scale: mantissa_scale })?, exponent)
    };
    let mut value = fixed.logarithm(&mantissa);
    if exponent != 0 {
        value += fixed.ln_10() * exponent;
    }
    Ok((fixed, value, digits))
}
