//! The operators `+ - * / %` and the unary minus.
//!
//! The result of an operation on two numbers has the larger size of both; it is a floating-point number if one of
//! them is: `tinyint < smallint < int < bigint < varint`, `float < double < decimal`. Integers wrap on overflow, as
//! Java's do. Dates and timestamps take durations.

use cql_lite::types::duration::Duration;
use cql_lite::types::number::{self, Decimal};
use cql_lite::types::{CqlType, time};
use num_bigint::BigInt;
use num_traits::Zero;

use super::failure::{CallResult, Failure};

/// A binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

impl Operator {
    pub(super) const ALL: [Operator; 5] =
        [Operator::Add, Operator::Subtract, Operator::Multiply, Operator::Divide, Operator::Modulo];

    pub(super) fn symbol(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Modulo => "%",
        }
    }

    /// The name of the function that executes the operator.
    pub(super) fn function_name(self) -> &'static str {
        match self {
            Operator::Add => "_add",
            Operator::Subtract => "_substract",
            Operator::Multiply => "_multiply",
            Operator::Divide => "_divide",
            Operator::Modulo => "_modulo",
        }
    }
}

/// The types of arithmetic operands, in the order in which candidates are tried.
pub(super) const NUMERIC_TYPES: [CqlType; 9] = [
    CqlType::Tinyint,
    CqlType::Smallint,
    CqlType::Int,
    CqlType::Bigint,
    CqlType::Float,
    CqlType::Double,
    CqlType::Decimal,
    CqlType::Varint,
    CqlType::Counter,
];

/// The type of the result of an operation on two numbers.
pub(super) fn numeric_result(left: &CqlType, right: &CqlType) -> CqlType {
    /// Size in bytes; numbers of unlimited size count as the largest.
    fn size(ty: &CqlType) -> u8 {
        match ty {
            CqlType::Tinyint => 1,
            CqlType::Smallint => 2,
            CqlType::Int | CqlType::Float => 4,
            CqlType::Bigint | CqlType::Counter | CqlType::Double => 8,
            _ => u8::MAX,
        }
    }
    let is_floating = |ty: &CqlType| matches!(ty, CqlType::Float | CqlType::Double | CqlType::Decimal);
    match (size(left).max(size(right)), is_floating(left) || is_floating(right)) {
        (1, _) => CqlType::Tinyint,
        (2, _) => CqlType::Smallint,
        (4, false) => CqlType::Int,
        (4, true) => CqlType::Float,
        (8, false) => CqlType::Bigint,
        (8, true) => CqlType::Double,
        (_, false) => CqlType::Varint,
        (_, true) => CqlType::Decimal,
    }
}

/// A number of any type.
#[derive(Debug, Clone)]
pub(super) enum Number {
    Integer(i64),
    Float(f32),
    Double(f64),
    Varint(BigInt),
    Decimal(Decimal),
}

