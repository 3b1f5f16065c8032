//! Rows about the node, its peers and its clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use cql_lite::types::timeuuid;
use uuid::Uuid;

use super::row::RowWriter;
use super::{
    CQL_VERSION, NATIVE_PROTOCOL_VERSION, NodeInformation, NodeState, PARTITIONER, Peer, RELEASE_VERSION,
    RangeKind, RepairedRange, SizeEstimate,
};
use crate::schema::catalog::{Catalog, Table, TableKind};

/// `system.local`: one row.
pub fn local(writer: &mut RowWriter, catalog: &Catalog, node: &NodeInformation, state: &NodeState) {
    writer
        .row()
        .set("key", "local")
        .set("bootstrapped", if state.is_joining { "IN_PROGRESS" } else { "COMPLETED" })
        .set("broadcast_address", node.broadcast_address)
        .set("broadcast_port", i32::from(node.storage_port))
        .set("cluster_name", node.cluster_name.as_str())
        .set("cql_version", CQL_VERSION)
        .set("data_center", node.data_center.as_str())
        .set("gossip_generation", node.generation)
        .set("host_id", node.host_id)
        .set("listen_address", node.listen_address)
        .set("listen_port", i32::from(node.storage_port))
        .set("native_protocol_version", NATIVE_PROTOCOL_VERSION)
        .set("partitioner", PARTITIONER)
        .set("rack", node.rack.as_str())
        .set("release_version", RELEASE_VERSION)
        .set("rpc_address", node.rpc_address)
        .set("rpc_port", i32::from(node.native_port))
        .set("schema_version", catalog.version)
        .set("tokens", tokens(&state.tokens));
}

/// `system.peers`.
pub fn peers(writer: &mut RowWriter, state: &NodeState) {
    // Nodes that share an address share the row, because its key has no port.
    let by_address: BTreeMap<IpAddr, &Peer> = state.peers.iter().map(|peer| (peer.address, peer)).collect();
    for peer in by_address.into_values() {
        writer
            .row()
            .set("peer", peer.address)
            .set("data_center", peer.data_center.as_str())
            .set("host_id", peer.host_id)
            .set("rack", peer.rack.as_str())
            .set("release_version", RELEASE_VERSION)
            .set("rpc_address", peer.native_address)
            .set("schema_version", peer.schema_version)
            .set("tokens", tokens(&peer.tokens));
    }
}

/// `system.peers_v2`.
pub fn peers_v2(writer: &mut RowWriter, state: &NodeState) {
    for peer in &state.peers {
        writer
            .row()
            .set("peer", peer.address)
            .set("peer_port", i32::from(peer.storage_port))
            .set("data_center", peer.data_center.as_str())
            .set("host_id", peer.host_id)
            .set("native_address", peer.native_address)
            .set("native_port", i32::from(peer.native_port))
            .set("rack", peer.rack.as_str())
            .set("release_version", RELEASE_VERSION)
            .set("schema_version", peer.schema_version)
            .set("tokens", tokens(&peer.tokens));
    }
}

/// Tokens as the set of texts that drivers parse.
fn tokens(tokens: &[i64]) -> Vec<String> {
    let mut texts: Vec<String> = tokens.iter().map(i64::to_string).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

/// `system.size_estimates`.
pub fn size_estimates(writer: &mut RowWriter, catalog: &Catalog, state: &NodeState) {
    for (table, estimate) in estimates(catalog, state) {
        if estimate.kind == RangeKind::Primary {
            estimate_row(writer, table, estimate, None);
        }
    }
}

/// `system.table_estimates`.
pub fn table_estimates(writer: &mut RowWriter, catalog: &Catalog, state: &NodeState) {
    for (table, estimate) in estimates(catalog, state) {
        estimate_row(writer, table, estimate, Some(estimate.kind));
    }
}

fn estimates<'a>(
    catalog: &'a Catalog,
    state: &'a NodeState,
) -> impl Iterator<Item = (&'a Table, &'a SizeEstimate)> {
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    tables.filter(|table| table.kind == TableKind::Stored && !table.is_hidden()).flat_map(|table| {
        let estimates = state.estimates.get(&table.id).map(Vec::as_slice).unwrap_or_default();
        let mut ordered: Vec<&SizeEstimate> = estimates.iter().collect();
        // The range bounds are texts in the key.
        ordered.sort_by_cached_key(|estimate| {
            (estimate.kind, estimate.range_start.to_string(), estimate.range_end.to_string())
        });
        ordered.into_iter().map(move |estimate| (table.as_ref(), estimate))
    })
}

