//! Resolves expressions of the syntax tree against their receivers.
//!
//! Invariants:
//! * Every part of an expression is resolved once: calls and reads from a row from the inside out, then the literals
//!   and markers, which take their types from them.
//! * Parts that do not depend on bind values or a row are evaluated here, once.

use std::collections::HashMap;
use std::sync::Arc;

use cql_lite::syntax::ast;
use cql_lite::types::{CqlType, UserType};

use super::literals::{
    call_description, is_assignable, is_literal_arithmetic, is_open, is_wrong_literal, literal_type,
    resolve_literal, wrong_component, wrong_literal,
};
use super::{Expression, Markers, NoRead, Receiver, Term, resolve_reference};
use crate::error::{RequestError, Result};
use crate::functions;
use crate::functions::user::ResolvedAggregate;
use crate::plan::names::{NameScope, display_name, resolve_type};

/// An expression with its type.
pub type Typed<R> = (Expression<R>, CqlType);

/// The row that the expressions at one place of a statement can read.
pub trait Row: Sized {
    /// A resolved read from the row.
    type Read;

    /// Whether there is a row at all.
    const IS_READ: bool;

    /// The name of every bind marker at this place; `None`: markers are named after their receivers.
    const MARKER_NAME: Option<&'static str>;

    /// Resolves an expression that reads the row: a column, an element of it, or a function of rows.
    fn read(resolver: &mut Resolver<'_, Self>, expression: &ast::Expression) -> Result<Typed<Self::Read>>;

    /// Resolves the call of an aggregate; `None`: the function is no aggregate.
    fn aggregate(
        resolver: &mut Resolver<'_, Self>,
        name: &str,
        arguments: &[&ast::Expression],
    ) -> Result<Option<Typed<Self::Read>>>;

    /// The aggregates that were resolved so far.
    fn aggregate_count(&self) -> usize;

    /// Resolves the call of an aggregate of users. `count_before`: the aggregates before its arguments were resolved.
    fn user_aggregate(
        resolver: &mut Resolver<'_, Self>,
        aggregate: &Arc<ResolvedAggregate>,
        arguments: Vec<Expression<Self::Read>>,
        count_before: usize,
    ) -> Result<Typed<Self::Read>>;

    /// The error for an expression whose type is not determined.
    fn cannot_infer(expression: &ast::Expression) -> RequestError;

    /// The error for a function that does not exist.
    fn unknown_function(name: &str) -> RequestError;
}

/// A place without a row: only values.
struct NoRow;

impl Row for NoRow {
    type Read = NoRead;

    const IS_READ: bool = false;
    const MARKER_NAME: Option<&'static str> = None;

    fn read(_: &mut Resolver<'_, Self>, expression: &ast::Expression) -> Result<Typed<NoRead>> {
        Err(Self::cannot_infer(expression))
    }

    fn aggregate(
        _: &mut Resolver<'_, Self>,
        name: &str,
        _: &[&ast::Expression],
    ) -> Result<Option<Typed<NoRead>>> {
        if functions::is_aggregate(name) { no_aggregates() } else { Ok(None) }
    }

    fn aggregate_count(&self) -> usize {
        0
    }

    fn user_aggregate(
        _: &mut Resolver<'_, Self>,
        _: &Arc<ResolvedAggregate>,
        _: Vec<Term>,
        _: usize,
    ) -> Result<Typed<NoRead>> {
        no_aggregates()
    }

    fn cannot_infer(expression: &ast::Expression) -> RequestError {
        RequestError::invalid(format!("Cannot infer type for term {expression}"))
    }

