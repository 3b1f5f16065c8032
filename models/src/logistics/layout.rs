//! The two layouts of an order's events: a row each (tall) or an entry of the order's map each (wide).

use std::collections::BTreeMap;

use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::generate::Event;
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

/// A way to keep the events of an order. Events are read newest first.
pub(crate) trait Layout {
    /// Writes many events of one order.
    async fn load(&self, order_id: Uuid, events: &[Event]) -> Result<(), Error>;

    /// Records one event.
    async fn record(&self, order_id: Uuid, event: &Event) -> Result<CountedResponse<()>, Error>;

    /// The newest `count` events.
    async fn newest(&self, order_id: Uuid, count: u32) -> Result<CountedResponse<Vec<Event>>, Error>;

    /// All events.
    async fn history(&self, order_id: Uuid) -> Result<CountedResponse<Vec<Event>>, Error>;

    /// What EXPLAIN says of these requests: lines of a table.
    async fn explain(&self, order_id: Uuid, event: &Event) -> Result<Vec<Vec<String>>, Error>;
}

/// One row an event.
pub(crate) struct Tall<'a> {
    client: &'a Client,
    insert: PreparedStatement,
    newest: PreparedStatement,
    history: PreparedStatement,
}

impl<'a> Tall<'a> {
    pub async fn prepare(client: &'a Client) -> Result<Self, Error> {
        Ok(Self {
            client,
            insert: client
                .prepare("INSERT INTO logistics.events (order_id, created, detail) VALUES (?, ?, ?)")
                .await?,
            newest: client
                .prepare("SELECT created, detail FROM logistics.events WHERE order_id = ? LIMIT ?")
                .await?,
            history: client
                .prepare("SELECT created, detail FROM logistics.events WHERE order_id = ?")
                .await?,
        })
    }
}

impl Layout for Tall<'_> {
    async fn load(&self, order_id: Uuid, events: &[Event]) -> Result<(), Error> {
        let mut batch = Batch::new(BatchType::Unlogged);
        for _ in events {
            batch.append_statement(self.insert.clone());
        }
        let rows: Vec<_> = events.iter().map(|event| (order_id, event.created, &event.detail)).collect();
        self.client.batch("loading events", batch, rows).await
    }

    async fn record(&self, order_id: Uuid, event: &Event) -> Result<CountedResponse<()>, Error> {
        self.client.execute(&self.insert, (order_id, event.created, &event.detail)).await?;
        Ok(CountedResponse::written(1))
    }

    async fn newest(&self, order_id: Uuid, count: u32) -> Result<CountedResponse<Vec<Event>>, Error> {
        let limit = i32::try_from(count).unwrap_or(i32::MAX);
        let answer = self.client.select::<(CqlTimestamp, String)>(&self.newest, (order_id, limit)).await?;
        Ok(answer.map(events))
    }

    async fn history(&self, order_id: Uuid) -> Result<CountedResponse<Vec<Event>>, Error> {
        let answer = self.client.select::<(CqlTimestamp, String)>(&self.history, (order_id,)).await?;
        Ok(answer.map(events))
    }

    async fn explain(&self, order_id: Uuid, event: &Event) -> Result<Vec<Vec<String>>, Error> {
        let record = (order_id, event.created, &event.detail);
        let mut lines = self.client.explain("record one event, tall", &self.insert, record).await?;
        lines.extend(self.client.explain("newest 10 events, tall", &self.newest, (order_id, 10)).await?);
        lines.extend(self.client.explain("all events, tall", &self.history, (order_id,)).await?);
        Ok(lines)
    }
}

fn events(rows: Vec<(CqlTimestamp, String)>) -> Vec<Event> {
    rows.into_iter().map(|(created, detail)| Event { created, detail }).collect()
}

/// One map entry an event.
pub(crate) struct Wide<'a> {
    client: &'a Client,
    put: PreparedStatement,
    put_many: PreparedStatement,
    get: PreparedStatement,
}

impl<'a> Wide<'a> {
    pub async fn prepare(client: &'a Client) -> Result<Self, Error> {
        Ok(Self {
            client,
            put: client.prepare("UPDATE logistics.orders SET events[?] = ? WHERE order_id = ?").await?,
            put_many: client
                .prepare("UPDATE logistics.orders SET events = events + ? WHERE order_id = ?")
                .await?,
            get: client.prepare("SELECT events FROM logistics.orders WHERE order_id = ?").await?,
        })
    }
}

impl Layout for Wide<'_> {
    async fn load(&self, order_id: Uuid, events: &[Event]) -> Result<(), Error> {
        let entries: BTreeMap<CqlTimestamp, &str> =
            events.iter().map(|event| (event.created, event.detail.as_str())).collect();
        self.client.execute(&self.put_many, (entries, order_id)).await
    }

    async fn record(&self, order_id: Uuid, event: &Event) -> Result<CountedResponse<()>, Error> {
        self.client.execute(&self.put, (event.created, &event.detail, order_id)).await?;
        Ok(CountedResponse::written(1))
    }

    /// Reads the whole map: there is no way to ask for a part of it by order.
    async fn newest(&self, order_id: Uuid, count: u32) -> Result<CountedResponse<Vec<Event>>, Error> {
        let mut answer = self.history(order_id).await?;
        answer.value.truncate(count as usize);
        answer.rows = answer.value.len() as u64;
        Ok(answer)
    }

    async fn history(&self, order_id: Uuid) -> Result<CountedResponse<Vec<Event>>, Error> {
        let answer = self
            .client
            .select_one::<(Option<BTreeMap<CqlTimestamp, String>>,)>(&self.get, (order_id,))
            .await?;
        let entries = answer.value.and_then(|(events,)| events).unwrap_or_default();
        let value: Vec<Event> =
            entries.into_iter().rev().map(|(created, detail)| Event { created, detail }).collect();
        Ok(CountedResponse { rows: value.len() as u64, value, pages: answer.pages })
    }

    async fn explain(&self, order_id: Uuid, event: &Event) -> Result<Vec<Vec<String>>, Error> {
        let record = (event.created, &event.detail, order_id);
        let mut lines = self.client.explain("record one event, wide", &self.put, record).await?;
        lines.extend(self.client.explain("any events, wide", &self.get, (order_id,)).await?);
        Ok(lines)
    }
}
