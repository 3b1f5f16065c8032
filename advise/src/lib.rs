//! `helenus advise FILE`: which keys, indexes and tables the statements of an application need, and what each request would be charged.
//!
//! * [`workload`]: the file: a schema, statements, and what is known of the data
//! * [`schema`]: the catalog that the file's statements make, and what becomes of it by advice
//! * [`need`]: what a SELECT wants of its table
//! * [`estimate`]: the charge that is expected (docs/costs.md)
//! * [`candidate`]: an index, a further table, another key; each is tried by the planner before it is named
//! * [`advice`]: the rules
//! * [`report`], [`command`]: the output and the command line
//!
//! Invariants:
//! * Nothing is asked of a node, and nothing is executed: the same file gets the same advice.
//! * What is advised was planned: the statement runs with it, without ALLOW FILTERING.

pub mod advice;
pub mod candidate;
pub mod command;
pub mod error;
pub mod estimate;
pub mod need;
pub mod report;
pub mod schema;
pub mod workload;

pub use command::{AdviseArguments, run};
