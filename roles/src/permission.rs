//! Sets of permissions.

use std::fmt;

use cql_lite::syntax::ast::Permission;
use serde::de::Error as _;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of permissions, stored as the list of their names.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PermissionSet(u16);

/// Every permission, in Cassandra's order.
pub const ALL: [Permission; 10] = [
    Permission::Create,
    Permission::Alter,
    Permission::Drop,
    Permission::Select,
    Permission::Modify,
    Permission::Authorize,
    Permission::Describe,
    Permission::Execute,
    Permission::Unmask,
    Permission::SelectMasked,
];

impl PermissionSet {
    pub const EMPTY: Self = Self(0);

    pub const fn of(permissions: &[Permission]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < permissions.len() {
            bits |= 1 << permissions[index] as u16;
            index += 1;
        }
        Self(bits)
    }

    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & (1 << permission as u16) != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The permissions in Cassandra's order.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        ALL.into_iter().filter(move |permission| self.contains(*permission))
    }

    /// The names, separated by a comma and a space.
    pub fn names(self) -> String {
        self.iter().map(Permission::name).collect::<Vec<_>>().join(", ")
    }
}

impl FromIterator<Permission> for PermissionSet {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        permissions.into_iter().fold(Self::EMPTY, |set, permission| set.union(Self::of(&[permission])))
    }
}

impl fmt::Debug for PermissionSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for PermissionSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut names = serializer.serialize_seq(Some(self.0.count_ones() as usize))?;
        for permission in self.iter() {
            names.serialize_element(permission.name())?;
        }
        names.end()
    }
}

impl<'de> Deserialize<'de> for PermissionSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let permission = |name: &String| {
            let found = ALL.into_iter().find(|permission| permission.name() == name);
            found.ok_or_else(|| D::Error::custom(format!("'{name}' is no permission")))
        };
        names.iter().map(permission).collect()
    }
}
