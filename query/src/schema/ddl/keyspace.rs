//! CREATE, ALTER and DROP KEYSPACE.

use std::collections::BTreeMap;

use cql_lite::syntax::ast::{AlterKeyspace, CreateKeyspace, DropKeyspace};
use imbl::OrdMap;

use super::{
    Change, ChangeTarget, ChangeType, Ddl, MAX_KEYSPACE_NAME_LENGTH, TableAction, event, invalid,
    is_valid_name, refuse_system_keyspace,
};
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Keyspace, TableKind};
use crate::schema::options::{KeyspaceOptions, Properties, replication_warnings};
use crate::schema::system_keyspaces;
use crate::schema::user_functions::UserFunctions;

impl Ddl<'_> {
    pub(super) fn create_keyspace(&self, create: &CreateKeyspace) -> Result<Change> {
        let name = create.keyspace.as_str();
        if system_keyspaces::is_system(name) {
            // Cassandra's text differs from the permission error for an existing keyspace.
            return invalid(format!("System keyspace '{name}' is not user-modifiable"));
        }
        let properties = Properties::from_ast(&create.properties)?;
        let options = KeyspaceOptions::from_properties(&properties, name, None, &self.context.data_centers)?;
        let Some(replication) = options.replication else {
            return invalid("Missing mandatory option 'replication'");
        };
        if self.catalog.keyspace(name).is_some() {
            return if create.if_not_exists {
                Ok(self.unchanged())
            } else {
                Err(RequestError::AlreadyExists { keyspace: name.to_owned(), table: String::new() })
            };
        }
        if name.len() > MAX_KEYSPACE_NAME_LENGTH {
            return invalid(format!(
                "Keyspace name must not be more than {MAX_KEYSPACE_NAME_LENGTH} characters long (got {} characters \
                 for \"{name}\")",
                name.len()
            ));
        }
        if !is_valid_name(name) {
            return invalid(format!(
                "Keyspace name must not be empty and must contain alphanumeric or underscore characters only (got \
                 \"{name}\")"
            ));
        }
        let warnings = replication_warnings(&replication, name, &self.context.data_centers);
        let keyspace = Keyspace {
            name: name.to_owned(),
            replication,
            durable_writes: options.durable_writes.unwrap_or(true),
            is_virtual: false,
            tables: OrdMap::new(),
            types: BTreeMap::new(),
            user_functions: UserFunctions::default(),
        };
        Ok(Change {
            catalog: self.with_keyspace(keyspace),
            effect: Some(event(ChangeType::Created, ChangeTarget::Keyspace, name, "")),
            warnings,
            table_actions: Vec::new(),
        })
    }

    pub(super) fn alter_keyspace(&self, alter: &AlterKeyspace) -> Result<Change> {
        let name = alter.keyspace.as_str();
        if !system_keyspaces::is_replicated(name) {
            refuse_system_keyspace(name)?;
        }
        let Some(keyspace) = self.catalog.keyspace(name) else {
            return if alter.if_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Keyspace '{name}' doesn't exist"))
            };
        };
        let properties = Properties::from_ast(&alter.properties)?;
        let options = KeyspaceOptions::from_properties(
            &properties,
            name,
            Some(&keyspace.replication),
            &self.context.data_centers,
        )?;
        let mut altered = Keyspace::clone(keyspace);
        altered.durable_writes = options.durable_writes.unwrap_or(keyspace.durable_writes);
        altered.replication = options.replication.unwrap_or_else(|| keyspace.replication.clone());
        if altered.durable_writes == keyspace.durable_writes && altered.replication == keyspace.replication {
            return Ok(self.unchanged());
        }
        let warnings = if altered.replication == keyspace.replication {
            Vec::new()
        } else {
            replication_warnings(&altered.replication, name, &self.context.data_centers)
        };
        Ok(Change {
            catalog: self.with_keyspace(altered),
            effect: Some(event(ChangeType::Updated, ChangeTarget::Keyspace, name, "")),
            warnings,
            table_actions: Vec::new(),
        })
    }

    pub(super) fn drop_keyspace(&self, drop: &DropKeyspace) -> Result<Change> {
        let name = drop.keyspace.as_str();
        refuse_system_keyspace(name)?;
        let Some(keyspace) = self.catalog.keyspace(name) else {
            return if drop.if_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Keyspace '{name}' doesn't exist"))
            };
        };
        let mut catalog = self.catalog.clone();
        catalog.version = self.context.new_version;
        catalog.keyspaces.remove(name);
        let stored = keyspace.tables.values().filter(|table| table.kind == TableKind::Stored);
        Ok(Change {
            catalog: catalog.into(),
            effect: Some(event(ChangeType::Dropped, ChangeTarget::Keyspace, name, "")),
            warnings: Vec::new(),
            table_actions: stored.map(|table| TableAction::Drop(table.id)).collect(),
        })
    }
}
