//! CREATE INDEX and DROP INDEX.
//!
//! Invariants:
//! * The names of indexes are unique in their keyspace.
//! * No two indexes of a table differ in nothing but their names and ids.

mod class;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cql_lite::syntax::ast::{CreateIndex, DropIndex, IndexTarget};
use cql_lite::types::CqlType;

use self::class::Target;
use super::{Change, Ddl, MAX_KEYSPACE_NAME_LENGTH, configuration, invalid, is_valid_name};
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Keyspace, Table};
use crate::schema::index::{CLASS_NAME, Index, IndexKind, IndexedPart, TARGET};
use crate::schema::options::Properties;

/// The class by which `USING` asks for an index without a class.
const LEGACY_CLASS: &str = "legacy_local_table";
const SASI_WARNING: &str = "SASI indexes are experimental and are not recommended for production use.";

impl Ddl<'_> {
    pub(super) fn create_index(&self, create: &CreateIndex) -> Result<Change> {
        let keyspace_name = self.user_keyspace_name(create.table.keyspace.as_ref())?;
        let (class, mut options) = class_and_options(create)?;
        let keyspace = self.modifiable_keyspace(keyspace_name)?;
        let table_name = create.table.name.as_str();
        let Some(table) = keyspace.tables.get(table_name) else {
            return invalid(format!("Table '{table_name}' doesn't exist"));
        };
        if let Some(name) = &create.name
            && keyspace.index(name.as_str()).is_some()
        {
            return if create.if_not_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Index '{}' already exists", name.as_str()))
            };
        }
        if table.is_counter {
            return invalid("Secondary indexes on counter tables aren't supported");
        }
        if table.options.cap.is_some() {
            return invalid("Indexes are not supported on tables with a cap yet");
        }
        let targets = targets(create, table)?;
        check_number(&targets, class.is_some())?;
        targets.iter().try_for_each(|target| check_target(table, *target, class.is_some()))?;
        let name = match &create.name {
            Some(name) => name.as_str().to_owned(),
            None => default_name(keyspace, table_name, &targets),
        };
        if let Some(class) = class {
            options.insert(CLASS_NAME.to_owned(), class.to_owned());
        }
        if let Some(equal) = equal_index(table, &targets, &options) {
            return if create.if_not_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Index {name} is a duplicate of existing index {}", equal.name))
            };
        }
        if !is_valid_name(&name) {
            return configuration(format!("Illegal index name {name}"));
        }
        let kind = class::kind(class)?;
        let target = class::check(kind, &name, table, &targets, &options)?;
        let mut changed = Table::clone(table);
        changed.indexes.push(Arc::new(Index {
            name,
            id: self.context.new_id,
            kind,
            column_id: target.column.id,
            part: target.part,
            options,
        }));
        changed.indexes.sort_by(|a, b| a.name.cmp(&b.name));
        let mut change = self.table_changed(keyspace, changed);
        if kind == IndexKind::Sasi {
            change.warnings.push(SASI_WARNING.to_owned());
        }
        Ok(change)
    }

    pub(super) fn drop_index(&self, drop: &DropIndex) -> Result<Change> {
        let keyspace_name = self.user_keyspace_name(drop.name.keyspace.as_ref())?;
        let name = drop.name.name.as_str();
        let keyspace = self.catalog.keyspace(keyspace_name);
        let found = keyspace.and_then(|keyspace| Some((keyspace, keyspace.index(name)?.0)));
        let Some((keyspace, table)) = found else {
            return if drop.if_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Index '{keyspace_name}.{name}' doesn't exist"))
            };
        };
        let mut changed = Table::clone(table);
        changed.indexes.retain(|index| index.name != name);
        Ok(self.table_changed(keyspace, changed))
    }
}

/// The class of a custom index, as it is written, and the options.
fn class_and_options(create: &CreateIndex) -> Result<(Option<&str>, BTreeMap<String, String>)> {
    let properties = Properties::from_ast(&create.properties)?;
    properties.refuse_unknown(&["options"])?;
    let class = match create.class.as_deref() {
        None if create.custom => return invalid("CUSTOM index requires specifiying the index class"),
        Some(class) if !create.custom && class.eq_ignore_ascii_case(LEGACY_CLASS) => None,
        class => class,
    };
    if class.is_none() && properties.names().next().is_some() {
        return invalid("Cannot specify options for a non-CUSTOM index");
    }
    let options = properties.map("options")?.cloned().unwrap_or_default();
    match [CLASS_NAME, TARGET].into_iter().find(|reserved| options.contains_key(*reserved)) {
        Some(reserved) => invalid(format!("Cannot specify {reserved} as a CUSTOM option")),
        None => Ok((class, options)),
    }
}

