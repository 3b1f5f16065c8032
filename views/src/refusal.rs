//! Refusals of statements.

use helenus_query::error::{RequestError, Result};

pub fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(RequestError::Invalid(message.into()))
}
