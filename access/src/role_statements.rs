//! Statements that change roles and permissions: who may execute them, and which change they ask for.
//!
//! Invariant: who is no superuser changes neither a superuser's role nor the identities of one, whatever was granted to him: a password or an
//! identity of his own there would make him one. Cassandra lets roles with ALTER and CREATE do so.

use std::collections::BTreeSet;

use cql_lite::syntax::ast::{self, Literal, RoleOption, Statement};
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::system_keyspaces::{
    SYSTEM, SYSTEM_AUTH, SYSTEM_DISTRIBUTED, SYSTEM_SCHEMA, SYSTEM_TRACES,
};
use helenus_roles::{
    Access, Alteration, Grants, Permission, PermissionSet, Resource, Role, RoleChange, RoleError,
    RoleOptions, SaltedHash, password,
};

use crate::context::RolesContext;
use crate::demand::Demand;
use crate::listing;
use crate::resources::{exists, resolve};
use crate::subject::{Subject, refuse};

const EMPTY_NAME: &str = "Role name can't be an empty string";
const MBEANS_WITHOUT_EFFECT: &str = "Permissions on MBeans have no effect: there are no MBeans";
/// Keyspaces of the system on which next to nothing can be granted.
const GUARDED_KEYSPACES: [&str; 5] = [SYSTEM, SYSTEM_SCHEMA, SYSTEM_AUTH, SYSTEM_TRACES, SYSTEM_DISTRIBUTED];
const GRANTABLE_ON_SYSTEM: PermissionSet =
    PermissionSet::of(&[Permission::Select, Permission::Describe, Permission::Alter]);

/// A password that a statement sets.
#[derive(Clone, PartialEq, Eq)]
pub enum NewPassword {
    Given(String),
    /// The node makes one.
    Generated,
}

impl std::fmt::Debug for NewPassword {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Given(_) => "Given(…)",
            Self::Generated => "Generated",
        })
    }
}

/// A change that a statement asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    pub change: RoleChange,
    /// The hash of this password is to be set: hashing takes long, and is left to the caller.
    pub password: Option<NewPassword>,
    /// For the client.
    pub warnings: Vec<String>,
}

/// Refuses a statement about roles to who may not execute it. Who is anonymous is refused by [`plan_change`]: Cassandra looks at the
/// options of a role before.
pub fn authorize(statement: &Statement, context: &RolesContext<'_>) -> Result<()> {
    let Some(user) = context.subject.user else { return Ok(()) };
    let subject = &context.subject;
    match statement {
        Statement::CreateRole(create) => {
            check_privilege(context, user, Permission::Create, &Resource::AllRoles)?;
            if has_superuser(&create.options, true) && !subject.has_role_of_superuser() {
                return Err(refuse("Only superusers can create a role with superuser status"));
            }
            if create.options.iter().any(has_known_options) && !subject.has_role_of_superuser() {
                return Err(refuse("Only superusers can create a role with options"));
            }
            Ok(())
        }
        Statement::AlterRole(alter) => authorize_alteration(alter, context, user),
        Statement::DropRole(drop) => {
            let role = drop.role.as_str();
            check_privilege(context, user, Permission::Drop, &Resource::Role(role.to_owned()))?;
            check_superuser_status(subject, role, "Only superusers can drop a role with superuser status")
        }
        Statement::GrantRole(ast::GrantRole { role, .. })
        | Statement::RevokeRole(ast::RevokeRole { role, .. }) => {
            check_privilege(context, user, Permission::Authorize, &Resource::Role(role.as_str().to_owned()))
        }
        Statement::AddIdentity(add) => {
            check_privilege(context, user, Permission::Create, &Resource::Role(user.to_owned()))?;
            let refusal = "Only superusers can add an identity to a role with superuser status";
            check_superuser_status(subject, &add.role, refusal)
        }
        Statement::DropIdentity(drop) => {
            check_privilege(context, user, Permission::Drop, &Resource::Role(user.to_owned()))?;
            let refusal = "Only superusers can drop an identity of a role with superuser status";
            let role = subject.roles.role_of_identity(&drop.identity);
            role.map_or(Ok(()), |role| check_superuser_status(subject, role, refusal))
        }
        Statement::Grant(ast::Grant { permissions, resource, .. })
        | Statement::Revoke(ast::Revoke { permissions, resource, .. }) => {
            let Named { resource, grants } = named_grants(permissions, resource, context)?;
            subject.ensure(&Demand::new(Permission::Authorize, resource))?;
            let each = grants.iter().flat_map(|(resource, permissions)| {
                permissions.iter().map(|permission| Demand::new(permission, resource.clone()))
            });
            each.into_iter().try_for_each(|demand| subject.ensure(&demand))
        }
        _ => listing::authorize(statement, context),
    }
}

