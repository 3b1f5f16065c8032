//! Members and their ranges as text.
//!
//! `helenus admin` shows addresses with their ports; nodetool does so only where it is asked to.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::reports::{ClusterStatus, EndpointsReport, MemberReport, RingReport, TokenReport};
use crate::tables::{bytes, columns, row};

/// An address, or the part of it before the port.
pub(crate) fn address(address: &str, has_port: bool) -> &str {
    match address.rsplit_once(':') {
        Some((host, _)) if !has_port => host.trim_start_matches('[').trim_end_matches(']'),
        _ => address,
    }
}

/// `UN`: up, normal; as in `nodetool`.
pub(crate) fn code(is_up: bool, state: &str) -> String {
    let state = match state {
        "joining" => 'J',
        "leaving" => 'L',
        "starting" => '?',
        _ => 'N',
    };
    format!("{}{state}", if is_up { 'U' } else { 'D' })
}

/// Members by data center.
pub(crate) fn status(status: &ClusterStatus) -> String {
    let mut by_data_center: BTreeMap<&str, Vec<&MemberReport>> = BTreeMap::new();
    for member in &status.members {
        by_data_center.entry(&member.data_center).or_default().push(member);
    }
    let mut text = String::new();
    for (data_center, members) in by_data_center {
        let heading = format!("Datacenter: {data_center}");
        let line = "=".repeat(heading.chars().count());
        let _ = writeln!(text, "{heading}\n{line}\nStatus=Up/Down\n|/ State=Normal/Leaving/Joining");
        let owns = if status.keyspace.is_some() { "Owns (effective)" } else { "Owns" };
        let mut rows = vec![row(&["--", "Address", "Load", "Tokens", owns, "Host ID", "Rack"])];
        for member in members {
            rows.push(vec![
                code(member.is_up, &member.state),
                member.address.clone(),
                member.data_bytes.map_or_else(|| "?".to_owned(), bytes),
                member.token_count.to_string(),
                format!("{:.1}%", member.owns * 100.0),
                member.host_id.clone(),
                member.rack.clone(),
            ]);
        }
        text.push_str(&columns(&rows));
        text.push('\n');
    }
    text
}

/// Tokens in order.
pub(crate) fn ring(ring: &RingReport) -> String {
    let mut heading = row(&["Token", "Address", "Status", "State", "Datacenter", "Rack"]);
    heading.extend(ring.keyspace.as_ref().map(|keyspace| format!("Replicas of {keyspace}")));
    let mut rows = vec![heading];
    for token in &ring.tokens {
        let mut cells = vec![
            token.token.clone(),
            token.address.clone(),
            if token.is_up { "up" } else { "down" }.to_owned(),
            token.state.clone(),
            token.data_center.clone(),
            token.rack.clone(),
        ];
        cells.extend(ring.keyspace.as_ref().map(|_| token.replicas.join(", ")));
        rows.push(cells);
    }
    columns(&rows)
}

/// The replicas of a partition.
pub(crate) fn endpoints(report: &EndpointsReport) -> String {
    let mut rows = vec![row(&["--", "Address", "Host ID"])];
    rows.extend(report.endpoints.iter().map(|endpoint| {
        row(&[if endpoint.is_up { "U" } else { "D" }, &endpoint.address, &endpoint.host_id])
    }));
    format!("Token: {}\n{}", report.token, columns(&rows))
}

/// The ranges of the ring with their replicas, as `helenus admin` shows them.
pub(crate) fn ranges(ring: &RingReport) -> String {
    token_ranges(ring, &[], true)
}

