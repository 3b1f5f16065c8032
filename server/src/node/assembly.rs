//! Assembles a node from parts: its shared state and its shards, on any disk, clock, network and threads.
//!
//! [`super::Node`] opens each shard on a thread of its own; a simulation opens the shards of many nodes as local
//! tasks of one thread. Steps, in this order: [`assemble`]; for each shard [`open_shard`], and then [`serve`] its
//! queue; when all are served, [`begin`] on each in turn; only then are clients accepted.
//!
//! Invariant: a start drops no table. Engine tables that the catalog does not name stay: the metadata log may name them
//! when it is replayed, and tables that it has dropped are removed by [`crate::cluster::drops`].
//!
//! [`serve`]: super::serve::serve

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_config::{CommitLogMode, Config};
use helenus_engine::commit_log::{ArchiveOptions, CommitLogOptions, SyncMode};
use helenus_engine::error::EngineError;
use helenus_engine::io::{DiskReserve, ReserveSize};
use helenus_engine::shard::{CommonResources, Quarantine, TableOptions};
use helenus_engine::{Shard, ShardOptions, TableId};
use helenus_internode::service::PROTOCOL_VERSION;
use helenus_observe::metrics::ShardMetrics;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Catalog, CatalogView};
use helenus_query::schema::system_tables::initial_catalog;
use helenus_query::schema::virtual_tables::NodeInformation;
use helenus_query::statement::Registry;
use helenus_ring::HostId;
use helenus_ring::change_feed::ChangeFeed;
use helenus_ring::member::{Member, MemberState};
use helenus_ring::metadata::{ClusterState, FEATURE_VERSION};
use helenus_ring::topology::Topology;
use helenus_ring::view::ClusterView;
use tokio::sync::{broadcast, mpsc, watch};
use uuid::Uuid;

use super::addresses::Addresses;
use super::identity::{Identity, shard_directory};
use super::layers;
use crate::cluster;
use crate::cluster::own_files::QUARANTINE;
use crate::cluster::raft::log_store;
use crate::cluster::stored::{self, CATALOG_FILE, Contents, Stored};
use crate::cluster::{departure, liveness, membership};
use crate::node::error::StartError;
use crate::session::request_logs::RequestLogs;
use crate::streaming::progress;
use helenus_execution::coordinator::repair::{self, kept};
use helenus_execution::coordinator::replica::{self, hints};
use helenus_execution::coordinator::{batch_log, paxos, transaction_tokens};
use helenus_execution::shard::context::{
    Departure, FirstState, Message, NodeShared, QUEUE_LENGTH, ShardContext, ShardParts,
};
use helenus_execution::shard::disk_status::DiskTable;
use helenus_execution::shard::engine_options::engine_tables;
use helenus_execution::shard::file_handling::FileHandling;
use helenus_execution::shard::last_snapshot::LastSnapshot;
use helenus_execution::shard::partition_guard::PartitionGuard;
use helenus_execution::shard::runtime_settings::RuntimeSettings;
use helenus_execution::shard::snapshots;
use helenus_execution::shard::status_table::StatusTable;
use helenus_node_files::small_files::NodeFiles;

/// Capacity of the event channel: how many events a slow connection may fall behind.
const EVENT_BACKLOG: usize = 1_024;
/// Unwritten bytes in a commit log above which writers wait.
const UNWRITTEN_BYTES_MAX: usize = 32 << 20;

/// The parts of a node, besides its shards.
pub struct NodeParts {
    pub config: Config,
    pub identity: Identity,
    pub addresses: Addresses,
    pub files: NodeFiles,
    /// The time of the start, in seconds since the epoch.
    pub started_seconds: u32,
    /// The version of the first catalog, if none is stored.
    pub catalog_version: Uuid,
}

/// A node whose shards are not open yet.
pub struct Assembled {
    pub shared: Arc<NodeShared>,
    /// By shard: what [`super::serve::serve`] takes.
    pub queues: Vec<mpsc::Receiver<Message>>,
    pub state: FirstState,
}

