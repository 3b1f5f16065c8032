//! Views of the other nodes: what they announce, the traffic with them, hints for them, streams from them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use cql_lite::types::timeuuid;
use helenus_execution::coordinator::replica::hints::{self, PendingHints};
use helenus_execution::shard::status_table::NodeStatus;
use helenus_internode::metrics::{InboundTraffic, OutboundTraffic};
use helenus_observe::AdminError;
use helenus_query::schema::virtual_tables::{RELEASE_VERSION, RowFields, RowWriter};
use helenus_ring::HostId;
use helenus_ring::denylist::DeniedPartitions;
use helenus_ring::member::{Member, MemberState};

use super::source::Views;
use crate::streaming;

/// The partitions that are denied.
pub fn partition_denylist(views: &Views, writer: &mut RowWriter<'_>) {
    let list = views.context.denylist();
    for table in views.stored_tables() {
        for key in list.of(&table.id).into_iter().flat_map(DeniedPartitions::keys) {
            writer
                .row()
                .set("ks_name", table.keyspace.as_str())
                .set("table_name", table.name.as_str())
                .set("key", key.bytes());
        }
    }
}

/// The state of a member as Cassandra's nodes announce it, with its first token.
fn status_text(member: &Member) -> String {
    let state = match member.state {
        MemberState::Normal => "NORMAL",
        MemberState::Joining(_) => "BOOT",
        MemberState::Leaving(_) => "LEAVING",
    };
    member.tokens.first().map_or_else(|| state.to_owned(), |token| format!("{state},{token}"))
}

/// What the members have told each other, under Cassandra's names. The version of a value is the number of the announcement that had
/// it; what does not change while a member is one has none.
pub async fn gossip_info(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let (context, node) = (&views.context, &views.admin.node);
    let sizes = views.admin.sizes().await?;
    let view = context.cluster();
    for member in view.topology.members.values() {
        let is_own = member.host_id == node.host_id;
        let announced = context.node.status.of(&member.host_id);
        let (load, schema) = if is_own {
            (Some(sizes.data_bytes), Some(views.catalog.version))
        } else {
            (
                announced.as_ref().map(|status| status.data_bytes),
                announced.as_ref().map(|status| status.schema_version),
            )
        };
        let seconds = |status: &NodeStatus| i32::try_from(status.generation / 1_000_000).unwrap_or(i32::MAX);
        let generation =
            if is_own { Some(node.information.generation) } else { announced.as_ref().map(seconds) };
        let version = announced.as_ref().map(|status| i32::try_from(status.sequence).unwrap_or(i32::MAX));
        let is_ready = if is_own { true } else { view.is_alive(&member.host_id) };
        let (address, native) = (member.internode_address, member.native_address);
        writer
            .row()
            .set("address", address.ip())
            .set("port", i32::from(address.port()))
            .set("dc", member.data_center.as_str())
            .set("generation", generation)
            .set("heartbeat", version)
            .set("host_id", member.host_id.to_string())
            .set("hostname", address.ip().to_string())
            .set("load", load.map(|bytes| bytes.to_string()))
            .set("load_version", version)
            .set("native_address_and_port", native.to_string())
            .set("net_version", member.protocol_version.to_string())
            .set("rack", member.rack.as_str())
            .set("release_version", RELEASE_VERSION)
            .set("rpc_address", native.ip().to_string())
            .set("rpc_ready", is_ready.to_string())
            .set("schema", schema.map(|version| version.to_string()))
            .set("schema_version", version)
            .set("status_with_port", status_text(member));
    }
    Ok(())
}

/// The members but this one, by their addresses for other nodes.
fn others(views: &Views) -> BTreeMap<SocketAddr, Arc<Member>> {
    let view = views.context.cluster();
    let members = view.topology.members.values();
    let others = members.filter(|member| member.host_id != views.admin.node.host_id);
    others.map(|member| (member.internode_address, Arc::clone(member))).collect()
}

fn row_of_node<'w>(writer: &'w mut RowWriter<'_>, member: &Member) -> RowFields<'w> {
    let mut row = writer.row();
    row.set("address", member.internode_address.ip())
        .set("port", i32::from(member.internode_address.port()))
        .set("dc", member.data_center.as_str())
        .set("rack", member.rack.as_str());
    row
}

/// The requests of other nodes. Bytes are counted for all frames of a link together.
pub fn internode_inbound(views: &Views, writer: &mut RowWriter<'_>) {
    let mut known: BTreeMap<HostId, Vec<Arc<InboundTraffic>>> = BTreeMap::new();
    for shard in &views.admin.node.metrics {
        for (host_id, traffic) in shard.internode.all_inbound() {
            known.entry(host_id).or_default().push(traffic);
        }
    }
    for member in others(views).into_values() {
        let Some(traffic) = known.get(&member.host_id) else { continue };
        let sum = |of: fn(&InboundTraffic) -> u64| traffic.iter().map(|shard| of(shard)).sum::<u64>() as i64;
        let (received, processed) = (sum(|it| it.received.get()), sum(|it| it.processed.get()));
        let expired = sum(|it| it.expired.get());
        row_of_node(writer, &member)
            .set("error_count", sum(|it| it.errors.get()))
            .set("expired_count", expired)
            .set("processed_count", processed)
            .set("received_bytes", sum(|it| it.received_bytes.get()))
            .set("received_count", received)
            // Those that are under way.
            .set("scheduled_count", (received - processed - expired).max(0));
    }
}

