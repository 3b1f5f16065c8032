//! What has changed in a table that views are computed of: the entries of its log, by slices of the ring.
//!
//! * The ring of tokens is cut into [`SLICES`](helenus_execution::coordinator::views::slice::SLICES) slices of equal size, whatever nodes own. Each is read on its own.
//! * A slice is read from the streams that may have partitions of it. Streams follow the tokens of nodes, so some have partitions of two slices:
//!   entries are chosen by the token of the partition that has changed.
//! * Reads are at QUORUM: an entry is there with its write, so what was acknowledged at QUORUM is found. In several data centers `LOCAL_QUORUM` would
//!   not find what was acknowledged in another one.
//!
//! What is read of streams is in the order of time; between streams there is no order. An entry may be read again, and it only says that
//! something may have changed. Entries are in the streams that their coordinator knew to be active. One that was cut off from the leader of the metadata may have
//! known an older generation ([`helenus_execution::coordinator::change_feed::confirmed`]): [`Generations::All`] finds its entries, too.
//!
//! Repair and streaming bring writes without new entries. What was written at a level below QUORUM, and reaches other replicas only by them, is
//! not computed again.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::frame::Consistency;
use cql_lite::syntax::ast::Identifier;
use cql_lite::types::{codec, timeuuid};
use futures::StreamExt;
use futures::stream::{self, Stream};
use helenus_change_feed::bounds::Bound;
use helenus_change_feed::entry::Operation;
use helenus_execution::coordinator::change_feed::anew;
use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::shard::context::ShardContext;
use helenus_feed_tables::columns::{OPERATION, STREAM_ID, TIME, TTL};
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::{PartitionKey, composite_key};
use helenus_ring::change_feed::StreamId;
use uuid::Uuid;

use crate::internal_statement::{InternalStatement, NextPage, OwnedValue};

/// Streams of one statement, which are read one after the other …
const STREAMS_PER_STATEMENT: usize = 16;
/// … and statements that are executed at a time.
const STATEMENTS: usize = 8;
/// Entries that are written together by [`touch`].
const TOUCHED_TOGETHER: usize = 500;

/// What an entry tells of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Changed {
    /// A row was written or deleted. A table with compact storage may have rows without the last clustering columns.
    Row { key: PartitionKey, clustering: Vec<Option<Vec<u8>>> },
    /// A range of rows was deleted. A bound without clustering columns is the first or last row.
    Range { key: PartitionKey, start: Bound, end: Bound },
    /// A partition was deleted.
    Partition { key: PartitionKey },
    /// Static columns were written.
    Static { key: PartitionKey },
}

impl Changed {
    /// The partition of the base table.
    pub fn key(&self) -> &PartitionKey {
        match self {
            Self::Row { key, .. }
            | Self::Range { key, .. }
            | Self::Partition { key }
            | Self::Static { key } => key,
        }
    }
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its `cdc$time`.
    pub time: Uuid,
    /// The time to live of what was written.
    pub ttl_seconds: Option<u32>,
    pub changed: Changed,
}

/// Where entries are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generations {
    /// In the streams that are active at their time, and those of before.
    Active,
    /// In the streams of all generations that are kept. Only a read of all of them is complete.
    All,
}

/// Entries by their time, in microseconds: of `[from_micros, until_micros)`.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub from_micros: i64,
    pub until_micros: i64,
}

/// Reads the log of a base table. It is of one version of both tables: after a change of either, make another one.
#[derive(Debug)]
pub struct ChangesReader {
    base: Arc<Table>,
    statement: InternalStatement,
}

impl ChangesReader {
    /// `log`: the log of what changes in `base`.
    pub fn new(base: &Arc<Table>, log: &Arc<Table>) -> Self {
        let own = [STREAM_ID, TIME, OPERATION, TTL].map(str::to_owned);
        let keys = base.partition_key().iter().chain(base.clustering_key()).map(|column| column.name.clone());
        let columns: Vec<String> = own.into_iter().chain(keys).map(|name| quoted(&name)).collect();
        let text = format!(
            "SELECT {} FROM {}.{} WHERE {stream} IN ? AND {time} >= ? AND {time} < ? BYPASS CACHE",
            columns.join(", "),
            quoted(&log.keyspace),
            quoted(&log.name),
            stream = quoted(STREAM_ID),
            time = quoted(TIME),
        );
        Self { base: base.clone(), statement: InternalStatement::new(text) }
    }

