//! `abs`, `exp`, `log`, `log10`, `round`: the result has the type of the argument.
//!
//! For integers the function is computed as a double and truncated to the type, as Java casts.

use cql_lite::types::number::Decimal;
use cql_lite::types::{CqlType, decimal_math};
use num_traits::Signed;

use super::arithmetic::{Number, failed};
use super::failure::{CallResult, Failure};

/// A function of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MathFunction {
    Absolute,
    Exponential,
    NaturalLogarithm,
    DecimalLogarithm,
    Round,
}

/// The functions by name.
pub(super) const MATH_FUNCTIONS: [(&str, MathFunction); 5] = [
    ("abs", MathFunction::Absolute),
    ("exp", MathFunction::Exponential),
    ("log", MathFunction::NaturalLogarithm),
    ("log10", MathFunction::DecimalLogarithm),
    ("round", MathFunction::Round),
];

/// Applies a function to a value of a numeric type.
pub(super) fn apply(function: MathFunction, ty: &CqlType, value: &[u8]) -> CallResult {
    let Some(number) = Number::read(ty, value) else { return Ok(None) };
    let result = match number {
        Number::Integer(number) => match function {
            MathFunction::Absolute => Number::Integer(number.wrapping_abs()),
            MathFunction::Round => Number::Integer(number),
            other => Number::Double(of_double(other, number as f64)),
        },
        Number::Float(number) => Number::Float(match function {
            MathFunction::Absolute => number.abs(),
            // Java rounds a float to an int.
            MathFunction::Round => (f64::from(number) + 0.5).floor() as i32 as f32,
            other => of_double(other, f64::from(number)) as f32,
        }),
        Number::Double(number) => Number::Double(of_double(function, number)),
        Number::Varint(number) => Number::Varint(match function {
            MathFunction::Absolute => number.abs(),
            MathFunction::Round => number,
            other => of_decimal(other, &Decimal::from(number))?.to_integer().map_err(failed)?,
        }),
        Number::Decimal(number) => Number::Decimal(of_decimal(function, &number)?),
    };
    result.write(ty).map(Some)
}

fn of_double(function: MathFunction, number: f64) -> f64 {
    match function {
        MathFunction::Absolute => number.abs(),
        MathFunction::Exponential => number.exp(),
        MathFunction::NaturalLogarithm => number.ln(),
        MathFunction::DecimalLogarithm => number.log10(),
        // Java rounds a double to a long, halves up. Adding a half to the largest double below a half would round up.
        MathFunction::Round => {
            let floor = number.floor();
            (if number - floor >= 0.5 { floor + 1.0 } else { floor }) as i64 as f64
        }
    }
}

fn of_decimal(function: MathFunction, number: &Decimal) -> Result<Decimal, Failure> {
    match function {
        MathFunction::Absolute => Ok(number.absolute()),
        MathFunction::Round => number.rounded(0),
        MathFunction::Exponential => decimal_math::exponential(number),
        MathFunction::NaturalLogarithm if !number.unscaled.is_positive() => {
            return Err(failed("Natural log of number zero or less"));
        }
        MathFunction::NaturalLogarithm => decimal_math::natural_logarithm(number),
        MathFunction::DecimalLogarithm if !number.unscaled.is_positive() => {
            return Err(failed("Log10 of number zero or less"));
        }
        MathFunction::DecimalLogarithm => decimal_math::decimal_logarithm(number),
    }
    .map_err(failed)
}
