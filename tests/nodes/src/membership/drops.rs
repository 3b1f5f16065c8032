//! Tables that come and go: what a crash or a failing disk leaves of them, and the snapshots that are taken before.

use helenus::cluster::raft::MetadataLog;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_engine::io::Fault;
use helenus_engine::shard::TableOptions;
use helenus_engine::{Cell as EngineCell, CellKind, MutationBuilder, RowBuilder, TableId};

use super::harness::{World, simulate};
use helenus::cluster::{start, unknown_tables};
use helenus::node::error::StartError;
use helenus_execution::shard::snapshots;

const KEYSPACE: &str =
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
const ROWS: u64 = 20;
/// Longer than it takes to give up a statement, and than the pause before a drop is tried again.
const SETTLING: Duration = Duration::from_secs(30);

/// A node with the table `ks.t` of [`ROWS`] rows on both shards.
async fn fill(world: &World) {
    world.boot(0, &[]).await;
    world.node(0).ddl(KEYSPACE).await.unwrap();
    world.node(0).ddl("CREATE TABLE ks.t (k int PRIMARY KEY, v text)").await.unwrap();
    for key in 0..ROWS {
        insert(world, key).await.unwrap();
    }
    assert!(rows_by_shard(world).values().all(|rows| *rows > 0));
}

async fn insert(world: &World, key: u64) -> Result<(), String> {
    let text = format!("INSERT INTO ks.t (k, v) VALUES ({key}, 'value')");
    let written = tokio::time::timeout(SETTLING, world.cql(0, &text, Consistency::One)).await;
    let written = written.map_err(|_| "timed out")?.ok_or("the node is down")?;
    written.map(|_| ()).map_err(|error| error.to_string())
}

fn table(world: &World) -> Option<TableId> {
    world.catalog(0).table("ks", "t").map(|table| table.engine_id())
}

/// The rows of `ks.t` on each shard, whether the shard has the table or not.
fn rows_by_shard(world: &World) -> BTreeMap<usize, u64> {
    let table = table(world);
    let contexts = world.machine(0).contexts();
    let rows = contexts.iter().map(|context| {
        let statistics = table.and_then(|table| context.shard.statistics(table).ok());
        (context.index, statistics.map_or(0, |statistics| statistics.row_versions))
    });
    rows.collect()
}

/// The names of the snapshots of each shard. An empty table has none.
async fn snapshots_by_shard(world: &World) -> BTreeMap<usize, Vec<String>> {
    let mut found = BTreeMap::new();
    for context in world.machine(0).contexts() {
        let listed = snapshots::list(&context).await.unwrap();
        found.insert(context.index, listed.into_iter().map(|listed| listed.entry.name).collect());
    }
    found
}

/// Asserts that each shard has its rows, or a snapshot of them, and no table that nothing names.
async fn assert_nothing_lost(world: &World, before: &BTreeMap<usize, u64>, context: &str) {
    let (rows, snapshots) = (rows_by_shard(world), snapshots_by_shard(world).await);
    for (shard, expected) in before {
        let is_kept = rows[shard] == *expected || !snapshots[shard].is_empty();
        assert!(is_kept, "{context}: {rows:?} of {before:?} rows, snapshots {snapshots:?}");
    }
    let first = world.machine(0).context(0).unwrap();
    let unknown = unknown_tables::find(&first).await.unwrap();
    assert!(unknown.is_empty(), "{context}: {unknown:?}");
    let log = MetadataLog::of(&first).unwrap();
    assert!(log.drops.tables().is_empty(), "{context}: drops are left");
    let known = table(world).is_some();
    for shard in world.machine(0).contexts() {
        let tables = shard.shard.table_ids().len() - usize::from(shard.index == 0);
        assert_eq!(tables, expected_tables(world), "{context}: known: {known}");
    }
    let files = world.machine(0).disk.files();
    assert!(!files.keys().any(|path| path.starts_with("/data/quarantine")), "{context}: nothing is unknown");
}

/// The engine tables of a shard that is not the first.
fn expected_tables(world: &World) -> usize {
    let first = world.machine(0).context(0).unwrap();
    helenus::cluster::drops::table_ids(&first.catalog()).len() + first.node.private_tables.len() - 1
}

/// Runs a statement about the schema, or TRUNCATE. An error if it failed, or the disk did.
async fn execute(world: &World, statement: &str) -> Result<(), String> {
    let done = async {
        if statement.starts_with("TRUNCATE") {
            let done = world.cql(0, statement, Consistency::One).await.ok_or("the node is down")?;
            return done.map(|_| ()).map_err(|error| error.to_string());
        }
        world.node(0).ddl(statement).await.map(|_| ()).map_err(|error| error.to_string())
    };
    tokio::time::timeout(SETTLING, done).await.unwrap_or_else(|_| Err("timed out".to_owned()))
}

/// Calls `test` with the numbers of disk operations, `stride` apart, until it returns true: the tested operation ended before the
/// fault.
fn at_points(stride: usize, test: impl AsyncFn(&World, u64) -> bool + Clone + 'static) {
    let is_over = Rc::new(Cell::new(false));
    for point in (0..).step_by(stride) {
        let (over, test) = (is_over.clone(), test.clone());
        simulate(point, |world| async move { over.set(test(&world, point).await) });
        if is_over.get() {
            assert!(point > 20, "the disk is reached: {point}");
            return;
        }
    }
}

