//! Terms: values of a statement that do not depend on a row, resolved against the type they are for.
//!
//! Invariants:
//! * A resolved [`Term`] evaluates to bytes valid for the type of its receiver: constants are encoded and checked when
//!   the statement is prepared, bind values when they are bound.
//! * `Markers` keeps one specification for every bind marker, by its index in the statement.

use std::borrow::Cow;

use cql_lite::syntax::ast;
use cql_lite::types::{CqlType, codec, compare, literal};

use super::names::{Scope, resolve_type};
use crate::error::{RequestError, Result};
use crate::functions::{self, CallContext, ResolvedFunction};

/// What a value is for: a column, an argument, `[ttl]`, … The name is the one of bind metadata and messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Receiver {
    pub name: String,
    pub value_type: CqlType,
}

impl Receiver {
    pub fn new(name: impl Into<String>, value_type: CqlType) -> Self {
        Self { name: name.into(), value_type }
    }

    /// A part of this receiver, named as Cassandra names it: `value(m)`, `key(m)`, `idx(l)`, …
    #[must_use]
    pub fn part(&self, kind: &str, value_type: CqlType) -> Self {
        Self { name: format!("{kind}({})", self.name), value_type }
    }
}

/// A bind marker as the statement's metadata describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct MarkerSpec {
    /// The marker's own name, else its receiver's.
    pub name: String,
    pub value_type: CqlType,
}

/// The specifications of a statement's bind markers.
#[derive(Debug, Clone, Default)]
pub struct Markers {
    specs: Vec<Option<MarkerSpec>>,
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

    /// Every marker's specification; a marker whose type nothing determines is an error.
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

/// A resolved term.
#[derive(Debug, Clone)]
pub enum Term {
    /// Encoded for its receiver; `None` is null.
    Constant(Option<Vec<u8>>),
    Marker {
        index: usize,
    },
    Function {
        function: ResolvedFunction,
        arguments: Vec<Term>,
    },
    List(Vec<Term>),
    /// The element type gives the order.
    Set(CqlType, Vec<Term>),
    /// The key type gives the order.
    Map(CqlType, Vec<(Term, Term)>),
    /// Tuples and user types; `None`: a field that is not mentioned.
    Fields(Vec<Option<Term>>),
    Vector(CqlType, Vec<Term>),
}

/// What a term evaluates to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound<'a> {
    /// The bind value was not given: the operation it belongs to is skipped.
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

/// One bind value as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindValue<'a> {
    Null,
    Unset,
    Bytes(&'a [u8]),
}

/// What terms are evaluated with: one bind value a marker (already checked), and the moment of the request.
#[derive(Debug, Clone, Copy)]
pub struct Bindings<'a> {
    pub values: &'a [BindValue<'a>],
    pub call: &'a CallContext,
}

impl Term {
    pub fn evaluate<'a>(&'a self, bindings: &Bindings<'a>) -> Result<Bound<'a>> {
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
                    match argument.evaluate(bindings)? {
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
                let Some(items) = evaluate_items(items, bindings)? else { return Ok(Bound::Unset) };
                Ok(owned(codec::encode_elements(items.iter().map(AsRef::as_ref))))
            }
            Self::Set(element_type, items) => {
                let Some(mut items) = evaluate_items(items, bindings)? else { return Ok(Bound::Unset) };
                items.sort_by(|a, b| compare::compare(element_type, a, b));
                items.dedup();
                Ok(owned(codec::encode_elements(items.iter().map(AsRef::as_ref))))
            }
            Self::Map(key_type, entries) => {
                let mut evaluated: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    let Some(key) = element(key.evaluate(bindings)?)? else { return Ok(Bound::Unset) };
                    let Some(value) = element(value.evaluate(bindings)?)? else { return Ok(Bound::Unset) };
                    // The last entry of a key wins, as when a Java map is filled.
                    evaluated.retain(|(other, _)| *other != key);
                    evaluated.push((key, value));
                }
                evaluated.sort_by(|a, b| compare::compare(key_type, &a.0, &b.0));
                Ok(owned(codec::encode_entries(
                    evaluated.iter().map(|(key, value)| (key.as_ref(), value.as_ref())),
                )))
            }
            Self::Fields(fields) => {
                let mut out = Vec::new();
                for field in fields {
                    match field {
                        None => codec::write_field(None, &mut out),
                        Some(term) => match term.evaluate(bindings)? {
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
                let Some(items) = evaluate_items(items, bindings)? else { return Ok(Bound::Unset) };
                let mut out = Vec::new();
                for item in &items {
                    codec::write_vector_element(element_type, item, &mut out);
                }
                Ok(owned(out))
            }
        }
    }

    /// Whether the value is known when the statement is prepared.
    pub fn is_constant(&self) -> bool {
        matches!(self, Self::Constant(_))
    }

    /// Whether this is the literal `NULL`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Constant(None))
    }

