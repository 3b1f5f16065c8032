//! A shard's view of the cluster: an immutable value, replaced as a whole when any part of it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use helenus_query::schema::catalog::{Catalog, Replication};

use crate::change_feed::ChangeFeed;
use crate::member::HostId;
use crate::placement::Placement;
use crate::replication_change::ReplicationChange;
use crate::topology::Topology;

/// The cluster at one moment.
#[derive(Debug, Clone)]
pub struct ClusterView {
    pub topology: Arc<Topology>,
    /// Members that answer, this node included.
    pub alive: Arc<BTreeSet<HostId>>,
    /// By keyspace; only replicated ones.
    placements: Arc<BTreeMap<String, Arc<Placement>>>,
    is_alone: bool,
}

impl ClusterView {
    /// Computes the placements of all replicated keyspaces (equal replication strategies, and equal changes of them, share one).
    pub fn new(topology: Arc<Topology>, alive: Arc<BTreeSet<HostId>>, catalog: &Catalog) -> Self {
        let mut computed: Vec<(&Replication, Option<&ReplicationChange>, Arc<Placement>)> = Vec::new();
        let mut placements = BTreeMap::new();
        for keyspace in catalog.keyspaces.values() {
            if keyspace.is_virtual || keyspace.replication == Replication::Local {
                continue;
            }
            let change = topology.replication_changes.get(&keyspace.name);
            let begun = change.filter(|change| change.phase.is_some());
            let replication = topology.replication_of(keyspace);
            let known = computed.iter().find(|(known, of, _)| *known == replication && *of == begun);
            let placement = if let Some((_, _, placement)) = known {
                placement.clone()
            } else {
                let placement = Arc::new(match begun {
                    Some(change) => Placement::of_change(&topology, change),
                    None => Placement::new(&topology, replication),
                });
                computed.push((replication, begun, placement.clone()));
                placement
            };
            placements.insert(keyspace.name.clone(), placement);
        }
        let is_alone = topology.members.len() <= 1;
        Self { topology, alive, placements: Arc::new(placements), is_alone }
    }

    /// This view with another set of live members.
    #[must_use]
    pub fn with_alive(&self, alive: Arc<BTreeSet<HostId>>) -> Self {
        Self { alive, ..self.clone() }
    }

    /// Whether this node is the only member and none is joining: everything is here.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Where the replicas of a keyspace are; `None`: only on this node.
    pub fn placement(&self, keyspace: &str) -> Option<&Arc<Placement>> {
        self.placements.get(keyspace)
    }

    /// The streams of change feeds.
    pub fn change_feed(&self) -> &ChangeFeed {
        &self.topology.change_feed
    }

    pub fn is_alive(&self, host_id: &HostId) -> bool {
        self.alive.contains(host_id)
    }
}
