//! Rows, decoded like a client does.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use cql_lite::types::Value;
use helenus_engine::shard::IndexFileStatus;
use uuid::Uuid;

use super::*;
use crate::schema::ddl::tests::Session;
use crate::schema::index_terms::{encoding_of, id_of};

fn state(session: &Session) -> NodeState {
    let client = ConnectedClient {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 50_000,
        options: BTreeMap::from([("CQL_VERSION".to_owned(), "3.0.0".to_owned())]),
        driver_name: Some("driver".to_owned()),
        driver_version: None,
        keyspace: None,
        protocol_version: 4,
        request_count: 7,
        username: None,
    };
    let estimate = |kind, range_start, range_end| SizeEstimate {
        kind,
        range_start,
        range_end,
        mean_partition_size_bytes: 100,
        partitions_count: 5,
    };
    let repaired = |range_start, range_end, began_micros| RepairedRange {
        keyspace: "ks".to_owned(),
        table: "t".to_owned(),
        range_start,
        range_end,
        began_micros,
        participants: vec!["127.0.0.2:7001".parse().unwrap(), "127.0.0.2:7000".parse().unwrap()],
    };
    let (primary, local) = (RangeKind::Primary, RangeKind::LocalPrimary);
    let estimates = vec![estimate(local, -5, 5), estimate(primary, 5, 9), estimate(primary, -5, 5)];
    let tables = ["t", "n"].map(|name| session.catalog.table("ks", name).unwrap().id);
    NodeState {
        tokens: vec![10, -3],
        is_joining: false,
        peers: Vec::new(),
        clients: vec![client],
        estimates: tables.into_iter().map(|id| (id, estimates.clone())).collect(),
        indexes: BTreeMap::new(),
        repaired_ranges: vec![
            repaired(5, 9, 2_000_000),
            repaired(-5, 5, 1_000_000),
            repaired(9, -5, 2_000_000),
        ],
        feed_generations: Vec::new(),
    }
}

fn node() -> NodeInformation {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    NodeInformation {
        cluster_name: "test".to_owned(),
        data_center: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        host_id: Uuid::from_u128(1),
        listen_address: address,
        broadcast_address: address,
        rpc_address: address,
        storage_port: 7000,
        native_port: 9042,
        initial_tokens: Vec::new(),
        generation: 1,
        settings: vec![("shards".to_owned(), "2".to_owned()), ("listen".to_owned(), "x".to_owned())],
    }
}

fn session() -> Session {
    Session::with(&[
        "CREATE TYPE p (x int, y frozen<list<text>>)",
        "CREATE TABLE t (k int, c timeuuid, v text, u p, old int, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)",
        "CREATE TABLE n (k int PRIMARY KEY, c counter)",
        "ALTER TABLE t DROP old USING TIMESTAMP 5000",
    ])
}

/// The rows of a table as maps from column to CQL literal-like text; null columns are absent.
fn read(session: &Session, keyspace: &str, table: &str) -> Vec<BTreeMap<String, Value>> {
    read_in(session, &state(session), keyspace, table)
}

fn read_in(
    session: &Session,
    state: &NodeState,
    keyspace: &str,
    table: &str,
) -> Vec<BTreeMap<String, Value>> {
    let table = session.catalog.table(keyspace, table).unwrap();
    let decode = |row: Row| {
        assert_eq!(row.len(), table.columns.len());
        let fields = table.columns.iter().zip(row);
        let fields = fields.filter_map(|(column, value)| {
            let value = Value::decode(&column.column_type, &value?).unwrap();
            Some((column.name.clone(), value))
        });
        fields.collect()
    };
    rows(table, &session.catalog, &node(), state).into_iter().map(decode).collect()
}

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

/// The only row with these texts.
fn find<'a>(rows: &'a [BTreeMap<String, Value>], wanted: &[(&str, &str)]) -> &'a BTreeMap<String, Value> {
    let mut found = rows.iter().filter(|row| wanted.iter().all(|(name, value)| row[*name] == text(value)));
    let row = found.next().unwrap();
    assert!(found.next().is_none());
    row
}

