//! Results of the native functions, on wire bytes.

use cql_lite::types::token::Partitioner;
use cql_lite::types::{CqlType, Value, literal, timeuuid};

use super::*;

/// 2016-09-27T16:10:00.123456Z
const NOW_MICROS: i64 = 1_474_992_600_123_456;

/// An argument: the type and the text of a value, or null.
fn value(ty: &CqlType, text: &str) -> Option<Vec<u8>> {
    (text != "null").then(|| literal::parse(ty, text).unwrap())
}

fn resolve(name: &str, types: &[CqlType]) -> crate::error::Result<ResolvedFunction> {
    let known: Vec<Option<CqlType>> = types.iter().cloned().map(Some).collect();
    resolve_with_literals(name, &known, &vec![None; types.len()], None)
}

/// Calls a function on values given as text. The result is text.
fn call(name: &str, arguments: &[(CqlType, &str)]) -> Result<String, String> {
    let types: Vec<CqlType> = arguments.iter().map(|(ty, _)| ty.clone()).collect();
    let function = resolve(name, &types).map_err(|error| error.to_string())?;
    run(&function, arguments)
}

fn run(function: &ResolvedFunction, arguments: &[(CqlType, &str)]) -> Result<String, String> {
    let values: Vec<Option<Vec<u8>>> = arguments.iter().map(|(ty, text)| value(ty, text)).collect();
    let values: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
    let result = function.call(&values, &CallContext::at(NOW_MICROS)).map_err(|error| error.to_string())?;
    Ok(result.map_or_else(|| "null".to_owned(), |bytes| literal::to_text(function.return_type(), &bytes)))
}

fn operate(left: (CqlType, &str), symbol: &str, right: (CqlType, &str)) -> Result<String, String> {
    call(operator_name(symbol), &[left, right])
}

fn cast(from: (CqlType, &str), to: &CqlType) -> String {
    run(&resolve_cast(&from.0, to).unwrap(), &[from]).unwrap()
}

#[test]
fn operators_promote_as_cassandra_does() {
    use CqlType::{Bigint, Decimal, Double, Float, Int, Smallint, Tinyint, Varint};
    let result_type = |left: &CqlType, right: &CqlType| {
        resolve("_add", &[left.clone(), right.clone()]).unwrap().return_type().clone()
    };
    for (left, right, expected) in [
        (Tinyint, Tinyint, Tinyint),
        (Tinyint, Smallint, Smallint),
        (Int, Tinyint, Int),
        (Int, Float, Float),
        (Bigint, Float, Double),
        (Int, Double, Double),
        (Varint, Int, Varint),
        (Varint, Float, Decimal),
        (Decimal, Tinyint, Decimal),
        (CqlType::Counter, Int, Bigint),
    ] {
        assert_eq!(result_type(&left, &right), expected, "{left} + {right}");
        assert_eq!(result_type(&right, &left), expected, "{right} + {left}");
    }
}

#[test]
fn operators_compute() {
    use CqlType::{Decimal, Double, Float, Int, Tinyint, Varint};
    for (left, symbol, right, expected) in [
        ((Int, "7"), "/", (Int, "2"), "3"),
        ((Int, "-7"), "%", (Int, "2"), "-1"),
        ((Int, "2147483647"), "+", (Int, "1"), "-2147483648"),
        ((Tinyint, "127"), "+", (Tinyint, "1"), "-128"),
        ((Int, "-2147483648"), "/", (Int, "-1"), "-2147483648"),
        ((Int, "3"), "/", (Float, "5.5"), "0.54545456"),
        ((Double, "6.5"), "/", (Tinyint, "0"), "Infinity"),
        ((Decimal, "8.5"), "*", (Tinyint, "1"), "8.50"),
        ((Decimal, "8.5"), "/", (Int, "3"), "2.83333333333333333333333333333333"),
        ((Tinyint, "1"), "/", (Decimal, "8.5"), "0.11764705882352941176470588235294"),
        ((Varint, "7"), "/", (Float, "5.5"), "1.27272727272727272727272727272727"),
        ((Varint, "7"), "-", (Varint, "9"), "-2"),
        ((Int, "null"), "+", (Int, "1"), "null"),
        ((Int, ""), "+", (Int, "1"), "null"),
    ] {
        assert_eq!(
            operate(left.clone(), symbol, right.clone()).unwrap(),
            expected,
            "{left:?} {symbol} {right:?}"
        );
    }
    assert_eq!(call(NEGATION, &[(Int, "5")]).unwrap(), "-5");
    assert_eq!(operate((CqlType::Text, "a"), "+", (CqlType::Ascii, "b")).unwrap(), "ab");
}

