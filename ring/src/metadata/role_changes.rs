//! Changes of roles, and what changes of the schema mean for them.
//!
//! Invariant: what is granted on a keyspace, table, column or function goes with it: another one of the same name begins without grants. A
//! column that is renamed keeps them.

use std::sync::Arc;

use helenus_access::{exists, fate};
use helenus_query::schema::catalog::Catalog;
use helenus_roles::{Grants, Resource, RoleChange, RoleError, Roles};
use uuid::Uuid;

use super::command::{Creator, Refusal};
use super::features::SECURITY;
use super::outcome::{Changed, refuse};
use super::state::{ClusterState, with_topology};

pub(super) fn change(state: &ClusterState, index: u64, id: Uuid, change: &RoleChange) -> Changed {
    if state.recent_changes.iter().any(|(done, _)| *done == id) {
        return Ok(None);
    }
    let level = state.topology.feature_level;
    if level < SECURITY {
        return refuse(Refusal::RolesTooEarly { needed: SECURITY, level });
    }
    if let RoleChange::Grant { grants, .. } = change
        && let Some(resource) = grants.keys().find(|resource| !exists(resource, &state.roles, &state.catalog))
    {
        return refuse(Refusal::Roles(RoleError::UnknownResource { resource: resource.clone() }));
    }
    match state.roles.changed(index, change) {
        Ok(None) => Ok(None),
        Ok(Some(roles)) => {
            let changed = with_topology(state, index, false, |_| ());
            let changed = ClusterState { roles: Arc::new(roles), ..changed };
            Ok(Some(changed.with_recent_change(id, index)))
        }
        Err(error) => refuse(Refusal::Roles(error)),
    }
}

/// The state after a change of its catalog: without what was granted on things that are gone, with the grants to who made new ones.
/// `before`: the catalog until then.
pub(super) fn after_schema_change(
    state: ClusterState,
    before: &Catalog,
    index: u64,
    creator: Option<&Creator>,
) -> ClusterState {
    let mut roles = Arc::clone(&state.roles);
    let fate_of = |resource: &Resource| fate(resource, &state.roles, before, &state.catalog);
    if let Some(changed) = roles.after_schema_change(index, fate_of) {
        roles = Arc::new(changed);
    }
    for resource in creator.iter().flat_map(|creator| &creator.created) {
        roles = with_all_granted(roles, index, creator, resource);
    }
    ClusterState { roles, ..state }
}

fn with_all_granted(
    roles: Arc<Roles>,
    index: u64,
    creator: Option<&Creator>,
    resource: &Resource,
) -> Arc<Roles> {
    let Some(Creator { role, .. }) = creator else { return roles };
    let grant = RoleChange::Grant {
        grants: Grants::from([(resource.clone(), resource.applicable())]),
        grantee: role.clone(),
    };
    // Who made it may have been dropped meanwhile.
    match roles.changed(index, &grant) {
        Ok(Some(more)) => Arc::new(more),
        Ok(None) | Err(_) => roles,
    }
}
