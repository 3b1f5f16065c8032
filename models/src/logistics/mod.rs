//! Logistics tracking: record an event of an order, read its newest events, read all of them.
//!
//! Each size of order is loaded and measured in both layouts. A map is one value: the server must merge it, the answer
//! holds all of it. So filling a wide order stops after `--wide-load-seconds`, and the events loaded by then are measured. Beyond
//! [`WIDE_EVENTS_SENSIBLE`] events a request that the server refuses or does not end is a result, not an error of the run.

pub mod generate;
mod layout;

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};

use crate::client::Client;
use crate::client::explain::explained_table;
use crate::error::{Error, ensure_same_rows};
use crate::measure::{CountedResponse, Measurement};
use crate::options::Options;
use crate::progress;
use crate::report::{Group, MEASURED_COLUMNS, Table, grouped, measured_cells, per_second};
use generate::{Event, Order};
use layout::{Layout, Tall, Wide};

const KEYSPACE: &str = "logistics";

/// Events a map can hold before a server may refuse or fail.
const WIDE_EVENTS_SENSIBLE: u32 = 5_000;

/// The newest events that a request asks for.
const NEWEST: u32 = 10;

/// Events that are loaded for each size, if that is more than one order; at most [`ORDERS_MAX`] orders.
const EVENTS_A_SIZE: u32 = 20_000;
const ORDERS_MAX: u32 = 400;

/// Events written at once while loading.
const CHUNK_EVENTS: u32 = 100;

const REQUESTS: [&str; 3] = ["record one event", "newest 10 events", "all events"];

/// The measurements of one layout at one size.
struct LayoutResult {
    /// Events of each order after loading.
    loaded: u32,
    orders: u32,
    load_time: Duration,
    /// For each of [`REQUESTS`], the latencies or why there are none.
    measurements: Vec<Result<Measurement, String>>,
}

/// Loads and measures all sizes in both layouts.
pub async fn run(options: &Options, client: &Client) -> Result<Vec<Table>, Error> {
    client.create(KEYSPACE, include_str!("schema.cql")).await?;
    let (tall, wide) = (Tall::prepare(client).await?, Wide::prepare(client).await?);
    let mut outcomes = Vec::with_capacity(options.order_sizes.len());
    for &size in &options.order_sizes {
        let class = SizeClass { options, events: size, orders: (EVENTS_A_SIZE / size).clamp(1, ORDERS_MAX) };
        outcomes.push((size, class.run("tall", &tall, None).await?, class.run_wide(&wide).await?));
    }
    let order = Order::new(options.seed, options.order_sizes.first().copied().unwrap_or(1), 0);
    let mut lines = tall.explain(order.id(), &order.event(0)).await?;
    lines.extend(wide.explain(order.id(), &order.event(0)).await?);
    Ok([table(&outcomes)].into_iter().chain(explained_table("Logistics", lines)).collect())
}

/// Orders of the same number of events.
struct SizeClass<'a> {
    options: &'a Options,
    events: u32,
    orders: u32,
}

