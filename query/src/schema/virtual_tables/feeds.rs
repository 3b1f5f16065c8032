//! Rows about change feeds, as ScyllaDB's consumers read them.

use std::sync::Arc;

use super::NodeState;
use super::row::RowWriter;
use crate::schema::catalog::{Catalog, Table};

/// The class name by which drivers identify the computation of tokens of logs.
const PARTITIONER: &str = "com.scylladb.dht.CDCPartitioner";

/// `system_schema.scylla_tables`: the tables with a feed, and the logs.
pub fn scylla_tables(writer: &mut RowWriter, catalog: &Catalog) {
    let tables = catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let is_of_feed =
        |table: &&Arc<Table>| table.options.cdc.is_some() || table.options.is_feed_log && !table.is_hidden();
    for table in tables.filter(is_of_feed) {
        writer
            .row()
            .set("keyspace_name", table.keyspace.as_str())
            .set("table_name", table.name.as_str())
            .set("cdc", table.options.cdc.map(|feed| feed.to_map()))
            .set("partitioner", table.options.is_feed_log.then_some(PARTITIONER));
    }
}

/// `system_distributed.cdc_generation_timestamps`, newest first.
pub fn generations(writer: &mut RowWriter, state: &NodeState) {
    let mut expired = None;
    for generation in state.feed_generations.iter().rev() {
        writer
            .row()
            .set("key", "timestamps")
            .set("time", generation.timestamp_ms)
            .set("expired", expired.replace(generation.timestamp_ms));
    }
}

/// `system_distributed.cdc_streams_descriptions_v2`.
pub fn streams(writer: &mut RowWriter, state: &NodeState) {
    for generation in &state.feed_generations {
        for (range_end, streams) in &generation.ranges {
            writer
                .row()
                .set("time", generation.timestamp_ms)
                .set("range_end", *range_end)
                .set("streams", streams.as_slice());
        }
    }
}
