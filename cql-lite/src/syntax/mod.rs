//! The syntax of CQL: text to tree and back.

pub mod ast;
mod keyword;
mod print;
