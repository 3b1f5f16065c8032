//! Values of CQL as values of Lua and back, as ScyllaDB maps them.
//!
//! | CQL | in Lua | taken back as well |
//! |---|---|---|
//! | integers, `counter` | integer (wraps into the type) | a number or string without fraction |
//! | `float`, `double` | number | a string with a number |
//! | `varint`, `decimal` | integer, or an exact number (`number`) | numbers, strings |
//! | `boolean` | boolean | |
//! | texts, `blob` | string | for texts: numbers |
//! | `uuid`, `timeuuid`, `inet` | string | |
//! | `date` (days + 2^31), `time` (nanoseconds), `timestamp` (milliseconds) | integer | a CQL literal; `date`, `timestamp`: a table as of `os.date` |
//! | `duration` | `{months =, days =, nanoseconds =}` | a CQL literal |
//! | `list`, `vector`, `tuple` | a sequence; nulls of tuples are left out | |
//! | `set` | a table with its elements as keys, and `true` | |
//! | `map` | a table | |
//! | a user type | a table by names of fields; nulls are left out | |
//! | null | `nil` | |
//!
//! A result is bounded: a few tables that hold each other can stand for any number of values.

use cql_lite::types::duration::Duration;
use cql_lite::types::number::Decimal;
use cql_lite::types::value::Value as Cql;
use cql_lite::types::{CqlType, canonical, codec, literal, validate::validate};
use helenus_query::functions::user::is_null;
use mlua::{Lua, Result as LuaResult, Table, Value};
use num_bigint::BigInt;
use thiserror::Error;

use crate::budget::{BYTES_PER_STEP, Budget, Spent};
use crate::errors::message;
use crate::number::{self, Exact, NumberProblem};

/// Most memory of a result while it is put together.
const RESULT_BYTES_MAX: usize = 32 << 20;
/// Memory of each part of a result besides its bytes.
const PART_BYTES: usize = 48;
/// Longest literal of a type that is a string in Lua, such as a date.
const LITERAL_BYTES_MAX: usize = 1_000;
/// How many types may stand in each other: more than statements can name, without those of fields of user types.
const DEPTH_MAX: usize = 128;