    fn unknown_function(name: &str) -> RequestError {
        RequestError::invalid(format!("Unknown function {name} called"))
    }
}

fn no_aggregates<T>() -> Result<T> {
    Err(RequestError::invalid("Aggregation function are not supported in the where clause"))
}

/// Resolves an expression that reads nothing from a row.
pub fn resolve(
    expression: &ast::Expression,
    receiver: &Receiver,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<Term> {
    Resolver::new(*scope, markers, NoRow).resolve(expression, receiver)
}

/// Resolves the expressions at one place of a statement.
pub struct Resolver<'r, R> {
    pub scope: NameScope<'r>,
    pub markers: &'r mut Markers,
    pub row: R,
    /// The natural types of arithmetic on literals, by the address of the expression in the tree: each is computed
    /// once.
    natural_types: HashMap<*const ast::Expression, Option<CqlType>>,
}

impl<'r, R: Row> Resolver<'r, R> {
    pub fn new(scope: NameScope<'r>, markers: &'r mut Markers, row: R) -> Self {
        Self { scope, markers, row, natural_types: HashMap::new() }
    }
}

impl<R: Row> Resolver<'_, R> {
    /// Resolves an expression for a receiver.
    pub fn resolve(
        &mut self,
        expression: &ast::Expression,
        receiver: &Receiver,
    ) -> Result<Expression<R::Read>> {
        let expected = &receiver.value_type;
        match expression {
            ast::Expression::Literal(value) => resolve_literal(value, receiver),
            ast::Expression::Marker(marker) => {
                self.markers.add(marker, receiver);
                Ok(Expression::Marker { index: marker.index })
            }
            ast::Expression::Reference(reference) => self.reference(reference, receiver),
            ast::Expression::List(items) => self.list(items, receiver),
            ast::Expression::Set(items) => self.set(items, receiver),
            ast::Expression::MapOrUserType(entries) => match expected {
                CqlType::UserType { definition, .. } => self.user_type(entries, definition, receiver),
                _ => self.map(entries, receiver),
            },
            ast::Expression::Tuple(items) => self.tuple(items, receiver),
            ast::Expression::TypeHint { type_name, operand } => {
                self.hinted(expression, type_name, operand, receiver)
            }
            ast::Expression::Function { .. }
            | ast::Expression::Cast { .. }
            | ast::Expression::Arithmetic { .. }
            | ast::Expression::Negation(_) => {
                let (resolved, actual) = self.call(expression, Some(expected))?;
                if !is_assignable(expected, &actual) {
                    return Err(RequestError::invalid(format!(
                        "Type error: cannot assign result of {} (type {actual}) to {} (type {expected})",
                        call_description(expression),
                        receiver.name
                    )));
                }
                Ok(resolved)
            }
            ast::Expression::Column(_)
            | ast::Expression::CountRows
            | ast::Expression::WriteMetadata { .. }
            | ast::Expression::Field { .. }
            | ast::Expression::Element { .. }
            | ast::Expression::Slice { .. } => {
                let (resolved, actual) = R::read(self, expression)?;
                if !is_assignable(expected, &actual) {
                    return Err(cannot_assign(expression, receiver));
                }
                Ok(resolved)
            }
        }
    }

    /// Resolves a reference to a value of a row with a name.
    #[inline(never)]
    fn reference(
        &mut self,
        reference: &ast::RowReference,
        receiver: &Receiver,
    ) -> Result<Expression<R::Read>> {
        let (index, actual) = resolve_reference(reference, &self.scope, self.markers)?;
        if !is_assignable(&receiver.value_type, &actual) {
            return Err(RequestError::invalid(format!(
                "Invalid reference type {actual} ({reference}) for \"{}\" of type {}",
                receiver.name, receiver.value_type
            )));
        }
        Ok(Expression::Marker { index })
    }

    #[inline(never)]
    fn hinted(
        &mut self,
        expression: &ast::Expression,
        type_name: &ast::CqlTypeName,
        operand: &ast::Expression,
        receiver: &Receiver,
    ) -> Result<Expression<R::Read>> {
        let hinted = resolve_type(type_name, &self.scope)?;
        if !is_assignable(&receiver.value_type, &hinted) {
            return Err(cannot_assign(expression, receiver));
        }
        let hint = Receiver::new(receiver.name.clone(), hinted);
        self.resolve(operand, &hint).map_err(|error| wrong_hint::<R>(error, expression, operand, &hint))
    }

