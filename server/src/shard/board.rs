//! What nodes tell of themselves besides being alive, and where all shards of a node find it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use helenus_ring::HostId;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use uuid::Uuid;

/// How far a node is in serving its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServingState {
    /// It does not accept clients yet.
    Starting,
    Serving,
    /// It is about to leave the cluster: a replica still, but it accepts no clients any more.
    Leaving,
    /// It cannot write any more, and serves nothing until it is started again.
    Failed,
    /// It accepts no clients any more and writes out what it has.
    Draining,
    Drained,
    /// The cluster has removed it.
    Removed,
}

impl ServingState {
    /// As operators read it.
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

/// What a node tells all others every few seconds, and at once when it matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Of the run of the node, as in its identity.
    pub generation: u64,
    /// Grows with each telling of a run.
    pub sequence: u64,
    pub state: ServingState,
    /// The version of the schema that it has applied.
    pub schema_version: Uuid,
    /// The version of the members that it has applied.
    pub topology_version: u64,
    /// Bytes of its tables on disk.
    pub data_bytes: u64,
}

/// The newest word on liveness and facts, for all shards of a node. Read by what answers questions about the cluster, not by
/// the requests of clients: those have it in their `ClusterView`, which no shard takes over without the newest word.
#[derive(Debug)]
pub struct Board {
    host_id: HostId,
    /// Nothing before the failure detector has said anything (or where there is none).
    alive: RwLock<Option<Arc<BTreeSet<HostId>>>>,
    /// Of other nodes.
    facts: RwLock<BTreeMap<HostId, Facts>>,
    state: watch::Sender<ServingState>,
}

impl Board {
    /// This node is alive and nobody else.
    pub fn new(host_id: HostId) -> Self {
        Self {
            host_id,
            alive: RwLock::default(),
            facts: RwLock::default(),
            state: watch::channel(ServingState::Starting).0,
        }
    }

    /// Members that answer, this node included.
    pub fn alive(&self) -> Arc<BTreeSet<HostId>> {
        self.detected().unwrap_or_else(|| Arc::new(BTreeSet::from([self.host_id])))
    }

    /// The same where a failure detector is at work.
    pub fn detected(&self) -> Option<Arc<BTreeSet<HostId>>> {
        self.alive.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_alive(&self, alive: Arc<BTreeSet<HostId>>) {
        *self.alive.write().unwrap_or_else(PoisonError::into_inner) = Some(alive);
    }

    /// What another node has told last.
    pub fn facts(&self, host_id: &HostId) -> Option<Facts> {
        self.facts.read().unwrap_or_else(PoisonError::into_inner).get(host_id).cloned()
    }

    /// Takes what another node tells, unless something newer is known. Returns whether it was news.
    pub fn learn(&self, host_id: HostId, told: Facts) -> bool {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        let known = facts.get(&host_id);
        let is_newer =
            known.is_none_or(|known| (known.generation, known.sequence) < (told.generation, told.sequence));
        if is_newer {
            let told = match known {
                // What it has applied was known before it told, and this was on its way already.
                Some(known) if known.topology_version > told.topology_version => Facts {
                    schema_version: known.schema_version,
                    topology_version: known.topology_version,
                    ..told
                },
                _ => told,
            };
            facts.insert(host_id, told);
        }
        is_newer
    }

    /// Notes that another node has applied a version of the topology, and with it one of the schema, when this is known before
    /// it tells.
    pub fn learn_applied(&self, host_id: &HostId, topology_version: u64, schema_version: Uuid) {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = facts.get_mut(host_id).filter(|known| known.topology_version < topology_version)
        {
            known.schema_version = schema_version;
            known.topology_version = topology_version;
        }
    }

    pub fn forget_others_than(&self, members: impl Fn(&HostId) -> bool) {
        let mut facts = self.facts.write().unwrap_or_else(PoisonError::into_inner);
        facts.retain(|host_id, _| members(host_id));
    }

    /// How far this node is.
    pub fn state(&self) -> ServingState {
        *self.state.borrow()
    }

    /// Says how far this node is. It never goes back within a run.
    pub fn set_state(&self, state: ServingState) {
        self.state.send_if_modified(|known| {
            let is_further = state > *known;
            *known = state.max(*known);
            is_further
        });
    }

    /// Resolves when this node takes no requests of clients any more.
    pub async fn closed(&self) {
        self.beyond(ServingState::Serving).await;
    }

    /// Resolves when requests of clients that are under way need not be answered any more.
    pub async fn ended(&self) {
        self.beyond(ServingState::Leaving).await;
    }

    async fn beyond(&self, known: ServingState) {
        let mut state = self.state.subscribe();
        // The sender lives as long as the board.
        let _ = state.wait_for(|state| *state > known).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(generation: u64, sequence: u64) -> Facts {
        Facts {
            generation,
            sequence,
            state: ServingState::Serving,
            schema_version: Uuid::nil(),
            topology_version: 1,
            data_bytes: 0,
        }
    }

    #[test]
    fn old_news_is_none() {
        let board = Board::new(Uuid::nil());
        let other = Uuid::from_u128(1);
        assert!(board.learn(other, facts(5, 2)));
        assert!(!board.learn(other, facts(5, 2)));
        assert!(!board.learn(other, facts(4, 9)));
        assert!(board.learn(other, facts(6, 1)));
        let version = |board: &Board| board.facts(&other).unwrap().schema_version;
        board.learn_applied(&other, 3, Uuid::from_u128(7));
        assert_eq!(version(&board), Uuid::from_u128(7));
        board.learn_applied(&other, 2, Uuid::from_u128(6));
        // Told before it had applied that.
        assert!(board.learn(other, facts(6, 2)));
        assert_eq!(version(&board), Uuid::from_u128(7));
        let later = Facts { topology_version: 4, schema_version: Uuid::from_u128(8), ..facts(6, 3) };
        assert!(board.learn(other, later));
        assert_eq!(version(&board), Uuid::from_u128(8));
        board.forget_others_than(|_| false);
        assert_eq!(board.facts(&other), None);
    }

    #[test]
    fn a_node_that_drains_does_not_serve_again() {
        let board = Board::new(Uuid::nil());
        assert_eq!(board.state(), ServingState::Starting);
        board.set_state(ServingState::Draining);
        board.set_state(ServingState::Serving);
        assert_eq!(board.state(), ServingState::Draining);
    }
}
