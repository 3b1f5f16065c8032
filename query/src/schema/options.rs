//! The options of a table, typed: Cassandra 5.0's names, defaults, checks and error texts.
//!
//! Invariants:
//! * A `TableOptions` that came from [`TableOptions::create`] or [`TableOptions::alter`] is valid.
//! * An option whose effect Helenus does not implement is refused unless it has its default. Options that only advise
//!   (caching, index intervals, retries between replicas), and extensions are stored and shown.

pub mod caching;
pub mod cap;
pub mod compaction;
pub mod compression;
pub mod encryption;
pub mod grace;
pub mod properties;
pub mod rate_limit;
pub mod replication;
pub mod speculative_retry;
pub mod tombstone_gc;

use std::collections::BTreeMap;

use cql_lite::types::literal::parse_hex;
use helenus_feed_tables::options::stored;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::caching::Caching;
pub use self::cap::{Cap, Standing};
pub use self::compaction::{Compaction, CompactionClass};
pub use self::compression::{CHUNK_LENGTH_BYTES_MAX, Compression, Compressor};
pub use self::grace::EarlierGrace;
pub use self::properties::Properties;
pub use self::rate_limit::RateLimit;
pub use self::replication::{DataCenters, KeyspaceOptions, replication_warnings};
pub use self::speculative_retry::SpeculativeRetry;
pub use self::tombstone_gc::{TombstoneGc, TombstoneGcMode};
use crate::error::{RequestError, Result};
pub use helenus_feed_tables::{ChangeFeedOptions, Delta, FeedHistory, Preimage};

/// The longest time to live: 20 years of 365 days.
pub const MAX_TIME_TO_LIVE_SECONDS: i32 = 20 * 365 * 24 * 3_600;
/// Below this false positive rate Bloom filters get too large.
const MIN_BLOOM_FILTER_FP_CHANCE: f64 = 6.71e-5;

const ADDITIONAL_WRITE_POLICY: &str = "additional_write_policy";
const ALLOW_AUTO_SNAPSHOT: &str = "allow_auto_snapshot";
const BLOOM_FILTER_FP_CHANCE: &str = "bloom_filter_fp_chance";
const CACHING: &str = "caching";
const CAP: &str = "cap";
const CDC: &str = "cdc";
const COMMENT: &str = "comment";
const COMPACTION: &str = "compaction";
const COMPRESSION: &str = "compression";
const CRC_CHECK_CHANCE: &str = "crc_check_chance";
const DEFAULT_TIME_TO_LIVE: &str = "default_time_to_live";
const ENCRYPTION: &str = "encryption";
const EXTENSIONS: &str = "extensions";
const GC_GRACE_SECONDS: &str = "gc_grace_seconds";
const ID: &str = "id";
const INCREMENTAL_BACKUPS: &str = "incremental_backups";
const MAX_CHARGE: &str = "max_charge";
const MAX_INDEX_INTERVAL: &str = "max_index_interval";
const MEMTABLE: &str = "memtable";
const MEMTABLE_FLUSH_PERIOD_IN_MS: &str = "memtable_flush_period_in_ms";
const MIN_INDEX_INTERVAL: &str = "min_index_interval";
const PER_PARTITION_RATE_LIMIT: &str = "per_partition_rate_limit";
const RATE_LIMIT: &str = "rate_limit";
const READ_REPAIR: &str = "read_repair";
const SPECULATIVE_RETRY: &str = "speculative_retry";
const TOMBSTONE_GC: &str = "tombstone_gc";

const KNOWN: [&str; 26] = [
    ADDITIONAL_WRITE_POLICY,
    ALLOW_AUTO_SNAPSHOT,
    BLOOM_FILTER_FP_CHANCE,
    CACHING,
    CAP,
    CDC,
    COMMENT,
    COMPACTION,
    COMPRESSION,
    CRC_CHECK_CHANCE,
    DEFAULT_TIME_TO_LIVE,
    ENCRYPTION,
    EXTENSIONS,
    GC_GRACE_SECONDS,
    ID,
    INCREMENTAL_BACKUPS,
    MAX_CHARGE,
    MAX_INDEX_INTERVAL,
    MEMTABLE,
    MEMTABLE_FLUSH_PERIOD_IN_MS,
    MIN_INDEX_INTERVAL,
    PER_PARTITION_RATE_LIMIT,
    RATE_LIMIT,
    READ_REPAIR,
    SPECULATIVE_RETRY,
    TOMBSTONE_GC,
];

