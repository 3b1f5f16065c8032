//! A statement of a transaction or a batch.

use std::sync::Arc;

use helenus_query::error::{RequestError, Result};
use helenus_query::plan::Plan;
use helenus_query::plan::modify::ModifyPlan;
use helenus_query::statement::Statement;

use crate::coordinator::local_write::plan_of;

/// A modification of its own, or one of a batch.
#[derive(Clone)]
pub enum TransactionStatement {
    Statement(Arc<Statement>),
    /// One statement of a BATCH text.
    InBatch {
        batch: Arc<Statement>,
        index: usize,
    },
}

impl TransactionStatement {
    /// The plan of the modification.
    pub fn plan(&self) -> Result<&ModifyPlan> {
        match self {
            Self::Statement(statement) => plan_of(statement),
            Self::InBatch { batch, index } => match &batch.plan {
                Plan::Batch(plan) => plan.statements.get(*index).map(|plan| &**plan),
                _ => None,
            }
            .ok_or_else(|| RequestError::Server("not a statement of this batch".to_owned())),
        }
    }
}
