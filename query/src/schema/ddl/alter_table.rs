//! ALTER TABLE: columns are added, dropped and renamed; options change. Keys do not change.
//!
//! Invariant: a column that is added again after a drop keeps its id, so that its cells newer than the drop become
//! visible again. The drop stays on record and hides the older ones ([`Table::hidden_until`]).

use cql_lite::syntax::ast::{self, AlterTable, AlterTableOperation, ColumnDefinition, Identifier, Property};
use cql_lite::types::CqlType;

use super::cap::{change_cap, check_cap, check_drop};
use super::table::{STATIC_WITHOUT_CLUSTERING, declare_rules, new_column, refuse_time_to_live_of_counters};
use super::user_type::nested_multi_cell_field;
use super::{Change, Ddl, configuration, invalid, refuse_system_keyspace};
use crate::error::Result;
use crate::schema::catalog::{Column, DroppedColumn, Keyspace, Table};
use crate::schema::constraint::Constraints;
use crate::schema::mask::ColumnMask;
use crate::schema::options::Properties;

impl Ddl<'_> {
    pub(super) fn alter_table(&self, alter: &AlterTable) -> Result<Change> {
        let keyspace_name = self.keyspace_name(alter.table.keyspace.as_ref())?;
        refuse_system_keyspace(keyspace_name)?;
        let name = alter.table.name.as_str();
        let found = self
            .catalog
            .keyspace(keyspace_name)
            .and_then(|keyspace| Some((keyspace, keyspace.tables.get(name)?)));
        let Some((keyspace, table)) = found else {
            return if alter.if_exists {
                Ok(self.unchanged())
            } else {
                invalid(format!("Table '{keyspace_name}.{name}' doesn't exist"))
            };
        };
        let mut altered = Table::clone(table);
        let is_changed = match &alter.operation {
            AlterTableOperation::AddColumns { if_not_exists, columns } => {
                add_columns(&mut altered, keyspace, columns, *if_not_exists)?
            }
            AlterTableOperation::DropColumns { if_exists, columns, timestamp } => {
                check_drop(table)?;
                let dropped_at_micros = timestamp.unwrap_or(self.context.now_micros);
                drop_columns(&mut altered, columns, *if_exists, dropped_at_micros)?
            }
            AlterTableOperation::RenameColumns { if_exists, renames } => {
                rename_columns(&mut altered, renames, *if_exists)?
            }
            AlterTableOperation::AlterColumnType { .. } => {
                return invalid("Altering column types is no longer supported");
            }
            AlterTableOperation::AlterColumnMask { if_exists, column, mask } => {
                set_mask(&mut altered, column, mask.as_ref(), *if_exists)?
            }
            AlterTableOperation::AlterColumnConstraints { if_exists, column, constraints } => {
                set_constraints(&mut altered, column, constraints, *if_exists)?
            }
            AlterTableOperation::DropCompactStorage => {
                if !self.context.may_drop_compact_storage {
                    return invalid("DROP COMPACT STORAGE is disabled. Enable in cassandra.yaml to use.");
                }
                drop_compact_storage(&mut altered)?
            }
            AlterTableOperation::SetProperties(properties) => {
                set_properties(&mut altered, properties, self.context.now_micros)?
            }
        };
        if !is_changed {
            return Ok(self.unchanged());
        }
        altered.arrange_columns();
        Ok(self.table_changed(keyspace, altered))
    }
}

fn add_columns(
    table: &mut Table,
    keyspace: &Keyspace,
    definitions: &[ColumnDefinition],
    if_not_exists: bool,
) -> Result<bool> {
    let mut is_changed = false;
    for definition in definitions {
        let mut column = new_column(definition, keyspace)?;
        if table.column(&column.name).is_some() || is_hidden(table, &column.name) {
            if if_not_exists {
                continue;
            }
            return invalid(format!("Column with name '{}' already exists", column.name));
        }
        if table.compact.is_some() {
            return invalid("Cannot add new column to a COMPACT STORAGE table");
        }
        check_added(table, &column)?;
        if let Some(dropped) = table.latest_drop(&column.name) {
            column.id = dropped.id;
        } else {
            column.id = table.next_column_id;
            table.next_column_id += 1;
        }
        table.columns.push(column);
        declare_rules(table, definition)?;
        is_changed = true;
    }
    Ok(is_changed)
}

/// Whether a column that clients do not see has the name.
fn is_hidden(table: &Table, name: &str) -> bool {
    table.hidden_columns().iter().any(|column| column.name == name)
}

