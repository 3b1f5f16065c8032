//! Hashes of passwords, computed beside the threads of shards.

pub mod digest;
mod fair_queue;
pub mod pool;
