//! The assignments of UPDATE and the deletions of DELETE: operations on columns and on their elements.
//!
//! Invariant: an operation fits the type of its column. The parser refuses to set a column in two ways.

use cql_lite::syntax::ast;
use cql_lite::types::CqlType;

use super::Operation;
use crate::error::{RequestError, Result};
use crate::functions;
use crate::plan::names::NameScope;
use crate::plan::term::{Markers, Receiver, resolve};
use crate::schema::catalog::Column;

pub(super) fn resolve_assignment(
    assignment: &ast::Assignment,
    column: &Column,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<Operation> {
    let name = &column.name;
    let receiver = Receiver::new(name.clone(), column.column_type.clone());
    let is_counter = column.column_type == CqlType::Counter;
    let wrong = |kind: &str| {
        RequestError::invalid(format!("Invalid operation ({assignment}) for {kind} column {name}"))
    };
    match &assignment.operation {
        ast::AssignmentOperation::Set(term) => {
            if is_counter {
                return Err(RequestError::invalid(format!(
                    "Cannot set the value of counter column {name} (counters can only be incremented/decremented, not set)"
                )));
            }
            Ok(Operation::Set(resolve(term, &receiver, scope, markers)?))
        }
        ast::AssignmentOperation::Add(term) | ast::AssignmentOperation::Subtract(term) if is_counter => {
            let amount = resolve(term, &receiver, scope, markers)?;
            Ok(if matches!(assignment.operation, ast::AssignmentOperation::Add(_)) {
                Operation::CounterAdd(amount)
            } else {
                Operation::CounterSubtract(amount)
            })
        }
        ast::AssignmentOperation::Add(term) | ast::AssignmentOperation::Subtract(term)
            if markers.are_of_transaction() && is_number(&column.column_type) =>
        {
            let is_add = matches!(assignment.operation, ast::AssignmentOperation::Add(_));
            let operands = [Some(column.column_type.clone()), Some(column.column_type.clone())];
            let name = functions::operator_name(if is_add { "+" } else { "-" });
            let function = functions::resolve_with_literals(name, &operands, &[], None)?;
            let number = resolve(term, &receiver, scope, markers)?;
            Ok(Operation::Calculate { function: Box::new(function), number })
        }
        ast::AssignmentOperation::Add(term) => match &column.column_type {
            CqlType::Map { frozen: false, .. } if matches!(term, ast::Expression::Set(elements) if !elements.is_empty()) => {
                Err(RequestError::invalid(format!(
                    "Value for a map addition has to be a map, but was: '{term}'"
                )))
            }
            CqlType::List { frozen: false, .. }
            | CqlType::Set { frozen: false, .. }
            | CqlType::Map { frozen: false, .. } => {
                Ok(Operation::Add(resolve(term, &receiver, scope, markers)?))
            }
            other if other.is_collection() => Err(wrong("frozen collection")),
            CqlType::Tuple(_) | CqlType::UserType { .. } => Err(wrong("tuple")),
            _ => Err(wrong("non counter")),
        },
        ast::AssignmentOperation::Prepend(term) => match &column.column_type {
            CqlType::List { frozen: false, .. } => {
                Ok(Operation::Prepend(resolve(term, &receiver, scope, markers)?))
            }
            CqlType::List { .. } => Err(wrong("frozen list")),
            _ => Err(wrong("non list")),
        },
        ast::AssignmentOperation::Subtract(term) => match &column.column_type {
            CqlType::List { frozen: false, .. } | CqlType::Set { frozen: false, .. } => {
                Ok(Operation::Subtract(resolve(term, &receiver, scope, markers)?))
            }
            CqlType::Map { frozen: false, .. } if matches!(term, ast::Expression::MapOrUserType(_)) => {
                Err(RequestError::invalid(format!(
                    "Value for a map substraction has to be a set, but was: '{term}'"
                )))
            }
            CqlType::Map { frozen: false, key, .. } => {
                let keys = Receiver::new(name.clone(), CqlType::set((**key).clone(), false));
                Ok(Operation::Subtract(resolve(term, &keys, scope, markers)?))
            }
            other if other.is_collection() => Err(wrong("frozen collection")),
            _ => Err(wrong("non counter")),
        },
        ast::AssignmentOperation::SetElement { key, value } => match &column.column_type {
            CqlType::List { frozen: false, element } => Ok(Operation::SetElement {
                key: resolve(key, &receiver.part("idx", CqlType::Int), scope, markers)?,
                value: resolve(value, &receiver.part("value", (**element).clone()), scope, markers)?,
            }),
            CqlType::Map { frozen: false, key: key_type, value: value_type } => Ok(Operation::SetElement {
                key: resolve(key, &receiver.part("key", (**key_type).clone()), scope, markers)?,
                value: resolve(value, &receiver.part("value", (**value_type).clone()), scope, markers)?,
            }),
            CqlType::Set { frozen: false, .. } => Err(wrong("set")),
            other if other.is_collection() => Err(wrong("frozen collection")),
            _ => Err(wrong("non collection")),
        },
        ast::AssignmentOperation::SetField { field, value } => match &column.column_type {
            CqlType::UserType { definition, frozen: false } => {
                let index = definition.field_index(field.as_str()).ok_or_else(|| {
                    RequestError::invalid(format!(
                        "UDT column {name} does not have a field named {}",
                        field.as_str()
                    ))
                })?;
                let part = Receiver::new(
                    format!("{name}.{}", field.as_str()),
                    definition.field_types[index].clone(),
                );
                Ok(Operation::SetField { field: index as u16, value: resolve(value, &part, scope, markers)? })
            }
            CqlType::UserType { .. } => Err(wrong("frozen UDT")),
            _ => Err(wrong("non-UDT")),
        },
    }
}

/// Whether values of a type are numbers that a transaction calculates with.
fn is_number(column_type: &CqlType) -> bool {
    matches!(
        column_type,
        CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Int
            | CqlType::Bigint
            | CqlType::Varint
            | CqlType::Float
            | CqlType::Double
            | CqlType::Decimal
    )
}

pub(super) fn resolve_deletion(
    deletion: &ast::Deletion,
    column: &Column,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<Operation> {
    let name = &column.name;
    match deletion {
        ast::Deletion::Column(_) => Ok(Operation::Delete),
        ast::Deletion::Element { key, .. } => {
            let receiver = Receiver::new(name.clone(), column.column_type.clone());
            let part = match &column.column_type {
                CqlType::List { frozen: false, .. } => receiver.part("idx", CqlType::Int),
                CqlType::Set { frozen: false, element } => receiver.part("value", (**element).clone()),
                CqlType::Map { frozen: false, key, .. } => receiver.part("key", (**key).clone()),
                other => {
                    let kind = if other.is_collection() { "frozen" } else { "non" };
                    return Err(RequestError::invalid(format!(
                        "Invalid deletion operation for {kind} collection column {name}"
                    )));
                }
            };
            Ok(Operation::DeleteElement(resolve(key, &part, scope, markers)?))
        }
        ast::Deletion::Field { field, .. } => match &column.column_type {
            CqlType::UserType { definition, frozen: false } => {
                let index = definition.field_index(field.as_str()).ok_or_else(|| {
                    RequestError::invalid(format!(
                        "UDT column {name} does not have a field named {}",
                        field.as_str()
                    ))
                })?;
                Ok(Operation::DeleteField(index as u16))
            }
            CqlType::UserType { .. } => Err(RequestError::invalid(format!(
                "Frozen UDT column {name} does not support field deletions"
            ))),
            _ => Err(RequestError::invalid(format!(
                "Invalid field deletion operation for non-UDT column {name}"
            ))),
        },
    }
}