/// The ranges of the ring with their replicas, each in a line as nodetool has it. The addresses for clients are left out if the
/// members are not known.
pub(crate) fn token_ranges(ring: &RingReport, members: &[MemberReport], has_ports: bool) -> String {
    let owners: BTreeMap<&str, &TokenReport> =
        ring.tokens.iter().map(|token| (token.address.as_str(), token)).collect();
    let natives: BTreeMap<&str, &str> =
        members.iter().map(|member| (member.address.as_str(), member.native_address.as_str())).collect();
    let mut text = String::new();
    let starts = ring.tokens.last().into_iter().chain(&ring.tokens);
    for (start, end) in starts.zip(&ring.tokens) {
        let list = |addresses: &mut dyn Iterator<Item = &str>| {
            addresses.map(|each| address(each, has_ports)).collect::<Vec<_>>().join(", ")
        };
        let replicas = || end.replicas.iter().map(String::as_str);
        let mut natives = replicas().filter_map(|replica| natives.get(replica).copied());
        let rpc_endpoints = match members {
            [] => String::new(),
            _ => format!(", rpc_endpoints:[{}]", list(&mut natives)),
        };
        let details = replicas().filter_map(|replica| owners.get(replica)).map(|owner| {
            format!(
                "EndpointDetails(host:{}, datacenter:{}, rack:{})",
                address(&owner.address, has_ports),
                owner.data_center,
                owner.rack
            )
        });
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "\tTokenRange(start_token:{}, end_token:{}, endpoints:[{}]{rpc_endpoints}, endpoint_details:[{}])",
            start.token,
            end.token,
            list(&mut replicas()),
            details.collect::<Vec<_>>().join(", ")
        );
    }
    format!("TokenRange: \n{text}")
}

/// What members have announced, as `helenus admin` shows it.
pub(crate) fn announced(status: &ClusterStatus) -> String {
    gossip(status, |address| format!("/{address}"))
}

/// What members have announced, in blocks with nodetool's names and a heading for each address. Values have no versions, which
/// nodetool shows before them.
pub(crate) fn gossip(status: &ClusterStatus, heading: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    for member in &status.members {
        let is_shut_down = matches!(member.serving.as_deref(), Some("draining" | "drained"));
        let state = match member.state.as_str() {
            _ if is_shut_down => "shutdown".to_owned(),
            "joining" => "BOOT".to_owned(),
            state => state.to_uppercase(),
        };
        let lines = [
            ("STATUS", Some(state)),
            ("LOAD", member.data_bytes.map(|bytes| bytes.to_string())),
            ("SCHEMA", member.schema_version.clone()),
            ("DC", Some(member.data_center.clone())),
            ("RACK", Some(member.rack.clone())),
            ("RELEASE_VERSION", Some(member.release_version.clone())),
            ("RPC_READY", member.serving.as_ref().map(|state| (state == "normal").to_string())),
            ("INTERNAL_ADDRESS_AND_PORT", Some(member.address.clone())),
            ("NATIVE_ADDRESS_AND_PORT", Some(member.native_address.clone())),
            ("HOST_ID", Some(member.host_id.clone())),
            ("TOKENS", Some(member.token_count.to_string())),
        ];
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", heading(&member.address));
        for (name, value) in lines {
            if let Some(value) = value {
                let _ = writeln!(text, "  {name}:{value}");
            }
        }
    }
    text
}

/// A metadata log that goes on, with the host ids of the members that are down.
pub(crate) fn recovered(down: &[String]) -> String {
    if down.is_empty() {
        return "the metadata log goes on; no member is down\n".to_owned();
    }
    format!(
        "the metadata log goes on. These members are down. They are to be removed, and must not come back with their data:\n{}\n",
        down.join("\n")
    )
}

