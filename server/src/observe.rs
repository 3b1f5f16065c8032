//! The interface of a node for operators: metrics, health and administration over HTTP.
//!
//! `prometheus` turns the shards' counts ([`crate::shard::metrics`]) into text, `admin` is what the node offers (its
//! answers are [`helenus_admin::reports`]), `routes` maps a request to it, and `http` is the server: a thread of its own, so that neither a scrape nor a long compaction
//! takes a turn of a shard's thread.

pub(crate) mod admin;
pub(crate) mod http;
pub(crate) mod prometheus;
mod routes;
#[cfg(test)]
mod tests;

pub use admin::{Admin, AdminError};
pub use http::{HttpServer, serve};
pub use prometheus::EngineGauges;
