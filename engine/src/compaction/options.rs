//! Compaction options as Cassandra names them: `class` and string values, validated.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use thiserror::Error;

use super::leveled::Leveled;
use super::overlap::OverlapInclusion;
use super::size_tiered::SizeTiered;
use super::strategy::{CompactionOptions, EXPIRED_CHECK_SECONDS, Strategy, TombstoneOptions};
use super::time_window::{TimeUnit, TimeWindow};
use super::unified::Unified;

/// Why compaction options are invalid. The texts follow Cassandra's.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompactionOptionsError {
    #[error("Unable to find compaction strategy class '{0}'")]
    UnknownClass(String),
    #[error("Properties specified {keys:?} are not understood by {class}")]
    NotUnderstood { class: &'static str, keys: Vec<String> },
    #[error("{value} is not a parsable {expected} for {option}")]
    Unparsable { option: &'static str, value: String, expected: &'static str },
    #[error("{option} value ({value}) {requirement}")]
    OutOfRange { option: &'static str, value: String, requirement: &'static str },
    #[error("{option} is not supported: {reason}")]
    Unsupported { option: &'static str, reason: &'static str },
}

/// The options that have not been read yet. Unknown options are left over.
struct Source<'a> {
    left: BTreeMap<&'a str, &'a str>,
}

impl Source<'_> {
    fn take<T: FromStr>(
        &mut self,
        option: &'static str,
        expected: &'static str,
        default: T,
    ) -> Result<T, CompactionOptionsError> {
        let Some(value) = self.left.remove(option) else { return Ok(default) };
        value.trim().parse().map_err(|_| CompactionOptionsError::Unparsable {
            option,
            value: value.to_owned(),
            expected,
        })
    }

    fn int<T: FromStr>(&mut self, option: &'static str, default: T) -> Result<T, CompactionOptionsError> {
        self.take(option, "int", default)
    }

    fn float(&mut self, option: &'static str, default: f64) -> Result<f64, CompactionOptionsError> {
        self.take(option, "double", default)
    }

    fn boolean(&mut self, option: &'static str, default: bool) -> Result<bool, CompactionOptionsError> {
        let Some(value) = self.left.remove(option) else { return Ok(default) };
        match value.trim().to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(CompactionOptionsError::OutOfRange {
                option,
                value: value.to_owned(),
                requirement: "must be 'true' or 'false'",
            }),
        }
    }
}

fn require(
    holds: bool,
    option: &'static str,
    value: impl Display + Copy,
    requirement: &'static str,
) -> Result<(), CompactionOptionsError> {
    if holds {
        return Ok(());
    }
    Err(CompactionOptionsError::OutOfRange { option, value: value.to_string(), requirement })
}

impl CompactionOptions {
    /// Parses the map of `WITH compaction = {…}`. Without `class` the strategy is size-tiered.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<Self, CompactionOptionsError> {
        let mut source =
            Source { left: options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect() };
        let class = source.left.remove("class").unwrap_or("SizeTieredCompactionStrategy");
        let class = class.strip_prefix("org.apache.cassandra.db.compaction.").unwrap_or(class);
        let (name, strategy) = match class {
            "SizeTieredCompactionStrategy" => {
                ("SizeTieredCompactionStrategy", Strategy::SizeTiered(size_tiered(&mut source)?))
            }
            "TimeWindowCompactionStrategy" => {
                ("TimeWindowCompactionStrategy", Strategy::TimeWindow(time_window(&mut source)?))
            }
            "LeveledCompactionStrategy" => {
                ("LeveledCompactionStrategy", Strategy::Leveled(leveled(&mut source)?))
            }
            "UnifiedCompactionStrategy" => {
                ("UnifiedCompactionStrategy", Strategy::Unified(unified(&mut source)?))
            }
            other => return Err(CompactionOptionsError::UnknownClass(other.to_owned())),
        };
        let enabled = source.boolean("enabled", true)?;
        let mut tombstones = tombstones(&mut source)?;
        // As in Cassandra: files of a time window are mostly removed whole, so single ones are rewritten only on request.
        if matches!(strategy, Strategy::TimeWindow(_)) {
            let asked = ["tombstone_threshold", "tombstone_compaction_interval"];
            tombstones.enabled = asked.iter().any(|name| options.contains_key(*name));
        }
        let expired_check_seconds =
            source.int("expired_sstable_check_frequency_seconds", EXPIRED_CHECK_SECONDS)?;
        if source.boolean("unsafe_aggressive_sstable_expiration", false)? {
            return Err(CompactionOptionsError::Unsupported {
                option: "unsafe_aggressive_sstable_expiration",
                reason: "it can bring deleted data back",
            });
        }
        if source.boolean("only_purge_repaired_tombstones", false)? {
            return Err(CompactionOptionsError::Unsupported {
                option: "only_purge_repaired_tombstones",
                reason: "there are no repairs yet, so no tombstone would ever be purged",
            });
        }
        let logs_all = source.boolean("log_all", false)?;
        if !source.left.is_empty() {
            let keys = source.left.keys().map(ToString::to_string).collect();
            return Err(CompactionOptionsError::NotUnderstood { class: name, keys });
        }
        Ok(Self { strategy, enabled, tombstones, expired_check_seconds, logs_all })
    }
}