impl Number {
    /// Reads wire bytes. `None` for the empty value and for bytes that are not a value of the type.
    pub(super) fn read(ty: &CqlType, bytes: &[u8]) -> Option<Number> {
        if bytes.is_empty() {
            return None;
        }
        Some(match ty {
            CqlType::Tinyint => Number::Integer(i64::from(i8::from_be_bytes(bytes.try_into().ok()?))),
            CqlType::Smallint => Number::Integer(i64::from(i16::from_be_bytes(bytes.try_into().ok()?))),
            CqlType::Int => Number::Integer(i64::from(i32::from_be_bytes(bytes.try_into().ok()?))),
            CqlType::Bigint | CqlType::Counter => Number::Integer(i64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Float => Number::Float(f32::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Double => Number::Double(f64::from_be_bytes(bytes.try_into().ok()?)),
            CqlType::Varint => Number::Varint(number::varint_from_wire(bytes)),
            CqlType::Decimal => Number::Decimal(Decimal::from_wire(bytes)?),
            _ => return None,
        })
    }

    /// The integer part in 64 bits, as Java's `longValue`.
    pub(super) fn to_i64(&self) -> Result<i64, Failure> {
        Ok(match self {
            Number::Integer(number) => *number,
            Number::Float(number) => *number as i64,
            Number::Double(number) => *number as i64,
            Number::Varint(number) => number::low_i64(number),
            Number::Decimal(number) => number::low_i64(&number.to_integer().map_err(failed)?),
        })
    }

    /// The integer part in 32 bits, as Java's `intValue`: floating-point numbers saturate, integers are truncated.
    pub(super) fn to_i32(&self) -> Result<i32, Failure> {
        Ok(match self {
            Number::Float(number) => *number as i32,
            Number::Double(number) => *number as i32,
            other => other.to_i64()? as i32,
        })
    }

    pub(super) fn to_f32(&self) -> f32 {
        match self {
            Number::Integer(number) => *number as f32,
            Number::Float(number) => *number,
            Number::Double(number) => *number as f32,
            Number::Varint(number) => Decimal::from(number.clone()).to_f32(),
            Number::Decimal(number) => number.to_f32(),
        }
    }

    pub(super) fn to_f64(&self) -> f64 {
        match self {
            Number::Integer(number) => *number as f64,
            Number::Float(number) => f64::from(*number),
            Number::Double(number) => *number,
            Number::Varint(number) => Decimal::from(number.clone()).to_f64(),
            Number::Decimal(number) => number.to_f64(),
        }
    }

    pub(super) fn to_varint(&self) -> Result<BigInt, Failure> {
        match self {
            Number::Varint(number) => Ok(number.clone()),
            Number::Decimal(number) => number.to_integer().map_err(failed),
            other => Ok(BigInt::from(other.to_i64()?)),
        }
    }

    /// The number as an operand of decimal arithmetic. An integer gets a digit after the point, as in Cassandra.
    pub(super) fn to_decimal(&self) -> Result<Decimal, Failure> {
        match self {
            Number::Integer(number) => Ok(Decimal::new(BigInt::from(*number) * 10u8, 1)),
            Number::Float(number) => Decimal::from_f64(f64::from(*number)).map_err(failed),
            Number::Double(number) => Decimal::from_f64(*number).map_err(failed),
            Number::Varint(number) => Ok(Decimal::from(number.clone())),
            Number::Decimal(number) => Ok(number.clone()),
        }
    }

    /// The wire bytes of the number as a value of a numeric type.
    pub(super) fn write(&self, ty: &CqlType) -> Result<Vec<u8>, Failure> {
        Ok(match ty {
            CqlType::Tinyint => (self.to_i32()? as i8).to_be_bytes().to_vec(),
            CqlType::Smallint => (self.to_i32()? as i16).to_be_bytes().to_vec(),
            CqlType::Int => self.to_i32()?.to_be_bytes().to_vec(),
            CqlType::Bigint | CqlType::Counter => self.to_i64()?.to_be_bytes().to_vec(),
            CqlType::Float => self.to_f32().to_be_bytes().to_vec(),
            CqlType::Double => self.to_f64().to_be_bytes().to_vec(),
            CqlType::Varint => self.to_varint()?.to_signed_bytes_be(),
            _ => self.to_decimal()?.to_wire(),
        })
    }
}

/// Turns an error of a value into the failure of the call.
pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Execution(error.to_string())
}

/// Applies an operator to operands of those types.
pub(super) fn operate(
    operator: Operator,
    types: &[CqlType],
    result: &CqlType,
    left: &[u8],
    right: &[u8],
) -> CallResult {
    let (Some(left_type), Some(right_type)) = (types.first(), types.get(1)) else { return Ok(None) };
    if *right_type == CqlType::Duration {
        return move_by_duration(operator, left_type, left, right);
    }
    let (Some(left), Some(right)) = (Number::read(left_type, left), Number::read(right_type, right)) else {
        return Ok(None);
    };
    compute(operator, result, &left, &right)?.write(result).map(Some)
}

fn compute(operator: Operator, result: &CqlType, left: &Number, right: &Number) -> Result<Number, Failure> {
    Ok(match result {
        CqlType::Float => {
            let (a, b) = (left.to_f32(), right.to_f32());
            Number::Float(match operator {
                Operator::Add => a + b,
                Operator::Subtract => a - b,
                Operator::Multiply => a * b,
                Operator::Divide => a / b,
                Operator::Modulo => a % b,
            })
        }
        CqlType::Double => {
            let (a, b) = (left.to_f64(), right.to_f64());
            Number::Double(match operator {
                Operator::Add => a + b,
                Operator::Subtract => a - b,
                Operator::Multiply => a * b,
                Operator::Divide => a / b,
                Operator::Modulo => a % b,
            })
        }
        CqlType::Varint => {
            let (a, b) = (left.to_varint()?, right.to_varint()?);
            if b.is_zero() && matches!(operator, Operator::Divide | Operator::Modulo) {
                return Err(failed("BigInteger divide by zero"));
            }
            Number::Varint(match operator {
                Operator::Add => a + b,
                Operator::Subtract => a - b,
                Operator::Multiply => a * b,
                Operator::Divide => a / b,
                Operator::Modulo => a % b,
            })
        }
        CqlType::Decimal => {
            let (a, b) = (left.to_decimal()?, right.to_decimal()?);
            let computed = match operator {
                Operator::Add => a.add(&b),
                Operator::Subtract => a.subtract(&b),
                Operator::Multiply => a.multiply(&b),
                Operator::Divide => a.divide(&b),
                Operator::Modulo if b.unscaled.is_zero() => {
                    let problem =
                        if a.unscaled.is_zero() { "Division undefined" } else { "Division by zero" };
                    return Err(failed(problem));
                }
                Operator::Modulo => a.remainder(&b),
            };
            Number::Decimal(computed.map_err(failed)?)
        }
        _ => {
            let (a, b) = (left.to_i64()?, right.to_i64()?);
            if b == 0 && matches!(operator, Operator::Divide | Operator::Modulo) {
                return Err(failed("/ by zero"));
            }
            Number::Integer(match operator {
                Operator::Add => a.wrapping_add(b),
                Operator::Subtract => a.wrapping_sub(b),
                Operator::Multiply => a.wrapping_mul(b),
                Operator::Divide => a.wrapping_div(b),
                Operator::Modulo => a.wrapping_rem(b),
            })
        }
    })
}

/// The negated number; the smallest integers are unchanged.
pub(super) fn negate(ty: &CqlType, value: &[u8]) -> CallResult {
    let Some(number) = Number::read(ty, value) else { return Ok(None) };
    let negated = match number {
        Number::Integer(number) => Number::Integer(number.wrapping_neg()),
        Number::Float(number) => Number::Float(-number),
        Number::Double(number) => Number::Double(-number),
        Number::Varint(number) => Number::Varint(-number),
        Number::Decimal(number) => Number::Decimal(number.negate()),
    };
    negated.write(ty).map(Some)
}

/// A timestamp or date plus or minus a duration.
fn move_by_duration(operator: Operator, ty: &CqlType, value: &[u8], duration: &[u8]) -> CallResult {
    let duration = Duration::from_wire(duration).map_err(failed)?;
    let applied = if operator == Operator::Subtract { duration.negate() } else { duration };
    if *ty == CqlType::Date {
        let Ok(bytes) = value.try_into() else { return Ok(None) };
        if duration.nanoseconds != 0 {
            return Err(failed(format!("The duration must have a day precision. Was: {duration}")));
        }
        let days = i64::from(u32::from_be_bytes(bytes)) - time::DATE_EPOCH;
        let moved = time::add_months_and_days(days, i64::from(applied.months), i64::from(applied.days));
        return Ok(Some(time::date_from_days(moved).map_err(failed)?.to_be_bytes().to_vec()));
    }
    let Ok(bytes) = value.try_into() else { return Ok(None) };
    if duration.nanoseconds % 1_000_000 != 0 {
        return Err(failed(format!("The duration must have a millisecond precision. Was: {duration}")));
    }
    let moved = time::add_to_timestamp(i64::from_be_bytes(bytes), &applied).map_err(failed)?;
    Ok(Some(moved.to_be_bytes().to_vec()))
}