/// The handling of replicas whose answers to a read differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadRepair {
    Blocking,
    None,
}

impl ReadRepair {
    /// The name in `system_schema.tables`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocking => "BLOCKING",
            Self::None => "NONE",
        }
    }
}

/// All options of a table. The field names are the names of the options.
#[expect(clippy::struct_excessive_bools, reason = "each is an option that is on or off")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TableOptions {
    pub additional_write_policy: SpeculativeRetry,
    pub allow_auto_snapshot: bool,
    /// In (0, 1].
    pub bloom_filter_fp_chance: f64,
    pub caching: Caching,
    /// The rows that a partition keeps; `None`: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Cap>,
    /// The table's change feed; `None`: it never had one, or `cdc = false` took it away.
    #[serde(with = "stored")]
    pub cdc: Option<ChangeFeedOptions>,
    pub comment: String,
    pub compaction: Compaction,
    pub compression: Compression,
    /// In [0, 1].
    pub crc_check_chance: f64,
    /// In seconds; 0: values live for ever.
    pub default_time_to_live: u32,
    /// Whether every node encrypts the files of the table. Otherwise each does as its settings say.
    #[serde(rename = "encryption", skip_serializing_if = "std::ops::Not::not")]
    pub is_encrypted: bool,
    /// Shorter times of delivery that held before ([`grace`]).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier_graces: Vec<EarlierGrace>,
    /// Opaque bytes by name.
    pub extensions: BTreeMap<String, Vec<u8>>,
    /// From when on the log of a change feed is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feed_history: Option<FeedHistory>,
    pub gc_grace_seconds: u32,
    pub incremental_backups: bool,
    /// The table is the log of a change feed. It can be neither given nor altered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_feed_log: bool,
    /// The most that a request may be charged; `None`: any charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_charge: Option<u64>,
    pub max_index_interval: u32,
    /// The name of a memtable configuration; only `default`.
    pub memtable: String,
    pub memtable_flush_period_in_ms: u32,
    pub min_index_interval: u32,
    /// The requests a second that a node coordinates for each partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_partition_rate_limit: Option<RateLimit>,
    /// The requests a second that a node coordinates for the whole table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    pub read_repair: ReadRepair,
    pub speculative_retry: SpeculativeRetry,
    /// `None`: not set; see [`TableOptions::tombstone_gc`].
    #[serde(rename = "tombstone_gc", skip_serializing_if = "Option::is_none")]
    pub set_tombstone_gc: Option<TombstoneGc>,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            additional_write_policy: SpeculativeRetry::default(),
            allow_auto_snapshot: true,
            bloom_filter_fp_chance: 0.01,
            caching: Caching::default(),
            cap: None,
            cdc: None,
            comment: String::new(),
            compaction: Compaction::default(),
            compression: Compression::default(),
            crc_check_chance: 1.0,
            default_time_to_live: 0,
            is_encrypted: false,
            earlier_graces: Vec::new(),
            extensions: BTreeMap::new(),
            feed_history: None,
            gc_grace_seconds: 864_000,
            incremental_backups: true,
            is_feed_log: false,
            max_charge: None,
            max_index_interval: 2_048,
            memtable: "default".to_owned(),
            memtable_flush_period_in_ms: 0,
            min_index_interval: 128,
            per_partition_rate_limit: None,
            rate_limit: None,
            read_repair: ReadRepair::Blocking,
            speculative_retry: SpeculativeRetry::default(),
            set_tombstone_gc: None,
        }
    }
}

