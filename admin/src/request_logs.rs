//! The audit log and the full query log: the options of their commands, and their state as text.

use std::path::PathBuf;

use crate::reports::RequestLogReport;
use crate::tables::{columns, row};

/// What is recorded in the audit log. What is not given is as in the settings of the node.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct AuditLogArguments {
    /// `FileAuditLogger`, `JsonFileAuditLogger` or `ProcessLogAuditLogger`.
    #[arg(long)]
    logger: Option<String>,
    /// Keyspaces that are recorded, separated by commas.
    #[arg(long)]
    included_keyspaces: Option<String>,
    /// Keyspaces that are not recorded.
    #[arg(long)]
    excluded_keyspaces: Option<String>,
    /// Categories that are recorded: QUERY, DML, DDL, DCL, AUTH, PREPARE, ERROR, OTHER.
    #[arg(long)]
    included_categories: Option<String>,
    /// Categories that are not recorded.
    #[arg(long)]
    excluded_categories: Option<String>,
    /// Roles that are recorded.
    #[arg(long)]
    included_users: Option<String>,
    /// Roles that are not recorded.
    #[arg(long)]
    excluded_users: Option<String>,
    /// How often a new file begins at the latest: MINUTELY, HOURLY or DAILY.
    #[arg(long)]
    roll_cycle: Option<String>,
    /// Whether requests wait for room in the queue; otherwise entries are dropped and counted.
    #[arg(long, alias = "blocking")]
    block: Option<bool>,
    /// Bytes of entries that may wait to be written.
    #[arg(long)]
    max_queue_weight: Option<u64>,
    /// Bytes of all files above which the oldest is removed.
    #[arg(long)]
    max_log_size: Option<u64>,
}

/// How requests are recorded in the full query log. What is not given is as in the settings of the node.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct QueryLogArguments {
    /// The directory of the files, on the machine of the node.
    #[arg(long)]
    path: Option<PathBuf>,
    /// How often a new file begins at the latest: MINUTELY, HOURLY or DAILY.
    #[arg(long)]
    roll_cycle: Option<String>,
    /// Whether requests wait for room in the queue; otherwise records are dropped and counted.
    #[arg(long, alias = "blocking")]
    block: Option<bool>,
    /// Bytes of records that may wait to be written.
    #[arg(long)]
    max_queue_weight: Option<u64>,
    /// Bytes of all files above which the oldest is removed.
    #[arg(long)]
    max_log_size: Option<u64>,
}

fn given<const COUNT: usize>(
    options: [(&'static str, Option<String>); COUNT],
) -> Vec<(&'static str, String)> {
    options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn text(value: Option<&impl ToString>) -> Option<String> {
    value.map(ToString::to_string)
}

impl AuditLogArguments {
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        given([
            ("logger", self.logger.clone()),
            ("included_keyspaces", self.included_keyspaces.clone()),
            ("excluded_keyspaces", self.excluded_keyspaces.clone()),
            ("included_categories", self.included_categories.clone()),
            ("excluded_categories", self.excluded_categories.clone()),
            ("included_users", self.included_users.clone()),
            ("excluded_users", self.excluded_users.clone()),
            ("roll_cycle", self.roll_cycle.clone()),
            ("block", text(self.block.as_ref())),
            ("max_queue_weight", text(self.max_queue_weight.as_ref())),
            ("max_log_size", text(self.max_log_size.as_ref())),
        ])
    }
}

impl QueryLogArguments {
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        let path = self.path.as_ref();
        // A relative path is relative to the directory of the command, which the node does not know.
        let path = path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        given([
            ("path", path.map(|path| path.to_string_lossy().into_owned())),
            ("roll_cycle", self.roll_cycle.clone()),
            ("block", text(self.block.as_ref())),
            ("max_queue_weight", text(self.max_queue_weight.as_ref())),
            ("max_log_size", text(self.max_log_size.as_ref())),
        ])
    }
}

/// The options, as nodetool has them.
pub(crate) fn options(report: &RequestLogReport) -> String {
    let mut rows = vec![row(&["enabled", &report.enabled.to_string()])];
    rows.extend(report.options.iter().map(|(name, value)| row(&[name, value])));
    columns(&rows)
}

/// The options, and what became of the records.
pub(crate) fn state(report: &RequestLogReport) -> String {
    let mut rows = vec![row(&["enabled", &report.enabled.to_string()])];
    rows.extend(report.options.iter().map(|(name, value)| row(&[name, value])));
    for (name, count) in
        [("written", report.written), ("dropped", report.dropped), ("write_errors", report.write_errors)]
    {
        rows.push(row(&[name, &count.to_string()]));
    }
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_log_is_readable() {
        let report = RequestLogReport {
            enabled: true,
            options: vec![("logger".to_owned(), "FileAuditLogger".to_owned())],
            written: 7,
            ..RequestLogReport::default()
        };
        assert_eq!(options(&report), "enabled  true\nlogger   FileAuditLogger\n");
        assert!(state(&report).contains("written       7\ndropped       0\n"), "{}", state(&report));
    }
}
