//! Logged batches of several partitions.
//!
//! [`store`] keeps batches on a shard and replays those that were left behind. [`replicas`] has two other members keep a
//! batch before it is applied.

pub(crate) mod batch_id;
pub(crate) mod replicas;
pub(crate) mod store;
