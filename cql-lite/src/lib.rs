//! The protocol and the language of Cassandra, without I/O: frames of the native protocol, the syntax of CQL, types and
//! values.

pub mod frame;
pub mod syntax;
pub mod types;
