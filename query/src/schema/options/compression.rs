//! The `compression` option of a table: the compressor and the length of blocks.
//!
//! Of LZ4 there is the fast kind: the options of the other one are checked, kept and shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{RequestError, Result};

const PACKAGE: &str = "org.apache.cassandra.io.compress.";
const DEFAULT_CHUNK_LENGTH_BYTES: u32 = 16 << 10;
/// The longest block. What holds it, whole and compressed, must fit into memory many times over.
///
/// DIFFERS: Cassandra takes up to 1 GiB.
pub const CHUNK_LENGTH_BYTES_MAX: u32 = 16 << 20;
const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = -131_072..=22;
const ZSTD_DEFAULT_LEVEL: i32 = 3;

/// How the blocks of a table are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compressor {
    /// Compression is disabled.
    None,
    /// `NoopCompressor`: for the engine equal to none, but shown as written.
    Noop,
    Lz4,
    Zstd {
        level: i32,
    },
    /// Members understand it from a feature level on, as the next one.
    Snappy,
    Deflate,
}

/// The `compression` option.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compression {
    pub compressor: Compressor,
    /// A power of two.
    pub chunk_length_bytes: u32,
    /// A block that shrinks by less than this factor is stored uncompressed; 0: no such check.
    pub min_compress_ratio: f64,
    /// Options of the compressor as written, for `DESCRIBE`.
    pub compressor_options: BTreeMap<String, String>,
}

impl Default for Compression {
    fn default() -> Self {
        Self {
            compressor: Compressor::Lz4,
            chunk_length_bytes: DEFAULT_CHUNK_LENGTH_BYTES,
            min_compress_ratio: 0.0,
            compressor_options: BTreeMap::new(),
        }
    }
}

impl Compression {
    /// No compression.
    pub fn disabled() -> Self {
        Self { compressor: Compressor::None, ..Self::default() }
    }

    /// Reads and checks the map of the `compression` option.
    pub fn from_map(map: &BTreeMap<String, String>) -> Result<Self> {
        let mut options = map.clone();
        let enabled = options.remove("enabled").is_none_or(|text| text.eq_ignore_ascii_case("true"));
        if !enabled {
            return if options.is_empty() {
                Ok(Self::disabled())
            } else {
                configuration("If the 'enabled' option is set to false no other options must be specified")
            };
        }
        if map.is_empty() {
            return Ok(Self::disabled());
        }
        let Some(class) = options.remove("class") else {
            return configuration("Missing sub-option 'class' for the 'compression' option.");
        };
        if class.is_empty() {
            return configuration(
                "The 'class' option must not be empty. To disable compression use 'enabled' : false",
            );
        }
        let chunk_length_bytes = match options.remove("chunk_length_in_kb") {
            None => DEFAULT_CHUNK_LENGTH_BYTES,
            Some(text) => chunk_length(&text)?,
        };
        let min_compress_ratio = match options.remove("min_compress_ratio") {
            None => 0.0,
            Some(text) => ratio(&text)?,
        };
        let compressor = compressor(&class, &options)?;
        Ok(Self { compressor, chunk_length_bytes, min_compress_ratio, compressor_options: options })
    }

    /// The option as `system_schema.tables` and `DESCRIBE` show it.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        let class = match self.compressor {
            Compressor::None => return BTreeMap::from([("enabled".to_owned(), "false".to_owned())]),
            Compressor::Noop => "NoopCompressor",
            Compressor::Lz4 => "LZ4Compressor",
            Compressor::Zstd { .. } => "ZstdCompressor",
            Compressor::Snappy => "SnappyCompressor",
            Compressor::Deflate => "DeflateCompressor",
        };
        let mut map = self.compressor_options.clone();
        map.insert("class".to_owned(), format!("{PACKAGE}{class}"));
        map.insert("chunk_length_in_kb".to_owned(), (self.chunk_length_bytes >> 10).to_string());
        if self.min_compress_ratio != 0.0 {
            map.insert("min_compress_ratio".to_owned(), format!("{:?}", self.min_compress_ratio));
        }
        map
    }
}

fn compressor(class: &str, options: &BTreeMap<String, String>) -> Result<Compressor> {
    let simple_name = class.strip_prefix(PACKAGE).unwrap_or(class);
    let known: &[&str] = match simple_name {
        "LZ4Compressor" => &["lz4_compressor_type", "lz4_high_compressor_level"],
        "ZstdCompressor" => &["compression_level"],
        "NoopCompressor" | "SnappyCompressor" | "DeflateCompressor" => &[],
        _ => {
            let class = if class.contains('.') { class.to_owned() } else { format!("{PACKAGE}{class}") };
            return configuration(format!("Could not create Compression for type {class}"));
        }
    };
    if let Some(unknown) = options.keys().find(|name| !known.contains(&name.as_str())) {
        return configuration(format!("Unknown compression options {unknown}"));
    }
    match simple_name {
        "LZ4Compressor" => lz4(options),
        "ZstdCompressor" => zstd(options),
        "SnappyCompressor" => Ok(Compressor::Snappy),
        "DeflateCompressor" => Ok(Compressor::Deflate),
        _ => Ok(Compressor::Noop),
    }
}

fn lz4(options: &BTreeMap<String, String>) -> Result<Compressor> {
    match options.get("lz4_compressor_type").map(String::as_str) {
        None | Some("fast" | "high") => {}
        Some(other) => {
            return configuration(format!(
                "Invalid compressor type '{other}' specified for LZ4 parameter 'lz4_compressor_type'. Valid \
                 options are [fast, high]."
            ));
        }
    }
    if let Some(text) = options.get("lz4_high_compressor_level") {
        let level = text.parse::<i32>();
        if !level.is_ok_and(|level| (1..=17).contains(&level)) {
            return configuration(format!(
                "Invalid value [{text}] for parameter 'lz4_high_compressor_level'. Value must be between 1 and 17."
            ));
        }
    }
    Ok(Compressor::Lz4)
}

