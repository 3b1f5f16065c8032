//! The metadata log of a node: Raft (`openraft`) on the first shard's thread.
//!
//! [`log_store`] stores entries and vote, [`state_machine`] applies committed entries, [`network`] sends messages to
//! other members, [`runtime`] is the runtime for all of it.

pub(crate) mod log_store;
pub(crate) mod network;
pub(crate) mod runtime;
pub(crate) mod state_machine;
pub(crate) mod types;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use helenus_internode::service::Failure;
use helenus_query::error::{RequestError, Result};
use helenus_ring::HostId;
use helenus_ring::metadata::{ClusterState, Command};
use openraft::async_runtime::WatchReceiver;
use openraft::entry::RaftEntry;
use openraft::errors::{ClientWriteError, InitializeError, RaftError};
use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse};
use openraft::vote::{RaftLeaderId, RaftVote};
use openraft::{ChangeMembers, Config, EmptyNode, EntryPayload, Membership, ReadPolicy, SnapshotPolicy};
use serde::{Deserialize, Serialize};

use self::log_store::{LogExtent, LogStore};
use self::network::Network;
use self::state_machine::{AppliedState, NodeStateMachine, Raft};
use self::types::{Applied, Entry, LogId, MetricsReceiver, Vote};
use super::drops::{PendingDrop, PendingDrops};
use super::message::RaftCall;
use super::stored::{CATALOG_FILE, Stored};
use crate::cluster::address_book::AddressBook;
use helenus_execution::shard::context::ShardContext;

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
    raft: Raft,
    applied: AppliedState,
    /// Dropped tables that may still be in the engines of this node.
    pub drops: PendingDrops,
    /// Addresses of nodes that are about to become members.
    pub addresses: AddressBook,
    /// Whether this node has applied an entry in whose place the cluster has agreed on another one.
    differs: Cell<bool>,
}

/// The reason why an operation of the log failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LogError(String);

impl LogError {
    fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// How far the log of a node goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEnd {
    /// The last entry.
    pub last: Option<LogId>,
    /// The latest term of which the node knows.
    pub term: u64,
}

/// Follows the leader of the metadata log.
pub struct LeaderWatch(MetricsReceiver);

impl LeaderWatch {
    /// The leader, as far as this node knows.
    pub fn leader(&self) -> Option<HostId> {
        self.0.borrow_watched().current_leader
    }

    /// Waits until something has changed in the log, perhaps the leader. An error means that the log has stopped.
    pub async fn changed(&mut self) -> Result<(), LogError> {
        self.0.changed().await.map_err(LogError::new)
    }
}

/// The log while it is open: on the first shard of a node that has started and is not stopping.
#[derive(Default)]
pub struct OpenMetadataLog(RefCell<Option<Rc<MetadataLog>>>);

impl OpenMetadataLog {
    pub fn begin(context: &ShardContext, log: Rc<MetadataLog>) {
        *context.layers.get::<Self>().0.borrow_mut() = Some(log);
    }

    /// Takes the metadata log out, so that nothing uses it any more.
    pub fn end(context: &ShardContext) -> Option<Rc<MetadataLog>> {
        context.layers.get::<Self>().0.borrow_mut().take()
    }
}

/// The entries that neither the applied state nor the log has any more, as a message; `None`: all are there. The library would
/// continue without them: it takes an applied state that is missing for a new one.
fn what_is_missing(applied: Option<LogId>, log: &LogExtent) -> Option<String> {
    let catalog = |applied: Option<LogId>| match applied {
        Some(applied) => format!("the applied state ends with entry {}", applied.index()),
        None => "there is no applied state".to_owned(),
    };
    match (applied, log.purged) {
        (applied, Some(purged)) if applied.map(|applied| applied.index()) < Some(purged.index()) => {
            Some(format!("{}, but the metadata log begins behind entry {}", catalog(applied), purged.index()))
        }
        // A vote is stored before the first entry is applied.
        (Some(applied), None) if log.is_empty => {
            Some(format!("{}, but the metadata log is empty", catalog(Some(applied))))
        }
        _ => None,
    }
}

impl MetadataLog {
    /// The metadata log. An error except on the first shard of a node that has started and is not stopping.
    pub fn of(context: &ShardContext) -> Result<Rc<Self>> {
        let log = context.layers.get::<OpenMetadataLog>().0.borrow().clone();
        log.ok_or_else(|| RequestError::Server("the metadata log is not open here".to_owned()))
    }

