//! Why bytes are not a value of a type.

use super::codec::CodecError;
use super::cql_type::CqlType;

/// Why bytes are not a value of a type. The texts are Cassandra's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A type of fixed length, and bytes of another.
    #[error("{expected} ({length})")]
    WrongLength {
        /// Which lengths are allowed, e.g. `Expected 4 or 0 byte int`.
        expected: &'static str,
        /// The length found, in bytes.
        length: usize,
    },
    /// Text that is not UTF-8.
    #[error("String didn't validate.")]
    InvalidUtf8,
    /// Text that is not ASCII.
    #[error("Invalid byte for ascii: {byte}")]
    InvalidAscii {
        /// The byte, signed as Java prints it.
        byte: i8,
    },
    /// An address that has neither 4 nor 16 bytes.
    #[error("Expected 4 or 16 byte inetaddress; got {hex}")]
    InvalidInet {
        /// The bytes.
        hex: String,
    },
    /// A timeuuid that is not a version 1 UUID.
    #[error("Invalid version for TimeUUID type.")]
    InvalidTimeuuidVersion,
    /// Bytes for the empty type.
    #[error("EmptyType only accept empty values")]
    NotEmpty,
    /// Too few bytes for three numbers.
    #[error("Expected at least 3 bytes for a duration ({length})")]
    DurationTooShort {
        /// The length found, in bytes.
        length: usize,
    },
    /// Months or days beyond 32 bits.
    #[error("The duration {unit} must be a 32 bits integer but was: {number}")]
    DurationPartTooLarge {
        /// `months` or `days`.
        unit: &'static str,
        /// The number found.
        number: i64,
    },
    /// Parts of different sign.
    #[error(
        "The duration months, days and nanoseconds must be all of the same sign ({months}, {days}, {nanoseconds})"
    )]
    DurationSigns {
        /// The months found.
        months: i32,
        /// The days found.
        days: i32,
        /// The nanoseconds found.
        nanoseconds: i64,
    },
    /// A collection, tuple or vector whose frame is broken.
    #[error(transparent)]
    Framing(CodecError),
    /// A collection, tuple or vector whose frame is broken, in Cassandra's words.
    #[error("{0}")]
    Malformed(String),
    /// A field of a user type that is not valid.
    #[error("Failure validating the {index}th field {name}; {source}")]
    Field {
        /// Its position.
        index: usize,
        /// Its name.
        name: String,
        /// The error.
        source: Box<ValueError>,
    },
}

impl ValueError {
    /// The error for a value of `length` bytes of a type with a fixed length.
    pub(crate) fn wrong_length(ty: &CqlType, length: usize) -> ValueError {
        let expected = match ty {
            CqlType::Bigint | CqlType::Counter => "Expected 8 or 0 byte long",
            CqlType::Boolean => "Expected 1 or 0 byte value",
            CqlType::Date => "Expected 4 byte long for date",
            CqlType::Decimal => "Expected 0 or at least 4 bytes",
            CqlType::Double => "Expected 8 or 0 byte value for a double",
            CqlType::Float => "Expected 4 or 0 byte value for a float",
            CqlType::Int => "Expected 4 or 0 byte int",
            CqlType::Smallint => "Expected 2 bytes for a smallint",
            CqlType::Time => "Expected 8 byte long for time",
            CqlType::Timestamp => "Expected 8 or 0 byte long for date",
            CqlType::Tinyint => "Expected 1 byte for a tinyint",
            CqlType::Uuid | CqlType::Timeuuid => "UUID should be 16 or 0 bytes",
            _ => "Unexpected length",
        };
        ValueError::WrongLength { expected, length }
    }
}

impl From<CodecError> for ValueError {
    fn from(error: CodecError) -> Self {
        ValueError::Framing(error)
    }
}
