//! Turns planned modifications with bind values into mutations.
//!
//! Invariants:
//! * All changes of a batch to one partition of one table become one mutation, which is applied whole or not at all.
//! * Rows that must be read first (lists by index or value, counters) are read through [`ExistingRows`] by the owning
//!   shard of the partition, in the turn in which the mutation is applied.
//!
//! A [`MutationSet`] collects the changes. For each statement a writer (`statement`) creates rows from cells
//! (`cells`).

mod cells;
mod constraints;
mod expansion;
mod indexed_values;
mod mutation_set;
mod partition_change;
mod statement;
mod using;
mod write_context;

pub use self::expansion::expand;
pub use self::mutation_set::{MutationSet, PartitionMutation};
pub use self::using::{MAX_TTL_SECONDS, timestamp_value};
pub use self::write_context::{ExistingRows, WriteContext};

#[cfg(test)]
mod tests;