/// The requests to other nodes.
pub fn internode_outbound(views: &Views, writer: &mut RowWriter<'_>) {
    let mut known: BTreeMap<SocketAddr, Vec<Arc<OutboundTraffic>>> = BTreeMap::new();
    for shard in &views.admin.node.metrics {
        for (address, traffic) in shard.internode.all_outbound() {
            known.entry(address).or_default().push(traffic);
        }
    }
    for (address, member) in others(views) {
        let Some(traffic) = known.get(&address) else { continue };
        let sum = |of: fn(&OutboundTraffic) -> u64| traffic.iter().map(|shard| of(shard)).sum::<u64>() as i64;
        let present = |of: fn(&OutboundTraffic) -> i64| traffic.iter().map(|shard| of(shard)).sum::<i64>();
        row_of_node(writer, &member)
            .set("active_connections", present(|it| it.links.get()))
            .set("connection_attempts", sum(|it| it.attempts.get()))
            .set("error_count", sum(|it| it.errors.get()))
            .set("expired_count", sum(|it| it.expired.get()))
            .set("overload_count", sum(|it| it.overloaded.get()))
            .set("pending_count", present(|it| it.pending.get()))
            .set("sent_bytes", sum(|it| it.sent_bytes.get()))
            .set("sent_count", sum(|it| it.sent.get()))
            .set("successful_connection_attempts", sum(|it| it.successful_attempts.get()));
    }
}

/// The hints that this node keeps. `files` are the shards that have some: hints are rows here.
pub async fn pending_hints(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let shards =
        views.admin.on_every_shard(|context| Box::pin(std::future::ready(hints::pending(&context)))).await?;
    let mut by_target: BTreeMap<HostId, Vec<PendingHints>> = BTreeMap::new();
    for pending in shards.into_iter().flatten() {
        by_target.entry(pending.target).or_default().push(pending);
    }
    let view = views.context.cluster();
    for (target, of_shards) in by_target {
        let oldest = of_shards.iter().filter_map(|pending| pending.oldest_micros).min();
        let newest = of_shards.iter().filter_map(|pending| pending.newest_micros).max();
        let member = view.topology.member(&target);
        writer
            .row()
            .set("host_id", target)
            .set("address", member.map(|member| member.internode_address.ip()))
            .set("dc", member.map(|member| member.data_center.as_str()))
            .set("files", of_shards.len() as i32)
            .set("newest", newest.map(|micros| micros.div_euclid(1_000)))
            .set("oldest", oldest.map(|micros| micros.div_euclid(1_000)))
            .set("port", member.map(|member| i32::from(member.internode_address.port())))
            .set("rack", member.map(|member| member.rack.as_str()))
            .set("status", if view.is_alive(&target) { "UP" } else { "DOWN" });
    }
    Ok(())
}

/// The transfer to this node because of ranges that change owners: the one that is under way, or the last one.
pub fn streaming(views: &Views, writer: &mut RowWriter<'_>) {
    let Some((transfer, is_under_way)) = streaming::latest(&views.context) else { return };
    let view = views.context.cluster();
    let address = |host_id: &HostId| {
        let member = view.topology.member(host_id);
        member.map_or_else(|| host_id.to_string(), |member| member.internode_address.to_string())
    };
    let peers: Vec<String> = transfer.peers.iter().map(|peer| address(&peer.peer)).collect();
    let units = |of: fn(&helenus_admin::reports::PeerProgress) -> usize| {
        transfer.peers.iter().map(of).sum::<usize>() as i64
    };
    let status = match (transfer.is_done, is_under_way) {
        (true, _) => "success",
        (false, true) => "start",
        (false, false) => "failure",
    };
    // Why rows are streamed, in Cassandra's words.
    let is_own = transfer.member == views.admin.node.host_id;
    let operation = if is_own { "Bootstrap" } else { "Restore replica count" };
    // The same id as long as the node works at it: the epoch names it.
    let started_micros = i64::from(views.admin.node.information.generation) * 1_000_000;
    let mut node = [1; 6];
    node[2..].copy_from_slice(&(transfer.epoch as u32).to_be_bytes());
    writer
        .row()
        .set("id", timeuuid::from_micros(started_micros, 0, 0, node))
        .set("bytes_received", transfer.bytes as i64)
        .set("bytes_sent", 0_i64)
        .set("bytes_to_receive", transfer.estimated_bytes as i64)
        .set("bytes_to_send", 0_i64)
        .set("files_received", units(|peer| peer.units_done))
        .set("files_sent", 0_i64)
        .set("files_to_receive", units(|peer| peer.units))
        .set("files_to_send", 0_i64)
        .set("follower", false)
        .set("operation", operation)
        .set("peers", peers)
        .set("progress_percentage", transfer.percent as f32)
        .set("status", status);
}