    /// Reads the entries of a slice, and gives them to `each` in batches of at most as many as a page has rows
    /// ([`crate::internal_statement::PAGE_ROWS`]). The next batch is read when `each` has taken the one before.
    pub async fn read(
        &self,
        context: &Rc<ShardContext>,
        slice: Slice,
        window: Window,
        generations: Generations,
        mut each: impl AsyncFnMut(Vec<Entry>) -> Result<()>,
    ) -> Result<()> {
        let streams = streams(context, slice, window, generations);
        let chunks = streams.chunks(STREAMS_PER_STATEMENT);
        let batches = chunks.map(|chunk| Box::pin(self.batches(context, slice, window, chunk)));
        let mut batches = stream::iter(batches).flatten_unordered(STATEMENTS);
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            if !batch.is_empty() {
                each(batch).await?;
            }
        }
        Ok(())
    }

    /// The entries of some streams, page by page.
    fn batches<'r>(
        &'r self,
        context: &'r Rc<ShardContext>,
        slice: Slice,
        window: Window,
        streams: &'r [StreamId],
    ) -> impl Stream<Item = Result<Vec<Entry>>> + 'r {
        let values = values(streams, window);
        let begin = Some((None, Decoder { base: &self.base, slice, window, open: None }));
        stream::try_unfold(begin, move |left: Option<(Option<NextPage>, Decoder<'r>)>| {
            let values = values.clone();
            async move {
                let Some((from, mut decoder)) = left else { return Ok(None) };
                let mut batch = Vec::new();
                let take = |row: &[Option<&[u8]>]| {
                    decoder.take(row, &mut batch)?;
                    Ok(ControlFlow::Continue(()))
                };
                let read = self.statement.page(context, &values, Consistency::Quorum, from, take).await?;
                let left = match read {
                    ControlFlow::Continue(Some(next)) => Some((Some(next), decoder)),
                    ControlFlow::Continue(None) | ControlFlow::Break(()) => {
                        decoder.end(&mut batch);
                        None
                    }
                };
                Ok(Some((batch, left)))
            }
        })
    }
}

/// A name as it stands in a statement.
fn quoted(name: &str) -> String {
    Identifier::quoted(name).to_string()
}

/// The streams that may have entries of a slice.
fn streams(context: &ShardContext, slice: Slice, window: Window, generations: Generations) -> Vec<StreamId> {
    let view = context.cluster_view();
    let feed = view.change_feed();
    let generations = match generations {
        Generations::All => feed.generations(),
        Generations::Active => {
            let from_ms = window.from_micros.div_euclid(1_000);
            let until_ms = window.until_micros.div_euclid(1_000).saturating_add(1);
            feed.active_between(from_ms, until_ms)
        }
    };
    let (first, last) = slice.tokens();
    generations.iter().flat_map(|streams| streams.of_tokens(first, last)).collect()
}

/// The values of the statement. It asks for whole milliseconds.
fn values(streams: &[StreamId], window: Window) -> Vec<OwnedValue> {
    let streams = codec::encode_elements(streams.iter().map(|stream| &stream.0[..]));
    let begin = |micros: i64| timeuuid::minimum(micros.div_euclid(1_000));
    let time = |uuid: Uuid| Some(uuid.as_bytes().to_vec());
    vec![Some(streams), time(begin(window.from_micros)), time(begin(window.until_micros.saturating_add(999)))]
}

/// Makes entries of the rows of a log.
#[derive(Debug)]
struct Decoder<'r> {
    base: &'r Table,
    slice: Slice,
    window: Window,
    /// The begin of a deleted range, whose end is in the next row.
    open: Option<OpenRange>,
}

#[derive(Debug)]
struct OpenRange {
    stream: Vec<u8>,
    time: Uuid,
    key: PartitionKey,
    start: Bound,
}

