//! Changes of roles, as the metadata log carries them.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::network::Network;
use crate::options::RoleOptions;
use crate::role::{Grants, SaltedHash, list_of_grants};

/// The places that a role is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// It is bound to none.
    All,
    /// To these.
    Only(BTreeSet<String>),
}

impl Access {
    /// Those that it is bound to; `None`: it is bound to none.
    pub fn bounds(&self) -> Option<&BTreeSet<String>> {
        match self {
            Self::All => None,
            Self::Only(places) => Some(places),
        }
    }
}

/// What an `ALTER ROLE` sets; `None`: it stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alteration {
    pub is_superuser: Option<bool>,
    pub can_login: Option<bool>,
    pub salted_hash: Option<SaltedHash>,
    pub datacenters: Option<Access>,
    pub cidr_groups: Option<Access>,
    /// They replace all that it had.
    #[serde(default)]
    pub options: Option<RoleOptions>,
}

/// One change. It has its effect as a whole, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoleChange {
    /// What is not set is false, or everything. `creator` gets all permissions on the new role.
    Create {
        role: String,
        properties: Alteration,
        if_not_exists: bool,
        creator: Option<String>,
    },
    Alter {
        role: String,
        properties: Alteration,
        if_exists: bool,
    },
    /// The role leaves the roles that it was granted to, and everything granted on it is revoked.
    Drop {
        role: String,
        if_exists: bool,
    },
    GrantRole {
        role: String,
        grantee: String,
    },
    RevokeRole {
        role: String,
        grantee: String,
    },
    Grant {
        #[serde(with = "list_of_grants")]
        grants: Grants,
        grantee: String,
    },
    Revoke {
        #[serde(with = "list_of_grants")]
        grants: Grants,
        grantee: String,
    },
    AddIdentity {
        identity: String,
        role: String,
        if_not_exists: bool,
    },
    DropIdentity {
        identity: String,
        if_exists: bool,
    },
    /// The networks replace those that the group had.
    SetCidrGroup {
        group: String,
        networks: BTreeSet<Network>,
    },
    DropCidrGroup {
        group: String,
    },
    /// Makes this role a superuser that can log in with this password. Unless `resets`, there must be no other superuser
    /// that can log in.
    SetSuperuser {
        role: String,
        salted_hash: SaltedHash,
        resets: bool,
    },
}

impl fmt::Display for RoleChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { role, .. } => write!(formatter, "create role {role}"),
            Self::Alter { role, .. } => write!(formatter, "alter role {role}"),
            Self::Drop { role, .. } => write!(formatter, "drop role {role}"),
            Self::GrantRole { role, grantee } => write!(formatter, "grant role {role} to {grantee}"),
            Self::RevokeRole { role, grantee } => write!(formatter, "revoke role {role} from {grantee}"),
            Self::Grant { grants, grantee } => write!(formatter, "grant {} to {grantee}", listed(grants)),
            Self::Revoke { grants, grantee } => {
                write!(formatter, "revoke {} from {grantee}", listed(grants))
            }
            Self::AddIdentity { identity, role, .. } => {
                write!(formatter, "add identity {identity} to role {role}")
            }
            Self::DropIdentity { identity, .. } => write!(formatter, "drop identity {identity}"),
            Self::SetCidrGroup { group, networks } => {
                write!(formatter, "set CIDR group {group} of {} networks", networks.len())
            }
            Self::DropCidrGroup { group } => write!(formatter, "drop CIDR group {group}"),
            Self::SetSuperuser { role, .. } => write!(formatter, "make {role} a superuser"),
        }
    }
}

fn listed(grants: &Grants) -> String {
    let each = grants.iter().map(|(resource, permissions)| format!("{} on {resource}", permissions.names()));
    each.collect::<Vec<_>>().join(", ")
}
