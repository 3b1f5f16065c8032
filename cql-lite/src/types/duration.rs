//! `duration`: months, days and nanoseconds, all of one sign.
//!
//! The wire bytes are three zigzag variable-length integers. Durations are not ordered: how many days a month
//! has depends on the month.

use std::fmt;

use super::codec;
use super::value_error::ValueError;

pub(crate) const NANOSECONDS_PER_MICROSECOND: i64 = 1_000;
pub(crate) const NANOSECONDS_PER_MILLISECOND: i64 = 1_000_000;
pub(crate) const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;
pub(crate) const NANOSECONDS_PER_MINUTE: i64 = 60 * NANOSECONDS_PER_SECOND;
pub(crate) const NANOSECONDS_PER_HOUR: i64 = 60 * NANOSECONDS_PER_MINUTE;
pub(crate) const NANOSECONDS_PER_DAY: i64 = 24 * NANOSECONDS_PER_HOUR;

/// A length of time in calendar units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Duration {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

/// Why text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text has none of the three formats.
    #[error("Unable to convert '{text}' to a duration")]
    Syntax {
        /// The text.
        text: String,
    },
    /// A unit occurs twice.
    #[error("Invalid duration. The {unit} are specified multiple times")]
    RepeatedUnit {
        /// The unit's plural name.
        unit: &'static str,
    },
    /// Units are not from the largest to the smallest.
    #[error("Invalid duration. The {unit} should be after {later}")]
    UnitOrder {
        /// The larger unit, which is written after a smaller one.
        unit: &'static str,
        /// The unit before it in the text.
        later: &'static str,
    },
    /// A total does not fit.
    #[error("Invalid duration. The total number of {unit} must be less or equal to {maximum}")]
    TooLarge {
        /// The unit's plural name.
        unit: &'static str,
        /// The largest number allowed.
        maximum: i64,
    },
}

impl Duration {
    /// Reads the wire bytes.
    pub fn from_wire(bytes: &[u8]) -> Result<Duration, ValueError> {
        if bytes.len() < 3 {
            return Err(ValueError::DurationTooShort { length: bytes.len() });
        }
        let mut rest = bytes;
        let mut take = || codec::take_signed_vint(&mut rest);
        let (Some(months), Some(days), Some(nanoseconds)) = (take(), take(), take()) else {
            return Err(ValueError::DurationTooShort { length: bytes.len() });
        };
        let narrow = |number: i64, unit| {
            i32::try_from(number).map_err(|_| ValueError::DurationPartTooLarge { unit, number })
        };
        let (months, days) = (narrow(months, "months")?, narrow(days, "days")?);
        let negative = months < 0 || days < 0 || nanoseconds < 0;
        let positive = months > 0 || days > 0 || nanoseconds > 0;
        if negative && positive {
            return Err(ValueError::DurationSigns { months, days, nanoseconds });
        }
        Ok(Duration { months, days, nanoseconds })
    }

    /// Appends the wire bytes.
    pub(crate) fn write_wire(&self, out: &mut Vec<u8>) {
        codec::write_signed_vint(i64::from(self.months), out);
        codec::write_signed_vint(i64::from(self.days), out);
        codec::write_signed_vint(self.nanoseconds, out);
    }

    /// Whether any part is negative.
    pub fn is_negative(&self) -> bool {
        self.months < 0 || self.days < 0 || self.nanoseconds < 0
    }

    /// The duration with the sign changed.
    #[must_use]
    pub fn negate(&self) -> Duration {
        Duration {
            months: self.months.wrapping_neg(),
            days: self.days.wrapping_neg(),
            nanoseconds: self.nanoseconds.wrapping_neg(),
        }
    }

    /// Reads one of the three formats: `1y3mo2h`, ISO 8601 `P1Y3MT2H`, `P3W`, or `P0001-03-00T02:00:00`, each
    /// with an optional sign before it.
    pub fn parse(text: &str) -> Result<Duration, DurationError> {
        let (negative, body) = match text.strip_prefix('-') {
            Some(body) => (true, body),
            None => (false, text),
        };
        let builder =
            if let Some(iso) = body.strip_prefix(['P', 'p']) { parse_iso(iso) } else { parse_units(body) };
        let builder = match builder {
            Ok(builder) => builder,
            Err(ParseFailure::Syntax) => return Err(DurationError::Syntax { text: text.to_owned() }),
            Err(ParseFailure::Content(error)) => return Err(error),
        };
        builder.finish(negative)
    }
}

