//! The streams of change feeds: when they begin, are extended and end.

use std::sync::Arc;

use helenus_query::schema::catalog::{Keyspace, Table};
use helenus_query::schema::view;

use super::*;
use crate::change_feed::{Streams, UNCONFIRMED_SECONDS};

const TABLES: [&str; 2] = [
    "CREATE TABLE t (k int PRIMARY KEY) WITH cdc = {'enabled': true, 'ttl': 1}",
    "CREATE TABLE t_scylla_cdc_log (s blob PRIMARY KEY)",
];

/// The change to a table with a feed and its log, or to none.
fn change_of_feed(
    state: &ClusterState,
    version: u128,
    has_feed: bool,
    first_streams_ms: Option<i64>,
) -> Command {
    let statements = if has_feed { &TABLES[..] } else { &[] };
    let mut new = Catalog::clone(&catalog_of(&[&[CREATE_KEYSPACE], statements].concat()).catalog);
    new.version = id(version);
    if has_feed {
        let mut keyspace = Keyspace::clone(new.keyspace("ks").unwrap());
        let mut log = Table::clone(&keyspace.tables["t_scylla_cdc_log"]);
        log.options.is_feed_log = true;
        keyspace.tables.insert(log.name.clone(), Arc::new(log));
        new.keyspaces.insert("ks".to_owned(), Arc::new(keyspace));
    }
    schema_change(state, &new, first_streams_ms)
}

/// The change to a table that views are computed of, and its log.
fn change_of_views(state: &ClusterState, version: u128, first_streams_ms: Option<i64>) -> Command {
    let statements =
        [CREATE_KEYSPACE, "CREATE TABLE t (k int PRIMARY KEY)", "CREATE TABLE log (s blob PRIMARY KEY)"];
    let mut new = Catalog::clone(&catalog_of(&statements).catalog);
    new.version = id(version);
    let mut keyspace = Keyspace::clone(new.keyspace("ks").unwrap());
    let mut log = Table::clone(&keyspace.tables.remove("log").unwrap());
    log.options.is_feed_log = true;
    log.name = view::log_name("t");
    keyspace.tables.insert(log.name.clone(), Arc::new(log));
    new.keyspaces.insert("ks".to_owned(), Arc::new(keyspace));
    schema_change(state, &new, first_streams_ms)
}

fn schema_change(state: &ClusterState, new: &Catalog, first_streams_ms: Option<i64>) -> Command {
    Command::ChangeTables(SchemaChangeCommand {
        base: state.catalog.version,
        changed: CatalogDocument::delta(&state.catalog, new),
        dropped: Vec::new(),
        event: event("t"),
        creator: None,
        first_streams_ms,
    })
}

fn extension(timestamp_ms: i64, tokens: &[i64], shard_count: u16) -> Command {
    Command::ExtendStreams(StreamsExtension {
        proposed_ms: timestamp_ms - DELAY_MS,
        timestamp_ms,
        tokens: tokens.iter().copied().collect(),
        shard_counts: [shard_count].into(),
    })
}

const DELAY_MS: i64 = 1_000;

fn with_feed() -> Log {
    let mut log = Log::of(2);
    log.done(&change_of_feed(&log.state, 1001, true, Some(5_000)));
    log
}

fn times(log: &Log) -> Vec<i64> {
    log.state.topology.change_feed.generations().iter().map(|streams| streams.timestamp_ms()).collect()
}

