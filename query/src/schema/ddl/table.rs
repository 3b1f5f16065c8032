//! CREATE TABLE and DROP TABLE, and the rules for all tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::syntax::ast::{
    ColumnConstraint, ColumnDefinition, CreateTable, Direction, DropTable, Identifier, PrimaryKey,
};
use cql_lite::types::CqlType;

use super::cap::check_cap;
use super::compact_table::{check_compact_columns, make_compact};
use super::type_name::resolve;
use super::user_type::nested_multi_cell_field;
use super::{
    Change, ChangeTarget, ChangeType, Ddl, DdlContext, MAX_TABLE_NAME_LENGTH, TableAction, configuration,
    event, invalid, is_valid_name, refuse_system_keyspace,
};
use uuid::Uuid;

use crate::error::{RequestError, Result};
use crate::schema::catalog::{Catalog, Column, ColumnKind, Keyspace, Table, TableKind};
use crate::schema::constraint::Constraints;
use crate::schema::mask::ColumnMask;
use crate::schema::options::{Properties, TableOptions};

/// What the ids of the tables begin with in which nodes keep rows of their own. No catalog has them.
const OWN_TABLES: &[u8] = b"helenus-";

impl Ddl<'_> {
    pub(super) fn create_table(&self, create: &CreateTable) -> Result<Change> {
        let keyspace_name = self.keyspace_name(create.table.keyspace.as_ref())?;
        refuse_system_keyspace(keyspace_name)?;
        let name = create.table.name.as_str();
        the_primary_key(create)?;
        check_names(create)?;
        let keyspace = self.modifiable_keyspace(keyspace_name)?;
        if keyspace.tables.contains_key(name) {
            return if create.if_not_exists {
                Ok(self.unchanged())
            } else {
                Err(RequestError::AlreadyExists {
                    keyspace: keyspace_name.to_owned(),
                    table: name.to_owned(),
                })
            };
        }
        let chosen_id = TableOptions::create(&Properties::from_ast(&create.options.properties)?)?.1;
        let id = id_of_new(self.catalog, chosen_id, self.context)?;
        let table = define_table(create, keyspace, TableKind::Stored, id)?;
        check_table_name(&table)?;
        let table = Arc::new(table);
        let mut keyspace = Keyspace::clone(keyspace);
        keyspace.tables.insert(name.to_owned(), table.clone());
        Ok(Change {
            catalog: self.with_keyspace(keyspace),
            effect: Some(event(ChangeType::Created, ChangeTarget::Table, keyspace_name, name)),
            warnings: Vec::new(),
            table_actions: vec![TableAction::Create(table)],
        })
    }

    pub(super) fn drop_table(&self, drop: &DropTable) -> Result<Change> {
        let keyspace_name = self.keyspace_name(drop.table.keyspace.as_ref())?;
        refuse_system_keyspace(keyspace_name)?;
        let name = drop.table.name.as_str();
        let found = self
            .catalog
            .keyspace(keyspace_name)
            .and_then(|keyspace| Some((keyspace, keyspace.tables.get(name)?)));
        let Some((keyspace, table)) = found else {
            return if drop.if_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Table '{keyspace_name}.{name}' doesn't exist"))
            };
        };
        let action = TableAction::Drop(table.id);
        let mut keyspace = Keyspace::clone(keyspace);
        keyspace.tables.remove(name);
        Ok(Change {
            catalog: self.with_keyspace(keyspace),
            effect: Some(event(ChangeType::Dropped, ChangeTarget::Table, keyspace_name, name)),
            warnings: Vec::new(),
            table_actions: vec![action],
        })
    }
}

/// The id of a new table: the chosen one, if it is free, or else a random one.
pub fn id_of_new(catalog: &Catalog, chosen: Option<Uuid>, context: &DdlContext) -> Result<Uuid> {
    let id = chosen.unwrap_or(context.new_id);
    let mut all_tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    // A random id needs no look at 10,000 tables.
    let taken = chosen.and_then(|id| all_tables.find(|table| table.id == id));
    if id.as_bytes().starts_with(OWN_TABLES) {
        return configuration(format!("The table id {id} is kept for tables of the nodes themselves"));
    }
    if let Some(other) = taken {
        return configuration(format!("The table id {id} belongs to the table {}", other.full_name()));
    }
    Ok(id)
}

