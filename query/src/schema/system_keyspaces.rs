//! The names of the system keyspaces. Their tables are in `system_tables`.

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
