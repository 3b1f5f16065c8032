//! The CQL types: names, structure, freezing and compatibility.
//!
//! `Display` writes the text that `system_schema.columns` holds and [`CqlType::parse`] reads it back. Everything
//! inside a frozen type is frozen as well: the constructors that freeze keep that, [`CqlType::parse`] too.
//! Types are shared through `Arc`, so a clone costs at most two reference counts.

mod class_name;
mod definition;
mod identifier;
mod parse;

pub use definition::{CqlType, MAXIMUM_VECTOR_DIMENSION, UserType};
pub use identifier::quote_identifier;
pub use parse::{MAXIMUM_NESTING, TypeParseError};