    /// Literals of constants become constants themselves.
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
        match self.evaluate(&Bindings { values: &[], call: &call })? {
            Bound::Bytes(bytes) => Ok(Self::Constant(Some(bytes.into_owned()))),
            Bound::Null | Bound::Unset => Ok(Self::Constant(None)),
        }
    }
}

fn owned<'a>(bytes: Vec<u8>) -> Bound<'a> {
    Bound::Bytes(Cow::Owned(bytes))
}

/// `None` when a value is unset: the whole collection is then unset.
fn evaluate_items<'a>(items: &'a [Term], bindings: &Bindings<'a>) -> Result<Option<Vec<Cow<'a, [u8]>>>> {
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        match element(item.evaluate(bindings)?)? {
            Some(bytes) => values.push(bytes),
            None => return Ok(None),
        }
    }
    Ok(Some(values))
}

fn element(value: Bound<'_>) -> Result<Option<Cow<'_, [u8]>>> {
    match value {
        Bound::Bytes(bytes) => Ok(Some(bytes)),
        Bound::Unset => Ok(None),
        Bound::Null => Err(RequestError::invalid("null is not supported inside collections")),
    }
}

/// Resolves a term for a receiver.
pub fn resolve(
    term: &ast::Term,
    receiver: &Receiver,
    scope: &Scope<'_>,
    markers: &mut Markers,
) -> Result<Term> {
    let mut resolve_part = |term: &ast::Term, receiver: &Receiver| resolve(term, receiver, scope, markers);
    let expected = &receiver.value_type;
    match term {
        ast::Term::Literal(value) => resolve_literal(value, receiver),
        ast::Term::Marker(marker) => {
            markers.add(marker, receiver);
            Ok(Term::Marker { index: marker.index })
        }
        ast::Term::List(items) => match expected {
            CqlType::List { element, .. } => {
                let part = receiver.part("value", (**element).clone());
                let items = items.iter().map(|item| {
                    resolve_part(item, &part).map_err(|error| {
                        wrong_component(error, "list", receiver, || {
                            format!("value {item} is not of type {element}")
                        })
                    })
                });
                Term::List(items.collect::<Result<_>>()?).folded()
            }
            CqlType::Vector { element, dimension } => {
                if items.len() != *dimension {
                    return Err(RequestError::invalid(format!(
                        "Invalid vector literal for {} of type {expected}; expected {dimension} elements, but given {}",
                        receiver.name,
                        items.len()
                    )));
                }
                let part = receiver.part("value", (**element).clone());
                let items = items.iter().map(|item| resolve_part(item, &part));
                Term::Vector((**element).clone(), items.collect::<Result<_>>()?).folded()
            }
            _ => Err(wrong_literal("list", receiver)),
        },
        ast::Term::Set(items) => match expected {
            CqlType::Set { element, .. } => {
                let part = receiver.part("value", (**element).clone());
                let items = items.iter().map(|item| {
                    resolve_part(item, &part).map_err(|error| {
                        wrong_component(error, "set", receiver, || {
                            format!("value {item} is not of type {element}")
                        })
                    })
                });
                Term::Set((**element).clone(), items.collect::<Result<_>>()?).folded()
            }
            CqlType::Map { key, .. } if items.is_empty() => Term::Map((**key).clone(), Vec::new()).folded(),
            CqlType::UserType { definition, .. } if items.is_empty() => {
                Term::Fields(definition.field_names.iter().map(|_| None).collect()).folded()
            }
            _ => Err(wrong_literal("set", receiver)),
        },
        ast::Term::Map(entries) => match expected {
            CqlType::Map { key, value, .. } => {
                let (key_part, value_part) =
                    (receiver.part("key", (**key).clone()), receiver.part("value", (**value).clone()));
                let mut resolved = Vec::with_capacity(entries.len());
                for (entry_key, entry_value) in entries {
                    let resolved_key = resolve_part(entry_key, &key_part).map_err(|error| {
                        wrong_component(error, "map", receiver, || {
                            format!("key {entry_key} is not of type {key}")
                        })
                    })?;
                    let resolved_value = resolve_part(entry_value, &value_part).map_err(|error| {
                        wrong_component(error, "map", receiver, || {
                            format!("value {entry_value} is not of type {value}")
                        })
                    })?;
                    resolved.push((resolved_key, resolved_value));
                }
                Term::Map((**key).clone(), resolved).folded()
            }
            _ => Err(wrong_literal("map", receiver)),
        },
        ast::Term::UserType(fields) => {
            let CqlType::UserType { definition, .. } = expected else {
                return Err(wrong_literal("user type", receiver));
            };
            let mut resolved: Vec<Option<Term>> = definition.field_names.iter().map(|_| None).collect();
            for (name, value) in fields {
                let Some(index) = definition.field_index(name.as_str()) else {
                    return Err(RequestError::invalid(format!(
                        "Unknown field '{name}' in value of user defined type {}",
                        definition.name
                    )));
                };
                let field_type = definition.field_types[index].clone();
                let part = Receiver::new(format!("{}.{}", receiver.name, name.as_str()), field_type.clone());
                resolved[index] = Some(resolve_part(value, &part).map_err(|error| {
                    wrong_component(error, "user type", receiver, || {
                        format!("field {} is not of type {field_type}", name.as_str())
                    })
                })?);
            }
            Term::Fields(resolved).folded()
        }
        ast::Term::Tuple(items) => match (expected, &items[..]) {
            (CqlType::Tuple(types), _) => {
                if items.len() > types.len() {
                    return Err(RequestError::invalid(format!(
                        "Invalid tuple literal for {}: too many elements. Type {expected} expects {} but got {}",
                        receiver.name,
                        types.len(),
                        items.len()
                    )));
                }
                let mut resolved = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let part = Receiver::new(format!("{}[{index}]", receiver.name), types[index].clone());
                    resolved.push(Some(resolve_part(item, &part).map_err(|error| {
                        wrong_component(error, "tuple", receiver, || {
                            format!("component {index} is not of type {}", types[index])
                        })
                    })?));
                }
                Term::Fields(resolved).folded()
            }
            (_, [single]) => resolve_part(single, receiver),
            _ => Err(RequestError::invalid(format!(
                "Invalid tuple type literal for {} of type {expected}",
                receiver.name
            ))),
        },
        ast::Term::TypeHint { type_name, term } => {
            let hinted = resolve_type(type_name, scope)?;
            if !is_assignable(expected, &hinted) {
                return Err(RequestError::invalid(format!(
                    "Cannot assign value {term} to {} of type {expected}",
                    receiver.name
                )));
            }
            resolve(term, &Receiver::new(receiver.name.clone(), hinted), scope, markers)
        }
        ast::Term::Function { .. }
        | ast::Term::Cast { .. }
        | ast::Term::Arithmetic { .. }
        | ast::Term::Negation(_) => {
            let (resolved, actual) = resolve_call(term, Some(receiver), scope, markers)?;
            if !is_assignable(expected, &actual) {
                return Err(RequestError::invalid(format!(
                    "Type error: cannot assign result of {} (type {actual}) to {} (type {expected})",
                    call_description(term),
                    receiver.name
                )));
            }
            Ok(resolved)
        }
    }
}