/// The rules for the name of a new table.
pub fn check_table_name(table: &Table) -> Result<()> {
    let name = &table.name;
    if name.len() > MAX_TABLE_NAME_LENGTH {
        return configuration(format!(
            "{}: Table name must not be more than {MAX_TABLE_NAME_LENGTH} characters long (got {} characters for \
             \"{name}\")",
            table.full_name(),
            name.len()
        ));
    }
    if !is_valid_name(name) {
        return configuration(format!(
            "{}: Table name must not be empty or not contain non-alphanumeric-underscore characters (got \"{name}\")",
            table.full_name()
        ));
    }
    Ok(())
}

/// The table that a CREATE TABLE defines in a keyspace.
pub fn define_table(create: &CreateTable, keyspace: &Keyspace, kind: TableKind, id: Uuid) -> Result<Table> {
    let primary_key = the_primary_key(create)?;
    let (options, _) = TableOptions::create(&Properties::from_ast(&create.options.properties)?)?;
    let columns = columns(create, primary_key, keyspace)?;
    if create.options.compact_storage {
        check_compact_columns(&columns)?;
    } else if primary_key.clustering.is_empty() && columns.iter().any(Column::is_static) {
        return invalid(STATIC_WITHOUT_CLUSTERING);
    }
    let name = create.table.name.as_str().to_owned();
    let mut table = Table { kind, columns, ..Table::without_columns(&keyspace.name, name, id, options) };
    table.arrange_columns();
    for (id, column) in (0_u32..).zip(&mut table.columns) {
        column.id = id;
    }
    table.next_column_id = table.columns.len() as u32;
    for definition in &create.columns {
        declare_rules(&mut table, definition)?;
    }
    let is_counter = |column: &Column| column.column_type == CqlType::Counter;
    table.is_counter = table.value_columns().iter().any(is_counter);
    if table.is_counter {
        if !table.value_columns().iter().all(is_counter) {
            return invalid("Cannot mix counter and non counter columns in the same table");
        }
        refuse_time_to_live_of_counters(&table)?;
    }
    if create.options.compact_storage {
        make_compact(&mut table);
    }
    check_cap(&table)?;
    Ok(table)
}

fn the_primary_key(create: &CreateTable) -> Result<&PrimaryKey> {
    let name = create.table.name.as_str();
    match create.primary_keys.as_slice() {
        [primary_key] => Ok(primary_key),
        [] => invalid(format!("No PRIMARY KEY specified for table '{name}' (exactly one required)")),
        _ => invalid(format!("Multiple PRIMARY KEY specified for table '{name}' (exactly one required)")),
    }
}

fn check_names(create: &CreateTable) -> Result<()> {
    let table = create.table.name.as_str();
    let mut names = BTreeSet::new();
    for column in &create.columns {
        let name = column.name.as_str();
        if !names.insert(name) {
            return invalid(format!("Duplicate column '{name}' declaration for table '{table}'"));
        }
    }
    let mut names = BTreeSet::new();
    for (column, _) in &create.options.clustering_order {
        let name = column.as_str();
        if !names.insert(name) {
            return invalid(format!(
                "Duplicate column '{name}' in CLUSTERING ORDER BY clause for table '{table}'"
            ));
        }
    }
    Ok(())
}

/// The columns with their kinds, not yet sorted, all with the id 0.
fn columns(create: &CreateTable, primary_key: &PrimaryKey, keyspace: &Keyspace) -> Result<Vec<Column>> {
    let table = create.table.name.as_str();
    let mut columns = Vec::with_capacity(create.columns.len());
    for definition in &create.columns {
        let column = new_column(definition, keyspace)?;
        if nested_multi_cell_field(&column.column_type).is_some() {
            return invalid("Non-frozen UDTs with nested non-frozen collections are not supported");
        }
        columns.push(column);
    }

    let descending = clustering_order(create, primary_key)?;
    let partition = primary_key.partition.iter().enumerate();
    let partition = partition.map(|(position, name)| (name, ColumnKind::PartitionKey { position }));
    let clustering = primary_key.clustering.iter().zip(descending).enumerate();
    let clustering = clustering
        .map(|(position, (name, descending))| (name, ColumnKind::Clustering { position, descending }));
    for (name, kind) in partition.chain(clustering) {
        let name = name.as_str();
        let Some(column) = columns.iter_mut().find(|column| column.name == name) else {
            return invalid(format!("Unknown column '{name}' referenced in PRIMARY KEY for table '{table}'"));
        };
        if column.is_primary_key() {
            return invalid(format!("Duplicate column '{name}' in PRIMARY KEY clause for table '{table}'"));
        }
        check_key_column(column)?;
        column.kind = kind;
    }
    Ok(columns)
}