/// Makes an ordinary table of one WITH COMPACT STORAGE: what was hidden is shown. The stored rows stay as they are.
fn drop_compact_storage(table: &mut Table) -> Result<bool> {
    let Some(compact) = table.compact.take() else {
        return invalid("Cannot DROP COMPACT STORAGE on table without COMPACT STORAGE");
    };
    table.columns.extend(compact.hidden_columns);
    Ok(true)
}

fn check_added(table: &Table, column: &Column) -> Result<()> {
    let name = &column.name;
    let column_type = &column.column_type;
    if column.is_static() && table.clustering_key_count == 0 {
        return invalid(STATIC_WITHOUT_CLUSTERING);
    }
    if nested_multi_cell_field(column_type).is_some() {
        return invalid(format!(
            "Non-frozen UDTs with nested non-frozen collections are not supported for column {name}"
        ));
    }
    if let Some(dropped) = table.latest_drop(name) {
        check_added_again(table, column, dropped)?;
    }
    if table.is_counter && *column_type != CqlType::Counter {
        return configuration(format!(
            "{}: Cannot have a non counter column (\"{name}\") in a counter table",
            table.full_name()
        ));
    }
    if !table.is_counter && *column_type == CqlType::Counter {
        return configuration(format!(
            "{}: Cannot have a counter column (\"{name}\") in a non counter table",
            table.full_name()
        ));
    }
    Ok(())
}

fn check_added_again(table: &Table, column: &Column, dropped: &DroppedColumn) -> Result<()> {
    let name = &column.name;
    let (now, before) = (&column.column_type, &dropped.column_type);
    let without_user_types = without_user_types(now);
    let is_compatible = without_user_types.is_value_compatible_with(before)
        && (!now.is_multi_cell() || has_compatible_paths(&without_user_types, before));
    if now.is_multi_cell() != before.is_multi_cell() || !is_compatible {
        return invalid(format!(
            "Cannot re-add previously dropped column '{name}' of type {now}, incompatible with previous type {before}"
        ));
    }
    if column.is_static() != dropped.is_static {
        let kind = |is_static: bool| if is_static { "STATIC" } else { "REGULAR" };
        return invalid(format!(
            "Cannot re-add previously dropped column '{name}' of kind {}, incompatible with previous kind {}",
            kind(column.is_static()),
            kind(dropped.is_static)
        ));
    }
    if table.is_counter {
        return invalid(format!("Cannot re-add previously dropped counter column {name}"));
    }
    Ok(())
}

/// Whether the paths of cells that were written as elements of one collection are valid for the other.
fn has_compatible_paths(now: &CqlType, before: &CqlType) -> bool {
    match (now, before) {
        (CqlType::Set { element: now, .. }, CqlType::Set { element: before, .. })
        | (CqlType::Map { key: now, .. }, CqlType::Map { key: before, .. }) => {
            now == before
                || matches!(
                    (now.as_ref(), before.as_ref()),
                    (CqlType::Text, CqlType::Ascii) | (CqlType::Blob, CqlType::Ascii | CqlType::Text)
                )
        }
        _ => true,
    }
}

fn drop_columns(
    table: &mut Table,
    names: &[Identifier],
    if_exists: bool,
    dropped_at_micros: i64,
) -> Result<bool> {
    let mut is_changed = false;
    for name in names {
        let name = name.as_str();
        let Some(position) = table.column_index(name) else {
            if if_exists {
                continue;
            }
            return invalid(format!("Column {name} was not found in table '{}'", table.full_name()));
        };
        let column = &table.columns[position];
        if column.is_primary_key() {
            return invalid(format!("Cannot drop PRIMARY KEY column {name}"));
        }
        if column.column_type.is_user_type() && column.column_type.is_multi_cell() {
            return invalid(format!(
                "Cannot drop non-frozen column {name} of user type {}",
                column.column_type
            ));
        }
        if table.is_dense() {
            return invalid(format!("Cannot drop the value {name} of a COMPACT STORAGE table"));
        }
        refuse_indexed(table, column.id, name, "drop")?;
        let column = table.columns.remove(position);
        table.constraints.remove(&column.id);
        table.masks.remove(&column.id);
        let is_static = column.is_static();
        table.dropped_columns.retain(|dropped| dropped.id != column.id);
        table.dropped_columns.push(DroppedColumn {
            id: column.id,
            name: column.name,
            column_type: without_user_types(&column.column_type),
            is_static,
            dropped_at_micros,
        });
        is_changed = true;
    }
    Ok(is_changed)
}

