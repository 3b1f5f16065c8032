//! Functions on dates and times: now, conversions between points in time, `floor`.

use cql_lite::types::duration::Duration;
use cql_lite::types::{CqlType, time, timeuuid};
use uuid::Uuid;

use super::arithmetic::failed;
use super::context::CallContext;
use super::failure::{CallResult, Failure};

/// A function on dates and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TemporalFunction {
    CurrentTimeuuid,
    CurrentTimestamp,
    CurrentDate,
    CurrentTime,
    MinTimeuuid,
    MaxTimeuuid,
    ToDate,
    ToTimestamp,
    ToUnixTimestamp,
    Floor,
}

impl TemporalFunction {
    /// Whether the result depends only on the arguments.
    pub(super) fn is_pure(self) -> bool {
        !matches!(
            self,
            TemporalFunction::CurrentTimeuuid
                | TemporalFunction::CurrentTimestamp
                | TemporalFunction::CurrentDate
                | TemporalFunction::CurrentTime
        )
    }
}

/// The present time in the form that the function returns, in wire bytes.
pub(super) fn now(function: TemporalFunction, context: &CallContext) -> Vec<u8> {
    let millis = context.now_millis();
    match function {
        TemporalFunction::CurrentTimestamp => millis.to_be_bytes().to_vec(),
        TemporalFunction::CurrentDate => {
            let days = millis.div_euclid(time::MILLISECONDS_PER_DAY);
            // The clock is within the range of dates for five million years.
            time::date_from_days(days).unwrap_or_default().to_be_bytes().to_vec()
        }
        TemporalFunction::CurrentTime => {
            (millis.rem_euclid(time::MILLISECONDS_PER_DAY) * 1_000_000).to_be_bytes().to_vec()
        }
        _ => context.new_timeuuid().into_bytes().to_vec(),
    }
}

/// A point in time as milliseconds since the epoch; `None` for the empty value.
fn millis_of(ty: &CqlType, value: &[u8]) -> Option<i64> {
    Some(match ty {
        CqlType::Timestamp => i64::from_be_bytes(value.try_into().ok()?),
        CqlType::Date => {
            let days = i64::from(u32::from_be_bytes(value.try_into().ok()?)) - time::DATE_EPOCH;
            days * time::MILLISECONDS_PER_DAY
        }
        CqlType::Timeuuid => timeuuid::unix_millis(&Uuid::from_bytes(value.try_into().ok()?)),
        _ => return None,
    })
}

/// Milliseconds since the epoch as a value of a type.
fn value_of(ty: &CqlType, millis: i64) -> CallResult {
    if *ty != CqlType::Date {
        return Ok(Some(millis.to_be_bytes().to_vec()));
    }
    let date = time::date_from_days(millis.div_euclid(time::MILLISECONDS_PER_DAY)).map_err(failed)?;
    Ok(Some(date.to_be_bytes().to_vec()))
}

/// Converts a point in time to a date or timestamp.
pub(super) fn convert(from: &CqlType, to: &CqlType, value: &[u8]) -> CallResult {
    match millis_of(from, value) {
        Some(millis) => value_of(to, millis),
        None => Ok(None),
    }
}

/// Applies a function to the wire bytes of arguments of those types.
pub(super) fn apply(function: TemporalFunction, types: &[CqlType], values: &[&[u8]]) -> CallResult {
    let (Some(ty), Some(value)) = (types.first(), values.first()) else { return Ok(None) };
    let uuid =
        |make: fn(i64) -> Uuid| Ok(millis_of(ty, value).map(|millis| make(millis).into_bytes().to_vec()));
    match function {
        TemporalFunction::MinTimeuuid => uuid(timeuuid::minimum),
        TemporalFunction::MaxTimeuuid => uuid(timeuuid::maximum),
        TemporalFunction::ToDate => convert(ty, &CqlType::Date, value),
        TemporalFunction::ToTimestamp | TemporalFunction::ToUnixTimestamp => {
            convert(ty, &CqlType::Timestamp, value)
        }
        TemporalFunction::Floor => floor(ty, types, values),
        TemporalFunction::CurrentTimeuuid
        | TemporalFunction::CurrentTimestamp
        | TemporalFunction::CurrentDate
        | TemporalFunction::CurrentTime => Ok(None),
    }
}

