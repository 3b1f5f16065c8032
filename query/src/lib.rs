//! Statements without their surroundings: the schema, the functions, what a statement means (its plan), and what plan and
//! values come to (addresses, mutations, rows).
//!
//! Invariants:
//! * Everything here is pure and synchronous: no task, no disk, no network, no clock. Time and new UUIDs come with
//!   [`functions::CallContext`].
//! * The engine is known by its bytes only (keys, mutations, rows); no shard is opened or asked here.
//!
//! The modules, each of which uses only those before it: [`error`], [`functions`], [`schema`], [`stored_key`], [`plan`],
//! [`statement`], [`bind`], [`run`].
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod bind;
pub mod error;
pub mod functions;
pub mod plan;
pub mod run;
pub mod schema;
pub mod statement;
pub mod stored_key;