#[test]
fn streams_begin_with_the_first_feed_and_end_with_the_last_log() {
    let mut log = with_feed();
    let feed = &log.state.topology.change_feed;
    assert_eq!(feed.active_at(4_999), None);
    let generation = feed.active_at(5_000).map(Streams::generation).unwrap();
    assert_eq!(generation.ends, [100, 101, 200, 201].into());
    assert_eq!(generation.shard_counts, [2].into());
    // Their document without what the base has.
    let document = serde_json::to_string(&log.state.document_since(&log.state)).unwrap();
    assert!(document.contains(r#""has_feed_of_base":true"#) && !document.contains("timestamp_ms"));
    let again: StateDocument = serde_json::from_str(&document).unwrap();
    assert_eq!(again.state_over(&log.state).unwrap().topology, log.state.topology);
    log.done(&change_of_feed(&log.state, 1002, false, None));
    assert!(log.state.topology.change_feed.is_empty());
    assert!(!serde_json::to_string(&log.state.document()).unwrap().contains("change_feed"));
}

#[test]
fn streams_are_extended_once_before_a_member_joins_and_stay_when_it_leaves() {
    let mut log = with_feed();
    let epoch = log.state.topology.epoch;
    let new = Member { shard_count: 3, ..member(3) };
    log.refused(&Command::Join { member: new.clone() }, Refusal::StreamsNotActive { left_ms: 0 });
    log.done(&extension(9_000, &new.tokens, 3));
    log.again(&extension(9_500, &new.tokens, 3));
    assert_eq!(log.state.topology.epoch, epoch, "ownership is unchanged");
    assert_eq!(times(&log), [5_000, 9_000]);
    let feed = &log.state.topology.change_feed;
    assert_eq!(feed.missing_for(&new.tokens, 3, 8_999), Some(crate::change_feed::Missing::Until(9_000)));
    assert_eq!(feed.missing_for(&new.tokens, 3, 9_000), None);
    log.join_wholly(new);
    log.leave_wholly(2);
    assert_eq!(times(&log), [5_000, 9_000]);
    // What ended longer ago than any entry lives is forgotten, and tokens that are gone are left out.
    log.done(&extension(800_000, &[7], 2));
    assert_eq!(times(&log), [9_000, 800_000]);
    let newest = log.state.topology.change_feed.newest().unwrap().generation();
    assert_eq!(newest.ends, [7, 100, 101, 300, 301].into());
}

#[test]
fn members_that_join_at_the_same_time_do_not_take_streams_from_each_other() {
    let mut log = with_feed();
    let (x, y) = (member(3), Member { shard_count: 5, ..member(4) });
    log.done(&extension(9_000, &x.tokens, x.shard_count));
    log.done(&extension(9_500, &y.tokens, y.shard_count));
    let missing = |log: &Log, of: &Member, time_ms| {
        log.state.topology.change_feed.missing_for(&of.tokens, of.shard_count, time_ms)
    };
    assert_eq!((missing(&log, &x, 9_000), missing(&log, &y, 9_500)), (None, None));
    // Also when the first ones have become active, and the member has not joined yet.
    let z = member(5);
    log.done(&extension(60_000, &z.tokens, z.shard_count));
    for of in [&x, &y, &z] {
        assert_eq!(missing(&log, of, 60_000), None);
    }
    assert_eq!(times(&log), [5_000, 9_000, 9_500, 60_000]);
}

#[test]
fn a_generation_stays_as_long_as_its_entries_do() {
    // An entry with a ttl of one second is kept for two, and may be written a minute after its time.
    let (mut log, new) = (with_feed(), member(3));
    log.done(&extension(9_000, &new.tokens, 2));
    log.done(&extension(9_000 + 62_000 + DELAY_MS, &[7], 2));
    assert_eq!(times(&log), [5_000, 9_000, 72_000]);
    log.done(&extension(9_000 + 62_002 + DELAY_MS, &[8], 2));
    assert_eq!(times(&log), [9_000, 72_000, 72_002]);
}

#[test]
fn a_generation_of_entries_of_views_stays_as_long_as_a_member_may_write_into_it_and_longer() {
    let mut log = Log::of(2);
    log.done(&change_of_views(&log.state, 1001, Some(5_000)));
    log.done(&extension(9_000, &member(3).tokens, 2));
    let kept_ms = (i64::from(view::CHANGES_TTL_SECONDS) + 60 + UNCONFIRMED_SECONDS + 60) * 1_000;
    log.done(&extension(9_000 + kept_ms + DELAY_MS, &[7], 2));
    assert_eq!(times(&log)[..2], [5_000, 9_000]);
    log.done(&extension(9_000 + kept_ms + 2 + DELAY_MS, &[8], 2));
    assert_eq!(times(&log)[0], 9_000);
    log.done(&change_of_feed(&log.state, 1002, false, None));
    assert!(log.state.topology.change_feed.is_empty());
}

#[test]
fn a_generation_above_the_limit_is_refused() {
    let mut log = with_feed();
    let limit = crate::change_feed::GENERATIONS_MAX as i64;
    for number in 1..limit {
        log.done(&extension(9_000 + number, &[1_000 + number], 2));
    }
    let refusal = Refusal::TooManyGenerations { limit: limit as u64 };
    log.refused(&extension(9_000 + limit, &[0], 2), refusal);
    assert_eq!(log.state.topology.change_feed.generations()[0].timestamp_ms(), 5_000);
}

#[test]
fn without_a_feed_nothing_is_extended() {
    let mut log = Log::of(1);
    log.again(&extension(1, &[7], 2));
}

#[test]
fn what_is_stored_stays_the_same() {
    let text =
        r#"{"ExtendStreams":{"proposed_ms":-991,"timestamp_ms":9,"tokens":[-5,7],"shard_counts":[4]}}"#;
    assert_eq!(serde_json::to_string(&extension(9, &[7, -5], 4)).unwrap(), text);
}
