//! Resolved expressions. A [`Term`] reads nothing from a row.
//!
//! Invariants:
//! * A resolved expression evaluates to bytes valid for the type of its receiver: constants are encoded and checked
//!   when the statement is prepared, bind values when they are bound.
//! * `Markers` keeps one specification for each bind marker, by its index in the statement.

mod calls;
mod literals;
mod references;
mod resolve;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use cql_lite::syntax::ast;
use cql_lite::types::{CqlType, canonical, codec};

pub use self::literals::is_assignable;
pub use self::references::{NamedColumns, Reference, ReferencePart, References, resolve_reference};
pub use self::resolve::{Resolver, Row, Typed, resolve};
use crate::error::{RequestError, Result};
use crate::functions::{CallContext, ResolvedFunction};
use crate::plan::names::CalledFunctions;
use helenus_roles::FunctionSignature;

/// The target of a value: a column, an argument, `[ttl]`, … The name appears in bind metadata and messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Receiver {
    pub name: String,
    pub value_type: CqlType,
}

impl Receiver {
    pub fn new(name: impl Into<String>, value_type: CqlType) -> Self {
        Self { name: name.into(), value_type }
    }

    /// The receiver of USING TIMEOUT.
    pub fn timeout() -> Self {
        Self::new("[timeout]", CqlType::Duration)
    }

    /// A part of this receiver, with Cassandra's name for it: `value(m)`, `key(m)`, `idx(l)`, …
    #[must_use]
    pub fn part(&self, kind: &str, value_type: CqlType) -> Self {
        Self { name: format!("{kind}({})", self.name), value_type }
    }
}

/// A bind marker in the statement's metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct MarkerSpec {
    /// The marker's own name, or else its receiver's.
    pub name: String,
    pub value_type: CqlType,
}

/// The specifications of a statement's bind markers.
#[derive(Debug, Clone, Default)]
pub struct Markers {
    specs: Vec<Option<MarkerSpec>>,
    called: Vec<CalledFunctions>,
    executed: Vec<FunctionSignature>,
    /// Of a transaction alone.
    references: Option<References>,
}

impl Markers {
    fn add(&mut self, marker: &ast::BindMarker, receiver: &Receiver) {
        if self.specs.len() <= marker.index {
            self.specs.resize(marker.index + 1, None);
        }
        let name =
            marker.name.as_ref().map_or_else(|| receiver.name.clone(), |name| name.as_str().to_owned());
        self.specs[marker.index] = Some(MarkerSpec { name, value_type: receiver.value_type.clone() });
    }

    /// Notes which functions of users a call may mean.
    fn note_call(&mut self, called: CalledFunctions) {
        if !self.called.contains(&called) {
            self.called.push(called);
        }
    }

    /// The functions of users that the statement may call.
    pub fn take_called(&mut self) -> Vec<CalledFunctions> {
        std::mem::take(&mut self.called)
    }

    /// Notes a function that the statement calls. An aggregate calls its functions.
    fn note_execution(&mut self, function: &ResolvedFunction) {
        for signature in function.user_signatures() {
            if !self.executed.contains(&signature) {
                self.executed.push(signature);
            }
        }
    }

    /// The functions of users that the statement calls, in the order in which it names them.
    pub fn take_executed(&mut self) -> Vec<FunctionSignature> {
        std::mem::take(&mut self.executed)
    }

    /// The specifications of all markers. A marker whose type is not determined is an error.
    pub fn finish(self) -> Result<Vec<MarkerSpec>> {
        self.specs
            .into_iter()
            .enumerate()
            .map(|(index, spec)| {
                spec.ok_or_else(|| {
                    RequestError::invalid(format!(
                        "Cannot infer type for the bind variable at position {index}"
                    ))
                })
            })
            .collect()
    }
}

/// Wire bytes of a value that is not null.
type Value<'a> = Cow<'a, [u8]>;

/// A resolved expression. `R` is a read from a row: columns, aggregates and so on.
#[derive(Debug, Clone)]
pub enum Expression<R> {
    /// Encoded for its receiver; `None` is null.
    Constant(Option<Vec<u8>>),
    Marker {
        index: usize,
    },
    Function {
        function: ResolvedFunction,
        arguments: Vec<Expression<R>>,
    },
    List(Vec<Expression<R>>),
    /// With the element type, which defines the order.
    Set(CqlType, Vec<Expression<R>>),
    /// With the key type, which defines the order.
    Map(CqlType, Vec<(Expression<R>, Expression<R>)>),
    /// Tuples and user types; `None`: a field that is not given.
    Fields(Vec<Option<Expression<R>>>),
    Vector(CqlType, Vec<Expression<R>>),
    /// Read from a row.
    Row(R),
}

