//! Bind values of a request: checked against the statement's markers, and owned where they must outlive the frame.

use bytes::Bytes;
use cql_lite::frame::request::Value;
use cql_lite::types::validate::validate;
use smallvec::SmallVec;

use crate::error::{RequestError, Result};
use crate::plan::term::{BindValue, MarkerSpec};

/// Values that live as long as the frame they came in.
pub type BorrowedValues<'a> = SmallVec<[BindValue<'a>; 8]>;

/// Puts values into the order of the markers and checks them. `names` is empty for positional values.
pub fn bind<'a>(markers: &[MarkerSpec], values: &[Value<'a>], names: &[&str]) -> Result<BorrowedValues<'a>> {
    let mut bound = BorrowedValues::with_capacity(markers.len());
    if names.is_empty() {
        if values.len() != markers.len() {
            return Err(RequestError::invalid(format!(
                "Invalid amount of bind variables: there were {} markers(?) in CQL but {} bound variables",
                markers.len(),
                values.len()
            )));
        }
        bound.extend(values.iter().map(convert));
    } else {
        for marker in markers {
            // Names of columns reach the server as drivers know them; a marker is found in either case.
            let position = names.iter().position(|name| *name == marker.name);
            bound.push(match position.and_then(|position| values.get(position)) {
                Some(value) => convert(value),
                None => BindValue::Unset,
            });
        }
    }
    for (value, marker) in bound.iter().zip(markers) {
        if let BindValue::Bytes(bytes) = value {
            validate(&marker.value_type, bytes).map_err(|error| RequestError::invalid(error.to_string()))?;
        }
    }
    Ok(bound)
}

fn convert<'a>(value: &Value<'a>) -> BindValue<'a> {
    match value {
        Value::Null => BindValue::Null,
        Value::Unset => BindValue::Unset,
        Value::Bytes(bytes) => BindValue::Bytes(bytes),
    }
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
                Ok((start, end)) => BindValue::Bytes(&self.buffer[*start..*end]),
                Err(true) => BindValue::Null,
                Err(false) => BindValue::Unset,
            })
            .collect()
    }
}