/// The reason why a result is no value of the return type.
#[derive(Debug, Error)]
pub enum Problem {
    #[error("{0}")]
    NoValue(String),
    #[error("the result is too large: it may take {} MiB", RESULT_BYTES_MAX >> 20)]
    TooLarge,
    #[error("the result is nested too deeply")]
    TooDeep,
    #[error(transparent)]
    Number(#[from] NumberProblem),
    #[error(transparent)]
    Spent(#[from] Spent),
}

#[allow(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
fn failed(error: mlua::Error) -> Problem {
    Problem::NoValue(message(&error))
}

#[allow(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
fn no_value(problem: impl ToString) -> Problem {
    Problem::NoValue(problem.to_string())
}

/// A value of a function's argument, from wire bytes that are valid for its type.
pub fn to_lua(lua: &Lua, of: &CqlType, bytes: Option<&[u8]>) -> LuaResult<Value> {
    let Some(bytes) = bytes.filter(|bytes| !is_null(of, Some(bytes))) else { return Ok(Value::Nil) };
    // The common types need no detour.
    match of {
        CqlType::Text | CqlType::Ascii | CqlType::Blob => {
            return Ok(Value::String(lua.create_string(bytes)?));
        }
        CqlType::Int => {
            if let Ok(bytes) = bytes.try_into() {
                return Ok(Value::Integer(i64::from(i32::from_be_bytes(bytes))));
            }
        }
        _ => {}
    }
    let value = Cql::decode(of, bytes).map_err(mlua::Error::external)?;
    from_value(lua, of, value)
}

fn from_value(lua: &Lua, of: &CqlType, value: Cql) -> LuaResult<Value> {
    let string = |text: &[u8]| Ok(Value::String(lua.create_string(text)?));
    Ok(match value {
        Cql::Empty => Value::Nil,
        Cql::Ascii(text) | Cql::Text(text) => return string(text.as_bytes()),
        Cql::Blob(bytes) => return string(&bytes),
        Cql::Boolean(truth) => Value::Boolean(truth),
        Cql::Bigint(number) | Cql::Counter(number) | Cql::Time(number) | Cql::Timestamp(number) => {
            Value::Integer(number)
        }
        Cql::Date(days) => Value::Integer(i64::from(days)),
        Cql::Int(number) => Value::Integer(i64::from(number)),
        Cql::Smallint(number) => Value::Integer(i64::from(number)),
        Cql::Tinyint(number) => Value::Integer(i64::from(number)),
        Cql::Double(number) => Value::Number(number),
        Cql::Float(number) => Value::Number(f64::from(number)),
        Cql::Varint(number) => return Exact::integer(number, lua),
        Cql::Decimal(number) => return Exact::value(number, lua),
        Cql::Inet(address) => return string(address.to_string().as_bytes()),
        Cql::Uuid(uuid) | Cql::Timeuuid(uuid) => return string(uuid.to_string().as_bytes()),
        Cql::Duration(duration) => {
            let table = lua.create_table()?;
            table.raw_set("months", duration.months)?;
            table.raw_set("days", duration.days)?;
            table.raw_set("nanoseconds", duration.nanoseconds)?;
            Value::Table(table)
        }
        Cql::List(items) | Cql::Vector(items) => {
            let element = element_type(of);
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (index, item) in items.into_iter().enumerate() {
                table.raw_set(index + 1, from_value(lua, element, item)?)?;
            }
            Value::Table(table)
        }
        Cql::Set(items) => {
            let element = element_type(of);
            let table = lua.create_table()?;
            for item in items {
                set_key(&table, from_value(lua, element, item)?, Value::Boolean(true))?;
            }
            Value::Table(table)
        }
        Cql::Map(entries) => {
            let table = lua.create_table()?;
            let CqlType::Map { key: key_type, value: value_type, .. } = of else { return Ok(Value::Nil) };
            for (key, value) in entries {
                set_key(&table, from_value(lua, key_type, key)?, from_value(lua, value_type, value)?)?;
            }
            Value::Table(table)
        }
        Cql::Tuple(fields) => {
            let table = lua.create_table()?;
            let CqlType::Tuple(types) = of else { return Ok(Value::Nil) };
            for (index, (field, field_type)) in fields.into_iter().zip(types.iter()).enumerate() {
                if let Some(field) = field {
                    table.raw_set(index + 1, from_value(lua, field_type, field)?)?;
                }
            }
            Value::Table(table)
        }
        Cql::UserType(fields) => {
            let table = lua.create_table()?;
            let CqlType::UserType { definition, .. } = of else { return Ok(Value::Nil) };
            let types = definition.field_names.iter().zip(&definition.field_types);
            for (field, (name, field_type)) in fields.into_iter().zip(types) {
                if let Some(field) = field {
                    table.raw_set(&**name, from_value(lua, field_type, field)?)?;
                }
            }
            Value::Table(table)
        }
    })
}

/// Neither `nil` nor NaN can be a key.
fn set_key(table: &Table, key: Value, value: Value) -> LuaResult<()> {
    match key {
        Value::Nil => Ok(()),
        Value::Number(number) if number.is_nan() => {
            Err(mlua::Error::runtime("NaN cannot be the key of a table"))
        }
        key => table.raw_set(key, value),
    }
}

fn element_type(of: &CqlType) -> &CqlType {
    match of {
        CqlType::List { element, .. } | CqlType::Set { element, .. } | CqlType::Vector { element, .. } => {
            element
        }
        _ => &CqlType::Blob,
    }
}

/// The wire bytes of a function's result; `None` is null.
pub fn to_wire(of: &CqlType, value: &Value, budget: &Budget) -> Result<Option<Vec<u8>>, Problem> {
    if value.is_nil() {
        return Ok(None);
    }
    let mut encoder = Encoder { budget, taken_bytes: 0, unpaid_bytes: 0, depth: 0 };
    encoder.part(of, value).map(Some)
}

fn mismatch<T>(of: &CqlType, value: &Value) -> Result<T, Problem> {
    Err(no_value(format!("a {} is no value of type {of}", value.type_name())))
}

/// A literal of a type in a string.
fn parsed(of: &CqlType, value: &Value) -> Result<Vec<u8>, Problem> {
    let Value::String(text) = value else { return mismatch(of, value) };
    let length = text.as_bytes().len();
    if length > LITERAL_BYTES_MAX {
        return Err(no_value(format!("a string of {length} bytes is no value of type {of}")));
    }
    let text = text.to_str().map_err(no_value)?;
    literal::parse(of, &text).map_err(no_value)
}

/// A number, exactly.
fn exact(of: &CqlType, value: &Value) -> Result<Decimal, Problem> {
    match value {
        Value::Integer(integer) => Ok(Decimal::from(*integer)),
        Value::Number(number) => {
            Decimal::from_f64(*number).map_err(|_| no_value(format!("{number} is no value of type {of}")))
        }
        Value::String(text) => {
            let text = text.to_str().map_err(no_value)?;
            number::from_text(&text).map_err(|problem| match problem {
                NumberProblem::NoNumber => {
                    no_value(format!("the string '{}' is no value of type {of}", &*text))
                }
                NumberProblem::TooLong => problem.into(),
            })
        }
        Value::UserData(data) => match data.borrow::<Exact>() {
            Ok(number) => Ok(number.number.clone()),
            Err(_) => mismatch(of, value),
        },
        other => mismatch(of, other),
    }
}

/// A number without a fraction, of any size.
fn varint(of: &CqlType, value: &Value) -> Result<BigInt, Problem> {
    let number = exact(of, value)?;
    if number.scale == 0 {
        return Ok(number.unscaled);
    }
    whole(of, &number)
}

/// A number without a fraction, whose digits may be shown.
fn integer(of: &CqlType, value: &Value) -> Result<BigInt, Problem> {
    whole(of, &exact(of, value)?)
}

fn whole(of: &CqlType, number: &Decimal) -> Result<BigInt, Problem> {
    number::check(number)?;
    let whole = number.to_integer().map_err(no_value)?;
    if Decimal::from(whole.clone()) == *number {
        Ok(whole)
    } else {
        Err(no_value(format!("{number} is no value of type {of}")))
    }
}

/// The low 64 bits of a number without a fraction.
fn wrapped(of: &CqlType, value: &Value) -> Result<i64, Problem> {
    match value {
        Value::Integer(integer) => Ok(*integer),
        other => Ok(cql_lite::types::number::low_i64(&integer(of, other)?)),
    }
}

fn float(of: &CqlType, value: &Value) -> Result<f64, Problem> {
    match value {
        Value::Number(number) => Ok(*number),
        Value::Integer(integer) => Ok(*integer as f64),
        Value::String(text) => {
            let text = text.to_str().map_err(no_value)?;
            text.trim()
                .parse()
                .map_err(|_| no_value(format!("the string '{}' is no value of type {of}", &*text)))
        }
        other => {
            let number = exact(of, other)?;
            number::check_digits(&number)?;
            Ok(number.to_f64())
        }
    }
}

fn temporal(of: &CqlType, value: &Value) -> Result<Vec<u8>, Problem> {
    match value {
        Value::String(_) => parsed(of, value),
        Value::Table(table) if !matches!(of, CqlType::Time) => {
            let text = date_text(of, table)?;
            literal::parse(of, &text).map_err(no_value)
        }
        Value::Table(_) => mismatch(of, value),
        _ => {
            let number = integer(of, value)?;
            let out_of_range = || no_value(format!("{number} is no value of type {of}"));
            match of {
                CqlType::Date => {
                    u32::try_from(&number).map(|days| days.to_be_bytes().to_vec()).map_err(|_| out_of_range())
                }
                _ => i64::try_from(&number).map(|at| at.to_be_bytes().to_vec()).map_err(|_| out_of_range()),
            }
        }
    }
}

/// A table as of `os.date`, as a literal.
fn date_text(of: &CqlType, table: &Table) -> Result<String, Problem> {
    const FIELDS: [&str; 6] = ["year", "month", "day", "hour", "min", "sec"];
    let mut fields: [Option<i64>; 6] = [None; 6];
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(failed)?;
        let name = key.to_string().map_err(failed)?;
        let known = FIELDS.iter().position(|field| *field == name);
        let Some(index) = known else { return Err(no_value(format!("invalid date table field: '{name}'"))) };
        fields[index] = Some(wrapped(&CqlType::Int, &value)?);
    }
    let [Some(year), Some(month), Some(day), hour, minute, second] = fields else {
        return Err(no_value("date table must have year, month and day"));
    };
    let date = format!("{year:04}-{month:02}-{day:02}");
    match (of, hour, minute, second) {
        (CqlType::Date, None, None, None) => Ok(date),
        (CqlType::Date, ..) => Err(no_value("date type has no hour, minute or second")),
        _ => Ok(format!(
            "{date}T{:02}:{:02}:{:02}Z",
            hour.unwrap_or(0),
            minute.unwrap_or(0),
            second.unwrap_or(0)
        )),
    }
}

fn duration(table: &Table) -> Result<Vec<u8>, Problem> {
    let (mut months, mut days, mut nanoseconds) = (0_i32, 0_i32, 0_i64);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(failed)?;
        let name = key.to_string().map_err(failed)?;
        let number = integer(&CqlType::Bigint, &value)?;
        let too_large = |bits: u32| no_value(format!("{number} {name} doesn't fit in a {bits} bit integer"));
        match name.as_str() {
            "months" => months = i32::try_from(&number).map_err(|_| too_large(32))?,
            "days" => days = i32::try_from(&number).map_err(|_| too_large(32))?,
            "nanoseconds" => nanoseconds = i64::try_from(&number).map_err(|_| too_large(64))?,
            _ => return Err(no_value(format!("invalid duration field: '{name}'"))),
        }
    }
    Ok(Cql::Duration(Duration { months, days, nanoseconds }).encode(&CqlType::Duration))
}

