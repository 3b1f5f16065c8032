//! Who executes a statement, and whether it may.

use std::borrow::Cow;
use std::collections::BTreeSet;

use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Table;
use helenus_query::schema::system_keyspaces::{
    SYSTEM, SYSTEM_DISTRIBUTED, SYSTEM_SCHEMA, SYSTEM_TRACES, SYSTEM_VIRTUAL_SCHEMA, is_replicated, is_system,
};
use helenus_roles::{Permission, Resource, Roles};

use crate::demand::Demand;

/// The tables of keyspace `system` that every client reads: to find the nodes, and to divide what it reads among them.
const TABLES_FOR_ALL: [&str; 5] = ["local", "peers", "peers_v2", "size_estimates", "table_estimates"];

/// The tables of keyspace `system_distributed` that every consumer of a change feed reads: to find its streams, which are those of all feeds.
const FEED_TABLES_FOR_ALL: [&str; 2] = ["cdc_generation_timestamps", "cdc_streams_descriptions_v2"];

/// The client of a request.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub roles: &'a Roles,
    /// The role that it logged in as; `None`: it is anonymous.
    pub user: Option<&'a str>,
    /// Whether permissions are needed at all.
    pub is_enforced: bool,
}

impl<'a> Subject<'a> {
    /// Whether everything is allowed: permissions are not enforced, or it is a superuser.
    pub fn is_superuser(&self) -> bool {
        !self.is_enforced || self.user.is_some_and(|user| self.roles.is_superuser(user))
    }

    /// Whether its role is a superuser, whether or not permissions are enforced.
    pub fn has_role_of_superuser(&self) -> bool {
        self.user.is_some_and(|user| self.roles.is_superuser(user))
    }

    /// The role, or the refusal of who is anonymous.
    pub fn logged_in(&self) -> Result<&'a str> {
        self.user.ok_or_else(|| refuse("You have to be logged in and not anonymous to perform this request"))
    }

    /// Refuses what it has no permission for.
    pub fn ensure_all(&self, demands: &[Demand]) -> Result<()> {
        demands.iter().try_for_each(|demand| self.ensure(demand))
    }

    /// Refuses what it has no permission for.
    pub fn ensure(&self, demand: &Demand) -> Result<()> {
        if !self.is_enforced {
            return Ok(());
        }
        match demand {
            Demand::Permission { permission, resource } => self.ensure_permission(*permission, resource),
            Demand::Columns { permission, table, columns } => {
                self.ensure_columns(*permission, table, columns)
            }
            Demand::FeedLog { log, columns, base } => self.ensure_log(log, columns, base),
            Demand::MaskedColumns { keyspace, table, columns } => {
                let table_resource = Resource::table(keyspace, table);
                let may = |permission| self.has(permission, &table_resource);
                if may(Permission::Unmask) || may(Permission::SelectMasked) {
                    return Ok(());
                }
                Err(refuse(format!(
                    "User {} has no UNMASK nor SELECT_MASKED permission on table {keyspace}.{table}, cannot query masked \
                     columns [{}]",
                    self.user.unwrap_or("anonymous"),
                    columns.join(", ")
                )))
            }
            Demand::Superuser { refusal } => {
                if self.is_superuser() {
                    Ok(())
                } else {
                    Err(refuse(*refusal))
                }
            }
        }
    }

    fn ensure_log(&self, log: &Table, columns: &BTreeSet<usize>, base: &Table) -> Result<()> {
        let of_base = Resource::table(&base.keyspace, &base.name);
        let on_log = self.ensure_columns(Permission::Select, log, columns);
        if on_log.is_err() && !self.has(Permission::Select, &of_base) {
            return on_log;
        }
        if base.masks.is_empty() || self.has(Permission::Unmask, &of_base) {
            return Ok(());
        }
        Err(refuse(format!(
            "User {} has no UNMASK permission on table {}, cannot query its change feed, which has the values of masked columns",
            self.user.unwrap_or("anonymous"),
            base.full_name()
        )))
    }

    fn ensure_permission(&self, permission: Permission, resource: &Resource) -> Result<()> {
        let Some(user) = self.user else { return Err(refuse("You have not logged in")) };
        if let Resource::Keyspace(keyspace)
        | Resource::AllTables(keyspace)
        | Resource::Table { keyspace, .. } = resource
        {
            refuse_changes_of_system(permission, keyspace, resource)?;
            if permission == Permission::Select && is_readable_by_all(resource) {
                return Ok(());
            }
        }
        if self.has(permission, resource) {
            return Ok(());
        }
        Err(missing(user, permission, resource))
    }

    /// Refuses unless the permission is granted on the table or on each column. The error names the table if no column has the grant (Cassandra's
    /// text), otherwise the first column without it.
    fn ensure_columns(&self, permission: Permission, table: &Table, columns: &BTreeSet<usize>) -> Result<()> {
        let on_table = self.ensure_permission(permission, &Resource::table(&table.keyspace, &table.name));
        let (Err(_), Some(user)) = (&on_table, self.user) else { return on_table };
        let resource =
            |index: usize| Resource::column(&table.keyspace, &table.name, &table.columns[index].name);
        let is_missing = |index: &usize| !self.has(permission, &resource(*index));
        if columns.is_empty() {
            return if (0..table.columns.len()).all(|index| is_missing(&index)) { on_table } else { Ok(()) };
        }
        let lacked: Vec<usize> = columns.iter().copied().filter(is_missing).collect();
        match lacked.first() {
            None => Ok(()),
            Some(_) if lacked.len() == columns.len() => on_table,
            Some(first) => Err(missing(user, permission, &resource(*first))),
        }
    }

    /// Whether it has a permission on a resource or on one that contains it. What is granted on all keyspaces does not reach those of the
    /// system.
    pub fn has(&self, permission: Permission, resource: &Resource) -> bool {
        if self.is_superuser() {
            return true;
        }
        let Some(user) = self.user else { return false };
        let is_of_system = is_data(resource) && resource.keyspace().is_some_and(is_system);
        if !is_of_system {
            return self.roles.allows(user, permission, resource);
        }
        let mut present = Some(Cow::Borrowed(resource));
        while let Some(resource) = present.filter(|resource| **resource != Resource::AllKeyspaces) {
            if self.roles.granted_on(user, &resource).contains(permission) {
                return true;
            }
            present = resource.parent().map(Cow::Owned);
        }
        false
    }

    /// Whether it sees the values of masked columns as they are.
    pub fn sees_masked_values(&self, keyspace: &str, table: &str) -> bool {
        self.has(Permission::Unmask, &Resource::table(keyspace, table))
    }
}

