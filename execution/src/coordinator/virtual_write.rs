//! Modifications of virtual tables: they change the node itself, or what the members agree on.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::rc::Rc;

use helenus_query::error::{RequestError, Result};
use helenus_query::plan::modify::{ModifyKind, ModifyPlan, Operation};
use helenus_query::plan::restrictions::ClusteringRestriction;
use helenus_query::plan::term::Bound;
use helenus_query::run::keys::{column_values, partition_keys};
use helenus_query::schema::catalog::Table;
use helenus_query::schema::virtual_tables;

use super::virtual_state::{DenylistRequest, NodeReports};
use super::{Execution, Outcome, Request};
use crate::shard::context::ShardContext;

/// Executes a modification of a virtual table that clients can change: `system_views.settings` or
/// `system_distributed.partition_denylist`.
pub fn modify(context: &Rc<ShardContext>, request: &Request<'_, ModifyPlan>) -> Execution {
    if virtual_tables::is_denylist(&request.plan().table) {
        return modify_denylist(context, request);
    }
    let changes = match changes(request) {
        Ok(changes) => changes,
        Err(error) => return Execution::Ready(Err(error)),
    };
    let (context, NodeReports { change_setting, .. }) = (context.clone(), NodeReports::of(context));
    Execution::Pending(Box::pin(async move {
        for (name, value) in changes {
            change_setting(context.clone(), name, value).await?;
        }
        Ok(Outcome::Void)
    }))
}

fn modify_denylist(context: &Rc<ShardContext>, request: &Request<'_, ModifyPlan>) -> Execution {
    let changes = match denylist_changes(request) {
        Ok(changes) => changes,
        Err(error) => return Execution::Ready(Err(error)),
    };
    let (context, NodeReports { change_denylist, .. }) = (context.clone(), NodeReports::of(context));
    Execution::Pending(Box::pin(async move {
        for change in changes {
            change_denylist(context.clone(), change).await?;
        }
        Ok(Outcome::Void)
    }))
}

/// Most tables whose denylist a statement changes: each is an entry of the metadata log.
const DENYLIST_TABLES_MAX: usize = 100;

/// The changes that a modification of the denylist's rows stands for: one for each table that it names.
fn denylist_changes(request: &Request<'_, ModifyPlan>) -> Result<Vec<DenylistRequest>> {
    let (plan, bindings) = (request.plan(), request.bindings());
    let table = &plan.table;
    if plan.timestamp.is_some() || plan.timeout.is_some() {
        return Err(unsupported("USING", table));
    }
    let ([keyspaces, tables], [keyspace_column, table_column]) = (&plan.partition[..], table.partition_key())
    else {
        return Err(RequestError::Server("the partition denylist has another key".to_owned()));
    };
    let texts =
        |values: Vec<Cow<'_, [u8]>>| values.iter().map(|value| text(value)).collect::<Result<BTreeSet<_>>>();
    let keyspaces = texts(column_values(keyspaces, keyspace_column, &bindings)?)?;
    let tables = texts(column_values(tables, table_column, &bindings)?)?;
    let keys = match &plan.clustering[..] {
        [] => None,
        [ClusteringRestriction::Values { values, .. }] => {
            let keys = column_values(values, &table.clustering_key()[0], &bindings)?;
            let keys: BTreeSet<_> = keys.into_iter().map(Cow::into_owned).collect();
            Some(keys.into_iter().collect::<Vec<_>>())
        }
        _ => return Err(unsupported("Range deletion", table)),
    };
    let count = keyspaces.len().saturating_mul(tables.len());
    if count > DENYLIST_TABLES_MAX {
        return Err(RequestError::invalid(format!(
            "A statement changes the denylist of at most {DENYLIST_TABLES_MAX} tables, not of {count}"
        )));
    }
    let denies = plan.kind == ModifyKind::Insert;
    let of_keyspace = |keyspace: &String| {
        let change = |table: &String| DenylistRequest {
            keyspace: keyspace.clone(),
            table: table.clone(),
            keys: keys.clone(),
            denies,
        };
        tables.iter().map(change).collect::<Vec<_>>()
    };
    Ok(keyspaces.iter().flat_map(of_keyspace).collect())
}

/// The names of the settings and their new values.
fn changes(request: &Request<'_, ModifyPlan>) -> Result<Vec<(String, Option<String>)>> {
    let (plan, bindings) = (request.plan(), request.bindings());
    let table = &plan.table;
    let term = match plan.operations.as_slice() {
        [operation] => match &operation.operation {
            Operation::Set(term) => Some(term),
            Operation::Delete => None,
            _ => return Err(unsupported("Column modification", table)),
        },
        // A row without a value.
        [] if plan.kind == ModifyKind::Insert => None,
        _ => return Err(unsupported("Partition deletion", table)),
    };
    let value = match term.map(|term| term.evaluate(&bindings)).transpose()? {
        // The value stays as it is.
        Some(Bound::Unset) => return Ok(Vec::new()),
        Some(Bound::Bytes(bytes)) => Some(text(&bytes)?),
        Some(Bound::Null) | None => None,
    };
    let keys = partition_keys(&plan.partition, table, &bindings)?;
    keys.iter().map(|key| Ok((text(&key.bytes)?, value.clone()))).collect()
}

fn unsupported(what: &str, table: &Table) -> RequestError {
    RequestError::invalid(format!("{what} is not supported by table {}", table.full_name()))
}

fn text(bytes: &[u8]) -> Result<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| RequestError::invalid("String didn't validate."))
}