    /// Resolves an expression without a receiver: it gets its own type or its natural one.
    pub fn resolve_untyped(&mut self, expression: &ast::Expression) -> Result<Typed<R::Read>> {
        match expression {
            ast::Expression::Literal(_) | ast::Expression::Marker(_) => {
                let natural = self.natural_type(expression).ok_or_else(|| R::cannot_infer(expression))?;
                let resolved = self.resolve(expression, &Self::receiver("arg", natural.clone()))?;
                Ok((resolved, natural))
            }
            ast::Expression::Reference(reference) => {
                let (index, actual) = resolve_reference(reference, &self.scope, self.markers)?;
                Ok((Expression::Marker { index }, actual))
            }
            ast::Expression::List(_)
            | ast::Expression::Set(_)
            | ast::Expression::MapOrUserType(_)
            | ast::Expression::Tuple(_)
            | ast::Expression::TypeHint { .. } => self.untyped_composite(expression),
            ast::Expression::Function { .. }
            | ast::Expression::Cast { .. }
            | ast::Expression::Arithmetic { .. }
            | ast::Expression::Negation(_) => self.call(expression, None),
            ast::Expression::Column(_)
            | ast::Expression::CountRows
            | ast::Expression::WriteMetadata { .. }
            | ast::Expression::Field { .. }
            | ast::Expression::Element { .. }
            | ast::Expression::Slice { .. } => R::read(self, expression),
        }
    }

