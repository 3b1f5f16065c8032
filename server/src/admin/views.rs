//! The reports of a node about itself as rows of virtual tables: `system_views`, and what `system` and `system_distributed` have of
//! that kind. They say what the reports for operators say, from the same sources.

mod activity;
mod charges;
mod cluster;
mod maintenance;
mod projections;
mod settings;
mod source;
mod tables;

use std::rc::Rc;
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use helenus_access::auth_tables;
use helenus_execution::coordinator::virtual_state::{DenylistRequest, NodeReports};
use helenus_execution::shard::context::{ShardContext, on_every_shard};
use helenus_observe::AdminError;
use helenus_query::error::Result;
use helenus_query::schema::catalog::Table;
use helenus_query::schema::system_keyspaces::SYSTEM_AUTH;
use helenus_query::schema::virtual_tables::{Row, RowWriter};

use self::source::{Views, refused};
use super::NodeAdmin;
use crate::cluster::denylist;
use crate::logs;
use crate::session::slow_requests::SlowRequests;

/// What the layers below get of this one.
pub fn reports() -> NodeReports {
    NodeReports { rows, change_setting, change_denylist, forget }
}

fn rows(context: Rc<ShardContext>, table: Arc<Table>) -> LocalBoxFuture<'static, Result<Vec<Row>>> {
    Box::pin(async move {
        let catalog = context.catalog();
        if table.keyspace == SYSTEM_AUTH {
            return Ok(auth_tables::rows(&table, &context.roles(), &catalog));
        }
        let views = Views { admin: NodeAdmin::new(context.node.clone()), context, catalog };
        let mut writer = RowWriter::new(&table);
        write(&views, &table.name, &mut writer).await.map_err(refused)?;
        Ok(writer.finish())
    })
}

fn change_setting(
    context: Rc<ShardContext>,
    name: String,
    value: Option<String>,
) -> LocalBoxFuture<'static, Result<()>> {
    Box::pin(async move { settings::change(&NodeAdmin::new(context.node.clone()), &name, value).await })
}

fn change_denylist(
    context: Rc<ShardContext>,
    request: DenylistRequest,
) -> LocalBoxFuture<'static, Result<()>> {
    Box::pin(denylist::change(context, request))
}

fn forget(context: Rc<ShardContext>, table: Arc<Table>) -> LocalBoxFuture<'static, Result<()>> {
    Box::pin(async move {
        if table.name == "system_logs" {
            logs::forget();
            return Ok(());
        }
        on_every_shard(&context, |context| {
            SlowRequests::forget(&context);
            Box::pin(std::future::ready(Ok(())))
        })
        .await
    })
}

/// Writes the rows of a table. Those that are not named have none: what they would show does not exist here.
async fn write(views: &Views, table: &str, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    match table {
        "batch_metrics" => activity::batch_metrics(views, writer),
        "built_views" => projections::built_views(views, writer).await?,
        "caches" => activity::caches(views, writer),
        "charges" => charges::charges(views, writer).await?,
        "compaction_history" => maintenance::compaction_history(views, writer).await?,
        "coordinator_read_latency" | "coordinator_scan_latency" | "coordinator_write_latency" => {
            tables::coordinator_latency(views, table, writer).await?;
        }
        "cql_metrics" => activity::cql_metrics(views, writer),
        "disk_usage" | "max_partition_size" | "max_sstable_duration" | "max_sstable_size" => {
            tables::size(views, table, writer).await?;
        }
        "gossip_info" => cluster::gossip_info(views, writer).await?,
        "internode_inbound" => cluster::internode_inbound(views, writer),
        "internode_outbound" => cluster::internode_outbound(views, writer),
        "large_partitions" => tables::large_partitions(views, writer),
        "local_read_latency" | "local_scan_latency" | "local_write_latency" => {
            tables::local_latency(views, table, writer).await?;
        }
        "partition_denylist" => cluster::partition_denylist(views, writer),
        "parent_repair_history" => maintenance::parent_repair_history(views, writer),
        "pending_hints" => cluster::pending_hints(views, writer).await?,
        "prepared_statements" => activity::prepared_statements(views, writer),
        "projections" => projections::projections(views, writer).await?,
        "queries" => activity::queries(views, writer).await?,
        "repairs" => maintenance::repairs(views, writer),
        "rows_per_read" | "tombstones_per_read" => tables::met_by_reads(views, table, writer).await?,
        "settings" => settings::settings(views, writer).await?,
        "slow_queries" => activity::slow_queries(views, writer).await?,
        "snapshots" => maintenance::snapshots(views, writer).await?,
        "sstable_tasks" => maintenance::sstable_tasks(views, writer).await?,
        "streaming" => cluster::streaming(views, writer),
        "system_logs" => activity::system_logs(writer),
        "system_properties" => settings::system_properties(views, writer),
        "thread_pools" => activity::thread_pools(views, writer).await?,
        "top_partitions" => tables::top_partitions(views, writer).await?,
        "top_statements" => charges::top_statements(views, writer).await?,
        "view_build_status" => projections::view_build_status(views, writer).await?,
        _ => {}
    }
    Ok(())
}
