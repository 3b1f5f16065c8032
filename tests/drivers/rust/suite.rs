//! The Rust driver (crate `scylla`) against a server named by `CQL_HOST` and `CQL_PORT`.
//!
//! `SERVER_RESTART`, if set, is a command that restarts the server in place and returns when it serves again: so
//! the tests run one after the other (`--test-threads=1`). Each drops what an earlier run left.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::env;
use std::error::Error;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::ColumnKind;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::frame::Compression;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::Statement;
use scylla::statement::batch::{Batch, BatchType};
use scylla::value::{
    Counter, CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlValue, CqlVarint,
    MaybeUnset, Row,
};
use scylla::{DeserializeValue, SerializeValue};
use uuid::Uuid;

type TestResult = Result<(), Box<dyn Error>>;

const KEYSPACE: &str = "suite_rust";

fn builder() -> SessionBuilder {
    let host = env::var("CQL_HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let port = env::var("CQL_PORT").unwrap_or_else(|_| "9042".to_owned());
    let builder = SessionBuilder::new()
        .known_node(format!("{host}:{port}"))
        .schema_agreement_interval(Duration::from_millis(20))
        .connection_timeout(Duration::from_secs(10));
    crate::connection::secured(builder)
}

/// A session in the suite's keyspace, which is there afterwards.
async fn connect() -> Result<Session, Box<dyn Error>> {
    let session = builder().build().await?;
    run(
        &session,
        &format!(
            "CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} \
             WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        ),
    )
    .await?;
    session.use_keyspace(KEYSPACE, false).await?;
    Ok(session)
}

async fn run(session: &Session, cql: &str) -> TestResult {
    session.query_unpaged(cql, &[]).await.map_err(|error| format!("{cql}: {error}"))?;
    Ok(())
}

/// Creates a table anew: `definition` is what stands in the brackets and after them.
async fn table(session: &Session, name: &str, definition: &str) -> TestResult {
    run(session, &format!("DROP TABLE IF EXISTS {name}")).await?;
    run(session, &format!("CREATE TABLE {name} {definition}")).await
}

async fn ints(session: &Session, cql: &str) -> Result<Vec<i32>, Box<dyn Error>> {
    let rows = session.query_unpaged(cql, &[]).await?.into_rows_result()?;
    Ok(rows.rows::<(i32,)>()?.map(|row| row.map(|(value,)| value)).collect::<Result<_, _>>()?)
}

fn database_error(error: &ExecutionError) -> Option<&DbError> {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(error, _))
        | ExecutionError::PrepareError(PrepareError::AllAttemptsFailed {
            first_attempt: RequestAttemptError::DbError(error, _),
        }) => Some(error),
        _ => None,
    }
}

#[tokio::test]
async fn native_types() -> TestResult {
    let session = connect().await?;
    let values = [
        ("ascii", CqlValue::Ascii("plain".to_owned())),
        ("bigint", CqlValue::BigInt(i64::MIN)),
        ("blob", CqlValue::Blob(vec![0, 255, 16])),
        ("boolean", CqlValue::Boolean(true)),
        ("date", CqlValue::Date(CqlDate((1 << 31) - 1))),
        ("decimal", CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_and_exponent(vec![0xFE, 0, 7], 6))),
        ("double", CqlValue::Double(-2.5e300)),
        ("duration", CqlValue::Duration(CqlDuration { months: 14, days: 3, nanoseconds: 1_000_000_007 })),
        ("float", CqlValue::Float(0.5)),
        ("inet", CqlValue::Inet("2001:db8::7f".parse::<IpAddr>()?)),
        ("int", CqlValue::Int(i32::MIN)),
        ("smallint", CqlValue::SmallInt(i16::MIN)),
        ("text", CqlValue::Text("kremówki ☃".to_owned())),
        ("time", CqlValue::Time(CqlTime(86_399_999_999_999))),
        ("timestamp", CqlValue::Timestamp(CqlTimestamp(-1))),
        ("timeuuid", CqlValue::Timeuuid("30821634-13ad-11eb-adc1-0242ac120002".parse::<CqlTimeuuid>()?)),
        ("tinyint", CqlValue::TinyInt(i8::MIN)),
        ("uuid", CqlValue::Uuid("8a3f9f6e-6d8a-4f43-a5a0-1f9b3b7f6f11".parse::<Uuid>()?)),
        ("varint", CqlValue::Varint(CqlVarint::from_signed_bytes_be(vec![0x81; 20]))),
    ];
    let definitions: Vec<String> = values.iter().map(|(name, _)| format!("v_{name} {name}")).collect();
    let columns: Vec<String> = values.iter().map(|(name, _)| format!("v_{name}")).collect();
    let columns = columns.join(", ");
    table(&session, "native", &format!("(id int PRIMARY KEY, {})", definitions.join(", "))).await?;
    let marks = ", ?".repeat(values.len());
    let insert = session.prepare(format!("INSERT INTO native (id, {columns}) VALUES (?{marks})")).await?;
    let mut bound = vec![MaybeUnset::Set(Some(CqlValue::Int(1)))];
    bound.extend(values.iter().map(|(_, value)| MaybeUnset::Set(Some(value.clone()))));
    session.execute_unpaged(&insert, &bound).await?;
    bound = vec![MaybeUnset::Set(None); values.len() + 1];
    bound[0] = MaybeUnset::Set(Some(CqlValue::Int(2)));
    session.execute_unpaged(&insert, &bound).await?;
    bound = vec![MaybeUnset::Unset; values.len() + 1];
    bound[0] = MaybeUnset::Set(Some(CqlValue::Int(3)));
    session.execute_unpaged(&insert, &bound).await?;

    let select = session.prepare(format!("SELECT {columns} FROM native WHERE id = ?")).await?;
    let row = session.execute_unpaged(&select, (1,)).await?.into_rows_result()?.single_row::<Row>()?;
    for ((name, expected), actual) in values.iter().zip(&row.columns) {
        assert_eq!(actual.as_ref(), Some(expected), "{name}");
    }
    for id in [2, 3] {
        let row = session.execute_unpaged(&select, (id,)).await?.into_rows_result()?.single_row::<Row>()?;
        assert!(row.columns.iter().all(Option::is_none), "row {id}");
    }
    Ok(())
}

