//! The `compaction` option of a table: the strategy and its sub-options.
//!
//! Invariant: the sub-options of a [`Compaction`] have been checked twice: as in Cassandra, with its error texts, and
//! by the engine, which refuses those that it does not support.

use std::collections::BTreeMap;
use std::str::FromStr;

use helenus_engine::compaction::{CompactionOptions, parse_bytes};
use serde::{Deserialize, Serialize};

use crate::error::{RequestError, Result};

const PACKAGE: &str = "org.apache.cassandra.db.compaction.";
const DEFAULT_MIN_THRESHOLD: u32 = 4;
const DEFAULT_MAX_THRESHOLD: u32 = 32;
const MIN_UNIFIED_TARGET_SIZE_BYTES: u64 = 1 << 20;
const DEFAULT_UNIFIED_TARGET_SIZE_BYTES: u64 = 1 << 30;

/// Sub-options that are accepted only with the value that Helenus implements.
const NO_EFFECT: [&str; 1] = ["provide_overlapping_tombstones"];

/// A compaction strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CompactionClass {
    SizeTiered,
    Leveled,
    TimeWindow,
    Unified,
}

/// The `compaction` option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    pub class: CompactionClass,
    /// All sub-options except `class`, as written or filled in with a default.
    pub options: BTreeMap<String, String>,
}

impl Default for Compaction {
    fn default() -> Self {
        Self { class: CompactionClass::SizeTiered, options: with_thresholds(BTreeMap::new()) }
    }
}

impl CompactionClass {
    /// The class name without its package.
    pub fn simple_name(self) -> &'static str {
        match self {
            Self::SizeTiered => "SizeTieredCompactionStrategy",
            Self::Leveled => "LeveledCompactionStrategy",
            Self::TimeWindow => "TimeWindowCompactionStrategy",
            Self::Unified => "UnifiedCompactionStrategy",
        }
    }

    fn parse(name: &str) -> Result<Self> {
        let simple_name = name.strip_prefix(PACKAGE).unwrap_or(name);
        let all = [Self::SizeTiered, Self::Leveled, Self::TimeWindow, Self::Unified];
        all.into_iter().find(|class| class.simple_name() == simple_name).ok_or_else(|| {
            let class = if name.contains('.') { name.to_owned() } else { format!("{PACKAGE}{name}") };
            RequestError::Configuration(format!("Unable to find compaction strategy class '{class}'"))
        })
    }

    /// Whether the strategy uses `min_threshold` and `max_threshold`.
    fn has_thresholds(self) -> bool {
        matches!(self, Self::SizeTiered | Self::TimeWindow)
    }

    /// Whether the strategy takes them. Leveled compaction needs them only for a level 0 that has fallen behind.
    fn takes_thresholds(self) -> bool {
        self.has_thresholds() || self == Self::Leveled
    }
}

impl Compaction {
    /// Reads and checks the map of the `compaction` option.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Self> {
        let mut options = map.clone();
        let Some(class) = options.remove("class") else {
            return configuration("Missing sub-option 'class' for the 'compaction' option");
        };
        let class = CompactionClass::parse(&class)?;
        if class.has_thresholds() {
            options = with_thresholds(options);
        }
        Check { options: &options, understood: Vec::new() }.all(class)?;
        let compaction = Self { class, options };
        compaction.to_engine()?;
        Ok(compaction)
    }

    /// The option as `system_schema.tables` and `DESCRIBE` show it.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let mut map = self.options.clone();
        map.insert("class".to_owned(), format!("{PACKAGE}{}", self.class.simple_name()));
        map
    }

    /// The options for the engine.
    pub fn to_engine(&self) -> Result<CompactionOptions> {
        let mut map = self.to_map();
        map.retain(|name, _| !NO_EFFECT.contains(&name.as_str()));
        CompactionOptions::parse(&map).map_err(|error| RequestError::Configuration(error.to_string()))
    }
}

fn with_thresholds(mut options: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let defaults = [("min_threshold", DEFAULT_MIN_THRESHOLD), ("max_threshold", DEFAULT_MAX_THRESHOLD)];
    for (name, default) in defaults {
        options.entry(name.to_owned()).or_insert_with(|| default.to_string());
    }
    options
}