/// Refuses who is no superuser if the role is one.
fn check_superuser_status(subject: &Subject<'_>, role: &str, refusal: &str) -> Result<()> {
    if subject.roles.is_superuser(role) && !subject.has_role_of_superuser() {
        return Err(refuse(refusal));
    }
    Ok(())
}

/// Refuses with Cassandra's text for roles.
fn check_privilege(
    context: &RolesContext<'_>,
    user: &str,
    permission: Permission,
    resource: &Resource,
) -> Result<()> {
    if context.subject.has(permission, resource) {
        return Ok(());
    }
    Err(refuse(format!("User {user} does not have sufficient privileges to perform the requested operation")))
}

fn authorize_alteration(alter: &ast::AlterRole, context: &RolesContext<'_>, user: &str) -> Result<()> {
    let subject = &context.subject;
    let (role, is_superuser) = (alter.role.as_str(), subject.has_role_of_superuser());
    let sets = |is: fn(&RoleOption) -> bool| alter.options.iter().any(is);
    if sets(|option| matches!(option, RoleOption::Superuser(_))) {
        if subject.roles.closure(user).contains(role) {
            return Err(refuse(
                "You aren't allowed to alter your own superuser status or that of a role granted to you",
            ));
        }
        if !is_superuser {
            return Err(refuse("Only superusers are allowed to alter superuser status"));
        }
    }
    if sets(|option| matches!(option, RoleOption::Datacenters(_))) && !is_superuser {
        return Err(refuse("Only superusers are allowed to alter access to datacenters."));
    }
    if sets(|option| matches!(option, RoleOption::Cidrs(_))) && !is_superuser {
        return Err(refuse("Only superusers are allowed to alter access from CIDR groups."));
    }
    if (sets(has_known_options) || sets(takes_options_away)) && !is_superuser {
        return Err(refuse("Only superusers are allowed to alter the options of a role"));
    }
    if is_superuser {
        return Ok(());
    }
    if role != user {
        check_privilege(context, user, Permission::Alter, &Resource::Role(role.to_owned()))?;
        return check_superuser_status(
            subject,
            role,
            "Only superusers can alter a role with superuser status",
        );
    }
    let is_other = |option: &&RoleOption| {
        !matches!(
            option,
            RoleOption::Password(_) | RoleOption::HashedPassword(_) | RoleOption::GeneratedPassword
        )
    };
    match alter.options.iter().find(is_other) {
        Some(other) => Err(refuse(format!("You aren't allowed to alter {}", other.name().to_uppercase()))),
        None => Ok(()),
    }
}

