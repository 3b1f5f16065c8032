//! Change feeds: the mutations of a request get the entries of their tables' logs as companions.
//!
//! Invariants:
//! * An entry and its mutation are one write: one record of the commit log, the same replicas. So whatever becomes of the mutation (hints,
//!   batch log, transactions, repair) becomes of its entry.
//! * What is written whole or not at all has a group of entries in each stream: they have one time, and consecutive numbers, and the last one
//!   ends the group.
//! * The stream is one of those that are active at this time: it has the replicas and the shard of the partition. A node that may not know them
//!   refuses the write ([`confirmed`]).
//! * Entries of feeds are made once for a write, where its mutations are finished: what is written again (hints, repair, streaming, a restore) gets none.
//!
//! A table that views are computed of has a second log, of which clients see nothing: the keys of what changes. Its entries are made in the same
//! way, whether or not the table has a feed. What reaches a replica late gets another one ([`anew`]).

pub mod anew;
pub mod confirmed;
pub mod kept;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::types::timeuuid;
use hashbrown::HashMap;
use helenus_change_feed::entry::{Entry, Feed, Place, log_mutation};
use helenus_change_feed::layout::LogLayout;
use helenus_change_feed::numbers::Numbers;
use helenus_change_feed::time::entry_micros;
use helenus_engine::{Expiry, Mutation};
use helenus_feed_tables::history::kept_seconds;
use helenus_feed_tables::{Delta, Preimage};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::run::modify::{ExistingRows, PartitionMutation, WriteContext};
use helenus_query::schema::catalog::Table;
use helenus_query::schema::options::ChangeFeedOptions;
use helenus_query::schema::view::CHANGES_TTL_SECONDS;
use helenus_ring::change_feed::{ChangeFeed, StreamId, Streams};
use uuid::Uuid;

use crate::shard::context::ShardContext;

/// What of several mutations is one group of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// All of them: a transaction, a logged batch.
    Together,
    /// Each: some may be written and others not.
    Each,
}

/// Whether a modification reads rows for the images that its table's feed has of them.
#[inline]
pub fn reads_images(plan: &ModifyPlan) -> bool {
    plan.table.options.feed().is_some_and(ChangeFeedOptions::needs_row_of_before)
}

/// Whether a modification reads what it changes: for the new values, or for images.
#[inline]
pub fn reads_first(plan: &ModifyPlan) -> bool {
    plan.needs_read() || reads_images(plan)
}

/// The mutations of a request with the entries of change feeds. `existing`: the rows of before, where the request reads them.
#[inline]
pub fn attach(
    context: &ShardContext,
    changes: Vec<PartitionMutation>,
    grouping: Grouping,
    write: &WriteContext,
    existing: Option<&dyn ExistingRows>,
) -> Result<Vec<PartitionMutation>> {
    let view = context.catalog_view();
    let view_logs = view.view_logs();
    let is_followed = |change: &PartitionMutation| {
        change.table.options.feed().is_some()
            || !view_logs.is_empty() && view_logs.contains_key(&change.table.id)
    };
    if !changes.iter().any(is_followed) {
        return Ok(changes);
    }
    drop(view);
    with_entries(context, changes, grouping, write, existing)
}

/// The entries of one mutation.
struct Pending {
    /// Index of the mutation.
    of: usize,
    layout: Rc<LogLayout>,
    stream: StreamId,
    entries: Vec<Entry>,
    expiry: Option<Expiry>,
    is_of_views: bool,
}

/// What is kept for views: which rows have changed. What is in them is read when the views are computed.
const OF_VIEWS: ChangeFeedOptions = ChangeFeedOptions {
    enabled: true,
    preimage: Preimage::Off,
    postimage: false,
    delta: Delta::Keys,
    ttl_seconds: CHANGES_TTL_SECONDS,
};

/// A log of a table.
struct FollowingLog<'t> {
    log: Arc<Table>,
    options: &'t ChangeFeedOptions,
}

/// The logs of a table: of its feed, and of views. None of those that are gone, and the table with them, since the request was planned.
fn logs<'t>(context: &ShardContext, base: &'t Table) -> impl Iterator<Item = FollowingLog<'t>> {
    let view = context.catalog_view();
    let of_feed = base.options.feed().and_then(|options| {
        let keyspace = view.catalog.keyspace(&base.keyspace)?;
        keyspace.feed_log(&base.name).map(|log| FollowingLog { log: log.clone(), options })
    });
    let of_views = view.view_logs().get(&base.id);
    let of_views = of_views.map(|log| FollowingLog { log: log.clone(), options: &OF_VIEWS });
    of_feed.into_iter().chain(of_views)
}

