//! The CQL types: names, structure, freezing and compatibility.
//!
//! `Display` writes the text of `system_schema.columns`, which [`CqlType::parse`] reads. Everything inside a frozen type
//! is frozen as well; the constructors and [`CqlType::parse`] ensure it. Inner types are shared through `Arc`, so a
//! clone is cheap.

mod class_name;
mod definition;
mod identifier;
mod parse;

pub use definition::{CqlType, MAXIMUM_VECTOR_DIMENSION, UserType};
pub use identifier::quote_identifier;
pub use parse::TypeParseError;