/// Checks sub-options and records the checked names, so that all others can be refused.
struct Check<'a> {
    options: &'a BTreeMap<String, String>,
    understood: Vec<&'static str>,
}

impl Check<'_> {
    fn all(mut self, class: CompactionClass) -> Result<()> {
        self.common()?;
        match class {
            CompactionClass::SizeTiered => self.size_tiered()?,
            CompactionClass::Leveled => {
                self.leveled()?;
                self.size_tiered()?;
            }
            CompactionClass::TimeWindow => {
                self.time_window()?;
                self.size_tiered()?;
            }
            CompactionClass::Unified => self.unified()?,
        }
        if class.takes_thresholds() {
            self.thresholds()?;
        }
        let unknown: Vec<&str> =
            self.options.keys().map(String::as_str).filter(|name| !self.understood.contains(name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let class = class.simple_name();
        configuration(format!("Properties specified [{}] are not understood by {class}", unknown.join(", ")))
    }

    fn text(&mut self, name: &'static str) -> Option<&str> {
        self.understood.push(name);
        self.options.get(name).map(String::as_str)
    }

    fn integer(&mut self, name: &'static str) -> Result<Option<i64>> {
        self.number(name, "a parsable int (base10)")
    }

    fn double(&mut self, name: &'static str) -> Result<Option<f64>> {
        self.number(name, "a parsable float")
    }

    fn number<T: FromStr>(&mut self, name: &'static str, what: &str) -> Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let parsed = text.parse();
        parsed.map(Some).map_err(|_| RequestError::Configuration(format!("{text} is not {what} for {name}")))
    }

    fn boolean(&mut self, name: &'static str) -> Result<Option<bool>> {
        match self.text(name) {
            None => Ok(None),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(text) => configuration(format!("'{name}' should be either 'true' or 'false', not '{text}'")),
        }
    }

    fn common(&mut self) -> Result<()> {
        if let Some(share) = self.double("tombstone_threshold")?
            && (share < 0.0 || share.is_nan())
        {
            return configuration(format!("tombstone_threshold must be greater than 0, but was {share:.6}"));
        }
        if let Some(seconds) = self.integer("tombstone_compaction_interval")?
            && seconds < 0
        {
            return configuration(format!(
                "tombstone_compaction_interval must be greater than 0, but was {seconds}"
            ));
        }
        self.boolean("unchecked_tombstone_compaction")?;
        self.boolean("only_purge_repaired_tombstones")?;
        self.boolean("log_all")?;
        if let Some(text) = self.text("enabled")
            && !text.eq_ignore_ascii_case("true")
            && !text.eq_ignore_ascii_case("false")
        {
            return configuration(format!("enabled should either be 'true' or 'false', not {text}"));
        }
        match self.text("provide_overlapping_tombstones").map(str::to_uppercase).as_deref() {
            None | Some("NONE") => Ok(()),
            Some("ROW" | "CELL") => configuration(
                "The compaction sub-option 'provide_overlapping_tombstones' is not supported by Helenus: a \
                 compaction reads only the files that it merges",
            ),
            Some(other) => configuration(format!(
                "Invalid value {other} for 'provide_overlapping_tombstones' compaction sub-option - must be one \
                 of the following [NONE, ROW, CELL]."
            )),
        }
    }

    fn thresholds(&mut self) -> Result<()> {
        let min = self.threshold("min_threshold", DEFAULT_MIN_THRESHOLD)?;
        let max = self.threshold("max_threshold", DEFAULT_MAX_THRESHOLD)?;
        if min == 0 || max == 0 {
            return configuration(
                "Disabling compaction by setting compaction thresholds to 0 has been removed, set the compaction \
                 option 'enabled' to false instead.",
            );
        }
        if min < 2 {
            return configuration(format!("Min compaction threshold cannot be less than 2 (got {min})"));
        }
        if min > max {
            return configuration(format!(
                "Min compaction threshold (got {min}) cannot be greater than max compaction threshold (got {max})"
            ));
        }
        Ok(())
    }

    fn threshold(&mut self, name: &'static str, default: u32) -> Result<u32> {
        let Some(text) = self.text(name) else { return Ok(default) };
        text.parse().map_err(|_| {
            RequestError::Configuration(format!(
                "Invalid value {text} for '{name}' compaction sub-option - must be an integer"
            ))
        })
    }

    fn size_tiered(&mut self) -> Result<()> {
        if let Some(bytes) = self.integer("min_sstable_size")?
            && bytes < 0
        {
            return configuration(format!("min_sstable_size must be non negative: {bytes}"));
        }
        let low = self.double("bucket_low")?.unwrap_or(0.5);
        let high = self.double("bucket_high")?.unwrap_or(1.5);
        if high <= low || high.is_nan() || low.is_nan() {
            return configuration(format!(
                "bucket_high value ({high:?}) is less than or equal to the bucket_low value ({low:?})"
            ));
        }
        Ok(())
    }

    fn leveled(&mut self) -> Result<()> {
        self.boolean("single_sstable_uplevel")?;
        for name in ["sstable_size_in_mb", "fanout_size"] {
            if let Some(size) = self.integer(name)?
                && !(1..=i64::from(i32::MAX)).contains(&size)
            {
                return configuration(format!("{name} must be larger than 0, but was {size}"));
            }
        }
        Ok(())
    }

    fn time_window(&mut self) -> Result<()> {
        if let Some(text) = self.text("timestamp_resolution")
            && !["SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS"].contains(&text)
        {
            return configuration(format!("{text} is not valid for timestamp_resolution"));
        }
        if let Some(text) = self.text("compaction_window_unit")
            && !["MINUTES", "HOURS", "DAYS"].contains(&text)
        {
            return configuration(format!("{text} is not valid for compaction_window_unit"));
        }
        if let Some(size) = self.integer("compaction_window_size")?
            && !(1..=i64::from(i32::MAX)).contains(&size)
        {
            return configuration(format!("{size} must be greater than 1 for compaction_window_size"));
        }
        self.expired_tables(0)
    }

    /// `least_seconds`: the least accepted number of seconds.
    fn expired_tables(&mut self, least_seconds: i64) -> Result<()> {
        if let Some(seconds) = self.integer("expired_sstable_check_frequency_seconds")?
            && !(least_seconds..=i64::from(u32::MAX)).contains(&seconds)
        {
            return configuration(if least_seconds == 0 {
                format!("expired_sstable_check_frequency_seconds must not be negative, but was {seconds}")
            } else {
                format!(
                    "Invalid configuration, expired_sstable_check_frequency_seconds should be positive: {seconds}"
                )
            });
        }
        if self.boolean("unsafe_aggressive_sstable_expiration")? == Some(true) {
            return configuration(
                "unsafe_aggressive_sstable_expiration is requested but not allowed by Helenus: it can bring \
                 deleted data back",
            );
        }
        Ok(())
    }

    fn size(&mut self, name: &'static str) -> Result<Option<u64>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match parse_bytes(text) {
            Some(bytes) => Ok(Some(bytes)),
            None => configuration(format!("{name} {text} is not a valid size in bytes")),
        }
    }

    /// A size of at least 1 MiB.
    fn table_size(&mut self, name: &'static str) -> Result<Option<u64>> {
        let size = self.size(name)?;
        if size.is_some_and(|bytes| bytes < MIN_UNIFIED_TARGET_SIZE_BYTES) {
            let text = self.options.get(name).map_or("", String::as_str);
            return configuration(format!("{name} {text} is not acceptable, size must be at least 1.000MiB"));
        }
        Ok(size)
    }

    fn unified(&mut self) -> Result<()> {
        if let Some(text) = self.text("scaling_parameters")
            && let Some(wrong) = text.split(',').map(str::trim).find(|one| !is_scaling_parameter(one))
        {
            let is_small = wrong.strip_prefix(['T', 'L']).is_some_and(|fanout| fanout.parse::<u32>().is_ok());
            return configuration(if is_small {
                format!("Fan factor cannot be lower than 2 in {wrong}")
            } else {
                format!("Scaling parameter {wrong} must match N|L[0-9]+|T[0-9]+|[+-]?[0-9]+")
            });
        }
        if let Some(count) = self.integer("base_shard_count")?
            && !(1..=i64::from(i32::MAX)).contains(&count)
        {
            return configuration(format!(
                "Invalid configuration, base_shard_count should be positive: {count}"
            ));
        }
        let target = self.table_size("target_sstable_size")?.unwrap_or(DEFAULT_UNIFIED_TARGET_SIZE_BYTES);
        self.table_size("flush_size_override")?;
        self.integer("max_sstables_to_compact")?;
        if let Some(text) = self.text("overlap_inclusion_method")
            && !["NONE", "SINGLE", "TRANSITIVE"].iter().any(|name| text.eq_ignore_ascii_case(name))
        {
            return configuration(format!(
                "Invalid overlap inclusion method {text}. The valid options are [NONE, SINGLE, TRANSITIVE]."
            ));
        }
        // The least size of a part that is cut to the target.
        let least = (target as f64 * f64::sqrt(0.5)) as u64;
        if let Some(bytes) = self.size("min_sstable_size")?
            && bytes > least
        {
            return configuration(format!(
                "Invalid configuration, min_sstable_size ({bytes} bytes) should be less than the target size \
                 minimum: {least} bytes"
            ));
        }
        if let Some(text) = self.text("sstable_growth") {
            let share = match text.trim().strip_suffix('%') {
                Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
                None => text.trim().parse(),
            };
            match share {
                Ok(share) if (0.0..=1.0).contains(&share) => {}
                Ok(_) => return configuration(format!("sstable_growth {text} must be between 0 and 1")),
                Err(_) => {
                    return configuration(format!(
                        "sstable_growth is not a valid number between 0 and 1: {text}"
                    ));
                }
            }
        }
        self.expired_tables(1)
    }
}