impl TableOptions {
    /// The options of a new table, and the requested id (`WITH id = …`).
    pub fn create(properties: &Properties) -> Result<(Self, Option<Uuid>)> {
        encryption::refuse_scylla(properties)?;
        properties.refuse_unknown(&KNOWN)?;
        let id = match properties.text(ID)? {
            None => None,
            Some(text) => {
                let id = Uuid::parse_str(text);
                Some(id.map_err(|_| RequestError::Configuration("Invalid table id".to_owned()))?)
            }
        };
        let mut options = Self::default();
        options.apply(properties)?;
        if !properties.contains(BLOOM_FILTER_FP_CHANCE)
            && options.compaction.class == CompactionClass::Leveled
        {
            options.bloom_filter_fp_chance = 0.1;
        }
        options.validate()?;
        Ok((options, id))
    }

    /// These options, with the given ones replaced.
    pub fn alter(&self, properties: &Properties) -> Result<Self> {
        encryption::refuse_scylla(properties)?;
        properties.refuse_unknown(&KNOWN)?;
        if properties.contains(ID) {
            return configuration("Cannot alter table id.");
        }
        let mut options = self.clone();
        options.apply(properties)?;
        options.validate()?;
        Ok(options)
    }

    /// When deletions of a table may be purged whose keyspace keeps this many replicas of a row.
    pub fn tombstone_gc(&self, replica_count: u32) -> TombstoneGc {
        self.set_tombstone_gc.unwrap_or_else(|| TombstoneGc::of_unset(replica_count, self.gc_grace_seconds))
    }

    /// How long a write of now may be under way to a replica that has missed it: until then its deletions elsewhere are not purged.
    pub fn delivery_seconds(&self) -> u32 {
        if self.is_feed_log {
            // Entries are never deleted: they may always be delivered.
            return Self::default().gc_grace_seconds;
        }
        match self.set_tombstone_gc.map(|option| option.mode) {
            Some(TombstoneGcMode::Immediate) => 0,
            _ => self.gc_grace_seconds,
        }
    }

    /// The change feed that writes to the table are written to.
    #[inline]
    pub fn feed(&self) -> Option<&ChangeFeedOptions> {
        self.cdc.as_ref().filter(|feed| feed.enabled)
    }

    /// Whether requests to the table have a limit.
    #[inline]
    pub fn has_rate_limit(&self) -> bool {
        self.per_partition_rate_limit.is_some() | self.rate_limit.is_some()
    }

    fn apply(&mut self, properties: &Properties) -> Result<()> {
        set(&mut self.allow_auto_snapshot, properties.boolean(ALLOW_AUTO_SNAPSHOT)?);
        set(&mut self.bloom_filter_fp_chance, properties.double(BLOOM_FILTER_FP_CHANCE)?);
        if let Some(map) = properties.map(CACHING)? {
            self.caching = Caching::from_map(map)?;
        }
        if let Some(cap) = Cap::from_properties(properties, CAP)? {
            self.cap = Some(cap);
        }
        if properties.is_map(CDC) {
            let options = properties.map(CDC)?.map(ChangeFeedOptions::from_map).transpose();
            self.cdc = options.map_err(|error| RequestError::Configuration(error.to_string()))?;
        } else if let Some(is_on) = properties.boolean(CDC)? {
            self.cdc = is_on.then(ChangeFeedOptions::default);
        }
        set(&mut self.comment, properties.text(COMMENT)?.map(str::to_owned));
        if let Some(map) = properties.map(COMPACTION)? {
            self.compaction = Compaction::from_map(map)?;
        }
        if let Some(map) = properties.map(COMPRESSION)? {
            self.compression = Compression::from_map(map)?;
        }
        set(&mut self.crc_check_chance, properties.double(CRC_CHECK_CHANCE)?);
        set(&mut self.default_time_to_live, not_negative(properties, DEFAULT_TIME_TO_LIVE)?);
        if let Some(map) = properties.map(ENCRYPTION)? {
            self.is_encrypted = encryption::from_map(map)?;
        }
        if let Some(map) = properties.map(EXTENSIONS)? {
            self.extensions = extensions(map)?;
        }
        set(&mut self.gc_grace_seconds, not_negative(properties, GC_GRACE_SECONDS)?);
        set(&mut self.incremental_backups, properties.boolean(INCREMENTAL_BACKUPS)?);
        if let Some(charge) = max_charge(properties)? {
            self.max_charge = (charge > 0).then_some(charge);
        }
        set(&mut self.memtable, properties.text(MEMTABLE)?.map(str::to_owned));
        set(&mut self.memtable_flush_period_in_ms, not_negative(properties, MEMTABLE_FLUSH_PERIOD_IN_MS)?);
        self.apply_index_intervals(properties)?;
        if let Some(map) = properties.map(PER_PARTITION_RATE_LIMIT)? {
            self.per_partition_rate_limit = RateLimit::from_map(PER_PARTITION_RATE_LIMIT, map)?;
        }
        if let Some(map) = properties.map(RATE_LIMIT)? {
            self.rate_limit = RateLimit::from_map(RATE_LIMIT, map)?;
        }
        if let Some(text) = properties.text(READ_REPAIR)? {
            self.read_repair = read_repair(text)?;
        }
        if let Some(text) = properties.text(SPECULATIVE_RETRY)? {
            self.speculative_retry = SpeculativeRetry::parse(text)?;
        }
        if let Some(map) = properties.map(TOMBSTONE_GC)? {
            self.set_tombstone_gc = TombstoneGc::from_map(map)?;
        }
        if let Some(text) = properties.text(ADDITIONAL_WRITE_POLICY)? {
            self.additional_write_policy = SpeculativeRetry::parse(text)?;
        }
        Ok(())
    }

