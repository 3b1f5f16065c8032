//! From planned modifications and bind values to mutations.
//!
//! Invariants:
//! * All statements of a batch that change one partition of one table become one mutation: it is applied whole or not.
//! * What must be read first (lists by index or value, counters) is read through [`ExistingRows`] by the owner of the
//!   partition, in the same turn in which the mutation is applied.
//!
//! A [`MutationSet`] collects the changes. For each statement a writer (`statement`) makes rows of it, of cells (`cells`).

mod cells;
mod json_insert;
mod moment;
mod mutation_set;
mod partition_change;
mod statement;
mod using;

pub use self::json_insert::expand_json;
pub use self::moment::{ExistingRows, WriteMoment};
pub use self::mutation_set::{MutationSet, PartitionMutation};
pub use self::using::{MAX_TTL_SECONDS, timestamp_value};

#[cfg(test)]
mod tests;
