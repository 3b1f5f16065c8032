//! `helenus admin repair`: its options, the request for each, and what is printed.

use std::fmt::Write as _;

use clap::ArgGroup;

use crate::http::Method;
use crate::reports::{RepairReport, RepairsReport};
use crate::tables::{bytes, columns, row};

/// The arguments. Options that nodetool has with one dash and several letters are taken so too (-pr, -local, -dc, -st, -et, -full).
#[derive(Debug, Clone, Default, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(group = ArgGroup::new("other").args(["status", "cancel"]))]
pub(crate) struct RepairArguments {
    /// Only ranges of which the node is the first replica. Also -pr.
    #[arg(long, conflicts_with_all = ["this_node", "start_token", "other"])]
    pub(crate) primary_range: bool,
    /// Only ranges of which the node is a replica.
    #[arg(long, conflicts_with_all = ["start_token", "other"])]
    pub(crate) this_node: bool,
    /// Only the range behind this token, up to --end-token. Also -st.
    #[arg(long, requires = "end_token", allow_negative_numbers = true, conflicts_with = "other")]
    pub(crate) start_token: Option<i64>,
    /// Also -et.
    #[arg(long, requires = "start_token", allow_negative_numbers = true, conflicts_with = "other")]
    pub(crate) end_token: Option<i64>,
    /// Only replicas of this data center take part; several times for several. Such a repair does not count for the schedule. Also -dc.
    #[arg(long = "in-dc", value_name = "DATA_CENTER", conflicts_with = "other")]
    pub(crate) data_centers: Vec<String>,
    /// Only replicas of the node's own data center take part. Also -local.
    #[arg(long, conflicts_with_all = ["data_centers", "other"])]
    pub(crate) in_local_dc: bool,
    /// Ranges with a replica that is down are repaired among the others. Such a repair does not count for the schedule.
    #[arg(long, conflicts_with = "other")]
    pub(crate) force: bool,
    /// All rows are compared, as always. Also -full.
    #[arg(long, conflicts_with = "other")]
    pub(crate) full: bool,
    /// Shows the repairs under way on the node and the last ones, and how old the repair of each table is.
    #[arg(long, conflicts_with_all = ["keyspace"])]
    pub(crate) status: bool,
    /// Cancels the repair with this id, as the status shows it; or all that are under way on the node.
    #[arg(long, value_name = "ID", num_args = 0..=1, conflicts_with_all = ["keyspace"])]
    #[allow(clippy::option_option, reason = "the option may stand without its value")]
    pub(crate) cancel: Option<Option<u64>>,
    /// A keyspace; all without one.
    pub(crate) keyspace: Option<String>,
    /// Tables of it; all without any.
    pub(crate) tables: Vec<String>,
}

impl RepairArguments {
    /// Method, path and parameters of the request.
    pub(crate) fn request(&self) -> (Method, &'static str, Vec<(&'static str, String)>) {
        if self.status {
            return (Method::GET, "/admin/repairs", Vec::new());
        }
        if let Some(id) = self.cancel {
            let id = id.map(|id| ("id", id.to_string()));
            return (Method::POST, "/admin/cancelrepair", id.into_iter().collect());
        }
        let mut parameters = Vec::new();
        let mut put = |name, value: Option<String>| parameters.extend(value.map(|value| (name, value)));
        let list = |names: &[String]| (!names.is_empty()).then(|| names.join(","));
        let ranges = match (self.primary_range, self.this_node) {
            (true, _) => Some("primary".to_owned()),
            (_, true) => Some("node".to_owned()),
            _ => None,
        };
        put("keyspace", self.keyspace.clone());
        put("tables", list(&self.tables));
        put("ranges", ranges);
        put("start_token", self.start_token.map(|token| token.to_string()));
        put("end_token", self.end_token.map(|token| token.to_string()));
        put("data_centers", list(&self.data_centers));
        put("local", self.in_local_dc.then(|| "true".to_owned()));
        put("force", self.force.then(|| "true".to_owned()));
        (Method::POST, "/admin/repair", parameters)
    }

    /// Whether the answer is a [`RepairsReport`].
    pub(crate) fn asks_for_status(&self) -> bool {
        self.status
    }

    /// Whether the answer is only that it is done.
    pub(crate) fn cancels(&self) -> bool {
        self.cancel.is_some()
    }
}

/// A repair that has ended.
pub(crate) fn ended(report: &RepairReport) -> String {
    format!(
        "repaired: {} compared, {} parts differed, {} mutations written, {} received, {} sent\n",
        bytes(report.compared_bytes),
        report.differing_parts,
        report.written_mutations,
        bytes(report.received_bytes),
        bytes(report.sent_bytes),
    )
}

/// The repairs of a node, and how old those of its tables are.
pub(crate) fn status(report: &RepairsReport) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    if report.repairs.is_empty() {
        text.push_str("No repairs since the node was started.\n");
    } else {
        let mut rows = vec![row(&[
            "Id", "What", "Ranges", "By", "State", "Done", "Left", "Differed", "Compared", "Moved", "Now at",
        ])];
        rows.extend(report.repairs.iter().map(|repair| {
            vec![
                repair.id.to_string(),
                what(repair),
                repair.ranges.clone(),
                if repair.is_automatic { "schedule" } else { "operator" }.to_owned(),
                repair.state.clone(),
                format!("{:.1} %", repair.percent),
                repair.seconds_left.map_or(String::new(), |seconds| format!("{seconds} s")),
                repair.differing_parts.to_string(),
                bytes(repair.compared_bytes),
                bytes(repair.received_bytes + repair.sent_bytes),
                repair.current.clone(),
            ]
        }));
        text.push_str(&columns(&rows));
        for repair in report.repairs.iter().filter(|repair| repair.failure_count > 0) {
            let _ = writeln!(text, "Repair {}: {} failures", repair.id, repair.failure_count);
            for failure in &repair.failures {
                let _ = writeln!(text, "  {failure}");
            }
        }
    }
    if !report.is_automatic {
        text.push_str("The schedule is off (automatic_repair).\n");
    }
    let list =
        |members: &[uuid::Uuid]| members.iter().map(uuid::Uuid::to_string).collect::<Vec<_>>().join(", ");
    if !report.away_too_long.is_empty() {
        let members = list(&report.away_too_long);
        let _ = writeln!(
            text,
            "These were away for longer than gc_grace_seconds of a table and may bring deleted rows back; the schedule leaves their ranges of it out: {members}"
        );
    }
    if !report.waits_for.is_empty() {
        let members = list(&report.waits_for);
        let _ = writeln!(text, "Ranges of members that are down are not repaired: {members}");
    }
    let mut rows = vec![row(&["Keyspace", "Table", "All repaired since", "Age", "Due after"])];
    rows.extend(report.tables.iter().map(|table| {
        vec![
            table.keyspace.clone(),
            table.table.clone(),
            table.repaired_at.clone().unwrap_or_else(|| "never".to_owned()),
            table.age_seconds.map_or(String::new(), |seconds| format!("{seconds} s")),
            format!("{} s", table.interval_seconds),
        ]
    }));
    text.push_str(&columns(&rows));
    text
}

fn what(repair: &RepairReport) -> String {
    match (&repair.keyspace, repair.tables.as_slice()) {
        (None, _) => "everything".to_owned(),
        (Some(keyspace), []) => keyspace.clone(),
        (Some(keyspace), tables) => format!("{keyspace}: {}", tables.join(", ")),
    }
}
