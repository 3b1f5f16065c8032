//! The state of the node and the cluster that the rows of virtual tables are computed from, at the moment of a read.
//!
//! Most of it is known to every shard ([`at_hand`]). Values that are spread over the shards (connections, sizes of
//! tables) or take long to compute (repairs) are collected ([`gather`]), only for tables that show them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use helenus_engine::secondary_index::IndexId;
use helenus_engine::shard::{IndexFileStatus, IndexStatus};
use helenus_engine::{TableId, TableStatistics};
use helenus_query::error::Result;
use helenus_query::plan::restrictions::PartitionRestriction;
use helenus_query::plan::select::SelectPlan;
use helenus_query::run::keys::{PartitionKeys, partition_keys};
use helenus_query::schema::catalog::{Catalog, Table, TableKind};
use helenus_query::schema::system_keyspaces::{SYSTEM, SYSTEM_DISTRIBUTED, SYSTEM_VIEWS};
use helenus_query::schema::virtual_tables::{
    ConnectedClient, FeedGeneration, IndexState, NodeState, Peer, RangeKind, Row, SizeEstimate, is_report,
};
use helenus_query::stored_key::PartitionKey;
use helenus_ring::HostId;
use helenus_ring::change_feed::{ChangeFeed, StreamId, Streams};
use helenus_ring::member::{Member, MemberState};
use helenus_ring::placement::{Placement, Replicas, TokenRange};
use helenus_ring::view::ClusterView;
use uuid::Uuid;

use crate::coordinator::Request;
use crate::coordinator::repair::ages;
use crate::shard::context::ShardContext;

/// Lists the client connections that a shard serves. Injected from an upper layer: this layer has no connections of
/// its own.
#[derive(Clone, Copy)]
pub struct ClientSource(pub fn(&ShardContext) -> Vec<ConnectedClient>);

/// Computes the rows of a table that is a report of the node about itself: see `virtual_tables::is_report`.
pub type ReportRows = fn(Rc<ShardContext>, Arc<Table>) -> LocalBoxFuture<'static, Result<Vec<Row>>>;

/// Changes a setting of the node, by its name. `None`: the value is deleted.
pub type ChangeSetting = fn(Rc<ShardContext>, String, Option<String>) -> LocalBoxFuture<'static, Result<()>>;

/// A change of the partition denylist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenylistRequest {
    pub keyspace: String,
    pub table: String,
    /// The wire bytes of partition keys of the table. `None`: all that are denied.
    pub keys: Option<Vec<Vec<u8>>>,
    /// Whether the partitions are denied from now on, or no more.
    pub denies: bool,
}

/// Changes the partition denylist of the cluster.
pub type ChangeDenylist = fn(Rc<ShardContext>, DenylistRequest) -> LocalBoxFuture<'static, Result<()>>;

/// The reports of the node, and what clients can change through them. Injected from an upper layer, which has the reports.
#[derive(Clone, Copy)]
pub struct NodeReports {
    pub rows: ReportRows,
    pub change_setting: ChangeSetting,
    pub change_denylist: ChangeDenylist,
    /// Forgets the rows of a table: see `virtual_tables::is_truncatable`.
    pub forget: fn(Rc<ShardContext>, Arc<Table>) -> LocalBoxFuture<'static, Result<()>>,
}

impl NodeReports {
    pub fn of(context: &ShardContext) -> Self {
        *context.layers.get()
    }
}

/// Whether a table shows values that must be collected for it.
pub fn is_gathered(table: &Table) -> bool {
    is_report(table)
        || matches!(
            (table.keyspace.as_str(), table.name.as_str()),
            (
                SYSTEM_VIEWS,
                "clients" | "sai_column_indexes" | "sai_sstable_index_segments" | "sai_sstable_indexes"
            ) | (SYSTEM, "IndexInfo" | "size_estimates" | "table_estimates")
                | (
                    SYSTEM_DISTRIBUTED,
                    "repair_history" | "cdc_generation_timestamps" | "cdc_streams_descriptions_v2"
                )
        )
}

/// The state that this shard knows.
pub fn at_hand(context: &ShardContext) -> NodeState {
    let view = context.cluster_view();
    let own = view.topology.member(&context.node.host_id);
    let schema_version = context.catalog_view().catalog.version;
    let others = view.topology.members.values();
    let peers = others
        .filter(|member| member.host_id != context.node.host_id && member.owns_tokens())
        .map(|member| {
            // Drivers ignore a peer without a schema version.
            let applied = context.node.status.of(&member.host_id).map(|status| status.schema_version);
            peer(member, applied.unwrap_or(schema_version))
        })
        .collect();
    NodeState {
        // A node that was removed owns none.
        tokens: own.map_or_else(Vec::new, |member| member.tokens.clone()),
        is_joining: own.is_some_and(|member| matches!(member.state, MemberState::Joining(_))),
        peers,
        ..NodeState::default()
    }
}