#[tokio::test]
async fn vector() -> TestResult {
    let session = connect().await?;
    table(&session, "vectors", "(id int PRIMARY KEY, v vector<float, 3>)").await?;
    session.query_unpaged("INSERT INTO vectors (id, v) VALUES (1, ?)", (vec![0.5_f32, -1.0, 2.25],)).await?;
    let rows = session.query_unpaged("SELECT v FROM vectors", &[]).await?.into_rows_result()?;
    assert_eq!(rows.single_row::<(Vec<f32>,)>()?.0, [0.5, -1.0, 2.25]);
    Ok(())
}

#[derive(Debug, Clone, PartialEq, SerializeValue, DeserializeValue)]
struct Address {
    street: String,
    number: Option<i32>,
    tags: BTreeSet<String>,
}

/// What is in the table of the next test.
type Nested = (
    Vec<i32>,
    BTreeSet<String>,
    HashMap<String, i64>,
    Vec<BTreeMap<i32, String>>,
    (i32, Option<String>, bool),
    Address,
);

#[tokio::test]
async fn collections_tuples_and_user_types() -> TestResult {
    let session = connect().await?;
    run(&session, "DROP TABLE IF EXISTS nested").await?;
    run(&session, "DROP TYPE IF EXISTS address").await?;
    run(&session, "CREATE TYPE address (street text, number int, tags frozen<set<text>>)").await?;
    table(
        &session,
        "nested",
        "(id int PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>, f frozen<list<frozen<map<int, text>>>>, \
         t tuple<int, text, boolean>, home frozen<address>)",
    )
    .await?;
    let list = vec![3, 1, 3];
    let set: BTreeSet<String> = ["x".to_owned(), "y".to_owned()].into();
    let map: HashMap<String, i64> = [("k".to_owned(), 1 << 40)].into();
    let nested: Vec<BTreeMap<i32, String>> = vec![[(1, "one".to_owned())].into(), BTreeMap::new()];
    let tuple = (7, None::<String>, true);
    let home = Address { street: "Main".to_owned(), number: None, tags: ["a".to_owned()].into() };
    let insert = "INSERT INTO nested (id, l, s, m, f, t, home) VALUES (1, ?, ?, ?, ?, ?, ?)";
    session.query_unpaged(insert, (&list, &set, &map, &nested, &tuple, &home)).await?;
    let rows =
        session.query_unpaged("SELECT l, s, m, f, t, home FROM nested", &[]).await?.into_rows_result()?;
    assert_eq!(rows.single_row::<Nested>()?, (list, set, map, nested, tuple, home));
    Ok(())
}

#[tokio::test]
async fn counters() -> TestResult {
    let session = connect().await?;
    table(&session, "counters", "(id int PRIMARY KEY, hits counter)").await?;
    let update = session.prepare("UPDATE counters SET hits = hits + ? WHERE id = 1").await?;
    for amount in [5, 7, -2] {
        session.execute_unpaged(&update, (Counter(amount),)).await?;
    }
    let mut batch = Batch::new(BatchType::Counter);
    batch.append_statement(update);
    session.batch(&batch, ((Counter(10),),)).await?;
    let rows = session.query_unpaged("SELECT hits FROM counters", &[]).await?.into_rows_result()?;
    assert_eq!(rows.single_row::<(Counter,)>()?.0, Counter(20));
    Ok(())
}

