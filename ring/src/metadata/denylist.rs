//! Changes of the partition denylist, and what changes of the schema mean for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use uuid::Uuid;

use super::command::Refusal;
use super::features::DENYLIST;
use super::outcome::{Changed, refuse};
use super::state::{ClusterState, with_topology};
use crate::denylist::{DenylistChange, DenylistError};

pub(super) fn change(state: &ClusterState, index: u64, id: Uuid, change: &DenylistChange) -> Changed {
    if state.recent_changes.iter().any(|(done, _)| *done == id) {
        return Ok(None);
    }
    let level = state.topology.feature_level;
    if level < DENYLIST {
        return refuse(Refusal::DenylistTooEarly { needed: DENYLIST, level });
    }
    let table = state.catalog.table(&change.keyspace, &change.table);
    if table.is_none_or(|table| table.id != change.table_id) {
        let (keyspace, table) = (change.keyspace.clone(), change.table.clone());
        return refuse(Refusal::Denylist(DenylistError::UnknownTable { keyspace, table }));
    }
    match state.denylist.changed(change) {
        Ok(None) => Ok(None),
        Ok(Some(denylist)) => {
            let changed = with_topology(state, index, false, |_| ());
            let changed = ClusterState { denylist: Arc::new(denylist), ..changed };
            Ok(Some(changed.with_recent_change(id, index)))
        }
        Err(error) => refuse(Refusal::Denylist(error)),
    }
}

/// The state after a change of its catalog: without the entries of tables that are gone.
pub(super) fn after_schema_change(state: ClusterState) -> ClusterState {
    if state.denylist.is_empty() {
        return state;
    }
    let tables = state.catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let present: BTreeSet<Uuid> = tables.map(|table| table.id).collect();
    match state.denylist.without_lost_tables(|id| present.contains(id)) {
        Some(denylist) => ClusterState { denylist: Arc::new(denylist), ..state },
        None => state,
    }
}