#[test]
fn a_drop_that_a_crash_cuts_anywhere_keeps_the_rows_or_a_snapshot_of_them() {
    at_points(1, async |world, point| {
        fill(world).await;
        let before = rows_by_shard(world);
        let disk = world.machine(0).disk.clone();
        disk.crash_at(disk.operations() + point);
        let dropped = execute(world, "DROP TABLE ks.t").await;
        let is_over = !disk.is_crashed();
        world.crash(0);
        world.boot(0, &[]).await;
        world.settle().await;
        assert_nothing_lost(world, &before, &format!("crash at {point}")).await;
        assert!(dropped.is_err() || table(world).is_none(), "crash at {point}: the drop was acknowledged");
        is_over
    });
}

#[test]
fn a_drop_or_truncation_whose_disk_fails_keeps_the_rows_or_a_snapshot_of_them() {
    for statement in ["DROP TABLE ks.t", "TRUNCATE ks.t"] {
        at_points(1, async move |world, point| {
            fill(world).await;
            let before = rows_by_shard(world);
            let disk = world.machine(0).disk.clone();
            let operation = disk.operations() + point;
            disk.fail_at(operation, Fault::Error);
            let outcome = execute(world, statement).await;
            let is_over = disk.operations() <= operation;
            disk.clear_faults();
            if world.machine(0).contexts().iter().any(|context| context.shard.failure().is_some()) {
                world.crash(0);
                world.boot(0, &[]).await;
            }
            tokio::time::sleep(SETTLING).await;
            let context = format!("{statement}: fault at {point}: {outcome:?}");
            assert_nothing_lost(world, &before, &context).await;
            is_over
        });
    }
}

#[test]
fn a_drop_whose_snapshot_cannot_be_taken_is_refused() {
    simulate(1, |world| async move {
        fill(&world).await;
        let before = rows_by_shard(&world);
        let disk = world.machine(0).disk.clone();
        // A flush asks for room first.
        disk.set_capacity_bytes(disk.used_bytes());
        let error = world.node(0).ddl("DROP TABLE ks.t").await.unwrap_err().to_string();
        assert!(error.contains("nothing was dropped") && error.contains("auto_snapshot"), "{error}");
        assert_eq!(rows_by_shard(&world), before);
        assert!(snapshots_by_shard(&world).await.values().all(Vec::is_empty));
        disk.set_capacity_bytes(u64::MAX);
        world.node(0).ddl("ALTER TABLE ks.t WITH allow_auto_snapshot = false").await.unwrap();
        world.node(0).ddl("DROP TABLE ks.t").await.unwrap();
        assert!(snapshots_by_shard(&world).await.values().all(Vec::is_empty), "the table wants none");
    });
}

#[test]
fn a_table_that_is_made_again_under_its_id_keeps_what_is_written_then() {
    let id = "11111111-2222-1333-8444-555555555555";
    let create = format!("CREATE TABLE ks.t (k int PRIMARY KEY, v text) WITH id = {id}");
    at_points(3, async move |world, point| {
        world.boot(0, &[]).await;
        world.node(0).ddl(KEYSPACE).await.unwrap();
        world.node(0).ddl(&create).await.unwrap();
        for key in 0..ROWS {
            insert(world, key).await.unwrap();
        }
        let disk = world.machine(0).disk.clone();
        disk.crash_at(disk.operations() + point);
        let mut written = Vec::new();
        if execute(world, "DROP TABLE ks.t").await.is_ok() && execute(world, &create).await.is_ok() {
            for key in 100..103 {
                if insert(world, key).await.is_ok() {
                    written.push(key);
                }
            }
        }
        let is_over = !disk.is_crashed();
        world.crash(0);
        for _ in 0..2 {
            world.boot(0, &[]).await;
            world.settle().await;
            if !written.is_empty() {
                let rows: u64 = rows_by_shard(world).values().sum();
                assert!((written.len()..=3).contains(&(rows as usize)), "crash at {point}: {rows} rows");
            }
            world.crash(0);
        }
        is_over
    });
}

#[test]
fn a_table_that_nothing_names_is_kept_and_reported() {
    simulate(1, |world| async move {
        fill(&world).await;
        // As a member is left that has made a table, acknowledged a write to it, and died before it stored the catalog.
        let stray = TableId([0x55; 16]);
        for context in world.machine(0).contexts() {
            context.shard.create_table(stray, TableOptions::default()).await.unwrap();
        }
        let shard = world.machine(0).context(1).unwrap().shard.clone();
        let mut row = RowBuilder::new();
        row.cell(EngineCell {
            column: 1,
            path: &[],
            timestamp: 1,
            kind: CellKind::Live,
            value: b"acknowledged",
        });
        let mut builder = MutationBuilder::new(stray, 5, b"key").unwrap();
        builder.row(&[2], &mut row);
        let position = shard.apply(&builder.build().view().unwrap()).unwrap();
        shard.durable(position).await.unwrap();
        drop(shard);
        for _ in 0..2 {
            world.crash(0);
            world.boot(0, &[]).await;
            world.settle().await;
            let first = world.machine(0).context(0).unwrap();
            let unknown = unknown_tables::find(&first).await.unwrap();
            assert_eq!(unknown.keys().collect::<Vec<_>>(), [&stray]);
            assert_eq!(unknown[&stray].row_versions, 1);
        }
    });
}

