//! Reports on the cluster as this node sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use helenus_admin::reports::{
    ClusterDescription, ClusterStatus, MemberReport, NodeReport, RingReport, TokenReport,
};
use helenus_observe::AdminError;
use helenus_query::schema::catalog::Replication;
use helenus_query::schema::virtual_tables::{PARTITIONER, SNITCH};
use helenus_ring::member::{Member, MemberState};
use helenus_ring::placement::Placement;
use helenus_ring::topology::Topology;
use helenus_ring::view::ClusterView;
use uuid::Uuid;

use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::status_table::ServingState;

/// The size of this node's data on disk and in memory, over all shards.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_field_names, reason = "units stand at the end of names")]
pub struct Sizes {
    pub data_bytes: u64,
    pub memtable_bytes: u64,
    pub commit_log_bytes: u64,
}

impl Sizes {
    pub fn plus(self, other: Self) -> Self {
        Self {
            data_bytes: self.data_bytes + other.data_bytes,
            memtable_bytes: self.memtable_bytes + other.memtable_bytes,
            commit_log_bytes: self.commit_log_bytes + other.commit_log_bytes,
        }
    }
}

/// The state of a member. Before anything is agreed on, a node knows only itself.
fn state_name(topology: &Topology, member: &Member) -> String {
    match member.state {
        _ if topology.version == 0 => "starting",
        MemberState::Normal => "normal",
        MemberState::Joining(_) => "joining",
        MemberState::Leaving(_) => "leaving",
    }
    .to_owned()
}

/// The placement of a keyspace; without a keyspace, the placement with one replica.
fn placement(
    context: &ShardContext,
    view: &ClusterView,
    keyspace: Option<&str>,
) -> Result<Arc<Placement>, AdminError> {
    let Some(name) = keyspace else {
        let one = Replication::Simple { replication_factor: 1 };
        return Ok(Arc::new(Placement::new(&view.topology, &one)));
    };
    if context.catalog_view().catalog.keyspace(name).is_none() {
        return Err(AdminError::Unknown(format!("keyspace '{name}' does not exist")));
    }
    view.placement(name)
        .cloned()
        .ok_or_else(|| AdminError::Unknown(format!("keyspace '{name}' is local to each node")))
}

/// All members, by data center and address. `own_data_bytes`: size of this node's data on disk.
pub fn status(
    context: &ShardContext,
    keyspace: Option<&str>,
    own_data_bytes: u64,
) -> Result<ClusterStatus, AdminError> {
    let view = context.cluster();
    let ownership = placement(context, &view, keyspace)?.ownership();
    let mut members: Vec<MemberReport> = view
        .topology
        .members
        .values()
        .map(|member| {
            let announced = AnnouncedStatus::by(context, member, own_data_bytes);
            MemberReport {
                host_id: member.host_id.to_string(),
                address: member.internode_address.to_string(),
                native_address: member.native_address.to_string(),
                data_center: member.data_center.clone(),
                rack: member.rack.clone(),
                is_up: view.is_alive(&member.host_id),
                state: state_name(&view.topology, member),
                serving: announced.serving.map(|state| state.name().to_lowercase()),
                token_count: member.tokens.len(),
                owns: ownership.get(&member.host_id).copied().unwrap_or(0.0),
                data_bytes: announced.data_bytes,
                schema_version: announced.schema_version.map(|version| version.to_string()),
                release_version: member.release_version.clone(),
            }
        })
        .collect();
    members.sort_by(|a, b| (&a.data_center, &a.address).cmp(&(&b.data_center, &b.address)));
    Ok(ClusterStatus {
        cluster_name: context.node.config.cluster_name.clone(),
        keyspace: keyspace.map(str::to_owned),
        members,
    })
}

/// The status that a member has announced; for this node, its present status.
struct AnnouncedStatus {
    serving: Option<ServingState>,
    data_bytes: Option<u64>,
    schema_version: Option<Uuid>,
}

