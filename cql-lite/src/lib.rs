//! The language and the wire of Cassandra, without I/O: frames of the protocol, the syntax of CQL, types and values.

pub mod frame;
pub mod syntax;
pub mod types;