impl Decoder<'_> {
    /// Takes the next row.
    fn take(&mut self, row: &[Option<&[u8]>], entries: &mut Vec<Entry>) -> Result<()> {
        let malformed = || {
            RequestError::Server(format!("an entry of the changes of {} is malformed", self.base.full_name()))
        };
        let [Some(stream), Some(time), Some(operation), ttl, keys @ ..] = row else {
            return Err(malformed());
        };
        let time = Uuid::from_slice(time).map_err(|_| malformed())?;
        let operation = operation.first().copied().and_then(Operation::of_value).ok_or_else(malformed)?;
        let (partition, clustering) =
            keys.split_at_checked(self.base.partition_key_count).ok_or_else(malformed)?;
        let partition: Vec<&[u8]> = partition.iter().copied().collect::<Option<_>>().ok_or_else(malformed)?;
        let bytes = match &partition[..] {
            [only] => only.to_vec(),
            several => composite_key(several)?,
        };
        let key = PartitionKey::of(self.base.partitioner(), bytes);
        let micros = timeuuid::unix_micros(&time);
        let is_wanted = self.slice.contains(key.token)
            && (self.window.from_micros..self.window.until_micros).contains(&micros);
        if !is_wanted {
            return Ok(());
        }
        if let Operation::RangeEndInclusive | Operation::RangeEndExclusive = operation {
            let end = Bound {
                clustering: prefix(clustering),
                is_inclusive: operation == Operation::RangeEndInclusive,
            };
            let is_of_open =
                |open: &mut OpenRange| open.stream == *stream && open.time == time && open.key == key;
            // Without its begin: anything from the first row on.
            let start = self.open.take_if(is_of_open).map_or_else(everything, |open| open.start);
            self.end(entries);
            entries.push(Entry { time, ttl_seconds: None, changed: Changed::Range { key, start, end } });
            return Ok(());
        }
        self.end(entries);
        let changed = match operation {
            Operation::RangeStartInclusive | Operation::RangeStartExclusive => {
                let start = Bound {
                    clustering: prefix(clustering),
                    is_inclusive: operation == Operation::RangeStartInclusive,
                };
                self.open = Some(OpenRange { stream: stream.to_vec(), time, key, start });
                return Ok(());
            }
            Operation::DeletePartition => Changed::Partition { key },
            _ if !clustering.is_empty() && clustering.iter().all(Option::is_none) => Changed::Static { key },
            _ => {
                let clustering = clustering.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
                Changed::Row { key, clustering }
            }
        };
        let ttl_seconds = ttl.map(|ttl| {
            let seconds = <[u8; 8]>::try_from(ttl).map(i64::from_be_bytes).map_err(|_| malformed())?;
            u32::try_from(seconds).map_err(|_| malformed())
        });
        entries.push(Entry { time, ttl_seconds: ttl_seconds.transpose()?, changed });
        Ok(())
    }

    /// No end follows: a range that is open has everything up to the last row.
    fn end(&mut self, entries: &mut Vec<Entry>) {
        if let Some(OpenRange { time, key, start, .. }) = self.open.take() {
            entries.push(Entry {
                time,
                ttl_seconds: None,
                changed: Changed::Range { key, start, end: everything() },
            });
        }
    }
}

/// A bound without clustering columns.
fn everything() -> Bound {
    Bound { clustering: Vec::new(), is_inclusive: true }
}

/// The first clustering columns, as far as there are values.
fn prefix(clustering: &[Option<&[u8]>]) -> Vec<Vec<u8>> {
    clustering.iter().map_while(|value| value.map(<[u8]>::to_vec)).collect()
}

/// Writes entries for rows that have not changed, at QUORUM: their views are computed again. A unit is a partition of the base table and a
/// position in it; one with fewer clustering columns than a row names all rows that have these.
pub async fn touch(
    context: &Rc<ShardContext>,
    base: &Arc<Table>,
    log: &Arc<Table>,
    units: &[(PartitionKey, Vec<u8>)],
) -> Result<()> {
    for units in units.chunks(TOUCHED_TOGETHER) {
        anew::write_of_units(context, base, log, units).await?;
    }
    Ok(())
}
