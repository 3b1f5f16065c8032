//! Values as text, as cqlsh prints them.
//!
//! Two styles: for the screen (floats rounded, control characters made visible), and for CSV files (everything as it
//! is, so that [`crate::field`] reads the same value back). Inside of collections, text-like values are quoted.

use std::fmt::Write as _;

use cql_lite::types::{CqlType, Value, literal, number::Decimal, time};

/// Significant digits of `float` on the screen.
const FLOAT_DIGITS: usize = 5;
/// Significant digits of `double` on the screen.
const DOUBLE_DIGITS: usize = 12;
const MILLISECONDS_PER_DAY: i64 = 86_400_000;
/// Characters that structure collections, tuples and user types.
pub const SEPARATORS: [char; 8] = [',', ':', '[', ']', '{', '}', '(', ')'];

/// The purpose of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style<'a> {
    Screen,
    Csv {
        /// The text for null within tuples and user types.
        null: &'a str,
    },
}

/// The text of a value in wire format. Bytes that are not a value of the type are printed as a blob.
pub fn format_bytes(cql_type: &CqlType, bytes: &[u8], style: Style<'_>) -> String {
    match Value::decode(cql_type, bytes) {
        Ok(value) => format_value(cql_type, &value, style, false),
        Err(_) => literal::format_hex(bytes),
    }
}

fn format_value(cql_type: &CqlType, value: &Value, style: Style<'_>, nested: bool) -> String {
    let quoted = |text: String| if nested { literal::quote_text(&text) } else { text };
    match value {
        Value::Empty => String::new(),
        Value::Ascii(text) | Value::Text(text) => match style {
            Style::Screen => quoted(visible(text)),
            Style::Csv { .. } => quoted(text.clone()),
        },
        Value::Bigint(number) | Value::Counter(number) => number.to_string(),
        Value::Blob(bytes) => literal::format_hex(bytes),
        Value::Boolean(truth) => if *truth { "True" } else { "False" }.to_owned(),
        Value::Date(date) => quoted(format_date(*date, style)),
        Value::Decimal(decimal) => format_decimal(decimal),
        Value::Double(number) => match style {
            Style::Screen => format_float(*number, DOUBLE_DIGITS),
            Style::Csv { .. } => special_float(*number).map_or_else(|| number.to_string(), str::to_owned),
        },
        Value::Float(number) => match style {
            Style::Screen => format_float(f64::from(*number), FLOAT_DIGITS),
            Style::Csv { .. } => {
                special_float(f64::from(*number)).map_or_else(|| number.to_string(), str::to_owned)
            }
        },
        Value::Duration(duration) => duration.to_string(),
        Value::Inet(address) => quoted(address.to_string()),
        Value::Int(number) => number.to_string(),
        Value::Smallint(number) => number.to_string(),
        Value::Tinyint(number) => number.to_string(),
        Value::Time(nanoseconds) => quoted(time::format_time(*nanoseconds)),
        Value::Timestamp(unix_ms) => quoted(format_timestamp(*unix_ms, style)),
        Value::Timeuuid(id) | Value::Uuid(id) => id.to_string(),
        Value::Varint(number) => number.to_string(),
        Value::List(elements) | Value::Vector(elements) => {
            bracketed("[", "]", element_texts(cql_type, elements, style))
        }
        Value::Set(elements) => bracketed("{", "}", element_texts(cql_type, elements, style)),
        Value::Map(entries) => {
            let CqlType::Map { key: key_type, value: value_type, .. } = cql_type else {
                return String::new();
            };
            let texts = entries.iter().map(|(key, value)| {
                let key = format_value(key_type, key, style, true);
                format!("{key}: {}", format_value(value_type, value, style, true))
            });
            bracketed("{", "}", texts)
        }
        Value::Tuple(fields) => {
            let CqlType::Tuple(types) = cql_type else { return String::new() };
            let texts = types
                .iter()
                .enumerate()
                .map(|(index, field)| format_field(field, fields.get(index).and_then(Option::as_ref), style));
            bracketed("(", ")", texts)
        }
        Value::UserType(fields) => {
            let CqlType::UserType { definition, .. } = cql_type else { return String::new() };
            let types = definition.field_names.iter().zip(&definition.field_types);
            let texts = types.enumerate().map(|(index, (name, field))| {
                let name = format_field_name(name, style);
                format!("{name}: {}", format_field(field, fields.get(index).and_then(Option::as_ref), style))
            });
            bracketed("{", "}", texts)
        }
    }
}