fn peer(member: &Member, schema_version: Uuid) -> Peer {
    Peer {
        address: member.internode_address.ip(),
        storage_port: member.internode_address.port(),
        native_address: member.native_address.ip(),
        native_port: member.native_address.port(),
        data_center: member.data_center.clone(),
        rack: member.rack.clone(),
        host_id: member.host_id,
        schema_version,
        tokens: member.tokens.clone(),
    }
}

/// The state that this shard knows, and the values that must be collected for what a SELECT reads of its table.
pub async fn gather(context: &Rc<ShardContext>, request: &Request<'_, SelectPlan>) -> Result<NodeState> {
    let table = &*request.plan().table;
    let mut state = at_hand(context);
    if table.keyspace == SYSTEM_DISTRIBUTED && table.name == "cdc_generation_timestamps" {
        state.feed_generations = generation_times(context.cluster_view().change_feed());
    } else if table.keyspace == SYSTEM_DISTRIBUTED && table.name == "cdc_streams_descriptions_v2" {
        let times = times_read(request)?;
        let generations = context.cluster_view().change_feed().generations().to_vec();
        for streams in generations.iter().filter(|streams| is_read(streams, times.as_deref())) {
            state.feed_generations.push(with_streams(streams));
            // They are many.
            tokio::task::yield_now().await;
        }
    } else if table.keyspace == SYSTEM_DISTRIBUTED {
        state.repaired_ranges = ages::repaired_ranges(context).await;
    } else if table.name.starts_with("sai_") || table.name == "IndexInfo" {
        state.indexes = indexes(context).await?;
    } else if table.keyspace == SYSTEM_VIEWS {
        let ClientSource(clients) = *context.layers.get();
        for shard in 0..context.node.shard_count() {
            state.clients.extend(
                context.run_on(shard, move |context| Box::pin(std::future::ready(clients(&context)))).await?,
            );
        }
    } else {
        state.estimates = estimates(context).await?;
    }
    Ok(state)
}

/// The generations without their streams, whose computation takes long: consumers ask for the times again and again.
fn generation_times(feed: &ChangeFeed) -> Vec<FeedGeneration> {
    let times = feed.generations().iter().map(|streams| streams.timestamp_ms());
    times.map(|timestamp_ms| FeedGeneration { timestamp_ms, ranges: Vec::new() }).collect()
}

fn with_streams(streams: &Streams) -> FeedGeneration {
    let ids = |(end, streams): (i64, Vec<StreamId>)| (end, streams.into_iter().map(|id| id.0).collect());
    FeedGeneration { timestamp_ms: streams.timestamp_ms(), ranges: streams.ranges().map(ids).collect() }
}

/// The keys of the partitions that a SELECT names in a table with one column in its partition key; `None`: it names none.
fn times_read(request: &Request<'_, SelectPlan>) -> Result<Option<PartitionKeys>> {
    let plan = request.plan();
    let PartitionRestriction::Keys(keys) = &plan.restrictions.partition else { return Ok(None) };
    partition_keys(keys, &plan.table, &request.bindings()).map(Some)
}

/// Whether a generation is one of those whose times are the keys that are read.
fn is_read(streams: &Streams, times: Option<&[PartitionKey]>) -> bool {
    let time = streams.timestamp_ms().to_be_bytes();
    times.is_none_or(|times| times.iter().any(|key| key.bytes[..] == time))
}

/// The indexes of all tables, over the shards.
async fn indexes(context: &Rc<ShardContext>) -> Result<BTreeMap<(Uuid, IndexId), IndexState>> {
    let catalog = context.catalog();
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let indexed = tables.filter(|table| table.kind == TableKind::Stored && !table.indexes.is_empty());
    let ids: Vec<Uuid> = indexed.map(|table| table.id).collect();
    let mut indexes: BTreeMap<(Uuid, IndexId), IndexState> = BTreeMap::new();
    for shard in 0..context.node.shard_count() {
        let ids = ids.clone();
        let here = context
            .run_on(shard, move |context| {
                let described = ids.into_iter().filter_map(|id| {
                    let table = TableId(*id.as_bytes());
                    // A table that was dropped meanwhile has no indexes.
                    let statuses = context.shard.index_statuses(table).ok()?;
                    Some((id, statuses, context.shard.index_file_statuses(table).ok()?))
                });
                let described: Vec<(Uuid, Vec<IndexStatus>, Vec<IndexFileStatus>)> = described.collect();
                Box::pin(std::future::ready(described))
            })
            .await?;
        for (table, statuses, files) in here {
            for status in statuses {
                let of_shard = files.iter().filter(|file| file.index == status.id).cloned();
                let state = indexes.entry((table, status.id)).or_insert_with(|| IndexState {
                    is_complete: true,
                    is_building: false,
                    files: Vec::new(),
                });
                state.is_complete &= status.is_complete;
                state.is_building |= status.is_building;
                state.files.extend(of_shard);
            }
        }
    }
    Ok(indexes)
}

