//! Views of compactions, snapshots and repairs.

use std::collections::BTreeMap;

use cql_lite::types::time::parse_timestamp;
use cql_lite::types::timeuuid;
use helenus_engine::TableId;
use helenus_execution::coordinator::repair::runs::{RepairRuns, RunReport, RunState};
use helenus_observe::{Admin, AdminError, RepairRanges};
use helenus_query::schema::virtual_tables::RowWriter;
use uuid::Uuid;

use super::source::Views;
use crate::admin::compactions::kind_name;

/// An id that is the same at each read: a shard does not begin, or end, two works on a table in one microsecond.
fn id_of_work(micros: i64, shard: usize, table: TableId) -> Uuid {
    let [a, b, c, d, e, f, ..] = table.0;
    timeuuid::from_micros(micros, 0, shard as u16, [a, b, c, d, e, f])
}

/// `system.compaction_history`: the last ones of each shard since the start of the node, but for those of the node's own tables.
pub async fn compaction_history(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let shards = views
        .admin
        .on_every_shard(|context| {
            Box::pin(std::future::ready(Ok((context.index, context.shard.ended_compactions()))))
        })
        .await?;
    let names = views.names();
    for (shard, ended) in shards {
        for compaction in ended {
            let Some((keyspace, table)) = names.get(&compaction.table) else { continue };
            let kind = ("compaction_type".to_owned(), kind_name(compaction.kind).to_owned());
            writer
                .row()
                .set("id", id_of_work(compaction.ended_micros, shard, compaction.table))
                .set("bytes_in", compaction.input_bytes as i64)
                .set("bytes_out", compaction.output_bytes as i64)
                .set("columnfamily_name", *table)
                .set("compacted_at", compaction.ended_micros.div_euclid(1_000))
                .set("compaction_properties", BTreeMap::from([kind]))
                .set("keyspace_name", *keyspace);
        }
    }
    Ok(())
}

/// A compaction under way on a shard.
struct Running {
    shard: usize,
    table: TableId,
    kind: &'static str,
    /// Of the monotonic clock.
    begun_micros: i64,
    read_bytes: u64,
    total_bytes: u64,
}

pub async fn sstable_tasks(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let shards = views
        .admin
        .on_every_shard(|context| {
            let running = context.shard.running_compactions().into_iter().map(|running| Running {
                shard: context.index,
                table: running.table,
                kind: kind_name(running.kind),
                begun_micros: running.begun.as_micros() as i64,
                read_bytes: running.progress.read_bytes(),
                total_bytes: running.progress.total_bytes(),
            });
            Box::pin(std::future::ready(Ok(running.collect::<Vec<_>>())))
        })
        .await?;
    let names = views.names();
    let started_micros = i64::from(views.admin.node.information.generation) * 1_000_000;
    for running in shards.into_iter().flatten() {
        let Some((keyspace, table)) = names.get(&running.table) else { continue };
        let ratio = running.read_bytes as f64 / running.total_bytes.max(1) as f64;
        writer
            .row()
            .set("keyspace_name", *keyspace)
            .set("table_name", *table)
            .set("task_id", id_of_work(started_micros + running.begun_micros, running.shard, running.table))
            .set("completion_ratio", (ratio * 1_000.0).round() / 1_000.0)
            .set("kind", running.kind.to_lowercase())
            .set("progress", running.read_bytes as i64)
            .set("total", running.total_bytes as i64)
            .set("unit", "bytes");
    }
    Ok(())
}

/// The snapshots of tables. Those whose schema is not known are left out: their names are a part of the key.
pub async fn snapshots(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    for snapshot in views.admin.snapshots().await? {
        if snapshot.keyspace.is_empty() || snapshot.table.is_empty() {
            continue;
        }
        writer
            .row()
            .set("name", snapshot.name)
            .set("keyspace_name", snapshot.keyspace)
            .set("table_name", snapshot.table)
            .set("created_at", parse_timestamp(&snapshot.created_at).ok())
            .set("ephemeral", false)
            .set("expires_at", parse_timestamp(&snapshot.expires_at).ok())
            .set("size_on_disk", snapshot.disk_bytes as i64);
    }
    Ok(())
}

