//! What a transaction computes of the rows that it has read: the values of its references, and whether its conditions hold.

use std::borrow::Cow;

use cql_lite::types::codec;

use super::condition::compare_nullable;
use super::evaluate::{COMPUTED_ROW_BYTES_MAX, element};
use crate::error::{RequestError, Result};
use crate::plan::row_layout::OwnedValues;
use crate::plan::term::{BindValue, Bindings, Bound, Reference, ReferencePart};
use crate::plan::transaction::{TransactionCondition, TransactionPlan, compared_value};

/// A row with a name, as it was read.
#[derive(Debug)]
pub struct NamedRow {
    pub exists: bool,
    /// By index in `Table::columns`. Of a row that does not exist, those of static columns may be present.
    pub values: OwnedValues,
}

/// The values of all references, in their order. `bindings`: those of the client.
pub fn referenced_values(
    plan: &TransactionPlan,
    rows: &[NamedRow],
    bindings: &Bindings<'_>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut bytes = 0;
    let mut values = Vec::with_capacity(plan.references.len());
    for reference in &plan.references {
        let value = referenced_value(plan, reference, rows, bindings)?;
        bytes += value.as_ref().map_or(0, Vec::len);
        // A value is copied for each of its uses.
        if bytes > COMPUTED_ROW_BYTES_MAX {
            return Err(RequestError::invalid(format!(
                "The values that a transaction refers to take more than {COMPUTED_ROW_BYTES_MAX} bytes"
            )));
        }
        values.push(value);
    }
    Ok(values)
}

fn referenced_value(
    plan: &TransactionPlan,
    reference: &Reference,
    rows: &[NamedRow],
    bindings: &Bindings<'_>,
) -> Result<Option<Vec<u8>>> {
    let row = rows.get(reference.row);
    let value = row.and_then(|row| row.values.get(reference.column)).and_then(Option::as_deref);
    let part = match (&reference.part, value) {
        (ReferencePart::Whole, value) => value,
        (ReferencePart::Field(index), Some(bytes)) => {
            codec::field(bytes, *index).map_err(|error| RequestError::invalid(error.to_string()))?
        }
        (ReferencePart::Element(key), value) => {
            let key = match key.evaluate(bindings)? {
                Bound::Bytes(key) => key,
                Bound::Null => return Err(RequestError::invalid("Invalid null value for element access")),
                Bound::Unset => {
                    return Err(RequestError::invalid("Invalid 'unset' value for element access"));
                }
            };
            match value {
                Some(bytes) => element(&plan.table.columns[reference.column].column_type, bytes, &key)?,
                None => None,
            }
        }
        (ReferencePart::Field(_), None) => None,
    };
    Ok(part.map(<[u8]>::to_vec))
}

/// The values of the client's markers and then those of references: what the plans of the modifications are evaluated with.
pub fn all_values<'a>(given: &[BindValue<'a>], referenced: &'a [Option<Vec<u8>>]) -> Vec<BindValue<'a>> {
    let referenced = referenced.iter().map(|value| match value {
        Some(bytes) => BindValue::Bytes(bytes),
        None => BindValue::Null,
    });
    given.iter().copied().chain(referenced).collect()
}

/// Whether all conditions hold. A value that is not there differs from every other, and is neither less nor greater.
pub fn conditions_hold(
    plan: &TransactionPlan,
    rows: &[NamedRow],
    referenced: &[Option<Vec<u8>>],
    bindings: &Bindings<'_>,
) -> Result<bool> {
    let mut all_hold = true;
    // All are evaluated, so that a wrong value is refused whatever is stored.
    for condition in &plan.conditions {
        all_hold &= match condition {
            TransactionCondition::RowIsNull { row, negated } => {
                rows.get(*row).is_some_and(|row| row.exists) == *negated
            }
            TransactionCondition::IsNull { reference, negated } => {
                referenced.get(*reference).is_some_and(Option::is_some) == *negated
            }
            TransactionCondition::Compare { reference, operator, value } => {
                let expected: Cow<'_, [u8]> = compared_value(value, bindings)?;
                let actual = referenced.get(*reference).and_then(Option::as_deref);
                let value_type = &plan.references[*reference].value_type;
                compare_nullable(*operator, value_type, actual, Some(&expected))?
            }
        };
    }
    Ok(all_hold)
}
