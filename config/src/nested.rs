//! Tables of Cassandra's configuration whose settings stand by themselves here: `[audit_logging_options] enabled` is
//! `audit_logging_enabled`.

use std::path::Path;

use crate::error::ConfigError;

/// A table, what its settings have before their names here, and what they lose of them.
const TABLES: [(&str, &str, &str); 2] = [
    ("audit_logging_options", "audit_logging_", "audit_"),
    ("full_query_logging_options", "full_query_logging_", ""),
];

/// The reason why a table is refused.
pub(crate) struct NestedError(String);

impl NestedError {
    pub(crate) fn of_file(self, path: &Path) -> ConfigError {
        ConfigError::Parse { path: path.to_owned(), message: self.0 }
    }
}

/// Moves the settings of such tables to the table of all. Lists that Cassandra writes as one text with commas become lists. Returns whether
/// there were any.
pub(crate) fn flatten(table: &mut toml::Table) -> Result<bool, NestedError> {
    let mut is_changed = false;
    for (name, prefix, lost) in TABLES {
        let settings = match table.remove(name) {
            None => continue,
            Some(toml::Value::Table(settings)) => settings,
            Some(_) => return Err(NestedError(format!("'{name}': a table is expected"))),
        };
        is_changed = true;
        for (key, value) in settings {
            let flat = format!("{prefix}{}", key.strip_prefix(lost).unwrap_or(&key));
            let is_list = key.starts_with("included_") || key.starts_with("excluded_");
            let value = match value {
                toml::Value::String(text) if is_list => {
                    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                    names.map(str::to_owned).collect::<Vec<_>>().into()
                }
                value => value,
            };
            if table.insert(flat.clone(), value).is_some() {
                return Err(NestedError(format!("'{name}.{key}' is '{flat}', which is set too")));
            }
        }
    }
    Ok(is_changed)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use crate::{Config, DataSize};

    #[test]
    fn cassandras_tables_are_taken() {
        let parse = |text| Config::from_toml(text, Path::new("x.toml"));
        let config = parse(
            "[audit_logging_options]\nenabled = true\naudit_logs_dir = \"a\"\nincluded_users = \"x, y\"\n\
             excluded_categories = [\"DML\"]\nmax_log_size = 1048576\n[full_query_logging_options]\nlog_dir = \"f\"",
        )
        .unwrap();
        assert!(config.audit_logging_enabled);
        assert_eq!(config.audit_logging_logs_dir, Some(PathBuf::from("a")));
        assert_eq!(config.audit_logging_included_users, ["x", "y"]);
        assert_eq!(config.audit_logging_excluded_categories, ["DML"]);
        assert_eq!(config.audit_logging_max_log_size, DataSize(1 << 20));
        assert_eq!(config.full_query_logging_log_dir, Some(PathBuf::from("f")));
        for (text, message) in [
            ("audit_logging_options = 3", "x.toml: 'audit_logging_options': a table is expected"),
            (
                "audit_logging_block = true\n[audit_logging_options]\nblock = true",
                "x.toml: 'audit_logging_options.block' is 'audit_logging_block', which is set too",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
        let unknown = parse("[audit_logging_options]\narchive_command = \"x\"").unwrap_err().to_string();
        assert!(unknown.contains("unknown setting 'audit_logging_archive_command'"), "{unknown}");
    }
}
