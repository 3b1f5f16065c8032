//! Typed services: the requests that a node can execute, and the bytes of requests and responses.
//!
//! A service is a request type that implements [`ServiceRequest`]. The layers above define theirs and execute the
//! requests; this module adds the envelope:
//!
//! ```text
//! request   service id (varint) | request (postcard)
//! response  service id (varint) | response (postcard)
//!           3 (varint)          | Failure (postcard)
//! traced    5 (varint)          | id of the trace (16 bytes) | request, with its service id
//! shared    8 (varint)          | length (varint) | name of a role | request of any kind below: it is worked for in turns of the role
//! receipt   6 (varint)          | request, traced or not: its response is to come with a receipt
//!           6 (varint)          | length (varint) | receipt | response, with its service id
//! ```
//!
//! Invariants:
//! * An id belongs to one service for all time.
//! * postcard numbers the variants of an enum in their order. New variants go to the end, and no field is ever
//!   removed within a protocol version.

use bytes::Bytes;
use helenus_engine::EngineError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version of the protocol that this program supports.
pub const PROTOCOL_VERSION: u16 = 1;

/// Stands for the service id in a response that is a [`Failure`].
const FAILED_ID: u32 = 3;

/// Stands for the service id in a request that belongs to a traced request.
pub const TRACED_ID: u32 = 5;

/// Stands for the service id in a request that asks for a receipt of its cost, and in the response to one. Both are sent from the feature
/// level [`helenus_ring::metadata::RECEIPTS`] on.
pub const RECEIPT_ID: u32 = 6;

/// Stands for the service id in a request that a node sends for a client that has logged in. Sent from the feature level
/// [`helenus_ring::metadata::SHARES_BETWEEN_NODES`] on.
pub const SHARED_ID: u32 = 8;

/// A traffic class. Each has links of its own, so that no class waits behind large messages of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficClass {
    Data,
    Control,
    Stream,
}

/// A request of one service.
pub trait ServiceRequest: Serialize + DeserializeOwned {
    /// The id of the service in messages.
    const ID: u32;
    /// The traffic class of its messages.
    const TRAFFIC_CLASS: TrafficClass;
    /// The response to such a request.
    type Response: Serialize + DeserializeOwned + Send;
}

/// An encoded request and its traffic class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub class: TrafficClass,
    pub bytes: Bytes,
}

/// The reason why a node did not execute a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum Failure {
    /// The sender's view of the ring is older than the replica's; it must catch up to this epoch.
    #[error("the ring has changed (epoch {epoch})")]
    StaleRing { epoch: u64 },
    /// The node does not know the table yet, or it was dropped.
    #[error("unknown table {table_id:032x}")]
    UnknownTable { table_id: u128 },
    /// The node rejects the request because it is overloaded.
    #[error("overloaded: {0}")]
    Overloaded(String),
    /// The read passed more tombstones than allowed.
    #[error("too many tombstones")]
    TooManyTombstones,
    /// The request cannot be decoded.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// Anything else that failed: disk, damage, shutdown.
    #[error("{0}")]
    Internal(String),
    /// An index is not built yet, or is being made again. From the feature level on from which there are indexes.
    #[error("an index is not complete")]
    IndexIncomplete,
    /// A search would ask more files of indexes than a guardrail of the node allows. From the feature level
    /// [`helenus_ring::metadata::SECURITY`] on.
    #[error("a search would ask too many files of indexes")]
    TooManyIndexFiles,
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::UnknownTable(id) => Self::UnknownTable { table_id: u128::from_be_bytes(id.0) },
            EngineError::Mutation(error) => Self::Malformed(error.to_string()),
            EngineError::NoRoom(_) | EngineError::Backlog { .. } => Self::Overloaded(error.to_string()),
            EngineError::IndexIncomplete { .. } => Self::IndexIncomplete,
            error => Self::Internal(error.to_string()),
        }
    }
}

