//! CQL types and values.
//!
//! Every function here is pure. Values are passed as their *wire bytes* (the encoding of the native protocol, version 3
//! and later) and decoded only where necessary.
//!
//! * [`cql_type`]: the types themselves, their names in CQL and in the schema tables
//! * [`value`]: decoded values; [`validate`](validate::validate) and [`compare`](compare::compare) work on
//!   wire bytes without decoding
//! * [`canonical`]: sets and maps sorted and without duplicates, as they are compared and stored
//! * [`codec`]: the framing of collections, tuples and vectors, read without allocation
//! * [`ordered`]: wire bytes to and from byte-comparable clustering components
//! * [`literal`], [`json`]: text to and from wire bytes
//! * [`number`], [`time`], [`duration`], [`timeuuid`]: arithmetic of single types
//! * [`value_error`], [`hex`]: shared by the modules above
//! * [`token`]: the token of a partition key, and the shard of a token

pub mod canonical;
pub mod codec;
pub mod compare;
pub mod cql_type;
pub mod decimal_math;
pub mod duration;
pub(crate) mod hex;
pub mod json;
pub mod literal;
pub mod number;
pub mod ordered;
pub mod time;
pub mod timeuuid;
pub mod token;
pub mod validate;
pub mod value;
pub(crate) mod value_error;

pub use cql_type::{CqlType, UserType};
pub use value::Value;