#[test]
fn every_virtual_table_has_rows_that_decode_with_a_complete_key() {
    let session = session();
    for keyspace in session.catalog.keyspaces.values() {
        for table in keyspace.tables.values() {
            for row in read(&session, &keyspace.name, &table.name) {
                for column in table.columns.iter().filter(|column| column.is_primary_key()) {
                    assert!(row.contains_key(&column.name), "{} {}", table.full_name(), column.name);
                }
            }
        }
    }
}

#[test]
fn local_has_what_drivers_need() {
    let rows = read(&session(), "system", "local");
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(row["key"], text("local"));
    assert_eq!(row["release_version"], text("5.0.0"));
    assert_eq!(row["partitioner"], text("org.apache.cassandra.dht.Murmur3Partitioner"));
    assert_eq!(row["tokens"], Value::Set(vec![text("-3"), text("10")]));
    for column in
        ["cluster_name", "host_id", "rpc_address", "rpc_port", "schema_version", "data_center", "rack"]
    {
        assert!(row.contains_key(column), "{column}");
    }
    assert!(read(&session(), "system", "peers").is_empty());
    assert!(read(&session(), "system", "peers_v2").is_empty());
}

#[test]
fn peers_are_in_both_tables() {
    let session = session();
    let mut state = state(&session);
    let peer = |storage_port| Peer {
        address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
        storage_port,
        native_address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
        native_port: 9042,
        data_center: "datacenter1".to_owned(),
        rack: "rack1".to_owned(),
        host_id: Uuid::from_u128(2),
        schema_version: session.catalog.version,
        tokens: vec![7],
    };
    // Two nodes with one address have one row if the key has no port.
    state.peers = vec![peer(7000), peer(7001)];
    for (name, count) in [("peers", 1), ("peers_v2", 2)] {
        let table = session.catalog.table("system", name).unwrap();
        let rows = rows(table, &session.catalog, &node(), &state);
        assert_eq!(rows.len(), count);
        assert!(rows[0][table.column_index("host_id").unwrap()].is_some());
        assert!(rows[0][table.column_index("tokens").unwrap()].is_some());
    }
}

#[test]
fn tables_have_flags_and_options() {
    let rows = read(&session(), "system_schema", "tables");
    let plain = find(&rows, &[("keyspace_name", "ks"), ("table_name", "t")]);
    assert_eq!(plain["flags"], Value::Set(vec![text("compound")]));
    assert_eq!(plain["gc_grace_seconds"], Value::Int(864_000));
    assert_eq!(plain["speculative_retry"], text("99p"));
    let counter = find(&rows, &[("keyspace_name", "ks"), ("table_name", "n")]);
    assert_eq!(counter["flags"], Value::Set(vec![text("compound"), text("counter")]));
    assert!(rows.iter().all(|row| row["keyspace_name"] != text("system_views")));
    find(&rows, &[("keyspace_name", "system"), ("table_name", "local")]);
}

#[test]
fn columns_have_kinds_positions_orders_and_types() {
    let rows = read(&session(), "system_schema", "columns");
    let column =
        |name: &str| find(&rows, &[("keyspace_name", "ks"), ("table_name", "t"), ("column_name", name)]);
    let cases = [
        ("k", "partition_key", 0, "none", "int"),
        ("c", "clustering", 0, "desc", "timeuuid"),
        ("v", "regular", -1, "none", "text"),
        ("u", "regular", -1, "none", "p"),
    ];
    for (name, kind, position, order, type_text) in cases {
        let row = column(name);
        assert_eq!(row["kind"], text(kind));
        assert_eq!(row["position"], Value::Int(position));
        assert_eq!(row["clustering_order"], text(order));
        assert_eq!(row["type"], text(type_text));
    }
    let dropped = read(&session(), "system_schema", "dropped_columns");
    assert_eq!(dropped.len(), 1);
    assert_eq!(
        (&dropped[0]["column_name"], &dropped[0]["dropped_time"]),
        (&text("old"), &Value::Timestamp(5))
    );
}

#[test]
fn keyspaces_and_types_are_shown() {
    let keyspaces = read(&session(), "system_schema", "keyspaces");
    let replication = Value::Map(vec![
        (text("class"), text("org.apache.cassandra.locator.SimpleStrategy")),
        (text("replication_factor"), text("1")),
    ]);
    assert_eq!(find(&keyspaces, &[("keyspace_name", "ks")])["replication"], replication);
    let types = read(&session(), "system_schema", "types");
    assert_eq!(types[0]["field_names"], Value::List(vec![text("x"), text("y")]));
    assert_eq!(types[0]["field_types"], Value::List(vec![text("int"), text("frozen<list<text>>")]));
    assert!(read(&session(), "system_schema", "indexes").is_empty());
}