/// Resolves a term for which nothing says what type it should have (an argument of a function), where it says so itself.
fn resolve_call(
    term: &ast::Term,
    receiver: Option<&Receiver>,
    scope: &Scope<'_>,
    markers: &mut Markers,
) -> Result<(Term, CqlType)> {
    let hint = receiver.map(|receiver| &receiver.value_type);
    match term {
        ast::Term::Function { name, arguments } => {
            if name.name == "token" && name.keyspace.as_ref().is_none_or(|keyspace| *keyspace == "system") {
                return resolve_token(arguments, scope, markers);
            }
            let operands: Vec<&ast::Term> = arguments.iter().collect();
            let function_name = functions::qualified_name(
                name.keyspace.as_ref().map(ast::Identifier::as_str),
                name.name.as_str(),
            );
            resolve_function(&function_name, &operands, hint, scope, markers)
        }
        ast::Term::Cast { term, target } => {
            let target = CqlType::native(target.name())
                .ok_or_else(|| RequestError::invalid(format!("Unknown type {}", target.name())))?;
            let (operand, operand_type) = resolve_untyped(term, None, scope, markers)?;
            let function = functions::resolve_cast(&operand_type, &target)?;
            Ok((Term::Function { function, arguments: vec![operand] }, target))
        }
        ast::Term::Arithmetic { left, operator, right } => {
            resolve_function(operator_name(*operator), &[left, right], hint, scope, markers)
        }
        ast::Term::Negation(operand) => {
            resolve_function(functions::NEGATION, &[operand], hint, scope, markers)
        }
        other => resolve_untyped(other, hint, scope, markers),
    }
}

