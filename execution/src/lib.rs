//! The execution of requests on the shards of a node and on replicas: the shards' threads and what each of them holds, the
//! coordinator of reads, writes, batches and transactions, and the files that a node keeps beside its tables.
//!
//! The [`coordinator`] finds the shards and nodes that own the data of a request. [`helenus_query::run`] turns plan and values into
//! mutations, and rows from the engines of those shards into an answer. Sessions, the membership of the cluster and the node that
//! starts all of it are above, in the crate `helenus`.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod coordinator;
pub mod planted;
pub mod shard;
