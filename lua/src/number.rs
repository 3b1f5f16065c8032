//! Numbers of CQL that Lua has none for: `varint` beyond 64 bits, and `decimal`.
//!
//! They are values of a type of their own, exact in `+`, `-`, `*` and comparisons with each other and with Lua's integers. With Lua's
//! floating-point numbers, and for `/`, they become one. `..` and `tostring` give their digits.

use std::cell::Cell;

use cql_lite::types::number::Decimal;
use mlua::{Error, MetaMethod, Result, UserData, UserDataMethods, Value};
use num_bigint::BigInt;
use num_traits::ToPrimitive;
use thiserror::Error;

/// Most bits of the digits of a result: `x = x * x` would grow without end.
const BITS_MAX: u64 = 1 << 14;
/// Furthest decimal point of an operand: to align two numbers writes their digits out.
const SCALE_MAX: u32 = 4_096;
/// Most bytes of a text that is read as a number: more than those bounds need. The time goes by the square of the digits.
const TEXT_BYTES_MAX: usize = 10_000;

/// The reason why there is no number.
#[derive(Debug, Error)]
pub enum NumberProblem {
    #[error("a number has too many digits")]
    TooLong,
    #[error("the string is no number")]
    NoNumber,
}

/// Most memory of the digits of all numbers on a thread: the bound of a state does not count them.
const DIGITS_BYTES_MAX: usize = 16 << 20;

thread_local! {
    /// The memory of the digits of all numbers.
    static DIGITS_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// A number in Lua.
#[derive(Debug)]
pub struct Exact {
    pub number: Decimal,
    digits_bytes: usize,
}

impl Drop for Exact {
    fn drop(&mut self) {
        DIGITS_BYTES.set(DIGITS_BYTES.get().saturating_sub(self.digits_bytes));
    }
}

/// The operand of an operation.
enum Operand {
    Exact(Decimal),
    Float(f64),
}

impl Exact {
    /// An integer: one of Lua's if it is in their range.
    pub fn integer(number: BigInt, lua: &mlua::Lua) -> Result<Value> {
        match number.to_i64() {
            Some(small) => Ok(Value::Integer(small)),
            None => Self::value(Decimal::from(number), lua),
        }
    }

    pub fn value(number: Decimal, lua: &mlua::Lua) -> Result<Value> {
        // Also what a small number takes.
        let digits_bytes = 16 + usize::try_from(number.unscaled.bits() / 8).unwrap_or(usize::MAX);
        if DIGITS_BYTES.get().saturating_add(digits_bytes) > DIGITS_BYTES_MAX {
            // Most may be garbage.
            lua.gc_collect()?;
            if DIGITS_BYTES.get().saturating_add(digits_bytes) > DIGITS_BYTES_MAX {
                return Err(Error::MemoryError("not enough memory".to_owned()));
            }
        }
        DIGITS_BYTES.set(DIGITS_BYTES.get() + digits_bytes);
        Ok(Value::UserData(lua.create_userdata(Self { number, digits_bytes })?))
    }
}

fn operand(value: &Value) -> Result<Operand> {
    Ok(match value {
        Value::Integer(integer) => Operand::Exact(Decimal::from(*integer)),
        Value::Number(number) => Operand::Float(*number),
        Value::UserData(data) => {
            let number = data.borrow::<Exact>()?;
            check_digits(&number.number).map_err(Error::runtime)?;
            Operand::Exact(number.number.clone())
        }
        Value::String(text) => match from_text(&text.to_str()?) {
            Ok(number) => Operand::Exact(number),
            Err(NumberProblem::NoNumber) => {
                return Err(Error::runtime("attempt to perform arithmetic on a string value"));
            }
            Err(problem) => return Err(Error::runtime(problem)),
        },
        other => {
            return Err(Error::runtime(format!(
                "attempt to perform arithmetic on a {} value",
                other.type_name()
            )));
        }
    })
}

fn float(operand: &Operand) -> f64 {
    match operand {
        Operand::Exact(number) => number.to_f64(),
        Operand::Float(number) => *number,
    }
}

/// A number in a text.
pub fn from_text(text: &str) -> std::result::Result<Decimal, NumberProblem> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(NumberProblem::TooLong);
    }
    text.trim().parse().map_err(|_| NumberProblem::NoNumber)
}