    fn apply_index_intervals(&mut self, properties: &Properties) -> Result<()> {
        let min = properties.integer(MIN_INDEX_INTERVAL)?;
        let max = properties.integer(MAX_INDEX_INTERVAL)?;
        let min = min.unwrap_or(self.min_index_interval as i32);
        let max = max.unwrap_or(self.max_index_interval as i32);
        if min < 1 {
            return configuration(format!(
                "{MIN_INDEX_INTERVAL} must be greater than or equal to 1 (got {min})"
            ));
        }
        if max < min {
            return configuration(format!(
                "{MAX_INDEX_INTERVAL} must be greater than or equal to {MIN_INDEX_INTERVAL} ({min}) (got {max})"
            ));
        }
        self.min_index_interval = min.unsigned_abs();
        self.max_index_interval = max.unsigned_abs();
        Ok(())
    }

    fn validate(&self) -> Result<()> {
        let chance = self.bloom_filter_fp_chance;
        if !(chance > MIN_BLOOM_FILTER_FP_CHANCE && chance <= 1.0) {
            return configuration(format!(
                "{BLOOM_FILTER_FP_CHANCE} must be larger than 6.71E-5 and less than or equal to 1.0 (got {chance:?})"
            ));
        }
        let chance = self.crc_check_chance;
        if !(0.0..=1.0).contains(&chance) {
            return configuration(format!(
                "{CRC_CHECK_CHANCE} must be larger than or equal to 0 and smaller than or equal to 1.0 (got {chance:?})"
            ));
        }
        if self.default_time_to_live > MAX_TIME_TO_LIVE_SECONDS as u32 {
            return configuration(format!(
                "{DEFAULT_TIME_TO_LIVE} must be less than or equal to {MAX_TIME_TO_LIVE_SECONDS} (got {})",
                self.default_time_to_live
            ));
        }
        if self.cap.is_some() && self.default_time_to_live > 0 {
            return configuration(format!(
                "{DEFAULT_TIME_TO_LIVE} is not supported on tables with a {CAP} yet: rows that expire would make room for evicted ones"
            ));
        }
        if self.is_feed_log && self.cdc.is_some() {
            return configuration("Cannot create a CDC log for a CDC log table");
        }
        if self.memtable != "default" {
            return configuration(format!("Memtable configuration \"{}\" not found.", self.memtable));
        }
        Ok(())
    }
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

fn not_negative(properties: &Properties, name: &str) -> Result<Option<u32>> {
    let Some(value) = properties.integer(name)? else { return Ok(None) };
    u32::try_from(value).map(Some).map_err(|_| {
        RequestError::Configuration(format!("{name} must be greater than or equal to 0 (got {value})"))
    })
}

/// 0: any charge.
fn max_charge(properties: &Properties) -> Result<Option<u64>> {
    let Some(text) = properties.text(MAX_CHARGE)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        RequestError::Configuration(format!(
            "{MAX_CHARGE} must be a whole number from 0 (no limit), not {text}"
        ))
    })
}

