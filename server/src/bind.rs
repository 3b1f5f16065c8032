//! Bind values of a request: checked against the statement's markers, in canonical form (clients send sets and maps in
//! any order), and owned where they must outlive the frame.

use std::borrow::Cow;

use bytes::Bytes;
use cql_lite::frame::request::Value;
use cql_lite::types::canonical::canonical;
use cql_lite::types::validate::validate;
use smallvec::SmallVec;

use crate::error::{RequestError, Result};
use crate::plan::term::{BindValue, MarkerSpec};

/// Values that live as long as the frame they came in.
pub type BorrowedValues<'a> = SmallVec<[BindValue<'a>; 8]>;

/// Puts values into the order of the markers and checks them. `names` is empty for positional values.
pub fn bind<'a>(markers: &[MarkerSpec], values: &[Value<'a>], names: &[&str]) -> Result<BorrowedValues<'a>> {
    let amount = |given: usize| {
        RequestError::invalid(format!(
            "Invalid amount of bind variables: there were {} markers(?) in CQL but {given} bound variables",
            markers.len(),
        ))
    };
    if names.is_empty() {
        if values.len() != markers.len() {
            return Err(amount(values.len()));
        }
        return markers.iter().zip(values).map(|(marker, value)| checked(marker, value)).collect();
    }
    // Names of columns reach the server as drivers know them. One that is asked for and not given is no unset value.
    let value_of = |marker: &MarkerSpec| {
        let position = names.iter().position(|name| *name == marker.name)?;
        values.get(position)
    };
    let given = markers.iter().filter_map(|marker| Some((marker, value_of(marker)?)));
    let bound =
        given.map(|(marker, value)| checked(marker, value)).collect::<Result<BorrowedValues<'a>>>()?;
    if bound.len() != markers.len() {
        return Err(amount(bound.len()));
    }
    Ok(bound)
}

fn checked<'a>(marker: &MarkerSpec, value: &Value<'a>) -> Result<BindValue<'a>> {
    match value {
        Value::Null => Ok(BindValue::Null),
        Value::Unset => Ok(BindValue::Unset),
        Value::Bytes(bytes) => checked_bytes(marker, bytes),
    }
}

/// A value that is not null, if it is one of the marker's type.
pub fn checked_bytes<'a>(marker: &MarkerSpec, bytes: &'a [u8]) -> Result<BindValue<'a>> {
    let invalid = |error: &dyn std::fmt::Display| RequestError::invalid(error.to_string());
    validate(&marker.value_type, bytes).map_err(|error| invalid(&error))?;
    canonical(&marker.value_type, bytes).map(BindValue::Bytes).map_err(|error| invalid(&error))
}

/// Values that can be sent to another shard or kept over an await.
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

    /// Bytes of all values together.
    pub fn byte_count(&self) -> usize {
        self.buffer.len()
    }

    pub fn borrow(&self) -> BorrowedValues<'_> {
        self.values
            .iter()
            .map(|value| match value {
                Ok((start, end)) => BindValue::Bytes(Cow::Borrowed(&self.buffer[*start..*end])),
                Err(true) => BindValue::Null,
                Err(false) => BindValue::Unset,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use cql_lite::types::CqlType;

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
        let bound = bind(&markers, &values, &["more", "v", "p"]).unwrap();
        assert_eq!(bound[..], [BindValue::Bytes(Cow::Borrowed(b"3")), BindValue::Unset]);
        let told = bind(&markers, &values[..2], &["p", "vv"]).unwrap_err().to_string();
        assert!(told.starts_with("Invalid amount of bind variables"), "{told}");
        assert!(bind(&markers, &values, &[]).is_err());
    }
}
