//! What TAIL reads: the table with its feed, the generations of streams, and the entries of a span of time.
//!
//! These are the tables that every consumer of a change feed reads, so the feed of a ScyllaDB node is read as well.

use std::{cell::Cell, rc::Rc};

use cql_lite::{
    frame::Consistency,
    types::{
        Value,
        cql_type::quote_identifier,
        literal::{format_hex, quote_text},
        timeuuid,
    },
};
use futures::{StreamExt as _, TryStreamExt as _};

use super::{
    entry::{BaseColumn, ColumnKind, Entry, Layout},
    spans::{CELL_BYTES_MAX, ENTRIES_MAX, Span},
};
use crate::{
    connection::{Connection, Rows, Settings, page},
    error::ShellError,
};

/// What the name of a log adds to that of its table.
const LOG_SUFFIX: &str = "_scylla_cdc_log";
/// Rows a page.
const PAGE_ROWS: i32 = 5_000;
/// Statements under way at a time.
const STATEMENTS_MAX: usize = 16;

/// A table with its feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feed {
    pub keyspace: String,
    pub table: String,
    /// Whether changes are still written to it.
    pub is_enabled: bool,
}

/// The settings of the statements of TAIL: at a level at which acknowledged writes of a quorum are seen, unless a higher one was set.
pub fn settings(settings: &Settings) -> Settings {
    let consistency = match settings.consistency {
        Consistency::Any | Consistency::One | Consistency::LocalOne => Consistency::LocalQuorum,
        level => level,
    };
    Settings { consistency, page_rows: PAGE_ROWS, ..settings.untraced() }
}

impl Feed {
    /// The feed of a table. A table without one is an error.
    pub fn find(
        connection: &Connection,
        settings: &Settings,
        keyspace: Option<&str>,
        table: &str,
    ) -> Result<Self, ShellError> {
        let keyspace = keyspace.map(str::to_owned).or_else(|| connection.keyspace()).ok_or_else(|| {
            ShellError::Usage("No keyspace: write keyspace.table, or USE a keyspace first".to_owned())
        })?;
        let mut feed = Self { keyspace, table: table.to_owned(), is_enabled: true };
        if !feed.has_table(connection, settings, table)? {
            return Err(ShellError::Statement(format!("Table '{}.{table}' not found", feed.keyspace)));
        }
        if !feed.has_table(connection, settings, &feed.log_table())? {
            let name = feed.name();
            return Err(ShellError::Statement(format!(
                "Table '{}.{table}' has no change feed. ALTER TABLE {name} WITH cdc = {{'enabled': 'true'}} begins one",
                feed.keyspace
            )));
        }
        feed.is_enabled = feed.read_is_enabled(connection, settings)?;
        Ok(feed)
    }

    /// Keyspace and table as CQL.
    pub fn name(&self) -> String {
        format!("{}.{}", quote_identifier(&self.keyspace), quote_identifier(&self.table))
    }

    fn log_table(&self) -> String {
        format!("{}{LOG_SUFFIX}", self.table)
    }

    /// The condition that a row of a table of `system_schema` is about a table of the feed's keyspace.
    fn is_about(&self, table: &str) -> String {
        format!("keyspace_name = {} AND table_name = {}", quote_text(&self.keyspace), quote_text(table))
    }

    fn has_table(
        &self,
        connection: &Connection,
        settings: &Settings,
        table: &str,
    ) -> Result<bool, ShellError> {
        let statement = format!("SELECT table_name FROM system_schema.tables WHERE {}", self.is_about(table));
        Ok(!connection.run_to_end(&statement, settings)?.rows.is_empty())
    }

    fn read_is_enabled(&self, connection: &Connection, settings: &Settings) -> Result<bool, ShellError> {
        let condition = self.is_about(&self.table);
        let statement = format!("SELECT cdc FROM system_schema.scylla_tables WHERE {condition}");
        let rows = connection.run_to_end(&statement, settings)?;
        let Some(Value::Map(options)) = rows.value(0, "cdc") else { return Ok(false) };
        let text = |value: &Value| match value {
            Value::Text(text) | Value::Ascii(text) => text.to_ascii_lowercase(),
            _ => String::new(),
        };
        Ok(options.iter().any(|(name, value)| text(name) == "enabled" && text(value) == "true"))
    }

    /// The columns of the table as they are now.
    pub fn columns(
        &self,
        connection: &Connection,
        settings: &Settings,
    ) -> Result<Vec<BaseColumn>, ShellError> {
        let statement = format!(
            "SELECT column_name, kind, position, type, clustering_order FROM system_schema.columns WHERE {}",
            self.is_about(&self.table)
        );
        let rows = connection.run_to_end(&statement, settings)?;
        let column = |row: usize| BaseColumn {
            name: rows.text(row, "column_name"),
            kind: match rows.text(row, "kind").as_str() {
                "partition_key" => ColumnKind::PartitionKey,
                "clustering" => ColumnKind::Clustering,
                _ => ColumnKind::Other,
            },
            position: match rows.value(row, "position") {
                Some(Value::Int(position)) => position,
                _ => -1,
            },
            is_list: rows.text(row, "type").starts_with("list<"),
            is_descending: rows.text(row, "clustering_order") == "desc",
        };
        Ok((0..rows.rows.len()).map(column).collect())
    }