#[test]
fn failing_operations_show_the_reason() {
    use CqlType::{Boolean, Decimal, Double, Float, Int, Smallint, Text, Tinyint, Varint};
    for (left, symbol, right, expected) in [
        ((Int, "1"), "/", (Tinyint, "0"), "the operation 'int / tinyint' failed: / by zero"),
        ((Smallint, "1"), "%", (Smallint, "0"), "the operation 'smallint % smallint' failed: / by zero"),
        (
            (Varint, "1"),
            "/",
            (Tinyint, "0"),
            "the operation 'varint / tinyint' failed: BigInteger divide by zero",
        ),
        (
            (Decimal, "1"),
            "/",
            (Tinyint, "0"),
            "the operation 'decimal / tinyint' failed: BigInteger divide by zero",
        ),
        (
            (Decimal, "1"),
            "+",
            (Double, "NaN"),
            "the operation 'decimal + double' failed: A NaN cannot be converted into a decimal",
        ),
        (
            (Decimal, "1"),
            "+",
            (Float, "-Infinity"),
            "the operation 'decimal + float' failed: An infinite number cannot be converted into a decimal",
        ),
        ((Int, "1"), "+", (Boolean, "true"), "the '+' operation is not supported between int and boolean"),
        ((Boolean, "true"), "/", (Text, "x"), "the '/' operation is not supported between boolean and text"),
    ] {
        assert_eq!(operate(left, symbol, right).unwrap_err(), expected);
    }
}

#[test]
fn times_move_by_durations() {
    use CqlType::{Date, Duration, Timestamp};
    for (left, symbol, right, expected) in [
        ((Timestamp, "2016-09-27 16:10:00"), "-", (Duration, "10m"), "2016-09-27T16:00:00.000Z"),
        ((Timestamp, "2016-01-31"), "+", (Duration, "1mo"), "2016-02-29T00:00:00.000Z"),
        ((Date, "2016-10-04"), "-", (Duration, "5d"), "2016-09-29"),
        ((Date, "2016-02-29"), "+", (Duration, "1y"), "2017-02-28"),
    ] {
        assert_eq!(operate(left, symbol, right).unwrap(), expected);
    }
    assert_eq!(
        operate((Timestamp, "0"), "-", (Duration, "10us")).unwrap_err(),
        "the operation 'timestamp - duration' failed: The duration must have a millisecond precision. Was: 10us"
    );
    assert_eq!(
        operate((Date, "2016-10-04"), "-", (Duration, "10m")).unwrap_err(),
        "the operation 'date - duration' failed: The duration must have a day precision. Was: 10m"
    );
    assert!(operate((Timestamp, "0"), "*", (Duration, "10m")).unwrap_err().contains("is not supported"));
}

