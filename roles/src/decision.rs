//! What a role may do: its own grants and those of all roles that it is a member of, on a resource and on what contains it.

use std::collections::BTreeSet;

use cql_lite::syntax::ast::Permission;

use crate::permission::PermissionSet;
use crate::resource::Resource;
use crate::role::Role;
use crate::roles::Roles;

impl Roles {
    /// A role and all roles that it is a member of, through others too. Empty if it does not exist.
    pub fn closure<'r>(&'r self, role: &str) -> BTreeSet<&'r str> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&str> =
            self.by_name.get_key_value(role).map(|(name, _)| name.as_str()).into_iter().collect();
        while let Some(name) = open.pop() {
            if found.insert(name) {
                let role = self.role(name);
                open.extend(role.into_iter().flat_map(|role| &role.member_of).map(String::as_str));
            }
        }
        found
    }

    fn members_of(&self, role: &str) -> impl Iterator<Item = &Role> {
        self.closure(role).into_iter().filter_map(|name| self.role(name))
    }

    /// Whether a role, or one that it is a member of, is a superuser.
    pub fn is_superuser(&self, role: &str) -> bool {
        // It is asked with requests, and most roles are in no other one.
        self.role(role).is_some_and(|own| {
            own.is_superuser
                || (!own.member_of.is_empty() && self.members_of(role).any(|role| role.is_superuser))
        })
    }

    /// What a role may do on a resource because of what was granted on exactly this one. A superuser may do everything.
    pub fn granted_on(&self, role: &str, resource: &Resource) -> PermissionSet {
        if self.is_superuser(role) {
            return resource.applicable();
        }
        let granted = self.members_of(role).map(|role| role.granted(resource));
        granted.fold(PermissionSet::EMPTY, PermissionSet::union)
    }

    /// Whether a role has a permission on a resource or on one that contains it.
    pub fn allows(&self, role: &str, permission: Permission, resource: &Resource) -> bool {
        let members: Vec<&Role> = self.members_of(role).collect();
        if members.iter().any(|role| role.is_superuser) {
            return true;
        }
        let mut resource = Some(resource.clone());
        while let Some(present) = resource {
            if members.iter().any(|role| role.granted(&present).contains(permission)) {
                return true;
            }
            resource = present.parent();
        }
        false
    }

    /// Whether a role may use nodes of a data center. As in Cassandra, who cannot log in may use none, superusers may use all, and the
    /// restrictions of the roles that it is a member of do not count.
    pub fn may_enter(&self, role: &str, datacenter: &str) -> bool {
        let Some(found) = self.role(role).filter(|found| found.can_login) else { return false };
        let is_named = |names: &BTreeSet<String>| names.contains(datacenter);
        self.is_superuser(role) || found.datacenters.as_ref().is_none_or(is_named)
    }
}
