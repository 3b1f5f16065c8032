//! The ring: which members there are, which tokens they have, where the replicas of a token live, and what all members
//! agree on.
//!
//! Everything here is pure: values in, values out. The truth is a table that all nodes agree on through the metadata log.
//! [`metadata`] says how its commands change that table; the other modules say what follows from it. The log itself is
//! kept above, in the server.
//!
//! The modules, each of which uses only those before it: [`member`], [`topology`], [`placement`], [`view`],
//! [`allocation`], [`metadata`].

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod allocation;
pub mod member;
pub mod metadata;
pub mod placement;
pub mod topology;
pub mod view;

pub use self::member::HostId;