#[test]
fn overloads_are_chosen_by_exact_types_first() {
    let resolve = |known: &[Option<CqlType>], natural: &[Option<CqlType>], hint: Option<&CqlType>| {
        resolve_with_literals("_add", known, natural, hint)
    };
    // A literal has its natural type: tinyint + 1 is an int.
    let function = resolve(&[Some(CqlType::Tinyint), None], &[None, Some(CqlType::Int)], None).unwrap();
    assert_eq!(function.argument_types(), [CqlType::Tinyint, CqlType::Int]);
    // Unless the result cannot have that type.
    let hint = CqlType::Tinyint;
    let function = resolve(&[None, None], &[Some(CqlType::Int), Some(CqlType::Int)], Some(&hint)).unwrap();
    assert_eq!(function.argument_types(), [CqlType::Tinyint, CqlType::Tinyint]);
    let known = [None, None];
    let natural = [None, Some(CqlType::Int)];
    let texts = ["?".to_owned(), "1".to_owned()];
    assert_eq!(
        resolve_described("_add", &known, &natural, &texts, None).unwrap_err().to_string(),
        "Ambiguous '+' operation with args ? and 1: use type hint to disambiguate, example '(int) ?'"
    );
    let negation = resolve_with_literals(NEGATION, &[None], &[None], None);
    assert_eq!(negation.unwrap_err().to_string(), "Ambiguous negation: use type casts to disambiguate");
    let negation = resolve_with_literals(NEGATION, &[None], &[None], Some(&CqlType::Double)).unwrap();
    assert_eq!(negation.return_type(), &CqlType::Double);
    assert!(resolve_with_literals("nothing", &[], &[], None).is_err());
    assert!(resolve_with_literals("ks.now", &[], &[], None).is_err());
    assert!(resolve_with_literals("system.NOW", &[], &[], None).is_ok());
    assert_eq!(qualified_name(None, "now"), "system.now");
    assert_eq!(qualified_name(None, "mine"), "mine");
    assert_eq!(qualified_name(Some("ks"), "f"), "ks.f");
    assert_eq!(
        resolve_with_literals("uuid", &[None], &[None], None).unwrap_err().to_string(),
        "Invalid number of arguments in call to function system.uuid: 0 required but 1 provided"
    );
}

#[test]
fn casts() {
    use CqlType::{
        Ascii, Bigint, Boolean, Counter, Date, Decimal, Double, Float, Inet, Int, Smallint, Text, Time,
        Timestamp, Tinyint, Varint,
    };
    for (from, to, expected) in [
        ((Int, "3"), Tinyint, "3"),
        ((Int, "300"), Tinyint, "44"),
        ((Double, "6.3"), Int, "6"),
        ((Double, "1e300"), Int, "2147483647"),
        ((Double, "1e300"), Tinyint, "-1"),
        ((Float, "5.2"), Decimal, "5.2"),
        ((Float, "5.2"), Double, "5.199999809265137"),
        ((Decimal, "6.3"), Bigint, "6"),
        ((Bigint, "9223372036854775807"), Decimal, "9223372036854775807"),
        ((Varint, "1234567890123456789"), Decimal, "1234567890123456789"),
        ((Smallint, "2"), Float, "2.0"),
        ((Float, "5.2"), Ascii, "5.2"),
        ((Tinyint, "1"), Text, "1"),
        ((Counter, "2"), Decimal, "2"),
        ((Timestamp, "2015-05-21 11:03:02"), Date, "2015-05-21"),
        ((Timestamp, "2015-05-21 11:03:02"), Text, "2015-05-21T11:03:02.000Z"),
        ((Date, "2015-05-21"), Timestamp, "2015-05-21T00:00:00.000Z"),
        ((Time, "11:03:02"), Text, "11:03:02.000000000"),
        ((Inet, "127.0.0.1"), Text, "127.0.0.1"),
        ((Boolean, "true"), Ascii, "true"),
        ((Ascii, "test"), Text, "test"),
        ((Int, "null"), Text, "null"),
        ((Int, "7"), Int, "7"),
    ] {
        assert_eq!(cast(from.clone(), &to), expected, "{from:?} as {to}");
    }
    assert_eq!(resolve_cast(&Int, &Boolean).unwrap_err().to_string(), "int cannot be cast to boolean");
    assert!(resolve_cast(&Text, &Int).is_err());
    let ambiguous = resolve_with_literals("cast_as_int", &[None], &[None], None).unwrap_err().to_string();
    assert!(ambiguous.starts_with("Ambiguous call to function system.cast_as_int"), "{ambiguous}");
}

#[test]
fn the_present() {
    assert_eq!(call("currentTimestamp", &[]).unwrap(), "2016-09-27T16:10:00.123Z");
    assert_eq!(call("current_date", &[]).unwrap(), "2016-09-27");
    assert_eq!(call("current_time", &[]).unwrap(), "16:10:00.123000000");
    let context = CallContext::at(NOW_MICROS);
    let now = resolve("now", &[]).unwrap();
    assert!(!now.is_pure());
    let uuid = |bytes: Option<Vec<u8>>| uuid::Uuid::from_slice(&bytes.unwrap()).unwrap();
    let (first, second) = (uuid(now.call(&[], &context).unwrap()), uuid(now.call(&[], &context).unwrap()));
    assert_ne!(first, second);
    assert!(timeuuid::unix_micros(&first) >= NOW_MICROS);
    assert_eq!(uuid(resolve("uuid", &[]).unwrap().call(&[], &context).unwrap()).get_version_num(), 4);
}