impl AnnouncedStatus {
    fn by(context: &ShardContext, member: &Member, own_data_bytes: u64) -> Self {
        if member.host_id == context.node.host_id {
            return Self {
                serving: Some(context.node.status.state()),
                data_bytes: Some(own_data_bytes),
                schema_version: Some(context.catalog_view().catalog.version),
            };
        }
        let status = context.node.status.of(&member.host_id);
        Self {
            serving: status.as_ref().map(|status| status.state),
            data_bytes: status.as_ref().map(|status| status.data_bytes),
            schema_version: status.as_ref().map(|status| status.schema_version),
        }
    }
}

/// All tokens in order.
pub fn ring(context: &ShardContext, keyspace: Option<&str>) -> Result<RingReport, AdminError> {
    let view = context.cluster();
    let placement = placement(context, &view, keyspace)?;
    let mut owners: BTreeMap<i64, &Arc<Member>> = BTreeMap::new();
    // Of a member that is replaced, and the new one, the owner is shown.
    for member in view.topology.members.values().chain(view.topology.owners()) {
        owners.extend(member.tokens.iter().map(|&token| (token, member)));
    }
    let tokens = owners
        .into_iter()
        .map(|(token, member)| {
            let replicas = placement.replicas(token).read.iter();
            TokenReport {
                token: token.to_string(),
                host_id: member.host_id.to_string(),
                address: member.internode_address.to_string(),
                data_center: member.data_center.clone(),
                rack: member.rack.clone(),
                is_up: view.is_alive(&member.host_id),
                state: state_name(&view.topology, member),
                replicas: replicas.map(|replica| replica.internode_address.to_string()).collect(),
            }
        })
        .collect();
    Ok(RingReport { keyspace: keyspace.map(str::to_owned), tokens })
}

/// This node.
pub fn node(context: &ShardContext, sizes: &Sizes) -> NodeReport {
    let (node, view) = (&context.node, context.cluster());
    let own = view.topology.member(&node.host_id);
    let started_at_seconds = i64::from(node.information.generation);
    NodeReport {
        host_id: node.host_id.to_string(),
        cluster_name: node.config.cluster_name.clone(),
        data_center: node.information.data_center.clone(),
        rack: node.information.rack.clone(),
        address: own.map(|member| member.internode_address.to_string()).unwrap_or_default(),
        native_address: own.map(|member| member.native_address.to_string()).unwrap_or_default(),
        state: own.map_or_else(|| "no member".to_owned(), |member| state_name(&view.topology, member)),
        serving: node.status.state().name().to_lowercase(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        shard_count: node.shard_count(),
        token_count: own.map_or(0, |member| member.tokens.len()),
        started_at_seconds,
        uptime_seconds: (i64::from(context.now_seconds()) - started_at_seconds).max(0),
        connections: node.metrics.iter().map(|shard| shard.connections.get()).sum(),
        data_bytes: sizes.data_bytes,
        memtable_bytes: sizes.memtable_bytes,
        commit_log_bytes: sizes.commit_log_bytes,
        schema_version: context.catalog_view().catalog.version.to_string(),
    }
}

/// The agreed state of the cluster.
pub fn description(context: &ShardContext) -> ClusterDescription {
    let (view, catalog) = (context.cluster(), context.catalog());
    let mut schema_versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut unreachable = BTreeSet::new();
    for member in view.topology.members.values() {
        let address = member.internode_address.to_string();
        if !view.is_alive(&member.host_id) {
            unreachable.insert(address);
        } else if let Some(version) = AnnouncedStatus::by(context, member, 0).schema_version {
            schema_versions.entry(version.to_string()).or_default().push(address);
        }
    }
    let replicated = catalog.keyspaces.values().filter(|keyspace| !keyspace.is_virtual);
    ClusterDescription {
        cluster_name: context.node.config.cluster_name.clone(),
        partitioner: PARTITIONER.to_owned(),
        snitch: SNITCH.to_owned(),
        dynamic_snitch: context.node.config.dynamic_snitch,
        schema_versions,
        unreachable: unreachable.into_iter().collect(),
        data_centers: view.topology.data_centers(),
        topology_version: view.topology.version,
        topology_epoch: view.topology.epoch,
        feature_level: view.topology.feature_level,
        removed: view.topology.removed.iter().map(ToString::to_string).collect(),
        keyspaces: replicated
            .map(|keyspace| (keyspace.name.clone(), keyspace.replication.to_map()))
            .collect(),
    }
}
