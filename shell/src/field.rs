//! Text of a CSV field into a value: the inverse of [`crate::format`] in its CSV style.

use std::borrow::Cow;

use cql_lite::types::{CqlType, Value, literal, time};

/// How deep a value may be nested; no type that a server accepts is deeper.
const NESTING_MAX: usize = 64;

/// Why a field is not a value of its column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error(transparent)]
    Literal(#[from] literal::LiteralError),
    #[error("expected {expected} at '{at}'")]
    Syntax { expected: &'static str, at: String },
    #[error("expected {expected} elements, found {found}")]
    Dimension { expected: usize, found: usize },
    #[error("unknown field '{name}'")]
    UnknownField { name: String },
    #[error("the value is malformed: {0}")]
    Malformed(String),
}

/// The wire bytes of a field; `null` stands for null within tuples and user types, as the word `null` does.
pub fn parse(cql_type: &CqlType, text: &str, null: &str) -> Result<Vec<u8>, FieldError> {
    if cql_type.components().is_empty() {
        return Ok(native(cql_type, text)?);
    }
    let mut parser = Parser { rest: text, null };
    let value = parser.value(cql_type, 0)?;
    if !parser.rest.trim().is_empty() {
        return Err(parser.expected("the end of the value"));
    }
    Ok(value.encode(cql_type))
}

fn native(cql_type: &CqlType, text: &str) -> Result<Vec<u8>, literal::LiteralError> {
    match text.parse() {
        Ok(number) if *cql_type == CqlType::Date && !is_usual_date(number) => {
            Ok(time::date_from_days(number.into())?.to_be_bytes().to_vec())
        }
        _ => literal::parse(cql_type, text),
    }
}

/// Whether a number is a date as CQL encodes it (2^31 is 1970-01-01) in a year with four digits. Other numbers are read as days
/// since 1970-01-01: cqlsh exports dates of other years in this form, and so did this shell once.
fn is_usual_date(number: i32) -> bool {
    let (year, _, _) = time::civil_from_days(i64::from(number) - time::DATE_EPOCH);
    (1..=9999).contains(&year)
}

struct Parser<'a> {
    rest: &'a str,
    null: &'a str,
}

impl<'a> Parser<'a> {
    fn expected(&self, expected: &'static str) -> FieldError {
        FieldError::Syntax { expected, at: self.rest.chars().take(20).collect() }
    }

    fn accept(&mut self, symbol: char) -> bool {
        match self.rest.trim_start().strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, symbol: char, expected: &'static str) -> Result<(), FieldError> {
        if self.accept(symbol) { Ok(()) } else { Err(self.expected(expected)) }
    }

    /// Items up to the closing symbol, separated by commas; the opening one was taken.
    fn items(
        &mut self,
        close: char,
        mut item: impl FnMut(&mut Self) -> Result<(), FieldError>,
    ) -> Result<(), FieldError> {
        if self.accept(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.accept(close) {
                return Ok(());
            }
            self.expect(',', "a comma or a closing bracket")?;
        }
    }

    fn elements(&mut self, close: char, element: &CqlType, depth: usize) -> Result<Vec<Value>, FieldError> {
        let mut values = Vec::new();
        self.items(close, |parser| {
            values.push(parser.value(element, depth)?);
            Ok(())
        })?;
        Ok(values)
    }

