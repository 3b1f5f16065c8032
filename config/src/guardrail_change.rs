//! Changes of guardrails while a node runs, with the names, values and errors of Cassandra's `nodetool setguardrailsconfig`.

use crate::error::ConfigError;
use crate::guardrails::guardrail_settings;
use crate::settings::Config;

/// Guardrails that are looked at by what a node begins with: their disks, and the files that it writes.
const OF_THE_START: [&str; 3] = ["data_disk_usage_", "partition_size_", "partition_tombstones_"];

/// The reason why a guardrail is not changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardrailError {
    #[error("Guardrail {0} not found.")]
    Unknown(String),
    #[error("Guardrail {0} is read at the start of a node: change it in the settings, and restart the node")]
    OfTheStart(String),
    #[error("{name} is expecting {expected} argument values. Getting {given} instead.")]
    Count { name: String, expected: usize, given: usize },
    #[error("Error occured when setting the config for setter {name} with arguments [{values}]: {reason}")]
    Refused { name: String, values: String, reason: String },
}

/// The settings that a name stands for: of a threshold both, the one for failures first.
fn settings_of(name: &str) -> Vec<&'static str> {
    let limits = name
        .strip_suffix("_threshold")
        .map(|threshold| [format!("{threshold}_fail_threshold"), format!("{threshold}_warn_threshold")]);
    match limits {
        Some(limits) => {
            let of = |limit: &String| guardrail_settings().find(|setting| setting == limit);
            limits.iter().filter_map(of).collect()
        }
        None => guardrail_settings().find(|setting| *setting == name).into_iter().collect(),
    }
}

/// A value as a file has it; `None`: none. `present`: what the setting is if it is not set.
fn parse(values: &[String], present: Option<&toml::Value>) -> Result<Option<toml::Value>, String> {
    let [value, ..] = values else { unreachable!("the number of values was checked") };
    let value = value.as_str();
    let is_reset = value == "null";
    Ok(Some(match present {
        Some(toml::Value::Boolean(_)) => match value {
            "null" | "false" => false.into(),
            "true" => true.into(),
            _ => return Err("Use 'true' or 'false' values for booleans".to_owned()),
        },
        Some(toml::Value::Integer(_)) if is_reset => (-1).into(),
        Some(toml::Value::Integer(_)) => match value.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => return Err(format!("Unable to parse value {value}")),
        },
        Some(toml::Value::Array(_)) if is_reset || value == "[]" => toml::Value::Array(Vec::new()),
        Some(toml::Value::Array(_)) => {
            values.iter().map(|value| value.trim().into()).collect::<Vec<toml::Value>>().into()
        }
        _ if is_reset => return Ok(None),
        _ => value.into(),
    }))
}

