//! A BATCH as the client requested it.

use cql_lite::syntax::ast::BatchKind;
use helenus_query::plan::modify::ModifyPlan;

use crate::coordinator::RequestOptions;
use crate::coordinator::bound_statement::BoundStatement;

/// A batch ready for execution.
#[derive(Clone)]
pub struct BatchRequest {
    pub kind: BatchKind,
    pub statements: Vec<BoundStatement>,
    pub options: RequestOptions,
    /// Time of the request, in microseconds since the epoch.
    pub now_micros: i64,
}

impl BatchRequest {
    pub fn plans(&self) -> impl Iterator<Item = &ModifyPlan> + Clone {
        self.statements.iter().map(BoundStatement::plan)
    }
}
