//! What changes in a table that views are computed of is found in its log.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_execution::coordinator::change_feed::confirmed::StreamsConfirmation;
use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::coordinator::views::wakes::Wakes;
use helenus_execution::shard::context::ShardContext;
use helenus_projector::changes::{Changed, ChangesReader, Entry, Generations, Window, touch};
use helenus_projector::internal_statement::{InternalStatement, was_applied};
use helenus_query::schema::catalog::Table;
use helenus_ring::change_feed::{ChangeFeed, Generation};

use super::cluster::{Cluster, with_view_log};

/// What a node finds that was written in a window.
async fn read(cluster: &Cluster, node: usize, window: Window, generations: Generations) -> Vec<Entry> {
    let context = cluster.nodes[node][0].clone();
    let base = cluster.table("three", "rows");
    let log = cluster.table("three", "rows$changes");
    let reading = async move {
        let reader = ChangesReader::new(&base, &log);
        let mut all = Vec::new();
        for slice in Slice::all() {
            let each = async |entries: Vec<Entry>| {
                assert!(entries.iter().all(|entry| slice.contains(entry.changed.key().token)));
                all.extend(entries);
                Ok(())
            };
            reader.read(&context, slice, window, generations, each).await.unwrap();
        }
        all
    };
    cluster.machine(node).run(reading).await.unwrap()
}

fn since(from_micros: i64) -> Window {
    // A time that timeuuids can have.
    Window { from_micros, until_micros: 4_000_000_000_000_000 }
}

fn now_micros(cluster: &Cluster) -> i64 {
    cluster.nodes[0][0].clock.now_micros()
}

/// Partition, kind, and the clustering columns of a row or of the bounds.
fn shown(entry: &Entry) -> String {
    let int = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().unwrap());
    let bound = |values: &[Vec<u8>]| values.iter().map(|value| int(value)).collect::<Vec<_>>();
    let key = int(&entry.changed.key().bytes);
    match &entry.changed {
        Changed::Row { clustering, .. } => {
            let clustering = clustering.iter().map(|value| int(value.as_deref().unwrap()));
            format!("{key} row {:?}", clustering.collect::<Vec<_>>())
        }
        Changed::Range { start, end, .. } => format!(
            "{key} range {:?} {} {:?} {}",
            bound(&start.clustering),
            start.is_inclusive,
            bound(&end.clustering),
            end.is_inclusive
        ),
        Changed::Partition { .. } => format!("{key} partition"),
        Changed::Static { .. } => format!("{key} static"),
    }
}

fn all_shown(entries: &[Entry]) -> BTreeSet<String> {
    entries.iter().map(shown).collect()
}

#[test]
fn every_kind_of_change_is_found_whoever_reads() {
    with_view_log(3, |cluster| async move {
        let begun = now_micros(&cluster);
        let statements = [
            "INSERT INTO three.rows (k, c, v) VALUES (1, 2, 3)",
            "UPDATE three.rows SET v = 4 WHERE k = 1 AND c = 3",
            "DELETE FROM three.rows WHERE k = 1 AND c = 4",
            "UPDATE three.rows SET s = 4 WHERE k = 2",
            "DELETE FROM three.rows WHERE k = 3 AND c > 1 AND c <= 5",
            "DELETE FROM three.rows WHERE k = 3 AND c < 0",
            "DELETE FROM three.rows WHERE k = 4",
            "INSERT INTO three.rows (k, c) VALUES (5, 1) IF NOT EXISTS",
            "BEGIN BATCH INSERT INTO three.rows (k, c) VALUES (6, 1); INSERT INTO three.rows (k, c) VALUES (7, 1); APPLY BATCH",
            // Of a table without views.
            "INSERT INTO three.t (k, v) VALUES (8, 1)",
        ];
        for (number, text) in statements.into_iter().enumerate() {
            cluster.execute(number % 3, text, Consistency::Quorum).await.unwrap();
        }
        let expected = [
            "1 row [2]",
            "1 row [3]",
            "1 row [4]",
            "2 static",
            "3 range [1] false [5] true",
            "3 range [] true [0] false",
            "4 partition",
            "5 row [1]",
            "6 row [1]",
            "7 row [1]",
        ];
        for node in 0..3 {
            for generations in [Generations::Active, Generations::All] {
                let found = read(&cluster, node, since(begun - 1_000_000), generations).await;
                assert_eq!(all_shown(&found), expected.map(str::to_owned).into(), "node {node}");
                assert_eq!(found.len(), expected.len(), "each once");
            }
        }
        let window = Window { from_micros: begun - 2_000_000, until_micros: begun - 1_000_000 };
        assert_eq!(read(&cluster, 0, window, Generations::Active).await, []);
    });
}

