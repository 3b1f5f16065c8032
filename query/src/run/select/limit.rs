//! The values of LIMIT and PER PARTITION LIMIT.

use crate::error::{RequestError, Result};
use crate::plan::term::{Bindings, Bound, Term};

/// The value of a limit; `None`: there is none, or its value is unset. `name` is for errors.
pub(super) fn limit_value(term: Option<&Term>, name: &str, bindings: &Bindings<'_>) -> Result<Option<u64>> {
    let Some(term) = term else { return Ok(None) };
    match term.evaluate(bindings)? {
        Bound::Unset => Ok(None),
        Bound::Null => Err(RequestError::invalid("Invalid null value of limit")),
        Bound::Bytes(bytes) => {
            let value = bytes
                .as_ref()
                .try_into()
                .map(i32::from_be_bytes)
                .map_err(|_| RequestError::invalid(format!("Invalid {name} value")))?;
            match u64::try_from(value) {
                Ok(value) if value > 0 => Ok(Some(value)),
                _ => Err(RequestError::invalid("LIMIT must be strictly positive")),
            }
        }
    }
}
