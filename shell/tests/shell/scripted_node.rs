//! A node that speaks the protocol and answers a fixed set of statements, for tests of the shell.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use bytes::BytesMut;
use cql_lite::{
    frame::{
        ColumnSpec, ColumnsMetadata, Decoder, ErrorKind, ErrorResponse, Execute, Prefix, ProtocolVersion,
        Query, QueryParameters, Request, Role, RowsWriter, Value as Bound, decode_request, response,
        response::Prepared, rows::SendMetadata,
    },
    types::{CqlType, Value, literal, timeuuid},
};

const V4: ProtocolVersion = ProtocolVersion::V4;
const BODY_BYTES_MAX: usize = 1 << 20;
const NO_PREFIX: Prefix<'static> = Prefix { tracing_id: None, warnings: &[], custom_payload: &[] };

#[derive(Default)]
struct Log {
    requests: Vec<String>,
    inserted: Vec<String>,
}

/// A node on a free port of the loopback interface. Its threads end with the test process.
pub struct ScriptedNode {
    port: u16,
    log: Arc<Mutex<Log>>,
}

impl ScriptedNode {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Mutex::new(Log::default()));
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = Arc::clone(&shared);
                // A client that goes away ends its thread with an error, which is as it should be.
                thread::spawn(move || serve(stream, &log));
            }
        });
        Self { port, log }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The statements that were not prepared, with consistency and page size.
    pub fn requests(&self) -> Vec<String> {
        self.log.lock().unwrap().requests.clone()
    }

    /// The values of executed INSERTs, in hex.
    pub fn inserted(&self) -> Vec<String> {
        self.log.lock().unwrap().inserted.clone()
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Log>) -> io::Result<()> {
    let mut decoder = Decoder::new(Role::Server, BODY_BYTES_MAX);
    let (mut input, mut output, mut chunk) = (BytesMut::new(), BytesMut::new(), [0; 4096]);
    loop {
        while let Some(envelope) = decoder.next(&mut input).unwrap() {
            let decoded = decode_request(&envelope.header, envelope.body, false).unwrap();
            answer(&mut output, envelope.header.stream, &decoded.request, log);
        }
        stream.write_all(&output)?;
        output.clear();
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        input.extend_from_slice(&chunk[..length]);
    }
}

fn answer(out: &mut BytesMut, stream: i16, request: &Request<'_>, log: &Mutex<Log>) {
    match request {
        Request::Options => {
            let options = [
                ("CQL_VERSION".to_owned(), vec!["3.4.7".to_owned()]),
                ("COMPRESSION".to_owned(), Vec::new()),
            ];
            response::encode_supported(out, V4, stream, &options);
        }
        Request::Startup(_) | Request::Register(_) => response::encode_ready(out, V4, stream),
        Request::Prepare(prepare) => match table(prepare.statement) {
            Some(table) => {
                let result = (!table.columns.is_empty()).then(|| metadata(&table.columns));
                let bind = metadata(&table.bound);
                let prepared = Prepared {
                    // The text itself serves as the id.
                    id: prepare.statement.as_bytes(),
                    result_metadata_id: None,
                    bind: &bind,
                    bind_flags: 0,
                    partition_key_indexes: &[],
                    result: result.as_ref(),
                };
                response::encode_prepared(out, V4, stream, &prepared, &NO_PREFIX);
            }
            None => error(out, stream, ErrorKind::Invalid, "unconfigured table"),
        },
        Request::Execute(Execute { id, parameters, .. }) => {
            let statement = std::str::from_utf8(id).unwrap();
            if statement.starts_with("INSERT") {
                let values = parameters.values.iter().map(|value| match value {
                    Bound::Bytes(bytes) => literal::format_hex(bytes),
                    _ => "null".to_owned(),
                });
                log.lock().unwrap().inserted.push(values.collect::<Vec<_>>().join(" "));
                response::encode_void(out, V4, stream, &NO_PREFIX);
            } else {
                send_rows(out, stream, &table(statement).unwrap(), parameters);
            }
        }
        Request::Query(Query { statement, parameters }) => {
            let page_size = parameters.page_size.unwrap_or(0);
            let entry = format!("{statement} [{}, {page_size}]", parameters.consistency);
            log.lock().unwrap().requests.push(entry);
            if let Some(keyspace) = statement.strip_prefix("USE ") {
                response::encode_set_keyspace(out, V4, stream, keyspace.trim_matches('"'), &NO_PREFIX);
            } else if statement.starts_with("TRUNCATE") {
                response::encode_void(out, V4, stream, &NO_PREFIX);
            } else if let Some(table) = table(statement) {
                send_rows(out, stream, &table, parameters);
            } else {
                error(out, stream, ErrorKind::Syntax, "line 1:0 no viable alternative");
            }
        }
        _ => error(out, stream, ErrorKind::Protocol, "not in the script"),
    }
}