/// `floor(time, duration[, start])`
fn floor(ty: &CqlType, types: &[CqlType], values: &[&[u8]]) -> CallResult {
    let [value, duration, start @ ..] = values else { return Ok(None) };
    let duration = Duration::from_wire(duration).map_err(failed)?;
    if *ty == CqlType::Time {
        return floor_time(value, &duration);
    }
    let start = match (start.first(), types.get(2)) {
        (Some(start), Some(start_type)) => millis_of(start_type, start),
        _ => Some(0),
    };
    let (Some(millis), Some(start)) = (millis_of(ty, value), start) else { return Ok(None) };
    if *ty == CqlType::Date && duration.nanoseconds != 0 {
        return Err(Failure::Invalid(format!(
            "The floor on date values cannot be computed for the {duration} duration as precision is below 1 day"
        )));
    }
    if duration.nanoseconds % 1_000_000 != 0 {
        return Err(Failure::Invalid(format!(
            "The floor cannot be computed for the {duration} duration as precision is below 1 millisecond"
        )));
    }
    let floored = floor_millis(millis, &duration, start)?;
    value_of(if *ty == CqlType::Date { ty } else { &CqlType::Timestamp }, floored)
}

/// The last point `start + n × duration` that is not after `millis`.
fn floor_millis(millis: i64, duration: &Duration, start: i64) -> Result<i64, Failure> {
    if start > millis {
        let message = "The floor function starting time is greater than the provided time";
        return Err(Failure::Invalid(message.to_owned()));
    }
    refuse_negative(duration)?;
    let fixed_millis =
        i64::from(duration.days) * time::MILLISECONDS_PER_DAY + duration.nanoseconds / 1_000_000;
    if duration.months == 0 {
        let elapsed = millis.checked_sub(start).ok_or_else(|| failed(time::TimeError::OutOfRange))?;
        return Ok(if fixed_millis == 0 { millis } else { millis - elapsed % fixed_millis });
    }
    // Months differ in length, so the number of steps is searched: point(n) grows with n.
    let point = |steps: i64| {
        let days = time::add_months_and_days(
            start.div_euclid(time::MILLISECONDS_PER_DAY),
            i64::from(duration.months).checked_mul(steps)?,
            0,
        );
        let moved = days.checked_mul(time::MILLISECONDS_PER_DAY)?;
        let moved = moved.checked_add(start.rem_euclid(time::MILLISECONDS_PER_DAY))?;
        moved.checked_add(fixed_millis.checked_mul(steps)?)
    };
    let is_reached = |steps: i64| point(steps).is_some_and(|reached| reached <= millis);
    let (mut low, mut high) = (0, 1);
    while is_reached(high) {
        low = high;
        high *= 2;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_reached(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    point(low).ok_or_else(|| failed(time::TimeError::OutOfRange))
}

fn refuse_negative(duration: &Duration) -> Result<(), Failure> {
    if duration.is_negative() {
        let message = "Negative durations are not supported by the floor function";
        return Err(Failure::Invalid(message.to_owned()));
    }
    Ok(())
}

fn floor_time(value: &[u8], duration: &Duration) -> CallResult {
    const NANOSECONDS_PER_DAY: i64 = 86_400_000_000_000;
    let Ok(bytes) = value.try_into() else { return Ok(None) };
    refuse_negative(duration)?;
    if duration.months != 0 || duration.days != 0 || duration.nanoseconds > NANOSECONDS_PER_DAY {
        let message = "For time values, the floor can only be computed for durations smaller that a day";
        return Err(Failure::Invalid(message.to_owned()));
    }
    let time = i64::from_be_bytes(bytes);
    let floored = if duration.nanoseconds == 0 { time } else { time - time % duration.nanoseconds };
    Ok(Some(floored.to_be_bytes().to_vec()))
}
