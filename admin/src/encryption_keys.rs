//! Which master keys the files of a node need: the report, and how it is shown.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::tables::{bytes, columns, row};

/// What is in a file of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// Tables and their indexes.
    Tables,
    CommitLog,
    Hints,
    Snapshots,
    Backups,
    /// Files that were damaged or unknown.
    Quarantine,
    /// The node's identity, the schema, and which files the tables have.
    Node,
    /// Copies of commit logs.
    Archive,
}

/// How files are encrypted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileProtection {
    /// By the master key of this name.
    Key(String),
    /// They are not.
    Plain,
    /// Their headers are damaged: no key opens them.
    Damaged,
}

/// Files of one kind that are encrypted in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFiles {
    pub kind: FileKind,
    pub protection: FileProtection,
    pub files: u64,
    /// On the disk. A file with several names counts with each.
    pub bytes: u64,
}

/// The master keys of a node, and which of its files need them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncryptionKeysReport {
    /// The names of the master keys. The last one is for new files.
    pub keys: Vec<String>,
    pub encrypts_new_files: bool,
    /// Whether new files are encrypted but those of tables that do not ask for it.
    #[serde(default)]
    pub encrypts_by_table: bool,
    /// How many files are not encrypted, and would be if they were made now.
    #[serde(default)]
    pub plain_files_left: u64,
    pub refuses_plain_files: bool,
    /// Ordered by kind.
    pub files: Vec<StoredFiles>,
}

impl fmt::Display for FileKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tables => "tables",
            Self::CommitLog => "commit log",
            Self::Hints => "hints",
            Self::Snapshots => "snapshots",
            Self::Backups => "backups",
            Self::Quarantine => "quarantine",
            Self::Node => "node",
            Self::Archive => "archive",
        })
    }
}

impl EncryptionKeysReport {
    /// The keys that no file needs, but the current one.
    fn unneeded(&self) -> Vec<&str> {
        let former = self.keys.split_last().map_or(&[][..], |(_, former)| former);
        let is_needed = |key: &str| {
            self.files.iter().any(|of| matches!(&of.protection, FileProtection::Key(needed) if needed == key))
        };
        former.iter().map(String::as_str).filter(|key| !is_needed(key)).collect()
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let mut text = match self.keys.last() {
            None => "There are no master keys\n".to_owned(),
            Some(current) if self.encrypts_new_files => {
                format!("New files are encrypted by the master key {current}\n")
            }
            Some(current) if self.encrypts_by_table => format!(
                "New files are encrypted by the master key {current}, but those of tables without encryption = {{'enabled': 'true'}}\n"
            ),
            Some(_) => "New files are not encrypted\n".to_owned(),
        };
        // Writing to a string does not fail.
        if self.plain_files_left > 0 {
            let _ = writeln!(text, "Not encrypted yet: {} files", self.plain_files_left);
        }
        if self.refuses_plain_files {
            text.push_str("Files that are not encrypted are refused\n");
        }
        let mut by_protection: BTreeMap<&FileProtection, Vec<&StoredFiles>> = BTreeMap::new();
        for of in &self.files {
            by_protection.entry(&of.protection).or_default().push(of);
        }
        let mut rows = vec![row(&["Master key", "Kind", "Files", "Size"])];
        for (protection, of_kinds) in by_protection {
            let key = match protection {
                FileProtection::Key(key) => key.as_str(),
                FileProtection::Plain => "(not encrypted)",
                FileProtection::Damaged => "(damaged header)",
            };
            rows.extend(
                of_kinds.into_iter().map(|of| {
                    vec![key.to_owned(), of.kind.to_string(), of.files.to_string(), bytes(of.bytes)]
                }),
            );
        }
        text.push_str(&columns(&rows));
        let unneeded = self.unneeded();
        if !unneeded.is_empty() {
            let _ = writeln!(text, "No file of the node needs: {}", unneeded.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_with_what_needs_them_and_those_that_nothing_needs() {
        let stored = |kind, protection, files| StoredFiles { kind, protection, files, bytes: files * 512 };
        let key = |name: &str| FileProtection::Key(name.to_owned());
        let report = EncryptionKeysReport {
            keys: ["a", "b", "c"].map(str::to_owned).into(),
            encrypts_new_files: true,
            encrypts_by_table: false,
            plain_files_left: 1,
            refuses_plain_files: false,
            files: vec![
                stored(FileKind::Tables, key("b"), 2),
                stored(FileKind::Tables, key("c"), 4),
                stored(FileKind::CommitLog, key("c"), 1),
                stored(FileKind::Snapshots, FileProtection::Plain, 1),
            ],
        };
        let expected = "New files are encrypted by the master key c\n\
             Not encrypted yet: 1 files\n\
             Master key       Kind        Files  Size\n\
             b                tables      2      1.00 KiB\n\
             c                tables      4      2.00 KiB\n\
             c                commit log  1      512 bytes\n\
             (not encrypted)  snapshots   1      512 bytes\n\
             No file of the node needs: a\n";
        assert_eq!(report.text(), expected);
        let json = serde_json::to_string(&report.files[3]).unwrap();
        assert_eq!(json, r#"{"kind":"snapshots","protection":"plain","files":1,"bytes":512}"#);
        let json = serde_json::to_string(&report.files[2]).unwrap();
        assert_eq!(json, r#"{"kind":"commit_log","protection":{"key":"c"},"files":1,"bytes":512}"#);
        assert!(EncryptionKeysReport::default().text().starts_with("There are no master keys\n"));
        let by_table =
            EncryptionKeysReport { encrypts_new_files: false, encrypts_by_table: true, ..report.clone() };
        assert!(by_table.text().starts_with(
            "New files are encrypted by the master key c, but those of tables without encryption = {'enabled': 'true'}\n"
        ));
        let off = EncryptionKeysReport {
            encrypts_new_files: false,
            plain_files_left: 0,
            refuses_plain_files: true,
            ..report
        };
        assert!(
            off.text().starts_with("New files are not encrypted\nFiles that are not encrypted are refused\n")
        );
    }
}
