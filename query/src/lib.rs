//! Statements independent of their execution environment: the schema, the functions, the meaning of a statement (its
//! plan), and the results of a plan with values (addresses, mutations, rows).
//!
//! Invariants:
//! * Everything here is synchronous and without side effects: no task, no disk, no network, no clock. Time and new
//!   UUIDs come from [`functions::CallContext`].
//! * Only the bytes of the engine are used (keys, mutations, rows). No shard is opened or read here.
//!
//! The modules, each of which uses only those before it: [`error`], [`functions`], [`schema`], [`stored_key`],
//! [`plan`], [`statement`], [`bind`], [`run`].
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod bind;
pub mod error;
pub mod functions;
pub mod plan;
pub mod run;
pub mod schema;
pub mod statement;
pub mod stored_key;
