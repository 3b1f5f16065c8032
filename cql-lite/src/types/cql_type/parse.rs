//! Reading the text of a type.

use std::sync::Arc;

use super::definition::{CqlType, MAXIMUM_VECTOR_DIMENSION, UserType};

/// Maximum nesting of types in parsed text.
pub(crate) const MAXIMUM_NESTING: usize = 64;

/// Error of parsing a type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeParseError {
    /// The syntax is wrong.
    #[error("cannot parse the type {text}: {problem}")]
    Syntax {
        /// The whole text.
        text: String,
        /// The error.
        problem: &'static str,
    },
    /// A name that is neither a native type nor a user type.
    #[error("Unknown type {name}")]
    UnknownType {
        /// The name, unquoted.
        name: String,
    },
}

impl CqlType {
    /// Reads the text of a type, as `Display` writes it and as a CQL statement spells it. `resolve` finds user
    /// types by name; a qualified name is passed as `keyspace.name`.
    pub fn parse(
        text: &str,
        resolve: &dyn Fn(&str) -> Option<Arc<UserType>>,
    ) -> Result<CqlType, TypeParseError> {
        let mut parser = TypeParser { text, rest: text, resolve };
        let parsed = parser.parse_type(0)?;
        if !parser.rest.trim().is_empty() {
            return Err(parser.problem("unexpected text after the type"));
        }
        Ok(parsed)
    }
}

struct TypeParser<'a> {
    text: &'a str,
    rest: &'a str,
    resolve: &'a dyn Fn(&str) -> Option<Arc<UserType>>,
}

impl<'a> TypeParser<'a> {
    fn problem(&self, problem: &'static str) -> TypeParseError {
        TypeParseError::Syntax { text: self.text.to_owned(), problem }
    }

    fn accept(&mut self, symbol: char) -> bool {
        let trimmed = self.rest.trim_start();
        match trimmed.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, symbol: char, problem: &'static str) -> Result<(), TypeParseError> {
        if self.accept(symbol) { Ok(()) } else { Err(self.problem(problem)) }
    }

    /// The text up to the closing quote, with doubled quotes unescaped. The opening quote is already consumed.
    fn quoted(&mut self, quote: char) -> Result<String, TypeParseError> {
        let mut name = String::new();
        let mut characters = self.rest.char_indices().peekable();
        while let Some((offset, character)) = characters.next() {
            if character != quote {
                name.push(character);
            } else if characters.peek().is_some_and(|(_, next)| *next == quote) {
                characters.next();
                name.push(quote);
            } else {
                self.rest = self.rest.get(offset + quote.len_utf8()..).unwrap_or_default();
                return Ok(name);
            }
        }
        Err(self.problem("a quote is not closed"))
    }

    fn word(&mut self) -> Option<&'a str> {
        let trimmed = self.rest.trim_start();
        let end = trimmed
            .find(|character: char| !(character.is_ascii_alphanumeric() || character == '_'))
            .unwrap_or(trimmed.len());
        let (word, rest) = trimmed.split_at_checked(end)?;
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// A name and whether it was quoted.
    fn name(&mut self) -> Result<(String, bool), TypeParseError> {
        if self.accept('"') {
            return Ok((self.quoted('"')?, true));
        }
        let word = self.word().ok_or_else(|| self.problem("a type name is missing"))?;
        Ok((word.to_ascii_lowercase(), false))
    }

    fn parse_type(&mut self, depth: usize) -> Result<CqlType, TypeParseError> {
        if depth > MAXIMUM_NESTING {
            return Err(self.problem("types are nested too deeply"));
        }
        if self.accept('\'') {
            return Ok(CqlType::Custom(self.quoted('\'')?.into()));
        }
        let (mut name, quoted) = self.name()?;
        if self.accept('.') {
            name = format!("{name}.{}", self.name()?.0);
        } else if !quoted {
            if self.accept('<') {
                let parsed = self.parse_parameters(&name, depth)?;
                self.expect('>', "`>` is missing")?;
                return Ok(parsed);
            }
            if let Some(native) = CqlType::native(&name) {
                return Ok(native);
            }
        }
        match (self.resolve)(&name) {
            Some(definition) => Ok(CqlType::UserType { definition, frozen: false }),
            None => Err(TypeParseError::UnknownType { name }),
        }
    }

    fn parse_parameters(&mut self, name: &str, depth: usize) -> Result<CqlType, TypeParseError> {
        match name {
            "frozen" => Ok(self.parse_type(depth + 1)?.freeze()),
            "list" => Ok(CqlType::list(self.parse_type(depth + 1)?, false)),
            "set" => Ok(CqlType::set(self.parse_type(depth + 1)?, false)),
            "map" => {
                let key = self.parse_type(depth + 1)?;
                self.expect(',', "a map has a key type and a value type")?;
                Ok(CqlType::map(key, self.parse_type(depth + 1)?, false))
            }
            "tuple" => {
                let mut fields = vec![self.parse_type(depth + 1)?];
                while self.accept(',') {
                    fields.push(self.parse_type(depth + 1)?);
                }
                Ok(CqlType::tuple(fields))
            }
            "vector" => {
                let element = self.parse_type(depth + 1)?;
                self.expect(',', "a vector has an element type and a dimension")?;
                let dimension = self.word().and_then(|word| word.parse().ok()).unwrap_or(0);
                if dimension == 0 || dimension > MAXIMUM_VECTOR_DIMENSION {
                    return Err(self.problem("the dimension of a vector is a number from 1 to 8192"));
                }
                Ok(CqlType::vector(element, dimension))
            }
            _ => Err(self.problem("this type takes no parameters")),
        }
    }
}