#[tokio::test]
async fn paging_returns_each_row_once() -> TestResult {
    let session = connect().await?;
    table(&session, "pages", "(p int, c int, PRIMARY KEY (p, c))").await?;
    let insert = session.prepare("INSERT INTO pages (p, c) VALUES (1, ?)").await?;
    for c in 0..95 {
        session.execute_unpaged(&insert, (c,)).await?;
    }
    let expected: Vec<i32> = (0..95).collect();
    let scan = Statement::new("SELECT c FROM pages").with_page_size(10);
    let stream = session.query_iter(scan.clone(), &[]).await?.rows_stream::<(i32,)>()?;
    assert_eq!(stream.map_ok(|(c,)| c).try_collect::<Vec<_>>().await?, expected);

    let select =
        session.prepare(Statement::new("SELECT c FROM pages WHERE p = ?").with_page_size(10)).await?;
    let (mut seen, mut state) = (Vec::new(), PagingState::start());
    loop {
        let (page, next) = session.execute_single_page(&select, (1,), state).await?;
        let page = page.into_rows_result()?;
        assert!(page.rows_num() <= 10);
        for row in page.rows::<(i32,)>()? {
            seen.push(row?.0);
        }
        match next {
            PagingStateResponse::HasMorePages { state: next } => state = next,
            PagingStateResponse::NoMorePages => break,
        }
    }
    assert_eq!(seen, expected);
    Ok(())
}

#[tokio::test]
async fn prepared_statements_know_their_partition_key() -> TestResult {
    let session = connect().await?;
    table(&session, "prepared", "(a int, b text, c int, PRIMARY KEY ((a, b), c))").await?;
    let insert = session.prepare("INSERT INTO prepared (c, b, a) VALUES (?, ?, ?)").await?;
    let names: Vec<&str> = insert
        .get_variable_col_specs()
        .iter()
        .map(scylla::frame::response::result::ColumnSpec::name)
        .collect();
    assert_eq!(names, ["c", "b", "a"]);
    // The token of (int 1, text 'a').
    let token = insert.calculate_token(&(9, "a", 1))?;
    assert_eq!(token.map(|token| token.value()), Some(6_516_349_416_904_725_244));
    session.execute_unpaged(&insert, (9, "a", 1)).await?;
    let rows = session.query_unpaged("SELECT token(a, b) FROM prepared", &[]).await?.into_rows_result()?;
    assert_eq!(rows.single_row::<(i64,)>()?.0, 6_516_349_416_904_725_244);
    Ok(())
}

#[tokio::test]
async fn batches() -> TestResult {
    let session = connect().await?;
    table(&session, "batches", "(p int, c int, PRIMARY KEY (p, c))").await?;
    let insert = session.prepare("INSERT INTO batches (p, c) VALUES (?, ?)").await?;
    for (c, kind) in [(1, BatchType::Logged), (2, BatchType::Unlogged)] {
        let mut batch = Batch::new(kind);
        batch.append_statement(insert.clone());
        batch.append_statement(insert.clone());
        batch.append_statement("INSERT INTO batches (p, c) VALUES (3, ?)");
        session.batch(&batch, ((1, c), (2, c), (c,))).await?;
    }
    assert_eq!(ints(&session, "SELECT c FROM batches").await?.len(), 6);
    Ok(())
}

#[tokio::test]
async fn lightweight_transactions() -> TestResult {
    let session = connect().await?;
    table(&session, "accounts", "(id int PRIMARY KEY, owner text)").await?;
    let insert = session.prepare("INSERT INTO accounts (id, owner) VALUES (1, ?) IF NOT EXISTS").await?;
    let first = session.execute_unpaged(&insert, ("ann",)).await?.into_rows_result()?;
    assert_eq!(first.first_row::<Row>()?.columns.first(), Some(&Some(CqlValue::Boolean(true))));
    let second = session.execute_unpaged(&insert, ("bob",)).await?.into_rows_result()?;
    let names: Vec<&str> =
        second.column_specs().iter().map(scylla::frame::response::result::ColumnSpec::name).collect();
    assert_eq!(names, ["[applied]", "id", "owner"]);
    assert_eq!(second.single_row::<(bool, i32, String)>()?, (false, 1, "ann".to_owned()));
    Ok(())
}