fn tombstones(source: &mut Source<'_>) -> Result<TombstoneOptions, CompactionOptionsError> {
    let defaults = TombstoneOptions::default();
    let threshold = source.float("tombstone_threshold", defaults.threshold)?;
    require(threshold > 0.0, "tombstone_threshold", threshold, "must be positive")?;
    let interval_seconds = source.int("tombstone_compaction_interval", defaults.interval_seconds)?;
    let unchecked = source.boolean("unchecked_tombstone_compaction", defaults.unchecked)?;
    Ok(TombstoneOptions { enabled: true, threshold, interval_seconds, unchecked })
}

fn size_tiered(source: &mut Source<'_>) -> Result<SizeTiered, CompactionOptionsError> {
    let defaults = SizeTiered::default();
    let strategy = SizeTiered {
        min_threshold: source.int("min_threshold", defaults.min_threshold)?,
        max_threshold: source.int("max_threshold", defaults.max_threshold)?,
        min_table_bytes: source.int("min_sstable_size", defaults.min_table_bytes)?,
        bucket_low: source.float("bucket_low", defaults.bucket_low)?,
        bucket_high: source.float("bucket_high", defaults.bucket_high)?,
    };
    require(
        strategy.bucket_high > strategy.bucket_low,
        "bucket_high",
        strategy.bucket_high,
        "is less than or equal to the bucket_low value",
    )?;
    require(strategy.min_threshold >= 2, "min_threshold", strategy.min_threshold, "must be at least 2")?;
    require(
        strategy.max_threshold >= strategy.min_threshold,
        "max_threshold",
        strategy.max_threshold,
        "is less than the min_threshold value",
    )?;
    Ok(strategy)
}

fn time_window(source: &mut Source<'_>) -> Result<TimeWindow, CompactionOptionsError> {
    let defaults = TimeWindow::default();
    let unit = match source.left.remove("compaction_window_unit") {
        None => defaults.unit,
        Some("MINUTES") => TimeUnit::Minutes,
        Some("HOURS") => TimeUnit::Hours,
        Some("DAYS") => TimeUnit::Days,
        Some(other) => {
            return Err(CompactionOptionsError::OutOfRange {
                option: "compaction_window_unit",
                value: other.to_owned(),
                requirement: "must be MINUTES, HOURS or DAYS",
            });
        }
    };
    let resolution = source.left.remove("timestamp_resolution").unwrap_or("MICROSECONDS");
    let ticks_per_second = match resolution {
        "SECONDS" => 1,
        "MILLISECONDS" => 1_000,
        "MICROSECONDS" => 1_000_000,
        "NANOSECONDS" => 1_000_000_000,
        other => {
            return Err(CompactionOptionsError::OutOfRange {
                option: "timestamp_resolution",
                value: other.to_owned(),
                requirement: "must be SECONDS, MILLISECONDS, MICROSECONDS or NANOSECONDS",
            });
        }
    };
    let size = source.int("compaction_window_size", defaults.size)?;
    require(size >= 1, "compaction_window_size", size, "must be greater than 1")?;
    Ok(TimeWindow { unit, size, ticks_per_second, within: size_tiered(source)? })
}