/// The function that carries out an operator.
pub fn operator_name(operator: ast::ArithmeticOperator) -> &'static str {
    functions::operator_name(operator.symbol())
}

fn resolve_token(
    arguments: &[ast::Term],
    scope: &Scope<'_>,
    markers: &mut Markers,
) -> Result<(Term, CqlType)> {
    let Some(table) = scope.table else {
        return Err(RequestError::invalid("token() needs a table"));
    };
    let key = table.partition_key();
    if arguments.len() != key.len() {
        return Err(RequestError::invalid(format!(
            "Invalid number of arguments in call to function token: {} required but {} provided",
            key.len(),
            arguments.len()
        )));
    }
    let mut resolved = Vec::with_capacity(key.len());
    for (column, argument) in key.iter().zip(arguments) {
        let part = Receiver::new("partition key token", column.column_type.clone());
        resolved.push(resolve(argument, &part, scope, markers)?);
    }
    Ok((Term::Function { function: functions::token(key.len()), arguments: resolved }, CqlType::Bigint))
}

fn resolve_function(
    name: &str,
    arguments: &[&ast::Term],
    hint: Option<&CqlType>,
    scope: &Scope<'_>,
    markers: &mut Markers,
) -> Result<(Term, CqlType)> {
    let mut known = Vec::with_capacity(arguments.len());
    for argument in arguments {
        known.push(own_type(argument, scope)?);
    }
    let natural: Vec<Option<CqlType>> =
        arguments.iter().map(|argument| natural_type(argument, scope)).collect();
    let texts: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let function = functions::resolve_described(name, &known, &natural, &texts, hint)?;
    let mut resolved = Vec::with_capacity(arguments.len());
    for (index, argument) in arguments.iter().enumerate() {
        let part = Receiver::new(
            format!("arg{index}({})", function.qualified_name()),
            function.argument_types()[index].clone(),
        );
        resolved.push(resolve(argument, &part, scope, markers)?);
    }
    let return_type = function.return_type().clone();
    Ok((Term::Function { function, arguments: resolved }, return_type))
}

/// The type that a term has by itself; `None` for literals and markers, which take that of their receiver.
pub fn own_type(term: &ast::Term, scope: &Scope<'_>) -> Result<Option<CqlType>> {
    Ok(match term {
        ast::Term::TypeHint { type_name, .. } => Some(resolve_type(type_name, scope)?),
        ast::Term::Function { .. }
        | ast::Term::Cast { .. }
        | ast::Term::Arithmetic { .. }
        | ast::Term::Negation(_)
            if !is_literal_arithmetic(term) =>
        {
            Some(resolve_call(term, None, scope, &mut Markers::default())?.1)
        }
        ast::Term::Tuple(items) if items.len() == 1 => own_type(&items[0], scope)?,
        _ => None,
    })
}

