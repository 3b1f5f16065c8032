//! Clusters of whole nodes in memory: reads, writes and lightweight transactions.

pub mod cluster;
mod contention;
mod repair;
mod replication;
mod settling;
mod transaction_tokens;
mod transactions;
mod truncation;
