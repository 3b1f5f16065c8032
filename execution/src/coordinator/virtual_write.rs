//! Modifications of virtual tables: they change the node itself.

use std::rc::Rc;

use helenus_query::error::{RequestError, Result};
use helenus_query::plan::modify::{ModifyKind, ModifyPlan, Operation};
use helenus_query::plan::term::Bound;
use helenus_query::run::keys::partition_keys;
use helenus_query::schema::catalog::Table;

use super::virtual_state::NodeReports;
use super::{Execution, Outcome, Request};
use crate::shard::context::ShardContext;

/// Executes a modification of `system_views.settings`, the only virtual table that clients can change.
pub fn modify(context: &Rc<ShardContext>, request: &Request<'_, ModifyPlan>) -> Execution {
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