/// Whether the digits of a number may be worked out. The arguments of a function may have more.
pub fn check_digits(number: &Decimal) -> std::result::Result<(), NumberProblem> {
    if number.unscaled.bits() > BITS_MAX { Err(NumberProblem::TooLong) } else { Ok(()) }
}

/// Whether a number may be aligned with others.
pub fn check(number: &Decimal) -> std::result::Result<(), NumberProblem> {
    check_digits(number)?;
    if number.scale.unsigned_abs() > SCALE_MAX { Err(NumberProblem::TooLong) } else { Ok(()) }
}

fn operate(
    lua: &mlua::Lua,
    operands: &(Value, Value),
    exact: impl Fn(&Decimal, &Decimal) -> Option<Decimal>,
    inexact: impl Fn(f64, f64) -> f64,
) -> Result<Value> {
    match (operand(&operands.0)?, operand(&operands.1)?) {
        (Operand::Exact(left), Operand::Exact(right)) => {
            check(&left).map_err(Error::runtime)?;
            check(&right).map_err(Error::runtime)?;
            let result = exact(&left, &right).ok_or_else(|| Error::runtime("a number is out of range"))?;
            check(&result).map_err(Error::runtime)?;
            Exact::value(result, lua)
        }
        (left, right) => Ok(Value::Number(inexact(float(&left), float(&right)))),
    }
}

fn compare(operands: &(Value, Value), holds: impl Fn(std::cmp::Ordering) -> bool) -> Result<bool> {
    match (operand(&operands.0)?, operand(&operands.1)?) {
        (Operand::Exact(left), Operand::Exact(right)) => {
            check(&left).map_err(Error::runtime)?;
            check(&right).map_err(Error::runtime)?;
            Ok(holds(left.cmp(&right)))
        }
        (left, right) => Ok(float(&left).partial_cmp(&float(&right)).is_some_and(holds)),
    }
}

impl UserData for Exact {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_function(MetaMethod::Add, |lua, operands: (Value, Value)| {
            operate(lua, &operands, |a, b| a.add(b).ok(), |a, b| a + b)
        });
        methods.add_meta_function(MetaMethod::Sub, |lua, operands: (Value, Value)| {
            operate(lua, &operands, |a, b| a.subtract(b).ok(), |a, b| a - b)
        });
        methods.add_meta_function(MetaMethod::Mul, |lua, operands: (Value, Value)| {
            operate(lua, &operands, |a, b| a.multiply(b).ok(), |a, b| a * b)
        });
        methods.add_meta_function(MetaMethod::Div, |_, operands: (Value, Value)| {
            Ok(float(&operand(&operands.0)?) / float(&operand(&operands.1)?))
        });
        methods.add_meta_method(MetaMethod::Unm, |lua, this, ()| {
            check_digits(&this.number).map_err(Error::runtime)?;
            Exact::value(this.number.negate(), lua)
        });
        methods.add_meta_function(MetaMethod::Eq, |_, operands: (Value, Value)| {
            compare(&operands, std::cmp::Ordering::is_eq)
        });
        methods.add_meta_function(MetaMethod::Lt, |_, operands: (Value, Value)| {
            compare(&operands, std::cmp::Ordering::is_lt)
        });
        methods.add_meta_function(MetaMethod::Le, |_, operands: (Value, Value)| {
            compare(&operands, std::cmp::Ordering::is_le)
        });
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| {
            check_digits(&this.number).map_err(Error::runtime)?;
            Ok(this.number.to_string())
        });
        methods.add_meta_function(MetaMethod::Concat, |lua, (left, right): (Value, Value)| {
            let (left, right) = (joined(&left)?, joined(&right)?);
            lua.create_string([left, right].concat())
        });
    }
}

/// The bytes of an operand of `..`.
fn joined(value: &Value) -> Result<Vec<u8>> {
    Ok(match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::UserData(_) | Value::Integer(_) | Value::Number(_) => value.to_string()?.into_bytes(),
        other => {
            return Err(Error::runtime(format!("attempt to concatenate a {} value", other.type_name())));
        }
    })
}