/// Refuses to change a column that has indexes.
fn refuse_indexed(table: &Table, column_id: u32, name: &str, change: &str) -> Result<()> {
    let indexes = table.indexes.iter().filter(|index| index.column_id == column_id);
    let indexes: Vec<&str> = indexes.map(|index| index.name.as_str()).collect();
    if indexes.is_empty() {
        return Ok(());
    }
    invalid(format!(
        "Cannot {change} column {name} because it has dependent secondary indexes ({})",
        indexes.join(", ")
    ))
}

/// The type with user types replaced by tuples: a dropped column does not prevent a user type from being dropped.
pub fn without_user_types(column_type: &CqlType) -> CqlType {
    match column_type {
        CqlType::UserType { definition, .. } => {
            CqlType::tuple(definition.field_types.iter().map(without_user_types))
        }
        CqlType::Tuple(fields) => CqlType::tuple(fields.iter().map(without_user_types)),
        CqlType::List { element, frozen } => CqlType::list(without_user_types(element), *frozen),
        CqlType::Set { element, frozen } => CqlType::set(without_user_types(element), *frozen),
        CqlType::Map { key, value, frozen } => {
            CqlType::map(without_user_types(key), without_user_types(value), *frozen)
        }
        CqlType::Vector { element, dimension } => CqlType::vector(without_user_types(element), *dimension),
        native => native.clone(),
    }
}

fn rename_columns(table: &mut Table, renames: &[(Identifier, Identifier)], if_exists: bool) -> Result<bool> {
    let mut is_changed = false;
    // All names are those from before the statement.
    let before = table.clone();
    for (old, new) in renames {
        let (old, new) = (old.as_str(), new.as_str());
        let Some(position) = before.column_index(old) else {
            if if_exists {
                continue;
            }
            return invalid(format!("Undefined column name {old} in table {}", table.full_name()));
        };
        if !table.columns[position].is_primary_key() {
            return invalid(format!("Cannot rename non PRIMARY KEY column {old}"));
        }
        if before.column(new).is_some() || table.column(new).is_some() || is_hidden(table, new) {
            return invalid(format!(
                "Cannot rename column {old} to {new} in table '{}'; another column with that name already exists",
                table.full_name()
            ));
        }
        refuse_indexed(table, table.columns[position].id, old, "rename")?;
        new.clone_into(&mut table.columns[position].name);
        is_changed = true;
    }
    Ok(is_changed)
}

fn set_mask(
    table: &mut Table,
    name: &Identifier,
    mask: Option<&ast::ColumnMask>,
    if_exists: bool,
) -> Result<bool> {
    let Some(column) = table.column(name.as_str()) else {
        if if_exists {
            return Ok(false);
        }
        return invalid(format!("Column with name '{}' doesn't exist", name.as_str()));
    };
    let id = column.id;
    let mask = mask.map(|mask| ColumnMask::declare(&column.name, &column.column_type, mask)).transpose()?;
    let is_changed = table.masks.get(&id) != mask.as_ref();
    match mask {
        Some(mask) => table.masks.insert(id, mask),
        None => table.masks.remove(&id),
    };
    Ok(is_changed)
}

fn set_constraints(
    table: &mut Table,
    name: &Identifier,
    declared: &[ast::ColumnConstraint],
    if_exists: bool,
) -> Result<bool> {
    let Some(column) = table.column(name.as_str()) else {
        if if_exists {
            return Ok(false);
        }
        return invalid(format!("Column '{}' doesn't exist", name.as_str()));
    };
    let id = column.id;
    if declared.is_empty() {
        return Ok(table.constraints.remove(&id).is_some());
    }
    let constraints = Constraints::declare(&table.full_name(), column.constraint_target(), declared)?;
    let is_changed = table.constraints.get(&id) != Some(&constraints);
    table.constraints.insert(id, constraints);
    Ok(is_changed)
}

fn set_properties(table: &mut Table, properties: &[Property], now_micros: i64) -> Result<bool> {
    let mut options = table.options.alter(&Properties::from_ast(properties)?)?;
    change_cap(&table.options, &mut options, now_micros)?;
    options.keep_graces(&table.options, now_micros);
    let is_changed = options != table.options;
    table.options = options;
    check_cap(table)?;
    refuse_time_to_live_of_counters(table)?;
    Ok(is_changed)
}
