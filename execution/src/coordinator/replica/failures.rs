//! Translation of failed requests to replicas for clients.

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