impl SizeClass<'_> {
    fn order(&self, number: u64) -> Order {
        Order::new(self.options.seed, self.events, (number % u64::from(self.orders)) as u32)
    }

    async fn run_wide(&self, wide: &Wide<'_>) -> Result<LayoutResult, Error> {
        let limit = Duration::from_secs(self.options.wide_load_seconds);
        match self.run("wide", wide, Some(limit)).await {
            Err(error @ (Error::Execute { .. } | Error::Answer { .. }))
                if self.events > WIDE_EVENTS_SENSIBLE =>
            {
                let measurements = REQUESTS.iter().map(|_| Err(failed(&error))).collect();
                Ok(LayoutResult { loaded: 0, orders: self.orders, load_time: Duration::ZERO, measurements })
            }
            outcome => outcome,
        }
    }

    async fn run(
        &self,
        name: &str,
        layout: &impl Layout,
        limit: Option<Duration>,
    ) -> Result<LayoutResult, Error> {
        let started = Instant::now();
        let loaded = self.load(name, layout, limit).await?;
        let load_time = started.elapsed();
        let _spinner =
            progress::spinner(format!("logistics {name}: requests at {} events", grouped(loaded.into())));
        let tolerant = limit.is_some() && self.events > WIDE_EVENTS_SENSIBLE;
        let mut recorded = 0;
        let mut measurements = Vec::with_capacity(REQUESTS.len());
        for number in 0..REQUESTS.len() {
            let measured = match number {
                0 => self.record(layout, loaded, &mut recorded).await,
                1 => {
                    self.read(loaded, recorded, Some(NEWEST), async |id| layout.newest(id, NEWEST).await)
                        .await
                }
                _ => self.read(loaded, recorded, None, async |id| layout.history(id).await).await,
            };
            measurements.push(match measured {
                Ok(measurement) => Ok(measurement),
                Err(error @ (Error::Execute { .. } | Error::Answer { .. })) if tolerant => {
                    Err(failed(&error))
                }
                Err(error) => return Err(error),
            });
        }
        Ok(LayoutResult { loaded, orders: self.orders, load_time, measurements })
    }

    /// Fills all orders in step, so that they are equally long if `limit` ends it; the events of each order then.
    async fn load(&self, name: &str, layout: &impl Layout, limit: Option<Duration>) -> Result<u32, Error> {
        let label = format!("logistics {name}: orders of {} events", grouped(self.events.into()));
        let bar = progress::bar(label, u64::from(self.events) * u64::from(self.orders));
        let started = Instant::now();
        // In a single order there is only one thing to do at a time: its chunks.
        let chunks_at_once = (self.options.in_flight / self.orders).max(1);
        let mut loaded = 0;
        while loaded < self.events && limit.is_none_or(|limit| started.elapsed() < limit) {
            let end = self.events.min(loaded + chunks_at_once * CHUNK_EVENTS);
            let starts = (loaded..end).step_by(CHUNK_EVENTS as usize);
            let writes = starts.flat_map(|start| (0..self.orders).map(move |number| (start, number)));
            stream::iter(writes)
                .map(async |(start, number)| {
                    let order = self.order(number.into());
                    let events: Vec<Event> =
                        (start..end.min(start + CHUNK_EVENTS)).map(|index| order.event(index)).collect();
                    layout.load(order.id(), &events).await?;
                    bar.inc(events.len() as u64);
                    Ok::<(), Error>(())
                })
                .buffer_unordered(self.options.in_flight as usize)
                .try_collect::<()>()
                .await?;
            loaded = end;
        }
        Ok(loaded)
    }

    /// Records events, the orders taking turns; `recorded` counts them.
    async fn record(
        &self,
        layout: &impl Layout,
        loaded: u32,
        recorded: &mut u64,
    ) -> Result<Measurement, Error> {
        let mut measured = Measurement::new(self.options.budget());
        while measured.wants_more() {
            let order = self.order(*recorded);
            let event = order.event(loaded + (*recorded / u64::from(self.orders)) as u32);
            measured.time(layout.record(order.id(), &event)).await?;
            *recorded += 1;
        }
        Ok(measured)
    }

    /// Reads the newest events, or all, of one order after the other, and checks them.
    async fn read(
        &self,
        loaded: u32,
        recorded: u64,
        newest: Option<u32>,
        request: impl AsyncFn(uuid::Uuid) -> Result<CountedResponse<Vec<Event>>, Error>,
    ) -> Result<Measurement, Error> {
        let mut measured = Measurement::new(self.options.budget());
        let orders = u64::from(self.orders);
        while measured.wants_more() {
            let number = measured.count() % orders;
            let order = self.order(number);
            let found = measured.time(request(order.id())).await?;
            let length = loaded + ((recorded + orders - 1 - number) / orders) as u32;
            let expected = order.newest(length, newest.unwrap_or(length));
            ensure_same_rows(
                if newest.is_some() { "the newest events" } else { "all events" },
                &expected,
                &found,
            )?;
        }
        Ok(measured)
    }
}

fn failed(error: &Error) -> String {
    const LENGTH_MAX: usize = 60;
    let text = match error {
        Error::Execute { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    format!("failed: {}", text.chars().take(LENGTH_MAX).collect::<String>())
}

fn table(outcomes: &[(u32, LayoutResult, LayoutResult)]) -> Table {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    for (size, tall, wide) in outcomes {
        for (number, request) in REQUESTS.iter().enumerate() {
            let mut cells = vec![vec![(*request).to_owned(), grouped((*size).into())]];
            for outcome in [tall, wide] {
                cells.push(match outcome.measurements.get(number) {
                    Some(Ok(measurement)) => measured_cells(measurement),
                    Some(Err(reason)) => vec![reason.clone()],
                    None => Vec::new(),
                });
            }
            rows.push(cells);
        }
        let rate = |outcome: &LayoutResult| {
            per_second(u64::from(outcome.loaded) * u64::from(outcome.orders), outcome.load_time)
        };
        notes.push(format!(
            "orders of {} events: {} loaded, tall {} events/s, wide {} events/s",
            grouped((*size).into()),
            grouped(tall.orders.into()),
            rate(tall),
            rate(wide)
        ));
        if wide.loaded < *size {
            notes.push(format!(
                "wide: filling an order of {} events was stopped at {}: its requests are measured at that size",
                grouped((*size).into()),
                grouped(wide.loaded.into())
            ));
        }
    }
    notes.push(format!(
        "wide reads all of a map or nothing, in one answer: beyond {} events an order use tall",
        grouped(WIDE_EVENTS_SENSIBLE.into())
    ));
    notes.push("rows: events of the answer; one request in flight; every answer checked".to_owned());
    Table {
        title: "Logistics: events of orders".to_owned(),
        groups: vec![
            Group::new("", &["request", "events an order"]),
            Group::new("tall: a row an event", &MEASURED_COLUMNS),
            Group::new("wide: a map an order", &MEASURED_COLUMNS),
        ],
        text_columns: 1,
        rows,
        notes,
    }
}