async fn estimates(context: &Rc<ShardContext>) -> Result<BTreeMap<Uuid, Vec<SizeEstimate>>> {
    let (catalog, view) = (context.catalog(), context.cluster());
    let ids: Vec<Uuid> = placed_tables(&catalog, &view).map(|(table, _)| table.id).collect();
    let mut sizes: BTreeMap<Uuid, Size> = BTreeMap::new();
    for shard in 0..context.node.shard_count() {
        let ids = ids.clone();
        let here = context
            .run_on(shard, move |context| {
                let sized = ids.into_iter().filter_map(|id| {
                    // A table that was dropped meanwhile has no size.
                    let statistics = context.shard.statistics(TableId(*id.as_bytes())).ok()?;
                    Some((id, Size::of(&statistics)))
                });
                Box::pin(std::future::ready(sized.collect::<Vec<_>>()))
            })
            .await?;
        for (id, size) in here {
            sizes.entry(id).or_default().add(size);
        }
    }
    let own = context.node.host_id;
    let data_center = &context.node.config.data_center;
    Ok(placed_tables(&catalog, &view)
        .filter_map(|(table, placement)| {
            let size = sizes.get(&table.id)?;
            Some((table.id, estimates_of(size, placement, &own, data_center)))
        })
        .collect())
}

fn placed_tables<'a>(
    catalog: &'a Catalog,
    view: &'a ClusterView,
) -> impl Iterator<Item = (&'a Table, &'a Placement)> {
    catalog
        .keyspaces
        .values()
        .filter_map(|keyspace| Some((keyspace, view.placement(&keyspace.name)?)))
        .flat_map(|(keyspace, placement)| {
            let stored = keyspace.tables.values().filter(|table| table.kind == TableKind::Stored);
            stored.map(move |table| (table.as_ref(), placement.as_ref()))
        })
}

/// The size of a table on this node.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    bytes: u64,
    partitions: u64,
}

impl Size {
    fn of(statistics: &TableStatistics) -> Self {
        Self {
            bytes: statistics.disk_bytes + statistics.memtable_bytes as u64,
            partitions: statistics.partition_versions,
        }
    }

    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.partitions += other.partitions;
    }
}

/// Returns the replica that a range is primary for.
type FirstReplica<'a> = dyn Fn(&Replicas) -> Option<HostId> + 'a;

