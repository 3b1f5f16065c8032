//! The library that functions see: the parts of Lua's own that are bounded and have no effects, the others again with counted work.
//!
//! Left out, because a function could go on after its work was ended, never end, keep something for the next call, or learn something
//! besides its arguments: `pcall`, `xpcall`, coroutines, metatables (`__gc` and `__close` run where nothing ends them), `load` and its
//! kind, `rawset` and its kind, `print`, `collectgarbage`, `io`, `os`, `debug`, `math.random`, `table.move`, `string.dump` and `string.pack`.
//!
//! The tables of the library are read through others that are empty and cannot be changed, so a call leaves nothing behind in them.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Error, Function, IntoLuaMulti, Lua, MultiValue, Result, Table, Value, Variadic};

use crate::budget::Budget;
use crate::pattern::{self, Capture, Found};

/// Most bytes of a string that `string.rep` and `string.gsub` make.
const STRING_BYTES_MAX: usize = 4 << 20;
/// Most values that `table.unpack` returns.
const UNPACKED_MAX: i64 = 8_000;
/// Elements that are moved in one step.
const ELEMENTS_PER_STEP: usize = 50;

type Bytes = mlua::String;

/// The globals of functions, to be read through a metatable only.
pub fn globals(lua: &Lua, budget: &Rc<Budget>) -> Result<Table> {
    let own = lua.globals();
    let globals = lua.create_table()?;
    for name in ["assert", "error", "ipairs", "next", "pairs", "select", "tonumber", "type"] {
        globals.raw_set(name, own.raw_get::<Function>(name)?)?;
    }
    globals.raw_set("tostring", lua.create_function(|lua, value: Value| shown(lua, &value))?)?;
    for name in [
        "pcall",
        "xpcall",
        "setmetatable",
        "getmetatable",
        "rawset",
        "rawget",
        "rawlen",
        "rawequal",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "require",
        "print",
        "collectgarbage",
    ] {
        globals.raw_set(name, absent(lua, name)?)?;
    }
    let strings = own.raw_get::<Table>("string")?;
    replace_string_functions(lua, &strings, budget)?;
    globals.raw_set("string", read_only(lua, strings)?)?;
    globals.raw_set("table", read_only(lua, table_functions(lua, &own.raw_get("table")?, budget)?)?)?;
    let math = own.raw_get::<Table>("math")?;
    for name in ["random", "randomseed"] {
        math.raw_set(name, absent(lua, &format!("math.{name}"))?)?;
    }
    globals.raw_set("math", read_only(lua, math)?)?;
    let utf8 = own.raw_get::<Table>("utf8")?;
    for name in ["len", "codepoint", "offset", "codes"] {
        utf8.raw_set(name, charged(lua, utf8.raw_get(name)?, budget)?)?;
    }
    globals.raw_set("utf8", read_only(lua, utf8)?)?;
    own.clear()?;
    Ok(globals)
}

/// A table through which another one is read. `what`: the message if it is written to.
pub fn read_only(lua: &Lua, table: Table) -> Result<Table> {
    let metatable = lua.create_table()?;
    metatable.raw_set("__index", table)?;
    let refuse = lua.create_function(|_, _: MultiValue| -> Result<()> {
        Err(Error::runtime("the library of functions cannot be changed"))
    })?;
    metatable.raw_set("__newindex", refuse)?;
    let proxy = lua.create_table()?;
    proxy.set_metatable(Some(metatable))?;
    Ok(proxy)
}

/// A function that only says that it is not there.
fn absent(lua: &Lua, name: &str) -> Result<Function> {
    let message = format!("{name} is not available in user-defined functions");
    lua.create_function(move |_, _: MultiValue| -> Result<()> { Err(Error::runtime(&message)) })
}

/// A function of Lua that takes a string first, with its work counted.
fn charged(lua: &Lua, function: Function, budget: &Rc<Budget>) -> Result<Function> {
    let budget = budget.clone();
    lua.create_function(move |_, arguments: MultiValue| {
        if let Some(Value::String(text)) = arguments.front() {
            budget.spend_bytes(text.as_bytes().len())?;
        }
        function.call::<MultiValue>(arguments)
    })
}

/// A value as text. The addresses that Lua shows for tables differ from node to node.
fn shown(lua: &Lua, value: &Value) -> Result<Bytes> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Nil | Value::Boolean(_) | Value::Integer(_) | Value::Number(_) | Value::UserData(_) => {
            lua.create_string(value.to_string()?)
        }
        other => lua.create_string(other.type_name()),
    }
}