    /// Opens the log on disk and starts to participate. `stored`, `drops`: the content of the file of the applied state.
    pub async fn open(
        context: &Rc<ShardContext>,
        stored: Option<Stored>,
        drops: Vec<PendingDrop>,
    ) -> Result<Self> {
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
        let applied = stored.as_ref().and_then(|stored| stored.log_id);
        if let Some(message) = what_is_missing(applied, &store.extent()) {
            let catalog = context.node.files.path(CATALOG_FILE);
            return Err(failed(&format_args!(
                "{message}. The node does not start with less than it left: restore {} and the first shard's directory as \
                 they were left, or remove this node from the cluster and let it join anew with an empty data directory",
                catalog.display()
            )));
        }
        let addresses = AddressBook::default();
        let state_machine = NodeStateMachine::new(context.clone(), stored, drops, addresses.clone());
        let drops = state_machine.drops.clone();
        drops.try_to_carry_out(context).await;
        drops.keep_trying(context);
        let network = Network { context: context.clone(), addresses: addresses.clone() };
        let applied = state_machine.applied.clone();
        let seed = context.random.borrow_mut().next_u64();
        let new = Raft::new(context.node.host_id, config, network, store, state_machine);
        let raft = runtime::seeded(seed, new).await.map_err(|error| failed(&error))?;
        Ok(Self { raft, applied, drops, addresses, differs: Cell::new(false) })
    }

