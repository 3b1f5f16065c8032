//! Statements independent of their execution environment: the schema, the functions, the meaning of a statement (its
//! plan), and the results of a plan with values (addresses, mutations, rows).
//!
//! Invariants:
//! * Everything here is synchronous: no task, no disk, no network, no clock. Time and new UUIDs come with
//!   [`functions::CallContext`], whose UUIDs are those of the process unless it is handed others.
//! * Nothing is kept between calls but what the caller keeps. What several threads share is the [`statement::Registry`] of prepared
//!   statements, behind a lock that is held for one look-up or insertion.
//! * Of the engine are used the bytes (keys, mutations, rows), its error and the options of its compaction; no shard is opened or
//!   asked here.
//!
//! The modules, each of which uses only those before it: [`error`], [`functions`], [`schema`], [`stored_key`],
//! [`plan`], [`statement`], [`bind`], [`run`], [`guardrails`].
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod bind;
pub mod error;
pub mod functions;
pub mod guardrails;
pub mod plan;
pub mod run;
pub mod schema;
pub mod statement;
pub mod stored_key;
