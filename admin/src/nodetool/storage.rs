//! Tables, compactions, snapshots and streams, as nodetool prints them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::error::NodetoolError;
use super::format::{Addresses, size, table};
use crate::reports::{
    ClusterStatus, CompactionsReport, SnapshotReport, StreamingReport, TableReport, TransferProgress,
};
use crate::tables::row;

/// `tablestats`: the lines whose values are known, of the tables that are named, as `keyspace` or `keyspace.table`; without names
/// of all. `is_inverted`: of the others.
pub(super) fn table_statistics(
    reports: &[TableReport],
    names: &[String],
    is_inverted: bool,
    is_readable: bool,
) -> Result<String, NodetoolError> {
    let is_named = |report: &TableReport, name: &String| match name.split_once('.') {
        Some((keyspace, table)) => report.keyspace == keyspace && report.table == table,
        None => report.keyspace == *name,
    };
    if let Some(unknown) = names.iter().find(|name| !reports.iter().any(|report| is_named(report, name))) {
        let kind = if unknown.contains('.') { "table" } else { "keyspace" };
        return Err(NodetoolError::Usage(format!("Unknown {kind}: {unknown}")));
    }
    let mut by_keyspace: BTreeMap<&str, Vec<&TableReport>> = BTreeMap::new();
    for report in reports {
        if names.is_empty() || names.iter().any(|name| is_named(report, name)) != is_inverted {
            by_keyspace.entry(&report.keyspace).or_default().push(report);
        }
    }
    let mut text = format!("Total number of tables: {}\n----------------\n", reports.len());
    // Writing to a string does not fail.
    for (keyspace, reports) in by_keyspace {
        let _ = writeln!(text, "Keyspace : {keyspace}");
        let sum = |of: fn(&TableReport) -> (u64, u64)| {
            reports.iter().map(|report| of(report)).fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
        };
        let (reads, writes) = (sum(reads_of), sum(writes_of));
        for (name, value) in [
            ("Read Count", reads.0.to_string()),
            ("Read Latency", mean(reads)),
            ("Write Count", writes.0.to_string()),
            ("Write Latency", mean(writes)),
        ] {
            let _ = writeln!(text, "\t{name}: {value}");
        }
        for report in reports {
            let disk_bytes = size(report.disk_bytes, is_readable);
            for (name, value) in [
                ("Table", report.table.clone()),
                ("SSTable count", report.file_count.to_string()),
                ("Space used (live)", disk_bytes.clone()),
                ("Space used (total)", disk_bytes),
                ("Number of partitions (estimate)", report.partition_versions.to_string()),
                ("Memtable data size", size(report.memtable_bytes, is_readable)),
                ("Local read count", reads_of(report).0.to_string()),
                ("Local read latency", mean(reads_of(report))),
                ("Local write count", writes_of(report).0.to_string()),
                ("Local write latency", mean(writes_of(report))),
            ] {
                let _ = writeln!(text, "\t\t{name}: {value}");
            }
            text.push('\n');
        }
        text += "----------------\n";
    }
    Ok(text)
}

/// How often a table was read on the node, and for how many microseconds in all.
fn reads_of(report: &TableReport) -> (u64, u64) {
    report.local.reads()
}

fn writes_of(report: &TableReport) -> (u64, u64) {
    (report.local.write.count, report.local.write.sum_us)
}

/// The mean latency in milliseconds, as nodetool prints it: NaN without requests. `sum_us`: of the latencies of all `count` requests.
fn mean((count, sum_us): (u64, u64)) -> String {
    if count == 0 { "NaN ms".to_owned() } else { format!("{:.3} ms", sum_us as f64 / count as f64 / 1_000.0) }
}

