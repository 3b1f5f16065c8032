//! What a transaction is asked to do.

use std::sync::Arc;

use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;

use crate::coordinator::RequestOptions;
use crate::coordinator::bound_statement::BoundStatement;

/// The statements of a transaction with their values.
#[derive(Clone)]
pub struct Transaction {
    pub statements: Vec<BoundStatement>,
    pub options: RequestOptions,
    pub is_batch: bool,
}

/// The partition of all statements, and its table. `None`: there is no statement.
pub(super) fn only_partition(transaction: &Transaction) -> Result<Option<(&Arc<Table>, &PartitionKey)>> {
    let mut partition: Option<(&Arc<Table>, &PartitionKey)> = None;
    for statement in &transaction.statements {
        let several = || RequestError::invalid("Batch with conditions cannot span multiple partitions");
        let [key] = &statement.keys[..] else { return Err(several()) };
        let table = &statement.plan().table;
        match partition {
            Some((first, _)) if first.id != table.id => {
                return Err(RequestError::invalid("Batch with conditions cannot span multiple tables"));
            }
            Some((_, first)) if first != key => return Err(several()),
            Some(_) => {}
            None => partition = Some((table, key)),
        }
    }
    Ok(partition)
}