/// Cassandra's short form: `1y2mo3d4h5m6s7ms8us9ns`; the zero duration prints nothing.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_negative() {
            f.write_str("-")?;
        }
        let months = self.months.unsigned_abs();
        let days = self.days.unsigned_abs();
        let mut rest = self.nanoseconds.unsigned_abs();
        for (amount, symbol) in [(months / 12, "y"), (months % 12, "mo"), (days, "d")] {
            if amount > 0 {
                write!(f, "{amount}{symbol}")?;
            }
        }
        for (unit, symbol) in [
            (NANOSECONDS_PER_HOUR, "h"),
            (NANOSECONDS_PER_MINUTE, "m"),
            (NANOSECONDS_PER_SECOND, "s"),
            (NANOSECONDS_PER_MILLISECOND, "ms"),
            (NANOSECONDS_PER_MICROSECOND, "us"),
            (1, "ns"),
        ] {
            let amount = rest / unit.unsigned_abs();
            rest %= unit.unsigned_abs();
            if amount > 0 {
                write!(f, "{amount}{symbol}")?;
            }
        }
        Ok(())
    }
}

enum ParseFailure {
    /// The text does not have the format.
    Syntax,
    /// The text has the format but breaks a rule.
    Content(DurationError),
}

/// The units, largest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Years,
    Months,
    Weeks,
    Days,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Years => "years",
            Unit::Months => "months",
            Unit::Weeks => "weeks",
            Unit::Days => "days",
            Unit::Hours => "hours",
            Unit::Minutes => "minutes",
            Unit::Seconds => "seconds",
            Unit::Milliseconds => "milliseconds",
            Unit::Microseconds => "microseconds",
            Unit::Nanoseconds => "nanoseconds",
        }
    }

    fn from_symbol(symbol: &str) -> Option<Unit> {
        Some(match symbol {
            "y" => Unit::Years,
            "mo" => Unit::Months,
            "w" => Unit::Weeks,
            "d" => Unit::Days,
            "h" => Unit::Hours,
            "m" => Unit::Minutes,
            "s" => Unit::Seconds,
            "ms" => Unit::Milliseconds,
            "us" | "µs" => Unit::Microseconds,
            "ns" => Unit::Nanoseconds,
            _ => return None,
        })
    }
}

/// Collects amounts and checks the totals as Cassandra's builder does.
#[derive(Default)]
struct Builder {
    months: i64,
    days: i64,
    nanoseconds: i64,
    last: Option<Unit>,
}

impl Builder {
    fn add(&mut self, amount: i64, unit: Unit) -> Result<(), ParseFailure> {
        if let Some(last) = self.last {
            if last == unit {
                return Err(ParseFailure::Content(DurationError::RepeatedUnit { unit: unit.name() }));
            }
            if last > unit {
                let error = DurationError::UnitOrder { unit: last.name(), later: unit.name() };
                return Err(ParseFailure::Content(error));
            }
        }
        self.last = Some(unit);
        let (total, factor, what, maximum) = match unit {
            Unit::Years => (&mut self.months, 12, "months", i64::from(i32::MAX)),
            Unit::Months => (&mut self.months, 1, "months", i64::from(i32::MAX)),
            Unit::Weeks => (&mut self.days, 7, "days", i64::from(i32::MAX)),
            Unit::Days => (&mut self.days, 1, "days", i64::from(i32::MAX)),
            Unit::Hours => (&mut self.nanoseconds, NANOSECONDS_PER_HOUR, "nanoseconds", i64::MAX),
            Unit::Minutes => (&mut self.nanoseconds, NANOSECONDS_PER_MINUTE, "nanoseconds", i64::MAX),
            Unit::Seconds => (&mut self.nanoseconds, NANOSECONDS_PER_SECOND, "nanoseconds", i64::MAX),
            Unit::Milliseconds => {
                (&mut self.nanoseconds, NANOSECONDS_PER_MILLISECOND, "nanoseconds", i64::MAX)
            }
            Unit::Microseconds => {
                (&mut self.nanoseconds, NANOSECONDS_PER_MICROSECOND, "nanoseconds", i64::MAX)
            }
            Unit::Nanoseconds => (&mut self.nanoseconds, 1, "nanoseconds", i64::MAX),
        };
        *total = amount
            .checked_mul(factor)
            .and_then(|product| total.checked_add(product))
            .filter(|sum| *sum <= maximum)
            .ok_or(ParseFailure::Content(DurationError::TooLarge { unit: what, maximum }))?;
        Ok(())
    }

