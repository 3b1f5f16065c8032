//! A shard on an encrypted disk whose tables choose: what lies on the disk below.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use helenus_at_rest::{EncryptedDisk, MasterKeys, Randomness};
use helenus_engine::io::{
    Clock, Disk, Environment, InlineBackground, ManualClock, SeededRandom, SimulatedDisk,
};
use helenus_engine::{
    Cell, CellKind, Liveness, MutationBuilder, RowBuilder, Shard, ShardOptions, TableOptions,
};
use helenus_query::schema::catalog::CatalogView;
use helenus_testing::{CREATE_KEYSPACE, catalog_of, changed, virtual_time};

use super::*;

const KEY: &str = "one AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const MARK: &[u8] = b"confidential";
const START_MICROS: i64 = 1_700_000_000_000_000;

/// The tables `chosen`, which is encrypted, and `other`.
fn catalog() -> CatalogView {
    catalog_of(&[
        CREATE_KEYSPACE,
        "CREATE TABLE chosen (k int PRIMARY KEY) WITH encryption = {'enabled': 'true'}",
        "CREATE TABLE other (k int PRIMARY KEY)",
    ])
}

fn id(catalog: &CatalogView, table: &str) -> TableId {
    catalog.catalog.table("ks", table).unwrap().engine_id()
}

struct Node {
    below: SimulatedDisk,
    scope: Arc<TableScope>,
    catalog: CatalogView,
    refuses_plain_files: bool,
}

impl Node {
    fn new() -> Self {
        let catalog = catalog();
        let scope = Arc::new(TableScope::default());
        scope.note(&catalog.catalog);
        Self { below: SimulatedDisk::new(1), scope, catalog, refuses_plain_files: false }
    }

    fn disk(&self) -> EncryptedDisk {
        let keys = MasterKeys::parse(KEY.as_bytes()).unwrap();
        let random = Randomness::new(SeededRandom::new(self.below.operations()));
        let disk =
            EncryptedDisk::new(Arc::new(self.below.clone()), keys, random).that_encrypts(self.scope.clone());
        if self.refuses_plain_files { disk.that_refuses_plain_files() } else { disk }
    }

    async fn open(&self) -> Rc<Shard> {
        let clock: Rc<dyn Clock> = Rc::new(ManualClock::new(START_MICROS));
        let disk: Arc<dyn Disk> = Arc::new(self.disk());
        let environment = Environment {
            disk: disk.clone(),
            background: Rc::new(InlineBackground::new(disk, clock.clone())),
            clock,
            random: Rc::new(SeededRandom::new(self.below.operations())),
        };
        let shard = Shard::open(environment, ShardOptions::new("/shard-0")).await.unwrap();
        let tables = ["chosen", "other"].map(|table| (id(&self.catalog, table), TableOptions::default()));
        shard.create_tables(&tables).await.unwrap();
        shard
    }

    fn alter(&mut self, enabled: bool) {
        let text = format!("ALTER TABLE other WITH encryption = {{'enabled': '{enabled}'}}");
        self.catalog = changed(&self.catalog, 100 + u128::from(enabled), &text);
        self.scope.note(&self.catalog.catalog);
    }

    fn id(&self, table: &str) -> TableId {
        id(&self.catalog, table)
    }

    /// The files that have the mark in them.
    fn readable(&self) -> Vec<PathBuf> {
        let has_mark = |bytes: &[u8]| bytes.windows(MARK.len()).any(|window| window == MARK);
        self.below.files().into_iter().filter(|(_, bytes)| has_mark(bytes)).map(|(path, _)| path).collect()
    }

    /// The directories of the files that have the mark in them.
    fn readable_places(&self) -> HashSet<PathBuf> {
        self.readable().iter().filter_map(|path| path.parent()).map(Path::to_path_buf).collect()
    }

    fn tables(&self, table: &str) -> PathBuf {
        Path::new("/shard-0/tables").join(self.id(table).to_string())
    }
}

