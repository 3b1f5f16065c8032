//! CQL types and values: what the bytes of a column mean.
//!
//! Every function here is pure. A value travels as its *wire bytes* (the encoding of the native protocol,
//! version 3 and later) and is only decoded where its meaning is needed.
//!
//! * [`cql_type`]: the types themselves, their names in CQL and in the schema tables
//! * [`value`]: decoded values; [`validate`](validate::validate) and [`compare`](compare::compare) work on
//!   wire bytes without decoding
//! * [`canonical`]: sets and maps in order, as they are compared and stored
//! * [`codec`]: the framing of collections, tuples and vectors, read without allocation
//! * [`ordered`]: wire bytes to and from byte-comparable clustering components
//! * [`literal`], [`json`]: text to and from wire bytes
//! * [`number`], [`time`], [`duration`], [`timeuuid`]: arithmetic the types need
//! * [`token`]: partition keys to tokens to shards

pub mod canonical;
pub mod codec;
pub mod compare;
pub mod cql_type;
pub mod duration;
pub mod hex;
pub mod json;
pub mod literal;
pub mod number;
pub mod ordered;
pub mod time;
pub mod timeuuid;
pub mod token;
pub mod validate;
pub mod value;
pub mod value_error;

pub use cql_type::{CqlType, UserType};
pub use value::Value;