/// The change that a statement asks for, after [`authorize`]. `None`: there is nothing to do.
pub fn plan_change(statement: &Statement, context: &RolesContext<'_>) -> Result<Option<PlannedChange>> {
    let user = || context.logged_in();
    let text = |name: &ast::Identifier| name.as_str().to_owned();
    let change = match statement {
        Statement::CreateRole(create) => {
            check_options(&create.options, false, context)?;
            if create.role.as_str().is_empty() {
                return Err(RequestError::invalid(EMPTY_NAME));
            }
            let (mut properties, password) = properties(&create.options, context)?;
            if create.spelling == ast::RoleSpelling::User && properties.can_login.is_none() {
                properties.can_login = Some(true);
            }
            let change = RoleChange::Create {
                role: text(&create.role),
                properties,
                if_not_exists: create.if_not_exists,
                creator: Some(user()?.to_owned()),
            };
            return Ok(Some(PlannedChange { change, password, warnings: Vec::new() }));
        }
        Statement::AlterRole(alter) => {
            check_options(&alter.options, true, context)?;
            if alter.options.is_empty() {
                return Err(RequestError::invalid("ALTER [ROLE|USER] can't be empty"));
            }
            let (properties, password) = properties(&alter.options, context)?;
            user()?;
            let change =
                RoleChange::Alter { role: text(&alter.role), properties, if_exists: alter.if_exists };
            return Ok(Some(PlannedChange { change, password, warnings: Vec::new() }));
        }
        Statement::DropRole(drop) => {
            if drop.role.as_str() == user()? {
                return Err(RequestError::invalid("Cannot DROP primary role for current login"));
            }
            RoleChange::Drop { role: text(&drop.role), if_exists: drop.if_exists }
        }
        Statement::GrantRole(grant) => {
            user()?;
            RoleChange::GrantRole { role: text(&grant.role), grantee: text(&grant.grantee) }
        }
        Statement::RevokeRole(revoke) => {
            user()?;
            RoleChange::RevokeRole { role: text(&revoke.role), grantee: text(&revoke.grantee) }
        }
        Statement::Grant(ast::Grant { permissions, resource, grantee }) => {
            let named = named_grants(permissions, resource, context)?;
            let role = grantee_of(context, "GRANT", &named, grantee)?;
            let grants = named.grants;
            grants.iter().try_for_each(|(resource, permissions)| check_grantable(*permissions, resource))?;
            let present = |(resource, permissions): (&Resource, &PermissionSet)| {
                warning(
                    "already granted",
                    role.granted(resource).intersection(*permissions),
                    resource,
                    grantee,
                )
            };
            let warnings = without_effect(&grants).chain(grants.iter().filter_map(present)).collect();
            let change = RoleChange::Grant { grants, grantee: text(grantee) };
            return Ok(Some(PlannedChange { change, password: None, warnings }));
        }
        Statement::Revoke(ast::Revoke { permissions, resource, grantee }) => {
            let named = named_grants(permissions, resource, context)?;
            let role = grantee_of(context, "REVOKE", &named, grantee)?;
            let grants = named.grants;
            let absent = |(resource, permissions): (&Resource, &PermissionSet)| {
                warning("not granted", permissions.without(role.granted(resource)), resource, grantee)
            };
            let warnings = without_effect(&grants).chain(grants.iter().filter_map(absent)).collect();
            let change = RoleChange::Revoke { grants, grantee: text(grantee) };
            return Ok(Some(PlannedChange { change, password: None, warnings }));
        }
        Statement::AddIdentity(add) => {
            user()?;
            RoleChange::AddIdentity {
                identity: add.identity.clone(),
                role: add.role.clone(),
                if_not_exists: add.if_not_exists,
            }
        }
        Statement::DropIdentity(drop) => {
            user()?;
            RoleChange::DropIdentity { identity: drop.identity.clone(), if_exists: drop.if_exists }
        }
        _ => {
            user()?;
            return Ok(None);
        }
    };
    Ok(Some(PlannedChange { change, password: None, warnings: Vec::new() }))
}

/// What a GRANT or REVOKE names.
struct Named {
    /// Behind ON.
    resource: Resource,
    /// On this resource, or on columns of it.
    grants: Grants,
}

fn named_grants(
    permissions: &ast::GrantedPermissions,
    resource: &ast::Resource,
    context: &RolesContext<'_>,
) -> Result<Named> {
    let resource = resolve(resource, context.keyspace, context.catalog)?;
    // Cassandra fails while it parses, with the text of an exception.
    if matches!(resource, Resource::Function(_)) && !exists(&resource, context.subject.roles, context.catalog)
    {
        return Err(RequestError::Syntax(RoleError::UnknownResource { resource }.to_string()));
    }
    let ast::GrantedPermissions::Some(permissions) = permissions else {
        let grants = Grants::from([(resource.clone(), resource.applicable())]);
        return Ok(Named { resource, grants });
    };
    let mut grants = Grants::new();
    let mut add = |resource: Resource, permissions: PermissionSet| {
        let together = grants.entry(resource).or_default();
        *together = together.union(permissions);
    };
    let is_whole = |named: &&ast::GrantedPermission| named.columns.is_empty();
    let whole: PermissionSet = permissions.iter().filter(is_whole).map(|named| named.permission).collect();
    if !whole.is_empty() {
        add(resource.clone(), applicable(whole, &resource)?);
    }
    for ast::GrantedPermission { permission, columns } in permissions {
        for column in columns {
            let column = column_of(&resource, column)?;
            let permissions = applicable(PermissionSet::of(&[*permission]), &column)?;
            add(column, permissions);
        }
    }
    Ok(Named { resource, grants })
}

