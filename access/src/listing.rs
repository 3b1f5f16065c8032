//! `LIST ROLES`, `LIST USERS`, `LIST SUPERUSERS`, `LIST … PERMISSIONS`: who may ask, and the rows.

use std::collections::{BTreeMap, BTreeSet};

use cql_lite::syntax::ast::{self, Statement};
use cql_lite::types::CqlType;
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::selection::ResultColumn;
use helenus_query::schema::virtual_tables::{IntoWire, Row};
use helenus_roles::{Permission, PermissionSet, Resource, Role, Roles};

use crate::context::RolesContext;
use crate::resources::{exists, resolve, stored_name};
use crate::subject::refuse;

/// The rows of a LIST statement. Cassandra names a table of `system_auth` as their origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub table: &'static str,
    pub columns: Vec<ResultColumn>,
    pub rows: Vec<Row>,
}

/// Refuses a LIST statement to who may not see its rows.
pub(crate) fn authorize(statement: &Statement, context: &RolesContext<'_>) -> Result<()> {
    let subject = &context.subject;
    let user = context.logged_in()?;
    match statement {
        Statement::ListRoles(list) => {
            let Some(of) = &list.of else { return Ok(()) };
            check_role(of, subject.roles)?;
            if subject.has(Permission::Describe, &Resource::AllRoles)
                || subject.roles.closure(user).contains(of.as_str())
            {
                return Ok(());
            }
            // Cassandra's text, with its blank at the end.
            Err(refuse(format!("You are not authorized to view roles granted to {} ", of.as_str())))
        }
        Statement::ListPermissions(list) => {
            if !subject.is_enforced {
                return Err(RequestError::invalid(
                    "LIST PERMISSIONS operation is not supported by AllowAllAuthorizer",
                ));
            }
            if let Some(resource) = &list.resource {
                let resource = resolve(resource, context.keyspace, context.catalog)?;
                if !exists(&resource, subject.roles, context.catalog) {
                    return Err(RequestError::invalid(format!("{resource} doesn't exist")));
                }
            }
            if let Some(of) = &list.of {
                check_role(of, subject.roles)?;
            }
            let of = list.of.as_ref().map(ast::Identifier::as_str);
            let is_own = of.is_some_and(|of| subject.roles.closure(user).contains(of));
            let describes = |resource: Resource| subject.has(Permission::Describe, &resource);
            let may_describe = of.map_or(Resource::AllRoles, |of| Resource::Role(of.to_owned()));
            if is_own || describes(may_describe) {
                return Ok(());
            }
            Err(refuse(format!("You are not authorized to view {}'s permissions", of.unwrap_or("everyone"))))
        }
        _ => Ok(()),
    }
}

fn check_role(role: &ast::Identifier, roles: &Roles) -> Result<()> {
    if roles.role(role.as_str()).is_some() {
        return Ok(());
    }
    Err(RequestError::invalid(format!("<role {}> doesn't exist", role.as_str())))
}

/// The rows of a LIST statement, after [`authorize`]. `None`: it has none, which Cassandra answers without columns.
pub fn list(statement: &Statement, context: &RolesContext<'_>) -> Result<Option<Listed>> {
    match statement {
        Statement::ListRoles(list) => list_roles(list, context).map(Some),
        Statement::ListUsers => list_users(context).map(Some),
        Statement::ListSuperusers => list_superusers(context).map(Some),
        Statement::ListPermissions(list) => list_permissions(list, context),
        _ => Ok(None),
    }
}

/// A role and those that it has: all of them, or only those that were granted to itself.
fn roles_of<'r>(roles: &'r Roles, role: &str, is_recursive: bool) -> BTreeSet<&'r str> {
    let all = roles.closure(role);
    if is_recursive {
        return all;
    }
    let own = roles.role(role).map(|role| &role.member_of);
    all.into_iter().filter(|name| *name == role || own.is_some_and(|own| own.contains(*name))).collect()
}

/// The roles that a client may see, without others named.
fn visible<'r>(context: &RolesContext<'r>, is_recursive: bool) -> Result<BTreeSet<&'r str>> {
    let subject = &context.subject;
    if subject.has(Permission::Describe, &Resource::AllRoles) {
        return Ok(subject.roles.iter().map(|(name, _)| name).collect());
    }
    Ok(roles_of(subject.roles, subject.logged_in()?, is_recursive))
}