#[inline(never)]
fn with_entries(
    context: &ShardContext,
    mut changes: Vec<PartitionMutation>,
    grouping: Grouping,
    write: &WriteContext,
    existing: Option<&dyn ExistingRows>,
) -> Result<Vec<PartitionMutation>> {
    let mut pending = Vec::with_capacity(changes.len());
    for (of, PartitionMutation { table, mutation, .. }) in changes.iter().enumerate() {
        for FollowingLog { log, options } in logs(context, table) {
            let is_of_views = log.is_view_log();
            let layout = layout(context, table, &log)?;
            let view = mutation.view().map_err(|error| RequestError::Server(error.to_string()))?;
            let feed = Feed { table, options, layout: &layout };
            let entries = feed.entries(&view, existing, write.now_seconds)?;
            if entries.is_empty() {
                continue;
            }
            let expiry = expiry(context, *options);
            pending.push(Pending { of, layout, stream: StreamId([0; 16]), entries, expiry, is_of_views });
        }
    }
    let newest = pending.iter().flat_map(|pending| &pending.entries).map(|entry| entry.timestamp).max();
    let Some(newest) = newest else { return Ok(changes) };
    // What was read first, or sent to a leader, has taken time. Consumers may have read past the begin of the request meanwhile.
    let now_micros = write.now_micros.max(context.clock.now_micros());
    let micros = choose_streams(context, &changes, &mut pending, entry_micros(newest, now_micros))?;
    let name = |pending: &Pending| (pending.layout.table, pending.stream);
    let mut numbers = match grouping {
        Grouping::Together => Numbers::shared(pending.iter().map(|list| (name(list), list.entries.len()))),
        Grouping::Each => Numbers::of_each(),
    };
    let mut time_of_group: Option<(usize, Uuid)> = None;
    for pending in pending {
        let (first_number, ends_group) = numbers.next(&name(&pending), pending.entries.len())?;
        let Pending { of, layout, stream, entries, expiry, .. } = pending;
        let group = if grouping == Grouping::Together { 0 } else { of };
        // Those of a group follow each other.
        let known = time_of_group.filter(|(known, _)| *known == group);
        let (_, time) = *time_of_group.insert(known.unwrap_or_else(|| (group, time_of(context, micros))));
        let place = Place { stream: stream.0, time, first_number, ends_group, expiry };
        let entry = log_mutation(&layout, entries, &place)?;
        let change = &mut changes[of];
        change.mutation = Mutation::with_companions(&change.mutation, &[entry])
            .map_err(|error| RequestError::Server(error.to_string()))?;
        check_size(change, write.mutation_bytes_max)?;
    }
    Ok(changes)
}

/// When entries that are written now disappear.
fn expiry(context: &ShardContext, options: ChangeFeedOptions) -> Option<Expiry> {
    let expires_at = |ttl: u32| context.now_seconds().saturating_add(ttl);
    kept_seconds(options.ttl_seconds).map(|ttl| Expiry { ttl, expires_at: expires_at(ttl) })
}

/// Sets the streams of the entries, and returns their time, which is the wanted one in all but one case: a clock that is behind the first
/// generation puts the entries to its begin.
fn choose_streams(
    context: &ShardContext,
    changes: &[PartitionMutation],
    pending: &mut [Pending],
    wanted_micros: i64,
) -> Result<i64> {
    if pending.iter().all(|pending| pending.is_of_views) {
        confirmed::check_of_views(context)?;
    } else {
        confirmed::check(context)?;
    }
    let view = context.cluster_view();
    let (streams, micros) = active_streams(view.change_feed(), wanted_micros)?;
    for Pending { of, stream, .. } in pending {
        *stream = streams.stream_of(changes[*of].token);
    }
    Ok(micros)
}

/// The streams for entries of a time, and the time that they get.
fn active_streams(feed: &ChangeFeed, wanted_micros: i64) -> Result<(&Streams, i64)> {
    const MICROS_PER_MS: i64 = 1_000;
    if let Some(streams) = feed.active_at(wanted_micros.div_euclid(MICROS_PER_MS)) {
        return Ok((streams, wanted_micros));
    }
    let first = feed.generations().first().ok_or_else(|| {
        RequestError::Server("this node does not know the streams of change feeds yet".to_owned())
    })?;
    Ok((first, first.timestamp_ms().saturating_mul(MICROS_PER_MS)))
}

/// A timeuuid of this time that no other entry has.
fn time_of(context: &ShardContext, micros: i64) -> Uuid {
    let random = context.random.borrow_mut().next_u64().to_be_bytes();
    let [c0, c1, node @ ..] = random;
    timeuuid::from_micros(micros, 0, u16::from_be_bytes([c0, c1]), node)
}

fn check_size(change: &PartitionMutation, limit: usize) -> Result<()> {
    let bytes = change.mutation.bytes().len();
    if bytes <= limit {
        return Ok(());
    }
    Err(RequestError::invalid(format!(
        "Rejected an oversized mutation ({bytes}/{limit}) for keyspace: {}. It is a change of {} with its entry of the change feed",
        change.table.keyspace, change.table.name
    )))
}

/// The layouts of logs on a shard, by the ids of the logs.
#[derive(Default)]
pub struct LogLayouts {
    known: RefCell<HashMap<Uuid, KnownLayout>>,
}

struct KnownLayout {
    base: Arc<Table>,
    log: Arc<Table>,
    layout: Rc<LogLayout>,
}

/// The layout of a log of a table.
fn layout(context: &ShardContext, base: &Arc<Table>, log: &Arc<Table>) -> Result<Rc<LogLayout>> {
    let mut known = context.layers.get::<LogLayouts>().known.borrow_mut();
    if let Some(known) = known.get(&log.id)
        && Arc::ptr_eq(&known.base, base)
        && Arc::ptr_eq(&known.log, log)
    {
        return Ok(known.layout.clone());
    }
    let view = context.catalog_view();
    known.retain(|_, known| view.table(known.log.engine_id()).is_some());
    let layout = Rc::new(LogLayout::new(base, log)?);
    known.insert(log.id, KnownLayout { base: base.clone(), log: log.clone(), layout: layout.clone() });
    Ok(layout)
}
