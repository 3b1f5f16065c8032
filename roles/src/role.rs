//! One role.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::options::RoleOptions;
use crate::permission::PermissionSet;
use crate::resource::Resource;

/// Permissions by the resource that they are on.
pub type Grants = BTreeMap<Resource, PermissionSet>;

/// The hash of a password with its salt. It has no place in logs: its debug form does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SaltedHash(String);

impl SaltedHash {
    pub fn new(hash: impl Into<String>) -> Self {
        Self(hash.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SaltedHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SaltedHash")
    }
}

/// A role, with what was granted to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    pub is_superuser: bool,
    pub can_login: bool,
    /// The hash of its password with its salt; `None`: it has no password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salted_hash: Option<SaltedHash>,
    /// The roles that were granted to it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub member_of: BTreeSet<String>,
    /// The data centers that it may log in to; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datacenters: Option<BTreeSet<String>>,
    /// The groups of networks that it may log in from; `None`: all networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cidr_groups: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "RoleOptions::is_empty")]
    pub options: RoleOptions,
    /// No set is empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "list_of_grants")]
    pub grants: Grants,
}

impl Role {
    /// What was granted to the role itself on this resource itself.
    pub fn granted(&self, resource: &Resource) -> PermissionSet {
        self.grants.get(resource).copied().unwrap_or(PermissionSet::EMPTY)
    }
}

/// A map whose keys are no texts, as a list of pairs.
pub(crate) mod list_of_grants {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Grants;

    pub fn serialize<S: Serializer>(grants: &Grants, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(grants)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Grants, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}
