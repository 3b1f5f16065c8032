//! Dates, times of day and timestamps: calendar arithmetic, Cassandra's text formats.
//!
//! The calendar is the proleptic Gregorian one. CQL dates reach from -5877641-06-23 to 5881580-07-11, so years are
//! `i64` throughout. A timestamp without a zone is in UTC.

use super::duration::{
    Duration, NANOSECONDS_PER_DAY, NANOSECONDS_PER_HOUR, NANOSECONDS_PER_MILLISECOND, NANOSECONDS_PER_MINUTE,
    NANOSECONDS_PER_SECOND,
};

/// Milliseconds in a day.
pub const MILLISECONDS_PER_DAY: i64 = 86_400_000;

/// The value of `date` for 1970-01-01.
pub const DATE_EPOCH: i64 = 1 << 31;

/// Error of parsing or computing dates and times. The texts are Cassandra's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// No format of timestamps fits.
    #[error("Unable to parse a date/time from '{text}'")]
    Timestamp {
        /// The text.
        text: String,
    },
    /// A number of milliseconds that does not fit.
    #[error("Unable to make long (for date) from: '{text}'")]
    TimestampNumber {
        /// The text.
        text: String,
    },
    /// Not `yyyy-mm-dd`.
    #[error("Unable to coerce '{text}' to a formatted date (long)")]
    Date {
        /// The text.
        text: String,
    },
    /// A number of days that is not an unsigned 32-bit number.
    #[error("Unable to make unsigned int (for date) from: '{text}'")]
    DateNumber {
        /// The text.
        text: String,
    },
    /// Not `hh:mm:ss[.fffffffff]`.
    #[error("(TimeType) Unable to coerce '{text}' to a formatted time (long)")]
    Time {
        /// The text.
        text: String,
    },
    /// A number of nanoseconds that is not within a day.
    #[error("Unable to make long (for time) from: '{text}'")]
    TimeNumber {
        /// The text.
        text: String,
    },
    /// The result of arithmetic is beyond what the type can hold.
    #[error("the resulting point in time is out of range")]
    OutOfRange,
}

