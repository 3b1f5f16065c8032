//! All roles of a cluster, and how changes lead from one state to the next.
//!
//! Invariants:
//! * [`Roles::changed`] is deterministic: it reads no clock and draws no random numbers, and a change has its effect as a whole or
//!   none.
//! * Every role that another one was granted exists, and no role is a member of itself, through however many others.
//! * Identities and data of roles that are dropped go with them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::change::{Access, Alteration, RoleChange};
use crate::error::RoleError;
use crate::network::Network;
use crate::permission::PermissionSet;
use crate::resource::Resource;
use crate::role::{Role, SaltedHash};

/// Most roles of a cluster.
pub const ROLES_MAX: usize = 100_000;
/// Most bytes of a role's name, as of a partition key.
pub const NAME_BYTES_MAX: usize = 65_535;
/// Most resources on which one role has permissions.
pub const GRANTS_MAX: usize = 100_000;

/// What a change of the schema does to a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Stays,
    /// It is the same under another name.
    Renamed(Resource),
    Gone,
}

/// What leads from roles to the next ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolesStep {
    /// One entry of the metadata log.
    Entry,
    /// Entries that are not known one by one: a role may have been dropped and made again.
    Several,
}

/// The roles of a cluster. Cheap to clone beside what it shares.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    pub(crate) by_name: BTreeMap<String, Arc<Role>>,
    /// The roles of the identities in certificates.
    pub(crate) identities: BTreeMap<String, String>,
    /// Networks by the name of their group.
    pub(crate) cidr_groups: BTreeMap<String, Arc<BTreeSet<Network>>>,
    /// The index of the log's last entry that changed roles.
    pub(crate) version: u64,
}

