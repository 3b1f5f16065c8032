//! Reports as tables for people.

use std::fmt::Write;
use std::net::SocketAddr;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

use crate::reports::{
    CheckProgress, CheckedFile, CheckedFileState, ClusterDescription, ClusterSnapshots, CompactionsReport,
    LatencyReport, MemberSnapshots, NodeReport, ReplayReport, RestoredTable, SnapshotReport, StreamingReport,
    TableReport, TransferProgress, UnknownTableReport,
};

/// Formats lines of cells, each column as wide as its widest cell, two blanks apart.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Disabled).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<_> = table.lines().collect();
    lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

pub(crate) fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// A number of bytes with a readable unit.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1_024 {
        return format!("{count} bytes");
    }
    let mut amount = count as f64 / 1_024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if amount < 1_024.0 {
            break;
        }
        amount /= 1_024.0;
        unit = next;
    }
    format!("{amount:.2} {unit}")
}

/// The snapshots of a node.
pub fn snapshots(reports: &[SnapshotReport]) -> String {
    if reports.is_empty() {
        return "There are no snapshots\n".to_owned();
    }
    let mut rows = vec![row(&["Name", "Keyspace", "Table", "Size", "Created", "Expires"])];
    rows.extend(reports.iter().map(|report| {
        // A snapshot of a former version may have no description: its table is shown by its id.
        let table = if report.table.is_empty() { &report.table_id } else { &report.table };
        row(&[
            &report.name,
            &report.keyspace,
            table,
            &bytes(report.disk_bytes),
            &report.created_at,
            &report.expires_at,
        ])
    }));
    columns(&rows)
}

/// What a member has taken.
pub fn taken(member: &MemberSnapshots) -> String {
    let size = member.snapshots.iter().map(|snapshot| snapshot.disk_bytes).sum();
    format!("taken, {} tables, {}\n", member.snapshots.len(), bytes(size))
}

/// What the members did; `done` describes it for one that did not fail, in one line or several.
pub fn cluster_snapshots(report: &ClusterSnapshots, done: impl Fn(&MemberSnapshots) -> String) -> String {
    let mut text = report.name.as_ref().map_or_else(String::new, |name| format!("snapshot: {name}\n"));
    for member in &report.members {
        let outcome = match &member.error {
            Some(error) => format!(" failed: {error}\n"),
            None => match done(member) {
                lines if lines.lines().count() > 1 => format!("\n{lines}"),
                line => format!(" {line}"),
            },
        };
        text.extend([member.address.as_str(), ":", &outcome]);
    }
    text
}

/// The compactions of a node.
pub fn compactions(report: &CompactionsReport) -> String {
    let rate = match report.bytes_per_second {
        Some(rate) => format!("at most {} a second", bytes(rate)),
        None => "not limited".to_owned(),
    };
    let disabled = if report.disabled_tables.is_empty() {
        String::new()
    } else {
        format!("not compacted by themselves: {}\n", report.disabled_tables.join(", "))
    };
    let text = format!("pending tasks: {}\nthroughput: {rate}\n{disabled}", report.pending);
    if report.compactions.is_empty() {
        return text;
    }
    let mut rows = vec![row(&["Type", "Table", "Shard", "Read", "Of", "%", "Seconds"])];
    rows.extend(report.compactions.iter().map(|running| {
        let percent = running.read_bytes.saturating_mul(100).checked_div(running.total_bytes);
        row(&[
            &running.kind,
            &running.table,
            &running.shard.to_string(),
            &bytes(running.read_bytes),
            &bytes(running.total_bytes),
            &percent.map_or_else(String::new, |percent| percent.to_string()),
            &running.seconds.to_string(),
        ])
    }));
    text + &columns(&rows)
}