fn replace_string_functions(lua: &Lua, strings: &Table, budget: &Rc<Budget>) -> Result<()> {
    for name in ["upper", "lower", "reverse", "sub", "byte", "char"] {
        strings.raw_set(name, charged(lua, strings.raw_get(name)?, budget)?)?;
    }
    for name in ["dump", "pack", "unpack", "packsize"] {
        strings.raw_set(name, absent(lua, &format!("string.{name}"))?)?;
    }
    let format = strings.raw_get::<Function>("format")?;
    let of_format = budget.clone();
    let function = lua.create_function(move |lua, (pattern, arguments): (Bytes, Variadic<Value>)| {
        refuse_addresses(&pattern.as_bytes())?;
        let mut bytes = pattern.as_bytes().len();
        let mut values = MultiValue::with_capacity(arguments.len() + 1);
        values.push_back(Value::String(pattern));
        for value in arguments {
            let value = match value {
                Value::Table(_) | Value::Function(_) | Value::Thread(_) | Value::UserData(_) => {
                    Value::String(shown(lua, &value)?)
                }
                other => other,
            };
            if let Value::String(text) = &value {
                bytes += text.as_bytes().len();
            }
            values.push_back(value);
        }
        of_format.spend_bytes(bytes)?;
        format.call::<Bytes>(values)
    })?;
    strings.raw_set("format", function)?;

    let of_repeat = budget.clone();
    let repeat = lua.create_function(move |lua, (text, count, separator): (Bytes, i64, Option<Bytes>)| {
        let text = text.as_bytes().to_vec();
        let separator = separator.map(|separator| separator.as_bytes().to_vec()).unwrap_or_default();
        if count <= 0 || (text.is_empty() && separator.is_empty()) {
            return lua.create_string("");
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let total = (text.len() + separator.len()).checked_mul(count);
        let Some(total) = total.filter(|total| *total <= STRING_BYTES_MAX) else {
            return Err(too_large());
        };
        of_repeat.spend_bytes(total)?;
        let mut repeated = Vec::with_capacity(total);
        for index in 0..count {
            if index > 0 {
                repeated.extend_from_slice(&separator);
            }
            repeated.extend_from_slice(&text);
        }
        lua.create_string(repeated)
    })?;
    strings.raw_set("rep", repeat)?;

    for (name, is_find) in [("find", true), ("match", false)] {
        let budget = budget.clone();
        let search =
            move |lua: &Lua, (text, wanted, from, is_plain): (Bytes, Bytes, Option<i64>, Option<bool>)| {
                let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
                budget.spend_bytes(text.len())?;
                let Some(from) = start(from, text.len()) else { return Value::Nil.into_lua_multi(lua) };
                let is_literal =
                    is_plain == Some(true) || !wanted.iter().any(|byte| b"^$*+?.([%-".contains(byte));
                let found = if is_find && is_literal {
                    literal(&text, &wanted, from, &budget)?
                } else {
                    pattern::find(&text, &wanted, from, &budget)?
                };
                let Some(found) = found else { return Value::Nil.into_lua_multi(lua) };
                let mut values = MultiValue::new();
                if is_find {
                    values.push_back(Value::Integer(found.start as i64 + 1));
                    values.push_back(Value::Integer(found.end as i64));
                }
                let captures = if is_find { found.captures.clone() } else { found.values() };
                for capture in captures {
                    values.push_back(value(lua, &text, capture)?);
                }
                Ok(values)
            };
        strings.raw_set(name, lua.create_function(search)?)?;
    }

    let of_each = budget.clone();
    let each = lua.create_function(move |lua, (text, wanted, from): (Bytes, Bytes, Option<i64>)| {
        let length = text.as_bytes().len();
        let (position, budget) = (Cell::new(start(from, length).unwrap_or(length + 1)), of_each.clone());
        let last_end = Cell::new(None);
        lua.create_function(move |lua, _: MultiValue| {
            let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
            budget.spend(1)?;
            let mut from = position.get();
            while from <= text.len() {
                let Some(found) = pattern::find_at(&text, &wanted, from, false, &budget)? else { break };
                if last_end.get() == Some(found.end) {
                    // An empty match where the last one has ended is none.
                    from = found.start + 1;
                    continue;
                }
                position.set(found.end);
                last_end.set(Some(found.end));
                return values(lua, &text, &found);
            }
            position.set(text.len() + 1);
            Value::Nil.into_lua_multi(lua)
        })
    })?;
    strings.raw_set("gmatch", each)?;

    let of_replace = budget.clone();
    let replace = lua.create_function(
        move |lua, (text, wanted, replacement, most): (Bytes, Bytes, Value, Option<i64>)| {
            substitute(lua, &text, &wanted, &replacement, most, &of_replace)
        },
    )?;
    strings.raw_set("gsub", replace)
}

/// `%p` shows an address.
fn refuse_addresses(format: &[u8]) -> Result<()> {
    let mut rest = format;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        rest = &rest[at + 1..];
        let end = rest.iter().position(|byte| !b"-+ #0.123456789".contains(byte)).unwrap_or(rest.len());
        match rest.get(end) {
            Some(b'p') => return Err(Error::runtime("invalid conversion '%p' to 'format'")),
            _ => rest = rest.get(end + 1..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// The place in a text (from 0) at which a search begins.
fn start(from: Option<i64>, length: usize) -> Option<usize> {
    let start = match from.unwrap_or(1) {
        0 => 0,
        from if from > 0 => usize::try_from(from - 1).unwrap_or(usize::MAX),
        from => length.saturating_sub(usize::try_from(from.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    (start <= length).then_some(start)
}

fn literal(text: &[u8], wanted: &[u8], from: usize, budget: &Budget) -> Result<Option<Found>> {
    let found = |start: usize| Found { start, end: start + wanted.len(), captures: Vec::new() };
    let Some((&first, rest)) = wanted.split_first() else { return Ok(Some(found(from))) };
    let mut at = from;
    while let Some(offset) = text[at..].iter().position(|&byte| byte == first) {
        at += offset;
        let same = std::iter::zip(&text[at + 1..], rest).take_while(|(a, b)| a == b).count();
        if same == rest.len() {
            return Ok(Some(found(at)));
        }
        // Texts of one byte repeated are compared again and again.
        if same >= 64 {
            budget.spend_bytes(same)?;
        }
        at += 1;
    }
    Ok(None)
}

fn value(lua: &Lua, text: &[u8], capture: Capture) -> Result<Value> {
    Ok(match capture {
        Capture::Range(start, end) => Value::String(lua.create_string(&text[start..end])?),
        Capture::Position(position) => Value::Integer(position as i64),
    })
}

fn values(lua: &Lua, text: &[u8], found: &Found) -> Result<MultiValue> {
    found.values().into_iter().map(|capture| value(lua, text, capture)).collect()
}

/// `string.gsub`
fn substitute(
    lua: &Lua,
    text: &Bytes,
    wanted: &Bytes,
    replacement: &Value,
    most: Option<i64>,
    budget: &Budget,
) -> Result<(Bytes, i64)> {
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    let (wanted, is_anchored) = match wanted.strip_prefix(b"^") {
        Some(rest) => (rest, true),
        None => (&wanted[..], false),
    };
    let (mut out, mut at, mut count, mut last_end) = (Vec::new(), 0, 0, None);
    while most.is_none_or(|most| count < most) {
        let found = pattern::find_at(&text, wanted, at, is_anchored, budget)?;
        let Some(found) = found else { break };
        let between = found.start.max(at);
        out.extend_from_slice(&text[at..between]);
        if last_end == Some(found.end) {
            // An empty match where the last one has ended is none.
            match text.get(found.start) {
                Some(&byte) => out.push(byte),
                None => break,
            }
            at = found.start + 1;
            continue;
        }
        count += 1;
        let whole = &text[found.start..found.end];
        let substitute = replaced(lua, &text, &found, replacement)?;
        let bytes = substitute.as_ref().map(|bytes| bytes.as_bytes().to_vec());
        out.extend_from_slice(bytes.as_deref().unwrap_or(whole));
        check_length(out.len())?;
        budget.spend_bytes(bytes.map_or(0, |bytes| bytes.len()))?;
        at = found.end;
        last_end = Some(found.end);
        if is_anchored || at > text.len() {
            break;
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    Ok((lua.create_string(out)?, count))
}

/// What takes the place of a match; `None`: it stays.
fn replaced(lua: &Lua, text: &[u8], found: &Found, replacement: &Value) -> Result<Option<Bytes>> {
    let first = || found.values().first().map_or(Ok(Value::Nil), |capture| value(lua, text, *capture));
    let result = match replacement {
        Value::String(template) => {
            return lua.create_string(filled(text, found, &template.as_bytes())?).map(Some);
        }
        Value::Integer(_) | Value::Number(_) => return shown(lua, replacement).map(Some),
        Value::Table(table) => table.get::<Value>(first()?)?,
        Value::Function(function) => function.call::<Value>(values(lua, text, found)?)?,
        other => {
            return Err(Error::runtime(format!(
                "bad argument #3 to 'gsub' (string/function/table expected, got {})",
                other.type_name()
            )));
        }
    };
    match result {
        Value::Nil | Value::Boolean(false) => Ok(None),
        Value::String(_) | Value::Integer(_) | Value::Number(_) => shown(lua, &result).map(Some),
        other => Err(Error::runtime(format!("invalid replacement value (a {})", other.type_name()))),
    }
}

fn too_large() -> Error {
    Error::runtime("resulting string too large")
}

/// Refuses a string, while it is made, that is too large.
fn check_length(bytes: usize) -> Result<()> {
    if bytes > STRING_BYTES_MAX { Err(too_large()) } else { Ok(()) }
}

/// A replacement with its `%0` to `%9` filled in.
fn filled(text: &[u8], found: &Found, template: &[u8]) -> Result<Vec<u8>> {
    let values = found.values();
    let mut out = Vec::with_capacity(template.len());
    let mut bytes = template.iter();
    while let Some(&byte) = bytes.next() {
        check_length(out.len())?;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'%') => out.push(b'%'),
            Some(b'0') => out.extend_from_slice(&text[found.start..found.end]),
            Some(digit @ b'1'..=b'9') => {
                let index = usize::from(digit - b'0');
                match values.get(index - 1) {
                    Some(Capture::Range(start, end)) => out.extend_from_slice(&text[*start..*end]),
                    Some(Capture::Position(position)) => {
                        out.extend_from_slice(position.to_string().as_bytes());
                    }
                    None => {
                        return Err(Error::runtime(format!(
                            "invalid capture index %{index} in replacement string"
                        )));
                    }
                }
            }
            _ => return Err(Error::runtime("invalid use of '%' in replacement string")),
        }
    }
    Ok(out)
}

fn table_functions(lua: &Lua, own: &Table, budget: &Rc<Budget>) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", own.raw_get::<Function>("pack")?)?;
    table.raw_set("move", absent(lua, "table.move")?)?;
    // Of several arguments, the second of `insert` and `remove` is a position: what is behind it moves.
    for (name, moving) in [("insert", 3), ("remove", 2), ("concat", 1)] {
        let (function, budget) = (own.raw_get::<Function>(name)?, budget.clone());
        let wrapper = lua.create_function(move |_, arguments: MultiValue| {
            if arguments.len() >= moving
                && let Some(Value::Table(table)) = arguments.front()
            {
                budget.spend(1 + (table.raw_len() / ELEMENTS_PER_STEP) as u64)?;
            }
            function.call::<MultiValue>(arguments)
        })?;
        table.raw_set(name, wrapper)?;
    }
    table.raw_set("sort", sort(lua, own.raw_get("sort")?, budget)?)?;
    let unpack = own.raw_get::<Function>("unpack")?;
    let unpack = lua.create_function(move |_, (table, from, to): (Table, Option<i64>, Option<i64>)| {
        let from = from.unwrap_or(1);
        let to = to.unwrap_or_else(|| i64::try_from(table.raw_len()).unwrap_or(i64::MAX));
        if to.saturating_sub(from) >= UNPACKED_MAX {
            return Err(Error::runtime("too many results to unpack"));
        }
        unpack.call::<MultiValue>((table, from, to))
    })?;
    table.raw_set("unpack", unpack)?;
    Ok(table)
}

/// `table.sort`. Where it compares by itself nothing counts its work, and two long strings can take a millisecond: without a function
/// that compares it gets one in Lua, whose instructions are counted.
fn sort(lua: &Lua, sort: Function, budget: &Rc<Budget>) -> Result<Function> {
    let less = lua.load("return function(a, b) return a < b end").set_name("=sort").eval::<Function>()?;
    let budget = budget.clone();
    lua.create_function(move |_, (table, compare): (Table, Value)| {
        let length = table.raw_len();
        let compare = match compare {
            Value::Nil => Value::Function(less.clone()),
            given => {
                let factor = length.max(2).ilog2() as usize;
                budget.spend(1 + (length.saturating_mul(factor) / ELEMENTS_PER_STEP) as u64)?;
                given
            }
        };
        sort.call::<()>((table, compare))
    })
}
