//! `toppartitions` and `profileload`. Nothing has to be sampled for it: the node counts all the time, and shows its last minutes.

use super::error::NodetoolError;
use super::format::table;
use crate::command::TableScope;
use crate::tables::row;
use crate::top_partitions::TopPartition;

/// A sampler with its heading and the column of its values in nodetool. The order is nodetool's.
const SAMPLERS: [(&str, &str, &str); 6] = [
    ("READS", "Frequency of reads by partition", "Count"),
    ("WRITES", "Frequency of writes by partition", "Count"),
    ("LOCAL_READ_TIME", "Longest read query times", "Microseconds"),
    ("READ_ROW_COUNT", "Partitions read with the most rows", "Rows"),
    ("READ_TOMBSTONE_COUNT", "Partitions read with the most tombstones", "Tombstones"),
    ("WRITE_SIZE", "Max mutation size by partition", "Bytes"),
];

#[derive(Debug, clap::Args)]
pub(super) struct TopPartitionsArguments {
    /// Partitions of each sampler.
    #[arg(short = 'k', default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=10))]
    count: u8,
    /// Samplers, separated by commas. Default: all.
    #[arg(short = 'a', value_delimiter = ',')]
    samplers: Vec<String>,
    /// KEYSPACE TABLE; `*` stands for all tables of a keyspace, or for all keyspaces.
    #[arg(value_name = "TABLE", num_args = 0..=3)]
    words: Vec<String>,
}

impl TopPartitionsArguments {
    /// The tables that are asked for.
    pub fn scope(&self) -> Result<TableScope, NodetoolError> {
        let named = |word: &String| (word != "*").then(|| word.clone());
        match &self.words[..] {
            [] => Ok(TableScope::default()),
            [keyspace, table] => {
                let (keyspace, table) = (named(keyspace), named(table));
                if keyspace.is_none() && table.is_some() {
                    return Err(NodetoolError::usage("a table is expected with its keyspace"));
                }
                Ok(TableScope { keyspace, table })
            }
            _ => Err(NodetoolError::usage(
                "KEYSPACE TABLE is expected, without a duration: requests are counted all the time, and those of the last minutes are shown",
            )),
        }
    }

    /// What is printed.
    pub fn text(&self, partitions: &[TopPartition]) -> Result<String, NodetoolError> {
        let wanted: Vec<String> = self.samplers.iter().map(|name| name.trim().to_uppercase()).collect();
        for name in &wanted {
            if !SAMPLERS.iter().any(|(known, ..)| known == name) {
                let names: Vec<&str> = SAMPLERS.iter().map(|(name, ..)| *name).collect();
                let message = format!("'{name}' sampler is not available from: [{}]", names.join(", "));
                return Err(NodetoolError::Usage(message));
            }
        }
        let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|known| known == name);
        let sections = SAMPLERS
            .iter()
            .filter(|(name, ..)| is_wanted(name))
            .map(|(name, heading, column)| format!("{heading}:\n{}", self.section(name, column, partitions)));
        Ok(sections.collect::<Vec<_>>().join("\n"))
    }

    fn section(&self, sampler: &str, column: &str, partitions: &[TopPartition]) -> String {
        let mut top: Vec<&TopPartition> =
            partitions.iter().filter(|partition| partition.sampler == sampler).collect();
        if top.is_empty() {
            return "   Nothing recorded during sampling period...\n".to_owned();
        }
        top.sort_by_key(|partition| std::cmp::Reverse(partition.value));
        let is_count = column == "Count";
        let mut head = row(&["", "Table", "Partition", column]);
        head.extend(is_count.then(|| "+/-".to_owned()));
        let mut rows = vec![head];
        for partition in top.into_iter().take(usize::from(self.count)) {
            let TopPartition { keyspace, table, partition_key, value, error, .. } = partition;
            let table = format!("{keyspace}.{table}");
            let mut cells = row(&["", &table, partition_key, &value.to_string()]);
            cells.extend(is_count.then(|| error.to_string()));
            rows.push(cells);
        }
        table(&rows, " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(samplers: &[&str], words: &[&str]) -> TopPartitionsArguments {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        TopPartitionsArguments { count: 1, samplers: owned(samplers), words: owned(words) }
    }

    fn partition(sampler: &str, key: &str, value: u64) -> TopPartition {
        TopPartition {
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            period: "minutes".to_owned(),
            sampler: sampler.to_owned(),
            rank: 1,
            partition_key: key.to_owned(),
            value,
            error: 2,
        }
    }

    #[test]
    fn samplers_are_shown_with_nodetools_headings() {
        let top =
            [partition("READS", "small", 3), partition("READS", "large", 9), partition("WRITE_SIZE", "w", 5)];
        let text = arguments(&["reads", "WRITE_SIZE", "WRITES"], &[]).text(&top).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let heading = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
        assert_eq!(
            lines,
            [
                heading("Frequency of reads by partition:"),
                vec!["Table", "Partition", "Count", "+/-"],
                vec!["ks.t", "large", "9", "2"],
                vec![],
                heading("Frequency of writes by partition:"),
                heading("Nothing recorded during sampling period..."),
                vec![],
                heading("Max mutation size by partition:"),
                vec!["Table", "Partition", "Bytes"],
                vec!["ks.t", "w", "5"],
            ]
        );
        let all = arguments(&[], &[]).text(&top).unwrap();
        assert_eq!(all.matches("Nothing recorded").count(), 4);
    }

    #[test]
    fn what_cannot_be_obeyed_is_refused() {
        let error = arguments(&["CAS_CONTENTIONS"], &[]).text(&[]).unwrap_err().to_string();
        assert!(
            error.starts_with("'CAS_CONTENTIONS' sampler is not available from: [READS, WRITES,"),
            "{error}"
        );
        for words in [&["1000"] as &[&str], &["ks", "t", "1000"]] {
            assert!(arguments(&[], words).scope().unwrap_err().to_string().contains("without a duration"));
        }
        assert!(arguments(&[], &["*", "t"]).scope().is_err());
        let scope = arguments(&[], &["ks", "*"]).scope().unwrap();
        assert_eq!((scope.keyspace.as_deref(), scope.table), (Some("ks"), None));
        assert_eq!(arguments(&[], &["*", "*"]).scope().unwrap().keyspace, None);
    }
}