/// Spreads a node's size of a table evenly over all ranges that the node replicates, and returns the estimates for
/// the ranges that are primary here. Ranges that wrap around the ring are returned as two.
fn estimates_of(size: &Size, placement: &Placement, own: &HostId, data_center: &str) -> Vec<SizeEstimate> {
    let held: u128 = placement
        .ranges()
        .filter(|(_, replicas)| replicas.read.iter().any(|member| member.host_id == *own))
        .map(|(range, _)| range.width())
        .sum();
    if held == 0 {
        return Vec::new();
    }
    let mean_partition_size_bytes = size.bytes.checked_div(size.partitions).unwrap_or(0) as i64;
    let mut estimates = Vec::new();
    let kinds: [(RangeKind, &FirstReplica<'_>); 2] = [
        (RangeKind::Primary, &|replicas| replicas.read.first().map(|member| member.host_id)),
        (RangeKind::LocalPrimary, &|replicas| {
            let local = replicas.read.iter().find(|member| member.data_center == data_center);
            local.map(|member| member.host_id)
        }),
    ];
    for (kind, first) in kinds {
        for (range, _) in placement.ranges().filter(|(_, replicas)| first(replicas) == Some(*own)) {
            for part in unwrapped(range) {
                let partitions = size.partitions as f64 * (part.width() as f64 / held as f64);
                estimates.push(SizeEstimate {
                    kind,
                    range_start: part.start,
                    range_end: part.end,
                    mean_partition_size_bytes,
                    partitions_count: partitions.round() as i64,
                });
            }
        }
    }
    estimates
}

/// The parts of a range before and after the ring's end.
fn unwrapped(range: TokenRange) -> Vec<TokenRange> {
    if range.start < range.end || range.end == i64::MIN {
        return vec![range];
    }
    vec![TokenRange { start: range.start, end: i64::MIN }, TokenRange { start: i64::MIN, end: range.end }]
}

#[cfg(test)]
mod tests {
    use helenus_query::schema::catalog::Replication;
    use helenus_ring::change_feed::Generation;
    use helenus_ring::topology::Topology;
    use helenus_testing::member;

    use super::*;

    fn id(number: u128) -> HostId {
        Uuid::from_u128(number)
    }

    fn placement(members: &[(u128, &str, &[i64])], data_centers: &[(&str, u32)]) -> Placement {
        let members = members.iter().map(|&(number, data_center, tokens)| {
            (id(number), std::sync::Arc::new(member(id(number), data_center, "r", tokens)))
        });
        let topology = Topology { members: members.collect(), ..Topology::default() };
        let data_centers = data_centers.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        Placement::new(&topology, &Replication::NetworkTopology { data_centers })
    }

    fn shown(estimates: &[SizeEstimate], kind: RangeKind) -> Vec<(i64, i64, i64)> {
        let of_kind = estimates.iter().filter(|estimate| estimate.kind == kind);
        of_kind
            .map(|estimate| (estimate.range_start, estimate.range_end, estimate.partitions_count))
            .collect()
    }

    #[test]
    fn a_single_node_shows_the_whole_ring_cut_at_its_end() {
        let quarter = 1_i64 << 62;
        let placement = placement(&[(1, "dc1", &[-quarter, 0, quarter])], &[("dc1", 1)]);
        let size = Size { bytes: 1_000, partitions: 100 };
        let estimates = estimates_of(&size, &placement, &id(1), "dc1");
        let expected =
            [(quarter, i64::MIN, 25), (i64::MIN, -quarter, 25), (-quarter, 0, 25), (0, quarter, 25)];
        assert_eq!(shown(&estimates, RangeKind::Primary), expected);
        assert_eq!(shown(&estimates, RangeKind::LocalPrimary), expected);
        assert!(estimates.iter().all(|estimate| estimate.mean_partition_size_bytes == 10));
    }

    #[test]
    fn every_range_is_primary_at_one_node_and_local_primary_at_one_of_each_data_center() {
        let members: [(u128, &str, &[i64]); 4] =
            [(1, "dc1", &[0]), (2, "dc1", &[100]), (3, "dc2", &[200]), (4, "dc2", &[300])];
        let placement = placement(&members, &[("dc1", 2), ("dc2", 2)]);
        let size = Size { bytes: 0, partitions: 0 };
        let mut counts = BTreeMap::new();
        for (number, data_center, _) in members {
            for estimate in estimates_of(&size, &placement, &id(number), data_center) {
                *counts.entry((estimate.kind, estimate.range_end)).or_insert(0) += 1;
            }
        }
        for (kind, count) in [(RangeKind::Primary, 1), (RangeKind::LocalPrimary, 2)] {
            for end in [0, 100, 200, 300, i64::MIN] {
                assert_eq!(counts[&(kind, end)], count, "{kind:?} {end}");
            }
        }
    }

    #[test]
    fn streams_are_computed_of_the_generations_that_are_read() {
        let of = |timestamp_ms| Generation { timestamp_ms, ends: [5].into(), shard_counts: [2].into() };
        let feed = ChangeFeed::from(vec![of(100), of(200)]);
        let times = generation_times(&feed);
        assert_eq!(times.iter().map(|of| of.timestamp_ms).collect::<Vec<_>>(), [100, 200]);
        assert!(times.iter().all(|of| of.ranges.is_empty()));
        let key = |time: i64| PartitionKey::new(time.to_be_bytes().to_vec());
        let read = |times: Option<&[PartitionKey]>| {
            let read = feed.generations().iter().filter(|streams| is_read(streams, times));
            read.map(|streams| streams.timestamp_ms()).collect::<Vec<_>>()
        };
        assert_eq!(read(Some(&[key(200), key(300)])), [200]);
        assert_eq!(read(None), [100, 200]);
        assert_eq!(with_streams(&feed.generations()[0]).ranges[0].1.len(), 2);
    }

    #[test]
    fn a_node_without_data_shows_no_estimates() {
        let placement = placement(&[(1, "dc1", &[0])], &[("dc1", 1)]);
        assert!(estimates_of(&Size::default(), &placement, &id(2), "dc1").is_empty());
    }
}
