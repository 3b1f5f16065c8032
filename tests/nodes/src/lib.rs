//! Tests of whole nodes in memory, many in one thread, in virtual time: reads, writes and lightweight transactions, membership,
//! streaming, views. A package of their own: among the server's unit tests the server would be compiled a second time for them.

#![cfg(test)]
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests are the world that the code is handed, and fail by panicking"
)]

mod admin;
mod cluster;
mod contention;
mod liveness;
mod lost_files;
mod membership;
mod repair;
mod replication;
mod settling;
mod streaming;
mod transaction_tokens;
mod transactions;
mod truncation;
mod view_checks;
mod view_logs;
