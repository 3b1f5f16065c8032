//! Errors of encoding and decoding components.

use super::super::codec;
use super::super::value_error::ValueError;

/// Error of encoding or decoding a component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderedError {
    /// The value is not valid for its type.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The component is incomplete.
    #[error("truncated clustering component")]
    Truncated,
    /// The bytes break the format.
    #[error("unexpected byte 0x{byte:02x} in a clustering component")]
    UnexpectedByte {
        /// The byte, as in ascending order.
        byte: u8,
    },
}

impl From<codec::CodecError> for OrderedError {
    fn from(error: codec::CodecError) -> Self {
        OrderedError::Value(ValueError::Framing(error))
    }
}
