//! Bounds of a schema. Without them a statement could make a schema that no layer can work with: user types that double with each
//! step, more columns than a plan can number, names longer than a string of the protocol.
//!
//! DIFFERS: Cassandra has no such bounds. Each is far above what Cassandra can handle. A stored schema that exceeds them is still
//! read, and the parts that a statement does not change are not checked.

use std::sync::Arc;

use cql_lite::syntax::ast::{AlterTable, AlterTableOperation, AlterTypeOperation, Statement};
use cql_lite::types::{CqlType, UserType};

use crate::error::{RequestError, Result};
use crate::functions::user::{UserAggregate, UserFunction};
use crate::schema::catalog::{Catalog, Column, Keyspace, Table};
use crate::schema::constraint::{Constraints, declared_patterns};

/// Most columns of a table, fields of a user type, or elements of a list in a statement that changes the schema.
pub const COLUMNS_MAX: usize = 16_384;
/// Most columns that a table can have had, with those that were dropped.
pub const COLUMN_IDS_MAX: u32 = 65_535;
/// The longest name of a column, user type, field or index, in bytes.
pub const NAME_BYTES_MAX: usize = 1_024;
/// Most parts of a type: itself, its elements and fields, and theirs.
pub const TYPE_PARTS_MAX: usize = 16_384;
/// Most parts of the types of all columns of a table, or of a statement's markers or results.
pub const ALL_PARTS_MAX: usize = 1 << 18;
/// How deep parts of a type may lie in others.
pub const TYPE_DEPTH_MAX: usize = 64;
/// The longest comment of a table, in bytes.
pub const COMMENT_BYTES_MAX: usize = 65_535;

/// Most bytes of the extensions of a table, names and values together.
pub const EXTENSIONS_BYTES_MAX: usize = 1 << 20;
/// Most patterns (`REGEXP`) in the constraints of a table.
pub const PATTERNS_MAX: usize = 64;

/// The longest body of a function, in bytes.
pub const FUNCTION_BODY_BYTES_MAX: usize = 64 << 10;

/// Refuses lists that take too long to search, before the statement is carried out.
pub(super) fn check_statement(statement: &Statement) -> Result<()> {
    let (count, what) = match statement {
        Statement::CreateTable(create) => {
            let keys = create.primary_keys.iter().map(|key| key.partition.len() + key.clustering.len());
            let largest = keys.max().unwrap_or(0).max(create.options.clustering_order.len());
            (create.columns.len().max(largest), "columns")
        }
        Statement::AlterTable(alter) => match &alter.operation {
            AlterTableOperation::AddColumns { columns, .. } => (columns.len(), "columns"),
            AlterTableOperation::DropColumns { columns, .. } => (columns.len(), "columns"),
            AlterTableOperation::RenameColumns { renames, .. } => (renames.len(), "columns"),
            _ => return Ok(()),
        },
        Statement::CreateIndex(create) => (create.targets.len(), "columns"),
        Statement::CreateType(create) => (create.fields.len(), "fields"),
        Statement::AlterType(alter) => match &alter.operation {
            AlterTypeOperation::RenameFields { renames, .. } => (renames.len(), "fields"),
            _ => return Ok(()),
        },
        Statement::CreateFunction(create) => (create.arguments.len(), "arguments"),
        Statement::CreateAggregate(create) => (create.argument_types.len(), "arguments"),
        _ => return Ok(()),
    };
    if count > COLUMNS_MAX {
        return refuse(format!("The statement names {count} {what}; at most {COLUMNS_MAX} are possible"));
    }
    let columns = match statement {
        Statement::CreateTable(create) => &create.columns[..],
        Statement::AlterTable(AlterTable {
            operation: AlterTableOperation::AddColumns { columns, .. },
            ..
        }) => columns,
        _ => return Ok(()),
    };
    let patterns = columns.iter().map(|column| declared_patterns(&column.constraints)).sum();
    check_patterns("The statement", patterns)
}

fn check_patterns(what: &str, patterns: usize) -> Result<()> {
    if patterns > PATTERNS_MAX {
        return refuse(format!(
            "{what} has {patterns} constraints with regular expressions; at most {PATTERNS_MAX} are possible"
        ));
    }
    Ok(())
}

/// Checks all that is in one catalog and not in the one before.
pub fn check_change(before: &Catalog, after: &Catalog) -> Result<()> {
    for (name, keyspace) in &after.keyspaces {
        let before = before.keyspaces.get(name);
        if before.is_some_and(|before| Arc::ptr_eq(before, keyspace)) {
            continue;
        }
        for (name, definition) in &keyspace.types {
            let before = before.and_then(|before| before.types.get(name));
            if !before.is_some_and(|before| Arc::ptr_eq(before, definition)) {
                check_user_type(definition)?;
            }
        }
        for (before, table) in Keyspace::table_differences(before.map(AsRef::as_ref), Some(keyspace)) {
            if let Some(table) = table {
                check_table(before.map(AsRef::as_ref), table)?;
            }
        }
    }
    Ok(())
}

fn check_user_type(definition: &Arc<UserType>) -> Result<()> {
    let name = &definition.name;
    check_name("type", name)?;
    definition.field_names.iter().try_for_each(|field| check_name("field", field))?;
    let fields = definition.field_names.len();
    if fields > COLUMNS_MAX {
        return refuse(format!("User type {name} has {fields} fields; at most {COLUMNS_MAX} are possible"));
    }
    check_type(
        &format!("User type {name}"),
        &CqlType::UserType { definition: definition.clone(), frozen: true },
    )
}