fn put(shard: &Shard, table: TableId, row: u8) {
    let mut builder = MutationBuilder::new(table, i64::from(row), b"key").unwrap();
    let mut content = RowBuilder::new();
    content.set_liveness(Liveness { timestamp: 1, expiry: None });
    content.cell(Cell { column: 1, path: &[], timestamp: 1, kind: CellKind::Live, value: MARK });
    builder.row(&[2, 1 + row], &mut content);
    shard.apply(&builder.build().view().unwrap()).unwrap();
}

async fn put_into_files(shard: &Shard, node: &Node, row: u8) {
    for table in ["chosen", "other"] {
        put(shard, node.id(table), row);
        shard.flush(node.id(table)).await.unwrap();
    }
}

#[test]
fn files_of_tables_that_do_not_ask_for_it_are_plain_and_nothing_else_is() {
    virtual_time::run(1, |_| async {
        let node = Node::new();
        let shard = node.open().await;
        put(&shard, node.id("other"), 0);
        assert!(node.readable().is_empty(), "the log of a plain table is encrypted");
        for row in 1..4 {
            put_into_files(&shard, &node, row).await;
        }
        assert_eq!(node.readable_places(), HashSet::from([node.tables("other")]));
        for table in ["chosen", "other"] {
            shard.compact(node.id(table)).await.unwrap();
            shard.snapshot(node.id(table), "kept", &[]).await.unwrap();
        }
        let snapshot = Path::new("/shard-0/snapshots/kept").join(node.id("other").to_string());
        assert_eq!(node.readable_places(), HashSet::from([node.tables("other"), snapshot]));
    });
}

#[test]
fn an_altered_table_is_written_anew_as_it_is_now() {
    virtual_time::run(1, |_| async {
        let mut node = Node::new();
        let shard = node.open().await;
        let other = node.id("other");
        put_into_files(&shard, &node, 1).await;
        let before = node.readable();
        assert_eq!(before.len(), 1);
        assert!(!node.scope.wants_encrypted(&before[0]));
        node.alter(true);
        put_into_files(&shard, &node, 2).await;
        assert_eq!(node.readable(), before, "new files are encrypted at once");
        assert!(node.scope.wants_encrypted(&before[0]));
        shard.upgrade_files(other, true).await.unwrap();
        assert!(node.readable().is_empty());
        node.alter(false);
        shard.upgrade_files(other, true).await.unwrap();
        assert_eq!(node.readable_places(), HashSet::from([node.tables("other")]));
    });
}

#[test]
fn a_plain_snapshot_is_restored_encrypted_into_a_table_that_asks_for_it() {
    virtual_time::run(1, |_| async {
        let node = Node::new();
        let shard = node.open().await;
        put_into_files(&shard, &node, 1).await;
        shard.snapshot(node.id("other"), "kept", &[]).await.unwrap();
        let before = node.readable();
        let entry = shard.list_snapshots().await.unwrap().remove(0);
        let restored = shard.restore_snapshot(&entry, node.id("chosen")).await.unwrap();
        assert_eq!(restored.files, 1);
        assert_eq!(node.readable(), before);
        assert_eq!(shard.statistics(node.id("chosen")).unwrap().file_count, 2);
        shard.compact(node.id("chosen")).await.unwrap();
        shard.restore_snapshot(&entry, node.id("other")).await.unwrap();
        assert_eq!(node.readable(), before, "the table has all of it");
    });
}

