//! The partitions that flushes and compactions write: the largest are remembered, and one that is too large for the guardrails is logged and
//! counted. As in Cassandra nothing is refused: the data is there.
//!
//! Invariant: a file has a bounded number of lines in the log. The last one says how many partitions had none.

use std::path::Path;
use std::sync::Arc;

use helenus_engine::key::KeyRef;
use helenus_engine::{FilePartitions, PartitionWatch, TableId, WrittenPartition};
use helenus_guardrails::{Guardrails, Threshold};
use helenus_observe::metrics::ShardMetrics;
use helenus_query::schema::catalog::Table;

use super::largest_partitions::{Largest, LargestPartitions};
use super::partition_names::PartitionNames;

/// Most lines for the partitions of one file.
const LINES_A_FILE: usize = 10;
/// What the name of a file that is being written ends with.
const TEMPORARY_SUFFIX: &str = "tmp";

/// Looks at the partitions of all tables of a node.
#[derive(Debug)]
pub struct PartitionGuard {
    size: Threshold,
    tombstones: Threshold,
    /// Of the first shard. Jobs in the background are of no shard; violations are so rare that it does not matter.
    metrics: Arc<ShardMetrics>,
    pub largest: LargestPartitions,
}

impl PartitionGuard {
    /// `metrics`: those in which violations are counted.
    pub fn new(guardrails: &Guardrails, metrics: Arc<ShardMetrics>) -> Arc<Self> {
        let (size, tombstones) = (guardrails.partition_size.clone(), guardrails.partition_tombstones.clone());
        Arc::new(Self { size, tombstones, metrics, largest: LargestPartitions::default() })
    }

    /// Looks at the partitions of this table.
    pub fn watch(self: &Arc<Self>, table: &Table) -> Arc<dyn PartitionWatch> {
        let table = NamedTable {
            id: table.engine_id(),
            name: format!("{}.{}", table.keyspace, table.name),
            partitions: PartitionNames::of(table),
        };
        Arc::new(TableWatch { guard: Arc::clone(self), table: Arc::new(table) })
    }
}

/// A table and its partitions.
#[derive(Debug)]
struct NamedTable {
    id: TableId,
    /// With the keyspace.
    name: String,
    partitions: PartitionNames,
}

#[derive(Debug)]
struct TableWatch {
    guard: Arc<PartitionGuard>,
    table: Arc<NamedTable>,
}

impl PartitionWatch for TableWatch {
    fn begin(&self, path: &Path) -> Box<dyn FilePartitions> {
        let is_temporary = path.extension().is_some_and(|extension| extension == TEMPORARY_SUFFIX);
        let path = if is_temporary { path.with_extension("") } else { path.to_path_buf() };
        Box::new(GuardedFile {
            guard: Arc::clone(&self.guard),
            table: Arc::clone(&self.table),
            path: path.display().to_string(),
            largest: Largest::default(),
            lines: 0,
            untold: 0,
        })
    }
}

/// A file that is being written.
struct GuardedFile {
    guard: Arc<PartitionGuard>,
    table: Arc<NamedTable>,
    /// That it has when it is complete.
    path: String,
    largest: Largest,
    lines: usize,
    /// Violations without a line.
    untold: u64,
}

/// A violation for the log.
#[derive(Debug, PartialEq, Eq)]
enum Violation {
    Warning(String),
    Failure(String),
}

impl GuardedFile {
    /// The violation of a guardrail by a partition, if there is any.
    fn violation(&self, guardrail: &Threshold, value: u64, prefix: &[u8]) -> Option<Violation> {
        if !guardrail.is_violated(value) {
            return None;
        }
        let key = KeyRef::parse(prefix).map(|key| self.table.partitions.text_of(key.partition_key)).ok()?;
        let what = format!("{}:{key} on sstable {}", self.table.name, self.path);
        let mut warnings = Vec::new();
        match guardrail.guard(value, &what, &mut warnings) {
            Ok(()) => warnings.pop().map(Violation::Warning),
            Err(error) => Some(Violation::Failure(error.to_string())),
        }
    }

