//! Conditions of a view that the node checks on the values of a unit.
//!
//! A comparison with null does not hold, as in SELECT.

use std::cmp::Ordering;

use cql_lite::syntax::ast::{self, Comparison, InValues, Relation, Subject};
use cql_lite::types::compare::compare;
use cql_lite::types::{CqlType, codec};
use helenus_query::error::{RequestError, Result};
use helenus_query::functions::CallContext;
use helenus_query::plan::names::NameScope;
use helenus_query::plan::term::{Bindings, Markers, Receiver, resolve};

/// A condition with its constants.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundCondition {
    column_type: CqlType,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    IsNotNull,
    Compare(Comparison, Vec<u8>),
    Between(Vec<u8>, Vec<u8>),
    In {
        values: Vec<Vec<u8>>,
        negated: bool,
    },
    /// Of an element, or of a key of a map.
    Contains {
        value: Vec<u8>,
        key: bool,
        negated: bool,
    },
}

impl BoundCondition {
    /// Binds the constants of a relation on a column of this type. Relations that cannot be checked on one value are refused.
    pub fn new(relation: &Relation, column_type: &CqlType, scope: &NameScope<'_>) -> Result<Self> {
        let constant = |value: &ast::Expression| constant(value, column_type, scope);
        let test = match relation {
            Relation::IsNotNull { .. } => Test::IsNotNull,
            Relation::Compare { subject: Subject::Column(_), operator, value } => {
                Test::Compare(*operator, constant(value)?)
            }
            Relation::Between { subject: Subject::Column(_), from, to } => {
                Test::Between(constant(from)?, constant(to)?)
            }
            Relation::In { subject: Subject::Column(_), negated, values: InValues::Values(values) } => {
                let values = values.iter().map(constant).collect::<Result<_>>()?;
                Test::In { values, negated: *negated }
            }
            Relation::Contains { key, negated, value, .. } => {
                let part = match (column_type, key) {
                    (CqlType::List { element, .. } | CqlType::Set { element, .. }, false) => element,
                    (CqlType::Map { key, .. }, true) => key,
                    (CqlType::Map { value, .. }, false) => value,
                    _ => return Err(refused(relation)),
                };
                Test::Contains { value: self::constant(value, part, scope)?, key: *key, negated: *negated }
            }
            _ => return Err(refused(relation)),
        };
        Ok(Self { column_type: column_type.clone(), test })
    }

    /// Whether a value fulfils the condition. `None`: null.
    pub fn holds(&self, value: Option<&[u8]>) -> Result<bool> {
        let Some(value) = value else { return Ok(false) };
        let order = |other: &[u8]| compare(&self.column_type, value, other);
        Ok(match &self.test {
            Test::IsNotNull => true,
            Test::Compare(operator, other) => match operator {
                Comparison::Equal => order(other) == Ordering::Equal,
                Comparison::NotEqual => order(other) != Ordering::Equal,
                Comparison::Less => order(other) == Ordering::Less,
                Comparison::LessOrEqual => order(other) != Ordering::Greater,
                Comparison::Greater => order(other) == Ordering::Greater,
                Comparison::GreaterOrEqual => order(other) != Ordering::Less,
            },
            Test::Between(from, to) => order(from) != Ordering::Less && order(to) != Ordering::Greater,
            Test::In { values, negated } => {
                values.iter().any(|wanted| order(wanted) == Ordering::Equal) != *negated
            }
            Test::Contains { value: wanted, key, negated } => self.contains(value, wanted, *key)? != *negated,
        })
    }

    fn contains(&self, collection: &[u8], wanted: &[u8], key: bool) -> Result<bool> {
        let damaged = |error: codec::CodecError| RequestError::Server(error.to_string());
        match &self.column_type {
            CqlType::List { element, .. } | CqlType::Set { element, .. } => {
                for found in codec::elements(collection).map_err(damaged)? {
                    if compare(element, found.map_err(damaged)?, wanted) == Ordering::Equal {
                        return Ok(true);
                    }
                }
            }
            CqlType::Map { key: key_type, value: value_type, .. } => {
                let part_type = if key { key_type } else { value_type };
                for found in codec::entries(collection).map_err(damaged)? {
                    let (of_key, of_value) = found.map_err(damaged)?;
                    let part = if key { of_key } else { of_value };
                    if compare(part_type, part, wanted) == Ordering::Equal {
                        return Ok(true);
                    }
                }
            }
            _ => {}
        }
        Ok(false)
    }
}

/// The bytes of a constant.
fn constant(value: &ast::Expression, value_type: &CqlType, scope: &NameScope<'_>) -> Result<Vec<u8>> {
    let mut markers = Markers::default();
    let term = resolve(value, &Receiver::new("value", value_type.clone()), scope, &mut markers)?;
    if !term.is_constant() {
        return Err(RequestError::invalid(format!(
            "A view compares with constants only, and {value} is none"
        )));
    }
    let call = CallContext::at(0);
    let bound = term.evaluate(&Bindings { values: &[], call: &call })?;
    bound.as_bytes().map(<[u8]>::to_vec).ok_or_else(|| {
        RequestError::invalid(format!("A view compares with constants only, and {value} is null"))
    })
}

fn refused(relation: &Relation) -> RequestError {
    RequestError::invalid(format!("The condition {relation} is not supported in a view"))
}
