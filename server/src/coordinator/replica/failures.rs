//! Translation of failed requests to replicas, and of engine errors, for clients and coordinators.

use helenus_engine::error::EngineError;
use helenus_internode::service::Failure;
use helenus_internode::transport::{CallError, PeerError};
use helenus_query::error::FailureReason;

/// The failure reason of the protocol for a failed request.
pub fn failure_reason(error: &PeerError) -> FailureReason {
    match error {
        PeerError::Call(CallError::TimedOut { .. }) => FailureReason::TimedOut,
        PeerError::Call(
            CallError::Unreachable { .. } | CallError::Refused { .. } | CallError::Removed { .. },
        ) => FailureReason::NodeDown,
        PeerError::Failed(Failure::UnknownTable { .. }) => FailureReason::IncompatibleSchema,
        PeerError::Failed(Failure::TooManyTombstones) => FailureReason::TooManyTombstones,
        PeerError::Call(_) | PeerError::Failed(_) => FailureReason::Unknown,
    }
}

/// The failure that a replica returns to the coordinator for an engine error.
pub fn failure_of(error: &EngineError) -> Failure {
    match error {
        EngineError::UnknownTable(id) => Failure::UnknownTable { table_id: u128::from_be_bytes(id.0) },
        EngineError::Mutation(error) => Failure::Malformed(error.to_string()),
        EngineError::NoRoom(_) => Failure::Overloaded(error.to_string()),
        error => Failure::Internal(error.to_string()),
    }
}