fn targets<'t>(create: &CreateIndex, table: &'t Table) -> Result<Vec<Target<'t>>> {
    let target = |written: &IndexTarget| {
        let name = written.column().as_str();
        let column = table.column(name).ok_or_else(|| {
            RequestError::Invalid(format!("Undefined column name {name} in table {}", table.full_name()))
        })?;
        let part = match written {
            // The values of a collection need not be asked for.
            IndexTarget::Simple(_) if column.column_type.is_collection() => IndexedPart::Values,
            IndexTarget::Simple(_) => IndexedPart::Value,
            IndexTarget::Values(_) => IndexedPart::Values,
            IndexTarget::Keys(_) => IndexedPart::Keys,
            IndexTarget::Entries(_) => IndexedPart::Entries,
            IndexTarget::Full(_) => IndexedPart::Full,
        };
        Ok(Target { column, part })
    };
    create.targets.iter().map(target).collect()
}

fn check_number(targets: &[Target<'_>], is_custom: bool) -> Result<()> {
    if targets.is_empty() && !is_custom {
        return invalid("Only CUSTOM indexes can be created without specifying a target column");
    }
    if targets.len() < 2 {
        return Ok(());
    }
    if !is_custom {
        return invalid("Only CUSTOM indexes support multiple columns");
    }
    let mut columns = BTreeSet::new();
    match targets.iter().find(|target| !columns.insert(target.column.id)) {
        Some(twice) => invalid(format!("Duplicate column '{}' in index target list", twice.column.name)),
        None => Ok(()),
    }
}

/// The rules for the targets of all indexes.
fn check_target(table: &Table, target: Target<'_>, is_custom: bool) -> Result<()> {
    let Target { column, part } = target;
    let (name, column_type, part_name) = (&column.name, &column.column_type, part.name());
    if is_custom && !(is_valid_name(name) && name.len() <= MAX_KEYSPACE_NAME_LENGTH) {
        return invalid(format!(
            "Column '{name}' is longer than the permissible name length of {MAX_KEYSPACE_NAME_LENGTH} characters or \
             contains non-alphanumeric-underscore characters"
        ));
    }
    if column_type.any(&|part| *part == CqlType::Duration) {
        let what = match column_type {
            CqlType::Tuple(_) => "tuples containing durations",
            CqlType::UserType { .. } => "UDTs containing durations",
            collection if collection.is_collection() => "collections containing durations",
            _ => "duration columns",
        };
        return invalid(format!("Secondary indexes are not supported on {what}"));
    }
    if table.compact.is_some() && column.is_primary_key() {
        return invalid(
            "Secondary indexes are not supported on PRIMARY KEY columns in COMPACT STORAGE tables",
        );
    }
    if table.is_dense() {
        return invalid(
            "Secondary indexes are not supported on compact value column of COMPACT STORAGE tables",
        );
    }
    if column.is_partition_key() && table.partition_key_count == 1 {
        return invalid(format!("Cannot create secondary index on the only partition key column {name}"));
    }
    let is_collection = column_type.is_collection();
    let is_frozen_collection = is_collection && !column_type.is_multi_cell();
    if is_frozen_collection && part != IndexedPart::Full {
        return invalid(format!(
            "Cannot create {part_name}() index on frozen column {name}. Frozen collections are immutable and must be \
             fully indexed by using the 'full({name})' modifier"
        ));
    }
    if !is_frozen_collection && part == IndexedPart::Full {
        return invalid("full() indexes can only be created on frozen collections");
    }
    if !is_collection && part != IndexedPart::Value {
        return invalid(format!(
            "Cannot create {part_name}() index on {name}. Non-collection columns only support simple indexes"
        ));
    }
    let is_map = matches!(column_type, CqlType::Map { .. });
    if !is_map && matches!(part, IndexedPart::Keys | IndexedPart::Entries) {
        return invalid(format!("Cannot create index on {part_name} of column {name} with non-map type"));
    }
    if column_type.is_user_type() && column_type.is_multi_cell() {
        return invalid(format!("Cannot create index on non-frozen UDT column {name}"));
    }
    let is_vector = |indexed: &&CqlType| matches!(indexed, CqlType::Vector { .. });
    if part != IndexedPart::Value && part.types(column_type).iter().any(is_vector) {
        return invalid("Indexes on vectors in collections are not supported by Helenus yet");
    }
    Ok(())
}

/// Tables and columns can have names that no index can have: what an index cannot have of them is left out.
fn default_name(keyspace: &Keyspace, table: &str, targets: &[Target<'_>]) -> String {
    let column = match targets {
        [target] => Some(target.column.name.as_str()),
        _ => None,
    };
    keyspace.available_index_name(&default_base_name(table, column))
}

/// The name of an index on one column, or on several, where no name is chosen and none is taken.
pub(super) fn default_base_name(table: &str, column: Option<&str>) -> String {
    let name = match column {
        Some(column) => format!("{table}_{column}_idx"),
        None => format!("{table}_idx"),
    };
    name.chars().filter(|character| character.is_ascii_alphanumeric() || *character == '_').collect()
}

/// The index that differs from the declared one in nothing but its name.
fn equal_index<'t>(
    table: &'t Table,
    targets: &[Target<'_>],
    options: &BTreeMap<String, String>,
) -> Option<&'t Arc<Index>> {
    let [target] = targets else { return None };
    table.indexes.iter().find(|index| {
        // Only a custom index has a class among its options.
        index.column_id == target.column.id && index.part == target.part && index.options == *options
    })
}

#[cfg(test)]
mod tests;
