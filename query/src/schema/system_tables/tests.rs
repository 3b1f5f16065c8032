//! The system keyspaces compared with Cassandra's.

use super::*;
use crate::schema::system_keyspaces::is_system;

#[test]
fn a_new_node_has_cassandras_keyspaces() {
    let names: Vec<String> = definitions().into_keys().collect();
    let expected = [
        "system",
        "system_auth",
        "system_distributed",
        "system_schema",
        "system_traces",
        "system_views",
        "system_virtual_schema",
    ];
    assert_eq!(names, expected);
    assert!(names.iter().all(|name| is_system(name)));
    assert!(!is_system("ks"));
    assert_eq!(definitions()[SYSTEM_SCHEMA].tables.len(), 13);
}

#[test]
fn ids_are_cassandras() {
    let catalog = initial_catalog(Uuid::nil());
    let id = |keyspace: &str, table: &str| catalog.table(keyspace, table).unwrap().id.to_string();
    assert_eq!(id("system", "local"), "7ad54392-bcdd-35a6-8417-4e047860b377");
    assert_eq!(id("system_schema", "tables"), "afddfb9d-bc1e-3068-8056-eed6c302ba09");
    assert_eq!(id("system_auth", "roles"), "5bc52802-de25-35ed-aeab-188eecebb090");
}

#[test]
fn columns_are_arranged_and_ids_unique() {
    for keyspace in definitions().values() {
        for table in keyspace.tables.values() {
            let ids: Vec<u32> = table.columns.iter().map(|column| column.id).collect();
            assert_eq!(ids, (0..table.next_column_id).collect::<Vec<u32>>());
            assert!(table.partition_key_count > 0, "{}", table.full_name());
            let mut arranged = table.as_ref().clone();
            arranged.arrange_columns();
            assert_eq!(arranged.columns, table.columns);
        }
    }
}

#[test]
fn traces_and_positions_of_views_are_stored_the_rest_is_computed() {
    let catalog = initial_catalog(Uuid::nil());
    let kind = |keyspace: &str, table: &str| catalog.table(keyspace, table).unwrap().kind;
    assert_eq!(kind("system_traces", "sessions"), TableKind::Stored);
    for table in ["view_positions", "view_slices", "view_timers"] {
        assert_eq!(kind("system_distributed", table), TableKind::Stored);
    }
    assert_eq!(kind("system_distributed", "view_build_status"), TableKind::Virtual);
    assert_eq!(kind("system_auth", "roles"), TableKind::Virtual);
    assert_eq!(kind("system", "local"), TableKind::Virtual);
    assert!(catalog.keyspace("system_views").unwrap().is_virtual);
    assert!(!catalog.keyspace("system").unwrap().is_virtual);
}