/// Bytes by name, written as blobs.
fn extensions(map: &BTreeMap<String, String>) -> Result<BTreeMap<String, Vec<u8>>> {
    let entries = map.iter().map(|(name, text)| {
        let bytes = text.starts_with("0x").then(|| parse_hex(text).ok()).flatten();
        let bytes = bytes.ok_or_else(|| {
            RequestError::Configuration(format!(
                "Invalid value '{text}' for extension '{name}': only blobs (0x…) are allowed"
            ))
        })?;
        Ok((name.clone(), bytes))
    });
    entries.collect()
}

fn read_repair(text: &str) -> Result<ReadRepair> {
    match text.to_uppercase().as_str() {
        "BLOCKING" => Ok(ReadRepair::Blocking),
        "NONE" => Ok(ReadRepair::None),
        _ => configuration(format!("Invalid value {text} for option '{READ_REPAIR}': use BLOCKING or NONE")),
    }
}

fn configuration<T>(message: impl Into<String>) -> Result<T> {
    Err(RequestError::Configuration(message.into()))
}

#[cfg(test)]
mod tests {
    use super::properties::tests::{one_map, texts};
    use super::*;

    fn create(entries: &[(&str, &str)]) -> Result<TableOptions> {
        TableOptions::create(&texts(entries)).map(|(options, _)| options)
    }

    fn error(entries: &[(&str, &str)]) -> String {
        create(entries).unwrap_err().to_string()
    }

    #[test]
    fn no_properties_are_cassandras_defaults() {
        let options = create(&[]).unwrap();
        assert_eq!(options, TableOptions::default());
        assert_eq!(options.speculative_retry.to_string(), "99p");
        assert_eq!(options.read_repair.name(), "BLOCKING");
    }

    #[test]
    fn given_properties_replace_options_and_the_others_stay() {
        let before = create(&[("comment", "a"), ("gc_grace_seconds", "10")]).unwrap();
        let after = before.alter(&texts(&[("comment", "b"), ("default_time_to_live", "60")])).unwrap();
        assert_eq!(
            (after.comment.as_str(), after.gc_grace_seconds, after.default_time_to_live),
            ("b", 10, 60)
        );
    }

    #[test]
    fn leveled_compaction_lowers_the_default_of_the_bloom_filter() {
        let leveled = one_map("compaction", &[("class", "LeveledCompactionStrategy")]);
        let (options, _) = TableOptions::create(&leveled).unwrap();
        assert!((options.bloom_filter_fp_chance - 0.1).abs() < f64::EPSILON);
    }

    #[test]
    fn an_id_may_be_requested_at_creation_only() {
        let id = "5bc52802-de25-35ed-aeab-188eecebb090";
        let properties = texts(&[("id", id)]);
        let (options, chosen) = TableOptions::create(&properties).unwrap();
        assert_eq!(chosen.unwrap().to_string(), id);
        assert_eq!(options.alter(&properties).unwrap_err().to_string(), "Cannot alter table id.");
        assert_eq!(error(&[("id", "x")]), "Invalid table id");
    }