impl Roles {
    /// The index of the log's last entry that changed roles: decisions hold as long as it is the same.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn role(&self, name: &str) -> Option<&Role> {
        self.by_name.get(name).map(AsRef::as_ref)
    }

    /// All roles by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Role)> {
        self.by_name.iter().map(|(name, role)| (name.as_str(), role.as_ref()))
    }

    pub fn role_of_identity(&self, identity: &str) -> Option<&str> {
        self.identities.get(identity).map(String::as_str)
    }

    /// The identities with their roles.
    pub fn identities(&self) -> impl Iterator<Item = (&str, &str)> {
        self.identities.iter().map(|(identity, role)| (identity.as_str(), role.as_str()))
    }

    /// The groups of networks by name.
    pub fn cidr_groups(&self) -> impl Iterator<Item = (&str, &BTreeSet<Network>)> {
        self.cidr_groups.iter().map(|(group, networks)| (group.as_str(), networks.as_ref()))
    }

    /// The groups that have an address.
    pub fn groups_of(&self, address: IpAddr) -> impl Iterator<Item = &str> {
        let has =
            move |networks: &BTreeSet<Network>| networks.iter().any(|network| network.contains(address));
        self.cidr_groups().filter(move |(_, networks)| has(networks)).map(|(group, _)| group)
    }

    /// A superuser that can log in, if there is one.
    pub fn superuser(&self) -> Option<&str> {
        self.iter().find(|(_, role)| role.is_superuser && role.can_login).map(|(name, _)| name)
    }

    /// The roles after a change at this index of the log; `None`: what it asks for holds already.
    pub fn changed(&self, index: u64, change: &RoleChange) -> Result<Option<Self>, RoleError> {
        let mut changed = self.clone();
        let has_changed = changed.apply(change)?;
        changed.version = index;
        Ok(has_changed.then_some(changed))
    }

    /// The roles after a change of the schema: what is granted on a resource goes with it, and follows it to another name. `None`: no grant
    /// is concerned.
    pub fn after_schema_change(&self, index: u64, fate_of: impl Fn(&Resource) -> Fate) -> Option<Self> {
        let is_concerned = |role: &Role| role.grants.keys().any(|resource| fate_of(resource) != Fate::Stays);
        if !self.by_name.values().any(|role| is_concerned(role)) {
            return None;
        }
        let mut changed = self.clone();
        for role in changed.by_name.values_mut().filter(|role| is_concerned(role)) {
            let role = Arc::make_mut(role);
            // All at once: two columns may take the names of each other.
            let grants = std::mem::take(&mut role.grants).into_iter();
            role.grants = grants
                .filter_map(|(resource, permissions)| match fate_of(&resource) {
                    Fate::Stays => Some((resource, permissions)),
                    Fate::Renamed(renamed) => Some((renamed, permissions)),
                    Fate::Gone => None,
                })
                .collect();
        }
        changed.version = index;
        Some(changed)
    }

    fn apply(&mut self, change: &RoleChange) -> Result<bool, RoleError> {
        match change {
            RoleChange::Create { role, properties, if_not_exists, creator } => {
                if self.by_name.contains_key(role) {
                    let refused = RoleError::AlreadyExists { role: role.clone() };
                    return if *if_not_exists { Ok(false) } else { Err(refused) };
                }
                self.check_room_for(role)?;
                let mut created = Role::default();
                self.check_groups(properties)?;
                alter(&mut created, properties);
                self.by_name.insert(role.clone(), Arc::new(created));
                let resource = Resource::Role(role.clone());
                if let Some(creator) = creator
                    && let Some(creator) = self.by_name.get_mut(creator)
                {
                    grant(Arc::make_mut(creator), resource.applicable(), resource);
                }
                Ok(true)
            }
            RoleChange::Alter { role, properties, if_exists } => {
                if *if_exists && !self.by_name.contains_key(role) {
                    return Ok(false);
                }
                self.check_groups(properties)?;
                alter(self.role_to_change(role)?, properties);
                Ok(true)
            }
            RoleChange::Drop { role, if_exists } => {
                if self.by_name.remove(role).is_none() {
                    let refused = RoleError::Unknown { role: role.clone() };
                    return if *if_exists { Ok(false) } else { Err(refused) };
                }
                self.forget(role);
                Ok(true)
            }
            RoleChange::GrantRole { role, grantee } => {
                self.known(role)?;
                self.known(grantee)?;
                // Of itself each role is a member.
                if self.closure(grantee).contains(role.as_str()) {
                    return Err(RoleError::AlreadyMember { member: grantee.clone(), role: role.clone() });
                }
                if self.closure(role).contains(grantee.as_str()) {
                    return Err(RoleError::AlreadyMember { member: role.clone(), role: grantee.clone() });
                }
                Ok(self.role_to_change(grantee)?.member_of.insert(role.clone()))
            }
            RoleChange::RevokeRole { role, grantee } => {
                self.known(role)?;
                self.known(grantee)?;
                if role == grantee {
                    return Ok(false);
                }
                if self.role_to_change(grantee)?.member_of.remove(role) {
                    return Ok(true);
                }
                Err(RoleError::NotMember { member: grantee.clone(), role: role.clone() })
            }
            RoleChange::Grant { grants, grantee } => {
                for resource in grants.keys() {
                    if let Resource::Role(role) = resource {
                        self.known(role)?;
                    }
                }
                let role = self.role_to_change(grantee)?;
                let most = GRANTS_MAX as u64;
                let count = role.grants.len() as u64;
                let new =
                    grants.keys().filter(|resource| !role.grants.contains_key(*resource)).count() as u64;
                if new > 0 && count + new > most {
                    return Err(RoleError::TooMany { what: format!("grants to {grantee}"), count, most });
                }
                let mut has_changed = false;
                for (resource, permissions) in grants {
                    has_changed |= grant(role, *permissions, resource.clone());
                }
                Ok(has_changed)
            }
            RoleChange::Revoke { grants, grantee } => {
                let role = self.role_to_change(grantee)?;
                let mut has_changed = false;
                for (resource, permissions) in grants {
                    has_changed |= revoke(role, *permissions, resource);
                }
                Ok(has_changed)
            }
            RoleChange::AddIdentity { identity, role, if_not_exists } => {
                if !self.by_name.contains_key(role) {
                    return Err(RoleError::IdentityOfUnknown { role: role.clone() });
                }
                if self.identities.contains_key(identity) {
                    let refused = RoleError::IdentityExists { identity: identity.clone() };
                    return if *if_not_exists { Ok(false) } else { Err(refused) };
                }
                check_name("an identity", identity)?;
                self.identities.insert(identity.clone(), role.clone());
                Ok(true)
            }
            RoleChange::DropIdentity { identity, .. } if identity.is_empty() => Err(RoleError::EmptyName),
            RoleChange::DropIdentity { identity, if_exists } => match self.identities.remove(identity) {
                Some(_) => Ok(true),
                None if *if_exists => Ok(false),
                None => Err(RoleError::UnknownIdentity { identity: identity.clone() }),
            },
            RoleChange::SetCidrGroup { group, networks } => {
                check_name("the name of a CIDR group", group)?;
                let before = self.cidr_groups.insert(group.clone(), Arc::new(networks.clone()));
                Ok(before.as_deref() != Some(networks))
            }
            RoleChange::DropCidrGroup { group } => {
                let names =
                    |role: &Role| role.cidr_groups.as_ref().is_some_and(|groups| groups.contains(group));
                if let Some((role, _)) = self.iter().find(|(_, role)| names(role)) {
                    return Err(RoleError::CidrGroupInUse { group: group.clone(), role: role.to_owned() });
                }
                if self.cidr_groups.remove(group).is_none() {
                    return Err(RoleError::UnknownCidrGroup { group: group.clone() });
                }
                Ok(true)
            }
            RoleChange::SetSuperuser { role, salted_hash, resets } => {
                self.set_superuser(role, salted_hash, *resets)
            }
        }
    }

    fn set_superuser(
        &mut self,
        role: &str,
        salted_hash: &SaltedHash,
        resets: bool,
    ) -> Result<bool, RoleError> {
        if let Some(present) = self.superuser().filter(|_| !resets) {
            return Err(RoleError::SuperuserExists { role: present.to_owned() });
        }
        if !self.by_name.contains_key(role) {
            self.check_room_for(role)?;
        }
        let changed = Arc::make_mut(self.by_name.entry(role.to_owned()).or_default());
        let before = changed.clone();
        // The way back in after everybody is locked out: no restriction of this role stays.
        (changed.is_superuser, changed.can_login) = (true, true);
        (changed.datacenters, changed.cidr_groups) = (None, None);
        changed.salted_hash = Some(salted_hash.clone());
        Ok(*changed != before)
    }

    /// Removes what names a role that is gone.
    fn forget(&mut self, gone: &str) {
        let resource = Resource::Role(gone.to_owned());
        for role in self.by_name.values_mut() {
            if role.member_of.contains(gone) || role.grants.contains_key(&resource) {
                let role = Arc::make_mut(role);
                role.member_of.remove(gone);
                role.grants.remove(&resource);
            }
        }
        self.identities.retain(|_, role| role != gone);
    }

    fn known(&self, role: &str) -> Result<(), RoleError> {
        if self.by_name.contains_key(role) {
            Ok(())
        } else {
            Err(RoleError::Unknown { role: role.to_owned() })
        }
    }

    fn role_to_change(&mut self, role: &str) -> Result<&mut Role, RoleError> {
        let found = self.by_name.get_mut(role).map(Arc::make_mut);
        found.ok_or_else(|| RoleError::UnknownToChange { role: role.to_owned() })
    }

    fn check_groups(&self, properties: &Alteration) -> Result<(), RoleError> {
        let mut named = properties.cidr_groups.iter().filter_map(Access::bounds).flatten();
        match named.find(|group| !self.cidr_groups.contains_key(*group)) {
            Some(unknown) => Err(RoleError::UnknownCidrGroup { group: unknown.clone() }),
            None => Ok(()),
        }
    }

    fn check_room_for(&self, role: &str) -> Result<(), RoleError> {
        check_name("the name of a role", role)?;
        if self.by_name.len() < ROLES_MAX {
            return Ok(());
        }
        let (count, most) = (self.by_name.len() as u64, ROLES_MAX as u64);
        Err(RoleError::TooMany { what: "roles".to_owned(), count, most })
    }
}

