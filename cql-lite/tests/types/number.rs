//! Decimals and Java's printing of numbers.

use cql_lite::types::number::{Decimal, NumberError, digit_count, java_double, java_float};
use num_bigint::BigInt;
use proptest::prelude::*;

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

#[test]
fn decimals_print_as_in_java() {
    for text in
        ["0", "1", "-1", "1.0", "12345.678", "0.000001", "1E-7", "1.2E-7", "1E+3", "-1.23E-12", "123E-10"]
    {
        let expected = if text == "123E-10" { "1.23E-8" } else { text };
        assert_eq!(decimal(text).to_string(), expected);
    }
    assert_eq!(Decimal::new(5, -2).to_string(), "5E+2");
    assert_eq!(decimal("1E+3").to_plain_string().unwrap(), "1000");
    assert_eq!(decimal("-1.5E-8").to_plain_string().unwrap(), "-0.000000015");
}

#[test]
fn malformed_decimals() {
    for text in ["", ".", "-", "1e", "1.2.3", "0x1", "NaN", "1 ", "--1", "1e99999999999"] {
        assert!(text.parse::<Decimal>().is_err(), "{text}");
    }
}

#[test]
fn arithmetic_keeps_scales_as_java() {
    let (a, b) = (decimal("8.5"), decimal("1.50"));
    assert_eq!(a.add(&b).unwrap().to_string(), "10.00");
    assert_eq!(a.subtract(&b).unwrap().to_string(), "7.00");
    assert_eq!(a.multiply(&b).unwrap().to_string(), "12.750");
    assert_eq!(a.remainder(&b).unwrap().to_string(), "1.00");
    assert_eq!(
        decimal("8.5").divide(&decimal("3")).unwrap().to_string(),
        "2.83333333333333333333333333333333"
    );
    assert_eq!(
        decimal("1").divide(&decimal("8.5")).unwrap().to_string(),
        "0.11764705882352941176470588235294"
    );
    assert_eq!(
        decimal("7").divide(&decimal("5.5")).unwrap().to_string(),
        "1.27272727272727272727272727272727"
    );
    assert_eq!(decimal("8.5").divide(&decimal("8.5")).unwrap().to_string(), "1");
    assert_eq!(decimal("1").divide(&Decimal::zero()), Err(NumberError::DivideByZero));
    assert_eq!(decimal("-2.5").rounded(0).unwrap().to_string(), "-3");
}

#[test]
fn rounding_to_a_huge_scale_keeps_the_number() {
    let long = |text: &str| decimal(&format!("{text}{}1", "0".repeat(110_000)));
    assert_eq!(long("5.7").rounded(0).unwrap().to_string(), "6");
    assert_eq!(long("-2.5").rounded(1).unwrap().to_string(), "-2.5");
    assert_eq!(decimal("777").rounded(-200_000).unwrap().unscaled, 0.into());
}

#[test]
fn scales_of_billions_do_not_cost_billions() {
    let (huge, tiny) = (Decimal::new(1, i32::MIN), Decimal::new(1, i32::MAX));
    assert!(huge > tiny);
    assert!(huge.negate() < tiny);
    assert!(huge.add(&tiny).is_err());
    assert!(huge.to_integer().is_err());
    assert!(huge.to_plain_string().is_err());
    assert_eq!(tiny.to_integer().unwrap(), BigInt::from(0));
    assert_eq!(huge.to_string(), "1E+2147483648");
}

#[test]
fn trailing_zeros_are_stripped() {
    for zeros in [0, 1, 2, 3, 7, 8, 100, 1023, 5000] {
        let number = Decimal::new(BigInt::from(17) * BigInt::from(10).pow(zeros), 3).normalized();
        assert_eq!((number.unscaled, number.scale), (BigInt::from(17), 3 - zeros as i32));
    }
    assert_eq!(Decimal::new(100, i32::MIN + 1).normalized().scale, i32::MIN);
}

#[test]
fn doubles_print_as_in_java() {
    for (number, text) in [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (9_999_999.5, "9999999.5"),
        (123_123.123_123, "123123.123123"),
        (1.5e300, "1.5E300"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(java_double(number), text);
    }
    assert_eq!(java_float(5.2), "5.2");
    assert_eq!(java_float(1.0e10), "1.0E10");
}

#[test]
fn decimals_of_doubles() {
    assert_eq!(Decimal::from_f64(6.3).unwrap().to_string(), "6.3");
    assert_eq!(
        Decimal::from_f64(f64::NAN).unwrap_err().to_string(),
        "A NaN cannot be converted into a decimal"
    );
    assert_eq!(
        Decimal::from_f64(f64::INFINITY).unwrap_err().to_string(),
        "An infinite number cannot be converted into a decimal"
    );
}

proptest! {
    #[test]
    fn digits_are_counted(number in any::<i128>(), power in 0..60u32) {
        let number = BigInt::from(number) * BigInt::from(10).pow(power);
        prop_assert_eq!(digit_count(&number) as usize, number.magnitude().to_string().len());
    }

    #[test]
    fn decimals_round_trip(unscaled in any::<i64>(), scale in -50..50i32) {
        let number = Decimal::new(unscaled, scale);
        let back: Decimal = number.to_string().parse().unwrap();
        prop_assert_eq!((&back.unscaled, back.scale), (&number.unscaled, number.scale));
        prop_assert_eq!(Decimal::from_wire(&number.to_wire()).unwrap(), number.clone());
        prop_assert_eq!(number.normalized(), number);
    }

    #[test]
    fn order_is_that_of_the_difference(a in any::<i32>(), b in any::<i32>(), x in -5..5i32, y in -5..5i32) {
        let (left, right) = (Decimal::new(a, x), Decimal::new(b, y));
        prop_assert_eq!(left.cmp(&right), left.subtract(&right).unwrap().cmp(&Decimal::zero()));
    }
}
