//! Sessions: the protocol of a client's connection, from its first frame to the statements that it runs.

pub mod allowance;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod charges;
pub(crate) mod connection;
pub(crate) mod connection_places;
pub(crate) mod connection_state;
pub(crate) mod decisions;
pub mod encryption;
mod explain;
pub(crate) mod guardrails;
pub(crate) mod handshake;
pub(crate) mod held_requests;
pub(crate) mod latencies;
pub(crate) mod logged;
pub(crate) mod notes;
pub(crate) mod partial_frames;
pub(crate) mod rate_limits;
pub mod receipts;
pub mod request;
pub mod request_logs;
pub(crate) mod slow_requests;
pub(crate) mod trace;
