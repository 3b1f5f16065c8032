//! The library `scylla-cdc`, as it is, against the change feed of a server named by `CQL_HOST` and `CQL_PORT`.
//!
//! Each test has a table of its own, and drops what an earlier run left.

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::value::CqlValue;
use scylla_cdc::checkpoints::TableBackedCheckpointSaver;
use scylla_cdc::consumer::{CDCRow, Consumer, ConsumerFactory, OperationType};
use scylla_cdc::log_reader::{CDCLogReader, CDCLogReaderBuilder};

type TestResult = Result<(), Box<dyn Error>>;

const KEYSPACE: &str = "suite_rust_cdc";
const PARTITIONS: i32 = 8;
/// How old changes are when they are read, and how often they are looked for.
const SAFETY_INTERVAL: Duration = Duration::from_secs(2);
const SLEEP_INTERVAL: Duration = Duration::from_millis(100);

/// The statements that every partition gets, `{p}` is the partition, and what the feed has of each.
const WORKLOAD: [(&str, &[&str]); 16] = [
    ("INSERT INTO {t} (p, c, v, n) VALUES ({p}, 1, 'a', 1)", &["RowInsert c=1 v='a' n=1"]),
    ("UPDATE {t} SET n = 2 WHERE p = {p} AND c = 1", &["RowUpdate c=1 n=2"]),
    ("UPDATE {t} SET tags = tags + {'x', 'y'} WHERE p = {p} AND c = 1", &["RowUpdate c=1 tags+{'x','y'}"]),
    ("UPDATE {t} SET tags = tags - {'x'} WHERE p = {p} AND c = 1", &["RowUpdate c=1 tags-{'x'}"]),
    ("UPDATE {t} SET tags = {'z'} WHERE p = {p} AND c = 1", &["RowUpdate c=1 tags={'z'}"]),
    ("UPDATE {t} SET attrs['k'] = 7 WHERE p = {p} AND c = 1", &["RowUpdate c=1 attrs+{'k':7}"]),
    ("DELETE attrs['k'] FROM {t} WHERE p = {p} AND c = 1", &["RowUpdate c=1 attrs-{'k'}"]),
    ("UPDATE {t} SET items = items + [5, 6] WHERE p = {p} AND c = 1", &["RowUpdate c=1 items+2"]),
    ("DELETE v FROM {t} WHERE p = {p} AND c = 1", &["RowUpdate c=1 v deleted"]),
    ("UPDATE {t} USING TTL 1000 SET n = 3 WHERE p = {p} AND c = 1", &["RowUpdate c=1 n=3 ttl=1000"]),
    ("UPDATE {t} SET s = 9 WHERE p = {p}", &["RowUpdate s=9"]),
    ("INSERT INTO {t} (p, c, v) VALUES ({p}, 2, 'b') IF NOT EXISTS", &["RowInsert c=2 v='b'"]),
    (
        "BEGIN BATCH INSERT INTO {t} (p, c, v) VALUES ({p}, 3, 'c'); \
         INSERT INTO {t} (p, c, v) VALUES ({p}, 4, 'd'); APPLY BATCH",
        &["RowInsert c=3 v='c'", "RowInsert c=4 v='d'"],
    ),
    ("DELETE FROM {t} WHERE p = {p} AND c = 2", &["RowDelete c=2"]),
    (
        "DELETE FROM {t} WHERE p = {p} AND c >= 3 AND c < 5",
        &["RowRangeDelInclLeft c=3", "RowRangeDelExclRight c=5"],
    ),
    ("DELETE FROM {t} WHERE p = {p}", &["PartitionDelete"]),
];

async fn connect() -> Result<Arc<Session>, Box<dyn Error>> {
    let host = env::var("CQL_HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let port = env::var("CQL_PORT").unwrap_or_else(|_| "9042".to_owned());
    let session = SessionBuilder::new()
        .known_node(format!("{host}:{port}"))
        .schema_agreement_interval(Duration::from_millis(20))
        .connection_timeout(Duration::from_secs(10))
        .build()
        .await?;
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
    run(&session, &format!("CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {replication}"))
        .await?;
    Ok(Arc::new(session))
}

async fn run(session: &Session, cql: &str) -> TestResult {
    session.query_unpaged(cql, &[]).await.map_err(|error| format!("{cql}: {error}"))?;
    Ok(())
}

/// Creates a table anew, whose feed has images.
async fn table(session: &Session, name: &str) -> TestResult {
    run(session, &format!("DROP TABLE IF EXISTS {KEYSPACE}.{name}")).await?;
    run(
        session,
        &format!(
            "CREATE TABLE {KEYSPACE}.{name} (p int, c int, v text, n int, s int static, tags set<text>, \
             attrs map<text, int>, items list<int>, PRIMARY KEY (p, c)) \
             WITH cdc = {{'enabled': true, 'preimage': true, 'postimage': true}}"
        ),
    )
    .await
}

/// A row of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    stream: String,
    time: u128,
    number: i32,
    is_last: bool,
    operation: OperationType,
    partition: i32,
    text: String,
}

