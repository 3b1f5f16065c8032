//! Types by the names of Cassandra's Java classes: `'org.apache.cassandra.db.marshal.MapType(Int32Type,UTF8Type)'`.
//!
//! Classes that have a CQL type of their own stand for it, as in Cassandra. The others are refused.

use cql_lite::types::CqlType;
use cql_lite::types::cql_type::MAXIMUM_VECTOR_DIMENSION;

use super::invalid;
use crate::error::{RequestError, Result};

const PACKAGE: &str = "org.apache.cassandra.db.marshal.";
/// How deep classes may lie in others.
const DEPTH_MAX: usize = 64;
/// Classes of Cassandra that order or compose values in ways for which CQL has no type.
const WITHOUT_CQL_TYPE: [&str; 8] = [
    "CompositeType",
    "DynamicCompositeType",
    "LexicalUUIDType",
    "LegacyTimeUUIDType",
    "PartitionerDefinedOrder",
    "LocalByPartionerType",
    "ReversedType",
    "UserType",
];

/// The type that a class stands for.
pub fn resolve(class: &str) -> Result<CqlType> {
    let mut parser = Parser { whole: class, rest: class.trim(), depth: 0 };
    let parsed = parser.class()?;
    if parser.rest.is_empty() { Ok(parsed) } else { parser.malformed() }
}

struct Parser<'a> {
    whole: &'a str,
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn class(&mut self) -> Result<CqlType> {
        if self.depth == DEPTH_MAX {
            return self.malformed();
        }
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '$')));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        let simple = name.strip_prefix(PACKAGE).unwrap_or(name);
        if WITHOUT_CQL_TYPE.contains(&simple) {
            return invalid(format!("The type {} is not supported by Helenus", self.whole));
        }
        self.depth += 1;
        let parsed = match simple {
            "ListType" => {
                let [element] = self.parameters()?;
                Ok(CqlType::list(within_collection(&element)?, false))
            }
            "SetType" => {
                let [element] = self.parameters()?;
                if element == CqlType::Duration {
                    return invalid("Durations are not allowed inside sets: set<duration>");
                }
                Ok(CqlType::set(within_collection(&element)?, false))
            }
            "MapType" => {
                let [key, value] = self.parameters()?;
                if key == CqlType::Duration {
                    return invalid(format!("Durations are not allowed as map keys: map<duration, {value}>"));
                }
                Ok(CqlType::map(within_collection(&key)?, within_collection(&value)?, false))
            }
            "FrozenType" => {
                let [inner] = self.parameters()?;
                Ok(inner.freeze())
            }
            "TupleType" => {
                let fields = self.list()?;
                if fields.is_empty() {
                    return self.malformed();
                }
                if fields.contains(&CqlType::Counter) {
                    return invalid("Counters are not allowed inside tuples");
                }
                Ok(CqlType::tuple(fields.iter().map(CqlType::freeze)))
            }
            "VectorType" => self.vector(),
            "DateType" => Ok(CqlType::Timestamp),
            _ => self.native(name, simple),
        };
        self.depth -= 1;
        parsed
    }

    fn native(&self, name: &str, simple: &str) -> Result<CqlType> {
        let is_named = |native: &CqlType| native.class_name().strip_prefix(PACKAGE) == Some(simple);
        let native = CqlType::natives().find(is_named);
        native.ok_or_else(|| {
            let package = if name.contains('.') { "" } else { PACKAGE };
            RequestError::Syntax(format!(
                "Error setting type {}: Unable to find abstract-type class '{package}{name}'",
                self.whole
            ))
        })
    }

    /// `(element , dimension)`
    fn vector(&mut self) -> Result<CqlType> {
        self.expect('(')?;
        let element = self.class()?;
        self.expect(',')?;
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        self.expect(')')?;
        let dimension = digits.parse::<usize>().ok().filter(|dimension| *dimension > 0);
        match dimension {
            None => self.malformed(),
            Some(dimension) if dimension > MAXIMUM_VECTOR_DIMENSION => invalid(format!(
                "vectors may have at most {MAXIMUM_VECTOR_DIMENSION} dimensions; given {dimension}"
            )),
            Some(_) if element == CqlType::Counter => invalid("Counters are not allowed inside vectors"),
            Some(dimension) => Ok(CqlType::vector(element.freeze(), dimension)),
        }
    }

    fn parameters<const N: usize>(&mut self) -> Result<[CqlType; N]> {
        match self.list()?.try_into() {
            Ok(parameters) => Ok(parameters),
            Err(_) => self.malformed(),
        }
    }

    /// `(class, class)`
    fn list(&mut self) -> Result<Vec<CqlType>> {
        self.expect('(')?;
        let mut classes = Vec::new();
        loop {
            if self.eat(')') {
                return Ok(classes);
            }
            if !classes.is_empty() {
                self.expect(',')?;
            }
            classes.push(self.class()?);
        }
    }

    fn eat(&mut self, symbol: char) -> bool {
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, symbol: char) -> Result<()> {
        if self.eat(symbol) { Ok(()) } else { self.malformed() }
    }

    fn malformed<T>(&self) -> Result<T> {
        let at = self.whole.len() - self.rest.len();
        Err(RequestError::Syntax(format!(
            "Error setting type {}: Syntax error parsing '{}' at char {at}",
            self.whole, self.whole
        )))
    }
}

/// The elements of collections are frozen.
fn within_collection(element: &CqlType) -> Result<CqlType> {
    if *element == CqlType::Counter {
        return invalid("Counters are not allowed inside collections");
    }
    Ok(element.freeze())
}
