//! Nodes in memory, for the tests of this crate and of others (feature `testing`): whole clusters in one thread, on simulated
//! disks, in virtual time. Not a part of a node.
//!
//! * [`node`]: opens a node from its parts.
//! * [`machine`]: a disk and, while it is up, the tasks of a node, which a crash drops.
//! * [`network`]: carries messages between machines, under conditions that a test sets.
//! * [`client`]: executes a statement and decodes its rows.
//! * [`links`]: conditions of a network that are set by hand. The simulation has its own.
//! * [`cluster`]: machines, their network and their links.
//! * [`members`]: a cluster whose schema and topology are installed by hand, without a metadata log.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests are the world that the code is handed"
)]

pub mod client;
pub mod cluster;
pub mod links;
pub mod machine;
pub mod members;
pub mod network;
pub mod node;