/// Tables that got rows from a snapshot.
pub fn restored(tables: &[RestoredTable]) -> String {
    let mut rows = vec![row(&["Keyspace", "Table", "Files", "Size"])];
    rows.extend(tables.iter().map(|restored| {
        let files = restored.file_count.to_string();
        row(&[&restored.keyspace, &restored.table, &files, &bytes(restored.disk_bytes)])
    }));
    let mut text = columns(&rows);
    if tables.iter().any(|restored| restored.has_moved_rows) {
        text += "Rows were left out whose tokens this node does not own any more: import the snapshot's directory to bring them back\n";
    }
    text
}

/// Tables that got writes from archived commit logs.
pub fn replayed(report: &ReplayReport) -> String {
    let mut rows = vec![row(&["Keyspace", "Table", "Mutations"])];
    rows.extend(
        report.tables.iter().map(|replayed| {
            row(&[&replayed.keyspace, &replayed.table, &replayed.mutation_count.to_string()])
        }),
    );
    let mut text = format!("Segments read: {}\n{}", report.segment_count, columns(&rows));
    if !report.unknown_tables.is_empty() {
        text += "Left out: writes of tables that the node does not know, which may have been dropped (name a snapshot of them): ";
        text += &report.unknown_tables.join(", ");
        text.push('\n');
    }
    text
}

/// Files that are or were damaged.
pub fn checked_files(files: &[CheckedFile]) -> String {
    if files.is_empty() {
        return "No damage was found\n".to_owned();
    }
    let mut text = String::new();
    for file in files {
        let CheckedFile { shard, table, path, reason, kept_rows, lost_blocks, .. } = file;
        let done = match file.state {
            CheckedFileState::Damaged => format!("damaged: {reason}"),
            CheckedFileState::Mended => "can be read again, and is in use".to_owned(),
            CheckedFileState::Salvaged => {
                format!(
                    "replaced by the {kept_rows} rows that can be read; {lost_blocks} blocks are lost: {reason}"
                )
            }
            CheckedFileState::GivenUp => format!("given up with all its rows: {reason}"),
        };
        // A string does not fail.
        let _ = writeln!(text, "{table}, shard {shard}: {path}: {done}");
    }
    text
}

/// How far the last verification or scrub of each shard is.
pub fn checks(shards: &[CheckProgress]) -> String {
    let mut rows = vec![row(&["Shard", "State", "Files", "Read", "Damaged"])];
    rows.extend(shards.iter().map(|shard| {
        row(&[
            &shard.shard.to_string(),
            if shard.is_running { "running" } else { "idle" },
            &format!("{} of {}", shard.files_done, shard.files),
            &format!("{} of {}", bytes(shard.bytes_done), bytes(shard.bytes)),
            &shard.found.len().to_string(),
        ])
    }));
    let found: Vec<CheckedFile> = shards.iter().flat_map(|shard| shard.found.clone()).collect();
    let files = if found.is_empty() { String::new() } else { checked_files(&found) };
    format!("{}{files}", columns(&rows))
}

/// The tables that the schema does not name.
pub fn unknown_tables(reports: &[UnknownTableReport]) -> String {
    if reports.is_empty() {
        return "The schema names all tables\n".to_owned();
    }
    let mut rows = vec![row(&["Table id", "Files", "On disk", "In memory", "Row versions"])];
    rows.extend(reports.iter().map(|report| {
        row(&[
            &report.id,
            &report.file_count.to_string(),
            &bytes(report.disk_bytes),
            &bytes(report.memtable_bytes),
            &report.row_versions.to_string(),
        ])
    }));
    columns(&rows)
}

/// The reason why a transfer waits, if it does.
fn waits(transfer: &TransferProgress) -> String {
    transfer.waiting_for.as_ref().map_or(String::new(), |reason| format!("; waits: {reason}"))
}

/// What changes, so that ranges get other owners.
fn cause(transfer: &TransferProgress) -> String {
    if transfer.member.is_nil() { "replication".to_owned() } else { transfer.member.to_string() }
}

