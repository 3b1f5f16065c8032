//! Views and projections: their rows are kept true by the node, behind the writes of clients. `docs/views.md` has the whole.
//!
//! | module | concept |
//! |---|---|
//! | [`changes`] | the logs of followed tables, read by slices |
//! | [`slice`] | the ring is cut into slices |
//! | [`lease`] | one holder for each slice |
//! | [`live_view`] | a view with its statements |
//! | [`recompute`] | the row of a unit becomes what the base table says |
//! | [`pass`] | a pass over a log |
//! | [`build`] | the scan of a new view |
//! | [`positions`] | what the next holder of a slice has to know |
//! | [`state`] | what a shard knows |
//! | [`wakes`] | who keeps a slice learns that something was written |
//! | [`timers`] | rows that expire |
//! | [`service`] | the tasks |
//! | [`fresh`] | reads that wait for what was written |
//! | [`check`] | a view is compared with what it is computed of |
//! | [`reports`] | what operators see |
//! | [`message`] | requests to the holder of a slice |

pub mod build;
pub mod changes;
pub mod check;
pub mod fresh;
pub mod lease;
pub mod live_view;
pub mod message;
pub mod pass;
pub mod positions;
pub mod recompute;
pub mod reports;
pub mod service;
pub mod slice;
pub mod state;
pub mod timers;
pub mod wakes;
