//! What the node says of itself, of its peers and of its clients.

use super::row::RowWriter;
use super::{CQL_VERSION, NATIVE_PROTOCOL_VERSION, NodeInformation, PARTITIONER, RELEASE_VERSION};
use crate::schema::catalog::{Catalog, TableKind};

/// `system.local`: one row.
pub fn local(writer: &mut RowWriter, catalog: &Catalog, node: &NodeInformation) {
    writer
        .row()
        .set("key", "local")
        .set("bootstrapped", "COMPLETED")
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
        .set("tokens", tokens(&node.tokens));
}

/// `system.peers`.
pub fn peers(writer: &mut RowWriter, node: &NodeInformation) {
    for peer in &node.peers {
        writer
            .row()
            .set("peer", peer.address)
            .set("data_center", peer.data_center.as_str())
            .set("host_id", peer.host_id)
            .set("rack", peer.rack.as_str())
            .set("release_version", peer.release_version.as_str())
            .set("rpc_address", peer.native_address)
            .set("schema_version", peer.schema_version)
            .set("tokens", tokens(&peer.tokens));
    }
}

/// `system.peers_v2`.
pub fn peers_v2(writer: &mut RowWriter, node: &NodeInformation) {
    for peer in &node.peers {
        writer
            .row()
            .set("peer", peer.address)
            .set("peer_port", i32::from(peer.storage_port))
            .set("data_center", peer.data_center.as_str())
            .set("host_id", peer.host_id)
            .set("native_address", peer.native_address)
            .set("native_port", i32::from(peer.native_port))
            .set("rack", peer.rack.as_str())
            .set("release_version", peer.release_version.as_str())
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

/// `system.size_estimates`, or `system.table_estimates` with the type of the range in its key.
pub fn size_estimates(
    writer: &mut RowWriter,
    catalog: &Catalog,
    node: &NodeInformation,
    with_range_type: bool,
) {
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    for table in tables.filter(|table| table.kind == TableKind::Stored) {
        let mut estimates = node.live.size_estimates(table);
        // The range bounds are texts in the key.
        estimates.sort_by_cached_key(|estimate| {
            (estimate.range_start.to_string(), estimate.range_end.to_string())
        });
        for estimate in estimates {
            let mut row = writer.row();
            if with_range_type {
                row.set("range_type", "primary");
            }
            row.set("keyspace_name", table.keyspace.as_str())
                .set("table_name", table.name.as_str())
                .set("range_start", estimate.range_start.to_string())
                .set("range_end", estimate.range_end.to_string())
                .set("mean_partition_size", estimate.mean_partition_size_bytes)
                .set("partitions_count", estimate.partitions_count);
        }
    }
}

/// `system_views.clients`.
pub fn clients(writer: &mut RowWriter, node: &NodeInformation) {
    let mut clients = node.live.clients();
    clients.sort_by_key(|client| (client.address, client.port));
    for client in clients {
        writer
            .row()
            .set("address", client.address)
            .set("port", i32::from(client.port))
            .set("client_options", &client.options)
            .set("connection_stage", "ready")
            .set("driver_name", client.driver_name)
            .set("driver_version", client.driver_version)
            .set("hostname", client.address.to_string())
            .set("keyspace_name", client.keyspace)
            .set("protocol_version", i32::from(client.protocol_version))
            .set("request_count", client.request_count as i64)
            .set("ssl_enabled", false)
            .set("username", client.username.unwrap_or_else(|| "anonymous".to_owned()));
    }
}

/// `system_views.settings`.
pub fn settings(writer: &mut RowWriter, node: &NodeInformation) {
    let mut settings: Vec<&(String, String)> = node.settings.iter().collect();
    settings.sort_unstable();
    for (name, value) in settings {
        writer.row().set("name", name.as_str()).set("value", value.as_str());
    }
}
