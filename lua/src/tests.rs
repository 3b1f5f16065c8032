#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use cql_lite::types::{CqlType, UserType, literal};
use helenus_query::functions::user::{UserFunction, UserFunctionRuntime};

use super::LUA;
use crate::budget::Budget;
use crate::pattern::{self, Capture};

fn ty(text: &str) -> CqlType {
    let definition = Arc::new(UserType {
        keyspace: "ks".into(),
        name: "udt".into(),
        field_names: vec!["a".into(), "b".into()],
        field_types: vec![CqlType::Int, CqlType::Text],
    });
    CqlType::parse(text, &|name| (name == "udt").then(|| definition.clone())).unwrap()
}

/// A function with arguments `a`, `b`, … of these types.
fn function(arguments: &[&str], returns: &str, body: &str) -> Arc<UserFunction> {
    Arc::new(UserFunction {
        keyspace: "ks".to_owned(),
        name: "f".to_owned(),
        argument_names: ('a'..).take(arguments.len()).map(String::from).collect(),
        argument_types: arguments.iter().map(|text| ty(text)).collect(),
        return_type: ty(returns),
        called_on_null_input: true,
        language: "lua".to_owned(),
        body: body.to_owned(),
    })
}

/// Calls a function that takes one value, and shows the result as a literal.
fn call(argument: (&str, &str), returns: &str, body: &str) -> String {
    let function = function(&[argument.0], returns, body);
    let of = &function.argument_types[0];
    let bytes = (argument.1 != "null").then(|| encoded(of, argument.1));
    match LUA.call(&function, &[bytes.as_deref()]) {
        Ok(Some(bytes)) => literal::format(&function.return_type, &bytes),
        Ok(None) => "null".to_owned(),
        Err(problem) => format!("error {problem}"),
    }
}

fn encoded(of: &CqlType, text: &str) -> Vec<u8> {
    let parsed = cql_lite::types::json::from_json(of, text);
    parsed.unwrap().unwrap()
}

/// The result of code that takes nothing and returns a text.
fn run(body: &str) -> String {
    call(("int", "1"), "text", body)
}

#[test]
fn values_of_every_type_pass_through() {
    for (of, json, shown) in [
        ("int", "-7", "-7"),
        ("tinyint", "-7", "-7"),
        ("smallint", "300", "300"),
        ("bigint", "9223372036854775807", "9223372036854775807"),
        ("varint", "123456789012345678901234567890", "123456789012345678901234567890"),
        ("varint", "5", "5"),
        ("decimal", "1.50", "1.50"),
        ("double", "0.1", "0.1"),
        ("float", "1.5", "1.5"),
        ("boolean", "true", "true"),
        ("text", "\"größer\"", "'größer'"),
        ("ascii", "\"a\"", "'a'"),
        ("text", "\"\"", "''"),
        ("blob", "\"0x00ff\"", "0x00ff"),
        ("uuid", "\"123e4567-e89b-12d3-a456-426614174000\"", "123e4567-e89b-12d3-a456-426614174000"),
        ("timeuuid", "\"123e4567-e89b-12d3-a456-426614174000\"", "123e4567-e89b-12d3-a456-426614174000"),
        ("inet", "\"127.0.0.1\"", "'127.0.0.1'"),
        ("date", "\"2020-01-02\"", "'2020-01-02'"),
        ("time", "\"10:00:00.000000001\"", "'10:00:00.000000001'"),
        ("timestamp", "\"2020-01-02 03:04:05.006Z\"", "'2020-01-02T03:04:05.006Z'"),
        ("duration", "\"1mo2d3ns\"", "1mo2d3ns"),
        ("list<int>", "[3, 1, 2]", "[3, 1, 2]"),
        ("set<text>", "[\"b\", \"a\"]", "{'a', 'b'}"),
        ("map<text, frozen<list<int>>>", "{\"a\": [1], \"b\": []}", "{'a': [1], 'b': []}"),
        ("tuple<int, text, int>", "[1, null, 3]", "(1, null, 3)"),
        ("udt", "{\"a\": 1}", "{a: 1, b: null}"),
        ("vector<float, 2>", "[1.5, 2]", "[1.5, 2.0]"),
        ("int", "null", "null"),
    ] {
        assert_eq!(call((of, json), of, "return a"), shown, "{of}");
    }
}

