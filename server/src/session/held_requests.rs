//! Requests of a connection that wait until a log that is to miss nothing has room for them.
//!
//! Invariant: they are bounded in number, together with the requests that are under way, and in bytes but for one of any length. When there are
//! that many, nothing more is read from the connection.

use std::collections::VecDeque;

use cql_lite::frame::{Envelope, Header};

/// Bytes of bodies that wait above which nothing more is read.
const BYTES_MAX: usize = 256 << 10;

/// A request that has not begun.
pub(super) struct HeldRequest {
    header: Header,
    body: Vec<u8>,
}

impl HeldRequest {
    pub(super) fn envelope(&self) -> Envelope<'_> {
        Envelope { header: self.header, body: &self.body }
    }
}

/// The requests of a connection that wait, the oldest first.
#[derive(Default)]
pub(super) struct HeldRequests {
    requests: VecDeque<HeldRequest>,
    bytes: usize,
}

impl HeldRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether nothing more is to be read. `under_way`: the requests of the connection that have begun, at most `requests_max`.
    pub(super) fn is_full(&self, under_way: usize, requests_max: usize) -> bool {
        !self.is_empty() && (self.bytes >= BYTES_MAX || self.requests.len() + under_way >= requests_max)
    }

    /// Adds one behind the others.
    pub(super) fn push(&mut self, envelope: &Envelope<'_>) {
        self.bytes += envelope.body.len();
        self.requests.push_back(HeldRequest { header: envelope.header, body: envelope.body.to_vec() });
    }

    /// Takes the oldest one.
    pub(super) fn pop(&mut self) -> Option<HeldRequest> {
        let request = self.requests.pop_front()?;
        self.bytes -= request.body.len();
        Some(request)
    }

    /// Puts one back before the others.
    pub(super) fn put_back(&mut self, request: HeldRequest) {
        self.bytes += request.body.len();
        self.requests.push_front(request);
    }
}

#[cfg(test)]
mod tests {
    use cql_lite::frame::{Flags, Opcode, ProtocolVersion};

    use super::*;

    fn push(held: &mut HeldRequests, body: &[u8]) {
        let header = Header {
            version: ProtocolVersion::V4,
            is_response: false,
            flags: Flags::NONE,
            stream: held.requests.len() as i16,
            opcode: Opcode::Query,
            body_bytes: body.len(),
        };
        held.push(&Envelope { header, body });
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_bytes_and_leaves_in_order() {
        let mut held = HeldRequests::default();
        // Requests under way alone are bounded elsewhere.
        assert!(!held.is_full(8, 8));
        push(&mut held, b"a");
        assert!(!held.is_full(6, 8) && held.is_full(7, 8));
        push(&mut held, &vec![0; 2 * BYTES_MAX]);
        assert!(held.is_full(0, 8));
        let first = held.pop().unwrap();
        assert_eq!((first.envelope().header.stream, first.envelope().body), (0, &b"a"[..]));
        held.put_back(first);
        assert_eq!(held.pop().unwrap().envelope().header.stream, 0);
        assert_eq!(held.pop().unwrap().envelope().header.stream, 1);
        assert!(held.is_empty() && held.bytes == 0 && !held.is_full(8, 8));
    }
}
