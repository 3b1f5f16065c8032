//! The status that nodes announce beside their liveness, and the store in which all shards of a node read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use helenus_ring::HostId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;

/// The state of a node as a server of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServingState {
    /// Accepts no clients yet.
    Starting,
    Serving,
    /// About to leave the cluster: still a replica, but accepts no more clients.
    Leaving,
    /// Cannot write any more, and serves nothing until it is restarted.
    Failed,
    /// Accepts no more clients and flushes its data.
    Draining,
    Drained,
    /// Removed from the cluster.
    Removed,
}

impl ServingState {
    /// The name that operators read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "STARTING",
            Self::Serving => "NORMAL",
            Self::Leaving => "LEAVING",
            Self::Failed => "FAILED",
            Self::Draining => "DRAINING",
            Self::Drained => "DRAINED",
            Self::Removed => "REMOVED",
        }
    }
}

/// The status of a node. It is announced to all other members every few seconds, and at once when it changes in a way
/// that matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Generation of the node's process, as in its identity.
    pub generation: u64,
    /// Number of the announcement within the generation; it only grows.
    pub sequence: u64,
    pub state: ServingState,
    /// Version of the schema that the node has applied.
    pub schema_version: Uuid,
    /// Version of the topology that the node has applied.
    pub topology_version: u64,
    /// Size of the node's tables on disk, in bytes.
    pub data_bytes: u64,
}

/// The newest known liveness and status of all nodes, shared by all shards of a node. Questions about the cluster are
/// answered from here. Requests of clients use the shard's `ClusterView` instead; no shard installs a view without
/// the newest liveness.
#[derive(Debug)]
pub struct StatusTable {
    host_id: HostId,
    /// `None` before the failure detector's first result, and where there is no failure detector.
    alive: RwLock<Option<Arc<BTreeSet<HostId>>>>,
    /// Status of the other nodes.
    statuses: RwLock<BTreeMap<HostId, NodeStatus>>,
    state: watch::Sender<ServingState>,
}

impl StatusTable {
    /// A status cache in which only this node is alive.
    pub fn new(host_id: HostId) -> Self {
        Self {
            host_id,
            alive: RwLock::default(),
            statuses: RwLock::default(),
            state: watch::channel(ServingState::Starting).0,
        }
    }

    /// Members that answer, this node included.
    pub fn alive(&self) -> Arc<BTreeSet<HostId>> {
        self.detected().unwrap_or_else(|| Arc::new(BTreeSet::from([self.host_id])))
    }

    /// Members that answer, this node included. `None` before the failure detector's first result.
    pub fn detected(&self) -> Option<Arc<BTreeSet<HostId>>> {
        self.alive.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_alive(&self, alive: Arc<BTreeSet<HostId>>) {
        *self.alive.write().unwrap_or_else(PoisonError::into_inner) = Some(alive);
    }

    /// The last status that another node announced.
    pub fn of(&self, host_id: &HostId) -> Option<NodeStatus> {
        self.statuses.read().unwrap_or_else(PoisonError::into_inner).get(host_id).cloned()
    }

    /// Stores the status that another node announced, unless a newer one is known. Returns whether it was newer.
    pub fn learn(&self, host_id: HostId, status: NodeStatus) -> bool {
        let mut statuses = self.statuses.write().unwrap_or_else(PoisonError::into_inner);
        let known = statuses.get(&host_id);
        let is_newer = known
            .is_none_or(|known| (known.generation, known.sequence) < (status.generation, status.sequence));
        if is_newer {
            let status = match known {
                // The announced versions are older than those learned by [`StatusTable::learn_applied`]: the announcement
                // was already on its way.
                Some(known) if known.topology_version > status.topology_version => NodeStatus {
                    schema_version: known.schema_version,
                    topology_version: known.topology_version,
                    ..status
                },
                _ => status,
            };
            statuses.insert(host_id, status);
        }
        is_newer
    }

    /// Records that another node has applied a version of the topology and the schema that comes with it, when this
    /// is known before the node announces it.
    pub fn learn_applied(&self, host_id: &HostId, topology_version: u64, schema_version: Uuid) {
        let mut statuses = self.statuses.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) =
            statuses.get_mut(host_id).filter(|known| known.topology_version < topology_version)
        {
            known.schema_version = schema_version;
            known.topology_version = topology_version;
        }
    }

    pub fn forget_others_than(&self, members: impl Fn(&HostId) -> bool) {
        let mut statuses = self.statuses.write().unwrap_or_else(PoisonError::into_inner);
        statuses.retain(|host_id, _| members(host_id));
    }

    /// The state of this node.
    pub fn state(&self) -> ServingState {
        *self.state.borrow()
    }

    /// Advances the state of this node. A state before the present one is ignored.
    pub fn set_state(&self, state: ServingState) {
        self.state.send_if_modified(|known| {
            let is_further = state > *known;
            *known = state.max(*known);
            is_further
        });
    }

    /// Resolves when this node accepts no more requests of clients.
    pub async fn closed(&self) {
        self.beyond(ServingState::Serving).await;
    }

    /// Resolves when requests of clients that are in progress need not be answered any more.
    pub async fn ended(&self) {
        self.beyond(ServingState::Leaving).await;
    }

    async fn beyond(&self, known: ServingState) {
        let mut state = self.state.subscribe();
        // The sender lives as long as the table.
        let _ = state.wait_for(|state| *state > known).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(generation: u64, sequence: u64) -> NodeStatus {
        NodeStatus {
            generation,
            sequence,
            state: ServingState::Serving,
            schema_version: Uuid::nil(),
            topology_version: 1,
            data_bytes: 0,
        }
    }

    #[test]
    fn an_old_status_is_ignored() {
        let table = StatusTable::new(Uuid::nil());
        let other = Uuid::from_u128(1);
        assert!(table.learn(other, status(5, 2)));
        assert!(!table.learn(other, status(5, 2)));
        assert!(!table.learn(other, status(4, 9)));
        assert!(table.learn(other, status(6, 1)));
        let version = |table: &StatusTable| table.of(&other).unwrap().schema_version;
        table.learn_applied(&other, 3, Uuid::from_u128(7));
        assert_eq!(version(&table), Uuid::from_u128(7));
        table.learn_applied(&other, 2, Uuid::from_u128(6));
        // Announced before the node had applied that version.
        assert!(table.learn(other, status(6, 2)));
        assert_eq!(version(&table), Uuid::from_u128(7));
        let later = NodeStatus { topology_version: 4, schema_version: Uuid::from_u128(8), ..status(6, 3) };
        assert!(table.learn(other, later));
        assert_eq!(version(&table), Uuid::from_u128(8));
        table.forget_others_than(|_| false);
        assert_eq!(table.of(&other), None);
    }

    #[test]
    fn a_node_that_drains_does_not_serve_again() {
        let table = StatusTable::new(Uuid::nil());
        assert_eq!(table.state(), ServingState::Starting);
        table.set_state(ServingState::Draining);
        table.set_state(ServingState::Serving);
        assert_eq!(table.state(), ServingState::Draining);
    }
}