    #[test]
    fn wrong_values_are_refused_with_cassandras_texts() {
        assert!(matches!(create(&[("default_validation", "x")]), Err(RequestError::Syntax(_))));
        assert_eq!(error(&[("default_validation", "x")]), "Unknown property 'default_validation'");
        assert_eq!(
            error(&[("bloom_filter_fp_chance", "0")]),
            "bloom_filter_fp_chance must be larger than 6.71E-5 and less than or equal to 1.0 (got 0.0)"
        );
        assert_eq!(
            error(&[("default_time_to_live", "-1")]),
            "default_time_to_live must be greater than or equal to 0 (got -1)"
        );
        assert_eq!(
            error(&[("default_time_to_live", "630720001")]),
            "default_time_to_live must be less than or equal to 630720000 (got 630720001)"
        );
        assert_eq!(
            error(&[("min_index_interval", "10"), ("max_index_interval", "5")]),
            "max_index_interval must be greater than or equal to min_index_interval (10) (got 5)"
        );
        assert_eq!(
            error(&[("gc_grace_seconds", "soon")]),
            "Invalid integer value soon for 'gc_grace_seconds'"
        );
        assert!(error(&[("crc_check_chance", "1.5")]).ends_with("(got 1.5)"));
        assert!(error(&[("crc_check_chance", "NaN")]).starts_with("crc_check_chance must be"));
        assert!(error(&[("read_repair", "ASYNC")]).contains("BLOCKING or NONE"));
    }

    #[test]
    fn unsupported_options_are_refused() {
        assert_eq!(error(&[("memtable", "trie")]), "Memtable configuration \"trie\" not found.");
        create(&[("memtable", "default"), ("memtable_flush_period_in_ms", "100")]).unwrap();
    }

    #[test]
    fn a_change_feed_is_turned_on_and_off_by_a_flag_or_a_map() {
        let on = create(&[("cdc", "true")]).unwrap();
        assert_eq!(on.feed(), Some(&ChangeFeedOptions::default()));
        assert_eq!(on.alter(&texts(&[("comment", "x")])).unwrap().cdc, on.cdc);
        assert_eq!(on.alter(&texts(&[("cdc", "false")])).unwrap().cdc, None);
        let off = on.alter(&one_map("cdc", &[("enabled", "false"), ("ttl", "7")])).unwrap();
        assert_eq!((off.feed(), off.cdc.unwrap().ttl_seconds), (None, 7));
        assert_eq!(
            error(&[("cdc", "perhaps")]).split(". ").next().unwrap(),
            "Invalid boolean value perhaps for 'cdc'"
        );
        let unknown = on.alter(&one_map("cdc", &[("enabled", "true"), ("size", "1")]));
        assert_eq!(unknown.unwrap_err().to_string(), "Invalid CDC option: size");
    }

    #[test]
    fn the_most_that_a_request_is_charged_is_set_and_taken_away() {
        let limited = create(&[("max_charge", "18446744073709551615")]).unwrap();
        assert_eq!(limited.max_charge, Some(u64::MAX));
        assert_eq!(limited.alter(&texts(&[("comment", "x")])).unwrap().max_charge, Some(u64::MAX));
        assert_eq!(limited.alter(&texts(&[("max_charge", "0")])).unwrap().max_charge, None);
        assert!(!serde_json::to_string(&TableOptions::default()).unwrap().contains("max_charge"));
        for wrong in ["-1", "1.5", "many", "", "18446744073709551616"] {
            let expected = format!("max_charge must be a whole number from 0 (no limit), not {wrong}");
            assert_eq!(error(&[("max_charge", wrong)]), expected);
        }
    }

    #[test]
    fn extensions_are_blobs_and_replaced_together() {
        let (options, _) =
            TableOptions::create(&one_map("extensions", &[("a", "0x00ff"), ("b", "0x")])).unwrap();
        let expected = [("a".to_owned(), vec![0, 0xff]), ("b".to_owned(), Vec::new())];
        assert_eq!(options.extensions, BTreeMap::from(expected));
        let kept = options.alter(&texts(&[("comment", "x")])).unwrap();
        assert_eq!(kept.extensions, options.extensions);
        assert!(options.alter(&one_map("extensions", &[])).unwrap().extensions.is_empty());
        for wrong in ["text", "ff", "0xf", "0xgg"] {
            TableOptions::create(&one_map("extensions", &[("a", wrong)])).unwrap_err();
        }
    }
}
