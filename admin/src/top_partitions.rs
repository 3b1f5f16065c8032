//! The partitions that are asked for most, and those with the heaviest requests: the report, and how it is shown.

use serde::{Deserialize, Serialize};

use crate::tables::{columns, row};

/// A partition of a table, compared with the others by one figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopPartition {
    pub keyspace: String,
    pub table: String,
    /// The time that the figure is of: `minutes` or `hours`.
    pub period: String,
    /// What the figure is of, in Cassandra's words: `READS`, `WRITES`, `READ_ROW_COUNT`, `READ_TOMBSTONE_COUNT`, `LOCAL_READ_TIME` (in
    /// microseconds), `WRITE_SIZE` (in bytes).
    pub sampler: String,
    /// From 1: the largest figure.
    pub rank: u32,
    /// The values of the partition key, with `:` between them.
    pub partition_key: String,
    pub value: u64,
    /// By how much `value` may be too large.
    pub error: u64,
}

/// The report for people. `partitions`: ordered by table and sampler.
pub(crate) fn text(partitions: &[TopPartition]) -> String {
    let same = |a: &TopPartition, b: &TopPartition| {
        (&a.keyspace, &a.table, &a.sampler) == (&b.keyspace, &b.table, &b.sampler)
    };
    let sections = partitions.chunk_by(same).filter_map(|section| {
        let first = section.first()?;
        let mut rows = vec![row(&["", "Partition", "Value", "+/-"])];
        rows.extend(section.iter().map(|partition| {
            let TopPartition { partition_key, value, error, .. } = partition;
            vec![String::new(), partition_key.clone(), value.to_string(), error.to_string()]
        }));
        Some(format!("{}.{} {}\n{}", first.keyspace, first.table, first.sampler, columns(&rows)))
    });
    let text = sections.collect::<Vec<_>>().join("\n");
    if text.is_empty() { "No partition was asked for in this time\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_shown_by_table_and_figure() {
        let partition = |sampler: &str, rank, partition_key: &str, value| TopPartition {
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            period: "minutes".to_owned(),
            sampler: sampler.to_owned(),
            rank,
            partition_key: partition_key.to_owned(),
            value,
            error: 0,
        };
        let shown = text(&[
            partition("READS", 1, "7:ab", 900),
            partition("READS", 2, "8:x", 7),
            partition("WRITES", 1, "8:x", 1),
        ]);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            lines,
            [
                vec!["ks.t", "READS"],
                vec!["Partition", "Value", "+/-"],
                vec!["7:ab", "900", "0"],
                vec!["8:x", "7", "0"],
                vec![],
                vec!["ks.t", "WRITES"],
                vec!["Partition", "Value", "+/-"],
                vec!["8:x", "1", "0"],
            ]
        );
        assert_eq!(text(&[]), "No partition was asked for in this time\n");
    }
}
