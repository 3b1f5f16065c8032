//! The `WITH` clause as names and texts, and the parsing of a text as a boolean, a number or a map.
//!
//! Invariant: a name occurs once. Error texts are Cassandra's (`PropertyDefinitions`).

use std::collections::BTreeMap;

use cql_lite::syntax::ast;

use crate::error::{RequestError, Result};

/// The properties of one statement by name.
#[derive(Debug, Clone, Default)]
pub struct Properties {
    values: BTreeMap<String, Value>,
}

#[derive(Debug, Clone)]
enum Value {
    Text(String),
    Map(BTreeMap<String, String>),
}

impl Properties {
    /// Reads the properties of a statement; a name given twice is refused.
    pub fn from_ast(properties: &[ast::Property]) -> Result<Self> {
        let mut values = BTreeMap::new();
        for property in properties {
            let name = property.name.as_str().to_lowercase();
            let value = match &property.value {
                ast::PropertyValue::Literal(literal) => Value::Text(text_of(&name, literal)?),
                ast::PropertyValue::Map(entries) => {
                    let mut map = BTreeMap::new();
                    for (key, value) in entries {
                        map.insert(text_of(&name, key)?, text_of(&name, value)?);
                    }
                    Value::Map(map)
                }
            };
            if values.insert(name.clone(), value).is_some() {
                return Err(RequestError::Syntax(format!("Multiple definitions for property '{name}'")));
            }
        }
        Ok(Self { values })
    }

    /// The names that are given, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// Whether the property is given.
    pub fn contains(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Whether the property is given as a map.
    pub fn is_map(&self, name: &str) -> bool {
        matches!(self.values.get(name), Some(Value::Map(_)))
    }

    /// Refuses every name that is not in `known`.
    pub fn refuse_unknown(&self, known: &[&str]) -> Result<()> {
        match self.names().find(|name| !known.contains(name)) {
            Some(name) => Err(RequestError::Syntax(format!("Unknown property '{name}'"))),
            None => Ok(()),
        }
    }

    /// The text of a property, if given.
    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        match self.values.get(name) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Map(_)) => Err(RequestError::Syntax(format!(
                "Invalid value for property '{name}'. It should be a string"
            ))),
        }
    }

    /// The map of a property, if given.
    pub fn map(&self, name: &str) -> Result<Option<&BTreeMap<String, String>>> {
        match self.values.get(name) {
            None => Ok(None),
            Some(Value::Map(map)) => Ok(Some(map)),
            Some(Value::Text(_)) => {
                Err(RequestError::Syntax(format!("Invalid value for property '{name}'. It should be a map.")))
            }
        }
    }

    /// A boolean property, if given.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.to_lowercase().as_str() {
            "1" | "true" | "yes" => Ok(Some(true)),
            "0" | "false" | "no" => Ok(Some(false)),
            _ => Err(RequestError::Syntax(format!(
                "Invalid boolean value {text} for '{name}'. Positive values can be '1', 'true' or 'yes'. \
                 Negative values can be '0', 'false' or 'no'."
            ))),
        }
    }

    /// A property that is a 32-bit integer, if given.
    pub fn integer(&self, name: &str) -> Result<Option<i32>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let parsed = text.parse();
        parsed
            .map(Some)
            .map_err(|_| RequestError::Syntax(format!("Invalid integer value {text} for '{name}'")))
    }

    /// A property that is a floating-point number, if given.
    pub fn double(&self, name: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let parsed = text.parse();
        parsed
            .map(Some)
            .map_err(|_| RequestError::Syntax(format!("Invalid double value {text} for '{name}'")))
    }
}

fn text_of(name: &str, literal: &ast::Literal) -> Result<String> {
    literal
        .raw_text()
        .ok_or_else(|| RequestError::Syntax(format!("Invalid null value for property '{name}'")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Properties whose values are texts.
    pub fn texts(entries: &[(&str, &str)]) -> Properties {
        let values =
            entries.iter().map(|(name, value)| ((*name).to_owned(), Value::Text((*value).to_owned())));
        Properties { values: values.collect() }
    }

    /// One property whose value is a map.
    pub fn one_map(name: &str, entries: &[(&str, &str)]) -> Properties {
        Properties { values: BTreeMap::from([(name.to_owned(), Value::Map(map_of(entries)))]) }
    }

    /// A map of texts.
    pub fn map_of(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_are_parsed_as_the_requested_type() {
        let properties = texts(&[("a", "yes"), ("b", "-4"), ("c", "0.25"), ("d", "maybe")]);
        assert_eq!(properties.boolean("a").unwrap(), Some(true));
        assert_eq!(properties.integer("b").unwrap(), Some(-4));
        assert_eq!(properties.double("c").unwrap(), Some(0.25));
        assert_eq!(properties.integer("missing").unwrap(), None);
        assert!(properties.boolean("d").unwrap_err().to_string().starts_with("Invalid boolean value maybe"));
        assert_eq!(properties.integer("c").unwrap_err().to_string(), "Invalid integer value 0.25 for 'c'");
        assert_eq!(
            properties.map("a").unwrap_err().to_string(),
            "Invalid value for property 'a'. It should be a map."
        );
        assert_eq!(
            one_map("m", &[]).text("m").unwrap_err().to_string(),
            "Invalid value for property 'm'. It should be a string"
        );
    }

    #[test]
    fn a_property_given_twice_is_refused() {
        let property = ast::Property {
            name: ast::Identifier::unquoted("comment"),
            value: ast::PropertyValue::Literal(ast::Literal::String("x".into())),
        };
        let error = Properties::from_ast(&[property.clone(), property]).unwrap_err();
        assert_eq!(error.to_string(), "Multiple definitions for property 'comment'");
    }
}
