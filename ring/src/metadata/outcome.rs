//! What comes of a command while it is applied.

use helenus_query::schema::document::DocumentError;

use super::command::{CommandOutcome, Refusal};
use super::state::ClusterState;

/// The new state; `None`: the requested state holds already.
pub(super) type Changed = Result<Option<ClusterState>, CommandOutcome>;

pub(super) fn refuse<T>(refusal: Refusal) -> Result<T, CommandOutcome> {
    Err(CommandOutcome::Refused(refusal))
}

pub(super) fn malformed(error: &DocumentError) -> CommandOutcome {
    CommandOutcome::Refused(Refusal::Malformed(error.to_string()))
}