fn options_of(role: &Role) -> BTreeMap<String, String> {
    role.options.to_map().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn list_roles(list: &ast::ListRoles, context: &RolesContext<'_>) -> Result<Listed> {
    let roles = context.subject.roles;
    let shown = match &list.of {
        Some(of) => roles_of(roles, of.as_str(), list.recursive),
        None => visible(context, list.recursive)?,
    };
    let rows = shown.into_iter().filter_map(|name| Some((name, roles.role(name)?))).map(|(name, role)| {
        vec![
            name.into_wire(),
            role.is_superuser.into_wire(),
            role.can_login.into_wire(),
            options_of(role).into_wire(),
            data_centers(roles, name, role).into_wire(),
        ]
    });
    let map = CqlType::map(CqlType::Text, CqlType::Text, false);
    Ok(Listed {
        table: "roles",
        rows: rows.collect(),
        columns: columns([
            ("role", CqlType::Text),
            ("super", CqlType::Boolean),
            ("login", CqlType::Boolean),
            ("options", map),
            ("datacenters", CqlType::Text),
        ]),
    })
}

fn list_users(context: &RolesContext<'_>) -> Result<Listed> {
    let roles = context.subject.roles;
    let shown = visible(context, false)?.into_iter();
    let users = shown.filter_map(|name| Some((name, roles.role(name)?))).filter(|(_, role)| role.can_login);
    let rows = users.map(|(name, role)| {
        vec![
            name.into_wire(),
            roles.is_superuser(name).into_wire(),
            data_centers(roles, name, role).into_wire(),
        ]
    });
    Ok(Listed {
        table: "users",
        rows: rows.collect(),
        columns: columns([
            ("name", CqlType::Text),
            ("super", CqlType::Boolean),
            ("datacenters", CqlType::Text),
        ]),
    })
}

/// Cassandra 6's: the names of all roles that are superusers, also by a role that they have.
fn list_superusers(context: &RolesContext<'_>) -> Result<Listed> {
    let roles = context.subject.roles;
    let shown = visible(context, true)?.into_iter().filter(|name| roles.is_superuser(name));
    Ok(Listed {
        table: "roles",
        rows: shown.map(|name| vec![name.into_wire()]).collect(),
        columns: columns([("role", CqlType::Text)]),
    })
}

fn data_centers(roles: &Roles, name: &str, role: &Role) -> String {
    if !role.can_login {
        return "n/a".to_owned();
    }
    match &role.datacenters {
        Some(names) if !roles.is_superuser(name) => names.iter().cloned().collect::<Vec<_>>().join(", "),
        _ => "ALL".to_owned(),
    }
}

fn list_permissions(list: &ast::ListPermissions, context: &RolesContext<'_>) -> Result<Option<Listed>> {
    let (roles, catalog) = (context.subject.roles, context.catalog);
    let named = match &list.resource {
        Some(resource) => Some(resolve(resource, context.keyspace, catalog)?),
        None => None,
    };
    let wanted = match &list.permissions {
        ast::PermissionSet::All => None,
        ast::PermissionSet::Some(permissions) => Some(permissions.iter().copied().collect::<PermissionSet>()),
    };
    let mut resources = Vec::new();
    let mut present = named.clone();
    while let Some(resource) = present {
        present = resource.parent().filter(|_| list.recursive);
        resources.push(resource);
    }
    // What is granted on a column counts for its table: no statement names it by itself.
    let is_column_of_named = |resource: &Resource| {
        list.recursive && matches!(resource, Resource::Column { .. }) && resource.parent() == named
    };
    let shown = match &list.of {
        Some(of) => roles.closure(of.as_str()),
        None => roles.iter().map(|(name, _)| name).collect(),
    };
    let mut rows = Vec::new();
    for (name, role) in shown.into_iter().filter_map(|name| Some((name, roles.role(name)?))) {
        let granted = role.grants.iter().filter(|(resource, _)| {
            named.is_none() || resources.contains(resource) || is_column_of_named(resource)
        });
        let mut granted: Vec<_> = granted
            .map(|(resource, permissions)| (stored_name(resource, catalog), resource, *permissions))
            .collect();
        granted.sort_by(|one, other| one.0.cmp(&other.0));
        for (_, resource, permissions) in granted {
            let permissions = wanted.map_or(permissions, |wanted| wanted.intersection(permissions));
            rows.extend(permissions.iter().map(|permission| {
                let texts =
                    [name.to_owned(), name.to_owned(), resource.to_string(), permission.name().to_owned()];
                texts.into_iter().map(IntoWire::into_wire).collect::<Row>()
            }));
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let text = |name| (name, CqlType::Text);
    Ok(Some(Listed {
        table: "permissions",
        rows,
        columns: columns([text("role"), text("username"), text("resource"), text("permission")]),
    }))
}

/// The answer to a statement with `GENERATED PASSWORD`.
pub fn generated_password(password: &str) -> Listed {
    let name = "generated_password";
    Listed { table: name, columns: columns([(name, CqlType::Text)]), rows: vec![vec![password.into_wire()]] }
}

fn columns<const N: usize>(columns: [(&str, CqlType); N]) -> Vec<ResultColumn> {
    columns.map(|(name, column_type)| ResultColumn { name: name.to_owned(), column_type }).to_vec()
}
