//! The interface of a node for operators: metrics, health and administration over HTTP.
//!
//! `prometheus` turns the shards' counts ([`metrics`]) into text, `admin` and `controls` are what the node offers (their
//! answers are [`helenus_admin::reports`]), `routes` maps a request to it, `login` reads the credentials of a request, and `http` is the server: a thread of its own, so that neither a scrape nor a long compaction
//! takes a turn of a shard's thread.

pub mod access;
pub mod admin;
pub mod charge_sums;
pub mod controls;
pub mod error;
pub mod http;
pub mod login;
pub mod metrics;
pub mod prometheus;
pub mod receipt;
mod routes;
pub mod sampling;
#[cfg(test)]
mod tests;
pub mod top_keys;

pub use access::Access;
pub use admin::{
    Admin, DownloadRequest, RepairRanges, RepairRequest, ReplayRequest, RestoreRequest, SnapshotOperation,
    UploadRequest,
};
pub use controls::{Controls, DenylistSetting, RequestLogChange, SettingChange};
pub use error::AdminError;
pub use http::{HttpServer, Listener, serve};
pub use login::{Administrator, Claim, LoginError};
pub use prometheus::EngineGauges;