fn estimate_row(writer: &mut RowWriter, table: &Table, estimate: &SizeEstimate, kind: Option<RangeKind>) {
    let mut row = writer.row();
    if let Some(kind) = kind {
        row.set("range_type", kind.name());
    }
    row.set("keyspace_name", table.keyspace.as_str())
        .set("table_name", table.name.as_str())
        .set("range_start", estimate.range_start.to_string())
        .set("range_end", estimate.range_end.to_string())
        .set("mean_partition_size", estimate.mean_partition_size_bytes)
        .set("partitions_count", estimate.partitions_count);
}

/// `system_distributed.repair_history`, of the ranges of this node only. The coordinators of repairs, and when they ended, are not kept.
pub fn repair_history(writer: &mut RowWriter, state: &NodeState) {
    let mut repaired: Vec<_> =
        state.repaired_ranges.iter().map(|range| (id_of_repair(range), range)).collect();
    // Timeuuids of one time are ordered by the rest of their bytes, each as a signed number.
    repaired.sort_by_cached_key(|(id, range)| {
        let (_, rest) = id.as_u64_pair();
        (range.keyspace.clone(), range.table.clone(), range.began_micros, rest ^ 0x8080_8080_8080_8080)
    });
    for (id, range) in repaired {
        let addresses: BTreeSet<IpAddr> = range.participants.iter().map(SocketAddr::ip).collect();
        let with_ports: BTreeSet<String> = range.participants.iter().map(ToString::to_string).collect();
        writer
            .row()
            .set("keyspace_name", range.keyspace.as_str())
            .set("columnfamily_name", range.table.as_str())
            .set("id", id)
            .set("range_begin", range.range_start.to_string())
            .set("range_end", range.range_end.to_string())
            .set("participants", addresses)
            .set("participants_v2", with_ports.into_iter().collect::<Vec<_>>())
            .set("status", "SUCCESS")
            .set("started_at", range.began_micros.div_euclid(1_000));
    }
}

/// An id that is the same at each read. All but two bits of the range's end are in it, and no two ranges of a table end at one token.
fn id_of_repair(range: &RepairedRange) -> Uuid {
    let [c0, c1, node @ ..] = range.range_end.to_be_bytes();
    timeuuid::from_micros(range.began_micros, 0, u16::from_be_bytes([c0, c1]), node)
}

/// `system_views.clients`.
pub fn clients(writer: &mut RowWriter, state: &NodeState) {
    let mut clients: Vec<_> = state.clients.iter().collect();
    clients.sort_by_key(|client| (client.address, client.port));
    for client in clients {
        writer
            .row()
            .set("address", client.address)
            .set("port", i32::from(client.port))
            .set("client_options", &client.options)
            .set("connection_stage", "ready")
            .set("driver_name", client.driver_name.as_deref())
            .set("driver_version", client.driver_version.as_deref())
            .set("hostname", client.address.to_string())
            .set("keyspace_name", client.keyspace.as_deref())
            .set("protocol_version", i32::from(client.protocol_version))
            .set("request_count", client.request_count as i64)
            .set("ssl_enabled", false)
            .set("username", client.username.as_deref().unwrap_or("anonymous"));
    }
}
