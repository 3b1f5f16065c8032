//! This node as a member of the cluster.

use std::net::SocketAddr;

use helenus_internode::endpoint::Endpoint;
use helenus_internode::service::PROTOCOL_VERSION;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::metadata::FEATURE_VERSION;

use helenus_execution::shard::context::ShardContext;

/// This node as a member.
pub fn own_member(context: &ShardContext, state: MemberState) -> Member {
    let information = &context.node.information;
    let mut tokens = information.initial_tokens.clone();
    tokens.sort_unstable();
    Member {
        host_id: context.node.host_id,
        internode_address: SocketAddr::new(information.broadcast_address, information.storage_port),
        native_address: SocketAddr::new(information.rpc_address, information.native_port),
        shard_aware_port: context.node.shard_aware_port,
        shard_count: context.node.shard_count() as u16,
        data_center: information.data_center.clone(),
        rack: information.rack.clone(),
        tokens,
        state,
        release_version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol_version: PROTOCOL_VERSION,
        feature_version: FEATURE_VERSION,
        encrypts_tables: context.node.config.encryption_at_rest.encrypts_tables(),
    }
}

/// Whether this node is reached at an internode address: the one that others are told, or the one that it has bound.
pub fn is_own_address(context: &ShardContext, address: SocketAddr) -> bool {
    let bound = context.node.config.internode.as_ref().and_then(Endpoint::literal);
    bound == Some(address) || own_member(context, MemberState::Normal).internode_address == address
}

/// The version of the topology in which this node is a member, if it is one. A join may have succeeded although the
/// seed could not report it.
pub fn version_as_member(context: &ShardContext) -> Option<u64> {
    let topology = &context.cluster_view().topology;
    // Version 0: nothing is agreed yet, and the view contains only this node.
    let is_agreed = topology.version > 0;
    (is_agreed && topology.member(&context.node.host_id).is_some()).then_some(topology.version)
}
