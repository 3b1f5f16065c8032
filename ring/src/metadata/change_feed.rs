//! How the streams of change feeds begin, follow the ring, and end.
//!
//! * The first streams begin with the first feed, and all are forgotten when the last log is gone.
//! * Before a new member owns tokens of its own, or has another number of shards than the others, streams that are right for it, too, are
//!   agreed on, and become active. Who takes it in sees to that: [`ChangeFeed::missing_for`].
//! * New streams are right for those who are being taken in, too: members that join at the same time would take each other's away otherwise.
//! * Streams are not changed when members go: they stay right.
//! * A generation is not forgotten as long as any log may have entries of it.

use std::sync::Arc;

use helenus_feed_tables::history::kept_seconds;
use helenus_query::schema::catalog::{Catalog, Keyspace, Table};
use helenus_query::schema::view::CHANGES_TTL_SECONDS;

use super::command::{CommandOutcome, Refusal, StreamsExtension};
use super::outcome::{Changed, refuse};
use super::state::{ClusterState, with_topology};
use crate::change_feed::{ChangeFeed, GENERATIONS_MAX, Generation, UNCONFIRMED_SECONDS};
use crate::member::Member;
use crate::topology::Topology;

/// The longest time between that of an entry and its writing, with clocks that differ.
const WRITING_MS: i64 = 60 * 1_000;
/// Who asked for streams within this time may wait for them still.
const TAKING_IN_MS: i64 = 10 * 60 * 1_000;

pub(super) fn extend(state: &ClusterState, index: u64, extension: &StreamsExtension) -> Changed {
    let topology = &state.topology;
    let Some(newest) = topology.change_feed.newest() else { return Ok(None) };
    let StreamsExtension { proposed_ms, timestamp_ms, tokens, shard_counts } = extension;
    let mut wanted = Generation::of(*timestamp_ms, topology.members.values().map(AsRef::as_ref));
    wanted.ends.extend(tokens);
    wanted.shard_counts.extend(shard_counts);
    if newest.generation().covers(&wanted) {
        return Ok(None);
    }
    let recently = proposed_ms.saturating_sub(TAKING_IN_MS);
    let generations = topology.change_feed.generations().iter();
    for waited_for in generations.filter(|streams| streams.timestamp_ms() > recently) {
        wanted.include(waited_for.generation());
    }
    let Some(change_feed) = topology.change_feed.with(wanted, kept_from_ms(&state.catalog, *proposed_ms))
    else {
        return refuse(Refusal::TooManyGenerations { limit: GENERATIONS_MAX as u64 });
    };
    Ok(Some(with_topology(state, index, false, |topology| topology.change_feed = change_feed)))
}

/// Refuses a new member for which no streams are right, even later ones: a feed may have been turned on since it was taken in.
pub(super) fn check_streams(topology: &Topology, member: &Member) -> Result<(), CommandOutcome> {
    let Some(newest) = topology.change_feed.newest() else { return Ok(()) };
    if newest.generation().covers(&Generation::of(0, [member])) {
        return Ok(());
    }
    refuse(Refusal::StreamsNotActive { left_ms: 0 })
}

/// The state after a schema change, whose topology has the index of the change. `old`: the catalog before.
pub(super) fn after_schema_change(
    mut state: ClusterState,
    old: &Catalog,
    first_streams_ms: Option<i64>,
) -> ClusterState {
    let topology = &state.topology;
    let change_feed = match (topology.change_feed.is_empty(), first_streams_ms) {
        (true, Some(timestamp_ms)) => {
            let members = topology.members.values().map(AsRef::as_ref);
            ChangeFeed::from(vec![Generation::of(timestamp_ms, members)])
        }
        (false, _) if loses_logs(old, &state.catalog) && logs(&state.catalog).next().is_none() => {
            ChangeFeed::default()
        }
        _ => return state,
    };
    Arc::make_mut(&mut state.topology).change_feed = change_feed;
    state
}

/// Whether a change has dropped logs.
fn loses_logs(old: &Catalog, new: &Catalog) -> bool {
    old.keyspaces.iter().any(|(name, before)| {
        let after = new.keyspaces.get(name);
        if after.is_some_and(|after| Arc::ptr_eq(before, after)) {
            return false;
        }
        let differences = Keyspace::table_differences(Some(before), after.map(AsRef::as_ref));
        differences
            .into_iter()
            .any(|(before, after)| after.is_none() && before.is_some_and(|before| before.options.is_feed_log))
    })
}

fn logs(catalog: &Catalog) -> impl Iterator<Item = (&Keyspace, &Table)> {
    catalog.keyspaces.values().flat_map(|keyspace| {
        let logs = keyspace.tables.values().filter(|table| table.options.is_feed_log);
        logs.map(|log| (keyspace.as_ref(), log.as_ref()))
    })
}

/// Entries from before this time have expired in all logs. They are written within [`WRITING_MS`] after their time.
fn kept_from_ms(catalog: &Catalog, now_ms: i64) -> i64 {
    let ttl_seconds = |(keyspace, log): (&Keyspace, &Table)| {
        if log.is_view_log() {
            return kept_seconds(CHANGES_TTL_SECONDS).map(|seconds| i64::from(seconds) + UNCONFIRMED_SECONDS);
        }
        let feed = keyspace.feed_base(log)?.options.cdc?;
        // What a feed that is turned off has written is not known.
        if feed.enabled { kept_seconds(feed.ttl_seconds).map(i64::from) } else { None }
    };
    let longest = logs(catalog).map(ttl_seconds).try_fold(0, |longest, ttl| Some(ttl?.max(longest)));
    longest.map_or(i64::MIN, |seconds: i64| {
        now_ms.saturating_sub(seconds.saturating_mul(1_000)).saturating_sub(WRITING_MS)
    })
}
