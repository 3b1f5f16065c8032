//! `CREATE TABLE … LIKE …`, as in Cassandra 6: the columns and options of a table, and its indexes if they are asked for. Rows and dropped
//! columns are not copied.

use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::syntax::ast::CopyTable;
use cql_lite::types::{CqlType, UserType};

use super::cap::{check_cap, check_indexes};
use super::table::{check_table_name, refuse_time_to_live_of_counters};
use super::{Change, ChangeTarget, ChangeType, Ddl, TableAction, event, index, invalid};
use crate::error::{RequestError, Result};
use crate::schema::catalog::{Keyspace, Replication, Table, TableKind};
use crate::schema::index::{Index, IndexKind};
use crate::schema::options::Properties;
use crate::schema::type_order::types_of_table;

impl Ddl<'_> {
    pub(super) fn copy_table(&self, copy: &CopyTable) -> Result<Change> {
        let source_name = self.keyspace_name(copy.source.keyspace.as_ref())?;
        let target_name = self.user_keyspace_name(copy.table.keyspace.as_ref())?;
        // Only keyspaces that the cluster agrees on can be copied from.
        let source = self.catalog.keyspace(source_name);
        let source =
            source.filter(|keyspace| !keyspace.is_virtual && keyspace.replication != Replication::Local);
        let Some(source) = source else {
            return invalid(format!("Source Keyspace '{source_name}' doesn't exist"));
        };
        let Some(old) = source.tables.get(copy.source.name.as_str()) else {
            // The spelling is Cassandra's.
            return invalid(format!(
                "Souce Table '{source_name}.{}' doesn't exist",
                copy.source.name.as_str()
            ));
        };
        let Some(target) = self.catalog.keyspace(target_name) else {
            return invalid(format!("Target Keyspace '{target_name}' doesn't exist"));
        };
        let name = copy.table.name.as_str();
        if target.tables.contains_key(name) {
            return if copy.if_not_exists {
                Ok(self.unchanged())
            } else {
                Err(RequestError::AlreadyExists { keyspace: target_name.to_owned(), table: name.to_owned() })
            };
        }
        check_user_types(source, old, target)?;
        let mut table = copied(old, target)?;
        name.clone_into(&mut table.name);
        table.id = self.context.new_id;
        table.options = table.options.alter(&Properties::from_ast(&copy.properties)?)?;
        if let Some(cap) = &mut table.options.cap {
            // The new table has no rows that an earlier cap has evicted.
            cap.earlier.clear();
        }
        table.options.earlier_graces.clear();
        check_cap(&table)?;
        refuse_time_to_live_of_counters(&table)?;
        check_table_name(&table)?;
        let mut warnings = Vec::new();
        if copy.with_indexes {
            let others = copy_indexes(old, &mut table, target);
            if !others.is_empty() {
                warnings.push(format!(
                    "Source table {} to copy indexes from to {} has custom indexes. These indexes were not copied: [{}]",
                    old.full_name(),
                    table.full_name(),
                    others.join(", ")
                ));
            }
        }
        check_indexes(&table)?;
        let table = Arc::new(table);
        let mut keyspace = Keyspace::clone(target);
        keyspace.tables.insert(name.to_owned(), table.clone());
        Ok(Change {
            catalog: self.with_keyspace(keyspace),
            effect: Some(event(ChangeType::Created, ChangeTarget::Table, target_name, name)),
            warnings,
            table_actions: vec![TableAction::Create(table)],
        })
    }
}

/// Checks that another keyspace has the user types of a table.
fn check_user_types(source: &Keyspace, table: &Table, target: &Keyspace) -> Result<()> {
    if source.name == target.name {
        return Ok(());
    }
    let mut missing = BTreeSet::new();
    for user_type in types_of_table(source, &Table { dropped_columns: Vec::new(), ..table.clone() }) {
        match target.user_type(&user_type.name) {
            Some(other) if !is_same(user_type, other) => {
                return invalid(format!(
                    "Target keyspace '{}' has same UDT name '{}' as source keyspace '{}' but with different structure.",
                    target.name, user_type.name, source.name
                ));
            }
            Some(_) => {}
            None => {
                missing.insert(&*user_type.name);
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing: Vec<&str> = missing.into_iter().collect();
    invalid(format!("UDTs {} do not exist in target keyspace '{}'.", missing.join(", "), target.name))
}

/// Whether two types of different keyspaces have the same fields. The types within them are compared by their names.
fn is_same(one: &UserType, other: &UserType) -> bool {
    let texts = |user_type: &UserType| -> Vec<String> {
        user_type.field_types.iter().map(ToString::to_string).collect()
    };
    one.field_names == other.field_names && texts(one) == texts(other)
}

/// The table in the target keyspace, under its old name and id, without indexes and dropped columns. Columns keep their ids.
fn copied(old: &Table, target: &Keyspace) -> Result<Table> {
    let mut table = Table {
        keyspace: target.name.clone(),
        kind: TableKind::Stored,
        dropped_columns: Vec::new(),
        indexes: Vec::new(),
        ..old.clone()
    };
    // The copy of a log is an ordinary table.
    table.options.is_feed_log = false;
    table.options.feed_history = None;
    for column in &mut table.columns {
        let has_user_types = column.column_type.any(&|part| matches!(part, CqlType::UserType { .. }));
        if has_user_types && old.keyspace != target.name {
            let text = column.column_type.to_string();
            let parsed = CqlType::parse(&text, &|name| target.user_type(name).cloned());
            column.column_type = parsed.map_err(|error| RequestError::Invalid(error.to_string()))?;
        }
    }
    Ok(table)
}

/// Gives a table the indexes of the one that it is copied from. Returns the names of those that cannot be copied.
fn copy_indexes(old: &Table, table: &mut Table, target: &Keyspace) -> Vec<String> {
    let mut others = Vec::new();
    for index in &old.indexes {
        if index.kind == IndexKind::Sasi {
            others.push(index.name.clone());
            continue;
        }
        let column = &old.indexed_column(index).name;
        // A name that was not chosen follows the name of the table.
        let base = if index.name.starts_with(&format!("{}_{column}_idx", old.name)) {
            index::default_base_name(&table.name, Some(column))
        } else {
            index.name.clone()
        };
        let is_taken = |name: &str| target.index(name).is_some() || table.index(name).is_some();
        let mut names =
            std::iter::once(base.clone()).chain((1_u64..).map(|number| format!("{base}_{number}")));
        let name = names.find(|name| !is_taken(name));
        let name =
            name.unwrap_or_else(|| unreachable!("a keyspace has fewer indexes than there are numbers"));
        table.indexes.push(Arc::new(Index { name, ..Index::clone(index) }));
    }
    table.indexes.sort_by(|a, b| a.name.cmp(&b.name));
    others
}
