//! A shard: the thread that owns a part of the node's data, and the ways to send it work.
//!
//! [`context`] holds the state of a shard's thread and its queue. [`call`] sends requests to shards of this and other
//! nodes. Upper layers keep their state of a shard or node here ([`layers`]) without this layer knowing its type.

pub mod call;
pub mod context;
pub mod denylist_settings;
pub mod disk_status;
pub mod engine_options;
pub mod even_rate;
pub mod file_handling;
pub mod largest_partitions;
pub mod last_snapshot;
pub mod layers;
pub mod partition_guard;
pub mod partition_names;
pub mod periodic_flush;
pub mod private_table;
pub mod receipt;
pub mod runtime_settings;
pub mod snapshots;
pub mod status_table;
pub mod trace;
