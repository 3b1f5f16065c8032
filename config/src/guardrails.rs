//! Guardrails from the settings: each finds its own by name.

use std::collections::BTreeSet;

use cql_lite::frame::Consistency;
use helenus_guardrails::{Bound, Guardrails, Threshold};

use crate::data_size::DataSize;
use crate::error::ConfigError;
use crate::period::Period;
use crate::setting::Setting;
use crate::settings::{Config, SETTINGS};

/// The settings by name, as a file has them.
struct Settings(toml::Table);

impl Settings {
    /// The value of a setting. A setting that is not set has none.
    fn value(&self, name: &str, end: &str) -> Option<(&'static str, &toml::Value)> {
        let setting =
            SETTINGS.iter().find(|setting| setting.key.strip_prefix(name).is_some_and(|rest| rest == end))?;
        Some((setting.key, self.0.get(setting.key)?))
    }

    /// A limit of a threshold.
    fn limit(&self, threshold: &Threshold, end: &str) -> Result<Option<u64>, ConfigError> {
        let Some((key, value)) = self.value(threshold.name, end) else { return Ok(None) };
        let refused = |message: String| ConfigError::Value { key, message };
        match value {
            toml::Value::Integer(-1) => Ok(None),
            toml::Value::Integer(0) => {
                Err(refused("0 is not allowed; if attempting to disable use -1".to_owned()))
            }
            toml::Value::Integer(number) => u64::try_from(*number).map(Some).map_err(|_| {
                refused(format!("Invalid value {number}: must be above 0, or -1 to disable it"))
            }),
            toml::Value::String(period) if threshold.bound.is_of_times() => {
                let period = period.parse::<Period>().map_err(refused)?;
                Ok(Some(u64::from(period.seconds()) * 1_000_000))
            }
            toml::Value::String(size) => match size.parse::<DataSize>() {
                Ok(DataSize(0)) => {
                    Err(refused("0 is not allowed; if attempting to disable it leave it out".to_owned()))
                }
                Ok(DataSize(bytes)) => Ok(Some(bytes)),
                Err(message) => Err(refused(message)),
            },
            _ => Ok(None),
        }
    }

    fn flag(&self, name: &str, end: &str) -> Option<bool> {
        self.value(name, end)?.1.as_bool()
    }

    fn values(&self, name: &str, end: &str) -> Option<(&'static str, BTreeSet<String>)> {
        let (key, value) = self.value(name, end)?;
        let names = value.as_array()?.iter().filter_map(toml::Value::as_str);
        Some((key, names.map(str::to_owned).collect()))
    }
}

/// Guardrails among the settings of other sections.
const OTHERS: [&str; 3] = [
    "data_disk_usage_percentage_warn_threshold",
    "data_disk_usage_percentage_fail_threshold",
    "data_disk_usage_max_disk_size_bytes",
];

/// The names of all settings that are guardrails.
pub fn guardrail_settings() -> impl Iterator<Item = &'static str> {
    let is_guardrail = |setting: &&Setting| setting.section == "Guardrails" || OTHERS.contains(&setting.key);
    SETTINGS.iter().filter(is_guardrail).map(|setting| setting.key)
}

impl Config {
    /// The guardrails that are set.
    pub fn guardrails(&self) -> Result<Guardrails, ConfigError> {
        let settings = toml::Table::try_from(self);
        debug_assert!(settings.is_ok(), "settings can be written");
        let settings = Settings(settings.unwrap_or_default());
        let mut guardrails = Guardrails::default();
        for threshold in guardrails.thresholds_mut() {
            threshold.warn = settings.limit(threshold, "_warn_threshold")?;
            threshold.fail = settings.limit(threshold, "_fail_threshold")?;
            check_order(threshold, &settings)?;
        }
        for flag in guardrails.flags_mut() {
            flag.is_enabled = settings.flag(flag.setting, "_enabled").unwrap_or(true);
            flag.is_warned = settings.flag(flag.setting, "_warned").unwrap_or(false);
        }
        for values in guardrails.values_mut() {
            let lists = [
                ("_warned", &mut values.warned),
                ("_ignored", &mut values.ignored),
                ("_disallowed", &mut values.disallowed),
            ];
            for (end, list) in lists {
                let Some((key, names)) = settings.values(values.name, end) else { continue };
                *list = if values.name == "table_properties" {
                    names.iter().map(|name| name.to_lowercase()).collect()
                } else {
                    names.iter().map(|name| name.to_uppercase()).collect()
                };
                if values.name != "table_properties"
                    && let Some(unknown) = list
                        .iter()
                        .find(|level| Consistency::ALL.iter().all(|known| known.name() != level.as_str()))
                {
                    let message = format!("'{unknown}' is no consistency level");
                    return Err(ConfigError::Value { key, message });
                }
            }
        }
        Ok(guardrails)
    }
}