#[test]
fn more_entries_than_a_page_has_come_in_batches() {
    with_view_log(1, |cluster| async move {
        let begun = now_micros(&cluster);
        for chunk in 0..30 {
            let rows =
                (0..50).map(|row| format!("INSERT INTO three.rows (k, c) VALUES (1, {});", chunk * 50 + row));
            let batch = format!("BEGIN UNLOGGED BATCH {} APPLY BATCH", rows.collect::<String>());
            cluster.execute(0, &batch, Consistency::One).await.unwrap();
        }
        let found = read(&cluster, 0, since(begun), Generations::Active).await;
        assert_eq!((found.len(), all_shown(&found).len()), (1_500, 1_500));
    });
}

#[test]
fn a_change_that_comes_by_a_hint_is_found_behind_what_was_read() {
    with_view_log(3, |cluster| async move {
        cluster.set_alive(2, false);
        cluster.execute(0, "INSERT INTO three.rows (k, c) VALUES (1, 2)", Consistency::One).await.unwrap();
        cluster.pass(Duration::from_secs(20)).await;
        let read_to = now_micros(&cluster);
        cluster.set_alive(2, true);
        cluster.pass(Duration::from_secs(20)).await;
        assert_eq!(cluster.hinted_bytes(0, 2), 0);
        for node in 0..3 {
            let found = read(&cluster, node, since(read_to), Generations::Active).await;
            assert_eq!(all_shown(&found), ["1 row [2]".to_owned()].into(), "node {node}");
        }
        // The hint of an entry itself makes no further one.
        let later = now_micros(&cluster);
        cluster.pass(Duration::from_mins(1)).await;
        assert_eq!(read(&cluster, 0, since(later), Generations::Active).await, []);
    });
}

#[test]
fn rows_are_touched_without_a_change() {
    with_view_log(3, |cluster| async move {
        let begun = now_micros(&cluster);
        cluster
            .execute(0, "INSERT INTO three.rows (k, c, v) VALUES (1, 2, 3)", Consistency::All)
            .await
            .unwrap();
        let found = read(&cluster, 0, since(begun - 1_000_000), Generations::Active).await;
        let key = found[0].changed.key().clone();
        let later = now_micros(&cluster) + 1;
        cluster.pass(Duration::from_secs(1)).await;
        let context = cluster.nodes[1][0].clone();
        let (base, log) = (cluster.table("three", "rows"), cluster.table("three", "rows$changes"));
        let slice = Slice::of(key.token);
        let woken = context.clone();
        let waits = tokio::task::spawn_local(async move { Wakes::of(&woken).woken(slice).await });
        let row = [&[helenus_engine::key::REGULAR_TAG][..], &position_of(2, &base)].concat();
        let units = [(key.clone(), row), (key, Vec::new())];
        let touching = async move { touch(&context, &base, &log, &units).await };
        cluster.machine(1).run(touching).await.unwrap().unwrap();
        waits.await.unwrap();
        let found = read(&cluster, 2, since(later), Generations::Active).await;
        assert_eq!(all_shown(&found), ["1 row [2]", "1 partition"].map(str::to_owned).into());
        let rows = cluster.query(0, "SELECT v FROM three.rows", Consistency::All).await.unwrap();
        assert_eq!(rows.integers(), [[Some(3)]]);
    });
}

/// The encoding of an `int` in the position of a row.
fn position_of(value: i32, base: &Table) -> Vec<u8> {
    let column = &base.clustering_key()[0];
    let mut position = Vec::new();
    cql_lite::types::ordered::encode(
        &column.column_type,
        &value.to_be_bytes(),
        column.is_descending(),
        &mut position,
    )
    .unwrap();
    position
}

