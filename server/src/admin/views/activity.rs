//! Views of what the node does for clients: requests, statements, batches, caches, the log.

use std::collections::BTreeMap;

use cql_lite::syntax::ast::BatchKind;
use helenus_observe::AdminError;
use helenus_observe::metrics::{CountSnapshot, ShardMetrics};
use helenus_query::schema::virtual_tables::RowWriter;

use super::source::Views;
use crate::logs;
use crate::session::connection;
use crate::session::latencies::micros;
use crate::session::slow_requests::{SlowRequests, shown};

fn sum(views: &Views, count: fn(&ShardMetrics) -> u64) -> u64 {
    views.admin.node.metrics.iter().map(|shard| count(shard)).sum()
}

pub fn batch_metrics(views: &Views, writer: &mut RowWriter<'_>) {
    for (name, kind) in [
        ("partitions_per_counter_batch", BatchKind::Counter),
        ("partitions_per_logged_batch", BatchKind::Logged),
        ("partitions_per_unlogged_batch", BatchKind::Unlogged),
    ] {
        let mut counts = CountSnapshot::default();
        for shard in &views.admin.node.metrics {
            counts.add(&shard.batch_partitions[kind as usize].snapshot());
        }
        let quantile = |part| counts.quantile(part) as f64;
        writer
            .row()
            .set("name", name)
            .set("max", counts.quantile(1.0) as i64)
            .set("p50th", quantile(0.5))
            .set("p999th", quantile(0.999))
            .set("p99th", quantile(0.99));
    }
}

/// The caches of blocks of table files, by Cassandra's name. What is in them and how often that is of use is not counted.
pub fn caches(views: &Views, writer: &mut RowWriter<'_>) {
    let capacity_bytes = views.admin.node.config.block_cache_bytes as i64;
    writer.row().set("name", "chunks").set("capacity_bytes", capacity_bytes);
}

pub fn cql_metrics(views: &Views, writer: &mut RowWriter<'_>) {
    let registry = &views.admin.node.registry;
    let (prepared, texts) =
        (sum(views, |shard| shard.prepared_executed.get()), sum(views, |shard| shard.texts_executed.get()));
    let all = prepared + texts;
    let ratio = if all == 0 { 0.0 } else { prepared as f64 / all as f64 };
    for (name, value) in [
        ("prepared_statements_count", registry.len() as f64),
        ("prepared_statements_evicted", registry.evicted() as f64),
        ("prepared_statements_executed", prepared as f64),
        ("prepared_statements_ratio", ratio),
        ("regular_statements_executed", texts as f64),
    ] {
        writer.row().set("name", name).set("value", value);
    }
}

/// `system.prepared_statements`.
pub fn prepared_statements(views: &Views, writer: &mut RowWriter<'_>) {
    for statement in views.admin.node.registry.all() {
        writer
            .row()
            .set("prepared_id", statement.id.as_slice())
            .set("logged_keyspace", statement.keyspace.as_deref())
            .set("query_string", &*statement.text);
    }
}

/// The requests under way that wait for something, and so can be seen. A request is begun when it is read: none is queued.
pub async fn queries(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let shards = views
        .admin
        .on_every_shard(|context| {
            let now = context.clock.monotonic();
            let waiting = connection::waiting_requests(&context).into_iter();
            let described = waiting.map(|(client, number, request)| {
                let id = format!("shard-{}/{client}/{number}", context.index);
                let task =
                    request.text.map_or_else(|| "BATCH".to_owned(), |text| format!("QUERY {}", shown(&text)));
                (id, micros(now.saturating_sub(request.started)).max(1), task)
            });
            Box::pin(std::future::ready(Ok(described.collect::<Vec<_>>())))
        })
        .await?;
    for (id, running_micros, task) in shards.into_iter().flatten() {
        writer
            .row()
            .set("thread_id", id)
            .set("queued_micros", 0_i64)
            .set("running_micros", running_micros as i64)
            .set("task", task);
    }
    Ok(())
}

pub async fn slow_queries(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let shards = views
        .admin
        .on_every_shard(|context| Box::pin(std::future::ready(Ok(SlowRequests::remembered(&context)))))
        .await?;
    // Requests of one statement that were answered in the same millisecond are one row.
    let mut rows: BTreeMap<(String, String, i64, String), Vec<u64>> = BTreeMap::new();
    for request in shards.into_iter().flatten() {
        let millis = request.ended_micros.div_euclid(1_000);
        let key = (request.keyspace, request.table, millis, request.text);
        rows.entry(key).or_default().push(request.duration.as_millis() as u64);
    }
    for ((keyspace, table, millis, text), durations) in rows {
        let least = durations.iter().min().copied().unwrap_or(0);
        let most = durations.iter().max().copied().unwrap_or(0);
        let average = durations.iter().sum::<u64>() / (durations.len() as u64).max(1);
        writer
            .row()
            .set("keyspace_name", keyspace)
            .set("table_name", table)
            .set("timestamp", millis)
            .set("query", text)
            .set("avg_ms", average as i64)
            // A request is measured by the node that the client has asked.
            .set("cross_node", false)
            .set("max_ms", most as i64)
            .set("min_ms", least as i64)
            .set("times_reported", durations.len() as i32);
    }
    Ok(())
}

pub fn system_logs(writer: &mut RowWriter<'_>) {
    for line in logs::last() {
        writer
            .row()
            .set("timestamp", line.millis)
            .set("order_in_millisecond", line.order)
            .set("level", line.level)
            .set("logger", line.target)
            .set("message", line.message);
    }
}

/// The kinds of work of the node, each done by the threads of all shards.
pub async fn thread_pools(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let whole = |count: u64| i32::try_from(count).unwrap_or(i32::MAX);
    let shards = views.admin.node.shard_count() as u64;
    for stage in views.admin.activity_report().await?.stages {
        writer
            .row()
            .set("name", stage.name)
            .set("active_tasks", whole(stage.active))
            .set("active_tasks_limit", whole(shards))
            .set("blocked_tasks", 0_i64)
            .set("blocked_tasks_all_time", 0_i64)
            .set("completed_tasks", stage.completed as i64)
            .set("pending_tasks", whole(stage.pending));
    }
    Ok(())
}