fn leveled(source: &mut Source<'_>) -> Result<Leveled, CompactionOptionsError> {
    let defaults = Leveled::default();
    let size_mib: u64 = source.int("sstable_size_in_mb", defaults.table_bytes >> 20)?;
    require(size_mib >= 1, "sstable_size_in_mb", size_mib, "must be larger than 0")?;
    let fanout = source.int("fanout_size", defaults.fanout)?;
    require(fanout >= 1, "fanout_size", fanout, "must be larger than 0")?;
    let moves_single_tables = source.boolean("single_sstable_uplevel", defaults.moves_single_tables)?;
    Ok(Leveled {
        table_bytes: size_mib << 20,
        fanout,
        moves_single_tables,
        within_level_0: size_tiered(source)?,
    })
}

fn unified(source: &mut Source<'_>) -> Result<Unified, CompactionOptionsError> {
    let defaults = Unified::default();
    let scaling = source.left.remove("scaling_parameters").map_or(Ok(defaults.scaling.clone()), |text| {
        text.split(',').map(|part| parse_scaling(part.trim())).collect::<Option<Vec<_>>>().ok_or_else(|| {
            CompactionOptionsError::Unparsable {
                option: "scaling_parameters",
                value: text.to_owned(),
                expected: "list of N, L[2-9] or T[2-9]",
            }
        })
    })?;
    let target = size(source, "target_sstable_size", defaults.target_table_bytes)?;
    require(target >= TARGET_BYTES_MIN, "target_sstable_size", target, "must be at least 1MiB")?;
    // A small target is not held up by the default of the least size.
    let least = (target as f64 * f64::sqrt(0.5)) as u64;
    let min_table_bytes = size(source, "min_sstable_size", defaults.min_table_bytes.min(least))?;
    require(
        min_table_bytes <= least,
        "min_sstable_size",
        min_table_bytes,
        "must be less than the target size",
    )?;
    let mut flush_bytes = None;
    if source.left.contains_key("flush_size_override") {
        let bytes = size(source, "flush_size_override", 0)?;
        require(bytes >= TARGET_BYTES_MIN, "flush_size_override", bytes, "must be at least 1MiB")?;
        flush_bytes = Some(bytes);
    }
    let base_shards = source.int("base_shard_count", defaults.base_shards)?;
    require(base_shards >= 1, "base_shard_count", base_shards, "should be positive")?;
    let max_inputs: i64 = source.int("max_sstables_to_compact", 0)?;
    let inclusion =
        match source.left.remove("overlap_inclusion_method").map(str::to_ascii_uppercase).as_deref() {
            None | Some("TRANSITIVE") => OverlapInclusion::Transitive,
            Some("SINGLE") => OverlapInclusion::Single,
            Some("NONE") => OverlapInclusion::None,
            Some(other) => {
                return Err(CompactionOptionsError::OutOfRange {
                    option: "overlap_inclusion_method",
                    value: other.to_owned(),
                    requirement: "must be NONE, SINGLE or TRANSITIVE",
                });
            }
        };
    Ok(Unified {
        scaling,
        target_table_bytes: target,
        min_table_bytes,
        table_growth: growth(source, defaults.table_growth)?,
        base_shards,
        flush_bytes,
        max_inputs: usize::try_from(max_inputs).ok().filter(|most| *most > 0).unwrap_or(usize::MAX),
        inclusion,
    })
}

/// The least target size of unified compaction, and the least size of a flush that can be named.
const TARGET_BYTES_MIN: u64 = 1 << 20;

