//! The Helenus node: shards and their threads, client sessions, statements and plans, schema, system tables.
//!
//! The way of a request: `session` decodes a frame and finds or makes the statement's plan (`plan`), the `coordinator`
//! finds the shards that own what it is about, `run` turns plan and values into mutations or rows on those shards'
//! engines, and the answer goes back the same way. [`embedded`] runs a node inside another program.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod admin;
pub mod admin_cli;
pub mod batch_log;
pub mod bind;
pub mod cluster;
pub mod config;
pub mod coordinator;
pub mod embedded;
pub mod error;
pub mod files;
pub mod functions;
#[cfg(test)]
mod golden;
pub mod internode;
pub mod node;
pub mod observe;
pub mod plan;
pub mod planted;
pub mod ring;
pub mod run;
pub mod schema;
pub mod session;
pub mod shard_thread;
pub mod streaming;
pub mod trace;
