//! Members, the ring and the node itself, as nodetool prints them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::format::{Addresses, file_size, tables};
use crate::members::code;
use crate::reports::{
    ClusterDescription, ClusterStatus, MemberReport, NodeReport, RingReport, RuntimeSettings,
};
use crate::tables::row;

fn by_data_center(status: &ClusterStatus) -> BTreeMap<&str, Vec<&MemberReport>> {
    let mut found: BTreeMap<&str, Vec<&MemberReport>> = BTreeMap::new();
    for member in &status.members {
        found.entry(&member.data_center).or_default().push(member);
    }
    found
}

fn load(member: &MemberReport) -> String {
    member.data_bytes.map_or_else(|| "?".to_owned(), file_size)
}

/// `status`.
pub(super) fn status(status: &ClusterStatus, addresses: Addresses) -> String {
    let owns = if status.keyspace.is_some() { "Owns (effective)" } else { "Owns" };
    let data_centers = by_data_center(status);
    let rows: Vec<Vec<Vec<String>>> = data_centers
        .values()
        .map(|members| {
            let heading = row(&["--", "Address", "Load", "Tokens", owns, "Host ID", "Rack"]);
            let of_member = members.iter().map(|member| {
                vec![
                    code(member.is_up, &member.state),
                    addresses.text(&member.address),
                    load(member),
                    member.token_count.to_string(),
                    format!("{:.1}%", member.owns * 100.0),
                    member.host_id.clone(),
                    member.rack.clone(),
                ]
            });
            std::iter::once(heading).chain(of_member).collect()
        })
        .collect();
    let rows: Vec<&[Vec<String>]> = rows.iter().map(Vec::as_slice).collect();
    let mut text = String::new();
    for (data_center, table) in data_centers.keys().zip(tables(&rows, "  ")) {
        let heading = format!("Datacenter: {data_center}");
        let line = "=".repeat(heading.chars().count());
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{heading}\n{line}\nStatus=Up/Down\n|/ State=Normal/Leaving/Joining/Moving\n{table}\n"
        );
    }
    text
}

/// `ring`.
pub(super) fn ring(ring: &RingReport, status: &ClusterStatus, addresses: Addresses) -> String {
    let members: BTreeMap<&str, &MemberReport> =
        status.members.iter().map(|member| (member.host_id.as_str(), member)).collect();
    let shown: BTreeMap<&str, String> =
        ring.tokens.iter().map(|token| (token.address.as_str(), addresses.text(&token.address))).collect();
    let width = shown.values().map(|address| address.chars().count()).max().unwrap_or(0);
    let line = |address: &str, cells: [&str; 6]| {
        let [rack, state, kind, load, owns, token] = cells;
        let line = format!("{address:<width$}  {rack:<12}{state:<7}{kind:<8}{load:<16}{owns:<20}{token:<44}");
        format!("{}\n", line.trim_end())
    };
    let mut text = "\n".to_owned();
    for data_center in by_data_center(status).keys() {
        let tokens: Vec<_> = ring.tokens.iter().filter(|token| token.data_center == *data_center).collect();
        let Some(last) = tokens.last() else { continue };
        // Writing to a string does not fail.
        let _ = writeln!(text, "Datacenter: {data_center}\n==========");
        text += &line("Address", ["Rack", "Status", "State", "Load", "Owns", "Token"]);
        text += &if tokens.len() > 1 { line("", ["", "", "", "", "", &last.token]) } else { "\n".to_owned() };
        for token in &tokens {
            let member = members.get(token.host_id.as_str());
            let mut state = token.state.clone();
            if let Some(first) = state.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            text += &line(
                &shown[token.address.as_str()],
                [
                    &token.rack,
                    if token.is_up { "Up" } else { "Down" },
                    &state,
                    &member.map_or_else(|| "?".to_owned(), |member| load(member)),
                    &member.map_or_else(|| "?".to_owned(), |member| format!("{:.2}%", member.owns * 100.0)),
                    &token.token,
                ],
            );
        }
        text.push('\n');
    }
    if ring.tokens.len() > shown.len() {
        text += "  Warning: \"nodetool ring\" is used to output all the tokens of a node.\n";
        text += "  To view status related info of a node use \"nodetool status\" instead.\n\n";
    }
    text
}