/// Reads the stored state and combines it with the parts.
pub async fn assemble(parts: NodeParts) -> Result<Assembled, StartError> {
    let NodeParts { config, identity, addresses, files, started_seconds, catalog_version } = parts;
    let removed = StartError::Removed { host_id: identity.host_id };
    if departure::was_removed(&files).await? {
        return Err(removed);
    }
    let stored = stored::load(&files).await?;
    let has_catalog = stored.is_some();
    let contents = stored.unwrap_or_else(|| Contents::Catalog(initial_catalog(catalog_version)));
    let is_member = matches!(contents, Contents::State(..));
    let identity = identity.of_cluster(&files, &config.cluster_name, is_member).await?;
    let identity = match &contents {
        Contents::State(Stored { state, .. }, _) if state.topology.member(&identity.host_id).is_some() => {
            check_replacement(&state.topology, &config, &identity)?;
            identity
        }
        // When it learns that it has become a member, its replacement may be over.
        _ => identity.replacing(&files, config.replace).await?,
    };
    let (links, queues): (Vec<_>, Vec<_>) = (0..identity.shards).map(|_| mpsc::channel(QUEUE_LENGTH)).unzip();
    let information = information(&config, &identity, &addresses, started_seconds);
    let (catalog, cluster, roles, denylist) = match contents {
        Contents::Catalog(catalog) => {
            let cluster = alone(&information, &addresses, &identity, &catalog, &config);
            (Arc::new(catalog), cluster, Arc::default(), Arc::default())
        }
        Contents::State(Stored { state, .. }, _) => {
            if state.topology.removed.contains(&identity.host_id) {
                return Err(removed);
            }
            if state.topology.feature_level > FEATURE_VERSION {
                return Err(StartError::Features {
                    level: state.topology.feature_level,
                    known: FEATURE_VERSION,
                });
            }
            check_place(&state.topology, &config, &addresses, identity.host_id)?;
            check_encryption(&state, &config, identity.host_id)?;
            let alive = Arc::new(BTreeSet::from([identity.host_id]));
            let cluster = ClusterView::new(state.topology, alive, &state.catalog);
            (state.catalog, cluster, state.roles, state.denylist)
        }
    };
    // Directories of their own may lie on other disks, and need not be there yet.
    if let Some(max) = config.data_disk_usage_max_disk_size_bytes.filter(|_| config.data_dirs.is_empty()) {
        let room = files.room().await?;
        if max > room.total_bytes {
            return Err(StartError::DiskSize { configured: max, present: room.total_bytes });
        }
    }
    let host = SocketAddr::new(information.broadcast_address, information.storage_port);
    let request_logs = RequestLogs::new(&config, host)?;
    let metrics: Vec<Arc<ShardMetrics>> = (0..identity.shards).map(|_| Arc::default()).collect();
    let guardrails = config.guardrails()?;
    let file_handling = FileHandling {
        has_backups: config.incremental_backups,
        partition_guard: metrics.first().map(|first| PartitionGuard::new(&guardrails, Arc::clone(first))),
    };
    let shared = Arc::new(NodeShared {
        first_guardrails: guardrails.into(),
        file_handling,
        password_rules: config.password_rules()?,
        host_id: identity.host_id,
        links,
        registry: Registry::default(),
        information,
        events: broadcast::channel(EVENT_BACKLOG).0,
        metrics,
        stopping: watch::channel(false).0,
        departure: watch::channel(Departure::Staying).0,
        status: StatusTable::new(identity.host_id),
        shard_aware_port: addresses.shard_aware_port,
        layers: layers::of_node(Arc::new(request_logs)),
        applied: watch::channel(cluster.topology.version).0,
        files,
        has_catalog,
        private_tables: private_tables().into_iter().map(|(id, _)| id).chain([log_store::TABLE.0]).collect(),
        last_snapshot: LastSnapshot::default(),
        disks: DiskTable::default(),
        reserve: DiskReserve::new(reserve_size(&config, identity.shards as u64)),
        common: CommonResources::default(),
        fatal: watch::channel(None).0,
        settings: RuntimeSettings::new(&config),
        config,
    });
    let catalog = CatalogView::new(1, catalog);
    let state = FirstState { catalog, cluster: Arc::new(cluster), roles, denylist };
    Ok(Assembled { shared, queues, state })
}

