//! The streams of change feeds: when they begin, are extended and end.

use std::sync::Arc;

use helenus_query::schema::catalog::{Keyspace, Table};

use super::*;
use crate::change_feed::{GENERATIONS_MAX, Streams};

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
    Command::ChangeTables(SchemaChangeCommand {
        base: state.catalog.version,
        changed: CatalogDocument::delta(&state.catalog, &new),
        dropped: Vec::new(),
        event: event("t"),
        creator: None,
        first_streams_ms,
    })
}

fn extension(timestamp_ms: i64, tokens: &[i64], shard_count: u16) -> Command {
    Command::ExtendStreams(StreamsExtension {
        timestamp_ms,
        tokens: tokens.iter().copied().collect(),
        shard_counts: [shard_count].into(),
    })
}

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
    log.done(&extension(20_000, &[7], 2));
    assert_eq!(times(&log), [9_000, 20_000]);
    let newest = log.state.topology.change_feed.newest().unwrap().generation();
    assert_eq!(newest.ends, [7, 100, 101, 300, 301].into());
}

#[test]
fn no_generation_is_forgotten_while_entries_may_be_left_of_it() {
    let mut log = with_feed();
    for number in 1..GENERATIONS_MAX as i64 {
        log.done(&extension(5_000 + number, &[1_000 + number], 2));
    }
    assert_eq!(times(&log)[0], 5_000);
    let refusal = Refusal::TooManyStreams { generations_max: GENERATIONS_MAX };
    log.refused(&extension(5_500, &[7], 2), refusal);
    log.done(&extension(9_000, &[7], 2));
    assert_eq!(times(&log).len(), 2, "all but the last one have ended more than a second ago");
}

#[test]
fn without_a_feed_nothing_is_extended() {
    let mut log = Log::of(1);
    log.again(&extension(1, &[7], 2));
}

#[test]
fn what_is_stored_stays_the_same() {
    let text = r#"{"ExtendStreams":{"timestamp_ms":9,"tokens":[-5,7],"shard_counts":[4]}}"#;
    assert_eq!(serde_json::to_string(&extension(9, &[7, -5], 4)).unwrap(), text);
}