/// Members and rings for tests.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    pub(crate) fn member(number: u32, data_center: &str, is_up: bool, state: &str) -> MemberReport {
        MemberReport {
            host_id: format!("host-{number}"),
            address: format!("10.0.0.{number}:7000"),
            native_address: format!("10.0.0.{number}:9042"),
            data_center: data_center.to_owned(),
            rack: "r1".to_owned(),
            is_up,
            state: state.to_owned(),
            serving: is_up.then(|| "normal".to_owned()),
            token_count: 16,
            owns: 0.3333,
            data_bytes: is_up.then_some(2_048),
            schema_version: is_up.then(|| "v1".to_owned()),
            release_version: "1".to_owned(),
        }
    }

    pub(crate) fn cluster(keyspace: Option<&str>, members: Vec<MemberReport>) -> ClusterStatus {
        ClusterStatus { cluster_name: "c".to_owned(), keyspace: keyspace.map(str::to_owned), members }
    }

    pub(crate) fn token(token: i64, number: u32, is_up: bool, replicas: &[u32]) -> TokenReport {
        TokenReport {
            token: token.to_string(),
            host_id: format!("host-{number}"),
            address: format!("10.0.0.{number}:7000"),
            data_center: "dc1".to_owned(),
            rack: "r1".to_owned(),
            is_up,
            state: "normal".to_owned(),
            replicas: replicas.iter().map(|number| format!("10.0.0.{number}:7000")).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{cluster, member, token};
    use super::*;
    use crate::reports::EndpointReport;

    #[test]
    fn ports_can_be_left_out() {
        assert_eq!(address("10.0.0.1:7000", true), "10.0.0.1:7000");
        assert_eq!(address("10.0.0.1:7000", false), "10.0.0.1");
        assert_eq!(address("[::1]:7000", false), "::1");
        assert_eq!(address("node", false), "node");
    }

    #[test]
    fn status_is_a_table_for_each_data_center() {
        let report = cluster(
            None,
            vec![
                member(1, "dc1", true, "normal"),
                member(20, "dc1", false, "leaving"),
                member(3, "dc2", true, "joining"),
            ],
        );
        let text = status(&report);
        let expected = "\
Datacenter: dc1
===============
Status=Up/Down
|/ State=Normal/Leaving/Joining
--  Address         Load      Tokens  Owns   Host ID  Rack
UN  10.0.0.1:7000   2.00 KiB  16      33.3%  host-1   r1
DL  10.0.0.20:7000  ?         16      33.3%  host-20  r1

Datacenter: dc2
===============
Status=Up/Down
|/ State=Normal/Leaving/Joining
--  Address        Load      Tokens  Owns   Host ID  Rack
UJ  10.0.0.3:7000  2.00 KiB  16      33.3%  host-3   r1

";
        assert_eq!(text, expected);
    }

    #[test]
    fn replicas_of_a_partition_are_listed() {
        let endpoint = |number, is_up| EndpointReport {
            host_id: format!("host-{number}"),
            address: format!("10.0.0.{number}:7000"),
            is_up,
        };
        let report = EndpointsReport {
            token: "-5".to_owned(),
            endpoints: vec![endpoint(1, true), endpoint(2, false)],
        };
        let expected = "\
Token: -5
--  Address        Host ID
U   10.0.0.1:7000  host-1
D   10.0.0.2:7000  host-2
";
        assert_eq!(endpoints(&report), expected);
    }

    #[test]
    fn a_range_begins_behind_the_token_before_it() {
        let ring = RingReport {
            keyspace: Some("ks".to_owned()),
            tokens: vec![token(-7, 1, true, &[1, 2]), token(9, 2, true, &[2, 1])],
        };
        let expected = "\
TokenRange: \n\
\tTokenRange(start_token:9, end_token:-7, endpoints:[10.0.0.1:7000, 10.0.0.2:7000], endpoint_details:[\
EndpointDetails(host:10.0.0.1:7000, datacenter:dc1, rack:r1), \
EndpointDetails(host:10.0.0.2:7000, datacenter:dc1, rack:r1)])
\tTokenRange(start_token:-7, end_token:9, endpoints:[10.0.0.2:7000, 10.0.0.1:7000], endpoint_details:[\
EndpointDetails(host:10.0.0.2:7000, datacenter:dc1, rack:r1), \
EndpointDetails(host:10.0.0.1:7000, datacenter:dc1, rack:r1)])
";
        assert_eq!(ranges(&ring), expected);
    }

    #[test]
    fn only_what_a_member_has_announced_is_shown() {
        let mut drained = member(2, "dc1", false, "normal");
        drained.serving = Some("drained".to_owned());
        let expected = "\
/10.0.0.1:7000
  STATUS:BOOT
  LOAD:2048
  SCHEMA:v1
  DC:dc1
  RACK:r1
  RELEASE_VERSION:1
  RPC_READY:true
  INTERNAL_ADDRESS_AND_PORT:10.0.0.1:7000
  NATIVE_ADDRESS_AND_PORT:10.0.0.1:9042
  HOST_ID:host-1
  TOKENS:16
/10.0.0.2:7000
  STATUS:shutdown
  DC:dc1
  RACK:r1
  RELEASE_VERSION:1
  RPC_READY:false
  INTERNAL_ADDRESS_AND_PORT:10.0.0.2:7000
  NATIVE_ADDRESS_AND_PORT:10.0.0.2:9042
  HOST_ID:host-2
  TOKENS:16
";
        assert_eq!(announced(&cluster(None, vec![member(1, "dc1", true, "joining"), drained])), expected);
    }
}
