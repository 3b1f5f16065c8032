//! CREATE, ALTER and DROP TYPE.
//!
//! The columns and types of a keyspace contain the definitions of the user types that they use, so a changed type is
//! replaced in all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::syntax::ast::{
    AlterType, AlterTypeOperation, CqlTypeName, CreateType, DropType, Identifier, NativeType,
};
use cql_lite::types::{CqlType, UserType};

use super::type_name::resolve;
use super::{
    Change, ChangeTarget, ChangeType, Ddl, TableAction, event, invalid, quoted, refuse_system_keyspace,
};
use crate::error::{RequestError, Result};
use crate::functions::user::UserAggregate;
use crate::schema::catalog::{Keyspace, Table};

impl Ddl<'_> {
    pub(super) fn create_type(&self, create: &CreateType) -> Result<Change> {
        let keyspace = self.modifiable_keyspace(self.keyspace_name(create.name.keyspace.as_ref())?)?;
        let name = create.name.name.as_str();
        if keyspace.user_type(name).is_some() {
            return if create.if_not_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("A user type with name '{name}' already exists"))
            };
        }
        let mut names = BTreeSet::new();
        for (field, _) in &create.fields {
            if !names.insert(field.as_str()) {
                return invalid(format!("Duplicate field name '{}' in type '{name}'", field.as_str()));
            }
        }
        let mut field_types = Vec::with_capacity(create.fields.len());
        for (_, type_name) in &create.fields {
            field_types.push(field_type(type_name, keyspace)?);
        }
        let definition = UserType {
            keyspace: keyspace.name.as_str().into(),
            name: name.into(),
            field_names: create.fields.iter().map(|(field, _)| field.as_str().into()).collect(),
            field_types,
        };
        let effect = event(ChangeType::Created, ChangeTarget::Type, &keyspace.name, name);
        let mut keyspace = Keyspace::clone(keyspace);
        keyspace.types.insert(name.to_owned(), Arc::new(definition));
        Ok(Change {
            catalog: self.with_keyspace(keyspace),
            effect: Some(effect),
            warnings: Vec::new(),
            table_actions: Vec::new(),
        })
    }

    pub(super) fn alter_type(&self, alter: &AlterType) -> Result<Change> {
        let keyspace_name = self.keyspace_name(alter.name.keyspace.as_ref())?;
        refuse_system_keyspace(keyspace_name)?;
        let name = alter.name.name.as_str();
        let keyspace = self.catalog.keyspace(keyspace_name);
        let found = keyspace.and_then(|keyspace| Some((keyspace, keyspace.user_type(name)?)));
        let Some((keyspace, before)) = found else {
            return if alter.if_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Type {keyspace_name}.{name} doesn't exist"))
            };
        };
        let after = match &alter.operation {
            AlterTypeOperation::AddField { if_not_exists, field, type_name } => {
                if before.field_index(field.as_str()).is_some() && *if_not_exists {
                    return Ok(self.unchanged());
                }
                add_field(keyspace, before, field, type_name)?
            }
            AlterTypeOperation::RenameFields { if_exists, renames } => {
                refuse_in_initial_conditions(keyspace, before)?;
                rename_fields(before, renames, *if_exists)?
            }
            AlterTypeOperation::AlterField { .. } => {
                return invalid("Altering field types is no longer supported");
            }
        };
        if after == **before {
            return Ok(self.unchanged());
        }
        let (keyspace, tables) = with_user_type(keyspace, &Arc::new(after))?;
        let effect = event(ChangeType::Updated, ChangeTarget::Type, &keyspace.name, name);
        Ok(Change {
            catalog: self.with_keyspace(keyspace),
            effect: Some(effect),
            warnings: Vec::new(),
            table_actions: tables.into_iter().map(TableAction::Alter).collect(),
        })
    }

    pub(super) fn drop_type(&self, drop: &DropType) -> Result<Change> {
        let keyspace_name = self.keyspace_name(drop.name.keyspace.as_ref())?;
        refuse_system_keyspace(keyspace_name)?;
        let name = drop.name.name.as_str();
        let found =
            self.catalog.keyspace(keyspace_name).filter(|keyspace| keyspace.user_type(name).is_some());
        let Some(keyspace) = found else {
            return if drop.if_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Type '{keyspace_name}.{name}' doesn't exist"))
            };
        };
        let functions: Vec<String> = keyspace.user_functions.names_using_type(keyspace_name, name).collect();
        refuse_use(keyspace_name, name, "functions", functions.iter().map(String::as_str))?;
        let is_used = |candidate: &CqlType| candidate.references_user_type(keyspace_name, name);
        let types = keyspace.types.values().filter(|other| other.field_types.iter().any(is_used));
        refuse_use(keyspace_name, name, "user types", types.map(|other| other.name.as_ref()))?;
        let tables = keyspace
            .tables
            .values()
            .filter(|table| table.columns.iter().any(|column| is_used(&column.column_type)));
        refuse_use(keyspace_name, name, "tables", tables.map(|table| table.name.as_str()))?;

        let effect = event(ChangeType::Dropped, ChangeTarget::Type, keyspace_name, name);
        let mut keyspace = Keyspace::clone(keyspace);
        keyspace.types.remove(name);
        Ok(Change {
            catalog: self.with_keyspace(keyspace),
            effect: Some(effect),
            warnings: Vec::new(),
            table_actions: Vec::new(),
        })
    }
}

