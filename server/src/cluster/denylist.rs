//! Changes of the partition denylist on request of operators and clients.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::types::validate::validate;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Table;
use helenus_query::schema::system_keyspaces::is_system;
use helenus_query::stored_key::{PartitionKey, composite_key, key_components};
use helenus_ring::denylist::{DeniedKey, DeniedPartitions, DenylistAction, DenylistChange, DenylistError};
use helenus_ring::metadata::Command;

use crate::cluster;
use crate::cluster::agreed_change;
use helenus_execution::coordinator::virtual_state::DenylistRequest;
use helenus_execution::shard::context::ShardContext;

/// Time to wait for the newest list before all entries of a table are removed.
const CATCH_UP_DEADLINE: Duration = Duration::from_secs(2);

/// Carries a change of the list out on all members.
pub async fn change(context: Rc<ShardContext>, request: DenylistRequest) -> Result<()> {
    if request.keys.is_none() {
        // Other members may have denied more meanwhile.
        cluster::catch_up_with_leader(&context, CATCH_UP_DEADLINE).await?;
    }
    let Some(change) = planned(&context, request)? else { return Ok(()) };
    let id = context.random_uuid();
    agreed_change::carry_out(&context, Command::ChangeDenylist { id, change }).await
}

/// The change that is proposed; `None`: there is nothing to change.
fn planned(context: &ShardContext, request: DenylistRequest) -> Result<Option<DenylistChange>> {
    let DenylistRequest { keyspace, table, keys, denies } = request;
    let catalog = context.catalog();
    let Some(known) = catalog.table(&keyspace, &table) else {
        let unknown = DenylistError::UnknownTable { keyspace, table };
        return Err(RequestError::invalid(unknown.to_string()));
    };
    if is_system(&keyspace) {
        return Err(RequestError::invalid(format!(
            "Partitions of system keyspace {keyspace} cannot be denied"
        )));
    }
    if known.options.is_feed_log {
        return Err(RequestError::invalid(format!(
            "Partitions of CDC log table {} cannot be denied",
            known.full_name()
        )));
    }
    let keys: BTreeSet<DeniedKey> = if let Some(keys) = keys {
        keys.into_iter().map(|key| checked(known, key)).collect::<Result<_>>()?
    } else {
        let list = context.denylist_view();
        list.of(&known.id).into_iter().flat_map(DeniedPartitions::keys).cloned().collect()
    };
    if keys.is_empty() {
        return Ok(None);
    }
    let settings = &context.node.settings.denylist;
    let action = if denies {
        let (keys_per_table_max, keys_max) = (settings.keys_per_table_max.get(), settings.keys_max.get());
        DenylistAction::Deny { keys_per_table_max, keys_max }
    } else {
        DenylistAction::Allow
    };
    Ok(Some(DenylistChange { table_id: known.id, keyspace, table, keys, action }))
}

/// Refuses bytes that are no partition key of the table.
fn checked(table: &Table, bytes: Vec<u8>) -> Result<DeniedKey> {
    let is_key = || -> Result<bool> {
        let columns = table.partition_key();
        let components = key_components(&bytes, columns.len())?;
        let values: Vec<&[u8]> = components.into_iter().map(|range| &bytes[range]).collect();
        let are_values =
            columns.iter().zip(&values).all(|(column, value)| validate(&column.column_type, value).is_ok());
        Ok(are_values && !bytes.is_empty() && (columns.len() == 1 || composite_key(&values)? == bytes))
    };
    if !is_key().unwrap_or(false) {
        return Err(RequestError::invalid(format!(
            "The bytes are no partition key of table {}",
            table.full_name()
        )));
    }
    DeniedKey::of(&PartitionKey::new(bytes)).map_err(|error| RequestError::invalid(error.to_string()))
}