/// A column of the resource of a GRANT or REVOKE.
fn column_of(resource: &Resource, column: &ast::Identifier) -> Result<Resource> {
    match resource {
        Resource::Table { keyspace, table } => Ok(Resource::column(keyspace, table, column.as_str())),
        other => Err(RequestError::invalid(format!("Only a table has columns, not {other}"))),
    }
}

/// The role of a GRANT or REVOKE, after what both check.
fn grantee_of<'a>(
    context: &RolesContext<'a>,
    operation: &str,
    Named { resource, grants }: &Named,
    grantee: &ast::Identifier,
) -> Result<&'a Role> {
    context.logged_in()?;
    if !context.subject.is_enforced {
        return Err(RequestError::invalid(format!(
            "{operation} operation is not supported by AllowAllAuthorizer"
        )));
    }
    let (roles, name) = (context.subject.roles, grantee.as_str());
    let Some(role) = roles.role(name) else {
        let role = name.to_owned();
        return Err(RequestError::invalid(RoleError::UnknownToChange { role }.to_string()));
    };
    if !exists(resource, roles, context.catalog) {
        let resource = resource.clone();
        return Err(RequestError::invalid(RoleError::UnknownResource { resource }.to_string()));
    }
    let missing = grants.keys().find(|resource| !exists(resource, roles, context.catalog));
    if let (Some(Resource::Column { column, .. }), Resource::Table { keyspace, table }) = (missing, resource)
    {
        let column = ast::Identifier::quoted(column.as_str());
        return Err(RequestError::invalid(format!(
            "Undefined column name {column} in table {keyspace}.{table}"
        )));
    }
    Ok(role)
}

/// The permissions of a statement that can be granted on a resource.
fn applicable(wanted: PermissionSet, resource: &Resource) -> Result<PermissionSet> {
    let applicable = wanted.intersection(resource.applicable());
    if !applicable.is_empty() {
        return Ok(applicable);
    }
    let kind = match resource {
        Resource::AllKeyspaces
        | Resource::Keyspace(_)
        | Resource::AllTables(_)
        | Resource::Table { .. }
        | Resource::Column { .. } => "Data",
        Resource::AllFunctions | Resource::FunctionsOf(_) | Resource::Function(_) => "Function",
        Resource::AllRoles | Resource::Role(_) => "Role",
        Resource::AllMbeans | Resource::Mbean(_) => "JMX",
    };
    Err(RequestError::Syntax(format!(
        "Resource type {kind}Resource does not support any of the requested permissions"
    )))
}

fn check_grantable(permissions: PermissionSet, resource: &Resource) -> Result<()> {
    let is_data = matches!(
        resource,
        Resource::Keyspace(_) | Resource::AllTables(_) | Resource::Table { .. } | Resource::Column { .. }
    );
    let is_guarded = is_data && resource.keyspace().is_some_and(|name| GUARDED_KEYSPACES.contains(&name));
    if is_guarded && !permissions.without(GRANTABLE_ON_SYSTEM).is_empty() {
        return Err(refuse(
            "Granting permissions on system keyspaces is strictly limited, this operation is not permitted",
        ));
    }
    Ok(())
}

/// The warning for permissions on management beans, which are accepted for the scripts that name them.
fn without_effect(grants: &Grants) -> impl Iterator<Item = String> {
    let names_mbeans =
        grants.keys().any(|resource| matches!(resource, Resource::AllMbeans | Resource::Mbean(_)));
    names_mbeans.then(|| MBEANS_WITHOUT_EFFECT.to_owned()).into_iter()
}

fn warning(
    state: &str,
    permissions: PermissionSet,
    resource: &Resource,
    grantee: &ast::Identifier,
) -> Option<String> {
    (!permissions.is_empty())
        .then(|| format!("Role '{}' was {state} {} on {resource}", grantee.as_str(), permissions.names()))
}

fn has_superuser(options: &[RoleOption], value: bool) -> bool {
    options.contains(&RoleOption::Superuser(value))
}

/// Refuses what Cassandra refuses, with its text. `is_alteration`: an empty map takes the options of the role away.
fn check_options(options: &[RoleOption], is_alteration: bool, context: &RolesContext<'_>) -> Result<()> {
    let unsupported = |option: &&RoleOption| match option {
        RoleOption::Options(_) => {
            !(has_known_options(option) || (is_alteration && takes_options_away(option)))
        }
        RoleOption::Password(_) | RoleOption::HashedPassword(_) | RoleOption::GeneratedPassword => {
            !context.has_logins
        }
        _ => false,
    };
    if let Some(option) = options.iter().find(unsupported) {
        return Err(RequestError::invalid(format!(
            "org.apache.cassandra.auth.CassandraRoleManager doesn't support {}",
            option.name().to_uppercase().replace(' ', "_")
        )));
    }
    for option in options {
        if let RoleOption::HashedPassword(hash) = option {
            password::check_hash(hash, context.subject.has_role_of_superuser())
                .map_err(|error| RequestError::invalid(error.to_string()))?;
        }
    }
    Ok(())
}

