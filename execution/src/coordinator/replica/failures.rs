//! Translation of failed requests to replicas for clients.

use std::sync::Arc;

use cql_lite::frame::Consistency;
use helenus_internode::service::Failure;
use helenus_internode::transport::{CallError, PeerError};
use helenus_query::error::{FailureReason, ReplicaFailure, RequestError};
use helenus_ring::member::Member;

use helenus_ring::consistency::RequiredReplicas;

/// The failure reason of the protocol for a failed request.
pub fn failure_reason(error: &PeerError) -> FailureReason {
    match error {
        PeerError::Call(CallError::TimedOut { .. }) => FailureReason::TimedOut,
        PeerError::Call(
            CallError::Unreachable { .. } | CallError::Refused { .. } | CallError::Removed { .. },
        ) => FailureReason::NodeDown,
        PeerError::Failed(Failure::UnknownTable { .. }) => FailureReason::IncompatibleSchema,
        PeerError::Failed(Failure::IndexIncomplete) => FailureReason::IndexNotAvailable,
        PeerError::Failed(Failure::TooManyIndexFiles) => FailureReason::TooManyIndexes,
        PeerError::Failed(Failure::TooManyTombstones) => FailureReason::TooManyTombstones,
        PeerError::Call(_) | PeerError::Failed(_) => FailureReason::Unknown,
    }
}

/// The error of a read for which too few replicas have answered. `data_present`: one of them has sent rows.
pub fn read_failure(
    consistency: Consistency,
    demand: &RequiredReplicas,
    answered: &[Arc<Member>],
    failures: &[(Arc<Member>, FailureReason)],
    data_present: bool,
) -> RequestError {
    let received = demand.count(answered.iter().map(|member| &**member));
    let required = demand.required();
    if failures.iter().all(|(_, reason)| *reason == FailureReason::TimedOut) {
        return RequestError::ReadTimeout { consistency, received, required, data_present };
    }
    let failures = failures
        .iter()
        .map(|(member, reason)| ReplicaFailure { address: member.native_address.ip(), reason: *reason });
    RequestError::ReadFailure { consistency, received, required, failures: failures.collect(), data_present }
}
