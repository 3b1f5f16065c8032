//! Terms as they are written, resolved against what they are for.
//!
//! Invariant: what does not depend on bind values is evaluated here, once.

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

use super::literals::{
    call_description, is_assignable, natural_type, own_type, resolve_literal, wrong_component, wrong_literal,
};
use super::{Markers, Receiver, Term};
use crate::error::{RequestError, Result};
use crate::functions;
use crate::plan::names::{Scope, resolve_type};

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
pub(super) fn resolve_call(
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
