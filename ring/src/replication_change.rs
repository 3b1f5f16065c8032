//! A change of a keyspace's replication, step by step, as ranges change hands when a member joins.
//!
//! Rows are not where the new replication looks for them until they have been streamed. So the change is a transition:
//! it waits for its turn, then writes go to the replicas of both replications, and only when the new ones have everything
//! are they read.

use helenus_query::schema::catalog::{Catalog, Replication};
use serde::{Deserialize, Serialize};

use super::member::TransitionPhase;

/// The replications of a keyspace before and after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationChange {
    pub before: Replication,
    pub after: Replication,
    /// `None`: it waits for its turn, and all is as before.
    pub phase: Option<TransitionPhase>,
}

impl ReplicationChange {
    /// The changes from one catalog to another, by keyspace. They wait.
    pub fn between(old: &Catalog, new: &Catalog) -> Vec<(String, Self)> {
        let both =
            new.keyspaces.iter().filter_map(|(name, keyspace)| Some((name, old.keyspace(name)?, keyspace)));
        both.filter(|(_, known, keyspace)| known.replication != keyspace.replication)
            .map(|(name, known, keyspace)| {
                let (before, after) = (known.replication.clone(), keyspace.replication.clone());
                (name.clone(), Self { before, after, phase: None })
            })
            .collect()
    }

    /// The replication that is read.
    pub fn read(&self) -> &Replication {
        if self.phase == Some(TransitionPhase::ReadNew) { &self.after } else { &self.before }
    }

    /// The other replication that must get every write.
    pub fn other(&self) -> Option<&Replication> {
        match self.phase? {
            TransitionPhase::WriteBoth => Some(&self.after),
            TransitionPhase::ReadNew => Some(&self.before),
        }
    }
}