#[test]
fn conversions_of_time() {
    use CqlType::{Date, Timestamp, Timeuuid};
    let uuid = "d2177dd0-eaa2-11de-a572-001b779c76e3";
    for name in ["toTimestamp", "to_timestamp", "dateOf"] {
        assert_eq!(call(name, &[(Timeuuid, uuid)]).unwrap(), "2009-12-17T00:26:29.805Z", "{name}");
    }
    assert_eq!(call("toUnixTimestamp", &[(Timeuuid, uuid)]).unwrap(), "1261009589805");
    assert_eq!(call("unixTimestampOf", &[(Timeuuid, uuid)]).unwrap(), "1261009589805");
    assert_eq!(call("toDate", &[(Timestamp, "2015-05-21 11:03:02")]).unwrap(), "2015-05-21");
    assert_eq!(call("to_unix_timestamp", &[(Date, "1970-01-02")]).unwrap(), "86400000");
    assert_eq!(call("toDate", &[(Timestamp, "null")]).unwrap(), "null");
    let smallest = call("minTimeuuid", &[(Timestamp, "2015-05-21")]).unwrap();
    let largest = call("max_timeuuid", &[(Timestamp, "2015-05-21")]).unwrap();
    assert_eq!(call("toTimestamp", &[(Timeuuid, &smallest)]), call("toTimestamp", &[(Timeuuid, &largest)]));
    assert!(smallest.ends_with("-8080-808080808080"));
}

#[test]
fn floors() {
    use CqlType::{Date, Duration, Time, Timestamp};
    let time = (Timestamp, "2016-09-27 16:12:30");
    for (duration, expected) in [
        ("5m", "2016-09-27T16:10:00.000Z"),
        ("1h", "2016-09-27T16:00:00.000Z"),
        ("1d", "2016-09-27T00:00:00.000Z"),
        ("1mo", "2016-09-01T00:00:00.000Z"),
        ("2y", "2016-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(call("floor", &[time.clone(), (Duration, duration)]).unwrap(), expected, "{duration}");
    }
    let start = (Timestamp, "2016-09-27 16:11:00");
    assert_eq!(
        call("floor", &[time.clone(), (Duration, "1m30s"), start.clone()]).unwrap(),
        "2016-09-27T16:12:30.000Z"
    );
    assert_eq!(
        call("floor", &[start, (Duration, "1m"), time]).unwrap_err(),
        "The floor function starting time is greater than the provided time"
    );
    assert_eq!(call("floor", &[(Time, "16:12:30"), (Duration, "1h")]).unwrap(), "16:00:00.000000000");
    assert_eq!(call("floor", &[(Date, "2016-09-27"), (Duration, "1mo")]).unwrap(), "2016-09-01");
    assert!(call("floor", &[(Date, "2016-09-27"), (Duration, "1h")]).is_err());
    assert!(call("floor", &[(Date, "2016-09-27"), (Duration, "-1d")]).is_err());
}

#[test]
fn blobs() {
    assert_eq!(call("intAsBlob", &[(CqlType::Int, "1")]).unwrap(), "0x00000001");
    assert_eq!(call("varchar_as_blob", &[(CqlType::Text, "a")]).unwrap(), "0x61");
    assert_eq!(call("blob_as_int", &[(CqlType::Blob, "0x00000002")]).unwrap(), "2");
    assert_eq!(
        call("blobAsInt", &[(CqlType::Blob, "0x02")]).unwrap_err(),
        "In call to function system.blobasint, value 0x02 is not a valid binary representation for type int"
    );
    assert_eq!(
        call("intAsBlob", &[(CqlType::Text, "1")]).unwrap_err(),
        "Type error: text cannot be passed as argument 0 of function system.intasblob of type int"
    );
}

#[test]
fn json_functions() {
    let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.unwrap()).unwrap();
    let function = resolve("toJson", &[CqlType::Int]).unwrap();
    let context = CallContext::at(0);
    assert_eq!(text(function.call(&[Some(&[0, 0, 0, 7])], &context).unwrap()), "7");
    assert_eq!(text(function.call(&[None], &context).unwrap()), "null");
    let from_json = |json: &str| {
        let function = resolve_with_literals("fromJson", &[None], &[None], Some(&CqlType::Int)).unwrap();
        function.call(&[Some(json.as_bytes())], &context)
    };
    assert_eq!(from_json("\"7\"").unwrap(), Some(vec![0, 0, 0, 7]));
    assert_eq!(from_json("null").unwrap(), None);
    assert_eq!(
        from_json("true").unwrap_err().to_string(),
        "execution of 'system.fromjson[text]' failed: Could not decode JSON string 'true': Expected an int value, but \
         got a Boolean: true"
    );
    assert!(resolve_with_literals("fromJson", &[None], &[None], None).is_err());
}

