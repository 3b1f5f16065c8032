//! The table of settings about encryption at rest.

use std::path::PathBuf;
use std::time::Duration;

use helenus_at_rest::KeySource;
use serde::{Deserialize, Serialize};

/// Which files of a node are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtRestMode {
    /// No new ones.
    #[default]
    Off,
    /// Those of tables with the option `encryption`, and all that are not of one table.
    Tables,
    /// All.
    All,
}

/// What becomes of files that are not encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlainFilesMode {
    /// They are read.
    #[default]
    Accept,
    /// They are errors.
    Refuse,
}

/// Encryption of the node's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncryptionAtRest {
    pub mode: AtRestMode,
    /// A file with the master keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// A command of the shell that prints the master keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_command: Option<String>,
    /// The time that the command may take.
    pub key_command_timeout_ms: u64,
    pub plain_files: PlainFilesMode,
}

impl Default for EncryptionAtRest {
    fn default() -> Self {
        Self {
            mode: AtRestMode::default(),
            key_file: None,
            key_command: None,
            key_command_timeout_ms: 30_000,
            plain_files: PlainFilesMode::default(),
        }
    }
}

impl EncryptionAtRest {
    /// An example of every part.
    pub(crate) fn example() -> Self {
        Self {
            mode: AtRestMode::All,
            key_file: Some(PathBuf::from("/etc/helenus/keys")),
            plain_files: PlainFilesMode::Refuse,
            ..Self::default()
        }
    }

    /// Where the master keys come from; `None`: there are none, and no file is encrypted.
    pub fn key_source(&self) -> Option<KeySource> {
        let limit = Duration::from_millis(self.key_command_timeout_ms);
        let command = || self.key_command.clone().map(|command| KeySource::Command { command, limit });
        self.key_file.clone().map(KeySource::File).or_else(command)
    }

    /// Whether new files of tables with the option `encryption` are encrypted.
    pub fn encrypts_tables(&self) -> bool {
        self.mode != AtRestMode::Off
    }

    /// What is missing or too much.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        match (self.mode, &self.key_file, &self.key_command) {
            (AtRestMode::All | AtRestMode::Tables, None, None) => {
                Some("needs `key_file` or `key_command`, which has the master keys, unless `mode` is \"off\"")
            }
            (_, Some(_), Some(_)) => {
                Some("has `key_file` and `key_command`: one of them has the master keys")
            }
            _ if self.key_command_timeout_ms == 0 => Some("needs a `key_command_timeout_ms` above 0"),
            (AtRestMode::Off, _, _) if self.plain_files == PlainFilesMode::Refuse => Some(
                "needs `mode = \"all\"` or `\"tables\"` for `plain_files = \"refuse\"`: new files are not encrypted without",
            ),
            _ => None,
        }
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
        assert_eq!(problem("mode = \"tables\"\nkey_file = \"keys\""), None);
        assert_eq!(problem("key_command = \"vault keys\""), None);
        assert!(problem("mode = \"tables\"").unwrap().contains("needs `key_file` or `key_command`"));
        assert!(problem("mode = \"all\"").unwrap().contains("needs `key_file` or `key_command`"));
        assert!(problem("key_file = \"a\"\nkey_command = \"b\"").unwrap().contains("one of them"));
        assert!(problem("key_command_timeout_ms = 0").unwrap().contains("`key_command_timeout_ms` above 0"));
        let refuse = "plain_files = \"refuse\"\nkey_file = \"a\"\nmode =";
        assert_eq!(problem(&format!("{refuse} \"all\"")), None);
        assert_eq!(problem(&format!("{refuse} \"tables\"")), None);
        assert!(problem(&format!("{refuse} \"off\"")).unwrap().contains("needs `mode = \"all\"`"));
    }
}
