//! The Helenus node: shards and their threads, client sessions, statements and plans, schema, system tables.
//!
//! The path of a request: `session` decodes a frame and finds or makes the statement's plan (`plan`), the
//! `coordinator` finds the shards that own its data, `run` turns plan and values into mutations or rows on those
//! shards' engines, and the answer returns the same way. [`embedded`] runs a node inside another program.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod admin;
pub mod admin_cli;
pub mod cluster;
pub mod config;
pub mod coordinator;
pub mod embedded;
pub mod files;
#[cfg(test)]
mod golden;
pub mod node;
pub mod observe;
pub mod planted;
pub mod session;
pub mod shard;
pub mod streaming;
