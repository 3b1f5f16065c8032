//! Bind values of a request: checked against the statement's markers, brought into canonical form (clients send sets
//! and maps in any order), and copied if they must outlive the frame.

use std::borrow::Cow;
use std::cell::OnceCell;

use bytes::Bytes;
use cql_lite::frame::request::Value;
use cql_lite::types::canonical::{canonical, holds_sorted};
use cql_lite::types::validate::validate;
use smallvec::SmallVec;

use crate::error::{RequestError, Result};
use crate::plan::term::{BindValue, MarkerSpec};

/// Values that borrow from the frame in which they arrived.
pub type BorrowedValues<'a> = SmallVec<[BindValue<'a>; 8]>;

/// Storage for the values of one statement whose bytes had to be rewritten: mostly there are none.
#[derive(Debug, Default)]
pub struct Rewritten(OnceCell<Vec<(usize, Vec<u8>)>>);

/// Sorts values into the order of the markers and checks them. `names` is empty for positional values.
pub fn bind<'a>(
    markers: &[MarkerSpec],
    values: &[Value<'a>],
    names: &[&str],
    rewritten: &'a Rewritten,
) -> Result<BorrowedValues<'a>> {
    let mut bound = BorrowedValues::with_capacity(markers.len());
    if names.is_empty() {
        bound.extend(values.iter().map(convert));
    } else {
        // Drivers send the column names as the server reported them. A named marker without a value is an error, not
        // an unset value.
        for marker in markers {
            let position = names.iter().position(|name| *name == marker.name);
            bound.extend(position.and_then(|position| values.get(position)).map(convert));
        }
    }
    if bound.len() != markers.len() {
        return Err(RequestError::invalid(format!(
            "Invalid amount of bind variables: there were {} markers(?) in CQL but {} bound variables",
            markers.len(),
            bound.len()
        )));
    }
    check(markers, &mut bound, rewritten)?;
    Ok(bound)
}

fn convert<'a>(value: &Value<'a>) -> BindValue<'a> {
    match value {
        Value::Null => BindValue::Null,
        Value::Unset => BindValue::Unset,
        Value::Bytes(bytes) => BindValue::Bytes(bytes),
    }
}

/// Refuses bytes that are not a value of the marker's type, and sorts sets and maps.
pub fn check<'a>(
    markers: &[MarkerSpec],
    bound: &mut [BindValue<'a>],
    rewritten: &'a Rewritten,
) -> Result<()> {
    let mut may_need_order = false;
    for (value, marker) in bound.iter().zip(markers) {
        if let BindValue::Bytes(bytes) = value {
            validate(&marker.value_type, bytes).map_err(|error| RequestError::invalid(error.to_string()))?;
            may_need_order |= holds_sorted(&marker.value_type);
        }
    }
    if may_need_order { put_in_order(markers, bound, rewritten) } else { Ok(()) }
}

fn put_in_order<'a>(
    markers: &[MarkerSpec],
    bound: &mut [BindValue<'a>],
    rewritten: &'a Rewritten,
) -> Result<()> {
    let mut sorted = Vec::new();
    for (index, (value, marker)) in bound.iter().zip(markers).enumerate() {
        if let BindValue::Bytes(bytes) = value {
            let bytes = canonical(&marker.value_type, bytes);
            if let Cow::Owned(bytes) = bytes.map_err(|error| RequestError::invalid(error.to_string()))? {
                sorted.push((index, bytes));
            }
        }
    }
    for (index, bytes) in rewritten.0.get_or_init(|| sorted) {
        if let Some(value) = bound.get_mut(*index) {
            *value = BindValue::Bytes(bytes);
        }
    }
    Ok(())
}

/// Values that can be sent to another shard or kept across an await.
#[derive(Debug, Clone, Default)]
pub struct OwnedBindings {
    buffer: Bytes,
    /// Ranges in `buffer`; `Err(true)` is null, `Err(false)` unset.
    values: Vec<std::result::Result<(usize, usize), bool>>,
}

impl OwnedBindings {
    pub fn new(values: &[BindValue<'_>]) -> Self {
        let mut buffer = Vec::new();
        let values = values
            .iter()
            .map(|value| match value {
                BindValue::Null => Err(true),
                BindValue::Unset => Err(false),
                BindValue::Bytes(bytes) => {
                    let start = buffer.len();
                    buffer.extend_from_slice(bytes);
                    Ok((start, buffer.len()))
                }
            })
            .collect();
        Self { buffer: buffer.into(), values }
    }

    /// Size of all values together, in bytes.
    pub fn byte_count(&self) -> usize {
        self.buffer.len()
    }

    pub fn borrow(&self) -> BorrowedValues<'_> {
        self.values
            .iter()
            .map(|value| match value {
                Ok((start, end)) => BindValue::Bytes(&self.buffer[*start..*end]),
                Err(true) => BindValue::Null,
                Err(false) => BindValue::Unset,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use cql_lite::types::{CqlType, codec};

    use super::*;

    fn markers(types: &[(&str, CqlType)]) -> Vec<MarkerSpec> {
        let spec = |(name, value_type): &(&str, CqlType)| MarkerSpec {
            name: (*name).to_owned(),
            value_type: value_type.clone(),
        };
        types.iter().map(spec).collect()
    }

    #[test]
    fn every_named_marker_needs_its_value() {
        let markers = markers(&[("p", CqlType::Text), ("v", CqlType::Text)]);
        let values = [Value::Bytes(b"1"), Value::Unset, Value::Bytes(b"3")];
        let rewritten = Rewritten::default();
        let bound = bind(&markers, &values, &["more", "v", "p"], &rewritten).unwrap();
        assert_eq!(bound[..], [BindValue::Bytes(b"3"), BindValue::Unset]);
        let error_text = bind(&markers, &values[..2], &["p", "vv"], &rewritten).unwrap_err().to_string();
        assert!(error_text.starts_with("Invalid amount of bind variables"), "{error_text}");
        assert!(bind(&markers, &values, &[], &rewritten).is_err());
    }

    #[test]
    fn only_values_out_of_order_are_rewritten() {
        let set = CqlType::set(CqlType::Text, false);
        let markers = markers(&[("a", set.clone()), ("b", CqlType::Int), ("c", set)]);
        let encode = |items: [&'static str; 2]| codec::encode_elements(items.into_iter().map(str::as_bytes));
        let (sorted, sent) = (encode(["x", "y"]), encode(["y", "x"]));
        let values = [Value::Bytes(&sorted), Value::Bytes(&[0, 0, 0, 1]), Value::Bytes(&sent)];
        let rewritten = Rewritten::default();
        let bound = bind(&markers, &values, &[], &rewritten).unwrap();
        let expected = [&sorted[..], &[0, 0, 0, 1], &sorted[..]].map(BindValue::Bytes);
        assert_eq!(bound[..], expected);
        assert_eq!(rewritten.0.get().map(Vec::len), Some(1));
    }
}
