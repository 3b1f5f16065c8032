//! The ring: which members there are, which tokens they have, and where the replicas of a token live.
//!
//! Everything here is pure: values in, values out. The truth is a table that all nodes agree on through the metadata log
//! (`cluster`); this module says what follows from it.

pub mod allocation;
pub mod member;
pub mod placement;
pub mod topology;

use uuid::Uuid;

/// The identity of a node for ever; never reused.
pub type HostId = Uuid;