    /// The statement that reads the entries of streams in a span.
    fn statement(&self, streams: &[Vec<u8>], span: &Span) -> String {
        let log = quote_identifier(&self.log_table()).into_owned();
        let streams: Vec<String> = streams.iter().map(|stream| format_hex(stream)).collect();
        let from = span
            .from_ms
            .map(|from_ms| format!("\"cdc$time\" >= {} AND ", timeuuid::minimum(from_ms)))
            .unwrap_or_default();
        format!(
            "SELECT * FROM {}.{log} WHERE \"cdc$stream_id\" IN ({}) AND {from}\"cdc$time\" < {} BYPASS CACHE",
            quote_identifier(&self.keyspace),
            streams.join(", "),
            timeuuid::minimum(span.until_ms)
        )
    }
}

/// The entries of a span, or that there are too many for one.
pub enum SpanEntries {
    InOrder(Vec<Entry>),
    TooMany,
}

/// Reads a feed. Keeps the streams of the generation that it read last, and the roles of the columns.
pub struct Source<'a> {
    connection: &'a Connection,
    settings: Settings,
    feed: Feed,
    /// The time of a generation, and its streams as they are read together.
    streams: Option<(i64, Vec<Vec<Vec<u8>>>)>,
    layout: Option<Rc<Layout>>,
}

impl<'a> Source<'a> {
    /// Reads nothing yet. `settings`: of [`settings`].
    pub fn new(connection: &'a Connection, settings: Settings, feed: Feed) -> Self {
        Self { connection, settings, feed, streams: None, layout: None }
    }

    /// The time by the clock of the node, in milliseconds since the epoch: writes get theirs from nodes, not from this machine.
    pub fn now_ms(&self) -> Result<i64, ShellError> {
        let statement = "SELECT tounixtimestamp(now()) AS now FROM system.local WHERE key = 'local'";
        match self.connection.run_to_end(statement, &self.settings)?.value(0, "now") {
            Some(Value::Bigint(now_ms)) => Ok(now_ms),
            _ => Err(ShellError::Statement("The node did not tell its time".to_owned())),
        }
    }

    /// The times of the generations, in order.
    pub fn generations_ms(&self) -> Result<Vec<i64>, ShellError> {
        let statement =
            "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'";
        let rows = self.connection.run_to_end(statement, &self.settings)?;
        let time = |row: usize| match rows.value(row, "time") {
            Some(Value::Timestamp(time_ms)) => Some(time_ms),
            _ => None,
        };
        let mut times: Vec<i64> = (0..rows.rows.len()).filter_map(time).collect();
        times.sort_unstable();
        Ok(times)
    }

    /// The streams of a generation, grouped as they are to be read.
    fn streams(&mut self, generation_ms: i64) -> Result<&[Vec<Vec<u8>>], ShellError> {
        let known = self.streams.take().filter(|(time_ms, _)| *time_ms == generation_ms);
        let groups = match known {
            Some((_, groups)) => groups,
            None => self.read_streams(generation_ms)?,
        };
        Ok(&self.streams.insert((generation_ms, groups)).1)
    }

    fn read_streams(&self, generation_ms: i64) -> Result<Vec<Vec<Vec<u8>>>, ShellError> {
        let statement = format!(
            "SELECT streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = {generation_ms}"
        );
        let rows = self.connection.run_to_end(&statement, &self.settings)?;
        let group = |row: usize| match rows.value(row, "streams") {
            Some(Value::Set(streams) | Value::List(streams)) => {
                let blob = |stream| if let Value::Blob(bytes) = stream { Some(bytes) } else { None };
                streams.into_iter().filter_map(blob).collect()
            }
            _ => Vec::new(),
        };
        let mut groups: Vec<Vec<Vec<u8>>> = (0..rows.rows.len()).map(group).collect();
        groups.retain(|streams| !streams.is_empty());
        if groups.is_empty() {
            return Err(ShellError::Statement(format!(
                "The streams of the generation of {generation_ms} are not known any more"
            )));
        }
        Ok(groups)
    }