/// The properties that options set, and the password that is to be hashed.
fn properties(
    options: &[RoleOption],
    context: &RolesContext<'_>,
) -> Result<(Alteration, Option<NewPassword>)> {
    let (mut properties, mut password) = (Alteration::default(), None);
    for option in options {
        match option {
            RoleOption::Password(text) => password = Some(NewPassword::Given(text.clone())),
            RoleOption::GeneratedPassword => password = Some(NewPassword::Generated),
            RoleOption::HashedPassword(hash) => properties.salted_hash = Some(SaltedHash::new(hash.as_str())),
            RoleOption::Superuser(is_superuser) => properties.is_superuser = Some(*is_superuser),
            RoleOption::Login(can_login) => properties.can_login = Some(*can_login),
            RoleOption::Datacenters(names) => {
                properties.datacenters = Some(data_centers(names.as_deref(), context)?);
            }
            RoleOption::Cidrs(groups) => {
                properties.cidr_groups = Some(cidr_groups(groups.as_deref(), context)?);
            }
            RoleOption::Options(entries) => properties.options = Some(role_options(entries)?),
        }
    }
    Ok((properties, password))
}

/// Whether there is an option in the map that roles have here.
fn has_known_options(option: &RoleOption) -> bool {
    let is_known = |(name, _): &(Literal, Literal)| RoleOptions::knows(&text_of(name));
    matches!(option, RoleOption::Options(entries) if entries.iter().any(is_known))
}

fn takes_options_away(option: &RoleOption) -> bool {
    matches!(option, RoleOption::Options(entries) if entries.is_empty())
}

fn role_options(entries: &[(Literal, Literal)]) -> Result<RoleOptions> {
    let mut options = RoleOptions::default();
    for (name, value) in entries {
        options.set(&text_of(name), &text_of(value)).map_err(RequestError::invalid)?;
    }
    Ok(options)
}

fn text_of(literal: &Literal) -> String {
    literal.raw_text().unwrap_or_else(|| "null".to_owned())
}

fn data_centers(named: Option<&[String]>, context: &RolesContext<'_>) -> Result<Access> {
    let Some(named) = named.map(|named| named.iter().cloned().collect::<BTreeSet<_>>()) else {
        return Ok(Access::All);
    };
    if !named.is_subset(context.data_centers) {
        return Err(RequestError::invalid(format!(
            "Invalid value(s) for DATACENTERS '[{}]',All values must be valid datacenters",
            named.into_iter().collect::<Vec<_>>().join(", ")
        )));
    }
    if context.data_center.is_none() {
        return not_obeyed("ACCESS TO DATACENTERS", "AllowAllNetworkAuthorizer");
    }
    Ok(Access::Only(named))
}

fn cidr_groups(named: Option<&[String]>, context: &RolesContext<'_>) -> Result<Access> {
    let Some(named) = named.map(|named| named.iter().cloned().collect::<BTreeSet<_>>()) else {
        return Ok(Access::All);
    };
    let known: BTreeSet<String> =
        context.subject.roles.cidr_groups().map(|(group, _)| group.to_owned()).collect();
    let listed = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    let unknown: BTreeSet<String> = named.difference(&known).cloned().collect();
    if !unknown.is_empty() {
        return Err(RequestError::invalid(format!(
            "Invalid CIDR group(s): [{}]. Available CIDR Groups are: [{}]",
            listed(&unknown),
            listed(&known)
        )));
    }
    if !context.restricts_networks {
        return not_obeyed("ACCESS FROM CIDRS", "AllowAllCIDRAuthorizer");
    }
    Ok(Access::Only(named))
}

/// A restriction that no authorizer obeys is refused: to accept it would promise what does not hold.
fn not_obeyed(option: &str, authorizer: &str) -> Result<Access> {
    Err(RequestError::invalid(format!("{option} operations not supported by {authorizer}")))
}
