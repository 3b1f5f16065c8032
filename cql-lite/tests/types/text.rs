//! Literals: text to wire bytes and back.

use cql_lite::types::duration::Duration;
use cql_lite::types::literal::{LiteralKind, format, parse, to_text};
use cql_lite::types::{CqlType, Value};
use proptest::prelude::*;

fn timestamp(text: &str) -> i64 {
    i64::from_be_bytes(parse(&CqlType::Timestamp, text).unwrap().try_into().unwrap())
}

fn error(ty: &CqlType, text: &str) -> String {
    parse(ty, text).unwrap_err().to_string()
}

#[test]
fn timestamps_in_every_format() {
    let noon = 1_296_655_200_000; // 2011-02-02T14:00:00Z
    for text in [
        "1296655200000",
        "2011-02-02 14:00Z",
        "2011-02-02 14:00:00Z",
        "2011-02-02T14:00:00.000Z",
        "2011-02-02T14:00",
        "2011-02-02 15:00+01",
        "2011-02-02 15:30+0130",
        "2011-02-02T15:30:00.000+01:30",
        "2011-02-02 14:00:00 UTC",
        "2011-02-02 09:00:00 -0500",
        "2011-2-2 14:0:0",
    ] {
        assert_eq!(timestamp(text), noon, "{text}");
    }
    assert_eq!(timestamp("2011-02-02"), noon - 14 * 3_600_000);
    assert_eq!(timestamp("2011-02-02+0000"), noon - 14 * 3_600_000);
    assert_eq!(timestamp("2011-02-02 14:00:00.1234567"), noon + 123);
    assert_eq!(timestamp("-1"), -1);
    for text in
        ["2011-02-30", "2011-13-01", "2011-02-02 25:00", "abc", "2011-02-02 14", "2011-02-02 14:00 XX"]
    {
        assert_eq!(error(&CqlType::Timestamp, text), format!("Unable to parse a date/time from '{text}'"));
    }
}

#[test]
fn dates_and_times() {
    let date = |text: &str| u32::from_be_bytes(parse(&CqlType::Date, text).unwrap().try_into().unwrap());
    assert_eq!(date("1970-01-01"), 1 << 31);
    assert_eq!(date("1969-12-31"), (1 << 31) - 1);
    assert_eq!(date("-5877641-06-23"), 0);
    assert_eq!(date("5881580-07-11"), u32::MAX);
    assert_eq!(date("7"), 7);
    assert_eq!(
        error(&CqlType::Date, "5881580-07-12"),
        "Unable to coerce '5881580-07-12' to a formatted date (long)"
    );
    assert_eq!(error(&CqlType::Date, "xyz"), "Unable to coerce 'xyz' to a formatted date (long)");
    let time = |text: &str| i64::from_be_bytes(parse(&CqlType::Time, text).unwrap().try_into().unwrap());
    assert_eq!(time("07:35:07.000111222"), 27_307_000_111_222);
    assert_eq!(time("00:00:00.5"), 500_000_000);
    assert_eq!(to_text(&CqlType::Time, &time("7:5:3").to_be_bytes()), "07:05:03.000000000");
    assert!(parse(&CqlType::Time, "24:00:00").is_err());
    assert!(parse(&CqlType::Time, "86400000000000").is_err());
}

#[test]
fn durations_in_three_formats() {
    let duration = |text: &str| Duration::parse(text).unwrap();
    let expected = Duration { months: 14, days: 3, nanoseconds: 4 * 3_600_000_000_000 + 5 * 60_000_000_000 };
    for text in ["1y2mo3d4h5m", "1Y2MO3D4H5M", "P1Y2M3DT4H5M", "P0001-02-03T04:05:00"] {
        assert_eq!(duration(text), expected, "{text}");
        assert_eq!(duration(&format!("-{text}")), expected.negate());
    }
    assert_eq!(expected.to_string(), "1y2mo3d4h5m");
    assert_eq!(duration("P2W"), Duration { months: 0, days: 14, nanoseconds: 0 });
    assert_eq!(duration("12µs").to_string(), "12us");
    assert_eq!(duration("-1h30m").to_string(), "-1h30m");
    for text in ["", "-", "1", "1x", "P", "1h1h", "1m1h", "PT", "P1W1D", "9999999999y"] {
        // An ISO duration without parts is zero in Cassandra too.
        assert_eq!(Duration::parse(text).is_err(), !matches!(text, "P" | "PT"), "{text}");
    }
    assert_eq!(
        Duration::parse("1h1h").unwrap_err().to_string(),
        "Invalid duration. The hours are specified multiple times"
    );
}