/// The index (from 0) that a key stands for in a sequence.
fn position(key: &Value) -> Option<usize> {
    match key {
        Value::Integer(index) => usize::try_from(index.checked_sub(1)?).ok(),
        _ => None,
    }
}

/// Puts a result together.
struct Encoder<'a> {
    budget: &'a Budget,
    /// The memory of all parts so far.
    taken_bytes: usize,
    /// What has been handled since steps were taken for it.
    unpaid_bytes: usize,
    depth: usize,
}

impl Encoder<'_> {
    /// A value or a part of one: checked by itself, because its bytes may be sorted.
    fn part(&mut self, of: &CqlType, value: &Value) -> Result<Vec<u8>, Problem> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Problem::TooDeep);
        }
        let taken_before = self.taken_bytes;
        let bytes = self.encode(of, value)?;
        // The parts of this one have been counted.
        let of_parts = self.taken_bytes - taken_before;
        self.taken_bytes += PART_BYTES + bytes.len().saturating_sub(of_parts);
        if self.taken_bytes > RESULT_BYTES_MAX {
            return Err(Problem::TooLarge);
        }
        self.unpaid_bytes += PART_BYTES + bytes.len();
        if self.unpaid_bytes >= BYTES_PER_STEP {
            self.budget.spend_bytes(std::mem::take(&mut self.unpaid_bytes))?;
        }
        validate(of, &bytes).map_err(no_value)?;
        self.depth -= 1;
        Ok(bytes)
    }

    fn encode(&mut self, of: &CqlType, value: &Value) -> Result<Vec<u8>, Problem> {
        match of {
            CqlType::Text | CqlType::Ascii => match value {
                Value::String(text) => Ok(text.as_bytes().to_vec()),
                Value::Integer(_) | Value::Number(_) | Value::UserData(_) => {
                    Ok(value.to_string().map_err(failed)?.into_bytes())
                }
                other => mismatch(of, other),
            },
            CqlType::Blob | CqlType::Custom(_) => match value {
                Value::String(bytes) => Ok(bytes.as_bytes().to_vec()),
                other => mismatch(of, other),
            },
            CqlType::Boolean => match value {
                Value::Boolean(truth) => Ok(vec![u8::from(*truth)]),
                other => mismatch(of, other),
            },
            CqlType::Tinyint => Ok(vec![wrapped(of, value)? as u8]),
            CqlType::Smallint => Ok((wrapped(of, value)? as i16).to_be_bytes().to_vec()),
            CqlType::Int => Ok((wrapped(of, value)? as i32).to_be_bytes().to_vec()),
            CqlType::Bigint | CqlType::Counter => Ok(wrapped(of, value)?.to_be_bytes().to_vec()),
            CqlType::Varint => Ok(varint(of, value)?.to_signed_bytes_be()),
            CqlType::Decimal => Ok(exact(of, value)?.to_wire()),
            CqlType::Double => Ok(float(of, value)?.to_be_bytes().to_vec()),
            CqlType::Float => Ok((float(of, value)? as f32).to_be_bytes().to_vec()),
            CqlType::Uuid | CqlType::Timeuuid | CqlType::Inet => match value {
                Value::String(_) => parsed(of, value),
                other => mismatch(of, other),
            },
            CqlType::Date | CqlType::Time | CqlType::Timestamp => temporal(of, value),
            CqlType::Duration => match value {
                Value::Table(table) => duration(table),
                Value::String(_) => parsed(of, value),
                other => mismatch(of, other),
            },
            CqlType::Empty => mismatch(of, value),
            CqlType::List { .. }
            | CqlType::Set { .. }
            | CqlType::Map { .. }
            | CqlType::Tuple(_)
            | CqlType::UserType { .. }
            | CqlType::Vector { .. } => match value {
                Value::Table(table) => self.composite(of, table),
                other => mismatch(of, other),
            },
        }
    }

    fn composite(&mut self, of: &CqlType, table: &Table) -> Result<Vec<u8>, Problem> {
        match of {
            CqlType::List { element, .. } => {
                let items = self.sequence(element, table, None)?;
                Ok(codec::encode_elements(items.iter().map(AsRef::as_ref)))
            }
            CqlType::Vector { element, dimension } => {
                let mut out = Vec::new();
                for item in self.sequence(element, table, Some(*dimension))? {
                    codec::write_vector_element(element, &item, &mut out);
                }
                Ok(out)
            }
            CqlType::Set { element, .. } => {
                let mut items = Vec::new();
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair.map_err(failed)?;
                    if !matches!(value, Value::Boolean(true)) {
                        return Err(no_value("sets are represented with tables with true values"));
                    }
                    items.push(self.part(element, &key)?);
                }
                canonical::sort_elements(element, &mut items);
                Ok(codec::encode_elements(items.iter().map(AsRef::as_ref)))
            }
            CqlType::Map { key: key_type, value: value_type, .. } => {
                let mut entries = Vec::new();
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair.map_err(failed)?;
                    entries.push((self.part(key_type, &key)?, self.part(value_type, &value)?));
                }
                canonical::sort_entries(key_type, &mut entries);
                Ok(codec::encode_entries(entries.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))))
            }
            CqlType::Tuple(types) => {
                let mut fields = vec![None; types.len()];
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair.map_err(failed)?;
                    let Some(index) = position(&key).filter(|index| *index < types.len()) else {
                        let (key, size) = (key.to_string().map_err(failed)?, types.len());
                        return Err(no_value(format!(
                            "key {key} is not valid for a sequence of size {size}"
                        )));
                    };
                    fields[index] = Some(self.part(&types[index], &value)?);
                }
                Ok(codec::encode_fields(fields.iter().map(Option::as_deref)))
            }
            CqlType::UserType { definition, .. } => {
                let mut fields = vec![None; definition.field_names.len()];
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair.map_err(failed)?;
                    let name = key.to_string().map_err(failed)?;
                    let index = definition
                        .field_index(&name)
                        .ok_or_else(|| no_value(format!("invalid UDT field '{name}'")))?;
                    fields[index] = Some(self.part(&definition.field_types[index], &value)?);
                }
                Ok(codec::encode_fields(fields.iter().map(Option::as_deref)))
            }
            _ => Err(no_value(format!("a table is no value of type {of}"))),
        }
    }

    /// The encoded items of a sequence.
    fn sequence(
        &mut self,
        of: &CqlType,
        table: &Table,
        expected: Option<usize>,
    ) -> Result<Vec<Vec<u8>>, Problem> {
        let mut items = Vec::new();
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(failed)?;
            let index = position(&key).ok_or_else(|| no_value("table is not a sequence"))?;
            items.push((index, self.part(of, &value)?));
        }
        items.sort_unstable_by_key(|(index, _)| *index);
        if items.iter().enumerate().any(|(place, (index, _))| place != *index) {
            return Err(no_value("table is not a sequence"));
        }
        if let Some(expected) = expected.filter(|expected| *expected != items.len()) {
            let found = items.len();
            return Err(no_value(format!("the sequence has {found} elements and not {expected}")));
        }
        Ok(items.into_iter().map(|(_, item)| item).collect())
    }
}