#[test]
fn mathematics() {
    use CqlType::{Decimal, Double, Float, Int, Tinyint, Varint};
    for (name, argument, expected) in [
        ("abs", (Int, "-5"), "5"),
        ("abs", (Tinyint, "-128"), "-128"),
        ("abs", (Decimal, "-1.50"), "1.50"),
        ("exp", (Int, "2"), "7"),
        ("exp", (Double, "0"), "1.0"),
        ("exp", (Decimal, "1"), "2.7182818284590452353602874713527"),
        ("exp", (Decimal, "-1"), "0.36787944117144232159552377016146"),
        ("exp", (Varint, "10"), "22026"),
        ("log", (Int, "8"), "2"),
        ("log", (Decimal, "10"), "2.3025850929940456840179914546844"),
        ("log", (Decimal, "0.5"), "-0.69314718055994530941723212145818"),
        ("log10", (Double, "1000"), "3.0"),
        ("log10", (Decimal, "100"), "2"),
        ("log10", (Decimal, "2"), "0.30102999566398119521373889472449"),
        ("round", (Double, "2.5"), "3.0"),
        ("round", (Double, "-2.5"), "-2.0"),
        ("round", (Float, "2.4"), "2.0"),
        ("round", (Decimal, "2.5"), "3"),
        ("round", (Int, "2"), "2"),
    ] {
        let actual = call(name, std::slice::from_ref(&argument)).unwrap();
        let length = expected.len().min(33);
        assert_eq!(actual.get(..length).unwrap_or(&actual), &expected[..length], "{name}({argument:?})");
    }
    assert!(call("log", &[(Decimal, "0")]).unwrap_err().ends_with("Natural log of number zero or less"));
    assert!(call("exp", &[(Decimal, "1e20")]).is_err());
    assert_eq!(call("exp", &[(Decimal, "0")]).unwrap(), "1");
    let (sevens, long) = ("7".repeat(102_200), format!("1.5{}1", "0".repeat(110_000)));
    assert!(call("log", &[(Decimal, &sevens)]).unwrap().starts_with("235323.945"));
    assert!(call("log10", &[(Decimal, &long)]).unwrap().starts_with("0.17609125905568"));
    assert!(call("exp", &[(Decimal, &long)]).unwrap().starts_with("4.48168907033806"));
}

#[test]
fn texts_have_lengths() {
    assert_eq!(call("length", &[(CqlType::Text, "aé😀")]).unwrap(), "4");
    assert_eq!(call("octet_length", &[(CqlType::Text, "aé")]).unwrap(), "3");
    assert_eq!(call("octet_length", &[(CqlType::Int, "5")]).unwrap(), "4");
}