/// The reads of an expression that reads nothing from a row: there are none.
#[derive(Debug, Clone, Copy)]
pub enum NoRead {}

/// A resolved expression that reads nothing from a row.
pub type Term = Expression<NoRead>;

/// The value of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound<'a> {
    /// The bind value was not given: its operation is skipped.
    Unset,
    Null,
    Bytes(Cow<'a, [u8]>),
}

impl<'a> Bound<'a> {
    fn from_option(value: Option<&'a [u8]>) -> Self {
        value.map_or(Self::Null, |bytes| Self::Bytes(Cow::Borrowed(bytes)))
    }

    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Null | Self::Unset => None,
        }
    }
}

/// A bind value as it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindValue<'a> {
    Null,
    Unset,
    Bytes(&'a [u8]),
}

/// The values for the evaluation of terms: one bind value for each marker (already checked), and the call context of
/// the request.
#[derive(Debug, Clone, Copy)]
pub struct Bindings<'a> {
    pub values: &'a [BindValue<'a>],
    pub call: &'a CallContext,
}

impl Term {
    pub fn evaluate<'a>(&'a self, bindings: &Bindings<'a>) -> Result<Bound<'a>> {
        self.evaluate_on(bindings, &|read: &'a NoRead| match *read {})
    }
}

impl<R> Expression<R> {
    /// The size of the value in bytes, as far as it is known without evaluation.
    pub fn known_bytes(&self, bindings: &Bindings<'_>) -> usize {
        match self {
            Self::Constant(value) => value.as_ref().map_or(0, Vec::len),
            Self::Marker { index } => match bindings.values.get(*index) {
                Some(BindValue::Bytes(bytes)) => bytes.len(),
                _ => 0,
            },
            _ => 0,
        }
    }