fn element_texts<'a>(
    cql_type: &'a CqlType,
    elements: &'a [Value],
    style: Style<'a>,
) -> impl Iterator<Item = String> + 'a {
    let element_type = match cql_type {
        CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => {
            element
        }
        other => other,
    };
    elements.iter().map(move |element| format_value(element_type, element, style, true))
}

fn format_field(cql_type: &CqlType, value: Option<&Value>, style: Style<'_>) -> String {
    let null = match style {
        Style::Screen => "null",
        Style::Csv { null } => null,
    };
    value.map_or_else(|| null.to_owned(), |value| format_value(cql_type, value, style, true))
}

/// The name of a field of a user type; quoted in CSV if it would be ambiguous.
fn format_field_name(name: &str, style: Style<'_>) -> String {
    let is_plain =
        !name.is_empty() && name.trim() == name && !name.contains(SEPARATORS) && !name.contains(['\'', '"']);
    if style == Style::Screen || is_plain { name.to_owned() } else { literal::quote_text(name) }
}

fn bracketed(open: &str, close: &str, texts: impl Iterator<Item = String>) -> String {
    format!("{open}{}{close}", texts.collect::<Vec<_>>().join(", "))
}

/// Text with backslashes and control characters as escape sequences.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\x{:02x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out
}

fn special_float(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        None
    }
}

/// A float with that many significant digits, digits before the point not counted where no exponent is needed.
fn format_float(number: f64, digits: usize) -> String {
    if let Some(special) = special_float(number) {
        return special.to_owned();
    }
    let mut precision = digits;
    if number.abs() > f64::EPSILON {
        let exponent = number.abs().log10() as i64;
        if (-4..digits as i64).contains(&exponent) {
            precision = (digits as i64 + exponent + 1) as usize;
        }
    }
    general(number, precision)
}

/// C's `%.*g`.
fn general(number: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let scientific = format!("{number:.*e}", precision - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    if (-4..precision as i64).contains(&exponent) {
        let decimals = (precision as i64 - 1 - exponent).max(0) as usize;
        return without_trailing_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_trailing_zeros(mantissa), exponent.abs())
}

fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// A decimal as Python prints it: with an exponent if it is positive or the number is small.
fn format_decimal(decimal: &Decimal) -> String {
    let unscaled = decimal.unscaled.to_string();
    let (sign, digits) = match unscaled.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", &unscaled[..]),
    };
    let exponent = -i64::from(decimal.scale);
    // Digits before the point, if there is no exponent.
    let left = exponent + digits.len() as i64;
    if exponent <= 0 && left > -6 {
        if exponent == 0 {
            return unscaled;
        }
        return match usize::try_from(left) {
            Ok(left @ 1..) => {
                let (whole, fraction) = digits.split_at(left);
                format!("{sign}{whole}.{fraction}")
            }
            _ => format!("{sign}0.{}{digits}", "0".repeat(left.unsigned_abs() as usize)),
        };
    }
    let (first, others) = digits.split_at(1);
    let point = if others.is_empty() { "" } else { "." };
    format!("{sign}{first}{point}{others}E{:+}", left - 1)
}

/// A date, on the screen the days since the epoch if the year has not four digits.
fn format_date(date: u32, style: Style<'_>) -> String {
    let days = i64::from(date) - time::DATE_EPOCH;
    if style != Style::Screen || (1..=9999).contains(&time::civil_from_days(days).0) {
        time::format_date(date)
    } else {
        days.to_string()
    }
}

