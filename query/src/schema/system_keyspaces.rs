//! The system keyspaces of every node: their tables with Cassandra 5.0's columns, types and ids.
//!
//! Invariants:
//! * A table's id is Cassandra's: the MD5 of the names of keyspace and table, as a UUID of version 3.
//! * Tables of `system_traces` and `system_auth` are stored; all others are computed at each read
//!   (see `virtual_tables`).

use std::collections::BTreeMap;
use std::sync::Arc;

use cql_lite::types::CqlType;
use md5::{Digest, Md5};
use uuid::Uuid;

use super::catalog::{Catalog, Column, ColumnKind, Keyspace, Replication, Table, TableKind};
use super::options::TableOptions;

pub const SYSTEM: &str = "system";
pub const SYSTEM_AUTH: &str = "system_auth";
pub const SYSTEM_DISTRIBUTED: &str = "system_distributed";
pub const SYSTEM_SCHEMA: &str = "system_schema";
pub const SYSTEM_TRACES: &str = "system_traces";
pub const SYSTEM_VIEWS: &str = "system_views";
pub const SYSTEM_VIRTUAL_SCHEMA: &str = "system_virtual_schema";

/// Whether the keyspace is a system keyspace: clients may not change its tables and types.
pub fn is_system(keyspace: &str) -> bool {
    [SYSTEM, SYSTEM_SCHEMA, SYSTEM_VIEWS, SYSTEM_VIRTUAL_SCHEMA].contains(&keyspace)
        || is_replicated(keyspace)
}

/// Whether the keyspace is replicated in the cluster: its replication may be altered.
pub fn is_replicated(keyspace: &str) -> bool {
    [SYSTEM_AUTH, SYSTEM_DISTRIBUTED, SYSTEM_TRACES].contains(&keyspace)
}

/// The catalog of a node without keyspaces of users.
pub fn initial_catalog(version: Uuid) -> Catalog {
    Catalog { version, keyspaces: definitions() }
}

/// The system keyspaces by name.
pub fn definitions() -> BTreeMap<String, Arc<Keyspace>> {
    let simple = |replication_factor| Replication::Simple { replication_factor };
    let keyspaces = [
        keyspace(SYSTEM, Replication::Local, TableKind::Virtual, system()),
        keyspace(SYSTEM_AUTH, simple(1), TableKind::Stored, system_auth()),
        keyspace(SYSTEM_DISTRIBUTED, simple(3), TableKind::Virtual, system_distributed()),
        keyspace(SYSTEM_SCHEMA, Replication::Local, TableKind::Virtual, system_schema()),
        keyspace(SYSTEM_TRACES, simple(2), TableKind::Stored, system_traces()),
        keyspace(SYSTEM_VIEWS, Replication::Local, TableKind::Virtual, system_views()),
        keyspace(SYSTEM_VIRTUAL_SCHEMA, Replication::Local, TableKind::Virtual, system_virtual_schema()),
    ];
    keyspaces.into_iter().map(|keyspace| (keyspace.name.clone(), Arc::new(keyspace))).collect()
}