/// `compactionstats`.
pub(super) fn compactions(report: &CompactionsReport, is_readable: bool) -> String {
    let throughput = match report.bytes_per_second {
        None | Some(0) => "throttling disabled (0)".to_owned(),
        Some(rate) => format!("{:?}", rate as f64 / f64::from(1 << 20)),
    };
    let mut rows = vec![
        row(&["pending tasks", &report.pending.to_string()]),
        row(&["compaction throughput (MiB/s)", &throughput]),
    ];
    if !report.compactions.is_empty() {
        rows.push(row(&[
            "id",
            "compaction type",
            "keyspace",
            "table",
            "completed",
            "total",
            "unit",
            "progress",
        ]));
        rows.extend(report.compactions.iter().map(|running| {
            let (keyspace, name) = running.table.split_once('.').unwrap_or(("", &running.table));
            let progress = match running.total_bytes {
                0 => "n/a".to_owned(),
                total => format!("{:.2}%", running.read_bytes as f64 / total as f64 * 100.0),
            };
            row(&[
                // Compactions have no ids: the shard is shown.
                &format!("shard-{}", running.shard),
                &running.kind,
                keyspace,
                name,
                &size(running.read_bytes, is_readable),
                &size(running.total_bytes, is_readable),
                "bytes",
                &progress,
            ])
        }));
        let left: u64 = report
            .compactions
            .iter()
            .map(|running| running.total_bytes.saturating_sub(running.read_bytes))
            .sum();
        let left = match report.bytes_per_second.and_then(|rate| left.checked_div(rate)) {
            Some(seconds) => format!("{}h{:02}m{:02}s", seconds / 3_600, seconds % 3_600 / 60, seconds % 60),
            None => "n/a".to_owned(),
        };
        rows.push(row(&["active compaction remaining time", &left]));
    }
    table(&rows, " ")
}

/// `statusautocompaction`: of these tables, each or all in one word.
pub(super) fn automatic_compactions(
    reports: &[TableReport],
    disabled: &[String],
    keyspace: Option<&String>,
    names: &[String],
    is_listed: bool,
) -> Result<String, NodetoolError> {
    let of_keyspace: Vec<&TableReport> = reports
        .iter()
        .filter(|report| keyspace.is_none_or(|keyspace| report.keyspace == *keyspace))
        .collect();
    if let Some(keyspace) = keyspace.filter(|_| of_keyspace.is_empty()) {
        return Err(NodetoolError::Usage(format!("Unknown keyspace: {keyspace}")));
    }
    if let Some(unknown) = names.iter().find(|name| !of_keyspace.iter().any(|report| report.table == **name))
    {
        return Err(NodetoolError::Usage(format!("Unknown table: {unknown}")));
    }
    let is_disabled =
        |report: &TableReport| disabled.contains(&format!("{}.{}", report.keyspace, report.table));
    let word = |is_disabled| if is_disabled { "not running" } else { "running" };
    let shown = || of_keyspace.iter().filter(|report| names.is_empty() || names.contains(&report.table));
    if is_listed {
        let mut rows = vec![row(&["Keyspace", "Table", "Status"])];
        rows.extend(shown().map(|report| row(&[&report.keyspace, &report.table, word(is_disabled(report))])));
        return Ok(table(&rows, " "));
    }
    let count = shown().filter(|report| is_disabled(report)).count();
    let text = match count {
        0 => word(false),
        count if count == shown().count() => word(true),
        _ => "partially running",
    };
    Ok(format!("{text}\n"))
}

/// `listsnapshots`. How much of a snapshot no table uses any more is not known. `is_all`: also those that expire.
pub(super) fn snapshots(reports: &[SnapshotReport], is_all: bool) -> String {
    let shown: Vec<_> = reports.iter().filter(|report| is_all || report.expires_at.is_empty()).collect();
    if shown.is_empty() {
        return "Snapshot Details: \nThere are no snapshots\n".to_owned();
    }
    let mut rows = vec![row(&[
        "Snapshot name",
        "Keyspace name",
        "Column family name",
        "True size",
        "Size on disk",
        "Creation time",
        "Expiration time",
    ])];
    rows.extend(shown.iter().map(|report| {
        let name = if report.table.is_empty() { &report.table_id } else { &report.table };
        row(&[
            &report.name,
            &report.keyspace,
            name,
            "?",
            &size(report.disk_bytes, true),
            &report.created_at,
            &report.expires_at,
        ])
    }));
    format!("Snapshot Details: \n{}\nTotal TrueDiskSpaceUsed: ?\n\n", table(&rows, " "))
}

