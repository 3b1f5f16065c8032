//! Views with a row for each table that has rows of its own.

use std::collections::BTreeMap;

use helenus_engine::{TableId, TableStatistics};
use helenus_execution::coordinator::local_work::{LocalKind, LocalWork, MetByReads};
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::partition_names::PartitionNames;
use helenus_observe::AdminError;
use helenus_observe::metrics::{CountSnapshot, Operation, TimingsSnapshot};
use helenus_query::schema::catalog::Table;
use helenus_query::schema::virtual_tables::{RowFields, RowWriter};

use super::source::Views;

fn row<'w>(writer: &'w mut RowWriter<'_>, table: &Table) -> RowFields<'w> {
    let mut row = writer.row();
    row.set("keyspace_name", table.keyspace.as_str()).set("table_name", table.name.as_str());
    row
}

/// What is shown of the files of a table.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_field_names, reason = "units stand at the end of names")]
struct Sizes {
    disk_bytes: u64,
    max_file_bytes: u64,
    max_partition_bytes: u64,
    max_file_micros: i64,
}

fn sizes(context: &ShardContext) -> Vec<(TableId, Sizes)> {
    let of = |statistics: TableStatistics| Sizes {
        disk_bytes: statistics.disk_bytes + statistics.index_bytes,
        max_file_bytes: statistics.max_file_bytes,
        max_partition_bytes: statistics.max_partition_bytes,
        max_file_micros: statistics.max_file_micros,
    };
    let shard = &context.shard;
    shard.table_ids().into_iter().filter_map(|id| Some((id, of(shard.statistics(id).ok()?)))).collect()
}

/// `disk_usage`, `max_partition_size`, `max_sstable_size`, `max_sstable_duration`.
pub async fn size(views: &Views, view: &str, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let add = |known: &mut Sizes, more: Sizes| {
        known.disk_bytes += more.disk_bytes;
        known.max_file_bytes = known.max_file_bytes.max(more.max_file_bytes);
        known.max_partition_bytes = known.max_partition_bytes.max(more.max_partition_bytes);
        known.max_file_micros = known.max_file_micros.max(more.max_file_micros);
    };
    let known = views.by_table(sizes, add).await?;
    // Whole mebibytes: what is there is not shown as nothing.
    let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20) as i64;
    for table in views.stored_tables() {
        let of_table = known.get(&table.engine_id()).copied().unwrap_or_default();
        let (column, value) = match view {
            "disk_usage" => ("mebibytes", mebibytes(of_table.disk_bytes)),
            "max_partition_size" => ("mebibytes", mebibytes(of_table.max_partition_bytes)),
            "max_sstable_size" => ("mebibytes", mebibytes(of_table.max_file_bytes)),
            _ => ("max_sstable_duration", of_table.max_file_micros / 1_000),
        };
        row(writer, table).set(column, value);
    }
    Ok(())
}

fn latency(row: &mut RowFields<'_>, timings: &TimingsSnapshot) {
    let millis = |part: f64| timings.durations.quantile_us(part) as f64 / 1_000.0;
    row.set("count", timings.durations.count as i64)
        .set("max_ms", millis(1.0))
        .set("p50th_ms", millis(0.5))
        .set("p99th_ms", millis(0.99))
        .set("per_second", (timings.per_second * 1_000.0).round() / 1_000.0);
}

/// `coordinator_read_latency`, `coordinator_scan_latency`, `coordinator_write_latency`. Writes with conditions are writes.
pub async fn coordinator_latency(
    views: &Views,
    view: &str,
    writer: &mut RowWriter<'_>,
) -> Result<(), AdminError> {
    let operations: &[Operation] = match view {
        "coordinator_read_latency" => &[Operation::Read],
        "coordinator_scan_latency" => &[Operation::Scan],
        _ => &[Operation::Write, Operation::Conditional],
    };
    let known = views.admin.timings_by_table().await?;
    for table in views.stored_tables() {
        let mut timings = TimingsSnapshot::default();
        if let Some(of_table) = known.get(&table.engine_id()) {
            for operation in operations {
                timings.add(&of_table[*operation as usize]);
            }
        }
        latency(&mut row(writer, table), &timings);
    }
    Ok(())
}

/// `local_read_latency`, `local_scan_latency`, `local_write_latency`.
pub async fn local_latency(views: &Views, view: &str, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let kind = match view {
        "local_read_latency" => LocalKind::Read,
        "local_scan_latency" => LocalKind::Scan,
        _ => LocalKind::Write,
    };
    let look = move |context: &ShardContext| LocalWork::timings(context, kind);
    let known = views.by_table(look, |known: &mut TimingsSnapshot, more| known.add(&more)).await?;
    let none = TimingsSnapshot::default();
    for table in views.stored_tables() {
        latency(&mut row(writer, table), known.get(&table.engine_id()).unwrap_or(&none));
    }
    Ok(())
}

/// `rows_per_read`, `tombstones_per_read`.
pub async fn met_by_reads(views: &Views, view: &str, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let what = if view == "rows_per_read" { MetByReads::Rows } else { MetByReads::Tombstones };
    let look = move |context: &ShardContext| LocalWork::met(context, what);
    let known = views.by_table(look, |known: &mut CountSnapshot, more| known.add(&more)).await?;
    let none = CountSnapshot::default();
    for table in views.stored_tables() {
        let counts = known.get(&table.engine_id()).unwrap_or(&none);
        row(writer, table)
            .set("count", counts.recorded() as i64)
            .set("max", counts.quantile(1.0) as f64)
            .set("p50th", counts.quantile(0.5) as f64)
            .set("p99th", counts.quantile(0.99) as f64);
    }
    Ok(())
}

/// `top_partitions`.
pub async fn top_partitions(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    for top in views.admin.top_partition_reports(None, None, None).await? {
        writer
            .row()
            .set("keyspace_name", top.keyspace.as_str())
            .set("table_name", top.table.as_str())
            .set("period", top.period.as_str())
            .set("sampler", top.sampler.as_str())
            .set("rank", top.rank as i32)
            .set("partition_key", top.partition_key.as_str())
            .set("value", top.value as i64)
            .set("error", top.error as i64);
    }
    Ok(())
}

/// `large_partitions`.
pub fn large_partitions(views: &Views, writer: &mut RowWriter<'_>) {
    let Some(guard) = &views.context.node.file_handling.partition_guard else { return };
    let tables: BTreeMap<TableId, &Table> =
        views.stored_tables().map(|table| (table.engine_id(), table)).collect();
    for (id, largest) in guard.largest.of_tables(&tables.keys().copied().collect()) {
        let Some(table) = tables.get(&id) else { continue };
        let names = PartitionNames::of(table);
        let samplers =
            [("PARTITION_SIZE", largest.by_bytes()), ("PARTITION_TOMBSTONES", largest.by_tombstones())];
        for (sampler, top) in samplers {
            for (rank, top) in (1_i32..).zip(top) {
                row(writer, table)
                    .set("sampler", sampler)
                    .set("rank", rank)
                    .set("partition_key", names.text_of(&top.key.bytes).as_str())
                    .set("value", top.value as i64);
            }
        }
    }
}