#[test]
fn results_are_taken_from_what_lua_makes_of_them() {
    for (returns, body, shown) in [
        ("int", "return 2.0", "2"),
        ("int", "return '42'", "42"),
        ("int", "return 1 << 32", "0"),
        ("bigint", "return 7 // 2", "3"),
        ("bigint", "return 2.5", "error 2.5 is no value of type bigint"),
        ("int", "return {}", "error a table is no value of type int"),
        ("int", "return true", "error a boolean is no value of type int"),
        ("text", "return 12", "'12'"),
        ("text", "return '\\xff'", "error String didn't validate."),
        ("double", "return 1", "1.0"),
        ("decimal", "return 0.1", "0.1"),
        ("decimal", "return '1.10'", "1.10"),
        ("varint", "return math.maxinteger", "9223372036854775807"),
        ("date", "return {year = 2020, month = 2, day = 29}", "'2020-02-29'"),
        ("date", "return {year = 2020, month = 2}", "error date table must have year, month and day"),
        ("timestamp", "return {year = 2020, month = 2, day = 29, hour = 1}", "'2020-02-29T01:00:00.000Z'"),
        ("timestamp", "return '2020-02-29'", "'2020-02-29T00:00:00.000Z'"),
        ("duration", "return {days = 1}", "1d"),
        ("duration", "return {weeks = 1}", "error invalid duration field: 'weeks'"),
        ("list<int>", "return {1, nil, 3}", "error table is not a sequence"),
        ("set<int>", "return {[2] = true, [1] = true}", "{1, 2}"),
        ("set<int>", "return {2}", "error sets are represented with tables with true values"),
        ("tuple<int, int>", "return {1, 2, 3}", "error key 3 is not valid for a sequence of size 2"),
        ("udt", "return {c = 1}", "error invalid UDT field 'c'"),
        ("vector<float, 2>", "return {1}", "error the sequence has 1 elements and not 2"),
        ("int", "", "null"),
    ] {
        assert_eq!(call(("int", "1"), returns, body), shown, "{returns}: {body}");
    }
}

#[test]
fn large_numbers_are_exact() {
    let number = "123456789012345678901234567890";
    assert_eq!(call(("varint", number), "varint", "return a * 2 + 1 - a"), "123456789012345678901234567891");
    assert_eq!(call(("decimal", "0.1"), "decimal", "return a + a + a"), "0.3");
    assert_eq!(call(("decimal", "0.1"), "text", "return a .. ' ' .. tostring(-a)"), "'0.1 -0.1'");
    assert_eq!(call(("decimal", "2.5"), "boolean", "return a > 2 and a <= 2.5 and a == a"), "true");
    let endless = "while true do a = a * a end";
    assert_eq!(call(("varint", number), "varint", endless), "error a number has too many digits");
}