fn value_text(value: &CqlValue) -> String {
    let joined = |values: &[CqlValue]| values.iter().map(value_text).collect::<Vec<_>>().join(",");
    match value {
        CqlValue::Int(number) => number.to_string(),
        CqlValue::Text(text) => format!("'{text}'"),
        CqlValue::Set(elements) | CqlValue::List(elements) => format!("{{{}}}", joined(elements)),
        CqlValue::Map(entries) => {
            let entries =
                entries.iter().map(|(key, value)| format!("{}:{}", value_text(key), value_text(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        other => format!("{other:?}"),
    }
}

/// What a row of the feed says.
fn describe(row: &CDCRow<'_>) -> String {
    let mut parts = vec![row.operation.to_string()];
    if let Some(value) = row.get_value("c") {
        parts.push(format!("c={}", value_text(value)));
    }
    for name in ["v", "n", "s", "tags", "attrs", "items"] {
        let is_deleted = row.is_value_deleted(name);
        let is_collection = row.collection_exists(name);
        match row.get_value(name) {
            // The keys of a list are the times of its elements.
            Some(CqlValue::Map(elements)) if name == "items" => {
                parts.push(format!("{name}+{}", elements.len()));
            }
            Some(value) if is_collection && !is_deleted => {
                parts.push(format!("{name}+{}", value_text(value)));
            }
            Some(value) => parts.push(format!("{name}={}", value_text(value))),
            None if is_deleted => parts.push(format!("{name} deleted")),
            None => {}
        }
        if is_collection && !row.get_deleted_elements(name).is_empty() {
            parts.push(format!(
                "{name}-{}",
                value_text(&CqlValue::Set(row.get_deleted_elements(name).to_vec()))
            ));
        }
    }
    if let Some(ttl) = row.ttl {
        parts.push(format!("ttl={ttl}"));
    }
    parts.join(" ")
}

/// What was consumed, in the order in which it came.
type Consumed = Arc<Mutex<Vec<Entry>>>;

struct Collector(Consumed);

#[async_trait]
impl Consumer for Collector {
    async fn consume_cdc(&mut self, row: CDCRow<'_>) -> anyhow::Result<()> {
        let Some(CqlValue::Int(partition)) = row.get_value("p") else {
            anyhow::bail!("a row without its key")
        };
        let (seconds, nanoseconds) = row.time.get_timestamp().map_or((0, 0), |time| time.to_unix());
        let entry = Entry {
            stream: row.stream_id.to_string(),
            time: u128::from(seconds) * 1_000_000_000 + u128::from(nanoseconds),
            number: row.batch_seq_no,
            is_last: row.end_of_batch,
            operation: row.operation.clone(),
            partition: *partition,
            text: describe(&row),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
        Ok(())
    }
}

struct Factory(Consumed);

#[async_trait]
impl ConsumerFactory for Factory {
    async fn new_consumer(&self) -> Box<dyn Consumer> {
        Box::new(Collector(Arc::clone(&self.0)))
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A reader that is under way.
struct Reading {
    reader: CDCLogReader,
    handle: futures::future::RemoteHandle<anyhow::Result<()>>,
    consumed: Consumed,
}

impl Reading {
    async fn start(
        session: &Arc<Session>,
        name: &str,
        start: Duration,
        saver: Option<Arc<TableBackedCheckpointSaver>>,
    ) -> Result<Self, Box<dyn Error>> {
        let consumed = Consumed::default();
        let mut builder = CDCLogReaderBuilder::new()
            .session(Arc::clone(session))
            .keyspace(KEYSPACE)
            .table_name(name)
            .start_timestamp(start)
            .safety_interval(SAFETY_INTERVAL)
            .sleep_interval(SLEEP_INTERVAL)
            .window_size(Duration::from_secs(10))
            .consumer_factory(Arc::new(Factory(Arc::clone(&consumed))));
        if let Some(saver) = saver {
            builder = builder
                .should_load_progress(true)
                .should_save_progress(true)
                .pause_between_saves(SLEEP_INTERVAL)
                .checkpoint_saver(saver);
        }
        let (reader, handle) = builder.build().await?;
        Ok(Self { reader, handle, consumed })
    }

    /// Reads on until what was written up to `until` is consumed; returns that.
    async fn finish(mut self, until: Duration) -> Result<Vec<Entry>, Box<dyn Error>> {
        self.reader.stop_at(until);
        tokio::time::timeout(Duration::from_mins(1), self.handle).await??;
        let consumed = self.consumed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(consumed.clone())
    }
}

/// Every group is whole, streams are in order, and each partition has one.
fn check(entries: &[Entry]) {
    let mut streams: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    let mut of_partitions: BTreeMap<i32, &str> = BTreeMap::new();
    for entry in entries {
        streams.entry(&entry.stream).or_default().push(entry);
        let stream = of_partitions.entry(entry.partition).or_insert(&entry.stream);
        assert_eq!(*stream, entry.stream, "partition {} is in two streams", entry.partition);
    }
    for entries in streams.values() {
        for group in entries.chunk_by(|one, next| one.time == next.time) {
            let numbers: Vec<i32> = group.iter().map(|entry| entry.number).collect();
            assert_eq!(numbers, (0..group.len() as i32).collect::<Vec<_>>(), "{group:?}");
            let ends: Vec<bool> = group.iter().map(|entry| entry.is_last).collect();
            let last_only: Vec<bool> = (1..=group.len()).map(|place| place == group.len()).collect();
            assert_eq!(ends, last_only, "{group:?}");
        }
        assert!(entries.is_sorted_by_key(|entry| (entry.time, entry.number)), "{entries:?}");
    }
}

/// The texts of what is no image, by partition.
fn deltas(entries: &[Entry]) -> BTreeMap<i32, Vec<String>> {
    let mut found: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    for entry in entries {
        if !matches!(entry.operation, OperationType::PreImage | OperationType::PostImage) {
            found.entry(entry.partition).or_default().push(entry.text.clone());
        }
    }
    found
}

#[tokio::test]
async fn every_change_arrives_once_and_in_order() -> TestResult {
    let session = connect().await?;
    let start = now();
    table(&session, "changes").await?;
    let reading = Reading::start(&session, "changes", start, None).await?;
    let mut expected = BTreeMap::new();
    for partition in 0..PARTITIONS {
        let mut of_partition = Vec::new();
        for (statement, texts) in WORKLOAD {
            let statement = statement.replace("{t}", &format!("{KEYSPACE}.changes"));
            run(&session, &statement.replace("{p}", &partition.to_string())).await?;
            of_partition.extend(texts.iter().map(|text| (*text).to_owned()));
        }
        expected.insert(partition, of_partition);
    }
    let entries = reading.finish(now()).await?;
    check(&entries);
    assert_eq!(deltas(&entries), expected);
    Ok(())
}

#[tokio::test]
async fn images_are_those_of_the_row() -> TestResult {
    let session = connect().await?;
    let start = now();
    table(&session, "images").await?;
    let reading = Reading::start(&session, "images", start, None).await?;
    let table = format!("{KEYSPACE}.images");
    run(&session, &format!("INSERT INTO {table} (p, c, v, n) VALUES (1, 1, 'a', 1)")).await?;
    run(&session, &format!("UPDATE {table} SET n = 2 WHERE p = 1 AND c = 1")).await?;
    let entries = reading.finish(now()).await?;
    check(&entries);
    let of = |operation: &OperationType| {
        let images = entries.iter().filter(|entry| entry.operation == *operation);
        images.map(|entry| entry.text.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of(&OperationType::PreImage), ["PreImage c=1 n=1"]);
    let after = of(&OperationType::PostImage);
    assert_eq!(after.len(), 2, "{after:?}");
    assert!(after[0].starts_with("PostImage c=1 v='a' n=1"), "{after:?}");
    assert!(after[1].starts_with("PostImage c=1 v='a' n=2"), "{after:?}");
    Ok(())
}

#[tokio::test]
async fn a_consumer_goes_on_from_its_checkpoint() -> TestResult {
    let session = connect().await?;
    let start = now();
    table(&session, "checkpoints").await?;
    run(&session, &format!("DROP TABLE IF EXISTS {KEYSPACE}.saved_checkpoints")).await?;
    for half in 0..2 {
        let saver = TableBackedCheckpointSaver::new_with_default_ttl(
            Arc::clone(&session),
            KEYSPACE,
            "saved_checkpoints",
        );
        let reading = Reading::start(&session, "checkpoints", start, Some(Arc::new(saver.await?))).await?;
        let mut expected: BTreeMap<i32, Vec<String>> = BTreeMap::new();
        for row in half * 40..(half + 1) * 40 {
            let partition = row % PARTITIONS;
            let table = format!("{KEYSPACE}.checkpoints");
            run(&session, &format!("INSERT INTO {table} (p, c, n) VALUES ({partition}, {row}, {row})"))
                .await?;
            expected.entry(partition).or_default().push(format!("RowInsert c={row} n={row}"));
        }
        // Checkpoints are saved meanwhile: those of the end are behind the last change.
        let entries = reading.finish(now() + Duration::from_secs(2)).await?;
        check(&entries);
        assert_eq!(deltas(&entries), expected, "half {half}");
    }
    Ok(())
}

/// A read that fails for good ends the reader, with the words of the server.
#[tokio::test]
async fn the_end_of_a_feed_is_an_error() -> TestResult {
    let session = connect().await?;
    let start = now();
    table(&session, "dropped").await?;
    let reading = Reading::start(&session, "dropped", start, None).await?;
    run(&session, &format!("INSERT INTO {KEYSPACE}.dropped (p, c) VALUES (1, 1)")).await?;
    tokio::time::timeout(Duration::from_secs(30), async {
        while reading.consumed.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            tokio::time::sleep(SLEEP_INTERVAL).await;
        }
    })
    .await?;
    run(&session, &format!("DROP TABLE {KEYSPACE}.dropped")).await?;
    assert!(tokio::time::timeout(Duration::from_mins(1), reading.handle).await?.is_err());
    Ok(())
}
