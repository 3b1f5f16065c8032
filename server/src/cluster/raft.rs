//! The metadata log of a node: Raft (`openraft`) on the first shard's thread.
//!
//! [`log_store`] stores entries and vote, [`state_machine`] applies committed entries, [`network`] sends messages to
//! other members, [`runtime`] is the runtime for all of it.

pub mod log_store;
pub mod network;
pub mod runtime;
pub mod state_machine;
pub mod types;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use helenus_query::error::{RequestError, Result};
use helenus_ring::HostId;
use helenus_ring::metadata::ClusterState;
use openraft::async_runtime::WatchReceiver;
use openraft::{Config, SnapshotPolicy};

use self::log_store::LogStore;
use self::network::{AddressBook, Network};
use self::state_machine::{AppliedState, NodeStateMachine, Raft};
use super::stored::Stored;
use crate::shard::context::ShardContext;

/// Interval of the leader's heartbeats, in milliseconds.
const HEARTBEAT_MS: u64 = 500;
/// A member that has not heard from a leader for this long starts an election. In milliseconds, drawn from this
/// range.
const ELECTION_TIMEOUT_MS: std::ops::Range<u64> = 1_500..3_000;
/// Timeout of a snapshot, in milliseconds.
const SNAPSHOT_TIMEOUT_MS: u64 = 30_000;
/// Number of entries after which the log is replaced by a snapshot. About as many are kept for members that are a
/// little behind.
const SNAPSHOT_ENTRIES: u64 = 64;
/// Most entries in one message: each may hold a whole keyspace.
const ENTRIES_PER_MESSAGE: u64 = 16;

/// The metadata log on the first shard.
pub struct MetadataLog {
    pub raft: Raft,
    applied: AppliedState,
    /// Addresses of nodes that are about to become members.
    pub addresses: AddressBook,
}

/// Holds the log while it is open: on the first shard of a node that has started and is not stopping.
#[derive(Default)]
pub struct OpenMetadataLog(RefCell<Option<Rc<MetadataLog>>>);

impl ShardContext {
    fn open_metadata_log(&self) -> &RefCell<Option<Rc<MetadataLog>>> {
        &self.layers.get::<OpenMetadataLog>().0
    }

    /// The metadata log. An error except on the first shard of a node that has started and is not stopping.
    pub fn metadata_log(&self) -> Result<Rc<MetadataLog>> {
        let log = self.open_metadata_log().borrow().clone();
        log.ok_or_else(|| RequestError::Server("the metadata log is not open here".to_owned()))
    }

    pub fn begin_metadata_log(&self, log: Rc<MetadataLog>) {
        *self.open_metadata_log().borrow_mut() = Some(log);
    }

    /// Takes the metadata log out, so that nothing uses it any more.
    pub fn end_metadata_log(&self) -> Option<Rc<MetadataLog>> {
        self.open_metadata_log().borrow_mut().take()
    }
}

impl MetadataLog {
    /// Opens the log on disk and starts to participate. `stored`: the applied state from the file.
    pub async fn open(context: &Rc<ShardContext>, stored: Option<Stored>) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| {
            RequestError::Server(format!("the metadata log cannot be opened: {error}"))
        };
        let config = Config {
            cluster_name: context.node.config.cluster_name.clone(),
            heartbeat_interval: HEARTBEAT_MS,
            election_timeout_min: ELECTION_TIMEOUT_MS.start,
            election_timeout_max: ELECTION_TIMEOUT_MS.end,
            install_snapshot_timeout: SNAPSHOT_TIMEOUT_MS,
            max_payload_entries: ENTRIES_PER_MESSAGE,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES),
            max_in_snapshot_log_to_keep: SNAPSHOT_ENTRIES,
            replication_lag_threshold: 4 * SNAPSHOT_ENTRIES,
            enable_pre_vote: Some(true),
            ..Config::default()
        };
        let config = Arc::new(config.validate().map_err(|error| failed(&error))?);
        let store = LogStore::open(context.shard.clone(), context.clock.clone())
            .await
            .map_err(|error| failed(&error))?;
        let state_machine = NodeStateMachine::new(context.clone(), stored);
        let addresses = AddressBook::default();
        let network = Network { context: context.clone(), addresses: addresses.clone() };
        let applied = state_machine.applied.clone();
        let seed = context.random.borrow_mut().next_u64();
        let new = Raft::new(context.node.host_id, config, network, store, state_machine);
        let raft = runtime::seeded(seed, new).await.map_err(|error| failed(&error))?;
        Ok(Self { raft, applied, addresses })
    }

    /// The state as of the last entry that this node has applied.
    pub fn state(&self) -> ClusterState {
        self.applied.borrow().state.clone()
    }

    /// The reason why this node does not participate in the log any more.
    pub fn failure(&self) -> Option<String> {
        self.raft.metrics().borrow_watched().running_state.as_ref().err().map(ToString::to_string)
    }

    /// The leader, as far as this node knows.
    pub fn leader(&self) -> Option<HostId> {
        self.raft.metrics().borrow_watched().current_leader
    }

    /// The voters, and the learners.
    pub fn participants(&self) -> (BTreeSet<HostId>, BTreeSet<HostId>) {
        let membership = self.raft.metrics().borrow_watched().membership_config.clone();
        let learners = membership.membership().learner_ids().collect();
        (membership.voter_ids().collect(), learners)
    }
}