/// The id of a repair: the same at each read.
fn id_of_repair(views: &Views, run: &RunReport) -> Uuid {
    let [a, b, c, d, e, f, ..] = *views.admin.node.host_id.as_bytes();
    timeuuid::from_micros(run.began_micros, 0, run.id as u16, [a | 1, b, c, d, e, f])
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

/// The range that an operator has named.
fn named_range(run: &RunReport) -> Vec<String> {
    match run.scope.ranges {
        RepairRanges::Range { start, end } => vec![format!("({start},{end}]")],
        RepairRanges::All | RepairRanges::OfNode | RepairRanges::PrimaryOfNode => Vec::new(),
    }
}

fn failure(run: &RunReport) -> Option<String> {
    match run.state {
        RunState::Running | RunState::Done => None,
        RunState::Cancelled => Some("cancelled".to_owned()),
        RunState::Incomplete => Some(run.failures.join("; ")),
    }
}

/// The repairs of this node that are under way, and the last ones. One goes table by table and range by range, and keeps no list of
/// them; so there are no rows of sessions, jobs, validations and participations.
pub fn repairs(views: &Views, writer: &mut RowWriter<'_>) {
    let now_micros = views.context.clock.now_micros();
    for run in RepairRuns::of(&views.admin.node).reports() {
        let millis = |micros: i64| micros.div_euclid(1_000);
        let (is_done, failure) = (run.state == RunState::Done, failure(&run));
        let until_micros = run.ended_micros.unwrap_or(now_micros);
        let status = match run.state {
            RunState::Running => "repair_start",
            RunState::Done => "success",
            RunState::Incomplete | RunState::Cancelled => "failure",
        };
        writer
            .row()
            .set("id", id_of_repair(views, &run))
            .set("command_id", i32::try_from(run.id).unwrap_or(i32::MAX))
            .set("completed", run.ended_micros.is_some())
            .set("duration_millis", millis(until_micros - run.began_micros))
            .set("keyspace_name", run.scope.keyspace.clone())
            .set("last_updated_at", millis(until_micros))
            .set("options_column_families", sorted(run.scope.tables.clone()))
            .set("options_data_centers", sorted(run.scope.data_centers.clone()))
            .set("options_force_repair", run.scope.without_dead)
            .set("options_hosts", Vec::<String>::new())
            .set("options_incremental", false)
            .set("options_preview_kind", "NONE")
            .set("options_primary_range", run.scope.ranges == RepairRanges::PrimaryOfNode)
            .set("options_pull_repair", false)
            .set("options_ranges", named_range(&run))
            .set("options_subrange_repair", !named_range(&run).is_empty())
            .set("options_trace", false)
            .set("state_failure_timestamp", failure.is_some().then(|| millis(until_micros)))
            .set("failure_cause", failure)
            .set("state_init_timestamp", millis(run.began_micros))
            .set("state_repair_start_timestamp", millis(run.began_micros))
            .set("state_start_timestamp", millis(run.began_micros))
            .set("state_success_timestamp", is_done.then(|| millis(until_micros)))
            .set("status", status)
            .set("success_message", is_done.then_some("Repair completed successfully"))
            .set("table_names", run.scope.tables.clone())
            .set("type", "full");
    }
}

/// `system_distributed.parent_repair_history`, of this node only, since its start.
pub fn parent_repair_history(views: &Views, writer: &mut RowWriter<'_>) {
    for run in RepairRuns::of(&views.admin.node).reports() {
        let ranges = named_range(&run);
        let options = BTreeMap::from([
            ("dataCenters".to_owned(), run.scope.data_centers.join(",")),
            ("forceRepair".to_owned(), run.scope.without_dead.to_string()),
            ("primaryRange".to_owned(), (run.scope.ranges == RepairRanges::PrimaryOfNode).to_string()),
        ]);
        writer
            .row()
            .set("parent_id", id_of_repair(views, &run))
            .set("columnfamily_names", sorted(run.scope.tables.clone()))
            .set("exception_message", failure(&run))
            .set("finished_at", run.ended_micros.map(|micros| micros.div_euclid(1_000)))
            .set("keyspace_name", run.scope.keyspace.clone())
            .set("options", options)
            .set("successful_ranges", (run.state == RunState::Done).then(|| ranges.clone()))
            .set("requested_ranges", ranges)
            .set("started_at", run.began_micros.div_euclid(1_000));
    }
}
