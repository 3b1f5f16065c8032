//! What a transaction is asked to do.

use std::sync::Arc;

use helenus_query::error::{RequestError, Result};
use helenus_query::functions::CallContext;
use helenus_query::plan::term::BindValue;
use helenus_query::plan::transaction::TransactionPlan;
use helenus_query::schema::catalog::Table;
use helenus_query::statement::Prepared;
use helenus_query::stored_key::PartitionKey;

use super::explicit::Explicit;
use crate::coordinator::RequestOptions;
use crate::coordinator::bound_statement::BoundStatement;
use crate::coordinator::transaction_tokens::TransactionToken;
use crate::shard::context::ShardContext;

/// The statements of a transaction with their values.
#[derive(Clone)]
pub struct Transaction {
    pub statements: Vec<BoundStatement>,
    pub options: RequestOptions,
    pub kind: TransactionKind,
}

/// What a transaction was written as.
#[derive(Clone)]
pub enum TransactionKind {
    /// One statement with conditions.
    Statement,
    /// A batch with conditions.
    Batch,
    /// `BEGIN TRANSACTION`: the conditions are its own, and the statements have none.
    Explicit(Arc<Explicit>),
}

impl Transaction {
    /// One statement with conditions.
    pub fn of_statement(statement: BoundStatement, options: RequestOptions) -> Self {
        Self { statements: vec![statement], options, kind: TransactionKind::Statement }
    }

    /// A transaction that was written as one. `is_guarded`: guardrails hold for the client.
    pub fn of_block(
        context: &ShardContext,
        statement: &Arc<Prepared<TransactionPlan>>,
        values: &[BindValue<'_>],
        call: CallContext,
        options: RequestOptions,
        is_guarded: bool,
    ) -> Result<Self> {
        let (explicit, statements) = Explicit::bind(context, statement, values, call, is_guarded)?;
        Ok(Self { statements, options, kind: TransactionKind::Explicit(Arc::new(explicit)) })
    }

    /// The modifications whose values are all known before rows are read.
    pub fn known_statements(&self) -> impl Iterator<Item = &BoundStatement> {
        let are_referring = self.explicit().map_or(&[][..], Explicit::are_referring);
        let is_known = |index: usize| !are_referring.get(index).copied().unwrap_or(false);
        self.statements.iter().enumerate().filter(move |(index, _)| is_known(*index)).map(|(_, it)| it)
    }

    /// What `BEGIN TRANSACTION` adds to the statements.
    pub(super) fn explicit(&self) -> Option<&Explicit> {
        match &self.kind {
            TransactionKind::Explicit(explicit) => Some(explicit),
            TransactionKind::Statement | TransactionKind::Batch => None,
        }
    }

    /// The token by which its answer is remembered.
    pub(super) fn token(&self) -> Option<&TransactionToken> {
        self.explicit()?.token.as_ref()
    }

    pub(super) fn is_batch(&self) -> bool {
        matches!(self.kind, TransactionKind::Batch)
    }

    /// Whether it only reads.
    pub(super) fn is_read(&self) -> bool {
        self.statements.is_empty()
    }
}

/// The partition of all statements, and its table. `None`: there is no statement.
pub(super) fn only_partition(transaction: &Transaction) -> Result<Option<(&Arc<Table>, &PartitionKey)>> {
    if let Some(explicit) = transaction.explicit() {
        return Ok(Some((explicit.table(), &explicit.key)));
    }
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