fn zstd(options: &BTreeMap<String, String>) -> Result<Compressor> {
    let Some(text) = options.get("compression_level") else {
        return Ok(Compressor::Zstd { level: ZSTD_DEFAULT_LEVEL });
    };
    match text.parse::<i32>() {
        Ok(level) if ZSTD_LEVELS.contains(&level) => Ok(Compressor::Zstd { level }),
        _ => configuration(format!("compression_level={text} is invalid")),
    }
}

fn chunk_length(text: &str) -> Result<u32> {
    let Ok(kib) = text.parse::<i32>() else { return configuration("Invalid value for chunk_length_in_kb") };
    if kib > i32::MAX / 1024 {
        return configuration(format!("Value of chunk_length_in_kb is too large ({kib})"));
    }
    match u32::try_from(kib) {
        Ok(kib) if kib.is_power_of_two() && kib * 1024 > CHUNK_LENGTH_BYTES_MAX => configuration(format!(
            "Value of chunk_length_in_kb is too large ({kib}): Helenus takes at most {}",
            CHUNK_LENGTH_BYTES_MAX >> 10
        )),
        Ok(kib) if kib.is_power_of_two() => Ok(kib * 1024),
        Ok(kib) if kib > 0 => configuration("chunk_length_in_kb must be a power of 2"),
        _ => configuration("Invalid negative or null chunk_length_in_kb"),
    }
}

fn ratio(text: &str) -> Result<f64> {
    let Some(ratio) = text.parse::<f64>().ok().filter(|ratio| ratio.is_finite()) else {
        return configuration("Invalid value for min_compress_ratio");
    };
    if ratio < 0.0 {
        return configuration("Invalid negative min_compress_ratio");
    }
    if ratio > 0.0 && ratio < 1.0 {
        return configuration("min_compress_ratio can either be 0 or greater than or equal to 1");
    }
    Ok(ratio)
}

fn configuration<T>(message: impl Into<String>) -> Result<T> {
    Err(RequestError::Configuration(message.into()))
}

#[cfg(test)]
mod tests {
    use super::super::properties::tests::map_of;
    use super::*;

    fn error(entries: &[(&str, &str)]) -> String {
        Compression::from_map(&map_of(entries)).unwrap_err().to_string()
    }

    #[test]
    fn the_map_shown_reads_back_as_the_same_option() {
        let cases: [&[(&str, &str)]; 9] = [
            &[],
            &[("enabled", "false")],
            &[("class", "LZ4Compressor"), ("chunk_length_in_kb", "64"), ("enabled", "true")],
            &[("class", "org.apache.cassandra.io.compress.ZstdCompressor"), ("compression_level", "-3")],
            &[("class", "NoopCompressor")],
            &[("class", "SnappyCompressor"), ("chunk_length_in_kb", "4")],
            &[("class", "DeflateCompressor")],
            &[
                ("class", "LZ4Compressor"),
                ("lz4_compressor_type", "high"),
                ("lz4_high_compressor_level", "9"),
            ],
            &[("class", "LZ4Compressor"), ("min_compress_ratio", "2")],
        ];
        for case in cases {
            let compression = Compression::from_map(&map_of(case)).unwrap();
            assert_eq!(Compression::from_map(&compression.to_map()).unwrap(), compression);
        }
    }

    #[test]
    fn the_default_is_shown_as_cassandra_shows_it() {
        let expected =
            [("chunk_length_in_kb", "16"), ("class", "org.apache.cassandra.io.compress.LZ4Compressor")];
        assert_eq!(Compression::default().to_map(), map_of(&expected));
        let ratio = [("class", "LZ4Compressor"), ("min_compress_ratio", "2")];
        assert_eq!(Compression::from_map(&map_of(&ratio)).unwrap().to_map()["min_compress_ratio"], "2.0");
    }

    #[test]
    fn wrong_options_are_refused_with_cassandras_texts() {
        let snappy = ("class", "SnappyCompressor");
        assert_eq!(
            error(&[("chunk_length_in_kb", "32")]),
            "Missing sub-option 'class' for the 'compression' option."
        );
        assert!(error(&[("class", "")]).starts_with("The 'class' option must not be empty"));
        assert!(
            error(&[("enabled", "false"), snappy]).starts_with("If the 'enabled' option is set to false")
        );
        assert_eq!(error(&[snappy, ("chunk_length_in_kb", "31")]), "chunk_length_in_kb must be a power of 2");
        assert_eq!(
            error(&[snappy, ("chunk_length_in_kb", "-1")]),
            "Invalid negative or null chunk_length_in_kb"
        );
        let lz4 = ("class", "LZ4Compressor");
        assert_eq!(
            error(&[lz4, ("chunk_length_in_kb", "32768")]),
            "Value of chunk_length_in_kb is too large (32768): Helenus takes at most 16384"
        );
        let largest = Compression::from_map(&map_of(&[lz4, ("chunk_length_in_kb", "16384")])).unwrap();
        assert_eq!(largest.chunk_length_bytes, CHUNK_LENGTH_BYTES_MAX);
        assert_eq!(error(&[snappy, ("min_compress_ratio", "-1")]), "Invalid negative min_compress_ratio");
        assert_eq!(error(&[snappy, ("unknownOption", "32")]), "Unknown compression options unknownOption");
        assert!(error(&[("class", "Nope")]).starts_with("Could not create Compression for type org.apache"));
    }
}
