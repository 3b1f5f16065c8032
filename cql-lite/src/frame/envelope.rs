//! Writing one response envelope: header, prefix, body.
//!
//! [`Prefix`] contains the optional fields before a body (tracing id, warnings, custom payload). It is passed when the
//! envelope is finished; an empty prefix costs nothing.

use bytes::{BufMut, BytesMut};

use super::{
    header::{self, Flags, HEADER_BYTES, Opcode},
    version::ProtocolVersion,
    wire,
};

/// Kinds of RESULT.
pub(super) mod result_kind {
    pub const VOID: i32 = 1;
    pub const ROWS: i32 = 2;
    pub const SET_KEYSPACE: i32 = 3;
    pub const PREPARED: i32 = 4;
    pub const SCHEMA_CHANGE: i32 = 5;
}

/// The optional fields before the body of a response. v3 has neither warnings nor payload; they are not sent there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prefix<'a> {
    /// The id of the trace, for a traced request.
    pub tracing_id: Option<[u8; 16]>,
    pub warnings: &'a [String],
    pub custom_payload: &'a [(String, Option<Vec<u8>>)],
}

impl Prefix<'_> {
    /// The prefix in wire format and the header flags that announce it.
    fn encode(&self, version: ProtocolVersion) -> (BytesMut, Flags) {
        let mut encoded = BytesMut::new();
        let mut flags = Flags::NONE;
        if let Some(id) = self.tracing_id {
            encoded.put_slice(&id);
            flags = flags.with(Flags::TRACING);
        }
        if version >= ProtocolVersion::V4 {
            if !self.warnings.is_empty() {
                wire::put_string_list(&mut encoded, self.warnings);
                flags = flags.with(Flags::WARNING);
            }
            if !self.custom_payload.is_empty() {
                wire::put_bytes_map(&mut encoded, self.custom_payload);
                flags = flags.with(Flags::CUSTOM_PAYLOAD);
            }
        }
        (encoded, flags)
    }

    fn is_empty(&self) -> bool {
        self.tracing_id.is_none() && self.warnings.is_empty() && self.custom_payload.is_empty()
    }
}

/// Writes one response envelope at the end of a buffer. Dropping it without [`finish`](Self::finish) removes the partial
/// envelope from the buffer.
#[derive(Debug)]
pub struct EnvelopeWriter<'o> {
    out: &'o mut BytesMut,
    version: ProtocolVersion,
    start: usize,
    finished: bool,
}

impl<'o> EnvelopeWriter<'o> {
    /// Appends the header.
    pub fn begin(out: &'o mut BytesMut, version: ProtocolVersion, stream: i16, opcode: Opcode) -> Self {
        let start = out.len();
        header::write_response_header(out, version, Flags::NONE, stream, opcode);
        Self { out, version, start, finished: false }
    }

    /// The output buffer. Append the body to it.
    pub fn body(&mut self) -> &mut BytesMut {
        self.out
    }

    /// Length of the body so far.
    pub fn body_bytes(&self) -> usize {
        self.out.len().saturating_sub(self.start + HEADER_BYTES)
    }

    /// The version of the envelope.
    pub fn version(&self) -> ProtocolVersion {
        self.version
    }

    /// Puts the prefix before the body and completes the header.
    pub fn finish(mut self, prefix: &Prefix<'_>) {
        if !prefix.is_empty() {
            let (encoded, flags) = prefix.encode(self.version);
            insert(self.out, self.start + HEADER_BYTES, &encoded);
            header::add_flags(self.out, self.start, flags);
        }
        header::patch_body_length(self.out, self.start);
        self.finished = true;
    }
}

impl Drop for EnvelopeWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}

/// Inserts `bytes` at `position`, which is not after the end of `out`.
pub(super) fn insert(out: &mut BytesMut, position: usize, bytes: &[u8]) {
    let end = out.len();
    out.extend_from_slice(bytes);
    out.copy_within(position..end, position + bytes.len());
    if let Some(target) = out.get_mut(position..position + bytes.len()) {
        target.copy_from_slice(bytes);
    }
}

/// Appends the header of a RESULT envelope and the kind of result.
pub(super) fn begin_result(
    out: &mut BytesMut,
    version: ProtocolVersion,
    stream: i16,
    kind: i32,
) -> EnvelopeWriter<'_> {
    let mut envelope = EnvelopeWriter::begin(out, version, stream, Opcode::Result);
    envelope.body().put_i32(kind);
    envelope
}
