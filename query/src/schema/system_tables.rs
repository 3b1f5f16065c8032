//! The system keyspaces of every node: their tables with Cassandra 5.0's columns, types and ids. The texts that create
//! them are in `system_tables/*.cql`.
//!
//! Invariants:
//! * A table's id is Cassandra's: the MD5 of the names of keyspace and table, as a UUID of version 3.
//! * Tables of `system_traces`, and those in which nodes keep how far views are ([`OF_VIEWS`]), are stored; all others are computed at each
//!   read (see `virtual_tables`): those of `system_auth` from the roles that all members agree on.

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_lite::syntax::{self, ast};
use imbl::OrdMap;
use md5::{Digest, Md5};
use uuid::Uuid;

use super::catalog::{Catalog, Keyspace, Replication, TableKind};
use super::ddl::define_table;
use super::system_keyspaces::{
    SYSTEM, SYSTEM_AUTH, SYSTEM_DISTRIBUTED, SYSTEM_SCHEMA, SYSTEM_TRACES, SYSTEM_VIEWS,
    SYSTEM_VIRTUAL_SCHEMA,
};
use super::user_functions::UserFunctions;

/// The tables of `system_distributed` in which nodes keep how far views are.
const OF_VIEWS: [&str; 3] = ["view_positions", "view_slices", "view_timers"];

/// The catalog of a node without keyspaces of users.
pub fn initial_catalog(version: Uuid) -> Catalog {
    Catalog { version, keyspaces: definitions() }
}

/// The system keyspaces by name.
pub fn definitions() -> BTreeMap<String, Arc<Keyspace>> {
    let simple = |replication_factor| Replication::Simple { replication_factor };
    let (local, stored, computed) = (Replication::Local, TableKind::Stored, TableKind::Virtual);
    let keyspaces = [
        keyspace(SYSTEM, local.clone(), computed, include_str!("system_tables/system.cql")),
        keyspace(SYSTEM_AUTH, simple(1), computed, include_str!("system_tables/system_auth.cql")),
        keyspace(
            SYSTEM_DISTRIBUTED,
            simple(3),
            computed,
            include_str!("system_tables/system_distributed.cql"),
        ),
        keyspace(SYSTEM_SCHEMA, local.clone(), computed, include_str!("system_tables/system_schema.cql")),
        keyspace(SYSTEM_TRACES, simple(2), stored, include_str!("system_tables/system_traces.cql")),
        keyspace(SYSTEM_VIEWS, local.clone(), computed, include_str!("system_tables/system_views.cql")),
        keyspace(
            SYSTEM_VIRTUAL_SCHEMA,
            local,
            computed,
            include_str!("system_tables/system_virtual_schema.cql"),
        ),
    ];
    keyspaces.into_iter().map(|keyspace| (keyspace.name.clone(), Arc::new(keyspace))).collect()
}

/// A keyspace with the tables that the text creates. Each statement ends with `;` at the end of a line.
fn keyspace(name: &str, replication: Replication, kind: TableKind, text: &str) -> Keyspace {
    let mut keyspace = Keyspace {
        name: name.to_owned(),
        replication,
        durable_writes: true,
        is_virtual: [SYSTEM_VIEWS, SYSTEM_VIRTUAL_SCHEMA].contains(&name),
        tables: OrdMap::new(),
        types: BTreeMap::new(),
        user_functions: UserFunctions::default(),
    };
    for statement in text.split_terminator(";\n") {
        let table = match syntax::parse(statement) {
            Ok(ast::Statement::CreateTable(create)) => {
                let id = table_id(name, create.table.name.as_str());
                let is_of_views =
                    name == SYSTEM_DISTRIBUTED && OF_VIEWS.contains(&create.table.name.as_str());
                let kind = if is_of_views { TableKind::Stored } else { kind };
                define_table(&create, &keyspace, kind, id)
            }
            other => unreachable!("{statement} of {name} is no CREATE TABLE: {other:?}"),
        };
        let table = table.unwrap_or_else(|error| unreachable!("{statement} of {name}: {error}"));
        keyspace.tables.insert(table.name.clone(), Arc::new(table));
    }
    keyspace
}

fn table_id(keyspace: &str, table: &str) -> Uuid {
    let mut digest = Md5::new();
    digest.update(keyspace.as_bytes());
    digest.update(table.as_bytes());
    uuid::Builder::from_md5_bytes(digest.finalize().into()).into_uuid()
}

#[cfg(test)]
mod tests;
