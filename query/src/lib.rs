//! Statements independent of their execution environment: the schema, the functions, the meaning of a statement (its
//! plan), and the results of a plan with values (addresses, mutations, rows).
//!
//! Invariants:
//! * Everything here is synchronous: no task, no disk, no network, no clock. Time and new UUIDs come with
//!   [`functions::CallContext`], whose UUIDs are those of the process unless it is handed others.
//! * Only the caller keeps state between calls. Threads share only the [`statement::Registry`] of prepared statements, behind a
//!   lock that is held for one look-up or insertion.
//! * From the engine this crate uses the bytes (keys, mutations, rows), the error and the options of compaction. It opens no
//!   shard and asks none.
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