/// `info`, with the tokens of the node if they are shown.
pub(super) fn info(node: &NodeReport, settings: &RuntimeSettings, tokens: Option<&[String]>) -> String {
    let is_away = matches!(node.serving.as_str(), "draining" | "drained" | "removed");
    let bootstrap = match node.state.as_str() {
        "normal" | "leaving" => "COMPLETED",
        "joining" => "IN_PROGRESS",
        _ => "NEEDS_BOOTSTRAP",
    };
    let mut lines = vec![
        ("ID", node.host_id.clone()),
        ("Gossip active", (!is_away).to_string()),
        ("Native Transport active", (!is_away && settings.native_transport).to_string()),
        ("Load", file_size(node.data_bytes)),
        ("Generation No", node.started_at_seconds.to_string()),
        ("Uptime (seconds)", node.uptime_seconds.to_string()),
        ("Data Center", node.data_center.clone()),
        ("Rack", node.rack.clone()),
    ];
    match tokens {
        _ if node.token_count == 0 => {
            lines.push(("Token", "(node is not joined to the cluster)".to_owned()));
        }
        Some(tokens) => lines.extend(tokens.iter().map(|token| ("Token", token.clone()))),
        None => {
            let hint = format!("(invoke with -T/--tokens to see all {} tokens)", node.token_count);
            lines.push(("Token", hint));
        }
    }
    lines.push(("Bootstrap state", bootstrap.to_owned()));
    lines.push(("Decommissioning", (node.state == "leaving").to_string()));
    let mut text = String::new();
    for (name, value) in lines {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<23}: {value}");
    }
    text
}

/// `describecluster`.
pub(super) fn describe(cluster: &ClusterDescription, status: &ClusterStatus, addresses: Addresses) -> String {
    let mut text = format!(
        "Cluster Information:\n\tName: {}\n\tSnitch: {}\n\tDynamicEndPointSnitch: {}\n\tPartitioner: {}\n\tSchema versions:\n",
        cluster.cluster_name,
        cluster.snitch,
        if cluster.dynamic_snitch { "enabled" } else { "disabled" },
        cluster.partitioner
    );
    // Writing to a string does not fail.
    for (version, members) in &cluster.schema_versions {
        let _ = writeln!(text, "\t\t{version}: {}\n", addresses.list(members));
    }
    if !cluster.unreachable.is_empty() {
        let _ = writeln!(text, "\t\tUNREACHABLE: {}\n", addresses.list(&cluster.unreachable));
    }
    let count = |is_counted: &dyn Fn(&MemberReport) -> bool| {
        status.members.iter().filter(|member| is_counted(member)).count()
    };
    let _ = writeln!(
        text,
        "Stats for all nodes:\n\tLive: {}\n\tJoining: {}\n\tMoving: 0\n\tLeaving: {}\n\tUnreachable: {}\n\nData Centers: ",
        count(&|member| member.is_up),
        count(&|member| member.state == "joining"),
        count(&|member| member.state == "leaving"),
        count(&|member| !member.is_up),
    );
    for (data_center, members) in by_data_center(status) {
        let down = members.iter().filter(|member| !member.is_up).count();
        let _ = writeln!(text, "\t{data_center} #Nodes: {} #Down: {down}", members.len());
    }
    let mut versions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for member in &status.members {
        versions.entry(&member.release_version).or_default().push(member.address.clone());
    }
    text += "\nDatabase versions:\n";
    for (version, members) in versions {
        let with_ports = Addresses { have_ports: true, ..addresses };
        let _ = writeln!(text, "\t{version}: {}\n", with_ports.list(&members));
    }
    text += "Keyspaces:\n";
    for (keyspace, replication) in &cluster.keyspaces {
        let class = replication.get("class").map_or("", String::as_str);
        let class = class.rsplit('.').next().unwrap_or(class);
        let options: Vec<String> = replication
            .iter()
            .filter(|(option, _)| *option != "class")
            .map(|(option, value)| format!("{option}={value}"))
            .collect();
        let _ = writeln!(text, "\t{keyspace} -> Replication class: {class} {{{}}}", options.join(", "));
    }
    text
}