    fn value(&mut self, cql_type: &CqlType, depth: usize) -> Result<Value, FieldError> {
        if depth > NESTING_MAX {
            return Err(self.expected("a value that is nested less deep"));
        }
        let depth = depth + 1;
        match cql_type {
            CqlType::List { element, .. } => {
                self.expect('[', "a list")?;
                Ok(Value::List(self.elements(']', element, depth)?))
            }
            CqlType::Vector { element, dimension } => {
                self.expect('[', "a vector")?;
                let elements = self.elements(']', element, depth)?;
                if elements.len() != *dimension {
                    return Err(FieldError::Dimension { expected: *dimension, found: elements.len() });
                }
                Ok(Value::Vector(elements))
            }
            CqlType::Set { element, .. } => {
                self.expect('{', "a set")?;
                Ok(Value::Set(self.elements('}', element, depth)?))
            }
            CqlType::Map { key, value, .. } => {
                self.expect('{', "a map")?;
                let mut entries = Vec::new();
                self.items('}', |parser| {
                    let key = parser.value(key, depth)?;
                    parser.expect(':', "a colon")?;
                    entries.push((key, parser.value(value, depth)?));
                    Ok(())
                })?;
                Ok(Value::Map(entries))
            }
            CqlType::Tuple(types) => {
                self.expect('(', "a tuple")?;
                let mut fields = Vec::new();
                self.items(')', |parser| {
                    let field = types
                        .get(fields.len())
                        .ok_or(FieldError::Dimension { expected: types.len(), found: fields.len() + 1 })?;
                    fields.push(parser.nullable(field, depth)?);
                    Ok(())
                })?;
                // `()` of one field: it is null.
                fields.resize(types.len(), None);
                Ok(Value::Tuple(fields))
            }
            CqlType::UserType { definition, .. } => {
                self.expect('{', "a user type")?;
                let mut fields = vec![None; definition.field_types.len()];
                self.items('}', |parser| {
                    let name = parser.text(Self::word)?;
                    let unknown = || FieldError::UnknownField { name: name.to_string() };
                    let index = definition.field_index(&name).ok_or_else(unknown)?;
                    parser.expect(':', "a colon")?;
                    let field_type = definition.field_types.get(index).ok_or_else(unknown)?;
                    let value = parser.nullable(field_type, depth)?;
                    if let Some(field) = fields.get_mut(index) {
                        *field = value;
                    }
                    Ok(())
                })?;
                Ok(Value::UserType(fields))
            }
            other => {
                let text = self.text(if *other == CqlType::Time { Self::time } else { Self::word })?;
                let bytes = native(other, &text)?;
                Value::decode(other, &bytes).map_err(|error| FieldError::Malformed(error.to_string()))
            }
        }
    }

    fn nullable(&mut self, cql_type: &CqlType, depth: usize) -> Result<Option<Value>, FieldError> {
        let before = self.rest;
        let word = self.word();
        if word == "null" || word == self.null {
            return Ok(None);
        }
        self.rest = before;
        self.value(cql_type, depth).map(Some)
    }

