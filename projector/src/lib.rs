//! Views and projections: their rows are kept true by the node, behind the writes of clients. `docs/views.md` has the whole, and
//! `docs/decisions/0025-views.md` the reasons.
//!
//! | module | concept |
//! |---|---|
//! | [`internal_statement`] | statements of the node itself |
//! | [`changes`] | the logs of followed tables, read by slices |
//! | [`mod@arrived`] | what has arrived in the logs of a slice |
//! | [`lease`] | one holder for each slice |
//! | [`mod@unit`] | units as values and as they are stored |
//! | [`live_view`] | a view with its statements |
//! | [`recompute`] | the row of a unit becomes what the base table says |
//! | [`positions`] | what the next holder of a slice has to know |
//! | [`timers`] | rows that expire |
//! | [`state`] | what a shard knows |
//! | [`pass`] | a pass over a log |
//! | [`build`] | the scan of a new view |
//! | [`message`] | requests to the holder of a slice |
//! | [`fresh`] | reads that wait for what was written |
//! | [`check`] | a view is compared with what it is computed of |
//! | [`reports`] | what operators see |
//! | [`serve`] | the answers to them |
//! | [`service`] | the tasks |

pub mod arrived;
pub mod build;
pub mod changes;
pub mod check;
pub mod fresh;
pub mod internal_statement;
pub mod lease;
pub mod live_view;
pub mod message;
pub mod pass;
pub mod positions;
pub mod recompute;
pub mod reports;
pub mod serve;
pub mod service;
pub mod state;
pub mod timers;
pub mod unit;