/// A timestamp in UTC, or milliseconds since the epoch if the year has not four digits.
fn format_timestamp(unix_ms: i64, style: Style<'_>) -> String {
    let days = unix_ms.div_euclid(MILLISECONDS_PER_DAY);
    let of_day = unix_ms.rem_euclid(MILLISECONDS_PER_DAY);
    let (year, month, day) = time::civil_from_days(days);
    if !(1..=9999).contains(&year) {
        return unix_ms.to_string();
    }
    let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (seconds, milliseconds) = (of_day / 1000 % 60, of_day % 1000);
    let micros = if style == Style::Screen { "000" } else { "" };
    format!(
        "{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}.{milliseconds:03}{micros}+0000"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(cql_type: &CqlType, literal_text: &str) -> String {
        format_bytes(cql_type, &literal::parse(cql_type, literal_text).unwrap(), Style::Screen)
    }

    #[test]
    fn natives_read_as_in_cqlsh() {
        assert_eq!(screen(&CqlType::Int, "-5"), "-5");
        assert_eq!(screen(&CqlType::Boolean, "true"), "True");
        assert_eq!(screen(&CqlType::Text, "a\nb\\"), "a\\nb\\\\");
        assert_eq!(screen(&CqlType::Blob, "0xCAFE"), "0xcafe");
        assert_eq!(
            screen(&CqlType::Timestamp, "2015-05-21 11:03:02.123+0000"),
            "2015-05-21 11:03:02.123000+0000"
        );
        assert_eq!(screen(&CqlType::Date, "2015-05-21"), "2015-05-21");
        assert_eq!(screen(&CqlType::Time, "11:03:02.5"), "11:03:02.500000000");
        assert_eq!(screen(&CqlType::Duration, "14mo3d5s"), "1y2mo3d5s");
        assert_eq!(screen(&CqlType::Inet, "::1"), "::1");
        assert_eq!(screen(&CqlType::Int, ""), "");
    }

    #[test]
    fn floats_are_rounded_as_in_cqlsh() {
        let cases = [
            ("1234.5", "1234.5"),
            ("0.1", "0.1"),
            ("3.14159265", "3.14159"),
            ("100000", "1e+05"),
            ("10000", "10000"),
            ("1234567", "1.2346e+06"),
            ("0.00001", "1e-05"),
            ("0", "0"),
            ("NaN", "NaN"),
            ("-Infinity", "-Infinity"),
        ];
        for (literal_text, expected) in cases {
            assert_eq!(screen(&CqlType::Float, literal_text), expected);
        }
        assert_eq!(screen(&CqlType::Double, "3.14159265358979"), "3.14159265359");
    }

    #[test]
    fn decimals_read_as_in_python() {
        let cases = [
            ("1.50", "1.50"),
            ("-0.001", "-0.001"),
            ("12", "12"),
            ("1E+3", "1E+3"),
            ("1.23E-10", "1.23E-10"),
            ("0.0000001", "1E-7"),
        ];
        for (literal_text, expected) in cases {
            assert_eq!(screen(&CqlType::Decimal, literal_text), expected);
        }
    }

    #[test]
    fn nested_values_are_quoted() {
        let map = CqlType::map(CqlType::Text, CqlType::Int, false);
        let value = Value::Map(vec![(Value::Text("it's".to_owned()), Value::Int(1))]);
        assert_eq!(format_bytes(&map, &value.encode(&map), Style::Screen), "{'it''s': 1}");
        let tuple = CqlType::tuple([CqlType::Int, CqlType::Text]);
        let value = Value::Tuple(vec![Some(Value::Int(1)), None]);
        assert_eq!(format_bytes(&tuple, &value.encode(&tuple), Style::Screen), "(1, null)");
        let set = CqlType::set(CqlType::Date, false);
        let value = Value::Set(vec![Value::Date(1 << 31)]);
        assert_eq!(format_bytes(&set, &value.encode(&set), Style::Screen), "{'1970-01-01'}");
    }

    #[test]
    fn csv_keeps_everything() {
        let csv = |cql_type: &CqlType, text: &str| {
            format_bytes(cql_type, &literal::parse(cql_type, text).unwrap(), Style::Csv { null: "" })
        };
        assert_eq!(csv(&CqlType::Text, "a\nb\\"), "a\nb\\");
        assert_eq!(csv(&CqlType::Double, "0.1234567890123456"), "0.1234567890123456");
        assert_eq!(csv(&CqlType::Timestamp, "2015-05-21 11:03:02.123+0000"), "2015-05-21 11:03:02.123+0000");
    }
}
