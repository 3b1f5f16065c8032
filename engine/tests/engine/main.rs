//! Tests of a whole shard through the engine's interface. One program: each would have most of the engine compiled into it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod archive;
mod cleanup;
mod close;
mod cold;
mod compaction_control;
mod corruption;
mod crash;
mod damage;
mod directory;
mod full_disk;
mod garbage;
mod garbage_collection;
mod golden;
mod growth;
mod lending;
mod model;
mod partition_watch;
mod resident;
mod restore;
mod scans;
mod shard;
mod shared_compaction;
mod support;
mod versions;
mod write_pressure;