/// The initial condition of an aggregate is shown as a literal with the names of fields.
fn refuse_in_initial_conditions(keyspace: &Keyspace, definition: &UserType) -> Result<()> {
    let is_used = |aggregate: &&Arc<UserAggregate>| {
        aggregate.initial_condition.is_some()
            && aggregate.state_type.references_user_type(&definition.keyspace, &definition.name)
    };
    let aggregates = keyspace.user_functions.aggregates().iter().filter(is_used);
    let users: Vec<String> = aggregates.map(|aggregate| aggregate.full_name()).collect();
    if users.is_empty() {
        return Ok(());
    }
    invalid(format!(
        "Cannot alter user type {} as it is still used in INITCOND by aggregates {}",
        shown(definition),
        users.join(", ")
    ))
}

fn refuse_use<'a>(
    keyspace: &str,
    name: &str,
    what: &str,
    users: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let users: Vec<&str> = users.collect();
    if users.is_empty() {
        return Ok(());
    }
    invalid(format!(
        "Cannot drop user type '{keyspace}.{name}' as it is still used by {what} {}",
        users.join(", ")
    ))
}

fn field_type(type_name: &CqlTypeName, keyspace: &Keyspace) -> Result<CqlType> {
    if *type_name == CqlTypeName::Native(NativeType::Counter) {
        return invalid("A user type cannot contain counters");
    }
    if matches!(type_name, CqlTypeName::User(_)) {
        return invalid("A user type cannot contain non-frozen UDTs");
    }
    resolve(type_name, keyspace)
}

fn shown(definition: &UserType) -> String {
    format!("{}.{}", quoted(&definition.keyspace), quoted(&definition.name))
}

fn add_field(
    keyspace: &Keyspace,
    before: &UserType,
    field: &Identifier,
    type_name: &CqlTypeName,
) -> Result<UserType> {
    let name = field.as_str();
    if before.field_index(name).is_some() {
        return invalid(format!(
            "Cannot add field {name} to type {}: a field with name {name} already exists",
            shown(before)
        ));
    }
    let added = field_type(type_name, keyspace)?;
    if added.references_user_type(&before.keyspace, &before.name) {
        return invalid(circular(before, name, type_name));
    }
    let users: Vec<String> = keyspace
        .tables
        .values()
        .filter(|table| {
            let mut key = table.partition_key().iter();
            key.any(|column| column.column_type.references_user_type(&before.keyspace, &before.name))
        })
        .map(|table| table.full_name())
        .collect();
    if !users.is_empty() {
        return invalid(format!(
            "Cannot add new field {name} of type {type_name} to user type {} as the type is being used in \
             partition key by the following tables: {}",
            shown(before),
            users.join(", ")
        ));
    }
    let mut after = before.clone();
    after.field_names.push(name.into());
    after.field_types.push(added);
    Ok(after)
}

fn circular(before: &UserType, field: &str, type_name: &CqlTypeName) -> String {
    format!(
        "Cannot add new field {field} of type {type_name} to user type {} as it would create a circular reference",
        shown(before)
    )
}

fn rename_fields(
    before: &UserType,
    renames: &[(Identifier, Identifier)],
    if_exists: bool,
) -> Result<UserType> {
    let mut after = before.clone();
    for (old, new) in renames {
        match before.field_index(old.as_str()).and_then(|index| after.field_names.get_mut(index)) {
            Some(field) => *field = new.as_str().into(),
            None if if_exists => {}
            None => {
                return invalid(format!("Unknown field {} in user type {}", old.as_str(), shown(before)));
            }
        }
    }
    let mut names = BTreeSet::new();
    for name in &after.field_names {
        if !names.insert(name) {
            return invalid(format!("Duplicate field name {name} in type {}", shown(before)));
        }
    }
    Ok(after)
}

/// The keyspace with a type replaced everywhere, and the changed tables.
fn with_user_type(keyspace: &Keyspace, definition: &Arc<UserType>) -> Result<(Keyspace, Vec<Arc<Table>>)> {
    let mut changed = keyspace.clone();
    for user_type in changed.types.values_mut() {
        if user_type.name == definition.name {
            *user_type = definition.clone();
        } else if references(user_type.field_types.iter(), definition) {
            let mut updated = UserType::clone(user_type);
            for field in &mut updated.field_types {
                *field = field.with_user_type(definition);
            }
            *user_type = Arc::new(updated);
        }
    }
    changed.user_functions = keyspace.user_functions.with_user_type(definition);
    let mut tables = Vec::new();
    for table in keyspace.tables.values() {
        if !references(table.columns.iter().map(|column| &column.column_type), definition) {
            continue;
        }
        let mut updated = Table::clone(table);
        for column in &mut updated.columns {
            column.column_type = column.column_type.with_user_type(definition);
            if let Some(field) = nested_multi_cell_field(&column.column_type) {
                return Err(RequestError::Invalid(format!(
                    "Non-frozen UDTs with nested non-frozen collections are not supported for column {} of table \
                     {} (field {field})",
                    column.name,
                    table.full_name()
                )));
            }
        }
        let updated = Arc::new(updated);
        changed.tables.insert(updated.name.clone(), updated.clone());
        tables.push(updated);
    }
    Ok((changed, tables))
}

fn references<'a>(mut types: impl Iterator<Item = &'a CqlType>, definition: &UserType) -> bool {
    types.any(|candidate| candidate.references_user_type(&definition.keyspace, &definition.name))
}

/// The first field of a non-frozen user type that would itself need many cells.
pub(super) fn nested_multi_cell_field(column_type: &CqlType) -> Option<&str> {
    let CqlType::UserType { definition, frozen: false } = column_type else { return None };
    let mut fields = definition.field_names.iter().zip(&definition.field_types);
    fields.find(|(_, field)| field.is_multi_cell()).map(|(name, _)| name.as_ref())
}
