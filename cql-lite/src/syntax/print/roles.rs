//! Roles, users and permissions.

use std::fmt::{self, Display, Formatter};

use super::{
    schema::write_property_map,
    write::{IF_EXISTS, IF_NOT_EXISTS, If, List, Quoted, write_separated},
};
use crate::syntax::{
    ast::{
        AddIdentity, AlterRole, CreateRole, DropIdentity, DropRole, Grant, GrantRole, GrantedPermission,
        GrantedPermissions, Identifier, ListPermissions, ListRoles, Permission, PermissionSet, Resource,
        Revoke, RevokeRole, RoleOption, RoleSpelling,
    },
    keyword::Keyword,
};

/// The name of a role: a word, or else a string, which is also valid for users.
struct RoleName<'a>(&'a Identifier);

impl Display for RoleName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_plain() && Keyword::find(self.0.as_str()).is_none() {
            self.0.fmt(f)
        } else {
            Quoted(self.0.as_str()).fmt(f)
        }
    }
}

impl Display for RoleSpelling {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RoleSpelling::Role => "ROLE",
            RoleSpelling::User => "USER",
        })
    }
}

impl Display for CreateRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let if_not_exists = If(self.if_not_exists, IF_NOT_EXISTS);
        write!(f, "CREATE {} {if_not_exists}{}", self.spelling, RoleName(&self.role))?;
        write_options(f, self.spelling, &self.options)
    }
}

impl Display for AlterRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER {} {}{}", self.spelling, If(self.if_exists, IF_EXISTS), RoleName(&self.role))?;
        write_options(f, self.spelling, &self.options)
    }
}

impl Display for DropRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP {} {}{}", self.spelling, If(self.if_exists, IF_EXISTS), RoleName(&self.role))
    }
}

fn write_options(f: &mut Formatter<'_>, spelling: RoleSpelling, options: &[RoleOption]) -> fmt::Result {
    if spelling == RoleSpelling::Role {
        f.write_str(If(!options.is_empty(), " WITH ").text())?;
        return write_separated(f, " AND ", options, |f, option| option.fmt(f));
    }
    for option in options {
        match option {
            RoleOption::Password(password) => write!(f, " WITH PASSWORD {}", Quoted(password))?,
            RoleOption::HashedPassword(hash) => write!(f, " WITH HASHED PASSWORD {}", Quoted(hash))?,
            RoleOption::GeneratedPassword => f.write_str(" WITH GENERATED PASSWORD")?,
            RoleOption::Superuser(true) => f.write_str(" SUPERUSER")?,
            RoleOption::Superuser(false) => f.write_str(" NOSUPERUSER")?,
            // The grammar has no other options for users.
            RoleOption::Options(_)
            | RoleOption::Login(_)
            | RoleOption::Datacenters(_)
            | RoleOption::Cidrs(_) => {}
        }
    }
    Ok(())
}

impl Display for RoleOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            RoleOption::Password(password) => write!(f, "PASSWORD = {}", Quoted(password)),
            RoleOption::HashedPassword(hash) => write!(f, "HASHED PASSWORD = {}", Quoted(hash)),
            RoleOption::GeneratedPassword => f.write_str("GENERATED PASSWORD"),
            RoleOption::Options(entries) => {
                f.write_str("OPTIONS = ")?;
                write_property_map(f, entries)
            }
            RoleOption::Superuser(value) => write!(f, "SUPERUSER = {value}"),
            RoleOption::Login(value) => write!(f, "LOGIN = {value}"),
            RoleOption::Datacenters(names) => write_access(f, "TO", "DATACENTERS", names.as_deref()),
            RoleOption::Cidrs(names) => write_access(f, "FROM", "CIDRS", names.as_deref()),
        }
    }
}

fn write_access(
    f: &mut Formatter<'_>,
    preposition: &str,
    places: &str,
    names: Option<&[String]>,
) -> fmt::Result {
    match names {
        None => write!(f, "ACCESS {preposition} ALL {places}"),
        Some(names) => {
            write!(f, "ACCESS {preposition} {places} {{")?;
            write_separated(f, ", ", names, |f, name| Quoted(name).fmt(f))?;
            f.write_str("}")
        }
    }
}

impl Display for GrantRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "GRANT {} TO {}", RoleName(&self.role), RoleName(&self.grantee))
    }
}

impl Display for RevokeRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "REVOKE {} FROM {}", RoleName(&self.role), RoleName(&self.grantee))
    }
}

impl Display for ListRoles {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("LIST ROLES")?;
        write_of(f, self.of.as_ref(), self.recursive)
    }
}

fn write_of(f: &mut Formatter<'_>, of: Option<&Identifier>, recursive: bool) -> fmt::Result {
    if let Some(role) = of {
        write!(f, " OF {}", RoleName(role))?;
    }
    f.write_str(If(!recursive, " NORECURSIVE").text())
}

impl Display for Permission {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Display for PermissionSet {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PermissionSet::All => f.write_str("ALL PERMISSIONS"),
            PermissionSet::Some(permissions) => List(permissions).fmt(f),
        }
    }
}

impl Display for GrantedPermission {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.permission.fmt(f)?;
        if self.columns.is_empty() { Ok(()) } else { write!(f, " ({})", List(&self.columns)) }
    }
}

impl Display for GrantedPermissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            GrantedPermissions::All => PermissionSet::All.fmt(f),
            GrantedPermissions::Some(permissions) => List(permissions).fmt(f),
        }
    }
}

impl Display for Resource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Resource::AllKeyspaces => f.write_str("ALL KEYSPACES"),
            Resource::Keyspace(keyspace) => write!(f, "KEYSPACE {keyspace}"),
            Resource::AllTables(keyspace) => write!(f, "ALL TABLES IN KEYSPACE {keyspace}"),
            Resource::Table(table) => write!(f, "TABLE {table}"),
            Resource::AllRoles => f.write_str("ALL ROLES"),
            Resource::Role(role) => write!(f, "ROLE {}", RoleName(role)),
            Resource::AllFunctions => f.write_str("ALL FUNCTIONS"),
            Resource::AllFunctionsIn(keyspace) => write!(f, "ALL FUNCTIONS IN KEYSPACE {keyspace}"),
            Resource::Function { name, argument_types } => {
                write!(f, "FUNCTION {name}({})", List(argument_types))
            }
            Resource::AllMbeans => f.write_str("ALL MBEANS"),
            Resource::Mbean(name) => write!(f, "MBEAN {}", Quoted(name)),
            Resource::Mbeans(pattern) => write!(f, "MBEANS {}", Quoted(pattern)),
        }
    }
}

impl Display for Grant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "GRANT {} ON {} TO {}", self.permissions, self.resource, RoleName(&self.grantee))
    }
}

impl Display for Revoke {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "REVOKE {} ON {} FROM {}", self.permissions, self.resource, RoleName(&self.grantee))
    }
}

impl Display for ListPermissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "LIST {}", self.permissions)?;
        if let Some(resource) = &self.resource {
            write!(f, " ON {resource}")?;
        }
        write_of(f, self.of.as_ref(), self.recursive)
    }
}

impl Display for AddIdentity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let if_not_exists = If(self.if_not_exists, IF_NOT_EXISTS);
        write!(f, "ADD IDENTITY {if_not_exists}{} TO ROLE {}", Quoted(&self.identity), Quoted(&self.role))
    }
}

impl Display for DropIdentity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP IDENTITY {}{}", If(self.if_exists, IF_EXISTS), Quoted(&self.identity))
    }
}