/// `netstats`. A part of a transfer, a table on a shard of the other member, counts as a file.
pub(super) fn streams(
    report: &StreamingReport,
    status: &ClusterStatus,
    addresses: Addresses,
    is_readable: bool,
) -> String {
    let mut text = format!("Mode: {}\n", report.mode);
    let is_under_way = |transfer: &&TransferProgress| !transfer.is_done && !transfer.peers.is_empty();
    let Some(transfer) = report.receiving.as_ref().filter(is_under_way) else {
        return text + "Not sending any streams.\n";
    };
    let unit = if is_readable { "" } else { " bytes" };
    let percent = |part: f64, whole: f64| if whole > 0.0 { part / whole * 100.0 } else { 100.0 };
    let operation = if report.mode == "JOINING" { "Bootstrap" } else { "Restore replica count" };
    // Writing to a string does not fail.
    let _ = writeln!(text, "{operation} {}", transfer.member);
    for peer in &transfer.peers {
        let id = peer.peer.to_string();
        let member = status.members.iter().find(|member| member.host_id == id);
        let name = member.map_or(id, |member| addresses.text(&member.address));
        let _ = writeln!(
            text,
            "    /{name}\n        Receiving {} files, {}{unit} total. Already received {} files ({:.2}%), {}{unit} total ({:.2}%)",
            peer.units,
            size(peer.estimated_bytes, is_readable),
            peer.units_done,
            percent(peer.units_done as f64, peer.units as f64),
            size(peer.bytes, is_readable),
            percent(peer.bytes as f64, peer.estimated_bytes as f64),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::members::samples::{cluster, member};
    use crate::reports::{LatencyReport, LocalWorkReport, PeerProgress, RunningCompactionReport};

    fn report(keyspace: &str, table: &str) -> TableReport {
        TableReport {
            keyspace: keyspace.to_owned(),
            table: table.to_owned(),
            file_count: 3,
            disk_bytes: 1_536,
            memtable_bytes: 512,
            partition_versions: 9,
            local: LocalWorkReport {
                read: LatencyReport { count: 3, sum_us: 4_500, ..LatencyReport::default() },
                scan: LatencyReport { count: 1, sum_us: 5_500, ..LatencyReport::default() },
                ..LocalWorkReport::default()
            },
            ..TableReport::default()
        }
    }

    #[test]
    fn statistics_of_tables_have_the_lines_that_are_known() {
        let reports = [report("a", "t"), report("a", "u"), report("b", "t")];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let lines = |table: &str, disk: &str, memory: &str| {
            format!(
                "\t\tTable: {table}\n\t\tSSTable count: 3\n\t\tSpace used (live): {disk}\n\t\tSpace used (total): {disk}\n\
                 \t\tNumber of partitions (estimate): 9\n\t\tMemtable data size: {memory}\n\
                 \t\tLocal read count: 4\n\t\tLocal read latency: 2.500 ms\n\
                 \t\tLocal write count: 0\n\t\tLocal write latency: NaN ms\n\n"
            )
        };
        let keyspace = |name: &str, reads: u64| {
            format!(
                "Keyspace : {name}\n\tRead Count: {reads}\n\tRead Latency: 2.500 ms\n\tWrite Count: 0\n\tWrite Latency: NaN ms\n"
            )
        };
        let (t, u) = (lines("t", "1536", "512"), lines("u", "1536", "512"));
        let head = "Total number of tables: 3\n----------------\n";
        let text = |list: &[&str], is_inverted, is_readable| {
            table_statistics(&reports, &names(list), is_inverted, is_readable)
                .map_err(|error| error.to_string())
        };
        let whole = format!(
            "{head}{}{t}{u}----------------\n{}{t}----------------\n",
            keyspace("a", 8),
            keyspace("b", 4)
        );
        assert_eq!(text(&[], false, false).unwrap(), whole);
        let some = format!(
            "{head}{}{u}----------------\n{}{t}----------------\n",
            keyspace("a", 4),
            keyspace("b", 4)
        );
        assert_eq!(text(&["a.u", "b"], false, false).unwrap(), some);
        assert_eq!(text(&["a.t"], true, false).unwrap(), some);
        let readable = lines("t", "1.5 KiB", "512 bytes");
        let of_b = format!("{head}{}{readable}----------------\n", keyspace("b", 4));
        assert_eq!(text(&["b.t"], false, true).unwrap(), of_b);
        assert_eq!(text(&["c"], false, false).unwrap_err(), "Unknown keyspace: c");
        assert_eq!(text(&["a.x"], false, false).unwrap_err(), "Unknown table: a.x");
    }

    #[test]
    fn compactions_are_shown_with_the_time_that_is_left() {
        let mut report = CompactionsReport { pending: 2, ..CompactionsReport::default() };
        let idle = "\
pending tasks                 2
compaction throughput (MiB/s) throttling disabled (0)
";
        assert_eq!(compactions(&report, false), idle);
        report.bytes_per_second = Some(1 << 20);
        report.compactions = vec![RunningCompactionReport {
            shard: 1,
            kind: "Compaction".to_owned(),
            table: "ks.t".to_owned(),
            read_bytes: 1 << 20,
            total_bytes: 64 << 20,
            seconds: 5,
        }];
        let expected = "\
pending tasks                    2
compaction throughput (MiB/s)    1.0
id                               compaction type keyspace table completed total    unit  progress
shard-1                          Compaction      ks       t     1048576   67108864 bytes 1.56%
active compaction remaining time 0h01m03s
";
        assert_eq!(compactions(&report, false), expected);
        assert!(compactions(&report, true).contains(" 1 MiB     64 MiB bytes 1.56%\n"));
    }

    #[test]
    fn automatic_compactions_are_summed_up_or_listed() {
        let reports = [report("a", "t"), report("a", "u"), report("b", "t")];
        let disabled = ["a.t".to_owned(), "b.t".to_owned()];
        let text = |keyspace: Option<&str>, names: &[&str], is_listed| {
            let keyspace = keyspace.map(str::to_owned);
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            automatic_compactions(&reports, &disabled, keyspace.as_ref(), &names, is_listed)
                .map_err(|error| error.to_string())
        };
        assert_eq!(text(None, &[], false).unwrap(), "partially running\n");
        assert_eq!(text(Some("b"), &[], false).unwrap(), "not running\n");
        assert_eq!(text(Some("a"), &["u"], false).unwrap(), "running\n");
        let listed = "\
Keyspace Table Status
a        t     not running
a        u     running
";
        assert_eq!(text(Some("a"), &[], true).unwrap(), listed);
        assert_eq!(text(Some("c"), &[], false).unwrap_err(), "Unknown keyspace: c");
        assert_eq!(text(Some("a"), &["x"], false).unwrap_err(), "Unknown table: x");
    }

    #[test]
    fn snapshots_that_expire_can_be_left_out() {
        let snapshot = |name: &str, expires_at: &str| SnapshotReport {
            name: name.to_owned(),
            table_id: "7".to_owned(),
            keyspace: "ks".to_owned(),
            table: "t".to_owned(),
            created_at: "2026-01-31".to_owned(),
            expires_at: expires_at.to_owned(),
            disk_bytes: 2_048,
        };
        let reports = [snapshot("n", ""), snapshot("dropped-1", "2026-02-28")];
        let expected = "Snapshot Details: \n\
Snapshot name Keyspace name Column family name True size Size on disk Creation time Expiration time
n             ks            t                  ?         2 KiB        2026-01-31
dropped-1     ks            t                  ?         2 KiB        2026-01-31    2026-02-28

Total TrueDiskSpaceUsed: ?

";
        assert_eq!(snapshots(&reports, true), expected);
        assert!(!snapshots(&reports, false).contains("dropped"));
        assert_eq!(snapshots(&reports[1..], false), "Snapshot Details: \nThere are no snapshots\n");
    }

    #[test]
    fn streams_are_shown_with_the_addresses_of_their_senders() {
        let peer = Uuid::from_u128(7);
        let mut sender = member(2, "dc1", true, "normal");
        sender.host_id = peer.to_string();
        let status = cluster(None, vec![sender]);
        let part = PeerProgress { peer, bytes: 512, estimated_bytes: 2_048, units: 4, units_done: 1 };
        let transfer = TransferProgress {
            member: Uuid::from_u128(9),
            epoch: 3,
            peers: vec![part],
            bytes: 512,
            estimated_bytes: 2_048,
            percent: 25.0,
            bytes_per_second: 1,
            seconds_left: None,
            is_done: false,
            waiting_for: None,
        };
        let mut report = StreamingReport { mode: "JOINING".to_owned(), ..StreamingReport::default() };
        let text = |report: &StreamingReport, is_readable| {
            streams(report, &status, Addresses::default(), is_readable)
        };
        assert_eq!(text(&report, false), "Mode: JOINING\nNot sending any streams.\n");
        report.receiving = Some(transfer);
        let expected = "\
Mode: JOINING
Bootstrap 00000000-0000-0000-0000-000000000009
    /10.0.0.2
        Receiving 4 files, 2048 bytes total. Already received 1 files (25.00%), 512 bytes total (25.00%)
";
        assert_eq!(text(&report, false), expected);
        assert!(
            text(&report, true)
                .contains("4 files, 2 KiB total. Already received 1 files (25.00%), 512 bytes total")
        );
    }
}