    fn finish(self, negative: bool) -> Result<Duration, DurationError> {
        let narrow = |number: i64, unit| {
            i32::try_from(number).map_err(|_| DurationError::TooLarge { unit, maximum: i64::from(i32::MAX) })
        };
        let duration = Duration {
            months: narrow(self.months, "months")?,
            days: narrow(self.days, "days")?,
            nanoseconds: self.nanoseconds,
        };
        Ok(if negative { duration.negate() } else { duration })
    }
}

/// Splits a decimal number off the front.
fn take_number(text: &mut &str) -> Result<i64, ParseFailure> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    if digits.is_empty() {
        return Err(ParseFailure::Syntax);
    }
    *text = rest;
    digits.parse().map_err(|_| {
        ParseFailure::Content(DurationError::TooLarge { unit: "nanoseconds", maximum: i64::MAX })
    })
}

fn parse_units(text: &str) -> Result<Builder, ParseFailure> {
    let lowercase = text.to_lowercase();
    let mut rest = lowercase.as_str();
    let mut builder = Builder::default();
    if rest.is_empty() {
        return Err(ParseFailure::Syntax);
    }
    while !rest.is_empty() {
        let amount = take_number(&mut rest)?;
        let end = rest.find(|character: char| character.is_ascii_digit()).unwrap_or(rest.len());
        let (symbol, after) = rest.split_at(end);
        // Both the micro sign and the Greek letter are in use.
        let unit = Unit::from_symbol(&symbol.replace('μ', "µ")).ok_or(ParseFailure::Syntax)?;
        builder.add(amount, unit)?;
        rest = after;
    }
    Ok(builder)
}

/// The text after the `P`.
fn parse_iso(text: &str) -> Result<Builder, ParseFailure> {
    if text.contains('-') {
        return parse_iso_alternative(text);
    }
    let uppercase = text.to_uppercase();
    let (date, time) = uppercase.split_once('T').unwrap_or((&uppercase, ""));
    let mut builder = Builder::default();
    let date_units = [('Y', Unit::Years), ('M', Unit::Months), ('W', Unit::Weeks), ('D', Unit::Days)];
    let time_units = [('H', Unit::Hours), ('M', Unit::Minutes), ('S', Unit::Seconds)];
    if date.contains('W') && (date.len() != date.trim_end_matches('W').len() + 1 || !time.is_empty()) {
        return Err(ParseFailure::Syntax);
    }
    let parts: [(&str, &[(char, Unit)]); 2] = [(date, &date_units), (time, &time_units)];
    for (mut rest, units) in parts {
        while !rest.is_empty() {
            let amount = take_number(&mut rest)?;
            let symbol = rest.chars().next().ok_or(ParseFailure::Syntax)?;
            let unit = units.iter().find(|(letter, _)| *letter == symbol).ok_or(ParseFailure::Syntax)?.1;
            rest = rest.get(symbol.len_utf8()..).unwrap_or_default();
            builder.add(amount, unit)?;
        }
    }
    Ok(builder)
}

/// `0001-03-00T02:00:00`
fn parse_iso_alternative(text: &str) -> Result<Builder, ParseFailure> {
    let (date, time) = text.split_once(['T', 't']).ok_or(ParseFailure::Syntax)?;
    let mut builder = Builder::default();
    let parts = [
        (date, '-', [(Unit::Years, 4), (Unit::Months, 2), (Unit::Days, 2)]),
        (time, ':', [(Unit::Hours, 2), (Unit::Minutes, 2), (Unit::Seconds, 2)]),
    ];
    for (part, separator, units) in parts {
        let fields: Vec<&str> = part.split(separator).collect();
        if fields.len() != units.len() {
            return Err(ParseFailure::Syntax);
        }
        for (field, (unit, width)) in fields.iter().zip(units) {
            let mut rest = *field;
            let amount = take_number(&mut rest)?;
            if field.len() != width || !rest.is_empty() {
                return Err(ParseFailure::Syntax);
            }
            builder.add(amount, unit)?;
        }
    }
    Ok(builder)
}
