//! The ring: the members, their tokens, the replicas of each token, and the state that all members agree on.
//!
//! Everything here is without side effects: values in, values out. The agreed state comes from the metadata log.
//! [`metadata`] defines how commands of the log change that state; the other modules derive values from it. The log
//! itself is above, in the server.
//!
//! The modules, each of which uses only those before it: [`member`], [`replication_change`], [`change_feed`], [`topology`], [`placement`],
//! [`view`], [`consistency`], [`intervals`], [`repair_groups`], [`repaired`], [`allocation`], [`denylist`], [`division`], [`metadata`].

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests are the world that the code is handed"))]

pub mod allocation;
pub mod change_feed;
pub mod consistency;
pub mod denylist;
pub mod division;
pub mod intervals;
pub mod member;
pub mod metadata;
pub mod placement;
pub mod repair_groups;
pub mod repaired;
pub mod replication_change;
pub mod topology;
pub mod view;

pub use self::member::HostId;