/// `N`, `T4`, `L10`, `-8`.
fn is_scaling_parameter(text: &str) -> bool {
    if text == "N" {
        return true;
    }
    if let Some(fanout) = text.strip_prefix(['T', 'L']) {
        return fanout.parse::<u32>().is_ok_and(|fanout| fanout >= 2);
    }
    text.parse::<i32>().is_ok()
}

fn configuration<T>(message: impl Into<String>) -> Result<T> {
    Err(RequestError::Configuration(message.into()))
}

#[cfg(test)]
mod tests {
    use super::super::properties::tests::map_of;
    use super::*;

    fn with(class: &str, entries: &[(&str, &str)]) -> Result<Compaction> {
        let mut map = map_of(entries);
        map.insert("class".to_owned(), class.to_owned());
        Compaction::from_map(&map)
    }

    fn error(class: &str, entries: &[(&str, &str)]) -> String {
        with(class, entries).unwrap_err().to_string()
    }

    #[test]
    fn thresholds_are_filled_in_if_the_strategy_has_them() {
        let compaction = with("SizeTieredCompactionStrategy", &[("min_threshold", "7")]).unwrap();
        let expected = [
            ("class", "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"),
            ("max_threshold", "32"),
            ("min_threshold", "7"),
        ];
        assert_eq!(compaction.to_map(), map_of(&expected));
        assert!(with("LeveledCompactionStrategy", &[]).unwrap().options.is_empty());
        assert_eq!(
            with("LeveledCompactionStrategy", &[("min_threshold", "5")]).unwrap().options["min_threshold"],
            "5"
        );
        assert!(with("UnifiedCompactionStrategy", &[]).unwrap().options.is_empty());
    }