    /// Makes this node the only voter; nothing happens where an earlier start has done so.
    pub async fn initialize(&self, host_id: HostId) -> Result<(), LogError> {
        #[allow(clippy::zero_sized_map_values, reason = "what the library takes")]
        let nodes = BTreeMap::from([(host_id, EmptyNode::new())]);
        match self.raft.initialize(nodes).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(LogError::new(error)),
        }
    }

    /// Starts an election now, without waiting for a sign of another leader.
    pub async fn elect(&self) -> Result<(), LogError> {
        self.raft.trigger().elect(false).await.map_err(LogError::new)
    }

    /// Commits and applies a command. `None`: this node does not lead (any more). An error: the log has stopped.
    pub async fn commit(&self, command: Command) -> Result<Applied, LogError> {
        match self.raft.client_write(command).await {
            Ok(response) => Ok(response.data),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => Ok(None),
            Err(RaftError::APIError(error)) => {
                tracing::debug!(%error, "a command was not committed");
                Ok(None)
            }
            Err(RaftError::Fatal(error)) => Err(LogError::new(error)),
        }
    }

    /// The newest version of the topology that is committed, once a majority has confirmed that this node leads and this node has applied
    /// what was committed before (section 6.4 of the Raft dissertation: `ReadIndex`). `None`: this node does not lead, or no majority
    /// answers. An error: the log has stopped.
    pub async fn newest_version(&self) -> Result<Option<u64>, LogError> {
        match self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) => Ok(Some(self.applied.borrow().state.topology.version)),
            Err(RaftError::APIError(error)) => {
                tracing::debug!(%error, "no majority confirms that this node leads");
                Ok(None)
            }
            Err(RaftError::Fatal(error)) => Err(LogError::new(error)),
        }
    }

    /// Lets a node receive the log, without a vote.
    pub async fn add_learner(&self, host_id: HostId) -> Result<(), LogError> {
        let added = self.raft.add_learner(host_id, EmptyNode::new(), false).await;
        added.map(|_| ()).map_err(LogError::new)
    }

    /// Makes exactly these nodes the voters. Former voters become learners.
    pub async fn set_voters(&self, voters: BTreeSet<HostId>) -> Result<(), LogError> {
        self.raft.change_membership(voters, true).await.map(|_| ()).map_err(LogError::new)
    }

    /// Takes nodes without a vote out.
    pub async fn remove_learners(&self, learners: BTreeSet<HostId>) -> Result<(), LogError> {
        let change = ChangeMembers::RemoveNodes(learners);
        self.raft.change_membership(change, true).await.map(|_| ()).map_err(LogError::new)
    }

    /// How far the log of this node goes.
    pub async fn end(&self) -> Result<LogEnd, LogError> {
        let last = self.raft.with_raft_state(|state| state.log_ids.last().copied()).await;
        let term = self.raft.metrics().borrow_watched().current_term;
        Ok(LogEnd { last: last.map_err(LogError::new)?, term })
    }

    /// Appends that this node alone votes from now on, and the other participants listen, as a leader of that term would. An error if the log
    /// does not end there any more. See [`super::recovery`].
    pub async fn force_only_voter(
        &self,
        host_id: HostId,
        participants: BTreeSet<HostId>,
        end: LogEnd,
        term: u64,
    ) -> Result<(), LogError> {
        // Nobody's: no member has led in that term.
        let leader = LeaderId { term, voted_for: HostId::nil() };
        let last = self.end().await?.last;
        if last != end.last {
            return Err(LogError::new("the metadata log has changed meanwhile"));
        }
        let next = last.map_or(0, |last| last.index() + 1);
        let membership = Membership::new_with_defaults(vec![BTreeSet::from([host_id])], participants);
        let request = AppendEntriesRequest {
            vote: Vote::from_leader_id(leader, true),
            prev_log_id: last,
            entries: vec![Entry::new(
                LogId::new(leader.to_committed(), next),
                EntryPayload::Membership(membership),
            )],
            leader_commit: None,
        };
        match self.raft.append_entries(request).await.map_err(LogError::new)? {
            AppendEntriesResponse::Success => Ok(()),
            other => Err(LogError::new(other)),
        }
    }

    /// The sets of voters of which each needs a majority: two while they change.
    pub fn voter_sets(&self) -> Vec<BTreeSet<HostId>> {
        self.raft.metrics().borrow_watched().membership_config.get_joint_config().clone()
    }

    /// Whether this node leads.
    pub fn is_leader(&self) -> bool {
        self.raft.metrics().borrow_watched().state.is_leader()
    }

    /// Whether a change of the voters has been begun and not ended.
    pub fn is_changing_voters(&self) -> bool {
        self.raft.metrics().borrow_watched().membership_config.get_joint_config().len() > 1
    }

    pub fn watch_leader(&self) -> LeaderWatch {
        LeaderWatch(self.raft.metrics())
    }

    /// Answers a message of another member's log.
    pub async fn answer(&self, call: RaftCall, payload: &[u8]) -> Result<Vec<u8>, Failure> {
        network::handle(&self.raft, call, payload, &self.differs).await
    }

    /// Whether a message of another member has shown that this node has applied an entry in whose place the cluster has agreed on another
    /// one: after a recovery of the log ([`super::recovery`]).
    pub fn differs(&self) -> bool {
        self.differs.get()
    }

    pub async fn shutdown(&self) -> Result<(), LogError> {
        self.raft.shutdown().await.map_err(LogError::new)
    }

    /// The state as of the last entry that this node has applied.
    pub fn state(&self) -> ClusterState {
        self.applied.borrow().state.clone()
    }

    /// The reason why this node does not participate in the log any more.
    pub fn failure(&self) -> Option<String> {
        self.raft.metrics().borrow_watched().running_state.as_ref().err().map(ToString::to_string)
    }

    /// Whether this node has applied all entries that its log holds.
    pub fn has_applied_all(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.last_applied.map_or(0, |applied| applied.index() + 1)
            >= metrics.last_log_index.map_or(0, |last| last + 1)
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn log_id(index: u64) -> LogId {
        LogId::new(LeaderId { term: 1, voted_for: Uuid::nil() }.to_committed(), index)
    }

    #[test]
    fn an_applied_state_must_reach_the_log_that_is_left() {
        let missing = |applied: Option<u64>, purged: Option<u64>, is_empty: bool| {
            what_is_missing(applied.map(log_id), &LogExtent { purged: purged.map(log_id), is_empty })
        };
        for (applied, purged) in [(None, None), (Some(3), None), (Some(3), Some(3)), (Some(9), Some(3))] {
            assert_eq!(missing(applied, purged, false), None);
        }
        assert_eq!(missing(None, None, true), None, "a new node");
        let older = missing(Some(3), Some(4), false).unwrap();
        assert!(older.contains("ends with entry 3") && older.contains("behind entry 4"), "{older}");
        assert!(missing(None, Some(4), false).unwrap().contains("no applied state"));
        assert!(missing(Some(3), None, true).unwrap().contains("log is empty"));
    }
}