    fn tell(&mut self, violation: &Violation) {
        let counter = match violation {
            Violation::Warning(_) => &self.guard.metrics.guardrail_warnings,
            Violation::Failure(_) => &self.guard.metrics.guardrail_failures,
        };
        counter.increment();
        if self.lines == LINES_A_FILE {
            self.untold += 1;
            return;
        }
        self.lines += 1;
        match violation {
            Violation::Warning(message) => tracing::warn!("{message}"),
            Violation::Failure(message) => tracing::error!("{message}"),
        }
    }
}

impl FilePartitions for GuardedFile {
    fn look_at(&mut self, partition: &WrittenPartition<'_>) {
        self.largest.look_at(partition);
        let violations = [
            self.violation(&self.guard.size, partition.bytes, partition.prefix),
            self.violation(&self.guard.tombstones, partition.tombstones, partition.prefix),
        ];
        for violation in violations.iter().flatten() {
            self.tell(violation);
        }
    }

    fn end(&mut self) {
        self.guard.largest.merge(self.table.id, &self.largest);
        if self.untold > 0 {
            tracing::warn!(
                table = %self.table.name, path = %self.path, violations = self.untold,
                "further partitions of the file violate guardrails of partitions"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use helenus_engine::key::full_key;
    use helenus_query::stored_key::composite_key;

    use super::*;
    use cql_lite::types::CqlType;

    fn file(key_types: Vec<CqlType>, metrics: &Arc<ShardMetrics>) -> GuardedFile {
        let mut guardrails = Guardrails::default();
        guardrails.partition_size.warn = Some(100);
        guardrails.partition_size.fail = Some(200);
        guardrails.partition_tombstones.warn = Some(1);
        let guard = PartitionGuard::new(&guardrails, Arc::clone(metrics));
        let table = Arc::new(NamedTable {
            id: TableId([7; 16]),
            name: "ks.t".to_owned(),
            partitions: PartitionNames::of_types(key_types),
        });
        GuardedFile {
            guard,
            table,
            path: "7-data.sst".to_owned(),
            largest: Largest::default(),
            lines: 0,
            untold: 0,
        }
    }

    #[test]
    fn violations_are_told_with_cassandras_texts() {
        let metrics = Arc::default();
        let file = file(vec![CqlType::Int, CqlType::Text], &metrics);
        let key = composite_key(&[&5_i32.to_be_bytes()[..], b"a\nb"]).unwrap();
        let prefix = full_key(1, &key, &[]).unwrap();
        let size = |bytes| file.violation(&file.guard.size, bytes, &prefix);
        assert_eq!(size(100), None);
        let warning = "Guardrail partition_size violated: Partition ks.t:5:a\\nb on sstable 7-data.sst has size 101, this exceeds the warning threshold of 100. Too large partitions can cause performance problems.";
        assert_eq!(size(101), Some(Violation::Warning(warning.to_owned())));
        assert_eq!(
            size(201),
            Some(Violation::Failure(
                warning.replace("101", "201").replace("warning threshold of 100", "failure threshold of 200")
            ))
        );
        let warning = "Guardrail partition_tombstones violated: Partition ks.t:5:a\\nb on sstable 7-data.sst has 2 tombstones, this exceeds the warning threshold of 1. Partitions with too many tombstones can cause performance problems.";
        let tombstones = file.violation(&file.guard.tombstones, 2, &prefix);
        assert_eq!(tombstones, Some(Violation::Warning(warning.to_owned())));
    }

    #[test]
    fn a_file_has_a_bounded_number_of_lines_and_all_violations_are_counted() {
        let metrics: Arc<ShardMetrics> = Arc::default();
        let mut file = file(vec![CqlType::Blob], &metrics);
        for token in 0..30 {
            let prefix = full_key(token, b"key", &[]).unwrap();
            let bytes = if token < 25 { 150 } else { 300 };
            file.look_at(&WrittenPartition { prefix: &prefix, bytes, tombstones: 0 });
        }
        file.end();
        assert_eq!((file.lines, file.untold), (LINES_A_FILE, 20));
        assert_eq!((metrics.guardrail_warnings.get(), metrics.guardrail_failures.get()), (25, 5));
        let found = file.guard.largest.of_tables(&[file.table.id].into());
        assert_eq!(found[&file.table.id].by_bytes()[0].value, 300);
    }
}