impl Config {
    /// These settings with another value of a guardrail: a flag has one, a threshold two (for failures and for warnings), a list any number.
    /// `null` takes a limit away.
    pub fn with_guardrail(&self, name: &str, values: &[String]) -> Result<Self, GuardrailError> {
        let settings = settings_of(name);
        if settings.is_empty() {
            return Err(GuardrailError::Unknown(name.to_owned()));
        }
        if OF_THE_START.iter().any(|start| name.starts_with(start)) {
            return Err(GuardrailError::OfTheStart(name.to_owned()));
        }
        let refused = |reason: String| GuardrailError::Refused {
            name: name.to_owned(),
            values: values.join(", "),
            reason,
        };
        let table = |config: &Self| toml::Table::try_from(config).map_err(|error| refused(error.to_string()));
        let (defaults, mut changed) = (table(&Self::default())?, table(self)?);
        let is_list = |setting: &&str| defaults.get(*setting).is_some_and(toml::Value::is_array);
        let is_of_one_list = settings.len() == 1 && settings.iter().all(is_list);
        if values.len() != settings.len() && (!is_of_one_list || values.is_empty()) {
            let (expected, given) = (settings.len(), values.len());
            return Err(GuardrailError::Count { name: name.to_owned(), expected, given });
        }
        for (index, setting) in settings.iter().enumerate() {
            let values = if is_of_one_list { values } else { &values[index..=index] };
            match parse(values, defaults.get(*setting)).map_err(&refused)? {
                Some(value) => changed.insert((*setting).to_owned(), value),
                None => changed.remove(*setting),
            };
        }
        let changed: Self =
            changed.try_into().map_err(|error: toml::de::Error| refused(error.to_string()))?;
        let checked = changed.guardrails().map_err(|error| match error {
            ConfigError::Value { message, .. } => refused(message),
            error => refused(error.to_string()),
        });
        checked.map(|_| changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(config: &Config, words: &[&str]) -> Result<Config, String> {
        let values: Vec<String> = words[1..].iter().map(|&value| value.to_owned()).collect();
        config.with_guardrail(words[0], &values).map_err(|error| error.to_string())
    }

    fn error(words: &[&str]) -> String {
        change(&Config::default(), words).unwrap_err()
    }

    #[test]
    fn flags_thresholds_and_lists_are_changed_and_taken_back() {
        let config = Config::default();
        let changed = change(&config, &["group_by_enabled", "false"]).unwrap();
        assert!(!changed.group_by_enabled);
        assert_eq!(Config { group_by_enabled: true, ..changed }, config);
        let changed = change(&config, &["tables_threshold", "20", "10"]).unwrap();
        assert_eq!((changed.tables_fail_threshold, changed.tables_warn_threshold), (20, 10));
        assert_eq!(change(&changed, &["tables_threshold", "null", "-1"]).unwrap(), config);
        let changed = change(&config, &["collection_size_threshold", "8MiB", "null"]).unwrap();
        assert_eq!(changed.guardrails().unwrap().collection_size.fail, Some(8 << 20));
        assert_eq!(changed.guardrails().unwrap().collection_size.warn, None);
        assert_eq!(change(&changed, &["collection_size_threshold", "null", "null"]).unwrap(), config);
        for lists in [&["ONE", "ANY"][..], &["any,one"][..]] {
            let words: Vec<&str> =
                ["read_consistency_levels_disallowed"].iter().chain(lists).copied().collect();
            let words: Vec<&str> = words.iter().flat_map(|word| word.split(',')).collect();
            let changed = change(&config, &words).unwrap();
            assert_eq!(changed.guardrails().unwrap().read_consistency_levels.disallowed.len(), 2);
            assert_eq!(change(&changed, &["read_consistency_levels_disallowed", "[]"]).unwrap(), config);
        }
    }

    #[test]
    fn a_list_is_not_emptied_by_a_change_without_values() {
        let expected = "table_properties_ignored is expecting 1 argument values. Getting 0 instead.";
        assert_eq!(error(&["table_properties_ignored"]), expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_cassandras_texts() {
        assert_eq!(error(&["non_sense", "1"]), "Guardrail non_sense not found.");
        assert_eq!(error(&["tables_warn_threshold", "1"]), "Guardrail tables_warn_threshold not found.");
        assert_eq!(error(&["data_dir", "x"]), "Guardrail data_dir not found.");
        assert_eq!(
            error(&["tables_threshold", "1"]),
            "tables_threshold is expecting 2 argument values. Getting 1 instead."
        );
        assert_eq!(
            error(&["group_by_enabled"]),
            "group_by_enabled is expecting 1 argument values. Getting 0 instead."
        );
        let of = |name: &str, values: &str, reason: &str| {
            format!(
                "Error occured when setting the config for setter {name} with arguments [{values}]: {reason}"
            )
        };
        assert_eq!(
            error(&["group_by_enabled", "yes"]),
            of("group_by_enabled", "yes", "Use 'true' or 'false' values for booleans")
        );
        assert_eq!(
            error(&["tables_threshold", "x", "1"]),
            of("tables_threshold", "x, 1", "Unable to parse value x")
        );
        assert_eq!(
            error(&["tables_threshold", "10", "20"]),
            of(
                "tables_threshold",
                "10, 20",
                "The warn threshold 20 should be lower than the fail threshold 10"
            )
        );
        assert!(
            error(&["collection_size_threshold", "8 hours", "null"])
                .contains("with arguments [8 hours, null]")
        );
        assert!(
            error(&["partition_size_threshold", "1GiB", "null"]).contains("is read at the start of a node")
        );
        assert!(
            error(&["data_disk_usage_percentage_threshold", "90", "80"]).contains("is read at the start")
        );
    }
}