    /// Text up to a symbol that separates values.
    fn word(&mut self) -> &'a str {
        let text = self.rest.trim_start();
        let end = text.find([',', ':', ']', '}', ')']).unwrap_or(text.len());
        let (word, rest) = text.split_at_checked(end).unwrap_or((text, ""));
        self.rest = rest;
        word.trim_end()
    }

    /// A time of day without quotes, as cqlsh has it: its colons separate nothing.
    fn time(&mut self) -> &'a str {
        let text = self.rest.trim_start();
        let end =
            text.find(|character: char| !(character.is_ascii_digit() || matches!(character, ':' | '.')));
        let (time, _) = text.split_at_checked(end.unwrap_or(text.len())).unwrap_or((text, ""));
        // That of a map key.
        let time = time.strip_suffix(':').unwrap_or(time);
        self.rest = text.strip_prefix(time).unwrap_or_default();
        time
    }

    /// The content of single quotes, or what `unquoted` takes.
    fn text(&mut self, unquoted: fn(&mut Self) -> &'a str) -> Result<Cow<'a, str>, FieldError> {
        if self.accept('\'') { self.quoted().map(Cow::Owned) } else { Ok(Cow::Borrowed(unquoted(self))) }
    }

    /// The content of single quotes; the opening one was taken.
    fn quoted(&mut self) -> Result<String, FieldError> {
        let mut content = String::new();
        loop {
            let (before, after) =
                self.rest.split_once('\'').ok_or_else(|| self.expected("a closing quote"))?;
            content.push_str(before);
            let Some(after_escape) = after.strip_prefix('\'') else {
                self.rest = after;
                return Ok(content);
            };
            content.push('\'');
            self.rest = after_escape;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cql_lite::types::UserType;

    use super::*;
    use crate::format::{Style, format_bytes};

    fn survives(cql_type: &CqlType, text: &str) {
        let bytes = parse(cql_type, text, "").unwrap();
        assert_eq!(format_bytes(cql_type, &bytes, Style::Csv { null: "" }), text);
    }

    fn user_type(fields: &[(&str, CqlType)]) -> CqlType {
        let definition = UserType {
            keyspace: "k".into(),
            name: "u".into(),
            field_names: fields.iter().map(|(name, _)| (*name).into()).collect(),
            field_types: fields.iter().map(|(_, cql_type)| cql_type.clone()).collect(),
        };
        CqlType::UserType { definition: Arc::new(definition), frozen: true }
    }

    #[test]
    fn what_is_exported_is_imported() {
        survives(&CqlType::Text, "it's, {any} text");
        survives(&CqlType::Timestamp, "2015-05-21 11:03:02.123+0000");
        survives(&CqlType::Boolean, "True");
        survives(&CqlType::Double, "1.5");
        survives(&CqlType::Blob, "0xcafe");
        survives(&CqlType::list(CqlType::Int, false), "[1, 2, 3]");
        survives(&CqlType::list(CqlType::Int, false), "[]");
        survives(&CqlType::map(CqlType::Text, CqlType::Time, false), "{'a''b, c': '11:03:02.500000000'}");
        let inner = CqlType::set(CqlType::Inet, true);
        survives(
            &CqlType::map(CqlType::Uuid, inner, false),
            "{00000000-0000-0000-0000-000000000000: {'::1', '127.0.0.1'}}",
        );
        survives(&CqlType::tuple([CqlType::Int, CqlType::Text]), "(, 'x')");
        survives(&CqlType::vector(CqlType::Float, 2), "[1, 2.5]");
        let user_type = user_type(&[("a", CqlType::Int), ("b", CqlType::Text)]);
        survives(&user_type, "{a: 1, b: }");
        survives(&user_type, "{a: , b: ''}");
        let unknown = FieldError::UnknownField { name: "c".to_owned() };
        assert_eq!(parse(&user_type, "{c: 1}", ""), Err(unknown));
    }

    #[test]
    fn fields_of_user_types_may_have_any_name() {
        let names = ["a:b", "c, d", "", "}", "it's", "\"q\"", "'", " x ", "null", "é e"];
        let user_type = user_type(&names.map(|name| (name, CqlType::Int)));
        let value = Value::UserType(vec![Some(Value::Int(1)); names.len()]);
        let bytes = value.encode(&user_type);
        let text = format_bytes(&user_type, &bytes, Style::Csv { null: "" });
        assert!(text.starts_with("{'a:b': 1, 'c, d': 1, '': 1, '}': 1, 'it''s': 1, "), "{text}");
        assert_eq!(parse(&user_type, &text, "").unwrap(), bytes);
    }

    #[test]
    fn every_date_survives() {
        for text in
            ["+10000-01-01", "+5881580-07-11", "0000-12-31", "-0001-01-01", "-5877641-06-23", "9999-12-31"]
        {
            survives(&CqlType::Date, text);
            survives(&CqlType::list(CqlType::Date, false), &format!("['{text}']"));
        }
    }

    #[test]
    fn numbers_for_dates_are_read_as_they_were_meant() {
        let same = |number: &str, text: &str| {
            assert_eq!(parse(&CqlType::Date, number, ""), parse(&CqlType::Date, text, ""), "{number}");
        };
        // Those of cqlsh's exports: days since 1970.
        same("2932897", "+10000-01-01");
        same("-719893", "-0001-01-01");
        same("-2147483648", "-5877641-06-23");
        // Those of CQL.
        same("2147483648", "1970-01-01");
        same("2147483647", "1969-12-31");
    }

    #[test]
    fn null_is_read_in_every_form() {
        let tuple = CqlType::tuple([CqlType::Int, CqlType::Text]);
        let nulls = parse(&tuple, "(null, null)", "-").unwrap();
        assert_eq!(parse(&tuple, "(-, -)", "-").unwrap(), nulls);
        assert_eq!(parse(&tuple, "(,)", "").unwrap(), nulls);
        assert_eq!(format_bytes(&tuple, &nulls, Style::Csv { null: "-" }), "(-, -)");
        assert_ne!(parse(&tuple, "('', 'null')", "").unwrap(), nulls);
    }

    #[test]
    fn times_are_read_without_quotes() {
        let times = CqlType::set(CqlType::Time, false);
        let quoted = parse(&times, "{'11:03:02.500000000', '12:00:00.000000000'}", "").unwrap();
        assert_eq!(parse(&times, "{11:03:02.500000000, 12:00:00.000000000}", "").unwrap(), quoted);
        let map = CqlType::map(CqlType::Time, CqlType::Int, false);
        assert_eq!(parse(&map, "{11:03:02.5: 1}", ""), parse(&map, "{'11:03:02.5': 1}", ""));
    }

    #[test]
    fn malformed_fields_are_refused() {
        let list = CqlType::list(CqlType::Int, false);
        for text in ["", "[1", "[1 2]", "[1]]", "[x]", "{1}"] {
            assert!(parse(&list, text, "").is_err(), "{text}");
        }
        assert!(parse(&CqlType::vector(CqlType::Int, 2), "[1]", "").is_err());
        assert!(parse(&CqlType::tuple([CqlType::Int]), "(1, 2)", "").is_err());
        assert!(parse(&CqlType::list(CqlType::Text, false), "['a]", "").is_err());
        assert!(parse(&CqlType::Int, "x", "").is_err());
    }
}