/// `removenode status`.
pub(super) fn removals(status: &ClusterStatus, addresses: Addresses) -> String {
    let leaving = status.members.iter().filter(|member| member.state == "leaving" && !member.is_up);
    let texts: Vec<String> = leaving
        .map(|member| format!("Removing {} ({})", addresses.text(&member.address), member.host_id))
        .collect();
    let text = if texts.is_empty() { "No token removals in process.".to_owned() } else { texts.join(", ") };
    format!("RemovalStatus: {text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::samples::{cluster, member, token};

    #[test]
    fn status_has_a_table_for_each_data_center_with_columns_of_the_same_widths() {
        let members = vec![
            member(1, "dc1", true, "normal"),
            member(20, "dc1", false, "leaving"),
            member(3, "dc2", true, "joining"),
        ];
        let expected = "\
Datacenter: dc1
===============
Status=Up/Down
|/ State=Normal/Leaving/Joining/Moving
--  Address    Load   Tokens  Owns (effective)  Host ID  Rack
UN  10.0.0.1   2 KiB  16      33.3%             host-1   r1
DL  10.0.0.20  ?      16      33.3%             host-20  r1

Datacenter: dc2
===============
Status=Up/Down
|/ State=Normal/Leaving/Joining/Moving
--  Address    Load   Tokens  Owns (effective)  Host ID  Rack
UJ  10.0.0.3   2 KiB  16      33.3%             host-3   r1

";
        let mut report = cluster(Some("ks"), members);
        assert_eq!(status(&report, Addresses::default()), expected);
        report.keyspace = None;
        report.members.truncate(1);
        let text = status(&report, Addresses { have_ports: true, are_names: false });
        let line = "--  Address        Load   Tokens  Owns   Host ID  Rack\nUN  10.0.0.1:7000  2 KiB  16      33.3%  host-1   r1\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn ring_shows_each_token_with_the_load_of_its_owner() {
        let members = vec![member(1, "dc1", true, "normal"), member(2, "dc1", false, "normal")];
        let tokens = vec![token(-7, 1, true, &[]), token(9, 2, false, &[]), token(12, 1, true, &[])];
        let report = RingReport { keyspace: None, tokens };
        let expected = "
Datacenter: dc1
==========
Address   Rack        Status State   Load            Owns                Token
                                                                         12
10.0.0.1  r1          Up     Normal  2 KiB           33.33%              -7
10.0.0.2  r1          Down   Normal  ?               33.33%              9
10.0.0.1  r1          Up     Normal  2 KiB           33.33%              12

  Warning: \"nodetool ring\" is used to output all the tokens of a node.
  To view status related info of a node use \"nodetool status\" instead.

";
        assert_eq!(ring(&report, &cluster(None, members), Addresses::default()), expected);
    }

    #[test]
    fn info_has_nodetools_names() {
        let node = NodeReport {
            started_at_seconds: 77,
            uptime_seconds: 5,
            data_bytes: 1_536,
            ..crate::tables::samples::node()
        };
        let settings = RuntimeSettings { native_transport: true, ..RuntimeSettings::default() };
        let expected = "\
ID                     : host-1
Gossip active          : true
Native Transport active: true
Load                   : 1.5 KiB
Generation No          : 77
Uptime (seconds)       : 5
Data Center            : dc1
Rack                   : r1
Token                  : (invoke with -T/--tokens to see all 2 tokens)
Bootstrap state        : COMPLETED
Decommissioning        : false
";
        assert_eq!(info(&node, &settings, None), expected);
        let tokens = ["-7".to_owned(), "9".to_owned()];
        let text = info(&node, &RuntimeSettings::default(), Some(&tokens));
        assert!(text.contains("Native Transport active: false\n"), "{text}");
        assert!(text.contains("Token                  : -7\nToken                  : 9\n"), "{text}");
        let drained = NodeReport { serving: "drained".to_owned(), token_count: 0, ..node };
        let text = info(&drained, &settings, None);
        assert!(text.contains("Gossip active          : false\nNative Transport active: false\n"), "{text}");
        assert!(text.contains("Token                  : (node is not joined to the cluster)\n"), "{text}");
    }

    #[test]
    fn the_cluster_is_described_with_nodetools_names() {
        let description = ClusterDescription {
            cluster_name: "c".to_owned(),
            partitioner: "p".to_owned(),
            snitch: "s".to_owned(),
            dynamic_snitch: true,
            schema_versions: BTreeMap::from([("v1".to_owned(), vec!["10.0.0.1:7000".to_owned()])]),
            unreachable: vec!["10.0.0.2:7000".to_owned()],
            data_centers: BTreeMap::new(),
            topology_version: 7,
            topology_epoch: 5,
            feature_level: 1,
            removed: Vec::new(),
            keyspaces: BTreeMap::from([(
                "ks".to_owned(),
                BTreeMap::from([
                    ("class".to_owned(), "org.apache.cassandra.locator.SimpleStrategy".to_owned()),
                    ("replication_factor".to_owned(), "2".to_owned()),
                ]),
            )]),
        };
        let members = vec![member(1, "dc1", true, "normal"), member(2, "dc1", false, "leaving")];
        let expected = "\
Cluster Information:
\tName: c
\tSnitch: s
\tDynamicEndPointSnitch: enabled
\tPartitioner: p
\tSchema versions:
\t\tv1: [10.0.0.1]

\t\tUNREACHABLE: [10.0.0.2]

Stats for all nodes:
\tLive: 1
\tJoining: 0
\tMoving: 0
\tLeaving: 1
\tUnreachable: 1

Data Centers: \n\
\tdc1 #Nodes: 2 #Down: 1

Database versions:
\t1: [10.0.0.1:7000, 10.0.0.2:7000]

Keyspaces:
\tks -> Replication class: SimpleStrategy {replication_factor=2}
";
        let status = cluster(None, members);
        assert_eq!(describe(&description, &status, Addresses::default()), expected);
        assert_eq!(removals(&status, Addresses::default()), "RemovalStatus: Removing 10.0.0.2 (host-2)\n");
        let none = cluster(None, Vec::new());
        assert_eq!(removals(&none, Addresses::default()), "RemovalStatus: No token removals in process.\n");
    }
}
