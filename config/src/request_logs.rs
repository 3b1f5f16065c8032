//! The audit log and the full query log from the settings.

use std::collections::BTreeSet;
use std::path::PathBuf;

use helenus_audit::audit_log::{AuditFilters, AuditOptions, LogError, Logger};
use helenus_audit::query_log::QueryLogOptions;
use helenus_audit::rotation::{RollCycle, Rotation};

use crate::data_size::DataSize;
use crate::error::ConfigError;
use crate::settings::Config;

/// The directories of the logs within the data directory.
const AUDIT_DIRECTORY: &str = "audit";
const QUERY_DIRECTORY: &str = "full_query_log";

fn refused(key: &'static str) -> impl Fn(LogError) -> ConfigError {
    move |error| ConfigError::Value { key, message: error.to_string() }
}

fn cycle(key: &'static str, name: &str) -> Result<RollCycle, ConfigError> {
    RollCycle::from_name(name).ok_or_else(|| refused(key)(LogError::RollCycle(name.to_owned())))
}

fn bytes(size: DataSize) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

fn names(list: &[String]) -> BTreeSet<String> {
    list.iter().cloned().collect()
}

impl Config {
    fn log_directory(&self, given: Option<&PathBuf>, default: &str) -> PathBuf {
        given.cloned().unwrap_or_else(|| self.data_dir.join(default))
    }

    /// The options of the audit log.
    pub fn audit_log(&self) -> Result<AuditOptions, ConfigError> {
        let logger = &self.audit_logging_logger;
        let filters = AuditFilters {
            included_keyspaces: names(&self.audit_logging_included_keyspaces),
            excluded_keyspaces: names(&self.audit_logging_excluded_keyspaces),
            included_categories: names(&self.audit_logging_included_categories),
            excluded_categories: names(&self.audit_logging_excluded_categories),
            included_users: names(&self.audit_logging_included_users),
            excluded_users: names(&self.audit_logging_excluded_users),
        };
        Ok(AuditOptions {
            logger: Logger::from_name(logger)
                .ok_or_else(|| refused("audit_logging_logger")(LogError::Logger(logger.clone())))?,
            rotation: Rotation {
                directory: self.log_directory(self.audit_logging_logs_dir.as_ref(), AUDIT_DIRECTORY),
                file_bytes_max: self.audit_logging_max_file_size.0,
                log_bytes_max: self.audit_logging_max_log_size.0,
                files_max: self.audit_logging_max_files,
                cycle: cycle("audit_logging_roll_cycle", &self.audit_logging_roll_cycle)?,
            },
            blocks: self.audit_logging_block,
            queue_bytes_max: bytes(self.audit_logging_max_queue_weight),
            filters: filters.checked().map_err(refused("audit_logging_included_categories"))?,
        })
    }

    /// The options of the full query log.
    pub fn full_query_log(&self) -> Result<QueryLogOptions, ConfigError> {
        Ok(QueryLogOptions {
            rotation: Rotation {
                directory: self.log_directory(self.full_query_logging_log_dir.as_ref(), QUERY_DIRECTORY),
                file_bytes_max: self.full_query_logging_max_file_size.0,
                log_bytes_max: self.full_query_logging_max_log_size.0,
                files_max: 0,
                cycle: cycle("full_query_logging_roll_cycle", &self.full_query_logging_roll_cycle)?,
            },
            blocks: self.full_query_logging_block,
            queue_bytes_max: bytes(self.full_query_logging_max_queue_weight),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_lie_in_the_data_directory_unless_they_are_told_where() {
        let config = Config { data_dir: PathBuf::from("/d"), ..Config::default() };
        assert_eq!(config.audit_log().unwrap().rotation.directory, PathBuf::from("/d/audit"));
        let config = Config { full_query_logging_log_dir: Some(PathBuf::from("/q")), ..config };
        assert_eq!(config.full_query_log().unwrap().rotation.directory, PathBuf::from("/q"));
        assert_eq!(config.full_query_log().unwrap().queue_bytes_max, 32 << 20);
    }

    #[test]
    fn what_there_is_not_is_refused_by_name() {
        let refused = |config: Config| config.validate().unwrap_err().to_string();
        let config = Config { audit_logging_logger: "BinAuditLogger".to_owned(), ..Config::default() };
        assert!(refused(config).starts_with("setting 'audit_logging_logger': there is no audit logger"));
        let categories = vec!["DML".to_owned(), "SOME".to_owned()];
        let config = Config { audit_logging_excluded_categories: categories, ..Config::default() };
        assert!(refused(config).contains("'SOME' is no category"));
        let config = Config { full_query_logging_roll_cycle: "WEEKLY".to_owned(), ..Config::default() };
        assert!(refused(config).starts_with("setting 'full_query_logging_roll_cycle': 'WEEKLY' is no roll"));
    }
}