    /// Resolves collections, tuples and hints without a receiver. Not inlined: its frame is larger than that of calls, which nest deeper.
    #[inline(never)]
    fn untyped_composite(&mut self, expression: &ast::Expression) -> Result<Typed<R::Read>> {
        match expression {
            ast::Expression::List(items) => {
                let (items, element) = self.items(items.iter().collect(), expression)?;
                Ok((Expression::List(items).folded()?, CqlType::list(element, true)))
            }
            ast::Expression::Set(items) => {
                let (items, element) = self.items(items.iter().collect(), expression)?;
                Ok((Expression::Set(element.clone(), items).folded()?, CqlType::set(element, true)))
            }
            ast::Expression::MapOrUserType(entries) => {
                let (keys, values) = entries.iter().map(|(key, value)| (key, value)).unzip();
                let (keys, key_type) = self.items(keys, expression)?;
                let (values, value_type) = self.items(values, expression)?;
                let entries = keys.into_iter().zip(values).collect();
                let resolved = Expression::Map(key_type.clone(), entries).folded()?;
                Ok((resolved, CqlType::map(key_type, value_type, true)))
            }
            ast::Expression::Tuple(items) => {
                if let [single] = &items[..] {
                    return self.resolve_untyped(single);
                }
                let (mut fields, mut types) =
                    (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
                for item in items {
                    let (field, field_type) = self.resolve_untyped(item)?;
                    fields.push(Some(field));
                    types.push(field_type);
                }
                Ok((Expression::Fields(fields).folded()?, CqlType::tuple(types)))
            }
            ast::Expression::TypeHint { type_name, operand } => {
                let hinted = resolve_type(type_name, &self.scope)?;
                let hint = Self::receiver("arg", hinted.clone());
                let resolved = self.resolve(operand, &hint);
                Ok((resolved.map_err(|error| wrong_hint::<R>(error, expression, operand, &hint))?, hinted))
            }
            other => Err(R::cannot_infer(other)),
        }
    }

    /// The type of a literal, or of an expression made of literals, if no other type is expected.
    pub(super) fn natural_type(&mut self, expression: &ast::Expression) -> Option<CqlType> {
        match expression {
            ast::Expression::Literal(literal) => literal_type(literal),
            ast::Expression::Arithmetic { .. } | ast::Expression::Negation(_)
                if is_literal_arithmetic(expression) =>
            {
                if let Some(known) = self.natural_types.get(&std::ptr::from_ref(expression)) {
                    return known.clone();
                }
                let natural = self.result_of_literals(expression);
                self.natural_types.insert(std::ptr::from_ref(expression), natural.clone());
                natural
            }
            ast::Expression::Tuple(items) => match &items[..] {
                [single] => self.natural_type(single),
                items => {
                    let types: Option<Vec<_>> = items.iter().map(|item| self.natural_type(item)).collect();
                    types.map(CqlType::tuple)
                }
            },
            ast::Expression::List(items) => items
                .iter()
                .find_map(|item| self.natural_type(item))
                .map(|element| CqlType::list(element, true)),
            ast::Expression::Set(items) => items
                .iter()
                .find_map(|item| self.natural_type(item))
                .map(|element| CqlType::set(element, true)),
            ast::Expression::MapOrUserType(entries) => {
                let key = entries.iter().find_map(|(key, _)| self.natural_type(key))?;
                let value = entries.iter().find_map(|(_, value)| self.natural_type(value))?;
                Some(CqlType::map(key, value, true))
            }
            _ => None,
        }
    }

    /// Creates a receiver; it has the shared marker name if there is one.
    pub(super) fn receiver(name: impl Into<String>, value_type: CqlType) -> Receiver {
        Receiver { name: R::MARKER_NAME.map_or_else(|| name.into(), str::to_owned), value_type }
    }

    /// A part of a receiver, with Cassandra's name for it: `value(m)`, `key(m)`.
    fn part(kind: &str, receiver: &Receiver, value_type: &CqlType) -> Receiver {
        Self::receiver(format!("{kind}({})", receiver.name), value_type.clone())
    }

    /// Resolves elements of one type, which the first element with a type determines. `whole` is the expression that
    /// contains them.
    fn items(
        &mut self,
        items: Vec<&ast::Expression>,
        whole: &ast::Expression,
    ) -> Result<(Vec<Expression<R::Read>>, CqlType)> {
        let mut element = None;
        let mut known = Vec::with_capacity(items.len());
        for item in &items {
            let resolved = if is_open(item) { None } else { Some(self.resolve_untyped(item)?) };
            if element.is_none() {
                element = match &resolved {
                    Some((_, own)) => Some(own.clone()),
                    None => self.natural_type(item),
                };
            }
            known.push(resolved);
        }
        let element = element.ok_or_else(|| R::cannot_infer(whole))?;
        let receiver = Self::receiver("arg", element.clone());
        let resolved = items.into_iter().zip(known).map(|(item, known)| match known {
            None => self.resolve(item, &receiver),
            Some((resolved, own)) if is_assignable(&element, &own) => Ok(resolved),
            Some(_) => Err(cannot_assign(item, &receiver)),
        });
        Ok((resolved.collect::<Result<_>>()?, element))
    }

    fn list(&mut self, items: &[ast::Expression], receiver: &Receiver) -> Result<Expression<R::Read>> {
        match &receiver.value_type {
            CqlType::List { element, .. } => {
                let items = self.elements(items, "list", element, receiver)?;
                Expression::List(items).folded()
            }
            CqlType::Vector { element, dimension } => {
                if items.len() != *dimension {
                    return Err(RequestError::invalid(format!(
                        "Invalid vector literal for {} of type {}; expected {dimension} elements, but given {}",
                        receiver.name,
                        receiver.value_type,
                        items.len()
                    )));
                }
                let part = Self::part("value", receiver, element);
                let resolved = items.iter().map(|item| {
                    self.resolve(item, &part).map_err(|error| {
                        wrong_component(error, "vector", receiver, || {
                            format!("value {item} is not of type {element}")
                        })
                    })
                });
                let items = resolved.collect::<Result<_>>()?;
                Expression::Vector((**element).clone(), items).folded()
            }
            other => Err(RequestError::invalid(format!(
                "Unexpected receiver type '{other}'; only list and vector are expected"
            ))),
        }
    }

    fn set(&mut self, items: &[ast::Expression], receiver: &Receiver) -> Result<Expression<R::Read>> {
        match &receiver.value_type {
            CqlType::Set { element, .. } => {
                let items = self.elements(items, "set", element, receiver)?;
                Expression::Set((**element).clone(), items).folded()
            }
            CqlType::Map { key, .. } if items.is_empty() => {
                Expression::Map((**key).clone(), Vec::new()).folded()
            }
            _ => Err(wrong_literal("set", receiver)),
        }
    }

    fn elements(
        &mut self,
        items: &[ast::Expression],
        kind: &str,
        element: &CqlType,
        receiver: &Receiver,
    ) -> Result<Vec<Expression<R::Read>>> {
        let part = Self::part("value", receiver, element);
        let resolved = items.iter().map(|item| {
            self.resolve(item, &part).map_err(|error| {
                wrong_component(error, kind, receiver, || format!("value {item} is not of type {element}"))
            })
        });
        resolved.collect()
    }

    fn map(
        &mut self,
        entries: &[(ast::Expression, ast::Expression)],
        receiver: &Receiver,
    ) -> Result<Expression<R::Read>> {
        let has_fields = entries.iter().all(|(key, _)| matches!(key, ast::Expression::Column(_)));
        let CqlType::Map { key: key_type, value: value_type, .. } = &receiver.value_type else {
            return Err(wrong_literal(if has_fields { "user type" } else { "map" }, receiver));
        };
        if has_fields && !R::IS_READ {
            return Err(wrong_literal("user type", receiver));
        }
        let (key_part, value_part) =
            (Self::part("key", receiver, key_type), Self::part("value", receiver, value_type));
        let mut resolved = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let resolved_key = self.resolve(key, &key_part).map_err(|error| {
                wrong_component(error, "map", receiver, || format!("key {key} is not of type {key_type}"))
            })?;
            let resolved_value = self.resolve(value, &value_part).map_err(|error| {
                wrong_component(error, "map", receiver, || {
                    format!("value {value} is not of type {value_type}")
                })
            })?;
            resolved.push((resolved_key, resolved_value));
        }
        Expression::Map((**key_type).clone(), resolved).folded()
    }

