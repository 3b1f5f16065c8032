//! Communication between nodes: requests with a deadline from a shard of one node to a shard of another.
//!
//! [`transport::Transport`] carries bytes and is injected (TCP in a real node, a simulated network in tests).
//! [`service`] adds types: the layers above define services and execute their requests.
//!
//! Over TCP: [`tcp`] makes links on demand (one for each peer, shard and traffic class; a link carries requests one
//! way and their answers the other). [`listener`] accepts links of other nodes and passes each to the requested
//! shard, where [`incoming`] serves it. [`encryption`] and [`handshake`] open a link, which then carries [`frame`]s.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod byte_string;
pub mod encryption;
pub mod endpoint;
pub mod frame;
pub mod handshake;
pub mod incoming;
mod link;
pub mod link_context;
pub mod listener;
pub mod metrics;
pub mod service;
pub mod tcp;
pub mod transport;
mod wire;

#[cfg(test)]
mod tests;