#[test]
fn parts_of_texts_are_counted_in_characters() {
    let substring = |text: &str, start: &str, length: &str| {
        call("substring", &[(CqlType::Text, text), (CqlType::Int, start), (CqlType::Int, length)])
    };
    for (text, start, length, expected) in [
        ("aé😀z", "1", "3", "aé😀"),
        ("aé😀z", "3", "1", "😀"),
        ("aé😀z", "4", "100", "z"),
        ("aé😀z", "5", "1", ""),
        ("aé😀z", "2", "0", ""),
        ("aé😀z", "0", "2", "a"),
        ("aé😀z", "-5", "6", ""),
        ("aé😀z", "-2147483648", "2147483647", ""),
        ("aé😀z", "2147483647", "2147483647", ""),
        ("null", "1", "2", "null"),
        ("abc", "null", "2", "null"),
        ("abc", "1", "null", "null"),
    ] {
        assert_eq!(substring(text, start, length).unwrap(), expected, "{text} from {start} for {length}");
    }
    assert_eq!(
        substring("abc", "1", "-1").unwrap_err(),
        "execution of 'system.substring[text, int, int]' failed: the length -1 is negative"
    );
    assert!(call("substring", &[(CqlType::Int, "1"), (CqlType::Int, "1"), (CqlType::Int, "1")]).is_err());
}

#[test]
fn collections() {
    let list = CqlType::list(CqlType::Int, false);
    let map = CqlType::map(CqlType::Text, CqlType::Int, false);
    let numbers = Value::List(vec![Value::Int(4), Value::Int(1), Value::Int(2)]).encode(&list);
    let pairs = Value::Map(vec![(Value::Text("a".into()), Value::Int(1))]).encode(&map);
    let apply = |name: &str, ty: &CqlType, bytes: &[u8]| {
        let function = resolve(name, std::slice::from_ref(ty)).unwrap();
        let result = function.call(&[Some(bytes)], &CallContext::at(0)).unwrap().unwrap();
        literal::format(function.return_type(), &result)
    };
    assert_eq!(apply("collection_min", &list, &numbers), "1");
    assert_eq!(apply("collection_max", &list, &numbers), "4");
    assert_eq!(apply("collection_sum", &list, &numbers), "7");
    assert_eq!(apply("collection_avg", &list, &numbers), "2");
    assert_eq!(apply("collection_count", &map, &pairs), "1");
    assert_eq!(apply("map_keys", &map, &pairs), "{'a'}");
    assert_eq!(apply("map_values", &map, &pairs), "[1]");
    assert_eq!(
        resolve("map_keys", &[list]).unwrap_err().to_string(),
        "Function system.map_keys requires a map argument, but found argument list<int> of type list<int>"
    );
    assert!(resolve("collection_sum", &[CqlType::set(CqlType::Text, false)]).is_err());
}

#[test]
fn similarities() {
    let ty = CqlType::vector(CqlType::Float, 2);
    let vector = |x: f32, y: f32| Value::Vector(vec![Value::Float(x), Value::Float(y)]).encode(&ty);
    let apply = |name: &str, left: &[u8], right: &[u8]| {
        let function = resolve(name, &[ty.clone(), ty.clone()]).unwrap();
        function
            .call(&[Some(left), Some(right)], &CallContext::at(0))
            .map(|result| literal::to_text(&CqlType::Float, &result.unwrap()))
    };
    let (x, y, zero) = (vector(1.0, 0.0), vector(0.0, 2.0), vector(0.0, 0.0));
    assert_eq!(apply("similarity_cosine", &x, &x).unwrap(), "1.0");
    assert_eq!(apply("similarity_cosine", &x, &y).unwrap(), "0.5");
    assert_eq!(apply("similarity_euclidean", &x, &zero).unwrap(), "0.5");
    assert_eq!(apply("similarity_dot_product", &y, &y).unwrap(), "2.5");
    assert_eq!(
        apply("similarity_cosine", &x, &zero).unwrap_err().to_string(),
        "Function system.similarity_cosine doesn't support all-zero vectors."
    );
    let known = [Some(ty.clone()), None];
    assert!(resolve_with_literals("similarity_cosine", &known, &[None, None], None).is_ok());
    let other = CqlType::vector(CqlType::Float, 3);
    assert!(resolve("similarity_cosine", &[ty.clone(), other]).is_err());
}

fn aggregate(name: &str, ty: &CqlType, values: &[&str]) -> String {
    let function = resolve_aggregate(name, std::slice::from_ref(ty)).unwrap().unwrap();
    let mut state = function.new_state();
    for text in values {
        state.add(&[value(ty, text).as_deref()], &CallContext::at(0)).unwrap();
    }
    let result = state.result(&CallContext::at(0)).unwrap();
    result.map_or_else(|| "null".to_owned(), |bytes| literal::to_text(function.return_type(), &bytes))
}

