//! How nodes talk: requests with a deadline from a shard of one node to a shard of another.
//!
//! [`transport::Transport`] carries bytes and is handed in (TCP in a real node, a simulated network in tests).
//! [`service`] gives them their types: the layers above define services and carry their requests out.
//!
//! Over TCP: [`tcp`] makes links on demand (one for each peer, shard and lane; a link carries requests one way and
//! their answers the other), [`listener`] accepts those of others and hands each to the shard that it wants, where
//! [`incoming`] serves it. [`handshake`] opens a link, [`frame`]s are what goes over it.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod byte_string;
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
