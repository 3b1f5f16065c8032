//! Logged batches of several partitions.
//!
//! [`store`] keeps batches on a shard and replays those whose coordinator died or gave up. [`replicas`] writes a
//! batch to the logs of two other members before it is applied.

pub mod batch_id;
pub mod replicas;
pub mod store;
