//! Traces of requests, as a table of what happened when.

use cql_lite::types::CqlType;
use scylla::observability::tracing::TracingInfo;
use uuid::Uuid;

use crate::{
    connection::{Column, Connection, Rows, Settings},
    error::ShellError,
    output::Output,
    table,
};

/// Fetches the trace of a request, and prints of it what the settings say: the steps, the receipt.
pub fn print(
    connection: &Connection,
    output: &mut Output,
    id: Uuid,
    wanted: &Settings,
) -> Result<(), ShellError> {
    let info = connection
        .block_on(connection.session().get_tracing_info(&id))?
        .map_err(|error| ShellError::Statement(format!("Session {id} wasn't found: {error}")))?;
    let mut lines = Vec::new();
    if wanted.tracing {
        lines.extend([String::new(), format!("Tracing session: {id}"), String::new()]);
        lines.extend(table::aligned(&rows(&info), true, output.in_color()));
        lines.push(String::new());
    }
    let parameters = info.parameters.as_ref();
    if wanted.receipt
        && let Some(receipt) = parameters.and_then(|parameters| parameters.get("receipt"))
    {
        lines.push(format!("Receipt: {receipt}"));
        lines.push(String::new());
    }
    output.lines(&lines)
}

/// The start of the request, its events in order, and its end.
fn rows(info: &TracingInfo) -> Rows {
    let column = |name: &str, cql_type| Column { name: name.to_owned(), cql_type };
    let columns = vec![
        column("activity", CqlType::Text),
        column("timestamp", CqlType::Timestamp),
        column("source", CqlType::Inet),
        column("source_elapsed", CqlType::Int),
    ];
    let address = |address: Option<std::net::IpAddr>| {
        address.map(|address| match address {
            std::net::IpAddr::V4(address) => address.octets().to_vec(),
            std::net::IpAddr::V6(address) => address.octets().to_vec(),
        })
    };
    let started_ms = info.started_at.map(|start| start.0);
    let row = |activity: String, at_us: Option<i32>, source| {
        let timestamp = started_ms.zip(at_us).map(|(start, elapsed)| start + i64::from(elapsed) / 1000);
        vec![
            Some(activity.into_bytes()),
            timestamp.map(|unix_ms| unix_ms.to_be_bytes().to_vec()),
            address(source),
            at_us.map(|elapsed| elapsed.to_be_bytes().to_vec()),
        ]
    };
    let mut rows = vec![row(info.request.clone().unwrap_or_default(), Some(0), info.coordinator)];
    for event in &info.events {
        rows.push(row(event.activity.clone().unwrap_or_default(), event.source_elapsed, event.source));
    }
    rows.push(row("Request complete".to_owned(), info.duration, info.coordinator));
    Rows { columns, rows }
}
