//! A shard: the thread that owns a part of the node's data, and the ways to it.
//!
//! [`context`] is what a shard works with and how other threads reach it. [`call`] asks shards of this and other nodes.
//! The layers above keep their state of a shard or node here ([`layers`]) without this layer knowing what it is.

pub mod board;
pub(crate) mod call;
pub mod context;
pub(crate) mod engine_options;
pub(crate) mod layers;
pub(crate) mod metrics;