    #[test]
    fn the_engine_takes_what_is_accepted() {
        let window = [("compaction_window_unit", "HOURS"), ("compaction_window_size", "6")];
        let leveled =
            [("sstable_size_in_mb", "10"), ("bucket_low", "0.3"), ("single_sstable_uplevel", "false")];
        let unified = [
            ("scaling_parameters", "T4, L8, N, -2"),
            ("target_sstable_size", "256MiB"),
            ("base_shard_count", "8"),
            ("flush_size_override", "64 MiB"),
            ("max_sstables_to_compact", "0"),
            ("min_sstable_size", "10MiB"),
            ("overlap_inclusion_method", "single"),
            ("sstable_growth", "50%"),
            ("expired_sstable_check_frequency_seconds", "30"),
        ];
        let expired = [("unsafe_aggressive_sstable_expiration", "false")];
        let cases: [(&str, &[(&str, &str)]); 6] = [
            (
                "SizeTieredCompactionStrategy",
                &[("min_threshold", "6"), ("provide_overlapping_tombstones", "none")],
            ),
            ("TimeWindowCompactionStrategy", &window),
            (
                "TimeWindowCompactionStrategy",
                &[
                    ("expired_sstable_check_frequency_seconds", "60"),
                    ("timestamp_resolution", "MILLISECONDS"),
                    ("log_all", "true"),
                ],
            ),
            ("LeveledCompactionStrategy", &leveled),
            ("UnifiedCompactionStrategy", &unified),
            ("UnifiedCompactionStrategy", &expired),
        ];
        for (class, options) in cases {
            assert!(with(class, options).unwrap().to_engine().unwrap().enabled);
        }
        let disabled = with("SizeTieredCompactionStrategy", &[("enabled", "false")]).unwrap();
        assert!(!disabled.to_engine().unwrap().enabled);
    }

