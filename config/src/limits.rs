//! The largest mutation, as it follows from the settings: one limit for all ways in, below the limit of every layer.
//!
//! A mutation of this size, and whatever a hint, a batch log or a transaction puts around it (the *envelope*), has room in a record of
//! the commit log, in a memtable, in a block of a table file, and in a message between nodes.

use helenus_engine::mutation::WRITE_BYTES_MAX;

use crate::data_size::DataSize;
use crate::error::ConfigError;
use crate::settings::Config;

/// Most bytes that are stored or sent together with a mutation: a partition key, and the state of a transaction.
pub const ENVELOPE_BYTES: u64 = 128 << 10;

/// The largest mutation that can be configured.
pub const MUTATION_BYTES_MAX: u64 = WRITE_BYTES_MAX as u64 - ENVELOPE_BYTES;
const _: () = assert!(ENVELOPE_BYTES > 2 * helenus_engine::key::MAX_PARTITION_KEY_BYTES as u64);

impl Config {
    /// The largest mutation, in bytes.
    pub fn mutation_bytes_max(&self) -> usize {
        let half = self.commit_log_segment_bytes / 2;
        let bytes = match self.max_mutation_size {
            Some(DataSize(bytes)) => bytes,
            // Tests have segments that are smaller than the envelope.
            None => half.saturating_sub(ENVELOPE_BYTES).max(half / 2),
        };
        usize::try_from(bytes.min(MUTATION_BYTES_MAX)).unwrap_or(usize::MAX)
    }

    /// Checks that every layer has room for the largest mutation.
    pub(crate) fn check_mutation_size(&self) -> Result<(), ConfigError> {
        let refused = |key, message| Err(ConfigError::Value { key, message });
        let half = self.commit_log_segment_bytes / 2;
        let largest = DataSize(MUTATION_BYTES_MAX);
        match self.max_mutation_size {
            None if half > MUTATION_BYTES_MAX + ENVELOPE_BYTES => {
                let segment = DataSize(2 * (MUTATION_BYTES_MAX + ENVELOPE_BYTES));
                return refused(
                    "commit_log_segment_bytes",
                    format!(
                        "half of it is the largest mutation, which may be at most {largest}: set max_mutation_size, or segments of at most {segment}"
                    ),
                );
            }
            Some(DataSize(bytes)) if bytes > MUTATION_BYTES_MAX => {
                return refused("max_mutation_size", format!("must be at most {largest}"));
            }
            Some(DataSize(bytes)) if bytes + ENVELOPE_BYTES > half => {
                let segment = DataSize(2 * (bytes + ENVELOPE_BYTES));
                return refused(
                    "max_mutation_size",
                    format!("needs commit_log_segment_bytes of at least {} ({segment})", segment.0),
                );
            }
            _ => {}
        }
        let message = self.mutation_bytes_max() as u64 + ENVELOPE_BYTES;
        if u64::from(self.max_internode_frame_bytes) < message {
            return refused(
                "max_internode_frame_bytes",
                format!("must have room for the largest mutation: at least {message} bytes"),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(config: &Config) -> String {
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn the_largest_mutation_follows_from_the_segments() {
        let config = Config::default();
        config.validate().unwrap();
        assert_eq!(config.mutation_bytes_max(), (16 << 20) - (128 << 10));
        let config = Config { commit_log_segment_bytes: 64 << 20, ..config };
        config.validate().unwrap();
        assert_eq!(config.mutation_bytes_max() as u64, MUTATION_BYTES_MAX);
        let config = Config { max_mutation_size: Some(DataSize(48 << 10)), ..config };
        config.validate().unwrap();
        assert_eq!(config.mutation_bytes_max(), 48 << 10);
    }

    #[test]
    fn segments_too_large_or_too_small_for_a_mutation_are_refused() {
        let config = Config { commit_log_segment_bytes: 512 << 20, ..Config::default() };
        assert_eq!(
            error_text(&config),
            "setting 'commit_log_segment_bytes': half of it is the largest mutation, which may be at most 32640KiB: set max_mutation_size, or segments of at most 64MiB"
        );
        Config { max_mutation_size: Some(DataSize(16 << 20)), ..config }.validate().unwrap();
        let config = Config { max_mutation_size: Some(DataSize(16 << 20)), ..Config::default() };
        assert_eq!(
            error_text(&config),
            "setting 'max_mutation_size': needs commit_log_segment_bytes of at least 33816576 (33024KiB)"
        );
        let config = Config { max_mutation_size: Some(DataSize(64 << 20)), ..Config::default() };
        assert_eq!(error_text(&config), "setting 'max_mutation_size': must be at most 32640KiB");
        let config = Config { max_internode_frame_bytes: 1 << 20, ..Config::default() };
        assert_eq!(
            error_text(&config),
            "setting 'max_internode_frame_bytes': must have room for the largest mutation: at least 16777216 bytes"
        );
    }
}