#[test]
fn every_call_ends_in_time() {
    let mut wrong = Vec::new();
    for (body, problem) in [
        ("while true do end", "too much work"),
        ("local function f() return f() end return f()", "too much work"),
        ("local function f() return 1 + f() end return f()", "not enough memory"),
        ("return string.rep('x', 1e9)", "resulting string too large"),
        ("return string.rep('', math.maxinteger)", ""),
        ("return ('x'):rep(1000, ('y'):rep(1000000))", "resulting string too large"),
        ("local s = string.rep('x', 4000000) while true do local t = s .. s end", "too much work"),
        ("local t = {} while true do t[#t + 1] = string.rep('x', 100000) end", "not enough memory"),
        ("local t = {} for i = 1, 1e9 do t[i] = i end", "not enough memory"),
        ("return string.rep('a', 100000):match(string.rep('a*', 30) .. 'b')", "too much work"),
        ("return string.rep('a', 1000000):find('.-.-.-.-b')", "too much work"),
        ("return string.rep('a', 1000000):gsub('a*a*a*b', '')", "too much work"),
        ("return string.rep('a', 3000000):find(string.rep('a', 1000000) .. 'b', 1, true)", "too much work"),
        ("for x in string.rep('a', 100000):gmatch('a*a*a*b') do end", "too much work"),
        ("return string.rep('(', 100):match(string.rep('(', 100))", "too many captures"),
        ("return string.rep('a', 1000):match(string.rep('a?', 300) .. 'b')", "pattern too complex"),
        ("table.sort({3, 1, 2, 5, 4, 9, 8, 7}, function(x, y) return true end)", "invalid order function"),
        ("table.sort({1, 2, 3}, function() while true do end end)", "too much work"),
        ("local t = {} for i = 1, 100000 do t[i] = i end while true do table.concat(t) end", "too much work"),
        ("local t = {} local i = 1 while i > 0 do t[i] = 1 i = i * 2 end table.insert(t, 1, 1)", ""),
        ("local t = {} local i = 1 while i > 0 do t[i] = 1 i = i * 2 end table.remove(t, 1)", ""),
        ("return table.unpack({}, 1, 1e8)", "too many results to unpack"),
        ("table.concat({}, 'x', 1, math.maxinteger)", "invalid value"),
        ("return select(-1)", "bad argument"),
        (
            "local s, t = string.rep('x', 3000000), {} for i = 1, 20000 do t[i] = s end table.sort(t)",
            "too much work",
        ),
        ("return ('x'):rep(1000000):gsub('x*', ('%0'):rep(1000000))", "resulting string too large"),
        ("error({})", ""),
        ("error('x', 0)", "x"),
        ("local function f(n) return string.gsub('a', 'a', f) end return f()", "overflow"),
        ("local function f() table.sort({1, 2}, f) return true end f()", "overflow"),
    ] {
        let result = run(body);
        if problem.is_empty() {
            continue;
        }
        // A machine with much else to do gets to the limit of time before it gets to another.
        let is_late =
            matches!(problem, "too much work" | "not enough memory") && result.contains("takes too long");
        if !(result.starts_with("error ") && (is_late || result.contains(problem))) || result.contains('\n') {
            wrong.push(format!("{body}: {result}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let deep = format!("return {}1{}", "(".repeat(30_000), ")".repeat(30_000));
    assert!(run(&deep).contains("overflow"), "{}", run(&deep));
}

#[test]
fn results_are_bounded() {
    let fields = vec!["int"; 1_000].join(", ");
    for (of, body) in [
        ("list<text>", "local s, t = string.rep('x', 3000000), {} for i = 1, 10000 do t[i] = s end return t"),
        // Each level has the one below it many times.
        (
            "list<frozen<list<frozen<list<frozen<list<int>>>>>>>",
            "local t = {} for _ = 1, 3 do local o = {} for i = 1, 1000 do o[i] = t end t = o end return t",
        ),
        (
            &format!("list<frozen<tuple<{fields}>>>"),
            "local t, o = {}, {} for i = 1, 100000 do o[i] = t end return o",
        ),
    ] {
        let result = call(("int", "1"), of, body);
        // A machine with much else to do may need too long for it.
        let is_bounded =
            ["the result is too large", "takes too long"].iter().any(|text| result.contains(text));
        assert!(is_bounded, "{body}: {} bytes", result.len());
    }
    let own = "local t = {} for i = 1, 10000 do t[i] = t end return t";
    assert_eq!(call(("int", "1"), "list<int>", own), "error a table is no value of type int");
    // What is large and bounded is taken.
    let large = "local t = {} for i = 1, 50000 do t[i] = i end return t";
    assert!(call(("int", "1"), "list<int>", large).ends_with("49999, 50000]"));
}

#[test]
fn the_digits_of_numbers_are_counted_as_memory() {
    let long = [0x55; 2_000];
    let keep = function(&["varint"], "int", "local t = {} for i = 1, 20000 do t[i] = a + i end return #t");
    assert_eq!(LUA.call(&keep, &[Some(&long)]).unwrap_err(), "not enough memory");
    let forget = function(&["varint"], "int", "for i = 1, 2000 do local b = a + i end return 1");
    for _ in 0..10 {
        assert_eq!(LUA.call(&forget, &[Some(&long)]).unwrap(), Some(vec![0, 0, 0, 1]));
    }
}

#[test]
fn a_result_that_is_too_deep_is_refused() {
    let mut of = CqlType::Int;
    for _ in 0..1_000 {
        of = CqlType::list(of, true);
    }
    let mut deep = UserFunction::clone(&function(&[], "int", "local t = {} t[1] = t return t"));
    deep.return_type = of;
    assert_eq!(LUA.call(&Arc::new(deep), &[]).unwrap_err(), "the result is nested too deeply");
}

#[test]
fn long_numbers_are_refused_before_their_digits_are_worked_out() {
    let nines = "local s = ('9'):rep(3000000) return s";
    for of in ["varint", "decimal", "int", "bigint", "timestamp"] {
        let result = call(("int", "1"), of, nines);
        assert!(result.starts_with("error") && result.len() < 100, "{of}: {} bytes", result.len());
    }
    let far = "local t = {} for i = 1, 100000 do t[i] = '1e90000' end return t";
    assert_eq!(call(("int", "1"), "list<int>", far), "error a number has too many digits");
    let long = function(&["varint"], "text", "return tostring(a)");
    let digits = vec![0x7f; 1_000_000];
    assert_eq!(LUA.call(&long, &[Some(&digits)]).unwrap_err(), "a number has too many digits");
    for body in
        ["return a / 2", "return a + 0.5", "return -a", "return a", "return a < 0.5", "return a .. ''"]
    {
        for of in ["text", "double", "date"] {
            let long = function(&["varint"], of, body);
            let problem = LUA.call(&long, &[Some(&digits)]).unwrap_err();
            assert_eq!(problem, "a number has too many digits", "{body}, {of}");
        }
    }
    let body = "return a + ('9'):rep(3000000)";
    let number = ("varint", "123456789012345678901234567890");
    assert_eq!(call(number, "varint", body), "error a number has too many digits");
    // A number that is only passed on needs no digits.
    let same = function(&["varint"], "varint", "return a");
    assert_eq!(LUA.call(&same, &[Some(&digits)]).unwrap(), Some(digits.clone()));
}

#[test]
fn what_other_functions_have_left_costs_no_call_its_memory() {
    // All together do not fit into a state.
    let compiled = (0..220).map(|number| {
        let body = format!("local s = '{}{number}' return #s", "x".repeat(100_000));
        function(&[], "int", &body)
    });
    let compiled = compiled.collect::<Vec<_>>();
    for _ in 0..2 {
        for function in &compiled {
            assert!(LUA.call(function, &[]).is_ok());
        }
        assert_eq!(run("local s = string.rep('x', 4000000) return #(s .. s)"), "'8000000'");
        let large = format!("local s = '{}' return #s", "x".repeat(6_000_000));
        assert_eq!(LUA.check(&function(&[], "int", &large)), Ok(()));
    }
}

#[test]
fn a_panic_is_an_error_of_the_call_and_ends_the_state() {
    let result = super::with_sandbox::<()>(|_| panic!("the interpreter fails"));
    assert_eq!(result.unwrap_err(), super::PANICKED);
    assert_eq!(run("return 1"), "'1'");
}

#[test]
fn nothing_is_left_for_the_next_call() {
    let count = function(&["int"], "int", "n = (n or 0) + 1; local f = string.upper; return n");
    for _ in 0..3 {
        assert_eq!(LUA.call(&count, &[None]).unwrap(), Some(vec![0, 0, 0, 1]));
    }
    assert_eq!(run("_ENV = {}; x = 1"), "null");
    assert_eq!(run("_ENV.x = 1; return x"), "'1'");
    assert_eq!(run("return type(x)"), "'nil'");
    for body in ["string.upper = nil", "string.x = 1", "table.insert(math, 1)", "table.insert(string, 1, 1)"]
    {
        assert!(run(body).ends_with("the library of functions cannot be changed"), "{body}: {}", run(body));
    }
    assert!(run("('x').y = 1").starts_with("error"));
    assert_eq!(run("return ('x'):upper()"), "'X'");
}

#[test]
fn what_would_leave_the_sandbox_is_not_there() {
    for name in ["io", "os", "debug", "coroutine", "package", "_G", "_VERSION"] {
        assert_eq!(run(&format!("return type({name})")), "'nil'", "{name}");
    }
    for name in [
        "pcall",
        "xpcall",
        "setmetatable",
        "getmetatable",
        "rawset",
        "load",
        "dofile",
        "loadfile",
        "require",
        "print",
        "collectgarbage",
        "string.dump",
        "string.pack",
        "math.random",
        "table.move",
    ] {
        let expected = format!("error f:1: {name} is not available in user-defined functions");
        let result = run(&format!("return {name}(1)"));
        assert!(result == expected || result == expected.replace("f:1: ", ""), "{result}");
    }
    assert_eq!(
        run("return tostring({}) .. tostring(print) .. string.format('%s', {})"),
        "'tablefunctiontable'"
    );
    assert!(run("return string.format('%5p', {})").contains("invalid conversion '%p'"));
    let bytecode = function(&[], "int", "\u{1b}Lua");
    assert!(LUA.check(&bytecode).is_err());
}

#[test]
fn code_is_checked_before_it_is_called() {
    let check = |body: &str| LUA.check(&function(&["int"], "int", body)).err().unwrap_or_default();
    assert_eq!(check("return a"), "");
    assert_eq!(check("return a +"), "f:1: unexpected symbol near <eof>");
    assert!(check("goto x").contains("no visible label"));
    let mut named = UserFunction::clone(&function(&["int"], "int", "return 1"));
    for (name, problem) in
        [("end", "no name of a variable"), ("ä", "no name of a variable"), ("a b", "no name"), ("_x1", "")]
    {
        named.argument_names = vec![name.to_owned()];
        let result = LUA.check(&named).err().unwrap_or_default();
        assert!(result.contains(problem) && result.is_empty() == problem.is_empty(), "{name}: {result}");
    }
}

#[test]
fn string_functions_are_those_of_lua() {
    for (body, shown) in [
        ("return ('hello world'):find('o w')", "'5'"),
        ("return ('hello'):find('xyz') == nil", "error a boolean is no value of type text"),
        ("return ('key = value'):match('(%w+)%s*=%s*(%w+)')", "'key'"),
        ("local _, v = ('key = value'):match('(%w+)%s*=%s*(%w+)') return v", "'value'"),
        ("return ('2020-01-02'):gsub('%-', '/')", "'2020/01/02'"),
        ("return ('hello'):gsub('', '-')", "'-h-e-l-l-o-'"),
        ("return ('abc'):gsub('%w', '%0%0')", "'aabbcc'"),
        ("return ('abc'):gsub('b*', 'x')", "'xaxcx'"),
        ("return ('$name'):gsub('%$(%w+)', {name = 'Lua'})", "'Lua'"),
        ("return ('abc'):gsub('.', function(c) return c:upper() end, 2)", "'ABc'"),
        ("return ('hello'):gsub('^h', 'j')", "'jello'"),
        (
            "local r = '' for w in ('one two'):gmatch('%a+') do r = r .. '<' .. w .. '>' end return r",
            "'<one><two>'",
        ),
        (
            "local r = '' for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do r = r .. k .. v end return r",
            "'a1b2'",
        ),
        ("local r = 0 for w in ('abc'):gmatch('') do r = r + 1 end return r", "'4'"),
        ("local r = '' for w in ('abcd'):gmatch('%a', 3) do r = r .. w end return r", "'cd'"),
        ("local r = '' for w in ('abcd'):gmatch('%a', -1) do r = r .. w end return r", "'d'"),
        ("local r = 0 for w in ('abcd'):gmatch('', 6) do r = r + 1 end return r", "'0'"),
        ("return ('f(a(b)c)d'):match('%b()')", "'(a(b)c)'"),
        ("return ('THE (quick) fox'):find('%((%a+)%)')", "'5'"),
        ("return ('THE (quick) fox'):gsub('%f[%a]%a+', 'w')", "'w (w) w'"),
        ("return ('abab'):match('(ab)%1')", "'ab'"),
        ("return ('  x  '):match('^%s*(.-)%s*$') .. '|'", "'x|'"),
        ("return ('a.b'):find('.', 1, true)", "'2'"),
        ("return ('abc'):find('b', -1)", "null"),
        ("return ('abc'):match('()c')", "'3'"),
        ("return ('x]y'):match('[]]')", "']'"),
        ("return ('a-z'):match('[a%-]+')", "'a-'"),
        ("return ('xyz'):match('[^x]+')", "'yz'"),
        ("return ('x'):match('[a-')", "error f:1: malformed pattern (missing ']')"),
        ("return string.format('%5.2f|%d|%s|%q', 1.5, 3, 'x', 'y')", "' 1.50|3|x|\"y\"'"),
        ("return ('x'):rep(3, ',')", "'x,x,x'"),
        ("return utf8.len('größe')", "'5'"),
        (
            "local t = {3, 1, 2} table.sort(t) table.insert(t, 1, 0) table.remove(t) return table.concat(t, ',')",
            "'0,1,2'",
        ),
        ("local t = {'b', 'a', 'B', ''} table.sort(t) return table.concat(t, ',')", "',B,a,b'"),
        (
            "local t = {3, 1, 2} table.sort(t, function(x, y) return x > y end) return table.concat(t)",
            "'321'",
        ),
        ("local t = {3, 1, 2} table.sort(t, nil) return table.concat(t)", "'123'"),
        ("table.sort({1, 'x'})", "error sort:1: attempt to compare string with number"),
        ("return math.max(1, 2) + math.floor(2.5)", "'4'"),
    ] {
        assert_eq!(run(body).replace("error malformed", "error f:1: malformed"), shown, "{body}");
    }
}

#[test]
fn patterns_capture_ranges_and_positions() {
    let budget = Budget::new();
    budget.begin();
    let found = pattern::find(b"  ab12", b"()(%a+)(%d-)$", 0, &budget).unwrap().unwrap();
    assert_eq!((found.start, found.end), (2, 6));
    assert_eq!(found.captures, [Capture::Position(3), Capture::Range(2, 4), Capture::Range(4, 6)]);
}
