//! The partition denylist for operators.

use cql_lite::types::literal::format_hex;
use futures::future::LocalBoxFuture;
use helenus_admin::reports::{DeniedPartitionReport, DenylistReport, RuntimeSettings};
use helenus_execution::coordinator::virtual_state::DenylistRequest;
use helenus_execution::shard::context::{NodeShared, ShardContext, run_on};
use helenus_observe::{AdminError, DenylistSetting};
use helenus_query::error::{RequestError, Result as RequestResult};
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;
use helenus_ring::denylist::{DeniedKey, DeniedPartitions};

use super::{NodeAdmin, failed, partition_key};
use crate::cluster::denylist;

/// A partition that an operator names. `key`: see [`partition_key::parse`].
#[derive(Debug, Clone)]
pub(super) struct NamedPartition {
    pub keyspace: String,
    pub table: String,
    pub key: String,
}

impl NamedPartition {
    fn key(&self, context: &ShardContext) -> Result<PartitionKey, AdminError> {
        let (keyspace, table) = (&self.keyspace, &self.table);
        let catalog = context.catalog();
        let known = catalog
            .table(keyspace, table)
            .ok_or_else(|| AdminError::Unknown(format!("table '{keyspace}.{table}' does not exist")))?;
        partition_key::parse(context, known, &self.key)
    }
}

/// Whether a partition is denied.
pub(super) async fn denied(
    admin: &NodeAdmin,
    partition: NamedPartition,
) -> Result<DeniedPartitionReport, AdminError> {
    admin
        .on_first_shard(move |context| {
            let key = partition.key(context)?;
            let NamedPartition { keyspace, table, .. } = partition;
            let (catalog, list) = (context.catalog(), context.denylist());
            let known = catalog.table(&keyspace, &table).and_then(|table| list.of(&table.id));
            let is_denied = known.is_some_and(|denied| denied.denies(&key));
            let is_obeyed = context.node.settings.denylist.enabled.is_on();
            Ok(DeniedPartitionReport { keyspace, table, key: format_hex(&key.bytes), is_denied, is_obeyed })
        })
        .await
}

/// Denies a partition, or denies it no more.
pub(super) async fn change(
    admin: &NodeAdmin,
    partition: NamedPartition,
    denies: bool,
) -> Result<DeniedPartitionReport, AdminError> {
    let named = partition.clone();
    let key = admin.on_first_shard(move |context| named.key(context)).await?;
    let NamedPartition { keyspace, table, .. } = partition.clone();
    let request = DenylistRequest { keyspace, table, keys: Some(vec![key.bytes]), denies };
    let changed = run_on(&admin.node.links[0], move |context| {
        let changed: LocalBoxFuture<'static, RequestResult<()>> =
            Box::pin(denylist::change(context, request));
        changed
    });
    match changed.await.map_err(|error| failed(&error))? {
        Ok(()) => denied(admin, partition).await,
        Err(RequestError::Invalid(refusal)) => Err(AdminError::Failed(refusal)),
        Err(error) => Err(failed(&error)),
    }
}

/// The denied partitions of a table, of a keyspace, or all.
pub(super) async fn list(
    admin: &NodeAdmin,
    keyspace: Option<String>,
    table: Option<String>,
) -> Result<DenylistReport, AdminError> {
    let tables = admin.targets(keyspace.as_deref(), table.as_deref()).await?;
    admin
        .on_first_shard(move |context| {
            let (list, is_obeyed) = (context.denylist(), context.node.settings.denylist.enabled.is_on());
            let of_table = |table: &Table| {
                let keys = list.of(&table.id).into_iter().flat_map(DeniedPartitions::keys);
                let report = |key: &DeniedKey| DeniedPartitionReport {
                    keyspace: table.keyspace.clone(),
                    table: table.name.clone(),
                    key: format_hex(key.bytes()),
                    is_denied: true,
                    is_obeyed,
                };
                keys.map(report).collect::<Vec<_>>()
            };
            let partitions = tables.iter().flat_map(|table| of_table(table)).collect();
            Ok(DenylistReport { partitions, is_obeyed })
        })
        .await
}

/// What this node makes of the list, as [`RuntimeSettings`] have it.
pub(super) fn settings(node: &NodeShared) -> RuntimeSettings {
    let settings = &node.settings.denylist;
    RuntimeSettings {
        partition_denylist_enabled: settings.enabled.is_on(),
        denylist_writes_enabled: settings.writes.is_on(),
        denylist_reads_enabled: settings.reads.is_on(),
        denylist_range_reads_enabled: settings.range_reads.is_on(),
        denylist_max_keys_per_table: settings.keys_per_table_max.get(),
        denylist_max_keys_total: settings.keys_max.get(),
        ..RuntimeSettings::default()
    }
}

/// Changes a setting of the list, until the next start.
pub(super) fn change_setting(node: &NodeShared, change: DenylistSetting) {
    let settings = &node.settings.denylist;
    match change {
        DenylistSetting::Enabled(is_on) => settings.enabled.set(is_on),
        DenylistSetting::Writes(is_on) => settings.writes.set(is_on),
        DenylistSetting::Reads(is_on) => settings.reads.set(is_on),
        DenylistSetting::RangeReads(is_on) => settings.range_reads.set(is_on),
        DenylistSetting::KeysPerTableMax(number) => settings.keys_per_table_max.set(number),
        DenylistSetting::KeysMax(number) => settings.keys_max.set(number),
    }
}
