//! The syntax of CQL: text to tree ([`parse`]) and back (`Display` of the tree).
//!
//! The grammar is that of Cassandra 5.0, with `USING TIMEOUT` of ScyllaDB in SELECT. Error texts are Cassandra's.

pub mod ast;
mod error;
mod keyword;
mod lexer;
mod parser;
mod print;

pub use self::{
    error::{Position, SyntaxError},
    parser::{Limits, Parsed, parse, parse_constraints, parse_mask, parse_type, parse_with},
};
