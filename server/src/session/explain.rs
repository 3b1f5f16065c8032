//! EXPLAIN and EXPLAIN ANALYZE of a client.

use std::rc::Rc;
use std::sync::Arc;

use helenus_execution::coordinator::explain::Explained;
use helenus_execution::coordinator::{Execution, Outcome, RequestOptions};
use helenus_execution::shard::context::ShardContext;
use helenus_execution::shard::receipt::{self, ReceiptLog};
use helenus_observe::receipt::Count;
use helenus_query::bind::{BorrowedValues, OwnedBindings};
use helenus_query::error::Result;
use helenus_query::statement::{ExplainPlan, Prepared};

/// Explains a statement. With ANALYZE `execute` executes it first, for its receipt: of a SELECT one page.
pub fn explain(
    context: &Rc<ShardContext>,
    statement: &Arc<Prepared<ExplainPlan>>,
    values: &BorrowedValues<'_>,
    options: &RequestOptions,
    execute: impl FnOnce() -> Result<Execution>,
) -> Result<Execution> {
    let (owned, options) = (OwnedBindings::new(values), options.clone());
    let call = context.call_context();
    let (context, statement) = (context.clone(), statement.clone());
    let analyzed = if statement.plan.analyze {
        // The receipt of the request, if it has one, is that of the statement: nothing else is done for it.
        let log = receipt::current();
        let own = log.is_none();
        let log = log.unwrap_or_else(|| ReceiptLog::begin(None, true));
        log.measure_cpu(&context);
        let execution = if own { log.in_turn(&context, execute) } else { execute() }?;
        Some((log, own, execution))
    } else {
        None
    };
    Ok(Execution::Pending(Box::pin(async move {
        let receipt = match analyzed {
            None => None,
            Some((log, own, execution)) => {
                let outcome = match execution {
                    Execution::Ready(outcome) => outcome,
                    Execution::Pending(future) if own => log.scope(context.clone(), future).await,
                    Execution::Pending(future) => future.await,
                }?;
                let mut receipt = log.so_far(&context);
                let (mut rows, mut bytes) = (0, 0);
                if let Outcome::Rows(page) | Outcome::OwnRows { page, .. } = &outcome {
                    (rows, bytes) = (page.row_count as u64, page.rows.len() as u64);
                }
                receipt.add(Count::RowsSent, rows);
                receipt.add(Count::BytesSent, bytes);
                Some((receipt, rows))
            }
        };
        let explained = Explained { plan: &statement.plan, values: owned, options, call };
        explained.answer(&context, receipt).await
    })))
}
