//! The reports of a node about itself as rows of virtual tables: `system_views`, and what `system` and `system_distributed` have of
//! that kind. They say what the reports for operators say, from the same sources.

mod activity;
mod cluster;
mod maintenance;
mod settings;
mod tables;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use futures::future::LocalBoxFuture;
use helenus_engine::TableId;
use helenus_execution::coordinator::virtual_state::NodeReports;
use helenus_execution::shard::context::{ShardContext, on_every_shard};
use helenus_observe::AdminError;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Catalog, Table, TableKind};
use helenus_query::schema::virtual_tables::{Row, RowWriter};

use super::NodeAdmin;
use crate::logs;
use crate::session::slow_requests::SlowRequests;

/// What the layers below get of this one.
pub fn reports() -> NodeReports {
    NodeReports { rows, change_setting, forget }
}

/// The views of one request.
struct Views {
    admin: NodeAdmin,
    context: Rc<ShardContext>,
    catalog: Arc<Catalog>,
}

fn refused(error: AdminError) -> RequestError {
    match error {
        AdminError::Unknown(message) => RequestError::invalid(message),
        other => RequestError::Server(other.to_string()),
    }
}

fn rows(context: Rc<ShardContext>, table: Arc<Table>) -> LocalBoxFuture<'static, Result<Vec<Row>>> {
    Box::pin(async move {
        let catalog = context.catalog();
        let views = Views { admin: NodeAdmin::new(context.node.clone()), context, catalog };
        let mut writer = RowWriter::new(&table);
        views.write(&table.name, &mut writer).await.map_err(refused)?;
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

impl Views {
    /// Writes the rows of a table. Those that are not named have none: what they would show does not exist here.
    async fn write(&self, table: &str, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
        match table {
            "batch_metrics" => activity::batch_metrics(self, writer),
            "caches" => activity::caches(self, writer),
            "compaction_history" => maintenance::compaction_history(self, writer).await?,
            "coordinator_read_latency" | "coordinator_scan_latency" | "coordinator_write_latency" => {
                tables::coordinator_latency(self, table, writer).await?;
            }
            "cql_metrics" => activity::cql_metrics(self, writer),
            "disk_usage" | "max_partition_size" | "max_sstable_duration" | "max_sstable_size" => {
                tables::size(self, table, writer).await?;
            }
            "gossip_info" => cluster::gossip_info(self, writer).await?,
            "internode_inbound" => cluster::internode_inbound(self, writer),
            "internode_outbound" => cluster::internode_outbound(self, writer),
            "local_read_latency" | "local_scan_latency" | "local_write_latency" => {
                tables::local_latency(self, table, writer).await?;
            }
            "parent_repair_history" => maintenance::parent_repair_history(self, writer),
            "pending_hints" => cluster::pending_hints(self, writer).await?,
            "prepared_statements" => activity::prepared_statements(self, writer),
            "queries" => activity::queries(self, writer).await?,
            "repairs" => maintenance::repairs(self, writer),
            "rows_per_read" | "tombstones_per_read" => tables::met_by_reads(self, table, writer).await?,
            "settings" => settings::settings(self, writer).await?,
            "slow_queries" => activity::slow_queries(self, writer).await?,
            "snapshots" => maintenance::snapshots(self, writer).await?,
            "sstable_tasks" => maintenance::sstable_tasks(self, writer).await?,
            "streaming" => cluster::streaming(self, writer).await?,
            "system_logs" => activity::system_logs(writer),
            "system_properties" => settings::system_properties(self, writer),
            "thread_pools" => activity::thread_pools(self, writer).await?,
            _ => {}
        }
        Ok(())
    }

    /// The tables that have rows of their own, ordered by keyspace and name.
    fn stored_tables(&self) -> impl Iterator<Item = &Table> {
        let tables = self.catalog.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        tables.map(Arc::as_ref).filter(|table| table.kind == TableKind::Stored)
    }

    /// The keyspace and the name of each of these tables.
    fn names(&self) -> BTreeMap<TableId, (&str, &str)> {
        let named = |table: &'_ Table| table.engine_id();
        self.stored_tables()
            .map(|table| (named(table), (table.keyspace.as_str(), table.name.as_str())))
            .collect()
    }

    /// What each shard says of its tables, together.
    async fn by_table<T: Default + Send + 'static>(
        &self,
        look: fn(&ShardContext) -> Vec<(TableId, T)>,
        add: fn(&mut T, T),
    ) -> Result<BTreeMap<TableId, T>, AdminError> {
        let shards = self
            .admin
            .on_every_shard(move |context| Box::pin(std::future::ready(Ok(look(&context)))))
            .await?;
        let mut tables: BTreeMap<TableId, T> = BTreeMap::new();
        for (id, of_shard) in shards.into_iter().flatten() {
            add(tables.entry(id).or_default(), of_shard);
        }
        Ok(tables)
    }
}