#[test]
fn aggregates() {
    use CqlType::{Decimal, Double, Float, Int, Text, Tinyint, Varint};
    for (name, ty, values, expected) in [
        ("count", Text, &["a", "null", "b"][..], "2"),
        ("min", Int, &["3", "1", "null"], "1"),
        ("max", Text, &["b", "c", "a"], "c"),
        ("max", Int, &[], "null"),
        ("sum", Int, &[], "0"),
        ("avg", Int, &[], "0"),
        ("sum", Int, &["2147483647", "1"], "-2147483648"),
        ("sum", Tinyint, &["127", "1"], "-128"),
        ("avg", Tinyint, &["127", "127"], "127"),
        ("avg", Int, &["1", "2"], "1"),
        ("avg", Int, &["-1", "-2"], "-1"),
        ("sum", Double, &["0.1", "0.2", "0.3"], "0.6"),
        ("avg", Double, &["1.7976931348623157e308", "1.7976931348623157e308"], "1.7976931348623157E308"),
        ("sum", Double, &["Infinity", "Infinity"], "Infinity"),
        ("avg", Float, &["1.5", "2.5"], "2.0"),
        ("sum", Varint, &["9223372036854775807", "1"], "9223372036854775808"),
        ("avg", Varint, &["1", "2"], "1"),
        ("sum", Decimal, &["1.5", "2.25"], "3.75"),
        ("avg", Decimal, &["1.0", "2.0"], "1.5"),
    ] {
        let actual = aggregate(name, &ty, values);
        if ty == Double && name == "sum" && expected == "0.6" {
            assert!((actual.parse::<f64>().unwrap() - 0.6).abs() < 1e-15);
            continue;
        }
        assert_eq!(actual, expected, "{name}({ty}) of {values:?}");
    }
    let mut rows = resolve_aggregate("system.count", &[]).unwrap().unwrap().new_state();
    rows.add(&[], &CallContext::at(0)).unwrap();
    assert_eq!(rows.result(&CallContext::at(0)).unwrap(), Some(1i64.to_be_bytes().to_vec()));
    assert!(
        is_aggregate("SUM") && is_aggregate("system.avg") && !is_aggregate("ks.sum") && !is_aggregate("abs")
    );
    assert!(resolve_aggregate("abs", &[CqlType::Int]).unwrap().is_none());
    assert!(resolve_aggregate("sum", &[CqlType::Text]).is_err());
}

#[test]
fn tokens() {
    let text = |result: Option<Vec<u8>>| literal::to_text(&CqlType::Bigint, &result.unwrap());
    let context = CallContext::at(0);
    assert_eq!(
        text(token(1, Partitioner::Murmur3).call(&[Some(&[0, 0, 0, 1])], &context).unwrap()),
        "-4069959284402364209"
    );
    assert_eq!(
        text(token(2, Partitioner::Murmur3).call(&[Some(&[0, 0, 0, 1]), Some(b"a")], &context).unwrap()),
        "6516349416904725244"
    );
    assert_eq!(token(1, Partitioner::Murmur3).call(&[None], &context).unwrap(), None);
}

#[test]
fn a_default_value_has_a_bounded_size() {
    let mut small = CqlType::vector(CqlType::Int, 2);
    assert_eq!(call("mask_default", &[(small.clone(), "null")]).unwrap(), "[0, 0]");
    small = CqlType::vector(CqlType::Text, 2);
    assert_eq!(call("mask_default", &[(small.clone(), "null")]).unwrap(), "['****', '****']");
    let nested = (0..8).fold(CqlType::Int, |element, _| CqlType::vector(element, 1_000));
    let in_tuple = CqlType::tuple([CqlType::Int, nested.clone()]);
    for large in [nested, in_tuple, CqlType::vector(CqlType::Float, usize::MAX)] {
        let refusal = resolve("mask_default", std::slice::from_ref(&large)).unwrap_err().to_string();
        assert!(refusal.ends_with("its value has more than 1048576 bytes"), "{refusal}");
        assert!(resolve("mask_null", &[large]).is_ok());
    }
}
