//! What becomes of a transaction on given rows.

use helenus_query::run::modify::PartitionMutation;

use crate::coordinator::Outcome;

/// The result of a transaction on given rows.
pub(super) struct Evaluation {
    pub(super) changes: Vec<PartitionMutation>,
    pub(super) outcome: Outcome,
}
