//! The Helenus node: shards and their threads, client sessions, the coordination of requests, the cluster, streaming of data
//! between owners, observation and administration. Statements, plans and schema are those of [`helenus_query`].
//!
//! The way of a request: [`session`] decodes a frame and has [`helenus_query::statement`] find or make the statement's plan, the
//! [`helenus_execution::coordinator`] finds the shards and nodes that own the data, and [`helenus_query::run`] turns plan and values into mutations,
//! and rows from the engines of those shards into an answer. The answer goes back the same way. [`embedded`] runs a node inside
//! another program.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod admin;
pub mod cluster;
pub mod embedded;
#[cfg(test)]
mod golden;
pub mod logs;
pub mod node;
pub mod session;
pub mod streaming;
#[cfg(feature = "testing")]
pub mod testing;

/// The settings of a node, for programs that run one inside.
pub use helenus_config as config;