/// A table as defined below.
struct Definition {
    name: &'static str,
    comment: &'static str,
    partition_key: Vec<(&'static str, CqlType)>,
    clustering_key: Vec<(&'static str, CqlType)>,
    columns: Vec<(&'static str, CqlType)>,
}

fn keyspace(name: &str, replication: Replication, kind: TableKind, definitions: Vec<Definition>) -> Keyspace {
    let tables = definitions.into_iter().map(|definition| {
        let table = table(name, kind, definition);
        (table.name.clone(), Arc::new(table))
    });
    Keyspace {
        name: name.to_owned(),
        replication,
        durable_writes: true,
        is_virtual: [SYSTEM_VIEWS, SYSTEM_VIRTUAL_SCHEMA].contains(&name),
        tables: tables.collect(),
        types: BTreeMap::new(),
    }
}

fn table(keyspace: &str, kind: TableKind, definition: Definition) -> Table {
    let column = |name: &str, column_type, kind| Column { id: 0, name: name.to_owned(), column_type, kind };
    let partition_key = definition.partition_key.into_iter().enumerate();
    let partition_key = partition_key.map(|(position, (name, column_type))| {
        column(name, column_type, ColumnKind::PartitionKey { position })
    });
    let clustering_key = definition.clustering_key.into_iter().enumerate();
    let clustering_key = clustering_key.map(|(position, (name, column_type))| {
        column(name, column_type, ColumnKind::Clustering { position, descending: false })
    });
    let regular = definition.columns.into_iter();
    let regular = regular.map(|(name, column_type)| column(name, column_type, ColumnKind::Regular));
    let mut table = Table {
        keyspace: keyspace.to_owned(),
        name: definition.name.to_owned(),
        id: table_id(keyspace, definition.name),
        kind,
        columns: partition_key.chain(clustering_key).chain(regular).collect(),
        partition_key_count: 0,
        clustering_key_count: 0,
        options: TableOptions {
            comment: definition.comment.to_owned(),
            gc_grace_seconds: if keyspace == SYSTEM_AUTH { 7_776_000 } else { 0 },
            ..TableOptions::default()
        },
        is_counter: false,
        dropped_columns: Vec::new(),
        next_column_id: 0,
    };
    table.arrange_columns();
    for (id, column) in (0_u32..).zip(&mut table.columns) {
        column.id = id;
    }
    table.next_column_id = table.columns.len() as u32;
    table
}

fn table_id(keyspace: &str, table: &str) -> Uuid {
    let mut digest = Md5::new();
    digest.update(keyspace.as_bytes());
    digest.update(table.as_bytes());
    uuid::Builder::from_md5_bytes(digest.finalize().into()).into_uuid()
}

fn set_of_text() -> CqlType {
    CqlType::set(CqlType::Text, false)
}

fn frozen_list_of_text() -> CqlType {
    CqlType::list(CqlType::Text, true)
}

fn frozen_map_of_text() -> CqlType {
    CqlType::map(CqlType::Text, CqlType::Text, true)
}

fn system() -> Vec<Definition> {
    use CqlType::{Bigint, Blob, Boolean, Inet, Int, Text, Timestamp, Uuid};
    let estimate = vec![("mean_partition_size", Bigint), ("partitions_count", Bigint)];
    vec![
        Definition {
            name: "IndexInfo",
            comment: "built column indexes",
            partition_key: vec![("table_name", Text)],
            clustering_key: vec![("index_name", Text)],
            columns: vec![("value", Blob)],
        },
        Definition {
            name: "built_views",
            comment: "built views",
            partition_key: vec![("keyspace_name", Text)],
            clustering_key: vec![("view_name", Text)],
            columns: vec![("status_replicated", Boolean)],
        },
        Definition {
            name: "compaction_history",
            comment: "week-long compaction history",
            partition_key: vec![("id", Uuid)],
            clustering_key: vec![],
            columns: vec![
                ("bytes_in", Bigint),
                ("bytes_out", Bigint),
                ("columnfamily_name", Text),
                ("compacted_at", Timestamp),
                ("compaction_properties", frozen_map_of_text()),
                ("keyspace_name", Text),
                ("rows_merged", CqlType::map(Int, Bigint, false)),
            ],
        },
        Definition {
            name: "local",
            comment: "information about the local node",
            partition_key: vec![("key", Text)],
            clustering_key: vec![],
            columns: vec![
                ("bootstrapped", Text),
                ("broadcast_address", Inet),
                ("broadcast_port", Int),
                ("cluster_name", Text),
                ("cql_version", Text),
                ("data_center", Text),
                ("gossip_generation", Int),
                ("host_id", Uuid),
                ("listen_address", Inet),
                ("listen_port", Int),
                ("native_protocol_version", Text),
                ("partitioner", Text),
                ("rack", Text),
                ("release_version", Text),
                ("rpc_address", Inet),
                ("rpc_port", Int),
                ("schema_version", Uuid),
                ("tokens", set_of_text()),
                ("truncated_at", CqlType::map(Uuid, Blob, false)),
            ],
        },
        Definition {
            name: "peers",
            comment: "information about known peers in the cluster",
            partition_key: vec![("peer", Inet)],
            clustering_key: vec![],
            columns: vec![
                ("data_center", Text),
                ("host_id", Uuid),
                ("preferred_ip", Inet),
                ("rack", Text),
                ("release_version", Text),
                ("rpc_address", Inet),
                ("schema_version", Uuid),
                ("tokens", set_of_text()),
            ],
        },
        Definition {
            name: "peers_v2",
            comment: "information about known peers in the cluster",
            partition_key: vec![("peer", Inet)],
            clustering_key: vec![("peer_port", Int)],
            columns: vec![
                ("data_center", Text),
                ("host_id", Uuid),
                ("native_address", Inet),
                ("native_port", Int),
                ("preferred_ip", Inet),
                ("preferred_port", Int),
                ("rack", Text),
                ("release_version", Text),
                ("schema_version", Uuid),
                ("tokens", set_of_text()),
            ],
        },
        Definition {
            name: "prepared_statements",
            comment: "prepared statements",
            partition_key: vec![("prepared_id", Blob)],
            clustering_key: vec![],
            columns: vec![("logged_keyspace", Text), ("query_string", Text)],
        },
        Definition {
            name: "size_estimates",
            comment: "per-table primary range size estimates",
            partition_key: vec![("keyspace_name", Text)],
            clustering_key: vec![("table_name", Text), ("range_start", Text), ("range_end", Text)],
            columns: estimate.clone(),
        },
        Definition {
            name: "table_estimates",
            comment: "per-table range size estimates",
            partition_key: vec![("keyspace_name", Text)],
            clustering_key: vec![
                ("table_name", Text),
                ("range_type", Text),
                ("range_start", Text),
                ("range_end", Text),
            ],
            columns: estimate,
        },
    ]
}

/// The option columns of tables and views in `system_schema`.
fn option_columns() -> Vec<(&'static str, CqlType)> {
    use CqlType::{Blob, Boolean, Double, Int, Text};
    vec![
        ("additional_write_policy", Text),
        ("allow_auto_snapshot", Boolean),
        ("bloom_filter_fp_chance", Double),
        ("caching", frozen_map_of_text()),
        ("cdc", Boolean),
        ("comment", Text),
        ("compaction", frozen_map_of_text()),
        ("compression", frozen_map_of_text()),
        ("crc_check_chance", Double),
        ("dclocal_read_repair_chance", Double),
        ("default_time_to_live", Int),
        ("extensions", CqlType::map(Text, Blob, true)),
        ("gc_grace_seconds", Int),
        ("id", CqlType::Uuid),
        ("incremental_backups", Boolean),
        ("max_index_interval", Int),
        ("memtable", Text),
        ("memtable_flush_period_in_ms", Int),
        ("min_index_interval", Int),
        ("read_repair", Text),
        ("read_repair_chance", Double),
        ("speculative_retry", Text),
    ]
}

fn column_columns() -> Vec<(&'static str, CqlType)> {
    use CqlType::{Blob, Int, Text};
    vec![
        ("clustering_order", Text),
        ("column_name_bytes", Blob),
        ("kind", Text),
        ("position", Int),
        ("type", Text),
    ]
}

fn system_schema() -> Vec<Definition> {
    use CqlType::{Boolean, Text, Timestamp};
    let of_keyspace = |name, comment, clustering_key, columns| Definition {
        name,
        comment,
        partition_key: vec![("keyspace_name", Text)],
        clustering_key,
        columns,
    };
    let mut table_columns = option_columns();
    table_columns.push(("flags", CqlType::set(Text, true)));
    let mut view_columns = option_columns();
    view_columns.extend([
        ("base_table_id", CqlType::Uuid),
        ("base_table_name", Text),
        ("include_all_columns", Boolean),
        ("where_clause", Text),
    ]);
    vec![
        of_keyspace(
            "aggregates",
            "user defined aggregate definitions",
            vec![("aggregate_name", Text), ("argument_types", frozen_list_of_text())],
            vec![
                ("final_func", Text),
                ("initcond", Text),
                ("return_type", Text),
                ("state_func", Text),
                ("state_type", Text),
            ],
        ),
        of_keyspace(
            "column_masks",
            "dynamic data masking",
            vec![("table_name", Text), ("column_name", Text)],
            vec![
                ("function_argument_nulls", CqlType::list(Boolean, true)),
                ("function_argument_types", frozen_list_of_text()),
                ("function_argument_values", frozen_list_of_text()),
                ("function_keyspace", Text),
                ("function_name", Text),
            ],
        ),
        of_keyspace(
            "columns",
            "column definitions",
            vec![("table_name", Text), ("column_name", Text)],
            column_columns(),
        ),
        of_keyspace(
            "dropped_columns",
            "dropped column registry",
            vec![("table_name", Text), ("column_name", Text)],
            vec![("dropped_time", Timestamp), ("kind", Text), ("type", Text)],
        ),
        of_keyspace(
            "functions",
            "user defined function definitions",
            vec![("function_name", Text), ("argument_types", frozen_list_of_text())],
            vec![
                ("argument_names", frozen_list_of_text()),
                ("body", Text),
                ("called_on_null_input", Boolean),
                ("language", Text),
                ("return_type", Text),
            ],
        ),
        of_keyspace(
            "indexes",
            "secondary index definitions",
            vec![("table_name", Text), ("index_name", Text)],
            vec![("kind", Text), ("options", frozen_map_of_text())],
        ),
        of_keyspace(
            "keyspaces",
            "keyspace definitions",
            vec![],
            vec![("durable_writes", Boolean), ("replication", frozen_map_of_text())],
        ),
        of_keyspace("tables", "table definitions", vec![("table_name", Text)], table_columns),
        of_keyspace(
            "triggers",
            "trigger definitions",
            vec![("table_name", Text), ("trigger_name", Text)],
            vec![("options", frozen_map_of_text())],
        ),
        of_keyspace(
            "types",
            "user defined type definitions",
            vec![("type_name", Text)],
            vec![("field_names", frozen_list_of_text()), ("field_types", frozen_list_of_text())],
        ),
        of_keyspace("views", "view definitions", vec![("view_name", Text)], view_columns),
    ]
}

fn system_virtual_schema() -> Vec<Definition> {
    use CqlType::Text;
    let of_keyspace = |name, comment, clustering_key, columns| Definition {
        name,
        comment,
        partition_key: vec![("keyspace_name", Text)],
        clustering_key,
        columns,
    };
    vec![
        of_keyspace(
            "columns",
            "virtual column definitions",
            vec![("table_name", Text), ("column_name", Text)],
            column_columns(),
        ),
        of_keyspace("keyspaces", "virtual keyspace definitions", vec![], vec![]),
        of_keyspace(
            "tables",
            "virtual table definitions",
            vec![("table_name", Text)],
            vec![("comment", Text)],
        ),
    ]
}

fn system_views() -> Vec<Definition> {
    use CqlType::{Bigint, Boolean, Inet, Int, Text};
    vec![
        Definition {
            name: "clients",
            comment: "currently connected clients",
            partition_key: vec![("address", Inet)],
            clustering_key: vec![("port", Int)],
            columns: vec![
                ("client_options", frozen_map_of_text()),
                ("connection_stage", Text),
                ("driver_name", Text),
                ("driver_version", Text),
                ("hostname", Text),
                ("keyspace_name", Text),
                ("protocol_version", Int),
                ("request_count", Bigint),
                ("ssl_cipher_suite", Text),
                ("ssl_enabled", Boolean),
                ("ssl_protocol", Text),
                ("username", Text),
            ],
        },
        Definition {
            name: "settings",
            comment: "current settings",
            partition_key: vec![("name", Text)],
            clustering_key: vec![],
            columns: vec![("value", Text)],
        },
    ]
}

fn system_traces() -> Vec<Definition> {
    use CqlType::{Inet, Int, Text, Timestamp, Timeuuid, Uuid};
    vec![
        Definition {
            name: "events",
            comment: "tracing events",
            partition_key: vec![("session_id", Uuid)],
            clustering_key: vec![("event_id", Timeuuid)],
            columns: vec![
                ("activity", Text),
                ("source", Inet),
                ("source_elapsed", Int),
                ("source_port", Int),
                ("thread", Text),
            ],
        },
        Definition {
            name: "sessions",
            comment: "tracing sessions",
            partition_key: vec![("session_id", Uuid)],
            clustering_key: vec![],
            columns: vec![
                ("client", Inet),
                ("command", Text),
                ("coordinator", Inet),
                ("coordinator_port", Int),
                ("duration", Int),
                ("parameters", CqlType::map(Text, Text, false)),
                ("request", Text),
                ("started_at", Timestamp),
            ],
        },
    ]
}

fn system_auth() -> Vec<Definition> {
    use CqlType::{Boolean, Inet, Smallint, Text};
    let of = |name, comment, partition: &'static str, clustering: Option<&'static str>, columns| Definition {
        name,
        comment,
        partition_key: vec![(partition, Text)],
        clustering_key: clustering.into_iter().map(|name| (name, Text)).collect(),
        columns,
    };
    let cidr = CqlType::tuple([Inet, Smallint]);
    vec![
        of("cidr_groups", "cidr groups", "cidr_group", None, vec![("cidrs", CqlType::set(cidr, true))]),
        of(
            "cidr_permissions",
            "user cidr permissions",
            "role",
            None,
            vec![("cidr_groups", CqlType::set(Text, true))],
        ),
        of("identity_to_role", "mtls authorized identities", "identity", None, vec![("role", Text)]),
        of(
            "network_permissions",
            "user network permissions",
            "role",
            None,
            vec![("dcs", CqlType::set(Text, true))],
        ),
        of(
            "resource_role_permissons_index",
            "index of db roles with permissions",
            "resource",
            Some("role"),
            vec![],
        ),
        of("role_members", "role memberships lookup table", "role", Some("member"), vec![]),
        of(
            "role_permissions",
            "permissions granted to db roles",
            "role",
            Some("resource"),
            vec![("permissions", set_of_text())],
        ),
        of(
            "roles",
            "role definitions",
            "role",
            None,
            vec![
                ("can_login", Boolean),
                ("is_superuser", Boolean),
                ("member_of", set_of_text()),
                ("salted_hash", Text),
            ],
        ),
    ]
}

fn system_distributed() -> Vec<Definition> {
    use CqlType::{Text, Uuid};
    vec![Definition {
        name: "view_build_status",
        comment: "materialized view build status",
        partition_key: vec![("keyspace_name", Text), ("view_name", Text)],
        clustering_key: vec![("host_id", Uuid)],
        columns: vec![("status", Text)],
    }]
}

#[cfg(test)]
mod tests;
