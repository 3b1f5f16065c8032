//! Tests of types and values: names, validity, order, text, JSON, tokens.

#![allow(clippy::unwrap_used, reason = "a failing helper fails its test")]

mod arbitrary;
mod cql_type;
mod json;
mod number;
mod ordered;
mod text;
mod timeuuid;
mod token;
mod value;