fn check_name(what: &str, name: &str) -> Result<(), RoleError> {
    if name.is_empty() {
        return Err(RoleError::EmptyName);
    }
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let (length, most) = (name.len() as u64, NAME_BYTES_MAX as u64);
    Err(RoleError::TooLong { what: what.to_owned(), length, most })
}

fn alter(role: &mut Role, properties: &Alteration) {
    role.is_superuser = properties.is_superuser.unwrap_or(role.is_superuser);
    role.can_login = properties.can_login.unwrap_or(role.can_login);
    if let Some(hash) = &properties.salted_hash {
        role.salted_hash = Some(hash.clone());
    }
    if let Some(datacenters) = &properties.datacenters {
        role.datacenters = datacenters.bounds().cloned();
    }
    if let Some(groups) = &properties.cidr_groups {
        role.cidr_groups = groups.bounds().cloned();
    }
    role.options = properties.options.unwrap_or(role.options);
}

fn grant(role: &mut Role, permissions: PermissionSet, resource: Resource) -> bool {
    let granted = role.granted(&resource);
    let together = granted.union(permissions);
    if !together.is_empty() {
        role.grants.insert(resource, together);
    }
    together != granted
}

fn revoke(role: &mut Role, permissions: PermissionSet, resource: &Resource) -> bool {
    let granted = role.granted(resource);
    let left = granted.without(permissions);
    if left.is_empty() {
        role.grants.remove(resource);
    } else {
        role.grants.insert(resource.clone(), left);
    }
    left != granted
}

#[cfg(test)]
mod tests;