fn error(out: &mut BytesMut, stream: i16, kind: ErrorKind, message: &str) {
    response::encode_error(out, V4, stream, &ErrorResponse::new(kind, message), &NO_PREFIX);
}

/// Sends one row a page, so that paging is always exercised.
fn send_rows(out: &mut BytesMut, stream: i16, table: &Table, parameters: &QueryParameters<'_>) {
    let row_index = parameters.paging_state.map_or(0, |state| usize::from(state[0]));
    let mut rows = RowsWriter::begin(out, V4, stream, &metadata(&table.columns), SendMetadata::Full);
    let row = table.rows.get(row_index);
    for ((_, cql_type), cell) in table.columns.iter().zip(row.into_iter().flatten()) {
        rows.write_value(cell.as_ref().map(|value| value.encode(cql_type)).as_deref());
    }
    let next = [row_index as u8 + 1];
    let has_more = row_index + 1 < table.rows.len();
    rows.finish(i32::from(row.is_some()), has_more.then_some(&next[..]), &NO_PREFIX);
}

fn metadata(columns: &[(&'static str, CqlType)]) -> ColumnsMetadata {
    let specs: Vec<_> = columns
        .iter()
        .map(|(name, cql_type)| ColumnSpec { keyspace: "demo", table: "people", name, cql_type })
        .collect();
    ColumnsMetadata::new(V4, &specs)
}

struct Table {
    columns: Vec<(&'static str, CqlType)>,
    rows: Vec<Vec<Option<Value>>>,
    /// The bind variables of a statement that writes.
    bound: Vec<(&'static str, CqlType)>,
}

#[allow(clippy::unnecessary_wraps, reason = "cells are nullable")]
fn text(value: &str) -> Option<Value> {
    Some(Value::Text(value.to_owned()))
}

/// Columns that may be selected, with their values in each row.
type Columns = Vec<(&'static str, CqlType, Vec<Option<Value>>)>;

/// Two changes of `people`, in streams whose order is not that of time. All lie in a span without a beginning.
fn change_feed(statement: &str) -> Columns {
    let is_first = !statement.contains(">=");
    let of =
        |first: Option<Value>, second: Option<Value>| if is_first { vec![first, second] } else { vec![] };
    let time = |micros| Some(Value::Timeuuid(timeuuid::from_micros(micros, 0, 0, [0; 6])));
    vec![
        ("cdc$stream_id", CqlType::Blob, of(Some(Value::Blob(vec![1])), Some(Value::Blob(vec![2])))),
        ("cdc$time", CqlType::Timeuuid, of(time(3_000_000), time(2_000_000))),
        ("cdc$batch_seq_no", CqlType::Int, of(Some(Value::Int(0)), Some(Value::Int(0)))),
        ("cdc$deleted_name", CqlType::Boolean, of(Some(Value::Boolean(true)), None)),
        ("cdc$operation", CqlType::Tinyint, of(Some(Value::Tinyint(1)), Some(Value::Tinyint(2)))),
        ("cdc$ttl", CqlType::Bigint, of(None, Some(Value::Bigint(60)))),
        ("id", CqlType::Int, of(Some(Value::Int(1)), Some(Value::Int(2)))),
        ("name", CqlType::Text, of(None, text("Bob"))),
    ]
}

/// The columns and rows that a statement returns; `None`: there is no such table.
fn table(statement: &str) -> Option<Table> {
    let people = || vec![("id", CqlType::Int), ("name", CqlType::Text)];
    if statement.starts_with("INSERT INTO demo.people") {
        return Some(Table { columns: Vec::new(), rows: Vec::new(), bound: people() });
    }
    if statement.starts_with("DESC") {
        let create = text("CREATE TABLE demo.people (id int PRIMARY KEY);");
        let columns = ["keyspace_name", "type", "name", "create_statement"].map(|name| (name, CqlType::Text));
        let row = vec![text("demo"), text("table"), text("people"), create];
        return Some(Table { columns: columns.into(), rows: vec![row], bound: Vec::new() });
    }
    let (selected, rest) = statement.strip_prefix("SELECT ")?.split_once(" FROM ")?;
    let name = rest.split([' ', ';']).next()?;
    let host_id = uuid::Uuid::from_u128(1);
    let all: Columns = match name {
        "system.local" | "system.peers" => {
            let tokens = CqlType::set(CqlType::Text, false);
            let columns = vec![
                ("host_id", CqlType::Uuid, Some(Value::Uuid(host_id))),
                ("rpc_address", CqlType::Inet, Some(Value::Inet(IpAddr::V4(Ipv4Addr::LOCALHOST)))),
                ("data_center", CqlType::Text, text("dc1")),
                ("rack", CqlType::Text, text("rack1")),
                ("tokens", tokens, Some(Value::Set(vec![Value::Text("0".to_owned())]))),
                ("cluster_name", CqlType::Text, text("scripted")),
                ("release_version", CqlType::Text, text("5.0.0")),
                ("cql_version", CqlType::Text, text("3.4.7")),
                ("schema_version", CqlType::Uuid, Some(Value::Uuid(host_id))),
                ("now", CqlType::Bigint, Some(Value::Bigint(100_000_000))),
            ];
            let is_local = name == "system.local";
            columns
                .into_iter()
                .map(|(n, t, value)| (n, t, if is_local { vec![value] } else { vec![] }))
                .collect()
        }
        "system_schema.columns" => vec![
            ("keyspace_name", CqlType::Text, vec![text("demo"), text("demo")]),
            ("table_name", CqlType::Text, vec![text("people"), text("people")]),
            ("column_name", CqlType::Text, vec![text("name"), text("id")]),
            ("kind", CqlType::Text, vec![text("regular"), text("partition_key")]),
            ("position", CqlType::Int, vec![Some(Value::Int(-1)), Some(Value::Int(0))]),
            ("type", CqlType::Text, vec![text("text"), text("int")]),
            ("clustering_order", CqlType::Text, vec![text("none"), text("none")]),
        ],
        "system_schema.tables" => {
            let named = |name: &&str| statement.contains(&format!("'{name}'"));
            let names = ["people", "people_scylla_cdc_log", "plain"].into_iter().filter(named);
            vec![("table_name", CqlType::Text, names.map(text).collect())]
        }
        "system_schema.scylla_tables" => {
            let enabled = Value::Map(vec![(Value::Text("enabled".into()), Value::Text("true".into()))]);
            vec![("cdc", CqlType::map(CqlType::Text, CqlType::Text, true), vec![Some(enabled)])]
        }
        "system_distributed.cdc_generation_timestamps" => {
            vec![("time", CqlType::Timestamp, vec![Some(Value::Timestamp(1_000))])]
        }
        "system_distributed.cdc_streams_descriptions_v2" => {
            let streams = Value::Set(vec![Value::Blob(vec![1]), Value::Blob(vec![2])]);
            vec![("streams", CqlType::set(CqlType::Blob, true), vec![Some(streams)])]
        }
        "demo.people_scylla_cdc_log" => change_feed(statement),
        "people" | "demo.people" => vec![
            ("id", CqlType::Int, vec![Some(Value::Int(1)), Some(Value::Int(2))]),
            ("name", CqlType::Text, vec![text("Ann"), None]),
        ],
        _ => return None,
    };
    let chosen: Columns = if selected == "*" {
        all
    } else {
        selected
            .split(", ")
            .map(|name| {
                let name = name.rsplit(" AS ").next().unwrap_or(name);
                all.iter().find(|(column, ..)| *column == name).cloned()
            })
            .collect::<Option<_>>()?
    };
    let row_count = chosen.iter().map(|(_, _, values)| values.len()).max().unwrap_or(0);
    let rows =
        (0..row_count).map(|row| chosen.iter().map(|(_, _, values)| values[row].clone()).collect()).collect();
    let columns = chosen.into_iter().map(|(name, cql_type, _)| (name, cql_type)).collect();
    Some(Table { columns, rows, bound: Vec::new() })
}