/// Checks data center and rack: they decide which ranges the node owns, so other settings would not move its data.
fn check_place(
    topology: &Topology,
    config: &Config,
    addresses: &Addresses,
    host_id: HostId,
) -> Result<(), StartError> {
    let Some(member) = topology.member(&host_id) else { return Ok(()) };
    if (&member.data_center, &member.rack) != (&config.data_center, &config.rack) {
        return Err(StartError::DataCenterOrRack {
            stored: format!("{}/{}", member.data_center, member.rack),
            configured: format!("{}/{}", config.data_center, config.rack),
        });
    }
    if topology.members.len() > 1 && addresses.internode.is_none() {
        return Err(StartError::NoInternode { members: topology.members.len() });
    }
    Ok(())
}

/// Checks that a member encrypts if a table has to be encrypted. A node that is no member has no rows of it, and may have stored what it has read of
/// a cluster that it could not join.
fn check_encryption(state: &ClusterState, config: &Config, host_id: Uuid) -> Result<(), StartError> {
    if config.encryption_at_rest.encrypts_tables() || state.topology.member(&host_id).is_none() {
        return Ok(());
    }
    match state.catalog.encrypted_table() {
        Some((keyspace, table)) => {
            let (keyspace, table) = (keyspace.to_owned(), table.to_owned());
            Err(StartError::PlainTable { keyspace, table })
        }
        None => Ok(()),
    }
}

/// Checks that a member is asked to take the place of another one only if it has done so, or is about to.
fn check_replacement(topology: &Topology, config: &Config, identity: &Identity) -> Result<(), StartError> {
    let (Some(asked), Some(own)) = (config.replace, topology.member(&identity.host_id)) else {
        return Ok(());
    };
    let replacement = topology.replacement.filter(|replacement| replacement.new == identity.host_id);
    let replaced = replacement.map(|replacement| replacement.old).or(identity.replaced);
    if replaced != Some(asked) {
        return Err(StartError::NotReplacing { host_id: identity.host_id, asked });
    }
    if !matches!(own.state, MemberState::Joining(_)) {
        tracing::info!(replaced = %asked, "this node has taken the place of that member already: setting 'replace' is ignored");
    }
    Ok(())
}

/// The tables in which every shard keeps rows of its own. The first shard has the metadata log as well.
fn private_tables() -> Vec<(TableId, TableOptions)> {
    vec![
        (batch_log::store::TABLE.0, batch_log::store::table_options()),
        (hints::TABLE.0, hints::table_options()),
        (progress::TABLE.0, progress::table_options()),
        (kept::TABLE.0, kept::table_options()),
        (paxos::store::TABLE, paxos::store::table_options()),
        (transaction_tokens::TABLE, transaction_tokens::table_options()),
    ]
}

/// Opens a shard: recovery, and the tables of the catalog.
pub async fn open_shard(
    index: usize,
    shared: Arc<NodeShared>,
    parts: ShardParts,
    state: FirstState,
) -> Result<Rc<ShardContext>, StartError> {
    let failed =
        |error: &dyn std::fmt::Display| StartError::Shard { shard: index, message: error.to_string() };
    let options = shard_options(&shared, index);
    let opened = Shard::open_existing(parts.environment.clone(), options).await;
    let shard = opened.map_err(|error| failed(&error))?;
    let mut tables =
        engine_tables(&state.catalog.catalog, &shared.file_handling).map_err(|error| failed(&error))?;
    tables.extend(private_tables());
    if index == 0 {
        tables.push((log_store::TABLE.0, log_store::table_options()));
    }
    if !shared.has_catalog {
        check_no_rows(&shard, index, &tables, &shared.files)?;
    }
    shard.create_tables(&tables).await.map_err(|error| failed(&error))?;
    Ok(Rc::new(ShardContext::new(index, shared, shard, parts, state, layers::of_shard())))
}

