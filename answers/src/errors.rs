//! Translates errors of the server into errors of the protocol. This is the only place that does so.

use cql_lite::frame::{ErrorKind, ErrorResponse};
use helenus_query::error::RequestError;

/// The protocol's error for a failed request.
pub fn to_response(error: &RequestError) -> ErrorResponse {
    let kind = match error {
        RequestError::Syntax(_) => ErrorKind::Syntax,
        // As Cassandra for its guardrails.
        RequestError::Invalid(_) | RequestError::NoRoom(_) => ErrorKind::Invalid,
        RequestError::Configuration(_) => ErrorKind::Config,
        RequestError::Unauthorized(_) => ErrorKind::Unauthorized,
        RequestError::AlreadyExists { keyspace, table } => {
            ErrorKind::AlreadyExists { keyspace: keyspace.clone(), table: table.clone() }
        }
        RequestError::Unprepared { id } => ErrorKind::Unprepared { id: id.clone() },
        RequestError::Protocol(_) => ErrorKind::Protocol,
        RequestError::Unavailable { consistency, required, alive } => ErrorKind::Unavailable {
            consistency: *consistency,
            required: *required as i32,
            alive: *alive as i32,
        },
        RequestError::WriteTimeout { consistency, received, required, write_type, contentions } => {
            ErrorKind::WriteTimeout {
                consistency: *consistency,
                received: *received as i32,
                required: *required as i32,
                write_type: *write_type,
                contentions: *contentions,
            }
        }
        RequestError::WriteFailure { consistency, received, required, write_type, failures } => {
            ErrorKind::WriteFailure {
                consistency: *consistency,
                received: *received as i32,
                required: *required as i32,
                failures: failures.iter().map(|failure| (failure.address, failure.reason.code())).collect(),
                write_type: *write_type,
            }
        }
        RequestError::ReadTimeout { consistency, received, required, data_present } => {
            ErrorKind::ReadTimeout {
                consistency: *consistency,
                received: *received as i32,
                required: *required as i32,
                data_present: *data_present,
            }
        }
        RequestError::ReadFailure { consistency, received, required, failures, data_present } => {
            ErrorKind::ReadFailure {
                consistency: *consistency,
                received: *received as i32,
                required: *required as i32,
                failures: failures.iter().map(|failure| (failure.address, failure.reason.code())).collect(),
                data_present: *data_present,
            }
        }
        RequestError::ReadAborted { consistency, reason, address, .. } => ErrorKind::ReadFailure {
            consistency: *consistency,
            received: 0,
            required: 1,
            failures: vec![(*address, reason.code())],
            data_present: true,
        },
        RequestError::CasWriteUnknown { consistency, received, required } => ErrorKind::CasWriteUnknown {
            consistency: *consistency,
            received: *received as i32,
            required: *required as i32,
        },
        RequestError::Overloaded(_) => ErrorKind::Overloaded,
        // Drivers execute the request on another node: also one that must not be executed twice, because none has begun to.
        RequestError::RolesUnconfirmed { .. } | RequestError::StreamsUnconfirmed { .. } => {
            ErrorKind::Bootstrapping
        }
        RequestError::RateLimited { is_write, .. } => {
            ErrorKind::RateLimit { is_write: *is_write, rejected_by_coordinator: true }
        }
        RequestError::Function { keyspace, function, arguments, .. } => ErrorKind::FunctionFailure {
            keyspace: keyspace.clone(),
            function: function.clone(),
            argument_types: arguments.clone(),
        },
        RequestError::Truncate(_) => ErrorKind::Truncate,
        RequestError::Server(_)
        | RequestError::Unreadable(_)
        | RequestError::IndexIncomplete(_)
        | RequestError::TooManyIndexFiles(_)
        | RequestError::SearchTooLong(_) => ErrorKind::Server,
    };
    ErrorResponse::new(kind, error.to_string())
}
