//! `CAST(x AS type)`: between numbers, from anything printable to text, and between points in time.

use cql_lite::types::number::Decimal;
use cql_lite::types::{CqlType, literal};

use super::arithmetic::{Number, failed};
use super::failure::CallResult;
use super::temporal;

/// The conversion of a cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cast {
    /// The bytes are unchanged.
    Identity,
    Number,
    Text,
    Temporal,
}

impl Cast {
    /// The cast from a type to another, if there is one.
    pub(super) fn between(from: &CqlType, to: &CqlType) -> Option<Cast> {
        if from == to {
            return Some(Cast::Identity);
        }
        let to_text = matches!(to, CqlType::Ascii | CqlType::Text);
        let is_temporal = |ty: &CqlType| matches!(ty, CqlType::Timestamp | CqlType::Date);
        match from {
            CqlType::Ascii if *to == CqlType::Text => Some(Cast::Identity),
            number if number.is_numeric() && to_text => Some(Cast::Text),
            // Counters exist only in counter columns: nothing is cast to a counter.
            number if number.is_numeric() && to.is_numeric() && *to != CqlType::Counter => Some(Cast::Number),
            CqlType::Inet
            | CqlType::Boolean
            | CqlType::Timeuuid
            | CqlType::Timestamp
            | CqlType::Date
            | CqlType::Time
            | CqlType::Uuid
                if to_text =>
            {
                Some(Cast::Text)
            }
            CqlType::Timeuuid | CqlType::Timestamp | CqlType::Date if is_temporal(to) => Some(Cast::Temporal),
            _ => None,
        }
    }

    pub(super) fn apply(self, from: &CqlType, to: &CqlType, value: &[u8]) -> CallResult {
        match self {
            Cast::Identity => Ok(Some(value.to_vec())),
            _ if value.is_empty() => Ok(None),
            Cast::Text => Ok(Some(literal::to_text(from, value).into_bytes())),
            Cast::Temporal => temporal::convert(from, to, value),
            Cast::Number => {
                let Some(number) = Number::read(from, value) else { return Ok(None) };
                cast_number(&number, to)
            }
        }
    }
}

/// Converts as Java converts between its number types. Converted to a decimal, a number keeps the digits with which
/// it is printed.
fn cast_number(number: &Number, to: &CqlType) -> CallResult {
    let decimal = match (number, to) {
        (Number::Integer(number), CqlType::Decimal) => Decimal::from(*number),
        (Number::Float(number), CqlType::Decimal) => Decimal::from_f32(*number).map_err(failed)?,
        (number, _) => return number.write(to).map(Some),
    };
    Ok(Some(decimal.to_wire()))
}
