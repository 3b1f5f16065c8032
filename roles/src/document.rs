//! Roles in the form in which they are stored and sent: whole, or what has changed since others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::network::Network;
use crate::role::Role;
use crate::roles::Roles;

/// [`Roles`] for the disk and for other members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolesDocument {
    version: u64,
    /// Roles that are new or have changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    roles: BTreeMap<String, Arc<Role>>,
    /// Roles of the base that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<String>,
    /// `None`: those of the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identities: Option<BTreeMap<String, String>>,
    /// `None`: those of the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cidr_groups: Option<BTreeMap<String, Arc<BTreeSet<Network>>>>,
}

impl RolesDocument {
    pub fn of(roles: &Roles) -> Self {
        Self::since(&Roles::default(), roles)
    }

    /// The changes from `base` to `roles`.
    pub fn since(base: &Roles, roles: &Roles) -> Self {
        let is_new = |(name, role): &(&String, &Arc<Role>)| {
            base.by_name.get(*name).is_none_or(|known| !Arc::ptr_eq(known, role) && known != *role)
        };
        let changed = roles.by_name.iter().filter(is_new);
        let gone = base.by_name.keys().filter(|name| !roles.by_name.contains_key(*name));
        Self {
            version: roles.version,
            roles: changed.map(|(name, role)| (name.clone(), role.clone())).collect(),
            dropped: gone.cloned().collect(),
            identities: (base.identities != roles.identities).then(|| roles.identities.clone()),
            cidr_groups: (base.cidr_groups != roles.cidr_groups).then(|| roles.cidr_groups.clone()),
        }
    }

    /// The roles whose changes since `base` these are.
    pub fn over(self, base: &Roles) -> Roles {
        let mut roles = base.clone();
        roles.by_name.retain(|name, _| !self.dropped.contains(name));
        roles.by_name.extend(self.roles);
        roles.version = self.version;
        if let Some(identities) = self.identities {
            roles.identities = identities;
        }
        if let Some(groups) = self.cidr_groups {
            roles.cidr_groups = groups;
        }
        roles
    }

    /// Whether it is the document of no roles at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests;