/// Checks that a node without a catalog has rows in no table but those that every node has. Tables of users exist before the first
/// catalog is stored, but they are empty then.
fn check_no_rows(
    shard: &Shard,
    index: usize,
    own: &[(TableId, TableOptions)],
    files: &NodeFiles,
) -> Result<(), StartError> {
    let is_own = |id: &TableId| own.iter().any(|(known, _)| known == id);
    for id in shard.table_ids().into_iter().filter(|id| !is_own(id)) {
        let failed = |error: EngineError| StartError::Shard { shard: index, message: error.to_string() };
        if shard.statistics(id).map_err(failed)?.row_versions > 0 {
            return Err(StartError::MissingCatalog {
                catalog: files.path(CATALOG_FILE),
                found: format!("shard {index} has rows of table {id}"),
            });
        }
    }
    Ok(())
}

/// Starts the work of a shard when all shards are served, before clients are accepted.
pub async fn begin(context: &Rc<ShardContext>) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| RequestError::Server(error.to_string());
    if context.index == 0 {
        if context.node.config.internode.is_some() {
            cluster::start::check_no_copy_runs(context).await?;
            liveness::start(context).await?;
        }
        let seeds = context.node.config.seeds.clone();
        cluster::start::start(context, &seeds).await?;
        membership::start(context);
        membership::start_cleaning(context);
        membership::enter(context, &seeds).await.map_err(|error| failed(&error))?;
        note_replacement(context).await.map_err(|error| failed(&error))?;
    }
    replica::start(context).await?;
    helenus_projector::service::start(context);
    snapshots::start(context);
    cluster::failure::watch(context);
    if context.index == 0 {
        cluster::disk_watch::watch(context);
        repair::start(context).await;
        cluster::confirmation::begin(context).await;
        cluster::feed_confirmation::begin(context).await;
    }
    if context.index + 1 == context.node.shard_count() {
        // Clients are not served before the node has the data to answer them.
        membership::wait_until_normal(context).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}

/// Notes in the data directory which member's place this node takes, if it does: it may have asked for it in another start. Call on the
/// first shard.
pub async fn note_replacement(context: &ShardContext) -> Result<(), StartError> {
    let replacement = context.cluster_view().topology.replacement;
    match replacement.filter(|replacement| replacement.new == context.node.host_id) {
        Some(replacement) => Identity::note_replaced(&context.node.files, replacement.old).await,
        None => Ok(()),
    }
}

/// The reserve: what is in memory fits into files, and each commit log gets another segment.
fn reserve_size(config: &Config, shard_count: u64) -> ReserveSize {
    let derived = config.memtable_bytes.saturating_add(shard_count * config.commit_log_segment_bytes);
    config.disk_reserve_bytes.map_or(ReserveSize::AtMostATenth(derived), ReserveSize::Bytes)
}

/// The directories that the settings name for a shard beside its own.
pub(super) fn set_directories(options: &mut ShardOptions, config: &Config, index: usize) {
    let of_shard = |directory: &PathBuf| directory.join(format!("shard-{index}"));
    options.table_directories = config.data_dirs.iter().map(of_shard).collect();
    options.commit_log_directory = config.commit_log_dir.as_ref().map(of_shard);
}