    /// Evaluates the expression; `row` returns the values that it reads from a row.
    pub fn evaluate_on<'a>(
        &'a self,
        bindings: &Bindings<'a>,
        row: &impl Fn(&'a R) -> Result<Bound<'a>>,
    ) -> Result<Bound<'a>> {
        match self {
            Self::Constant(value) => Ok(Bound::from_option(value.as_deref())),
            Self::Marker { index } => match bindings.values.get(*index) {
                Some(BindValue::Bytes(bytes)) => Ok(Bound::Bytes(Cow::Borrowed(bytes))),
                Some(BindValue::Null) => Ok(Bound::Null),
                Some(BindValue::Unset) => Ok(Bound::Unset),
                None => Err(RequestError::invalid("Invalid amount of bind variables")),
            },
            Self::Function { function, arguments } => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    match argument.evaluate_on(bindings, row)? {
                        Bound::Unset => {
                            return Err(RequestError::invalid(format!(
                                "Invalid unset value for argument in call to function {}",
                                function.name()
                            )));
                        }
                        Bound::Null => values.push(None),
                        Bound::Bytes(bytes) => values.push(Some(bytes)),
                    }
                }
                let borrowed: Vec<Option<&[u8]>> = values.iter().map(Option::as_deref).collect();
                Ok(match function.call(&borrowed, bindings.call)? {
                    Some(bytes) => Bound::Bytes(Cow::Owned(bytes)),
                    None => Bound::Null,
                })
            }
            Self::List(items) => {
                let Some(items) = evaluate_items(items, COLLECTIONS, bindings, row)? else {
                    return Ok(Bound::Unset);
                };
                Ok(owned(codec::encode_elements(items.iter().map(AsRef::as_ref))))
            }
            Self::Set(element_type, items) => {
                let Some(mut items) = evaluate_items(items, COLLECTIONS, bindings, row)? else {
                    return Ok(Bound::Unset);
                };
                canonical::sort_elements(element_type, &mut items);
                Ok(owned(codec::encode_elements(items.iter().map(AsRef::as_ref))))
            }
            Self::Map(key_type, entries) => {
                let mut evaluated: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    let Some(key) = element(key.evaluate_on(bindings, row)?, COLLECTIONS)? else {
                        return Ok(Bound::Unset);
                    };
                    let Some(value) = element(value.evaluate_on(bindings, row)?, COLLECTIONS)? else {
                        return Ok(Bound::Unset);
                    };
                    evaluated.push((key, value));
                }
                canonical::sort_entries(key_type, &mut evaluated);
                Ok(owned(codec::encode_entries(
                    evaluated.iter().map(|(key, value)| (key.as_ref(), value.as_ref())),
                )))
            }
            Self::Fields(fields) => {
                let mut out = Vec::new();
                for field in fields {
                    match field {
                        None => codec::write_field(None, &mut out),
                        Some(field) => match field.evaluate_on(bindings, row)? {
                            Bound::Unset => {
                                return Err(RequestError::invalid(
                                    "Invalid unset value for a tuple or user type field",
                                ));
                            }
                            value => codec::write_field(value.as_bytes(), &mut out),
                        },
                    }
                }
                Ok(owned(out))
            }
            Self::Vector(element_type, items) => {
                let Some(items) = evaluate_items(items, "vectors", bindings, row)? else {
                    return Ok(Bound::Unset);
                };
                let mut out = Vec::new();
                for item in &items {
                    codec::write_vector_element(element_type, item, &mut out);
                }
                Ok(owned(out))
            }
            Self::Row(read) => row(read),
        }
    }

    /// Whether the value is known when the statement is prepared.
    pub fn is_constant(&self) -> bool {
        matches!(self, Self::Constant(_))
    }

    /// Whether each evaluation with the same bind values, on the same row, gives the same: no function such as `uuid()` is called.
    pub fn is_pure(&self) -> bool {
        match self {
            Self::Constant(_) | Self::Marker { .. } | Self::Row(_) => true,
            Self::Function { function, arguments } => {
                function.is_pure() && arguments.iter().all(Self::is_pure)
            }
            Self::List(items) | Self::Set(_, items) | Self::Vector(_, items) => {
                items.iter().all(Self::is_pure)
            }
            Self::Map(_, entries) => entries.iter().all(|(key, value)| key.is_pure() && value.is_pure()),
            Self::Fields(fields) => fields.iter().flatten().all(Self::is_pure),
        }
    }

    /// Whether this is the literal `NULL`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Constant(None))
    }

    /// Turns literals of constants into constants.
    fn folded(self) -> Result<Self> {
        let constant = match &self {
            Self::List(items) | Self::Set(_, items) | Self::Vector(_, items) => {
                items.iter().all(Self::is_constant)
            }
            Self::Map(_, entries) => {
                entries.iter().all(|(key, value)| key.is_constant() && value.is_constant())
            }
            Self::Fields(fields) => fields.iter().flatten().all(Self::is_constant),
            _ => false,
        };
        if !constant {
            return Ok(self);
        }
        let call = CallContext::at(0);
        let row = |_: &R| Err(RequestError::Server("a constant reads a row".to_owned()));
        match self.evaluate_on(&Bindings { values: &[], call: &call }, &row)? {
            Bound::Bytes(bytes) => Ok(Self::Constant(Some(bytes.into_owned()))),
            Bound::Null | Bound::Unset => Ok(Self::Constant(None)),
        }
    }
}

fn owned<'a>(bytes: Vec<u8>) -> Bound<'a> {
    Bound::Bytes(Cow::Owned(bytes))
}

/// What lists, sets and maps are called in messages.
const COLLECTIONS: &str = "collections";

/// Evaluates the items of a collection or vector. `None` if a value is unset: then the whole is unset.
fn evaluate_items<'a, R>(
    items: &'a [Expression<R>],
    kind: &str,
    bindings: &Bindings<'a>,
    row: &impl Fn(&'a R) -> Result<Bound<'a>>,
) -> Result<Option<Vec<Cow<'a, [u8]>>>> {
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        match element(item.evaluate_on(bindings, row)?, kind)? {
            Some(bytes) => values.push(bytes),
            None => return Ok(None),
        }
    }
    Ok(Some(values))
}

fn element<'a>(value: Bound<'a>, kind: &str) -> Result<Option<Cow<'a, [u8]>>> {
    match value {
        Bound::Bytes(bytes) => Ok(Some(bytes)),
        Bound::Unset => Ok(None),
        Bound::Null => Err(RequestError::invalid(format!("null is not supported inside {kind}"))),
    }
}