/// The streams of data between replicas.
pub fn streams(report: &StreamingReport) -> String {
    let mut text = format!("Mode: {}\n", report.mode);
    // Writing to a string does not fail.
    match &report.receiving {
        None => text.push_str("Receiving: nothing\n"),
        Some(transfer) if transfer.peers.is_empty() => {
            let what = if report.sent_bytes.is_empty() { "transferred" } else { "received" };
            let _ = writeln!(text, "{} changes: nothing is {what} here{}", cause(transfer), waits(transfer));
        }
        Some(transfer) => {
            let left = transfer.seconds_left.map_or("?".to_owned(), |seconds| seconds.to_string());
            let _ = writeln!(
                text,
                "Receiving, because {} changes: {} of about {} ({:.1} %), {}/s, {left} s left{}",
                cause(transfer),
                bytes(transfer.bytes),
                bytes(transfer.estimated_bytes),
                transfer.percent,
                bytes(transfer.bytes_per_second),
                waits(transfer),
            );
            let mut rows = vec![row(&["From", "Received", "About", "Parts done"])];
            rows.extend(transfer.peers.iter().map(|peer| {
                vec![
                    peer.peer.to_string(),
                    bytes(peer.bytes),
                    bytes(peer.estimated_bytes),
                    format!("{} of {}", peer.units_done, peer.units),
                ]
            }));
            text.push_str(&columns(&rows));
        }
    }
    for (keyspace, step) in &report.replication_changes {
        let _ = writeln!(text, "The replication of {keyspace} changes: {step}");
    }
    let list =
        |members: &[uuid::Uuid]| members.iter().map(uuid::Uuid::to_string).collect::<Vec<_>>().join(", ");
    if !report.waits_for.is_empty() {
        let members = list(&report.waits_for);
        let _ = writeln!(text, "The next step waits until these have heard of the last one: {members}");
    }
    if !report.uncleaned.is_empty() {
        let members = list(&report.uncleaned);
        let _ = writeln!(
            text,
            "Old data of ranges that were given up is removed at: {members}; until then they gain no ranges"
        );
    }
    let mut rows = vec![row(&["To", "Sent since the start"])];
    rows.extend(report.sent_bytes.iter().map(|(to, sent)| vec![to.to_string(), bytes(*sent)]));
    if rows.len() > 1 {
        text.push_str(&columns(&rows));
    }
    text
}

/// Names and values, one pair on each line.
fn pairs(pairs: &[(&str, String)]) -> String {
    let rows: Vec<Vec<String>> =
        pairs.iter().map(|(name, value)| vec![(*name).to_owned(), format!(": {value}")]).collect();
    columns(&rows)
}

pub fn info(node: &NodeReport) -> String {
    // The state that other members see, and the state towards clients.
    let state = if node.state == node.serving {
        node.state.clone()
    } else {
        format!("{}, {}", node.state, node.serving)
    };
    pairs(&[
        ("ID", node.host_id.clone()),
        ("Cluster", node.cluster_name.clone()),
        ("Address", node.address.clone()),
        ("Address for clients", node.native_address.clone()),
        ("State", state),
        ("Data center", node.data_center.clone()),
        ("Rack", node.rack.clone()),
        ("Version", node.version.clone()),
        ("Uptime (seconds)", node.uptime_seconds.to_string()),
        ("Shards", node.shard_count.to_string()),
        ("Tokens", node.token_count.to_string()),
        ("Client connections", node.connections.to_string()),
        ("Load", bytes(node.data_bytes)),
        ("Memtables", bytes(node.memtable_bytes)),
        ("Commit logs", bytes(node.commit_log_bytes)),
        ("Schema version", node.schema_version.clone()),
    ])
}

/// Sorts addresses: by their numbers, if they are numeric.
fn sorted(addresses: &[String]) -> String {
    let mut sorted: Vec<&str> = addresses.iter().map(String::as_str).collect();
    sorted.sort_by_key(|address| (address.parse::<SocketAddr>().ok(), *address));
    sorted.join(", ")
}