#[test]
fn errors_are_cassandras() {
    assert_eq!(error(&CqlType::Int, "abc"), "Unable to make int from 'abc'");
    assert_eq!(error(&CqlType::Int, "2147483648"), "Unable to make int from '2147483648'");
    assert_eq!(error(&CqlType::Tinyint, "128"), "Unable to make byte from '128'");
    assert_eq!(error(&CqlType::Bigint, "x"), "Unable to make long from 'x'");
    assert_eq!(error(&CqlType::Inet, "x"), "Unable to make inet address from 'x'");
    assert_eq!(error(&CqlType::Uuid, "x"), "Unable to make UUID from 'x'");
    assert_eq!(error(&CqlType::Blob, "0x123"), "cannot parse '0x123' as hex bytes");
    assert_eq!(
        error(&CqlType::Timeuuid, "550e8400-e29b-41d4-a716-446655440000"),
        "TimeUUID supports only version 1 UUIDs"
    );
}

#[test]
fn special_floats() {
    for text in ["NaN", "nan", "Infinity", "-Infinity"] {
        assert!(parse(&CqlType::Double, text).is_ok(), "{text}");
    }
    assert!(parse(&CqlType::Double, "inf").is_err());
    assert_eq!(to_text(&CqlType::Float, &f32::INFINITY.to_be_bytes()), "Infinity");
}

#[test]
fn literals_of_collections() {
    let map = CqlType::map(CqlType::Text, CqlType::list(CqlType::Int, true), false);
    let value =
        Value::Map(vec![(Value::Text("it's".into()), Value::List(vec![Value::Int(1), Value::Int(2)]))]);
    assert_eq!(format(&map, &value.encode(&map)), "{'it''s': [1, 2]}");
    let tuple = CqlType::tuple([CqlType::Int, CqlType::Inet, CqlType::Blob]);
    let value = Value::Tuple(vec![Some(Value::Int(1)), None, Some(Value::Blob(vec![0xCA]))]);
    assert_eq!(format(&tuple, &value.encode(&tuple)), "(1, null, 0xca)");
    let six = "::1".parse::<std::net::IpAddr>().unwrap();
    assert_eq!(format(&CqlType::Inet, &Value::Inet(six).encode(&CqlType::Inet)), "'0:0:0:0:0:0:0:1'");
}

#[test]
fn kinds_of_literals() {
    assert!(LiteralKind::Integer.is_assignable_to(&CqlType::Timestamp));
    assert!(!LiteralKind::Float.is_assignable_to(&CqlType::Int));
    assert!(!LiteralKind::String.is_assignable_to(&CqlType::Int));
    assert_eq!(LiteralKind::Integer.preferred_type("1"), CqlType::Int);
    assert_eq!(LiteralKind::Integer.preferred_type("3000000000"), CqlType::Bigint);
    assert_eq!(LiteralKind::Integer.preferred_type("30000000000000000000"), CqlType::Varint);
    assert_eq!(LiteralKind::Float.preferred_type("1.5"), CqlType::Double);
    assert_eq!(LiteralKind::Float.preferred_type("1.10"), CqlType::Decimal);
    assert_eq!(LiteralKind::String.preferred_type("é"), CqlType::Text);
    let time_based = "e23f450f-53a6-11e2-7f7f-7f7f7f7f7f7f";
    assert_eq!(LiteralKind::Uuid.preferred_type(time_based), CqlType::Timeuuid);
}

proptest! {
    #[test]
    fn text_of_a_value_reads_back(millis in -62_000_000_000_000..250_000_000_000_000i64, days in any::<u32>(),
                                  nanoseconds in 0..86_400_000_000_000i64, double in any::<f64>()) {
        for value in [Value::Timestamp(millis), Value::Date(days), Value::Time(nanoseconds), Value::Double(double)] {
            let ty = match value {
                Value::Timestamp(_) => CqlType::Timestamp,
                Value::Date(_) => CqlType::Date,
                Value::Time(_) => CqlType::Time,
                _ => CqlType::Double,
            };
            let wire = value.encode(&ty);
            prop_assert_eq!(parse(&ty, &to_text(&ty, &wire)).unwrap(), wire);
        }
    }
}
