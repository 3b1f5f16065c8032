//! The interface of a node for operators: metrics, health and administration over HTTP.
//!
//! `metrics` counts (one instance for each shard), `prometheus` renders the counts as text, `admin` defines the
//! operations of the node, `reports` their results, `routes` maps requests to operations, and `http` is the server.
//! It has a thread of its own, so that neither a scrape nor a long compaction occupies a shard's thread.

pub mod admin;
pub mod http;
pub mod prometheus;
pub mod reports;
mod routes;
#[cfg(test)]
mod tests;

pub use admin::{Admin, AdminError};
pub use http::{HttpServer, serve};
pub use prometheus::EngineGauges;
pub use reports::TableReport;
