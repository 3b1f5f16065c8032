//! The table of settings about encryption at rest.

use std::path::PathBuf;

use helenus_at_rest::KeySource;
use serde::{Deserialize, Serialize};

use crate::settings::Config;

/// Which files of a node are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtRestMode {
    /// No new ones.
    #[default]
    Off,
    /// All.
    All,
}

/// Encryption of the node's files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncryptionAtRest {
    pub mode: AtRestMode,
    /// A file with the master keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// A command of the shell that prints the master keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_command: Option<String>,
}

impl EncryptionAtRest {
    /// An example of every part.
    pub(crate) fn example() -> Self {
        Self { mode: AtRestMode::All, key_file: Some(PathBuf::from("/etc/helenus/keys")), key_command: None }
    }

    /// Where the master keys come from; `None`: there are none, and no file is encrypted.
    pub fn key_source(&self) -> Option<KeySource> {
        let command = || self.key_command.clone().map(KeySource::Command);
        self.key_file.clone().map(KeySource::File).or_else(command)
    }

    /// What is missing or too much.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        match (self.mode, &self.key_file, &self.key_command) {
            (AtRestMode::All, None, None) => {
                Some("needs `key_file` or `key_command`, which has the master keys, unless `mode` is \"off\"")
            }
            (_, Some(_), Some(_)) => {
                Some("has `key_file` and `key_command`: one of them has the master keys")
            }
            _ => None,
        }
    }
}

impl Config {
    /// The directories with files of the node: data, further data, the commit log.
    pub fn directories(&self) -> Vec<PathBuf> {
        let further = self.data_dirs.iter().chain(&self.commit_log_dir).cloned();
        let mut directories: Vec<PathBuf> = std::iter::once(self.data_dir.clone()).chain(further).collect();
        // None lies within another: no file is counted twice.
        let all = directories.clone();
        directories.retain(|one| !all.iter().any(|other| one != other && one.starts_with(other)));
        directories.sort();
        directories.dedup();
        directories
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;

    #[test]
    fn keys_come_from_one_place() {
        let problem = |text: &str| {
            let text = format!("[encryption_at_rest]\n{text}");
            Config::from_toml(&text, Path::new("x.toml"))
                .unwrap()
                .validate()
                .err()
                .map(|error| error.to_string())
        };
        assert_eq!(problem(""), None);
        assert_eq!(problem("mode = \"all\"\nkey_file = \"keys\""), None);
        assert_eq!(problem("key_command = \"vault keys\""), None);
        assert!(problem("mode = \"all\"").unwrap().contains("needs `key_file` or `key_command`"));
        assert!(problem("key_file = \"a\"\nkey_command = \"b\"").unwrap().contains("one of them"));
    }
}
