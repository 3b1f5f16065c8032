//! EXPLAIN: how a statement would be executed, and what that is expected to cost, as rows that every client can show.
//!
//! Invariants:
//! * Nothing is executed, and no replica is asked. What is expected follows from the statistics of this node's files and memtables.
//! * The steps name keys and columns, never values.
//! * The expected charge is that of a [`Receipt`] with the expected counts: one formula for both.

mod modification;
mod selection;
mod statistics;
mod steps;

use std::rc::Rc;

use helenus_observe::receipt::{Count, Receipt};
use helenus_query::error::{RequestError, Result};
use helenus_query::statement::Statement;

pub use self::steps::Explained;
use self::steps::Steps;
use super::Outcome;
use crate::shard::context::ShardContext;

impl Explained<'_> {
    /// The answer. `receipt`: what the execution has cost, and the rows of its answer or of its first page.
    pub async fn answer(
        &self,
        context: &Rc<ShardContext>,
        receipt: Option<(Receipt, u64)>,
    ) -> Result<Outcome> {
        let mut steps = Steps::default();
        let explained = self.explain(context, &mut steps).await;
        if let Some((receipt, rows)) = &receipt {
            // It was executed, and may have written: an error would say that it was not.
            if let Err(error) = explained {
                steps.add("WARNING", "", format!("not explained to the end: {error}"));
            }
            let (rows, charge) = (Some(*rows), Some(receipt.charge()));
            steps.add_expected(
                "ANALYZED",
                "",
                "what the execution has met; the receipt follows",
                rows,
                charge,
            );
            if !self.plan.json {
                for count in Count::ALL {
                    steps.add("RECEIPT", count.name(), receipt.get(count).to_string());
                }
            }
        } else {
            explained?;
        }
        Ok(Outcome::Rows(steps.page(self.plan.json, receipt.as_ref().map(|(receipt, _)| receipt))))
    }

    async fn explain(&self, context: &Rc<ShardContext>, steps: &mut Steps) -> Result<()> {
        match &self.plan.statement {
            Statement::Select(select) => selection::explain(context, self, select, steps).await,
            Statement::Modify(modify) => modification::explain(context, self, modify, steps).await,
            Statement::Batch(batch) => modification::explain_batch(context, self, batch, steps),
            _ => Err(RequestError::Server("only reads and modifications are explained".to_owned())),
        }
    }
}