/// Refuses a warning that comes after the error.
fn check_order(threshold: &Threshold, settings: &Settings) -> Result<(), ConfigError> {
    let (Some(warn), Some(fail)) = (threshold.warn, threshold.fail) else { return Ok(()) };
    let Some((key, _)) = settings.value(threshold.name, "_warn_threshold") else { return Ok(()) };
    let (is_wrong, relation) = match threshold.bound {
        Bound::AtLeast => (warn <= fail, "greater"),
        Bound::AtMost | Bound::After | Bound::Before => (warn >= fail, "lower"),
    };
    if is_wrong {
        let message =
            format!("The warn threshold {warn} should be {relation} than the fail threshold {fail}");
        return Err(ConfigError::Value { key, message });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parsed(text: &str) -> Result<Guardrails, ConfigError> {
        Config::from_toml(text, Path::new("x.toml"))?.guardrails()
    }

    #[test]
    fn every_setting_belongs_to_a_guardrail_and_every_guardrail_has_its_settings() {
        let mut guardrails = Guardrails::default();
        let mut expected = BTreeSet::new();
        for threshold in guardrails.thresholds_mut() {
            expected.extend(["warn", "fail"].map(|kind| format!("{}_{kind}_threshold", threshold.name)));
        }
        expected.extend(guardrails.flags_mut().map(|flag| format!("{}_enabled", flag.setting)));
        let optional: BTreeSet<String> = guardrails
            .values_mut()
            .flat_map(|values| {
                ["warned", "ignored", "disallowed"].map(|kind| format!("{}_{kind}", values.name))
            })
            .chain(["zero_ttl_on_twcs_warned", "intersect_filtering_query_warned"].map(str::to_owned))
            .collect();
        let section = SETTINGS.iter().filter(|setting| setting.section == "Guardrails");
        let known: BTreeSet<String> = section.map(|setting| setting.key.to_owned()).collect();
        assert_eq!(expected.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
        expected.extend(optional);
        let listed: BTreeSet<String> = guardrail_settings().map(str::to_owned).collect();
        assert_eq!(listed.difference(&known).collect::<Vec<_>>().len(), OTHERS.len());
        assert_eq!(known.difference(&expected).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn settings_become_guardrails() {
        let mut default = Guardrails::default();
        default.zero_ttl_on_twcs.is_warned = true;
        default.sai_sstable_indexes_per_query.warn = Some(32);
        assert_eq!(Config::default().guardrails().unwrap(), default);
        let guardrails = parsed(
            "tables_warn_threshold = 10\ntables_fail_threshold = 20\ncolumn_value_size_fail_threshold = \"1MiB\"\n\
             collection_size_warn_threshold = 5\nminimum_replication_factor_warn_threshold = 3\n\
             minimum_replication_factor_fail_threshold = 2\nallow_filtering_enabled = false\n\
             table_properties_ignored = [\"Gc_Grace_Seconds\"]\nread_consistency_levels_disallowed = [\"all\"]\nmaximum_timestamp_fail_threshold = \"1d\"",
        )
        .unwrap();
        assert_eq!((guardrails.tables.warn, guardrails.tables.fail), (Some(10), Some(20)));
        assert_eq!(guardrails.column_value_size.fail, Some(1 << 20));
        assert_eq!(guardrails.collection_size.warn, Some(5));
        assert_eq!(guardrails.minimum_replication_factor.bound, Bound::AtLeast);
        assert_eq!(guardrails.maximum_timestamp.fail, Some(86_400_000_000));
        assert!(!guardrails.allow_filtering.is_enabled && guardrails.group_by.is_enabled);
        assert!(guardrails.table_properties.ignored.contains("gc_grace_seconds"));
        assert!(guardrails.read_consistency_levels.disallowed.contains("ALL"));
    }

    #[test]
    fn thresholds_that_make_no_sense_are_refused() {
        for (text, message) in [
            (
                "tables_warn_threshold = 0",
                "setting 'tables_warn_threshold': 0 is not allowed; if attempting to disable use -1",
            ),
            (
                "tables_fail_threshold = -2",
                "setting 'tables_fail_threshold': Invalid value -2: must be above 0, or -1 to disable it",
            ),
            (
                "page_size_warn_threshold = 5\npage_size_fail_threshold = 5",
                "setting 'page_size_warn_threshold': The warn threshold 5 should be lower than the fail threshold 5",
            ),
            (
                "minimum_replication_factor_warn_threshold = 1\nminimum_replication_factor_fail_threshold = 2",
                "setting 'minimum_replication_factor_warn_threshold': The warn threshold 1 should be greater than the fail threshold 2",
            ),
            (
                "column_value_size_warn_threshold = \"0B\"",
                "setting 'column_value_size_warn_threshold': 0 is not allowed; if attempting to disable it leave it out",
            ),
            (
                "write_consistency_levels_warned = [\"SOME\"]",
                "setting 'write_consistency_levels_warned': 'SOME' is no consistency level",
            ),
        ] {
            assert_eq!(parsed(text).unwrap_err().to_string(), message);
        }
    }
}