/// The reason why bytes are not a message of a service.
#[derive(Debug, Error)]
pub enum MessageError {
    #[error("the message belongs to service {found}, not {expected}")]
    Service { expected: u32, found: u32 },
    #[error(transparent)]
    Encoding(#[from] postcard::Error),
}

/// Encodes a request with its envelope.
pub fn encode_request<R: ServiceRequest>(request: &R) -> Result<Message, Failure> {
    match encode_as(R::ID, request) {
        Ok(bytes) => Ok(Message { class: R::TRAFFIC_CLASS, bytes }),
        Err(error) => Err(Failure::Malformed(error.to_string())),
    }
}

/// The message as a part of the traced request with this id.
pub fn traced(message: &Message, trace: u128) -> Message {
    // One byte: the id is below 128.
    let mut bytes = vec![TRACED_ID as u8];
    bytes.extend_from_slice(&trace.to_be_bytes());
    bytes.extend_from_slice(&message.bytes);
    Message { class: message.class, bytes: Bytes::from(bytes) }
}

/// The id of the trace, and the message, of what follows [`TRACED_ID`].
pub fn split_traced(request: &[u8]) -> Result<(u128, &[u8]), MessageError> {
    let (trace, message) = request.split_first_chunk().ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
    Ok((u128::from_be_bytes(*trace), message))
}

/// The message with the wish for a receipt.
pub fn with_receipt_wanted(message: &Message) -> Message {
    // One byte: the id is below 128.
    let bytes = [&[RECEIPT_ID as u8], &message.bytes[..]].concat();
    Message { class: message.class, bytes: Bytes::from(bytes) }
}

/// An encoded response with a receipt: numbers whose meaning the layers above know.
pub fn with_receipt(response: &[u8], receipt: &[u64]) -> Result<Bytes, MessageError> {
    let bytes = postcard::to_extend(&RECEIPT_ID, Vec::with_capacity(response.len() + 64))?;
    let mut bytes = postcard::to_extend(receipt, bytes)?;
    bytes.extend_from_slice(response);
    Ok(Bytes::from(bytes))
}

/// The receipt, if an encoded response has one, and the response without it.
pub fn split_receipt(message: &[u8]) -> Result<(Option<Vec<u64>>, &[u8]), MessageError> {
    let (id, rest) = postcard::take_from_bytes::<u32>(message)?;
    if id != RECEIPT_ID {
        return Ok((None, message));
    }
    let (receipt, response) = postcard::take_from_bytes(rest)?;
    Ok((Some(receipt), response))
}

/// The message as a part of what a role has asked for.
pub fn shared(message: &Message, role: &str) -> Result<Message, MessageError> {
    let bytes = postcard::to_extend(&SHARED_ID, Vec::with_capacity(message.bytes.len() + role.len() + 6))?;
    let mut bytes = postcard::to_extend(role, bytes)?;
    bytes.extend_from_slice(&message.bytes);
    Ok(Message { class: message.class, bytes: Bytes::from(bytes) })
}

/// The name of the role, and the message, of what follows [`SHARED_ID`].
pub fn split_shared(request: &[u8]) -> Result<(&str, &[u8]), MessageError> {
    Ok(postcard::take_from_bytes(request)?)
}

/// Splits a message into the id of its service and the encoded request.
pub fn split_request(message: &[u8]) -> Result<(u32, &[u8]), MessageError> {
    Ok(postcard::take_from_bytes::<u32>(message)?)
}

/// Decodes a request without its envelope.
pub fn decode_request<R: ServiceRequest>(request: &[u8]) -> Result<R, MessageError> {
    Ok(postcard::from_bytes(request)?)
}

/// Encodes a response with its envelope.
pub fn encode_response<R: ServiceRequest>(
    response: &Result<R::Response, Failure>,
) -> Result<Bytes, MessageError> {
    match response {
        Ok(response) => encode_as(R::ID, response),
        Err(failure) => encode_as(FAILED_ID, failure),
    }
}

/// Decodes a response written by [`encode_response`].
pub fn decode_response<R: ServiceRequest>(
    message: &[u8],
) -> Result<Result<R::Response, Failure>, MessageError> {
    let (id, response) = postcard::take_from_bytes::<u32>(message)?;
    if id == R::ID {
        Ok(Ok(postcard::from_bytes(response)?))
    } else if id == FAILED_ID {
        Ok(Err(postcard::from_bytes(response)?))
    } else {
        Err(MessageError::Service { expected: R::ID, found: id })
    }
}

/// The failure in an encoded response of any service, if it is one.
pub fn failure_in(message: &[u8]) -> Option<Failure> {
    let (id, response) = postcard::take_from_bytes::<u32>(message).ok()?;
    (id == FAILED_ID).then(|| postcard::from_bytes(response).ok())?
}

/// Encodes a failure as a response of any service.
pub fn encode_failure(failure: &Failure) -> Result<Bytes, MessageError> {
    encode_as(FAILED_ID, failure)
}

fn encode_as<T: Serialize>(id: u32, value: &T) -> Result<Bytes, MessageError> {
    let bytes = postcard::to_extend(&id, Vec::new())?;
    Ok(Bytes::from(postcard::to_extend(value, bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Question {
        HowMany,
        Which { number: u32 },
    }

    impl ServiceRequest for Question {
        const ID: u32 = 1;
        const TRAFFIC_CLASS: TrafficClass = TrafficClass::Control;
        type Response = u64;
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Other;

    impl ServiceRequest for Other {
        const ID: u32 = 2;
        const TRAFFIC_CLASS: TrafficClass = TrafficClass::Stream;
        type Response = u64;
    }

    #[test]
    fn a_request_carries_its_service_and_its_traffic_class() {
        let message = encode_request(&Question::Which { number: 7 }).unwrap();
        assert_eq!((message.class, &message.bytes[..]), (TrafficClass::Control, &[1, 1, 7][..]));
        let (id, request) = split_request(&message.bytes).unwrap();
        assert_eq!(id, Question::ID);
        assert_eq!(decode_request::<Question>(request).unwrap(), Question::Which { number: 7 });
        assert_eq!(encode_request(&Question::HowMany).unwrap().bytes[..], [1, 0]);
    }

    #[test]
    fn a_traced_request_names_its_trace() {
        let message = encode_request(&Question::HowMany).unwrap();
        let traced = traced(&message, 7);
        assert_eq!(traced.class, message.class);
        let (id, rest) = split_request(&traced.bytes).unwrap();
        assert_eq!(id, TRACED_ID);
        assert_eq!(split_traced(rest).unwrap(), (7, &message.bytes[..]));
        assert!(split_traced(&rest[..15]).is_err());
    }

    #[test]
    fn golden_bytes_of_requests_for_roles() {
        let message = encode_request(&Question::HowMany).unwrap();
        let of_role = shared(&with_receipt_wanted(&message), "ben").unwrap();
        assert_eq!(of_role.class, message.class);
        assert_eq!(of_role.bytes[..], [8, 3, b'b', b'e', b'n', 6, 1, 0]);
        let (id, rest) = split_request(&of_role.bytes).unwrap();
        assert_eq!(id, SHARED_ID);
        assert_eq!(split_shared(rest).unwrap(), ("ben", &[6, 1, 0][..]));
        // A length that is not there, and a name that is no text, are errors.
        assert!(split_shared(&[0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
        assert!(split_shared(&[1, 0xff, 1, 0]).is_err());
    }

    #[test]
    fn golden_bytes_of_receipts() {
        let message = encode_request(&Question::HowMany).unwrap();
        let wanted = with_receipt_wanted(&traced(&message, 7));
        assert_eq!(wanted.class, message.class);
        let golden = [&[6, 5][..], &[0; 15], &[7, 1, 0]].concat();
        assert_eq!(&wanted.bytes[..], &golden[..]);
        assert_eq!(split_request(&wanted.bytes).unwrap(), (RECEIPT_ID, &golden[1..]));
        let response = encode_response::<Question>(&Ok(7)).unwrap();
        let with = with_receipt(&response, &[0, 300]).unwrap();
        assert_eq!(with[..], [6, 2, 0, 0xac, 0x02, 1, 7]);
        assert_eq!(split_receipt(&with).unwrap(), (Some(vec![0, 300]), &response[..]));
        assert_eq!(split_receipt(&response).unwrap(), (None, &response[..]));
        // A length that is not there reserves nothing, and is an error.
        assert!(split_receipt(&[6, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
        assert!(split_receipt(&[]).is_err());
    }

    #[test]
    fn a_response_must_belong_to_the_requested_service() {
        let response = encode_response::<Question>(&Ok(300)).unwrap();
        assert_eq!(decode_response::<Question>(&response).unwrap(), Ok(300));
        assert!(matches!(
            decode_response::<Other>(&response),
            Err(MessageError::Service { expected: 2, found: 1 })
        ));
        let failure = Failure::UnknownTable { table_id: 5 };
        let failed = encode_response::<Question>(&Err(failure.clone())).unwrap();
        assert_eq!(decode_response::<Other>(&failed).unwrap(), Err(failure.clone()));
        assert_eq!(encode_failure(&failure).unwrap(), failed);
        assert_eq!((failure_in(&failed), failure_in(&response)), (Some(failure), None));
        assert!(decode_response::<Question>(&[]).is_err());
    }
}