/// The days from 1970-01-01 to a date of the calendar.
pub(crate) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // Years start in March, which puts the leap day at the end. Every era of 400 years has the same length.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year =
        (153 * (i64::from(month) + if month > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = (if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 }) as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since the epoch, moved by calendar months (the day of the month is cut to the month's length) and days.
pub fn add_months_and_days(days: i64, months: i64, more_days: i64) -> i64 {
    let (year, month, day) = civil_from_days(days);
    let total = year * 12 + i64::from(month) - 1 + months;
    let (year, month) = (total.div_euclid(12), total.rem_euclid(12) as u32 + 1);
    days_from_civil(year, month, day.min(days_in_month(year, month))) + more_days
}

/// A timestamp moved by a duration, whose part below a millisecond is ignored.
pub fn add_to_timestamp(unix_millis: i64, duration: &Duration) -> Result<i64, TimeError> {
    let days = add_months_and_days(
        unix_millis.div_euclid(MILLISECONDS_PER_DAY),
        i64::from(duration.months),
        i64::from(duration.days),
    );
    days.checked_mul(MILLISECONDS_PER_DAY)
        .and_then(|millis| millis.checked_add(unix_millis.rem_euclid(MILLISECONDS_PER_DAY)))
        .and_then(|millis| millis.checked_add(duration.nanoseconds / NANOSECONDS_PER_MILLISECOND))
        .ok_or(TimeError::OutOfRange)
}

/// A timestamp as `2015-05-21T11:03:02.000Z`, the form of casts and literals.
pub fn format_timestamp(unix_millis: i64) -> String {
    format_timestamp_with(unix_millis, 'T')
}

/// A timestamp as `2015-05-21 11:03:02.000Z`, the form of JSON.
pub(crate) fn format_timestamp_json(unix_millis: i64) -> String {
    format_timestamp_with(unix_millis, ' ')
}

fn format_timestamp_with(unix_millis: i64, separator: char) -> String {
    let date = format_days(unix_millis.div_euclid(MILLISECONDS_PER_DAY));
    let millis = unix_millis.rem_euclid(MILLISECONDS_PER_DAY);
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let (minutes, second) = (seconds / 60, seconds % 60);
    format!("{date}{separator}{:02}:{:02}:{second:02}.{millis:03}Z", minutes / 60, minutes % 60)
}

/// Days since the epoch as `yyyy-mm-dd`; years of more than four digits have a sign.
fn format_days(days: i64) -> String {
    let (year, month, day) = civil_from_days(days);
    match year {
        10_000.. => format!("+{year}-{month:02}-{day:02}"),
        0..10_000 => format!("{year:04}-{month:02}-{day:02}"),
        _ => format!("-{:04}-{month:02}-{day:02}", year.unsigned_abs()),
    }
}

/// A value of `date` as `yyyy-mm-dd`.
pub fn format_date(date: u32) -> String {
    format_days(i64::from(date) - DATE_EPOCH)
}

/// A value of `time` as `hh:mm:ss.nnnnnnnnn`.
pub fn format_time(nanoseconds: i64) -> String {
    let (seconds, fraction) = (nanoseconds / NANOSECONDS_PER_SECOND, nanoseconds % NANOSECONDS_PER_SECOND);
    format!("{:02}:{:02}:{:02}.{fraction:09}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The value of `date` for days since the epoch.
pub fn date_from_days(days: i64) -> Result<u32, TimeError> {
    u32::try_from(days + DATE_EPOCH).map_err(|_| TimeError::OutOfRange)
}

/// Reads a `date`: `yyyy-mm-dd`, or the raw unsigned number.
pub(crate) fn parse_date(text: &str) -> Result<u32, TimeError> {
    if is_integer(text) {
        return text.parse().map_err(|_| TimeError::DateNumber { text: text.to_owned() });
    }
    let mut scanner = Scanner(text);
    scanner
        .date()
        .filter(|_| scanner.0.is_empty())
        .and_then(|days| date_from_days(days).ok())
        .ok_or_else(|| TimeError::Date { text: text.to_owned() })
}

/// Reads a `time`: `hh:mm:ss[.fffffffff]`, or nanoseconds since midnight.
pub(crate) fn parse_time(text: &str) -> Result<i64, TimeError> {
    if is_integer(text) {
        return text
            .parse()
            .ok()
            .filter(|nanoseconds| (0..NANOSECONDS_PER_DAY).contains(nanoseconds))
            .ok_or_else(|| TimeError::TimeNumber { text: text.to_owned() });
    }
    let mut scanner = Scanner(text);
    scanner
        .time_of_day(true)
        .filter(|_| scanner.0.is_empty())
        .ok_or_else(|| TimeError::Time { text: text.to_owned() })
}

/// Reads a `timestamp` as milliseconds since the epoch: a number of milliseconds, or
/// `yyyy-mm-dd[(T| )hh:mm[:ss[.fffffffff]]][zone]`, where a zone is `Z`, `+hh`, `+hhmm`, `+hh:mm`, or a space and
/// one of these, `UTC` or `GMT`.
pub fn parse_timestamp(text: &str) -> Result<i64, TimeError> {
    if is_integer(text) {
        return text.parse().map_err(|_| TimeError::TimestampNumber { text: text.to_owned() });
    }
    let (milliseconds, _) =
        scan_timestamp(text).ok_or_else(|| TimeError::Timestamp { text: text.to_owned() })?;
    Ok(milliseconds)
}

/// Reads the time of a write as microseconds since the epoch: a number of microseconds, or the text of a `timestamp`.
pub fn parse_write_time(text: &str) -> Result<i64, TimeError> {
    let invalid = || TimeError::Timestamp { text: text.to_owned() };
    if is_integer(text) {
        return text.parse().map_err(|_| invalid());
    }
    let (milliseconds, microseconds) = scan_timestamp(text).ok_or_else(invalid)?;
    milliseconds.checked_mul(1_000).and_then(|time| time.checked_add(microseconds)).ok_or_else(invalid)
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Milliseconds since the epoch, and the microseconds of the last one.
fn scan_timestamp(text: &str) -> Option<(i64, i64)> {
    let mut scanner = Scanner(text);
    let days = scanner.date()?;
    let mut nanoseconds = 0;
    let has_time = scanner.accept('T')
        || scanner
            .0
            .strip_prefix(' ')
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
            && scanner.accept(' ');
    if has_time {
        nanoseconds = scanner.time_of_day(false)?;
    }
    let offset_minutes = if scanner.0.is_empty() { 0 } else { scanner.zone()? };
    if !scanner.0.is_empty() {
        return None;
    }
    let milliseconds = days
        .checked_mul(MILLISECONDS_PER_DAY)?
        .checked_add(nanoseconds / NANOSECONDS_PER_MILLISECOND)?
        .checked_sub(offset_minutes * 60_000)?;
    Some((milliseconds, nanoseconds % NANOSECONDS_PER_MILLISECOND / 1_000))
}

/// The unread rest of a text.
struct Scanner<'a>(&'a str);

impl Scanner<'_> {
    fn accept(&mut self, symbol: char) -> bool {
        match self.0.strip_prefix(symbol) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, symbol: char) -> Option<()> {
        self.accept(symbol).then_some(())
    }

    /// A number of at least one and at most `width` digits, and how many digits it had.
    fn digits(&mut self, width: usize) -> Option<(i64, usize)> {
        let count = self.0.bytes().take(width).take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at_checked(count)?;
        let number = digits.parse().ok()?;
        self.0 = rest;
        Some((number, count))
    }

    fn number(&mut self, width: usize, maximum: i64) -> Option<i64> {
        self.digits(width).map(|(number, _)| number).filter(|number| *number <= maximum)
    }

    /// `[+-]y-m-d` as days since the epoch.
    fn date(&mut self) -> Option<i64> {
        let negative = self.accept('-');
        if !negative {
            self.accept('+');
        }
        let year = self.number(9, i64::from(i32::MAX))?;
        let year = if negative { -year } else { year };
        self.expect('-')?;
        let month = self.number(2, 12).filter(|month| *month >= 1)? as u32;
        self.expect('-')?;
        let last = i64::from(days_in_month(year, month));
        let day = self.number(2, last).filter(|day| *day >= 1)? as u32;
        Some(days_from_civil(year, month, day))
    }

    /// `h:m[:s[.f]]` in nanoseconds.
    fn time_of_day(&mut self, seconds_required: bool) -> Option<i64> {
        let hours = self.number(2, 23)?;
        self.expect(':')?;
        let minutes = self.number(2, 59)?;
        let mut total = hours * NANOSECONDS_PER_HOUR + minutes * NANOSECONDS_PER_MINUTE;
        if self.accept(':') {
            total += self.number(2, 59)? * NANOSECONDS_PER_SECOND;
        } else if seconds_required {
            return None;
        }
        if self.accept('.') {
            let (fraction, digits) = self.digits(9)?;
            total += fraction * 10_i64.pow(9 - digits as u32);
        }
        Some(total)
    }

    /// A zone as minutes east of UTC.
    fn zone(&mut self) -> Option<i64> {
        self.accept(' ');
        for name in ["UTC", "GMT", "UT", "Z"] {
            if let Some(rest) = self.0.strip_prefix(name) {
                self.0 = rest;
                return if rest.is_empty() { Some(0) } else { self.offset() };
            }
        }
        self.offset()
    }

    /// `+hh`, `+hhmm` or `+hh:mm`
    fn offset(&mut self) -> Option<i64> {
        let negative = self.accept('-');
        if !negative {
            self.expect('+')?;
        }
        let hours = self.number(2, 18)?;
        let minutes = if self.accept(':') || !self.0.is_empty() { self.number(2, 59)? } else { 0 };
        let total = hours * 60 + minutes;
        Some(if negative { -total } else { total })
    }
}