pub(super) const STATIC_WITHOUT_CLUSTERING: &str =
    "Static columns are only useful (and thus allowed) if the table has at least one clustering column";

/// A static or regular column defined by CREATE TABLE or ALTER TABLE ADD. Its id is assigned later.
pub(super) fn new_column(definition: &ColumnDefinition, keyspace: &Keyspace) -> Result<Column> {
    Ok(Column {
        id: 0,
        name: definition.name.as_str().to_owned(),
        column_type: resolve(&definition.type_name, keyspace)?,
        kind: if definition.is_static { ColumnKind::Static } else { ColumnKind::Regular },
    })
}

/// Gives a column of the table the mask and the constraints of its definition.
pub(super) fn declare_rules(table: &mut Table, definition: &ColumnDefinition) -> Result<()> {
    let Some(column) = table.column(definition.name.as_str()).cloned() else { return Ok(()) };
    if let Some(mask) = &definition.mask {
        table.masks.insert(column.id, ColumnMask::declare(&column.name, &column.column_type, mask)?);
    }
    let mut declared = definition.constraints.clone();
    if definition.is_not_null {
        if declared.contains(&ColumnConstraint::NotNull) {
            return invalid("Duplicate definition of NOT NULL constraint");
        }
        declared.insert(0, ColumnConstraint::NotNull);
    }
    if !declared.is_empty() {
        let constraints = Constraints::declare(&table.full_name(), column.constraint_target(), &declared)?;
        table.constraints.insert(column.id, constraints);
    }
    Ok(())
}

/// Refuses a column that cannot be in a primary key.
pub fn check_key_column(column: &Column) -> Result<()> {
    let name = &column.name;
    let column_type = &column.column_type;
    if column_type.is_multi_cell() {
        let what = if column_type.is_collection() { "collection" } else { "user-defined" };
        return invalid(format!(
            "Invalid non-frozen {what} type {column_type} for PRIMARY KEY column '{name}'"
        ));
    }
    if *column_type == CqlType::Counter {
        return invalid(format!("counter type is not supported for PRIMARY KEY column '{name}'"));
    }
    if column_type.any(&|inner| *inner == CqlType::Duration) {
        return invalid(format!("duration type is not supported for PRIMARY KEY column '{name}'"));
    }
    if column.is_static() {
        return invalid(format!("Static column '{name}' cannot be part of the PRIMARY KEY"));
    }
    Ok(())
}

/// Whether each clustering column is descending, in the order of the key.
fn clustering_order(create: &CreateTable, primary_key: &PrimaryKey) -> Result<Vec<bool>> {
    let order = &create.options.clustering_order;
    let others: Vec<&str> = order
        .iter()
        .map(|(column, _)| column)
        .filter(|column| !primary_key.clustering.contains(column))
        .map(Identifier::as_str)
        .collect();
    if !others.is_empty() {
        return invalid(format!(
            "Only clustering key columns can be defined in CLUSTERING ORDER directive: [{}] are not clustering columns",
            others.join(", ")
        ));
    }
    for ((written, _), expected) in order.iter().zip(&primary_key.clustering) {
        if written == expected {
            continue;
        }
        let (written, expected_name) = (written.as_str(), expected.as_str());
        return if order.iter().any(|(column, _)| column == expected) {
            invalid(format!(
                "The order of columns in the CLUSTERING ORDER directive must match that of the clustering columns \
                 ({expected_name} must appear before {written})"
            ))
        } else {
            invalid(format!("Missing CLUSTERING ORDER for column {expected_name}"))
        };
    }
    let is_descending = |column: &Identifier| {
        order.iter().any(|(ordered, direction)| ordered == column && *direction == Direction::Descending)
    };
    Ok(primary_key.clustering.iter().map(is_descending).collect())
}

pub(super) fn refuse_time_to_live_of_counters(table: &Table) -> Result<()> {
    if table.is_counter && table.options.default_time_to_live > 0 {
        return invalid("Cannot set default_time_to_live on a table with counters");
    }
    Ok(())
}
