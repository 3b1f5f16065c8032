//! The limits for the size of batches, as in Cassandra: a batch of several partitions is work for as many replicas at
//! once.
//!
//! Invariant: a batch of one partition is never refused and never causes a warning, whatever its size.

use std::collections::BTreeSet;

use cql_lite::syntax::ast::BatchKind;
use helenus_config::Config;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::catalog::Table;

use crate::coordinator::bound_statement::{BoundStatement, Modification};

/// The size of a batch and its partitions.
#[derive(Debug, Default)]
pub struct BatchVolume {
    /// Keyspaces with tokens: changes of several tables with one key count as one partition.
    partitions: BTreeSet<(String, i64)>,
    tables: BTreeSet<String>,
    bytes: usize,
}

impl BatchVolume {
    /// The volume of encoded mutations: their bytes.
    pub fn of_mutations(mutations: &[PartitionMutation]) -> Self {
        let mut volume = Self::default();
        // The usual batch, of one partition, needs no table names.
        if mutations.len() > 1 {
            for PartitionMutation { token, table, mutation } in mutations {
                volume.add(table, *token);
                volume.bytes += mutation.bytes().len();
            }
        }
        volume
    }

    /// The volume of statements whose changes are known only after rows are read: the bytes of their bound values.
    pub fn of_statements(statements: &[BoundStatement]) -> Self {
        let mut volume = Self::default();
        for statement in statements {
            for key in &statement.keys {
                volume.add(&statement.plan().table, key.token);
            }
            // All statements of a BATCH text share its values.
            match statement.modification {
                Modification::InBatch { .. } | Modification::InTransaction { .. } => {
                    volume.bytes = statement.values.byte_count();
                }
                Modification::Single(_) => volume.bytes += statement.values.byte_count(),
            }
        }
        volume
    }

    fn add(&mut self, table: &Table, token: i64) {
        self.partitions.insert((table.keyspace.clone(), token));
        self.tables.insert(table.full_name());
    }

    /// Refuses a batch that is too large. Warnings for the client are added to `warnings`.
    pub fn check(&self, kind: BatchKind, config: &Config, warnings: &mut Vec<String>) -> Result<()> {
        if self.partitions.len() <= 1 {
            return Ok(());
        }
        let tables = self.tables.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let (bytes, warn_at) = (self.bytes, config.batch_size_warn_threshold_bytes);
        if bytes > config.batch_size_fail_threshold_bytes {
            return Err(RequestError::invalid("Batch too large"));
        }
        if bytes > warn_at {
            let over = bytes - warn_at;
            warnings.push(format!(
                "Batch for [{tables}] is of size {bytes}, exceeding specified threshold of {warn_at} by {over}."
            ));
        }
        let partitions = self.partitions.len();
        if kind != BatchKind::Logged && partitions > config.unlogged_batch_across_partitions_warn_threshold {
            let plural = if self.tables.len() == 1 { "" } else { "s" };
            warnings.push(format!(
                "Unlogged batch covering {partitions} partitions detected against table{plural} [{tables}]. You should use a logged batch for atomicity, or asynchronous writes for performance."
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(partitions: i64, bytes: usize) -> BatchVolume {
        BatchVolume {
            partitions: (0..partitions).map(|token| ("ks".to_owned(), token)).collect(),
            tables: BTreeSet::from(["ks.a".to_owned(), "ks.b".to_owned()]),
            bytes,
        }
    }

    fn check(volume: &BatchVolume, kind: BatchKind) -> (Result<()>, Vec<String>) {
        let mut warnings = Vec::new();
        (volume.check(kind, &Config::default(), &mut warnings), warnings)
    }

    #[test]
    fn batches_above_the_thresholds_cause_a_warning_or_an_error() {
        let (outcome, warnings) = check(&volume(2, 5 << 10), BatchKind::Logged);
        assert!(outcome.is_ok() && warnings.is_empty());
        let (outcome, warnings) = check(&volume(2, (5 << 10) + 3), BatchKind::Logged);
        assert!(outcome.is_ok());
        let expected =
            "Batch for [ks.a, ks.b] is of size 5123, exceeding specified threshold of 5120 by 3.".to_owned();
        assert_eq!(warnings, [expected]);
        let (outcome, _) = check(&volume(2, 50 << 10), BatchKind::Unlogged);
        assert!(outcome.is_ok());
        let (outcome, _) = check(&volume(2, (50 << 10) + 1), BatchKind::Unlogged);
        assert_eq!(outcome.unwrap_err().to_string(), "Batch too large");
    }

    #[test]
    fn one_partition_has_no_limit() {
        let (outcome, warnings) = check(&volume(1, 50 << 20), BatchKind::Unlogged);
        assert!(outcome.is_ok() && warnings.is_empty());
    }

    #[test]
    fn unlogged_batches_of_many_partitions_cause_a_warning() {
        assert_eq!(check(&volume(11, 100), BatchKind::Logged).1.len(), 0);
        assert_eq!(check(&volume(10, 100), BatchKind::Unlogged).1.len(), 0);
        let (_, warnings) = check(&volume(11, 100), BatchKind::Unlogged);
        assert!(
            warnings[0]
                .starts_with("Unlogged batch covering 11 partitions detected against tables [ks.a, ks.b].")
        );
        assert_eq!(check(&volume(11, 100), BatchKind::Counter).1.len(), 1);
    }
}
