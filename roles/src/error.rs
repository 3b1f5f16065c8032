//! Why a change of roles is impossible. The texts are Cassandra's where it has them.

use serde::{Deserialize, Serialize};

use crate::resource::Resource;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RoleError {
    #[error("{role} already exists")]
    AlreadyExists { role: String },
    #[error("{role} doesn't exist")]
    Unknown { role: String },
    #[error("Role {role} doesn't exist")]
    UnknownToChange { role: String },
    #[error("{member} is a member of {role}")]
    AlreadyMember { member: String, role: String },
    #[error("{member} is not a member of {role}")]
    NotMember { member: String, role: String },
    #[error("{identity} already exists")]
    IdentityExists { identity: String },
    #[error("identity '{identity}' doesn't exist")]
    UnknownIdentity { identity: String },
    #[error("Can not add identity for non-existent role '{role}'")]
    IdentityOfUnknown { role: String },
    #[error("CIDR group '{group}' doesn't exist")]
    UnknownCidrGroup { group: String },
    #[error("CIDR group '{group}' is named by role {role}")]
    CidrGroupInUse { group: String, role: String },
    #[error("Resource {resource} doesn't exist")]
    UnknownResource { resource: Resource },
    #[error("Key may not be empty")]
    EmptyName,
    #[error("there is a superuser that can log in already: {role}")]
    SuperuserExists { role: String },
    #[error("{what} of {length} bytes: at most {most} are allowed")]
    TooLong { what: String, length: u64, most: u64 },
    #[error("there are {count} {what} already: at most {most} are allowed")]
    TooMany { what: String, count: u64, most: u64 },
}