    #[test]
    fn wrong_sub_options_are_refused_with_cassandras_texts() {
        let size_tiered = "SizeTieredCompactionStrategy";
        let cases = [
            (
                size_tiered,
                ("tombstone_threshold", "-0.4"),
                "tombstone_threshold must be greater than 0, but was -0.400000",
            ),
            (
                size_tiered,
                ("enabled", "certainly"),
                "enabled should either be 'true' or 'false', not certainly",
            ),
            (size_tiered, ("min_sstable_size", "-1"), "min_sstable_size must be non negative: -1"),
            (size_tiered, ("min_threshold", "1"), "Min compaction threshold cannot be less than 2 (got 1)"),
            (
                size_tiered,
                ("abc", "1"),
                "Properties specified [abc] are not understood by SizeTieredCompactionStrategy",
            ),
            (
                "LeveledCompactionStrategy",
                ("sstable_size_in_mb", "-5"),
                "sstable_size_in_mb must be larger than 0, but was -5",
            ),
            (
                "LeveledCompactionStrategy",
                ("unchecked_tombstone_compaction", "maybe"),
                "'unchecked_tombstone_compaction' should be either 'true' or 'false', not 'maybe'",
            ),
            (
                "UnifiedCompactionStrategy",
                ("base_shard_count", "0"),
                "Invalid configuration, base_shard_count should be positive: 0",
            ),
            (
                "UnifiedCompactionStrategy",
                ("flush_size_override", "1KiB"),
                "flush_size_override 1KiB is not acceptable, size must be at least 1.000MiB",
            ),
            (
                "UnifiedCompactionStrategy",
                ("target_sstable_size", "big"),
                "target_sstable_size big is not a valid size in bytes",
            ),
            (
                "UnifiedCompactionStrategy",
                ("sstable_growth", "1.5"),
                "sstable_growth 1.5 must be between 0 and 1",
            ),
            (
                "UnifiedCompactionStrategy",
                ("overlap_inclusion_method", "some"),
                "Invalid overlap inclusion method some. The valid options are [NONE, SINGLE, TRANSITIVE].",
            ),
            (
                "UnifiedCompactionStrategy",
                ("max_sstables_to_compact", "x"),
                "x is not a parsable int (base10) for max_sstables_to_compact",
            ),
            (
                "UnifiedCompactionStrategy",
                ("expired_sstable_check_frequency_seconds", "0"),
                "Invalid configuration, expired_sstable_check_frequency_seconds should be positive: 0",
            ),
            (
                "TimeWindowCompactionStrategy",
                ("timestamp_resolution", "MINUTES"),
                "MINUTES is not valid for timestamp_resolution",
            ),
            (
                "TimeWindowCompactionStrategy",
                ("compaction_window_unit", "SECONDS"),
                "SECONDS is not valid for compaction_window_unit",
            ),
            (
                "TimeWindowCompactionStrategy",
                ("compaction_window_size", "-8"),
                "-8 must be greater than 1 for compaction_window_size",
            ),
            (
                "UnifiedCompactionStrategy",
                ("scaling_parameters", "X2"),
                "Scaling parameter X2 must match N|L[0-9]+|T[0-9]+|[+-]?[0-9]+",
            ),
        ];
        for (class, option, text) in cases {
            assert_eq!(error(class, &[option]), text);
        }
        assert!(
            error("Nope", &[]).starts_with("Unable to find compaction strategy class 'org.apache.cassandra")
        );
        let missing = Compaction::from_map(&map_of(&[("min_threshold", "4")])).unwrap_err();
        assert_eq!(missing.to_string(), "Missing sub-option 'class' for the 'compaction' option");
    }
}