pub fn description(cluster: &ClusterDescription) -> String {
    let mut text = format!(
        "Cluster: {}\nSnitch: {}\nPartitioner: {}\nMembers and schema at version {}, ownership at {}; features of version {}\n",
        cluster.cluster_name,
        cluster.snitch,
        cluster.partitioner,
        cluster.topology_version,
        cluster.topology_epoch,
        cluster.feature_level
    );
    text.push_str("Schema versions:\n");
    for (version, addresses) in &cluster.schema_versions {
        let _ = writeln!(text, "  {version}: {}", sorted(addresses));
    }
    if !cluster.unreachable.is_empty() {
        let _ = writeln!(text, "  UNREACHABLE: {}", sorted(&cluster.unreachable));
    }
    text.push_str("Data centers:\n");
    for (name, count) in &cluster.data_centers {
        let _ = writeln!(text, "  {name}: {count} {}", if *count == 1 { "member" } else { "members" });
    }
    if !cluster.removed.is_empty() {
        let _ = writeln!(text, "Removed members: {}", cluster.removed.join(", "));
    }
    text.push_str("Keyspaces:\n");
    for (name, replication) in &cluster.keyspaces {
        let options: Vec<String> =
            replication.iter().map(|(option, value)| format!("{option}={value}")).collect();
        let _ = writeln!(text, "  {name}: {}", options.join(", "));
    }
    text
}

pub fn table_statistics(tables: &[TableReport]) -> String {
    let mut rows = vec![row(&[
        "Table",
        "Files",
        "On disk",
        "In memory",
        "Rows*",
        "Partitions*",
        "Tombstones",
        "Pending",
        "Reads",
        "Read p99",
        "Writes",
        "Write p99",
    ])];
    let micros =
        |of: &LatencyReport| if of.count == 0 { "-".to_owned() } else { format!("{} us", of.p99_us) };
    let mut failures = String::new();
    for table in tables {
        if table.damaged_files > 0 {
            let _ = writeln!(
                failures,
                "{}.{}: {} files cannot be read as a whole (see `helenus admin verify`)",
                table.keyspace, table.table, table.damaged_files
            );
        }
        for failure in &table.failed_compactions {
            let file = failure.file.as_ref().map_or_else(String::new, |file| format!(" of {file}"));
            let _ = writeln!(
                failures,
                "{}.{}, shard {}: a compaction{file} has failed ({} times; again in {} s): {}",
                table.keyspace,
                table.table,
                failure.shard,
                failure.attempts,
                failure.retry_in_seconds,
                failure.reason
            );
        }
        rows.push(vec![
            format!("{}.{}", table.keyspace, table.table),
            table.file_count.to_string(),
            bytes(table.disk_bytes),
            bytes(table.memtable_bytes),
            table.row_versions.to_string(),
            table.partition_versions.to_string(),
            table.tombstones.to_string(),
            table.pending_compactions.to_string(),
            table.local.reads().0.to_string(),
            micros(&table.local.read),
            table.local.write.count.to_string(),
            micros(&table.local.write),
        ]);
    }
    format!(
        "{}* versions: a row or partition in several files counts in each\nPending: shards on which a compaction is \
         due\nReads, writes: of the node's own rows since its start; p99 of those within one partition\n{failures}",
        columns(&rows)
    )
}

/// Reports for tests.
#[cfg(test)]
pub(crate) mod samples {
    use super::NodeReport;

