//! The IF clause of a modification.

use cql_lite::syntax::ast::{self, Comparison};
use cql_lite::types::CqlType;

use super::names::{NameScope, column_of};
use super::restrictions::{Values, resolve_values};
use super::term::{Markers, Receiver, Term, resolve};
use crate::error::{RequestError, Result};
use crate::schema::catalog::Table;

/// The conditions for applying a modification.
#[derive(Debug, Clone)]
pub enum Conditions {
    NotExists,
    Exists,
    Columns(Vec<Condition>),
}

/// A condition on one column.
#[derive(Debug, Clone)]
pub struct Condition {
    /// Index in [`Table::columns`].
    pub column: usize,
    pub part: ConditionPart,
    /// The type of the compared value.
    pub value_type: CqlType,
    pub test: ConditionTest,
}

/// The part of the column's value that is compared.
#[derive(Debug, Clone)]
pub enum ConditionPart {
    Whole,
    /// The value at a key of a map or an index of a list.
    Element(Term),
    Field(usize),
}

#[derive(Debug, Clone)]
pub enum ConditionTest {
    Compare(Comparison, Term),
    In(Values),
    Contains(Term),
    ContainsKey(Term),
}

/// Resolves an IF clause.
pub fn resolve_conditions(
    clause: &ast::IfClause,
    table: &Table,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<Conditions> {
    match clause {
        ast::IfClause::Exists => Ok(Conditions::Exists),
        ast::IfClause::Conditions(conditions) => Ok(Conditions::Columns(
            conditions
                .iter()
                .map(|condition| resolve_condition(condition, table, scope, markers))
                .collect::<Result<_>>()?,
        )),
    }
}

fn resolve_condition(
    condition: &ast::Condition,
    table: &Table,
    scope: &NameScope<'_>,
    markers: &mut Markers,
) -> Result<Condition> {
    let index = column_of(table, condition.subject.column())?;
    let column = &table.columns[index];
    let name = &column.name;
    if column.is_primary_key() {
        return Err(RequestError::invalid(format!("PRIMARY KEY column '{name}' cannot have IF conditions")));
    }
    let receiver = Receiver::new(name.clone(), column.column_type.clone());
    let (part, value_receiver) = match &condition.subject {
        ast::ConditionSubject::Column(_) => (ConditionPart::Whole, receiver),
        ast::ConditionSubject::Element { key, .. } => match &column.column_type {
            CqlType::List { element, .. } => {
                let key = resolve(key, &receiver.part("idx", CqlType::Int), scope, markers)?;
                (ConditionPart::Element(key), receiver.part("value", (**element).clone()))
            }
            CqlType::Map { key: key_type, value, .. } => {
                let key = resolve(key, &receiver.part("key", (**key_type).clone()), scope, markers)?;
                (ConditionPart::Element(key), receiver.part("value", (**value).clone()))
            }
            CqlType::Set { .. } => {
                return Err(RequestError::invalid(format!(
                    "Invalid element access syntax for set column {name}"
                )));
            }
            _ => {
                return Err(RequestError::invalid(format!(
                    "Invalid element access syntax for non-collection column {name}"
                )));
            }
        },
        ast::ConditionSubject::Field { field, .. } => {
            let CqlType::UserType { definition, .. } = &column.column_type else {
                return Err(RequestError::invalid(format!(
                    "Cannot use field access on non-UDT column {name}"
                )));
            };
            let field_index = definition.field_index(field.as_str()).ok_or_else(|| {
                RequestError::invalid(format!("Unknown field {} for column {name}", field.as_str()))
            })?;
            let field_type = definition.field_types[field_index].clone();
            (
                ConditionPart::Field(field_index),
                Receiver::new(format!("{name}.{}", field.as_str()), field_type),
            )
        }
    };
    let value_type = value_receiver.value_type.clone();
    let test = match &condition.test {
        ast::ConditionTest::Compare(operator, term) => {
            if !is_equality(*operator) && value_type.any(&|part| *part == CqlType::Duration) {
                return Err(RequestError::invalid(match value_type {
                    CqlType::Duration => {
                        format!("Slice conditions ( {} ) are not supported on durations", operator.symbol())
                    }
                    CqlType::Tuple(_) => {
                        "Slice conditions are not supported on tuples containing durations".to_owned()
                    }
                    CqlType::UserType { .. } => {
                        "Slice conditions are not supported on UDTs containing durations".to_owned()
                    }
                    _ => "Slice conditions are not supported on collections containing durations".to_owned(),
                }));
            }
            ConditionTest::Compare(*operator, resolve(term, &value_receiver, scope, markers)?)
        }
        ast::ConditionTest::In(values) => {
            ConditionTest::In(resolve_values(values, &value_receiver, scope, markers)?)
        }
        ast::ConditionTest::Contains { key, value } => {
            let (element, is_map) = match &column.column_type {
                CqlType::Map { key: key_type, .. } if *key => (key_type, true),
                CqlType::List { element, .. } | CqlType::Set { element, .. } if !*key => (element, false),
                CqlType::Map { value, .. } => (value, true),
                _ => {
                    let kind = if *key { "KEY on non-map" } else { "on non-collection" };
                    return Err(RequestError::invalid(format!("Cannot use CONTAINS {kind} column {name}")));
                }
            };
            let part = value_receiver.part(if *key && is_map { "key" } else { "value" }, (**element).clone());
            let term = resolve(value, &part, scope, markers)?;
            if *key { ConditionTest::ContainsKey(term) } else { ConditionTest::Contains(term) }
        }
    };
    Ok(Condition { column: index, part, value_type, test })
}

/// Whether an operator only tests for equality.
pub fn is_equality(operator: Comparison) -> bool {
    matches!(operator, Comparison::Equal | Comparison::NotEqual)
}