    fn user_type(
        &mut self,
        entries: &[(ast::Expression, ast::Expression)],
        definition: &UserType,
        receiver: &Receiver,
    ) -> Result<Expression<R::Read>> {
        let mut resolved: Vec<Option<Expression<R::Read>>> =
            definition.field_names.iter().map(|_| None).collect();
        for (name, value) in entries {
            let ast::Expression::Column(name) = name else { return Err(wrong_literal("map", receiver)) };
            let Some(index) = definition.field_index(name.as_str()) else {
                return Err(RequestError::invalid(format!(
                    "Unknown field '{name}' in value of user defined type {}",
                    definition.name
                )));
            };
            let field_type = definition.field_types[index].clone();
            let part = Self::receiver(format!("{}.{}", receiver.name, name.as_str()), field_type.clone());
            resolved[index] = Some(self.resolve(value, &part).map_err(|error| {
                wrong_component(error, "user type", receiver, || {
                    format!("field {} is not of type {field_type}", name.as_str())
                })
            })?);
        }
        Expression::Fields(resolved).folded()
    }

    fn tuple(&mut self, items: &[ast::Expression], receiver: &Receiver) -> Result<Expression<R::Read>> {
        let expected = &receiver.value_type;
        let CqlType::Tuple(types) = expected else {
            return match items {
                [single] => self.resolve(single, receiver),
                _ => Err(RequestError::invalid(format!(
                    "Invalid tuple type literal for {} of type {expected}",
                    receiver.name
                ))),
            };
        };
        if items.len() > types.len() {
            return Err(RequestError::invalid(format!(
                "Invalid tuple literal for {}: too many elements. Type {expected} expects {} but got {}",
                receiver.name,
                types.len(),
                items.len()
            )));
        }
        let mut resolved = Vec::with_capacity(items.len());
        for (index, (item, component)) in items.iter().zip(types.iter()).enumerate() {
            let part = Self::receiver(format!("{}[{index}]", receiver.name), component.clone());
            resolved.push(Some(self.resolve(item, &part).map_err(|error| {
                wrong_component(error, "tuple", receiver, || {
                    format!("component {index} is not of type {component}")
                })
            })?));
        }
        Expression::Fields(resolved).folded()
    }
}

/// The error for a hinted value, if it is not of the hinted type.
fn wrong_hint<R: Row>(
    error: RequestError,
    whole: &ast::Expression,
    operand: &ast::Expression,
    hint: &Receiver,
) -> RequestError {
    let is_of_other_type = is_wrong_literal(&error)
        || matches!(&error, RequestError::Invalid(message) if message.starts_with("Cannot assign value"));
    if !is_of_other_type {
        return error;
    }
    RequestError::invalid(if R::IS_READ {
        let name = display_name(whole);
        format!("Cannot assign value {name} to {name} of type {}", hint.value_type)
    } else {
        format!("Cannot cast value {} to type {}", display_name(operand), hint.value_type)
    })
}

fn cannot_assign(expression: &ast::Expression, receiver: &Receiver) -> RequestError {
    RequestError::invalid(format!(
        "Cannot assign value {} to {} of type {}",
        display_name(expression),
        receiver.name,
        receiver.value_type
    ))
}
