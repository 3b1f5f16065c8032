//! What a change feed gets for a write: the rows of the log table, computed of the mutation and, for images, of the rows of before.
//!
//! The rows are those of ScyllaDB's CDC, so that its consumers read them; `docs/change_feed.md` says what they hold. Nothing here reads a
//! clock, a disk or a shard: the coordinator chooses stream and time, and makes the result a companion of the mutation.
//!
//! | module | concept |
//! |---|---|
//! | [`layout`] | the columns of a log table by those of its base table |
//! | [`values`] | cells of a column as one value of the log |
//! | [`bounds`] | rows and ends of ranges by their clustering columns |
//! | [`parts`] | a mutation, taken apart by rows and deletions |
//! | [`delta`] | its changes, in the order in which they decide |
//! | [`image`] | rows before and after it |
//! | [`entry`] | the rows of the log for a mutation, and their encoding |
//! | [`numbers`] | the numbers of entries in their groups |
//! | [`time`] | the time of an entry |

pub mod bounds;
pub mod delta;
pub mod entry;
pub mod image;
pub mod layout;
pub mod numbers;
pub mod parts;
pub mod time;
pub mod values;