#[test]
fn indexes_are_shown_as_drivers_read_them() {
    let session = Session::with(&[
        "CREATE TABLE t (k int PRIMARY KEY, v text, \"V\" text, m map<int, text>)",
        "CREATE TABLE n (k int PRIMARY KEY)",
        "CREATE INDEX a ON t (\"V\")",
        "CREATE INDEX b ON t (m)",
        "CREATE INDEX c ON t (v) USING 'sai' WITH OPTIONS = {'ascii': 'true'}",
    ]);
    let rows = read(&session, "system_schema", "indexes");
    let shown = rows.iter().map(|row| {
        assert_eq!((&row["keyspace_name"], &row["table_name"]), (&text("ks"), &text("t")));
        (row["index_name"].clone(), row["kind"].clone(), row["options"].clone())
    });
    let options = |entries: &[(&str, &str)]| {
        Value::Map(entries.iter().map(|(name, value)| (text(name), text(value))).collect())
    };
    let expected = [
        (text("a"), text("COMPOSITES"), options(&[("target", "\"V\"")])),
        (text("b"), text("COMPOSITES"), options(&[("target", "values(m)")])),
        (text("c"), text("CUSTOM"), options(&[("ascii", "true"), ("class_name", "sai"), ("target", "v")])),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

#[test]
fn virtual_keyspaces_are_in_their_own_schema() {
    let keyspaces = read(&session(), "system_virtual_schema", "keyspaces");
    let names: Vec<&Value> = keyspaces.iter().map(|row| &row["keyspace_name"]).collect();
    assert_eq!(names, [&text("system_views"), &text("system_virtual_schema")]);
    let tables = read(&session(), "system_virtual_schema", "tables");
    find(&tables, &[("keyspace_name", "system_views"), ("table_name", "clients")]);
    assert!(!read(&session(), "system_virtual_schema", "columns").is_empty());
}

#[test]
fn clients_and_estimates_are_shown() {
    let clients = read(&session(), "system_views", "clients");
    assert_eq!(clients[0]["request_count"], Value::Bigint(7));
    let estimates = read(&session(), "system", "size_estimates");
    assert_eq!(estimates.len(), 4);
    assert_eq!(estimates[0]["range_start"], text("-5"));
    let estimates = read(&session(), "system", "table_estimates");
    assert_eq!(estimates.len(), 6);
    assert_eq!(estimates[0]["range_type"], text("primary"));
    assert_eq!(estimates[2]["range_type"], text("local_primary"));
}

#[test]
fn repaired_ranges_are_shown_in_the_order_of_their_ids() {
    let rows = read(&session(), "system_distributed", "repair_history");
    let ends: Vec<_> = rows.iter().map(|row| row["range_end"].clone()).collect();
    // Of one time the order is that of the ids' last bytes as signed numbers.
    assert_eq!(ends, ["5", "9", "-5"].map(text));
    let row = find(&rows, &[("range_begin", "-5"), ("columnfamily_name", "t")]);
    assert_eq!(row["started_at"], Value::Timestamp(1_000));
    assert_eq!(row["status"], text("SUCCESS"));
    assert_eq!(row["participants"], Value::Set(vec![Value::Inet("127.0.0.2".parse().unwrap())]));
    assert_eq!(row["participants_v2"], Value::Set(["127.0.0.2:7000", "127.0.0.2:7001"].map(text).to_vec()));
    assert!(!row.contains_key("coordinator"));
}

#[test]
fn the_state_of_indexes_and_of_their_files_is_shown() {
    let session = Session::with(&[
        "CREATE TABLE t (k int PRIMARY KEY, n int, v text, m map<int, text>)",
        "CREATE INDEX b ON t (n)",
        "CREATE INDEX a ON t (v) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}",
        "CREATE INDEX c ON t (ENTRIES(m)) USING 'sai'",
    ]);
    let table = session.catalog.table("ks", "t").unwrap();
    let index = |name: &str| table.indexes.iter().find(|index| index.name == name).unwrap();
    let encoding = |name: &str| {
        let column = table.columns.iter().find(|column| column.id == index(name).column_id).unwrap();
        encoding_of(column, index(name)).unwrap()
    };
    let file = |name: &str, path: &str, terms: Option<(Vec<u8>, Vec<u8>)>| IndexFileStatus {
        index: id_of(table, index(name)).unwrap(),
        path: path.into(),
        rows: 12,
        tokens: (-7, 9),
        entries: if terms.is_some() { 5 } else { 0 },
        terms,
        disk_bytes: 345,
        format_version: 3,
    };
    let term = |number: i32| encoding("b").term(&number.to_be_bytes()).unwrap();
    let long = encoding("a").term(&[b'X'; 2_000]).unwrap();
    let pair = encoding("c").entry_term(&3_i32.to_be_bytes(), b"x").unwrap();
    let mut state = NodeState::default();
    for (name, is_complete, files) in [
        ("a", true, vec![file("a", "/d/1.table", Some((encoding("a").term(b"Ab").unwrap(), long)))]),
        ("b", true, vec![file("b", "/d/2.table", Some((term(-2), term(40)))), file("b", "/d/1.table", None)]),
        ("c", false, vec![file("c", "/d/1.table", Some((pair.clone(), pair)))]),
    ] {
        let of_index = IndexState { is_complete, is_building: !is_complete, files };
        state.indexes.insert((table.id, id_of(table, index(name)).unwrap()), of_index);
    }

    let columns = read_in(&session, &state, "system_views", "sai_column_indexes");
    let shown = |row: &BTreeMap<String, Value>, names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| row[*name].clone()).collect()
    };
    let names = ["index_name", "column_name", "is_queryable", "is_building", "is_string", "analyzer"];
    let truth = Value::Boolean;
    let lower_case = "NonTokenizingAnalyzer{caseSensitive=false, normalized=false, ascii=false}";
    for (row, expected) in columns.iter().zip([
        [text("a"), text("v"), truth(true), truth(false), truth(true), text(lower_case)],
        [text("b"), text("n"), truth(true), truth(false), truth(false), text("NoOpAnalyzer{}")],
        [text("c"), text("m"), truth(false), truth(true), truth(true), text("NoOpAnalyzer{}")],
    ]) {
        assert_eq!(shown(row, &names), expected);
        assert_eq!(shown(row, &["keyspace_name", "table_name"]), [text("ks"), text("t")]);
    }
    assert_eq!(columns.len(), 3);

    let files = read_in(&session, &state, "system_views", "sai_sstable_indexes");
    let keys: Vec<_> = files.iter().map(|row| shown(row, &["index_name", "sstable_name"])).collect();
    let expected = [("a", "/d/1.table"), ("b", "/d/1.table"), ("b", "/d/2.table"), ("c", "/d/1.table")];
    assert_eq!(keys, expected.map(|(name, path)| [text(name), text(path)]));
    let names = ["cell_count", "min_row_id", "max_row_id", "per_column_disk_size", "per_table_disk_size"];
    assert_eq!(shown(&files[2], &names), [5, 0, 11, 345, 0].map(Value::Bigint));
    assert_eq!(shown(&files[2], &["start_token", "end_token", "format_version"]), ["-7", "9", "3"].map(text));

    let segments = read_in(&session, &state, "system_views", "sai_sstable_index_segments");
    let terms: Vec<_> = segments.iter().map(|row| shown(row, &["min_term", "max_term"])).collect();
    assert_eq!(terms[1..], [[text("-2"), text("40")], [text("3: x"), text("3: x")]]);
    assert_eq!(terms[0][0], text("ab"), "as the index has it");
    assert!(matches!(&terms[0][1], Value::Text(cut) if cut.starts_with("0x") && cut.len() == 2 + 2 * 1_024));
    let components = Value::Map(vec![(
        text("Entries"),
        Value::Map(vec![(text("Length"), text("345")), (text("Offset"), text("0"))]),
    )]);
    assert_eq!(segments[0]["component_metadata"], components);

    let built = read_in(&session, &state, "system", "IndexInfo");
    let keys: Vec<_> = built.iter().map(|row| shown(row, &["table_name", "index_name"])).collect();
    assert_eq!(keys, ["a", "b"].map(|name| [text("ks"), text(name)]), "those that can be searched");
}
