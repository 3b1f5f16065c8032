//! The user types of a keyspace in an order in which they can be created.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use cql_lite::types::{CqlType, UserType};

use super::catalog::{Keyspace, Table};

/// The types that the columns of a table use, also its dropped ones, each behind those that it is made of.
pub fn types_of_table<'a>(keyspace: &'a Keyspace, table: &Table) -> Vec<&'a UserType> {
    let mut used: BTreeSet<Arc<str>> = BTreeSet::new();
    let columns = table.columns.iter().map(|column| &column.column_type);
    for column_type in columns.chain(table.dropped_columns.iter().map(|column| &column.column_type)) {
        used.extend(types_in(column_type));
    }
    let mut types = types_in_order(keyspace);
    // A type stands behind the types that it contains, so one pass from the end finds all of them.
    for user_type in types.iter().rev() {
        if used.contains(&user_type.name) {
            used.extend(types_within(user_type));
        }
    }
    types.retain(|user_type| used.contains(&user_type.name));
    types
}

/// The types by name, except that each type follows the types that it contains.
pub fn types_in_order(keyspace: &Keyspace) -> Vec<&UserType> {
    let mut waiting: Vec<(&UserType, BTreeSet<Arc<str>>)> =
        keyspace.types.values().map(|user_type| (&**user_type, types_within(user_type))).collect();
    let mut ordered = Vec::with_capacity(waiting.len());
    let mut done: BTreeSet<Arc<str>> = BTreeSet::new();
    while !waiting.is_empty() {
        let ready = waiting.iter().position(|(_, within)| within.is_subset(&done));
        // Types cannot contain each other. If a damaged catalog has such types, they are listed by name.
        let (user_type, _) = waiting.remove(ready.unwrap_or(0));
        done.insert(user_type.name.clone());
        ordered.push(user_type);
    }
    ordered
}

/// The names of the user types within the fields of a type.
fn types_within(user_type: &UserType) -> BTreeSet<Arc<str>> {
    user_type.field_types.iter().flat_map(types_in).collect()
}

/// The names of the user types in a type: itself, or those that it is made of.
fn types_in(cql_type: &CqlType) -> BTreeSet<Arc<str>> {
    let within = RefCell::new(BTreeSet::new());
    cql_type.any(&|part| {
        if let CqlType::UserType { definition, .. } = part {
            within.borrow_mut().insert(definition.name.clone());
        }
        false
    });
    within.into_inner()
}