#[test]
fn a_replica_wakes_who_computes_views() {
    with_view_log(3, |cluster| async move {
        let wakes: Vec<_> = (0..3)
            .map(|node| {
                let context = cluster.nodes[node][0].clone();
                tokio::task::spawn_local(async move {
                    let any = Slice::all().map(|slice| Box::pin(Wakes::of(&context).woken(slice)));
                    futures::future::select_all(any).await;
                })
            })
            .collect();
        cluster.settle().await;
        assert!(wakes.iter().all(|waits| !waits.is_finished()));
        cluster.execute(0, "INSERT INTO three.rows (k, c) VALUES (1, 2)", Consistency::All).await.unwrap();
        for waits in wakes {
            waits.await.unwrap();
        }
    });
}

#[test]
fn an_entry_of_a_member_that_knows_only_an_older_generation_is_found() {
    with_view_log(3, |cluster| async move {
        let begun = now_micros(&cluster);
        let older = cluster.view();
        cluster.change_topology(|topology| {
            let members: Vec<_> = topology.members.values().cloned().collect();
            let mut generations: Vec<Generation> = Vec::from(topology.change_feed.clone());
            for ago in [3, 2, 1] {
                let time_ms = begun / 1_000 - ago;
                generations.push(Generation::of(time_ms, members.iter().map(AsRef::as_ref)));
            }
            topology.change_feed = ChangeFeed::from(generations);
        });
        cluster.show_all();
        cluster.install(0, &older);
        let confirmation = StreamsConfirmation::of(&cluster.nodes[0][0]);
        confirmation.confirm(Duration::ZERO, Duration::from_millis(10));
        cluster.pass(Duration::from_mins(1)).await;
        cluster.execute(0, "INSERT INTO three.rows (k, c) VALUES (1, 2)", Consistency::All).await.unwrap();
        let found = read(&cluster, 1, since(begun), Generations::Active).await;
        assert_eq!(found, [], "its stream is not active any more");
        let found = read(&cluster, 1, since(begun), Generations::All).await;
        assert_eq!(all_shown(&found), ["1 row [2]".to_owned()].into());
        // One that has just been started asks first.
        confirmation.expire();
        let refused =
            cluster.execute(0, "INSERT INTO three.rows (k, c) VALUES (1, 2)", Consistency::All).await;
        assert!(refused.is_err());
    });
}

#[test]
fn the_node_writes_and_decides_what_clients_may_not() {
    with_view_log(3, |cluster| async move {
        let context: Rc<ShardContext> = cluster.nodes[0][0].clone();
        let refused = cluster
            .execute(0, "DELETE FROM three.\"rows$changes\" WHERE \"cdc$stream_id\" = 0x00", Consistency::One)
            .await;
        assert!(refused.is_err());
        let working = async move {
            let int = |value: i32| Some(value.to_be_bytes().to_vec());
            let delete =
                InternalStatement::new("DELETE FROM three.\"rows$changes\" WHERE \"cdc$stream_id\" = ?");
            delete.write(&context, &[Some(vec![0])], Consistency::Quorum, None).await.unwrap();
            let insert = InternalStatement::new("INSERT INTO three.t (k, v) VALUES (?, ?)");
            insert.write(&context, &[int(1), int(2)], Consistency::Quorum, Some(77)).await.unwrap();
            let decide = InternalStatement::new("UPDATE three.t SET v = ? WHERE k = 1 IF v = ?");
            for (value, expected, is_applied) in [(3, 2, true), (4, 2, false)] {
                let values = [int(value), int(expected)];
                let outcome = decide.write(&context, &values, Consistency::Quorum, None).await.unwrap();
                assert_eq!(was_applied(&outcome).unwrap(), Some(is_applied));
            }
            let mut rows = Vec::new();
            let select = InternalStatement::new("SELECT k, v FROM three.t WHERE k = ?");
            let each = |row: &[Option<&[u8]>]| {
                rows.push(row.iter().map(|value| value.map(<[u8]>::to_vec)).collect::<Vec<_>>());
                Ok(std::ops::ControlFlow::Continue(()))
            };
            select.rows(&context, &[int(1)], Consistency::Serial, each).await.unwrap();
            assert_eq!(rows, [[int(1), int(3)]]);
        };
        cluster.machine(0).run(working).await.unwrap();
    });
}