fn shard_options(shared: &NodeShared, index: usize) -> ShardOptions {
    let (config, files) = (&shared.config, &shared.files);
    let mut options = ShardOptions::new(shard_directory(files, index));
    set_directories(&mut options, config, index);
    options.reserve = Arc::clone(&shared.reserve);
    options.quarantine =
        Quarantine { directory: files.path(QUARANTINE), base: files.directory().to_path_buf() };
    (options.shards_of_node, options.common) = (shared.shard_count(), shared.common.clone());
    options.memtable_bytes_max = config.memtable_bytes as usize;
    options.commit_log_bytes_max = config.commit_log_total_bytes;
    options.block_cache_bytes = config.block_cache_bytes as usize;
    options.keeps_backups = config.incremental_backups;
    // A part of the time is left for the answer.
    options.backlog.wait_max = Duration::from_millis(config.write_request_timeout_ms / 4 * 3);
    let archive = config.commit_log_archive_dir.as_ref();
    let archive = archive.map(|root| ArchiveOptions {
        root: root.clone(),
        below: PathBuf::from(shared.host_id.to_string()).join(format!("shard-{index}")),
    });
    options.compaction_bytes_per_second =
        (config.compaction_bytes_per_second > 0).then_some(config.compaction_bytes_per_second);
    options.shared_compaction_bytes = Some(config.shared_compaction_bytes).filter(|bytes| *bytes > 0);
    let spares = CommitLogOptions::default().spare_segments_max;
    options.commit_log = CommitLogOptions {
        sync: match config.commit_log {
            CommitLogMode::Group => SyncMode::Group,
            CommitLogMode::Batch => SyncMode::Batch,
            CommitLogMode::Periodic => {
                SyncMode::Periodic { period: Duration::from_millis(config.commit_log_sync_period_ms) }
            }
        },
        segment_bytes: config.commit_log_segment_bytes,
        unwritten_bytes_max: UNWRITTEN_BYTES_MAX,
        archive,
        // A segment that is used again would be written behind what it has, which takes twice the room.
        spare_segments_max: if config.encryption_at_rest.encrypts_tables() { 0 } else { spares },
        ..CommitLogOptions::default()
    };
    options
}

fn information(
    config: &Config,
    identity: &Identity,
    addresses: &Addresses,
    started_seconds: u32,
) -> NodeInformation {
    let native = addresses.native.ip();
    let internode = addresses.internode.map_or(native, |address| address.ip());
    let settings = toml::Table::try_from(config)
        .map(|mut table| {
            // A command for master keys may have a secret in it; where a secret lies is nobody's business either.
            for (name, key) in
                [("encryption_at_rest", "key_command"), ("backup_store", "secret_access_key_file")]
            {
                let hidden = table.get_mut(name).and_then(|nested| nested.as_table_mut()?.get_mut(key));
                if let Some(value) = hidden {
                    *value = "...".into();
                }
            }
            let text = |value: toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            table.into_iter().map(|(key, value)| (key, text(value))).collect()
        })
        .unwrap_or_default();
    NodeInformation {
        cluster_name: config.cluster_name.clone(),
        data_center: config.data_center.clone(),
        rack: config.rack.clone(),
        host_id: identity.host_id,
        listen_address: addresses.listen.unwrap_or(internode),
        broadcast_address: internode,
        rpc_address: native,
        storage_port: addresses.internode.map_or(7000, |address| address.port()),
        native_port: addresses.native.port(),
        initial_tokens: identity.tokens.clone(),
        generation: started_seconds as i32,
        settings,
    }
}

/// The cluster of a node that has not founded or joined one yet: only itself.
fn alone(
    information: &NodeInformation,
    addresses: &Addresses,
    identity: &Identity,
    catalog: &Catalog,
    config: &Config,
) -> ClusterView {
    let host_id = information.host_id;
    let member = Member {
        host_id,
        internode_address: SocketAddr::new(information.broadcast_address, information.storage_port),
        native_address: SocketAddr::new(information.rpc_address, information.native_port),
        shard_aware_port: addresses.shard_aware_port,
        shard_count: identity.shards as u16,
        data_center: information.data_center.clone(),
        rack: information.rack.clone(),
        tokens: identity.tokens.clone(),
        state: MemberState::Normal,
        release_version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol_version: PROTOCOL_VERSION,
        feature_version: FEATURE_VERSION,
        encrypts_tables: config.encryption_at_rest.encrypts_tables(),
    };
    let topology = Topology {
        version: 0,
        epoch: 0,
        members: BTreeMap::from([(host_id, Arc::new(member))]),
        removed: BTreeSet::new(),
        feature_level: FEATURE_VERSION,
        replication_changes: BTreeMap::new(),
        given_up: BTreeSet::new(),
        replacement: None,
        change_feed: ChangeFeed::default(),
    };
    ClusterView::new(Arc::new(topology), Arc::new(BTreeSet::from([host_id])), catalog)
}