    /// The entries of a span. `is_bounded`: not many more than [`ENTRIES_MAX`] are read, with not much more than
    /// [`CELL_BYTES_MAX`].
    pub fn read(&mut self, span: &Span, is_bounded: bool) -> Result<SpanEntries, ShellError> {
        let feed = self.feed.clone();
        let groups = self.streams(span.generation_ms)?;
        let statements: Vec<String> = groups.iter().map(|streams| feed.statement(streams, span)).collect();
        let amount = Amount { is_bounded, ..Amount::default() };
        let (connection, settings) = (self.connection, &self.settings);
        let pages = connection.block_on(
            futures::stream::iter(&statements)
                .map(|statement| read_pages(connection, settings, statement, &amount))
                .buffer_unordered(STATEMENTS_MAX)
                .try_collect::<Vec<_>>(),
        )??;
        if amount.is_too_much() {
            return Ok(SpanEntries::TooMany);
        }
        let mut entries = Vec::with_capacity(amount.rows.get());
        for rows in pages.into_iter().flatten().filter(|rows| !rows.rows.is_empty()) {
            let layout = self.layout(&rows)?;
            entries.append(&mut Entry::read_all(rows, &layout)?);
        }
        entries.sort_by(Entry::order);
        Ok(SpanEntries::InOrder(entries))
    }

    /// The roles of the columns of a page. The table is looked up again when they are not those of the page before.
    fn layout(&mut self, rows: &Rows) -> Result<Rc<Layout>, ShellError> {
        if let Some(layout) = &self.layout
            && layout.columns == rows.columns
        {
            return Ok(Rc::clone(layout));
        }
        let base = self.feed.columns(self.connection, &self.settings)?;
        let layout = Layout::new(&rows.columns, &base).ok_or_else(|| {
            let (keyspace, table) = (&self.feed.keyspace, &self.feed.table);
            ShellError::Statement(format!("The columns of '{keyspace}.{table}' are just being changed"))
        })?;
        Ok(Rc::clone(self.layout.insert(Rc::new(layout))))
    }
}

/// The pages of a statement; fewer, if all statements together have more than `rows_max` rows.
async fn read_pages(
    connection: &Connection,
    settings: &Settings,
    statement: &str,
    amount: &Amount,
) -> Result<Vec<Rows>, ShellError> {
    let mut pages = Vec::new();
    let mut next = None;
    loop {
        let answer = page(connection.session(), statement, settings, next).await?;
        let rows = answer.rows.unwrap_or_default();
        amount.add(&rows);
        pages.push(rows);
        next = answer.next_page;
        if next.is_none() || amount.is_too_much() {
            return Ok(pages);
        }
    }
}

/// How much of a span is in memory.
#[derive(Debug, Default)]
struct Amount {
    is_bounded: bool,
    rows: Cell<usize>,
    cell_bytes: Cell<usize>,
}

impl Amount {
    fn add(&self, page: &Rows) {
        let bytes: usize = page.rows.iter().flatten().flatten().map(Vec::len).sum();
        self.rows.set(self.rows.get() + page.rows.len());
        self.cell_bytes.set(self.cell_bytes.get() + bytes);
    }

    fn is_too_much(&self) -> bool {
        self.is_bounded && (self.rows.get() > ENTRIES_MAX || self.cell_bytes.get() > CELL_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_in_memory_is_bounded_in_rows_and_bytes() {
        let page = |rows: usize, bytes: usize| Rows {
            columns: Vec::new(),
            rows: vec![vec![Some(vec![0; bytes]), None]; rows],
        };
        let is_too_much = |is_bounded, pages: &[Rows]| {
            let amount = Amount { is_bounded, ..Amount::default() };
            for page in pages {
                amount.add(page);
            }
            amount.is_too_much()
        };
        assert!(!is_too_much(true, &[page(ENTRIES_MAX, 1)]));
        assert!(is_too_much(true, &[page(ENTRIES_MAX, 1), page(1, 1)]));
        assert!(is_too_much(true, &[page(1, CELL_BYTES_MAX), page(1, 1)]));
        assert!(!is_too_much(false, &[page(1, CELL_BYTES_MAX), page(1, 1)]));
    }

    #[test]
    fn a_statement_names_streams_and_the_span() {
        let feed = Feed { keyspace: "shop".to_owned(), table: "Orders".to_owned(), is_enabled: true };
        let span = Span { generation_ms: 1_000, begin_ms: 2_000, from_ms: Some(2_000), until_ms: 3_000 };
        let streams = [vec![1, 2], vec![3]];
        assert_eq!(
            feed.statement(&streams, &span),
            format!(
                "SELECT * FROM shop.\"Orders_scylla_cdc_log\" WHERE \"cdc$stream_id\" IN (0x0102, 0x03) AND \
                 \"cdc$time\" >= {} AND \"cdc$time\" < {} BYPASS CACHE",
                timeuuid::minimum(2_000),
                timeuuid::minimum(3_000)
            )
        );
        let open = Span { from_ms: None, ..span };
        assert!(feed.statement(&streams, &open).contains("(0x0102, 0x03) AND \"cdc$time\" < "));
    }
}