#[tokio::test]
async fn errors() -> TestResult {
    let session = connect().await?;
    table(&session, "twice", "(id int PRIMARY KEY)").await?;
    let refused = async |cql: &str| session.query_unpaged(cql, &[]).await.err();
    let error = refused("SELEC 1").await.ok_or("accepted")?;
    assert!(matches!(database_error(&error), Some(DbError::SyntaxError)), "{error}");
    let error = refused("SELECT * FROM missing_table").await.ok_or("accepted")?;
    assert!(matches!(database_error(&error), Some(DbError::Invalid)), "{error}");
    let error =
        refused("CREATE KEYSPACE bad WITH replication = {'class': 'Nonsense'}").await.ok_or("accepted")?;
    assert!(matches!(database_error(&error), Some(DbError::ConfigError)), "{error}");
    let error = refused("CREATE TABLE twice (id int PRIMARY KEY)").await.ok_or("accepted")?;
    let Some(DbError::AlreadyExists { keyspace, table }) = database_error(&error) else {
        return Err(error.into());
    };
    assert_eq!((keyspace.as_str(), table.as_str()), (KEYSPACE, "twice"));
    assert!(ints(&session, "SELECT id FROM twice").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn unprepared_statements_are_prepared_again() -> TestResult {
    let session = connect().await?;
    table(&session, "healed", "(id int PRIMARY KEY, v int)").await?;
    let insert = session.prepare("INSERT INTO healed (id, v) VALUES (?, ?)").await?;
    session.execute_unpaged(&insert, (1, 1)).await?;
    table(&session, "healed", "(id int PRIMARY KEY, v int)").await?;
    session.execute_unpaged(&insert, (2, 2)).await?;
    assert_eq!(ints(&session, "SELECT id FROM healed").await?, [2]);
    Ok(())
}

#[tokio::test]
async fn schema_metadata() -> TestResult {
    let session = connect().await?;
    run(&session, "DROP TYPE IF EXISTS pair").await?;
    run(&session, "CREATE TYPE pair (first int, second frozen<list<text>>)").await?;
    table(
        &session,
        "described",
        "(a int, b text, c timeuuid, d int, s text static, v list<int>, PRIMARY KEY ((a, b), c, d)) \
         WITH CLUSTERING ORDER BY (c DESC, d ASC)",
    )
    .await?;
    session.await_schema_agreement().await?;
    session.refresh_metadata().await?;
    let state = session.get_cluster_state();
    assert_eq!(state.get_nodes_info().len(), 1);
    let keyspace = state.get_keyspace(KEYSPACE).ok_or("the keyspace is not in the metadata")?;
    let described = keyspace.tables.get("described").ok_or("the table is not in the metadata")?;
    assert_eq!(described.partition_key, ["a", "b"]);
    assert_eq!(described.clustering_key, ["c", "d"]);
    assert_eq!(described.columns.get("s").map(|column| column.kind.clone()), Some(ColumnKind::Static));
    assert!(keyspace.user_defined_types.contains_key("pair"));
    Ok(())
}

#[tokio::test]
async fn compression() -> TestResult {
    let session = connect().await?;
    table(&session, "versions", "(id int PRIMARY KEY, v text)").await?;
    let large = "0123456789abcdef".repeat(30_000);
    for compression in [None, Some(Compression::Lz4), Some(Compression::Snappy)] {
        let own = builder().use_keyspace(KEYSPACE, false).compression(compression).build().await?;
        own.query_unpaged("INSERT INTO versions (id, v) VALUES (1, ?)", (&large,)).await?;
        let rows = own.query_unpaged("SELECT v FROM versions WHERE id = 1", &[]).await?.into_rows_result()?;
        assert_eq!(rows.single_row::<(String,)>()?.0, large, "{compression:?}");
    }
    Ok(())
}

#[tokio::test]
async fn tracing() -> TestResult {
    let session = connect().await?;
    table(&session, "traced", "(id int PRIMARY KEY)").await?;
    let mut select = Statement::new("SELECT * FROM traced");
    select.set_tracing(true);
    let id = session.query_unpaged(select, &[]).await?.tracing_id().ok_or("no tracing id")?;
    let trace = session.get_tracing_info(&id).await?;
    assert!(trace.duration.is_some() && !trace.events.is_empty());
    Ok(())
}

#[tokio::test]
async fn reconnects_after_a_restart() -> TestResult {
    let Ok(restart) = env::var("SERVER_RESTART") else {
        return Ok(());
    };
    let session = connect().await?;
    table(&session, "survivors", "(id int PRIMARY KEY, v text)").await?;
    let insert = session.prepare("INSERT INTO survivors (id, v) VALUES (?, ?)").await?;
    session.execute_unpaged(&insert, (1, "before")).await?;
    let status = tokio::process::Command::new("sh").arg("-c").arg(restart).status().await?;
    assert!(status.success());
    let end = Instant::now() + Duration::from_secs(30);
    while let Err(error) = session.execute_unpaged(&insert, (2, "after")).await {
        assert!(Instant::now() < end, "no request succeeded within 30 s of the restart: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut ids = ints(&session, "SELECT id FROM survivors").await?;
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
    Ok(())
}
