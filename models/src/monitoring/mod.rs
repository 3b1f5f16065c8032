//! Time-series monitoring: four partition keys by three layouts, each a table.
//!
//! Points arrive as they do from hosts: one write a point, all series in step, with `--in-flight` writes at a time. Then each
//! table answers range queries of one hour and queries for the newest value, all checked.

mod generate;
mod table;

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};

use crate::client::Client;
use crate::client::explain::explained_table;
use crate::disk::DiskUsage;
use crate::error::{Error, ensure_equal, ensure_same_rows};
use crate::measure::Measurement;
use crate::options::Options;
use crate::progress;
use crate::random::{below, hash};
use crate::report::{Group, MEASURED_COLUMNS, Table, grouped, measured_cells, per_second};
use generate::{INTERVAL_MS, Series, TYPES, time};
use table::{Key, Layout, MonitoringTable};

const KEYSPACE: &str = "monitoring";

/// A map is merged and read as a whole, so series of the wide layout are loaded up to this length only.
const WIDE_POINTS_MAX: u32 = 20_000;

/// Points that a range query asks for: an hour.
const RANGE_POINTS: u32 = (3_600_000 / INTERVAL_MS) as u32;

/// The measurements of one table.
struct TableResult {
    key: Key,
    layout: Layout,
    points: u64,
    load_time: Duration,
    range: Measurement,
    newest: Measurement,
    bytes: Option<u64>,
}

/// Loads and measures the twelve tables.
pub async fn run(options: &Options, client: &Client, disk: &dyn DiskUsage) -> Result<Vec<Table>, Error> {
    client.create(KEYSPACE, include_str!("schema.cql")).await?;
    let layouts = [Layout::Tall, Layout::Wide, Layout::Hybrid { grain_ms: options.grain.milliseconds() }];
    let mut outcomes = Vec::with_capacity(Key::ALL.len() * layouts.len());
    let mut lines = Vec::new();
    let series = Series::new(options.seed, 0);
    for key in Key::ALL {
        for layout in layouts {
            let table = MonitoringTable::prepare(client, key, layout).await?;
            outcomes.push(run_table(options, &table, disk).await?);
            lines.extend(table.explain(&series, time(0), time(RANGE_POINTS)).await?);
        }
    }
    Ok([report(options, &outcomes)].into_iter().chain(explained_table("Monitoring", lines)).collect())
}

fn points_of(options: &Options, layout: Layout) -> u32 {
    if layout == Layout::Wide { options.points.min(WIDE_POINTS_MAX) } else { options.points }
}

async fn run_table(
    options: &Options,
    table: &MonitoringTable<'_>,
    disk: &dyn DiskUsage,
) -> Result<TableResult, Error> {
    let all: Vec<Series> = (0..u64::from(options.hosts) * TYPES.len() as u64)
        .map(|number| Series::new(options.seed, number))
        .collect();
    let length = points_of(options, table.layout);
    let name = MonitoringTable::name(table.key, table.layout);
    let points = u64::from(length) * all.len() as u64;

    let bar = progress::bar(format!("monitoring {name}: points"), points);
    let started = Instant::now();
    stream::iter((0..length).flat_map(|index| all.iter().map(move |series| (series, index))))
        .map(async |(series, index)| {
            table.write(series, series.point(index)).await?;
            bar.inc(1);
            Ok::<(), Error>(())
        })
        .buffer_unordered(options.in_flight as usize)
        .try_collect::<()>()
        .await?;
    let load_time = started.elapsed();
    drop(bar);

    let _spinner = progress::spinner(format!("monitoring {name}: requests"));
    let pick = |kind: u64, request: u64, bound: u64| below(hash(options.seed, &[kind, request]), bound);
    let pick_series = |kind: u64, request: u64| all.get(pick(kind, request, all.len() as u64) as usize);

    let mut range = Measurement::new(options.budget());
    while range.wants_more() {
        let Some(series) = pick_series(1, range.count()) else { break };
        let from = pick(2, range.count(), u64::from(length.saturating_sub(RANGE_POINTS)) + 1) as u32;
        let to = length.min(from + RANGE_POINTS);
        let found = range.time(table.range(series, time(from), time(to))).await?;
        ensure_same_rows(&format!("the range query on {name}"), &series.newest_first(from, to), &found)?;
    }

    let mut newest = Measurement::new(options.budget());
    while newest.wants_more() {
        let Some(series) = pick_series(3, newest.count()) else { break };
        let found = newest.time(table.newest(series)).await?;
        ensure_equal(&format!("the newest value of {name}"), &Some(series.point(length - 1)), &found)?;
    }

    let bytes = disk.table_bytes(KEYSPACE, &name).await?;
    Ok(TableResult { key: table.key, layout: table.layout, points, load_time, range, newest, bytes })
}

fn report(options: &Options, outcomes: &[TableResult]) -> Table {
    let rows = outcomes
        .iter()
        .map(|outcome| {
            let bytes = outcome.bytes.map_or("n/a".to_owned(), |bytes| {
                format!("{:.1}", bytes as f64 / outcome.points.max(1) as f64)
            });
            vec![
                vec![outcome.key.name().to_owned(), outcome.layout.name().to_owned()],
                vec![per_second(outcome.points, outcome.load_time), bytes],
                measured_cells(&outcome.range),
                measured_cells(&outcome.newest),
            ]
        })
        .collect();
    let mut notes = vec![
        format!(
            "one write a point, {} in flight; requests one at a time; rows: points of the answer",
            options.in_flight
        ),
        "wide and hybrid answers come as maps: one value, read whole, cut to the range by the client"
            .to_owned(),
    ];
    if options.points > WIDE_POINTS_MAX {
        notes.push(format!("wide: series end at {} points", grouped(WIDE_POINTS_MAX.into())));
    }
    if outcomes.iter().any(|outcome| outcome.bytes.is_none()) {
        notes.push(
            "bytes a point: only the embedded node reports the exact size of a table's files".to_owned(),
        );
    }
    notes.push("checked: every answer".to_owned());
    Table {
        title: format!(
            "Monitoring: {} hosts, {} series, {} points each",
            grouped(options.hosts.into()),
            grouped(u64::from(options.hosts) * TYPES.len() as u64),
            grouped(options.points.into())
        ),
        groups: vec![
            Group::new("", &["partition key", "layout"]),
            Group::new("points in", &["points/s", "bytes a point"]),
            Group::new("range of one hour", &MEASURED_COLUMNS),
            Group::new("newest value", &MEASURED_COLUMNS),
        ],
        text_columns: 2,
        rows,
        notes,
    }
}