/// Whether a term is made of literals and operators alone: it can take the type of its receiver, as a literal can.
fn is_literal_arithmetic(term: &ast::Term) -> bool {
    match term {
        ast::Term::Literal(_) => true,
        ast::Term::Arithmetic { left, right, .. } => {
            is_literal_arithmetic(left) && is_literal_arithmetic(right)
        }
        ast::Term::Negation(operand) => is_literal_arithmetic(operand),
        ast::Term::Tuple(items) if items.len() == 1 => is_literal_arithmetic(&items[0]),
        _ => false,
    }
}

/// The type that a literal most naturally has (used where several functions would do).
fn natural_type(term: &ast::Term, scope: &Scope<'_>) -> Option<CqlType> {
    match term {
        ast::Term::Literal(literal) => literal_type(literal),
        ast::Term::Arithmetic { .. } | ast::Term::Negation(_) if is_literal_arithmetic(term) => {
            resolve_call(term, None, scope, &mut Markers::default()).ok().map(|(_, value_type)| value_type)
        }
        ast::Term::Tuple(items) if items.len() == 1 => natural_type(&items[0], scope),
        _ => None,
    }
}

/// The type that Cassandra gives a constant for which nothing asks for another.
pub fn literal_type(literal: &ast::Literal) -> Option<CqlType> {
    Some(match literal {
        ast::Literal::String(_) => CqlType::Text,
        ast::Literal::Integer(text) => match text.parse::<i64>() {
            Ok(value) if i32::try_from(value).is_ok() => CqlType::Int,
            Ok(_) => CqlType::Bigint,
            Err(_) => CqlType::Varint,
        },
        ast::Literal::Float(_) => CqlType::Double,
        ast::Literal::Boolean(_) => CqlType::Boolean,
        ast::Literal::Duration(_) => CqlType::Duration,
        ast::Literal::Uuid(text) => {
            if text.as_bytes().get(14) == Some(&b'1') {
                CqlType::Timeuuid
            } else {
                CqlType::Uuid
            }
        }
        ast::Literal::Blob(_) => CqlType::Blob,
        ast::Literal::Null => return None,
    })
}

fn resolve_untyped(
    term: &ast::Term,
    hint: Option<&CqlType>,
    scope: &Scope<'_>,
    markers: &mut Markers,
) -> Result<(Term, CqlType)> {
    let own = match own_type(term, scope)? {
        Some(own) => own,
        None => natural_type(term, scope)
            .or_else(|| hint.cloned())
            .ok_or_else(|| RequestError::invalid(format!("Cannot infer type for term {term}")))?,
    };
    let resolved = resolve(term, &Receiver::new("arg", own.clone()), scope, markers)?;
    Ok((resolved, own))
}

/// Whether bytes of type `actual` are valid and mean the same where `expected` is asked for.
pub fn is_assignable(expected: &CqlType, actual: &CqlType) -> bool {
    let (expected, actual) = (expected.freeze(), actual.freeze());
    expected == actual
        || matches!(
            (&expected, &actual),
            (CqlType::Blob, _)
                | (CqlType::Text, CqlType::Ascii)
                | (CqlType::Uuid, CqlType::Timeuuid)
                | (
                    CqlType::Bigint | CqlType::Counter,
                    CqlType::Bigint | CqlType::Counter | CqlType::Timestamp
                )
                | (CqlType::Varint, CqlType::Int | CqlType::Bigint)
        )
}

