//! `helenus admin denylist`: partitions that clients may not use.

use clap::Subcommand;

use crate::http::Method;
use crate::reports::{DeniedPartitionReport, DenylistReport, RuntimeSettings};
use crate::tables::{columns, row};

/// What is done with the list.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum DenylistCommand {
    /// Denies a partition to clients, on all nodes.
    Add(PartitionArguments),
    /// Denies it no more.
    Remove(PartitionArguments),
    /// Whether it is denied.
    Check(PartitionArguments),
    /// The denied partitions.
    List {
        /// Of this keyspace only.
        keyspace: Option<String>,
        /// Of this table of it only.
        table: Option<String>,
    },
    /// What this node makes of the list.
    Settings,
    /// Changes one of these settings of this node, until its next start.
    Set {
        #[arg(value_parser = SETTINGS)]
        name: String,
        value: String,
    },
}

/// The settings that can be changed while a node runs.
pub const SETTINGS: [&str; 6] = [
    "partition_denylist_enabled",
    "denylist_writes_enabled",
    "denylist_reads_enabled",
    "denylist_range_reads_enabled",
    "denylist_max_keys_per_table",
    "denylist_max_keys_total",
];

/// A partition.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PartitionArguments {
    keyspace: String,
    table: String,
    /// The partition key; the parts of a composite one are separated by `:`.
    #[arg(allow_hyphen_values = true)]
    key: String,
}

impl PartitionArguments {
    fn parameters(&self) -> Vec<(&'static str, String)> {
        let Self { keyspace, table, key } = self.clone();
        vec![("keyspace", keyspace), ("table", table), ("key", key)]
    }
}

impl DenylistCommand {
    /// Method, path and parameters of the request.
    pub(crate) fn request(&self) -> (Method, &'static str, Vec<(&'static str, String)>) {
        match self {
            Self::Add(partition) => (Method::POST, "/admin/denylist/add", partition.parameters()),
            Self::Remove(partition) => (Method::POST, "/admin/denylist/remove", partition.parameters()),
            Self::Check(partition) => (Method::GET, "/admin/denylist/check", partition.parameters()),
            Self::List { keyspace, table } => {
                let names = [("keyspace", keyspace), ("table", table)].into_iter();
                let given = names.filter_map(|(name, value)| Some((name, value.clone()?)));
                (Method::GET, "/admin/denylist", given.collect())
            }
            Self::Settings => (Method::GET, "/admin/settings", Vec::new()),
            Self::Set { name, value } => {
                let known = SETTINGS.into_iter().filter(|known| known == name);
                (Method::POST, "/admin/settings", known.map(|name| (name, value.clone())).collect())
            }
        }
    }
}

/// Said where the list has no effect.
const NOT_OBEYED: &str =
    "partition_denylist_enabled is false on this node: it denies nothing to its clients\n";

fn remark(is_obeyed: bool) -> &'static str {
    if is_obeyed { "" } else { NOT_OBEYED }
}

/// One partition.
pub(crate) fn partition(report: &DeniedPartitionReport) -> String {
    let DeniedPartitionReport { keyspace, table, key, is_denied, is_obeyed } = report;
    let state = if *is_denied { "denied" } else { "not denied" };
    format!("{keyspace}.{table} {key}: {state}\n{}", remark(*is_obeyed))
}

/// What a node makes of the list.
pub(crate) fn settings(settings: &RuntimeSettings) -> String {
    let values = [
        settings.partition_denylist_enabled.to_string(),
        settings.denylist_writes_enabled.to_string(),
        settings.denylist_reads_enabled.to_string(),
        settings.denylist_range_reads_enabled.to_string(),
        settings.denylist_max_keys_per_table.to_string(),
        settings.denylist_max_keys_total.to_string(),
    ];
    let rows: Vec<_> = SETTINGS.iter().zip(&values).map(|(name, value)| row(&[name, value])).collect();
    columns(&rows)
}

/// All partitions.
pub(crate) fn list(report: &DenylistReport) -> String {
    if report.partitions.is_empty() {
        return format!("no partition is denied\n{}", remark(report.is_obeyed));
    }
    let mut rows = vec![row(&["Keyspace", "Table", "Key"])];
    rows.extend(report.partitions.iter().map(|denied| row(&[&denied.keyspace, &denied.table, &denied.key])));
    columns(&rows) + remark(report.is_obeyed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    fn call(words: &[&str]) -> String {
        parse(&[&["denylist"], words].concat()).unwrap().call().unwrap().to_string()
    }

    #[test]
    fn each_command_is_a_request() {
        assert_eq!(
            call(&["add", "ks", "t", "a:7"]),
            "POST /admin/denylist/add?keyspace=ks&table=t&key=a%3A7"
        );
        assert_eq!(
            call(&["remove", "ks", "t", "-7"]),
            "POST /admin/denylist/remove?keyspace=ks&table=t&key=%2D7"
        );
        assert_eq!(call(&["check", "ks", "t", "k"]), "GET /admin/denylist/check?keyspace=ks&table=t&key=k");
        assert_eq!(call(&["list"]), "GET /admin/denylist");
        assert_eq!(call(&["list", "ks", "t"]), "GET /admin/denylist?keyspace=ks&table=t");
        assert!(parse(&["denylist", "add", "ks", "t"]).is_err());
        assert_eq!(call(&["settings"]), "GET /admin/settings");
        assert_eq!(
            call(&["set", "denylist_reads_enabled", "false"]),
            "POST /admin/settings?denylist_reads_enabled=false"
        );
        assert!(parse(&["denylist", "set", "trace_probability", "1"]).is_err());
    }

    #[test]
    fn settings_are_shown_by_their_names() {
        let shown = settings(&RuntimeSettings {
            denylist_reads_enabled: true,
            denylist_max_keys_total: 7,
            ..RuntimeSettings::default()
        });
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["partition_denylist_enabled", "false"]);
        assert_eq!(lines[2], ["denylist_reads_enabled", "true"]);
        assert_eq!(lines[5], ["denylist_max_keys_total", "7"]);
    }

    #[test]
    fn partitions_are_shown_with_what_the_node_makes_of_them() {
        let denied = |is_denied, is_obeyed| DeniedPartitionReport {
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            key: "0x07".to_owned(),
            is_denied,
            is_obeyed,
        };
        assert_eq!(partition(&denied(true, true)), "ks.t 0x07: denied\n");
        assert_eq!(partition(&denied(false, false)), format!("ks.t 0x07: not denied\n{NOT_OBEYED}"));
        let report = |partitions| DenylistReport { partitions, is_obeyed: true };
        assert_eq!(list(&report(vec![denied(true, true)])), "Keyspace  Table  Key\nks        t      0x07\n");
        assert_eq!(list(&report(Vec::new())), "no partition is denied\n");
    }
}