#[test]
fn where_plain_files_are_refused_those_of_plain_tables_are_read_and_others_until_the_node_stops() {
    virtual_time::run(1, |_| async {
        let mut node = Node::new();
        node.refuses_plain_files = true;
        let shard = node.open().await;
        put_into_files(&shard, &node, 1).await;
        shard.close().await.unwrap();
        drop(shard);
        let shard = node.open().await;
        node.alter(true);
        let plain = node.readable().remove(0);
        node.disk().read(&plain).await.unwrap();
        drop(shard);
        // Another start knows only that the table is encrypted.
        node.scope = Arc::default();
        let unknown = node.disk().read(&plain).await.unwrap_err().to_string();
        node.scope.note(&node.catalog.catalog);
        let refused = node.disk().read(&plain).await.unwrap_err().to_string();
        assert!(
            refused.contains(plain.to_str().unwrap()) && refused.contains("is not encrypted"),
            "{refused}"
        );
        assert_eq!(unknown, refused);
    });
}

#[test]
fn what_is_not_known_to_be_plain_is_encrypted() {
    let scope = TableScope::default();
    let catalog = catalog();
    let (chosen, other) = (id(&catalog, "chosen"), id(&catalog, "other"));
    let in_tables = |table: TableId| PathBuf::from(format!("/data/shard-0/tables/{table}/1-data.sst.tmp"));
    assert!(scope.encrypts(&in_tables(other)), "the catalog is not known");
    scope.note(&catalog.catalog);
    assert!(!scope.encrypts(&in_tables(other)));
    let system = catalog.catalog.table("system_auth", "roles").map(|table| table.engine_id());
    for table in [chosen, TableId(*b"helenus-batchlog")].into_iter().chain(system) {
        assert!(scope.encrypts(&in_tables(table)) && scope.refuses_links(&in_tables(table)));
    }
    for path in ["/data/node.json", "/data/shard-0/manifest", "/data/shard-0/commit-log/segment-1", "x", ""] {
        let path = Path::new(path);
        assert!(scope.encrypts(path) && scope.wants_encrypted(path) && !scope.accepts_plain(path));
        assert!(!scope.refuses_links(path));
    }
    let snapshot =
        |table: TableId| PathBuf::from(format!("/data/shard-0/snapshots/kept/{table}/schema.json"));
    assert!(scope.encrypts(&snapshot(other)) && scope.accepts_plain(&snapshot(other)));
    assert!(!scope.refuses_links(&snapshot(chosen)) && !scope.accepts_plain(&snapshot(chosen)));
    // Left of a table that was dropped.
    let dropped = TableId([7; 16]);
    for path in [in_tables(dropped), snapshot(dropped)] {
        assert!(scope.encrypts(&path) && scope.accepts_plain(&path) && !scope.wants_encrypted(&path));
    }
    let given_up =
        PathBuf::from(format!("/data/quarantine/2026-11-27T10-00-00/shard-0/tables/{chosen}/1-data.sst"));
    assert!(!scope.refuses_links(&given_up) && scope.encrypts(&given_up));
    let unfinished = format!("/data/shard-0/snapshots/kept/{other}.tmp/1-data.sst");
    assert!(scope.accepts_plain(Path::new(&unfinished)));
    let own = in_tables(TableId(*b"helenus-batchlog"));
    assert!(scope.wants_encrypted(&own) && !scope.accepts_plain(&own));
}

#[test]
fn a_table_that_is_not_encrypted_any_more_is_until_that_is_stored() {
    let mut node = Node::new();
    let files = |node: &Node, table: &str| {
        PathBuf::from(format!("/data/shard-0/tables/{}/1-data.sst", node.id(table)))
    };
    let (chosen, other) = (files(&node, "chosen"), files(&node, "other"));
    node.alter(true);
    assert!(node.scope.encrypts(&other));
    let encrypted = node.catalog.clone();
    node.alter(false);
    node.scope.note(&encrypted.catalog);
    node.scope.prepare(&node.catalog.catalog);
    assert!(node.scope.encrypts(&other) && node.scope.encrypts(&chosen));
    node.scope.note(&node.catalog.catalog);
    assert!(!node.scope.encrypts(&other) && node.scope.encrypts(&chosen));
    node.scope.prepare(&encrypted.catalog);
    assert!(node.scope.encrypts(&other), "what becomes encrypted is at once");
}