/// Starts the node as in production, and returns what it says if it refuses.
async fn try_to_boot(world: &World) -> Result<(), String> {
    let machine = world.machine(0);
    let begun = machine.boot(|contexts| async move {
        let failed = |message: String| StartError::Shard { shard: 0, message };
        start::start(&contexts[0], &[]).await.map(|_| ()).map_err(|error| failed(error.to_string()))
    });
    begun.await
}

#[test]
fn an_applied_state_that_is_missing_or_too_old_is_refused() {
    simulate(1, |world| async move {
        fill(&world).await;
        let copies = ["/data/catalog", "/data/catalog.copy"].map(PathBuf::from);
        let disk = world.machine(0).disk.clone();
        let old = disk.files();
        for number in 0..150 {
            world.node(0).ddl(&format!("ALTER TABLE ks.t WITH comment = '{number}'")).await.unwrap();
        }
        world.crash(0);
        let new = disk.files();
        let before = |path: &PathBuf| {
            path.starts_with("/data/shard-0/tables") || path.starts_with("/data/shard-1/tables")
        };
        let tables: Vec<PathBuf> = new.keys().filter(|path| before(path)).cloned().collect();
        for (contents, said) in [(None, "/data/catalog"), (Some(&old), "/data/catalog")] {
            for copy in &copies {
                disk.set_at_rest(copy, contents.map(|files| files[copy].as_slice()));
            }
            let error = try_to_boot(&world).await.unwrap_err();
            assert!(error.contains(said), "{error}");
            world.machine(0).crash(helenus_engine::io::CrashStyle::KeepAll);
            let files = disk.files();
            assert!(tables.iter().all(|path| files.contains_key(path)));
        }
        for copy in &copies {
            disk.set_at_rest(copy, Some(&new[copy]));
        }
        try_to_boot(&world).await.unwrap();
        world.settle().await;
        assert_eq!(rows_by_shard(&world).values().sum::<u64>(), ROWS);
    });
}

#[test]
fn a_founding_that_is_cut_anywhere_can_be_repeated() {
    at_points(7, async |world, point| {
        world.configure(0, |_| {});
        let disk = world.machine(0).disk.clone();
        disk.crash_at(point);
        let begun = tokio::time::timeout(SETTLING, try_to_boot(world)).await;
        let is_over = !disk.is_crashed();
        assert!(!is_over || matches!(begun, Ok(Ok(()))));
        world.crash(0);
        if disk.is_crashed() {
            disk.restart(helenus_engine::io::CrashStyle::LoseAll, point);
        }
        try_to_boot(world).await.unwrap_or_else(|error| panic!("crash at {point}: {error}"));
        world.node(0).ddl(KEYSPACE).await.unwrap();
        is_over
    });
}

#[test]
fn expired_snapshots_are_removed_and_others_stay() {
    simulate(1, |world| async move {
        world.configure(0, |config| config.auto_snapshot_ttl = Some("90s".parse().unwrap()));
        fill(&world).await;
        for context in world.machine(0).contexts() {
            snapshots::start(&context);
            context.shard.snapshot(table(&world).unwrap(), "mine", &[]).await.unwrap();
        }
        let names = async |world: &World| -> Vec<String> {
            let names: BTreeSet<_> = snapshots_by_shard(world).await.into_values().flatten().collect();
            names.into_iter().collect()
        };
        execute(&world, "TRUNCATE ks.t").await.unwrap();
        let taken = names(&world).await;
        assert!(snapshots_by_shard(&world).await.values().all(|names| names.len() == 2), "of both shards");
        assert!(taken.iter().any(|name| name.starts_with("truncated-") && name.ends_with("-t")), "{taken:?}");
        let first = world.machine(0).context(0).unwrap();
        let listed = snapshots::list(&first).await.unwrap();
        let truncated = listed.iter().find(|listed| listed.table == "t").unwrap();
        assert!(truncated.expires_at > truncated.created_at, "{truncated:?}");
        // Its tasks go on as long as it is held.
        drop(first);
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(names(&world).await, taken, "not yet");
        // A restart does not keep it either.
        world.crash(0);
        world.boot(0, &[]).await;
        for context in world.machine(0).contexts() {
            snapshots::start(&context);
        }
        let both = snapshots_by_shard(&world).await;
        assert!(both.values().all(|names| names.len() == 2), "a crash loses no snapshot: {both:?}");
        tokio::time::sleep(Duration::from_secs(121)).await;
        assert_eq!(names(&world).await, ["mine"]);
        let expired: u64 =
            world.machine(0).contexts().iter().map(|shard| shard.metrics.snapshots_expired.get()).sum();
        assert_eq!(expired, 2);
    });
}