fn size(source: &mut Source<'_>, option: &'static str, default: u64) -> Result<u64, CompactionOptionsError> {
    let Some(text) = source.left.remove(option) else { return Ok(default) };
    parse_bytes(text).ok_or_else(|| CompactionOptionsError::Unparsable {
        option,
        value: text.to_owned(),
        expected: "size",
    })
}

/// A share, as a number or with a percent sign.
fn growth(source: &mut Source<'_>, default: f64) -> Result<f64, CompactionOptionsError> {
    const OPTION: &str = "sstable_growth";
    let Some(text) = source.left.remove(OPTION) else { return Ok(default) };
    let parsed = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => text.trim().parse(),
    };
    let share = parsed.map_err(|_| CompactionOptionsError::Unparsable {
        option: OPTION,
        value: text.to_owned(),
        expected: "number between 0 and 1",
    })?;
    require((0.0..=1.0).contains(&share), OPTION, share, "must be between 0 and 1")?;
    Ok(share)
}

/// `N`, `L<fanout>` or `T<fanout>`, or the number W itself.
fn parse_scaling(text: &str) -> Option<i32> {
    let fanout = |digits: &str| digits.parse::<i32>().ok().filter(|&fanout| fanout >= 2);
    match text.split_at_checked(1)? {
        ("N", "") => Some(0),
        ("L", digits) => Some(2 - fanout(digits)?),
        ("T", digits) => Some(fanout(digits)? - 2),
        _ => text.parse().ok(),
    }
}

/// A size such as `100MiB`, `1.5 GB` or `4096`, in bytes, as Cassandra reads it.
pub fn parse_bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 13] = [
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("K", 1024.0),
        ("M", 1_048_576.0),
        ("G", 1_073_741_824.0),
        ("T", 1_099_511_627_776.0),
        ("B", 1.0),
    ];
    let text = text.trim();
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((text, 1.0));
    let bytes = digits.trim().parse::<f64>().ok()? * unit;
    // A float to integer cast saturates.
    (bytes.is_finite() && bytes >= 0.0).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[(&str, &str)]) -> Result<CompactionOptions, CompactionOptionsError> {
        let map = options.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        CompactionOptions::parse(&map)
    }

    #[test]
    fn options_are_read_and_validated() {
        let Strategy::SizeTiered(tiered) = parse(&[("min_threshold", "6")]).unwrap().strategy else {
            panic!("not size-tiered");
        };
        assert_eq!((tiered.min_threshold, tiered.max_threshold), (6, 32));
        assert!(!parse(&[("enabled", "false")]).unwrap().enabled);
        assert!(matches!(parse(&[("class", "Nope")]), Err(CompactionOptionsError::UnknownClass(_))));
        assert!(matches!(parse(&[("colour", "red")]), Err(CompactionOptionsError::NotUnderstood { .. })));
        assert!(matches!(parse(&[("min_threshold", "x")]), Err(CompactionOptionsError::Unparsable { .. })));
        assert!(matches!(parse(&[("bucket_low", "9")]), Err(CompactionOptionsError::OutOfRange { .. })));
    }

    #[test]
    fn every_class_has_its_own_options() {
        let class = ("class", "TimeWindowCompactionStrategy");
        let window = parse(&[class, ("compaction_window_unit", "HOURS"), ("compaction_window_size", "2")]);
        assert!(matches!(window.unwrap().strategy, Strategy::TimeWindow(TimeWindow { size: 2, .. })));
        let class = ("class", "LeveledCompactionStrategy");
        let leveled = parse(&[class, ("sstable_size_in_mb", "10")]).unwrap().strategy;
        assert!(matches!(leveled, Strategy::Leveled(Leveled { table_bytes: 10_485_760, .. })));
        let class = ("class", "UnifiedCompactionStrategy");
        let unified = parse(&[class, ("scaling_parameters", "T4, N, L3"), ("target_sstable_size", "2GiB")]);
        let Strategy::Unified(unified) = unified.unwrap().strategy else { panic!("not unified") };
        assert_eq!(unified.scaling, [2, 0, -1]);
    }
}