/// Refuses who is bound to other data centers. As in Cassandra the role may log in, but not work.
pub fn check_data_center(roles: &Roles, user: &str, data_center: &str) -> Result<()> {
    if roles.may_enter(user, data_center) {
        return Ok(());
    }
    Err(refuse(format!("You do not have access to this datacenter ({data_center})")))
}

fn is_data(resource: &Resource) -> bool {
    matches!(
        resource,
        Resource::AllKeyspaces
            | Resource::Keyspace(_)
            | Resource::AllTables(_)
            | Resource::Table { .. }
            | Resource::Column { .. }
    )
}

/// Nobody changes the tables of the system.
fn refuse_changes_of_system(permission: Permission, keyspace: &str, resource: &Resource) -> Result<()> {
    if ![Permission::Create, Permission::Alter, Permission::Drop].contains(&permission)
        || !is_system(keyspace)
    {
        return Ok(());
    }
    if !is_replicated(keyspace) {
        return Err(refuse(format!("{keyspace} keyspace is not user-modifiable.")));
    }
    let is_own_setting = permission == Permission::Alter && matches!(resource, Resource::Keyspace(_));
    if is_own_setting {
        return Ok(());
    }
    Err(refuse(format!("Cannot {} {resource}", permission.name())))
}

fn is_readable_by_all(resource: &Resource) -> bool {
    let Resource::Table { keyspace, table } = resource else { return false };
    match keyspace.as_str() {
        SYSTEM => TABLES_FOR_ALL.contains(&table.as_str()),
        SYSTEM_DISTRIBUTED => FEED_TABLES_FOR_ALL.contains(&table.as_str()),
        SYSTEM_SCHEMA | SYSTEM_TRACES | SYSTEM_VIRTUAL_SCHEMA => true,
        _ => false,
    }
}

fn missing(user: &str, permission: Permission, resource: &Resource) -> RequestError {
    refuse(format!("User {user} has no {} permission on {resource} or any of its parents", permission.name()))
}

pub(crate) fn refuse(message: impl Into<String>) -> RequestError {
    RequestError::Unauthorized(message.into())
}
