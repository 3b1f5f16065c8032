//! Logged batches of several partitions.
//!
//! [`store`] keeps batches on a shard and replays those that were left behind. [`replicas`] has two other members keep a
//! batch before it is applied.

pub mod batch_id;
pub mod replicas;
pub mod store;