fn resolve_literal(value: &ast::Literal, receiver: &Receiver) -> Result<Term> {
    let expected = &receiver.value_type;
    if let (ast::Literal::String(text), CqlType::Tuple(types)) = (value, expected) {
        return tuple_from_text(text, types, receiver);
    }
    let (kind, text, accepted) = match value {
        ast::Literal::Null => return Ok(Term::Constant(None)),
        ast::Literal::String(text) => (
            "STRING",
            text.clone(),
            matches!(
                expected,
                CqlType::Ascii
                    | CqlType::Text
                    | CqlType::Inet
                    | CqlType::Date
                    | CqlType::Time
                    | CqlType::Timestamp
                    | CqlType::Custom(_)
            ),
        ),
        ast::Literal::Integer(text) => (
            "INTEGER",
            text.clone(),
            expected.is_numeric()
                || matches!(expected, CqlType::Date | CqlType::Time | CqlType::Timestamp | CqlType::Duration),
        ),
        ast::Literal::Float(text) => {
            ("FLOAT", text.clone(), matches!(expected, CqlType::Decimal | CqlType::Double | CqlType::Float))
        }
        ast::Literal::Boolean(value) => ("BOOLEAN", value.to_string(), *expected == CqlType::Boolean),
        ast::Literal::Duration(text) => ("DURATION", text.clone(), *expected == CqlType::Duration),
        ast::Literal::Uuid(text) => {
            ("UUID", text.clone(), matches!(expected, CqlType::Uuid | CqlType::Timeuuid))
        }
        ast::Literal::Blob(digits) => {
            ("HEX", format!("0x{digits}"), matches!(expected, CqlType::Blob | CqlType::Custom(_)))
        }
    };
    if !accepted {
        let shown = if kind == "STRING" { text } else { value.raw_text().unwrap_or(text) };
        return Err(RequestError::invalid(format!(
            "Invalid {kind} constant ({shown}) for \"{}\" of type {expected}",
            receiver.name
        )));
    }
    let bytes = literal::parse(expected, &text).map_err(|error| RequestError::invalid(error.to_string()))?;
    Ok(Term::Constant(Some(bytes)))
}

/// A tuple as its text form gives it: fields separated by `:`, null as `@`, both escaped by `\`.
fn tuple_from_text(text: &str, types: &[CqlType], receiver: &Receiver) -> Result<Term> {
    let mut fields = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(&escaped @ (':' | '@'))) => {
                characters.next();
                // An escaped `@` must not be taken for null.
                if let Some(field) = fields.last_mut() {
                    field.extend(if escaped == '@' { "\\@".chars() } else { ":".chars() });
                }
            }
            (':', _) => fields.push(String::new()),
            (other, _) => {
                if let Some(field) = fields.last_mut() {
                    field.push(other);
                }
            }
        }
    }
    if fields.len() > types.len() {
        return Err(RequestError::invalid(format!(
            "Invalid tuple literal: too many elements. Type {} expects {} but got {}",
            receiver.value_type,
            types.len(),
            fields.len()
        )));
    }
    let mut out = Vec::new();
    for (field, value_type) in fields.iter().zip(types) {
        if field == "@" {
            codec::write_field(None, &mut out);
            continue;
        }
        let value = literal::parse(value_type, &field.replace("\\@", "@"))
            .map_err(|error| RequestError::invalid(error.to_string()))?;
        codec::write_field(Some(&value), &mut out);
    }
    Ok(Term::Constant(Some(out)))
}

fn wrong_literal(kind: &str, receiver: &Receiver) -> RequestError {
    RequestError::invalid(format!(
        "Invalid {kind} literal for {} of type {}",
        receiver.name, receiver.value_type
    ))
}

/// Names the component in the message where its own type was the trouble.
fn wrong_component(
    error: RequestError,
    kind: &str,
    receiver: &Receiver,
    problem: impl FnOnce() -> String,
) -> RequestError {
    match &error {
        RequestError::Invalid(message)
            if message.starts_with("Invalid ")
                && (message.contains(" of type ") || message.contains(" literal for ")) =>
        {
            RequestError::invalid(format!("Invalid {kind} literal for {}: {}", receiver.name, problem()))
        }
        _ => error,
    }
}

fn call_description(term: &ast::Term) -> String {
    match term {
        ast::Term::Function { name, .. } => format!("function {name}"),
        other => format!("{other}"),
    }
}