fn check_table(before: Option<&Table>, table: &Table) -> Result<()> {
    let name = &table.name;
    let columns_before = before.map_or(&[][..], |before| &before.columns);
    let (count, count_before) = (table.columns.len(), columns_before.len());
    if count > COLUMNS_MAX && count > count_before {
        return refuse(format!("Table {name} has {count} columns; at most {COLUMNS_MAX} are possible"));
    }
    let ids_before = before.map_or(0, |before| before.next_column_id);
    if table.next_column_id > COLUMN_IDS_MAX && table.next_column_id > ids_before {
        return refuse(format!(
            "Table {name} has had {} columns, with those that were dropped; at most {COLUMN_IDS_MAX} are possible",
            table.next_column_id
        ));
    }
    let comment = &table.options.comment;
    if comment.len() > COMMENT_BYTES_MAX && before.is_none_or(|before| before.options.comment != *comment) {
        return refuse(format!(
            "The comment of table {name} has {} bytes; at most {COMMENT_BYTES_MAX} are possible",
            comment.len()
        ));
    }
    let extensions = &table.options.extensions;
    let extensions_bytes: usize = extensions.iter().map(|(name, value)| name.len() + value.len()).sum();
    if extensions_bytes > EXTENSIONS_BYTES_MAX
        && before.is_none_or(|before| before.options.extensions != *extensions)
    {
        return refuse(format!(
            "The extensions of table {name} have {extensions_bytes} bytes; at most {EXTENSIONS_BYTES_MAX} are possible"
        ));
    }
    let patterns = |table: &Table| table.constraints.values().map(Constraints::patterns).sum::<usize>();
    if before.is_none_or(|before| patterns(before) < patterns(table)) {
        check_patterns(&format!("Table {name}"), patterns(table))?;
    }
    let is_new = |column: &&Column| !columns_before.contains(*column);
    let mut has_new = false;
    for column in table.columns.iter().filter(is_new) {
        check_name("column", &column.name)?;
        check_type(&format!("Column {}", column.name), &column.column_type)?;
        has_new = true;
    }
    let indexes_before = before.map_or(&[][..], |before| &before.indexes);
    for index in table.indexes.iter().filter(|index| !indexes_before.contains(index)) {
        check_name("index", &index.name)?;
    }
    if has_new && !are_within(table.columns.iter().map(|column| &column.column_type), ALL_PARTS_MAX) {
        return refuse(format!(
            "Table {name}: the types of its columns have more than {ALL_PARTS_MAX} parts"
        ));
    }
    Ok(())
}

pub(super) fn check_function(function: &UserFunction) -> Result<()> {
    let name = &function.name;
    check_name("function", name)?;
    function.argument_names.iter().try_for_each(|argument| check_name("argument", argument))?;
    if function.body.len() > FUNCTION_BODY_BYTES_MAX {
        return refuse(format!(
            "The body of function {name} has {} bytes; at most {FUNCTION_BODY_BYTES_MAX} are possible",
            function.body.len()
        ));
    }
    let mut types = function.argument_types.iter().chain([&function.return_type]);
    types.try_for_each(|part| check_type(&format!("Function {name}"), part))
}

pub(super) fn check_aggregate(aggregate: &UserAggregate) -> Result<()> {
    let name = &aggregate.name;
    check_name("aggregate", name)?;
    aggregate.argument_types.iter().try_for_each(|part| check_type(&format!("Aggregate {name}"), part))
}

/// Whether `types` have at most `parts` parts in total.
pub fn are_within<'t>(types: impl IntoIterator<Item = &'t CqlType>, parts: usize) -> bool {
    let mut left = parts;
    types.into_iter().all(|of| count_down(of, usize::MAX, &mut left).is_ok())
}

fn check_name(what: &str, name: &str) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        let (bytes, start) = (name.len(), name.chars().take(32).collect::<String>());
        return refuse(format!(
            "The name of {what} {start}... has {bytes} bytes; at most {NAME_BYTES_MAX} are possible"
        ));
    }
    Ok(())
}

fn check_type(what: &str, of: &CqlType) -> Result<()> {
    let mut left = TYPE_PARTS_MAX;
    match count_down(of, TYPE_DEPTH_MAX, &mut left) {
        Ok(()) => Ok(()),
        Err(Excess::Parts) => refuse(format!("{what}: its type has more than {TYPE_PARTS_MAX} parts")),
        Err(Excess::Depth) => {
            refuse(format!("{what}: its type is nested deeper than {TYPE_DEPTH_MAX} times"))
        }
    }
}

enum Excess {
    Parts,
    Depth,
}

/// Counts the parts of a type down. Ends as soon as there are too many, for types that double with each step.
fn count_down(of: &CqlType, depth: usize, left: &mut usize) -> std::result::Result<(), Excess> {
    *left = left.checked_sub(1).ok_or(Excess::Parts)?;
    let depth = depth.checked_sub(1).ok_or(Excess::Depth)?;
    of.components().iter().try_for_each(|part| count_down(part, depth, left))
}

fn refuse<T>(message: String) -> Result<T> {
    Err(RequestError::Invalid(message))
}
