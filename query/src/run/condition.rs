//! Checks the conditions of lightweight transactions on a row.

use std::borrow::Cow;

use cql_lite::syntax::ast::Comparison;
use cql_lite::types::{CqlType, codec, compare};

use super::evaluate::{contains, contains_key, element, holds};
use crate::error::{RequestError, Result};
use crate::plan::condition::{Condition, ConditionPart, ConditionTest, Conditions, is_equality};
use crate::plan::restrictions::{Values, list_elements};
use crate::plan::row_layout::OwnedValues;
use crate::plan::term::{Bindings, Bound, Term};
use crate::schema::catalog::Table;

/// A row on which conditions are checked: values by index in [`Table::columns`].
#[derive(Debug, Default)]
pub struct CurrentRow {
    /// Whether the row itself exists (and not only static content of its partition).
    pub exists: bool,
    /// The partition has static content.
    pub has_statics: bool,
    pub values: OwnedValues,
}

/// Whether the conditions hold for a row.
pub fn hold(
    conditions: &Conditions,
    table: &Table,
    row: &CurrentRow,
    only_static: bool,
    bindings: &Bindings<'_>,
) -> Result<bool> {
    let exists = if only_static { row.has_statics || row.exists } else { row.exists };
    match conditions {
        Conditions::NotExists => Ok(!exists),
        Conditions::Exists => Ok(exists),
        Conditions::Columns(conditions) => {
            for condition in conditions {
                let value = row.values.get(condition.column).and_then(Option::as_deref);
                if !condition_holds(condition, table, value, bindings)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

fn condition_holds(
    condition: &Condition,
    table: &Table,
    value: Option<&[u8]>,
    bindings: &Bindings<'_>,
) -> Result<bool> {
    let column = &table.columns[condition.column];
    let actual = match &condition.part {
        ConditionPart::Whole => value,
        ConditionPart::Field(index) => match value {
            Some(bytes) => {
                codec::field(bytes, *index).map_err(|error| RequestError::invalid(error.to_string()))?
            }
            None => None,
        },
        ConditionPart::Element(key) => {
            let is_list = matches!(column.column_type, CqlType::List { .. });
            let key = match key.evaluate(bindings)? {
                Bound::Bytes(key) => key,
                Bound::Null if is_list => {
                    return Err(RequestError::invalid("Invalid null value for list element access"));
                }
                Bound::Null => {
                    return Err(RequestError::invalid("Invalid null value for map element access"));
                }
                Bound::Unset => {
                    let kind = if is_list { "list" } else { "map" };
                    return Err(RequestError::invalid(format!(
                        "Invalid 'unset' value for {kind} element access"
                    )));
                }
            };
            if is_list && key.first().is_some_and(|byte| byte & 0x80 != 0) {
                let index = key.as_ref().try_into().map(i32::from_be_bytes).map_err(|_| {
                    RequestError::invalid(format!("Invalid list index for column {}", column.name))
                })?;
                return Err(RequestError::invalid(format!("Invalid negative list index {index}")));
            }
            match value {
                Some(bytes) => element(&column.column_type, bytes, &key)?,
                None => None,
            }
        }
    };
    match &condition.test {
        ConditionTest::Compare(operator, term) => {
            let expected = wanted(term, bindings)?;
            compare_nullable(*operator, &condition.value_type, actual, expected.as_deref())
        }
        ConditionTest::In(values) => {
            let candidates: Vec<Option<Cow<'_, [u8]>>> = match values {
                Values::List(term) => {
                    let list = wanted(term, bindings)?
                        .ok_or_else(|| RequestError::invalid("Invalid null list in IN condition"))?;
                    list_elements(&list, &column.name)?.into_iter().map(Some).collect()
                }
                values => {
                    let mut candidates = Vec::with_capacity(values.terms().len());
                    for term in values.terms() {
                        match term.evaluate(bindings)? {
                            Bound::Unset => {}
                            Bound::Null => candidates.push(None),
                            Bound::Bytes(bytes) => candidates.push(Some(bytes)),
                        }
                    }
                    candidates
                }
            };
            for candidate in candidates {
                if compare_nullable(Comparison::Equal, &condition.value_type, actual, candidate.as_deref())? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        ConditionTest::Contains(term) | ConditionTest::ContainsKey(term) => {
            let Some(expected) = wanted(term, bindings)? else {
                let key = if matches!(condition.test, ConditionTest::ContainsKey(_)) { " KEY" } else { "" };
                return Err(RequestError::invalid(format!(
                    "Invalid comparison with null for operator \"CONTAINS{key}\""
                )));
            };
            let Some(actual) = actual else { return Ok(false) };
            if matches!(condition.test, ConditionTest::Contains(_)) {
                contains(&condition.value_type, actual, &expected)
            } else {
                contains_key(&condition.value_type, actual, &expected)
            }
        }
    }
}

fn wanted<'a>(term: &'a Term, bindings: &Bindings<'a>) -> Result<Option<Cow<'a, [u8]>>> {
    match term.evaluate(bindings)? {
        Bound::Unset => Err(RequestError::invalid("Invalid 'unset' value in condition")),
        Bound::Null => Ok(None),
        Bound::Bytes(bytes) => Ok(Some(bytes)),
    }
}

/// Compares values that may be null: null equals null and differs from everything else.
pub(super) fn compare_nullable(
    operator: Comparison,
    value_type: &CqlType,
    actual: Option<&[u8]>,
    expected: Option<&[u8]>,
) -> Result<bool> {
    // A collection with many cells and no elements is null.
    let is_empty = |value: &&[u8]| {
        value_type.is_multi_cell() && value_type.is_collection() && is_empty_collection(value)
    };
    if expected.is_none() && !is_equality(operator) {
        return Err(RequestError::invalid(format!(
            "Invalid comparison with null for operator \"{}\"",
            operator.symbol()
        )));
    }
    if expected.as_ref().is_some_and(is_empty) && !is_equality(operator) {
        let kind = match value_type {
            CqlType::List { .. } => "list",
            CqlType::Set { .. } => "set",
            _ => "map",
        };
        return Err(RequestError::invalid(format!(
            "Invalid comparison with an empty {kind} for operator \"{}\"",
            operator.symbol()
        )));
    }
    let expected = expected.filter(|value| !is_empty(value));
    match (actual, expected) {
        (Some(actual), Some(expected)) => Ok(holds(operator, compare::compare(value_type, actual, expected))),
        (actual, expected) => match operator {
            Comparison::Equal => Ok(actual.is_none() && expected.is_none()),
            Comparison::NotEqual => Ok(actual.is_some() || expected.is_some()),
            _ => Ok(false),
        },
    }
}

fn is_empty_collection(value: &[u8]) -> bool {
    value.len() <= 4 && value.iter().all(|byte| *byte == 0)
}
