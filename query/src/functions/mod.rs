//! Functions over wire values: scalar functions, operators, casts and aggregates, native ones and those of users.
//!
//! A call is resolved once, when a statement is prepared: the name and the known types of the arguments select a
//! [`ResolvedFunction`] with definite argument and return types. It is then called with wire bytes; `None` is null.
//! Behaviour and texts of errors are Cassandra's.
//!
//! * [`registry`]: names, signatures, choice among overloads
//! * [`function`]: a resolved function and its call
//! * [`context`]: the context of a call besides its arguments (time, new UUIDs)
//! * [`aggregate`]: count, min, max, sum, avg
//! * [`user`]: functions and aggregates of users, and the interface of the runtime that calls them
//! * the rest: the computations, by topic

pub mod aggregate;
mod arithmetic;
mod cast;
mod collection;
pub mod context;
mod conversion;
mod failure;
pub mod function;
mod masking;
mod math;
mod names;
pub mod registry;
mod temporal;
pub mod user;
mod vector;

#[cfg(test)]
mod tests;

pub use aggregate::{AggregateFunction, AggregateState, count_rows, is_aggregate, resolve_aggregate};
pub use context::{CallContext, UuidSource};
pub use function::{ResolvedFunction, token};
pub use registry::{
    NEGATION, exists, is_masking, list_literal_type, masking_parameter_types, operator_name, qualified_name,
    resolve_among, resolve_cast, resolve_described, resolve_with_literals,
};
