//! The value of USING TIMEOUT, an extension of ScyllaDB: rules and texts of errors are its.

use std::time::Duration;

use cql_lite::types::duration;

use crate::error::{RequestError, Result};
use crate::plan::term::{Bindings, Bound, Term};

const NANOSECONDS_PER_MILLISECOND: i64 = 1_000_000;

/// The timeout of a statement.
pub fn timeout_value(term: &Term, bindings: &Bindings<'_>) -> Result<Duration> {
    let bytes = match term.evaluate(bindings)? {
        Bound::Unset => return Err(RequestError::invalid("Timeout value cannot be unset")),
        Bound::Null => return Err(RequestError::invalid("Timeout value cannot be null")),
        Bound::Bytes(bytes) => bytes,
    };
    let value =
        duration::Duration::from_wire(&bytes).map_err(|error| RequestError::invalid(error.to_string()))?;
    if value.months != 0 || value.days != 0 {
        return Err(RequestError::invalid("Timeout values cannot be expressed in days/months"));
    }
    if value.nanoseconds % NANOSECONDS_PER_MILLISECOND != 0 {
        return Err(RequestError::invalid("Timeout values cannot have granularity finer than milliseconds"));
    }
    u64::try_from(value.nanoseconds)
        .map(Duration::from_nanos)
        .map_err(|_| RequestError::invalid("Timeout values must be non-negative"))
}

#[cfg(test)]
mod tests {
    use cql_lite::types::CqlType;

    use super::*;
    use crate::functions::CallContext;

    fn value(text: &str) -> std::result::Result<Duration, String> {
        let parsed = duration::Duration::parse(text).map_err(|error| error.to_string())?;
        let term = Term::Constant(Some(cql_lite::types::Value::Duration(parsed).encode(&CqlType::Duration)));
        let call = CallContext::at(0);
        timeout_value(&term, &Bindings { values: &[], call: &call }).map_err(|error| error.to_string())
    }

    #[test]
    fn a_timeout_is_a_number_of_milliseconds() {
        assert_eq!(value("1h2s3ms").unwrap(), Duration::from_millis(3_602_003));
        assert_eq!(value("48h").unwrap(), Duration::from_hours(48));
        assert_eq!(value("0ms").unwrap(), Duration::ZERO);
        assert_eq!(value("-5ms").unwrap_err(), "Timeout values must be non-negative");
        assert_eq!(value("3d").unwrap_err(), "Timeout values cannot be expressed in days/months");
        assert_eq!(value("1mo").unwrap_err(), "Timeout values cannot be expressed in days/months");
        assert_eq!(
            value("1ms5us").unwrap_err(),
            "Timeout values cannot have granularity finer than milliseconds"
        );
    }
}
