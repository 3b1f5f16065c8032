//! A BATCH as the client requested it.

use cql_lite::syntax::ast::BatchKind;
use helenus_query::bind::OwnedBindings;
use helenus_query::functions::CallContext;

use crate::coordinator::RequestOptions;
use crate::coordinator::transaction_statement::TransactionStatement;

/// A batch ready for execution.
#[derive(Clone)]
pub struct BatchRequest {
    pub kind: BatchKind,
    pub statements: Vec<(TransactionStatement, OwnedBindings)>,
    pub options: RequestOptions,
    pub call: CallContext,
}