    pub(crate) fn node() -> NodeReport {
        NodeReport {
            host_id: "host-1".to_owned(),
            cluster_name: "c".to_owned(),
            data_center: "dc1".to_owned(),
            rack: "r1".to_owned(),
            address: "10.0.0.1:7000".to_owned(),
            native_address: "10.0.0.1:9042".to_owned(),
            state: "normal".to_owned(),
            serving: "normal".to_owned(),
            version: "1".to_owned(),
            shard_count: 1,
            token_count: 2,
            started_at_seconds: 0,
            uptime_seconds: 0,
            connections: 0,
            data_bytes: 0,
            memtable_bytes: 0,
            commit_log_bytes: 0,
            schema_version: "v".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::reports::PeerProgress;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1_023), "1023 bytes");
        assert_eq!(bytes(1_536), "1.50 KiB");
        assert_eq!(bytes(5 << 30), "5.00 GiB");
        assert_eq!(bytes(u64::MAX), "16384.00 PiB");
    }

    #[test]
    fn info_shows_equal_states_once() {
        let node = |serving: &str| NodeReport { serving: serving.to_owned(), ..samples::node() };
        assert!(info(&node("normal")).contains(": normal\n"));
        assert!(info(&node("draining")).contains(": normal, draining\n"));
    }

    #[test]
    fn a_node_without_a_part_in_a_change_shows_that() {
        let (member, peer) = (uuid::Uuid::from_u128(9), uuid::Uuid::from_u128(7));
        let transfer = TransferProgress {
            member,
            epoch: 3,
            peers: Vec::new(),
            bytes: 0,
            estimated_bytes: 0,
            percent: 100.0,
            bytes_per_second: 0,
            seconds_left: None,
            is_done: true,
            waiting_for: None,
        };
        let mut report = StreamingReport {
            mode: "NORMAL".to_owned(),
            receiving: Some(transfer.clone()),
            ..StreamingReport::default()
        };
        let expected = format!("Mode: NORMAL\n{member} changes: nothing is transferred here\n");
        assert_eq!(streams(&report), expected);
        report.uncleaned.push(peer);
        assert!(streams(&report).ends_with(&format!("removed at: {peer}; until then they gain no ranges\n")));
        report.waits_for.push(peer);
        report.replication_changes.insert("shop".to_owned(), "waits for its turn".to_owned());
        let text = streams(&report);
        assert!(text.contains("The replication of shop changes: waits for its turn\n"), "{text}");
        assert!(text.contains(&format!("until these have heard of the last one: {peer}\n")), "{text}");
        report.sent_bytes.insert(peer, 2_048);
        let text = streams(&report);
        assert!(text.contains("changes: nothing is received here\n") && text.contains("2.00 KiB"), "{text}");
        let part = PeerProgress { peer, bytes: 1, estimated_bytes: 1, units: 1, units_done: 1 };
        report.receiving = Some(TransferProgress { peers: vec![part], ..transfer });
        let text = streams(&report);
        assert!(
            text.contains(&format!("Receiving, because {member} changes")) && text.contains("1 of 1"),
            "{text}"
        );
        let of_replication = report
            .receiving
            .take()
            .map(|transfer| TransferProgress { member: uuid::Uuid::nil(), ..transfer });
        report.receiving = of_replication;
        assert!(streams(&report).contains("Receiving, because replication changes"));
    }

    #[test]
    fn a_description_names_members_that_disagree_or_are_unreachable() {
        let report = ClusterDescription {
            cluster_name: "c".to_owned(),
            partitioner: "p".to_owned(),
            snitch: "s".to_owned(),
            dynamic_snitch: true,
            schema_versions: BTreeMap::from([
                ("v1".to_owned(), vec!["10.0.0.12:7000".to_owned(), "10.0.0.2:7000".to_owned()]),
                ("v2".to_owned(), vec!["c".to_owned()]),
            ]),
            unreachable: vec!["d".to_owned()],
            data_centers: BTreeMap::from([("dc1".to_owned(), 4)]),
            topology_version: 7,
            topology_epoch: 5,
            feature_level: 1,
            removed: Vec::new(),
            keyspaces: BTreeMap::from([(
                "ks".to_owned(),
                BTreeMap::from([("class".to_owned(), "SimpleStrategy".to_owned())]),
            )]),
        };
        let text = description(&report);
        for line in [
            "  v1: 10.0.0.2:7000, 10.0.0.12:7000\n",
            "  v2: c\n",
            "  UNREACHABLE: d\n",
            "  dc1: 4 members\n",
            "  ks: class=SimpleStrategy\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("Removed"));
    }
}
