//! What the types of cql-lite promise: names, validity, order, text, JSON, tokens.

mod arbitrary;
mod cql_type;
mod json;
mod number;
mod ordered;
mod text;
mod timeuuid;
mod token;
mod value;
