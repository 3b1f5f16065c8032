//! Decoding of a connection's bytes into envelopes: plain, compressed (v3, v4) or in segments (v5).
//!
//! The decoder works in place on the socket's read buffer. It returns one borrowed envelope at a time; the next call
//! removes it from the buffer. Only decompressed bodies and envelopes split over segments are copied, into buffers that
//! are reused and grow with the bytes received.

use bytes::{Buf, BytesMut};

use super::{
    compression::{Compression, decompress_body},
    error::FrameError,
    header::{self, Flags, HEADER_BYTES, Header},
    segment::{SegmentFormat, SegmentHeader, TRAILER_BYTES, append_payload, check_payload},
    version::ProtocolVersion,
};

/// Scratch buffers larger than this are freed after use.
const RETAINED_BYTES: usize = 1 << 20;

/// The side of the connection that reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Requests arrive.
    Server,
    /// Responses arrive.
    Client,
}

/// A received message with its body decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope<'b> {
    pub header: Header,
    pub body: &'b [u8],
}

/// The buffer that contains the envelope found.
#[derive(Debug, Clone, Copy)]
enum EnvelopeBuffer {
    Input,
    Unpacked,
    Assembled,
    Inflated,
}

/// An envelope that was found but not borrowed yet.
#[derive(Debug, Clone, Copy)]
struct FoundEnvelope {
    header: Header,
    place: EnvelopeBuffer,
    /// Where the body starts in that place, and where it ends.
    start: usize,
    end: usize,
}

/// The unread rest of the current segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payload {
    /// Nothing: the next bytes of the input are a segment header.
    None,
    /// `bytes` bytes at the start of the input, followed by the trailer.
    InInput { bytes: usize },
    /// The bytes of `unpacked` from `position` on.
    Unpacked { position: usize },
}

/// The incremental decoder of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    role: Role,
    body_bytes_max: usize,
    /// Rejects envelopes for which there is no room, too; compressed ones by their length as they are sent.
    room_bytes: usize,
    /// `None`: as many as a segment can have.
    segment_bytes_max: Option<usize>,
    /// Fixed by the first envelope.
    version: Option<ProtocolVersion>,
    compression: Option<Compression>,
    /// Set once the connection has switched to segments.
    segments: Option<SegmentFormat>,
    /// Number of bytes at the start of the input that the last call returned.
    handed_out: usize,
    /// Number of bytes of a rejected envelope that are still to be skipped.
    refused_bytes: usize,
    /// Length of the envelope that has begun and is not complete; 0: there is none, or its header is not in yet.
    awaited_bytes: usize,
    payload: Payload,
    /// The decompressed payload of a self-contained segment.
    unpacked: Vec<u8>,
    /// The received part of an envelope that is split over segments.
    assembled: Vec<u8>,
    assembled_done: bool,
    /// The decompressed body of the last compressed envelope.
    inflated: Vec<u8>,
}

impl Decoder {
    /// A decoder for a new connection. Rejects bodies longer than `body_bytes_max`, compressed or not.
    pub fn new(role: Role, body_bytes_max: usize) -> Self {
        Self {
            role,
            body_bytes_max,
            room_bytes: usize::MAX,
            segment_bytes_max: None,
            version: None,
            compression: None,
            segments: None,
            handed_out: 0,
            refused_bytes: 0,
            awaited_bytes: 0,
            payload: Payload::None,
            unpacked: Vec::new(),
            assembled: Vec::new(),
            assembled_done: false,
            inflated: Vec::new(),
        }
    }

    /// Rejects bodies longer than `body_bytes_max` from now on; and segments with more than one envelope of that length,
    /// if `bounds_segments`.
    pub fn set_limit(&mut self, body_bytes_max: usize, bounds_segments: bool) {
        self.body_bytes_max = body_bytes_max;
        self.segment_bytes_max = bounds_segments.then_some(body_bytes_max.saturating_add(HEADER_BYTES));
    }

    /// Rejects bodies that are longer than this as they are sent, from now on; also one that has begun to arrive.
    pub fn set_room(&mut self, room_bytes: usize) {
        self.room_bytes = room_bytes;
    }

    /// Bytes that the decoder has taken out of the input and keeps for the envelope that is not complete.
    pub fn assembled_bytes(&self) -> usize {
        self.assembled.len()
    }

    /// Length of the envelope for which the last call of [`Self::next`] needs more bytes, with its header; 0: its header is not in yet.
    pub fn awaited_bytes(&self) -> usize {
        self.awaited_bytes
    }

    /// The version of the connection, once the first envelope has arrived.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.version
    }

    /// Accepts compressed bodies from now on (v3 and v4, after STARTUP).
    pub fn set_compression(&mut self, compression: Compression) {
        self.compression = Some(compression);
    }

    /// Expects segments from now on (v5, after the answer to STARTUP), including the bytes already in the input.
    pub fn start_segments(&mut self, format: SegmentFormat) {
        self.segments = Some(format);
    }

    /// Returns the next envelope in `input`, or `None` if more bytes are needed. Every call must pass the same buffer;
    /// the caller may only append to it. After an error that is not [fatal](FrameError::is_fatal) the rejected envelope
    /// is skipped and decoding continues.
    pub fn next<'b>(&'b mut self, input: &'b mut BytesMut) -> Result<Option<Envelope<'b>>, FrameError> {
        self.release(input);
        let found = match self.segments {
            None => self.next_bare(input)?,
            Some(format) => self.next_in_segments(format, input)?,
        };
        let Some(mut found) = found else { return Ok(None) };
        if found.header.flags.contains(Flags::COMPRESSED) && found.header.version < ProtocolVersion::V5 {
            found = self.inflate(found, input)?;
        }
        let place: &[u8] = match found.place {
            EnvelopeBuffer::Input => input,
            EnvelopeBuffer::Unpacked => &self.unpacked,
            EnvelopeBuffer::Assembled => &self.assembled,
            EnvelopeBuffer::Inflated => &self.inflated,
        };
        debug_assert!(found.start <= found.end && found.end <= place.len(), "the body lies in its buffer");
        let body = place.get(found.start..found.end).unwrap_or_default();
        Ok(Some(Envelope { header: found.header, body }))
    }

    /// Removes the envelope that the last call returned.
    fn release(&mut self, input: &mut BytesMut) {
        input.advance(self.handed_out.min(input.len()));
        self.handed_out = 0;
        if self.assembled_done {
            self.assembled.clear();
            self.assembled_done = false;
            if self.assembled.capacity() > RETAINED_BYTES {
                self.assembled = Vec::new();
            }
        }
        if self.inflated.capacity() > RETAINED_BYTES {
            self.inflated = Vec::new();
        }
    }

    fn next_bare(&mut self, input: &mut BytesMut) -> Result<Option<FoundEnvelope>, FrameError> {
        self.awaited_bytes = 0;
        let skipped = self.refused_bytes.min(input.len());
        input.advance(skipped);
        self.refused_bytes -= skipped;
        let Some(header) = self.read_header(input)? else { return Ok(None) };
        let end = HEADER_BYTES + header.body_bytes;
        if input.len() < end {
            self.awaited_bytes = end;
            return Ok(None);
        }
        self.handed_out = end;
        Ok(Some(FoundEnvelope { header, place: EnvelopeBuffer::Input, start: HEADER_BYTES, end }))
    }

    /// Reads and checks the header at the start of `bytes`. If the envelope is invalid but its length is known, the
    /// envelope is marked to be skipped.
    fn read_header(&mut self, bytes: &[u8]) -> Result<Option<Header>, FrameError> {
        let Some(parsed) = header::parse(bytes)? else { return Ok(None) };
        let (version, stream) = (parsed.version, parsed.stream);
        if let Some(expected) = self.version
            && expected != version
        {
            return Err(FrameError::VersionChanged { got: version, expected, stream });
        }
        let refusal = match parsed.header {
            Err(opcode) => FrameError::UnknownOpcode { opcode, version, stream },
            Ok(header) if header.is_response != (self.role == Role::Client) => {
                let expected = if self.role == Role::Server { "request" } else { "response" };
                return Err(FrameError::WrongDirection { expected, version, stream });
            }
            Ok(header) if header.body_bytes > self.body_bytes_max.min(self.room_bytes) => {
                let (length, limit) = (header.body_bytes, self.body_bytes_max.min(self.room_bytes));
                FrameError::TooLarge { length, limit, version, stream }
            }
            Ok(header) => {
                self.version = Some(version);
                return Ok(Some(header));
            }
        };
        self.refused_bytes = HEADER_BYTES.saturating_add(parsed.body_bytes);
        Err(refusal)
    }

    fn inflate(&mut self, found: FoundEnvelope, input: &BytesMut) -> Result<FoundEnvelope, FrameError> {
        let Header { version, stream, .. } = found.header;
        let compression = self.compression.ok_or(FrameError::CompressionNotNegotiated { version, stream })?;
        debug_assert!(found.start <= found.end && found.end <= input.len(), "the body lies in the input");
        let body = input.get(found.start..found.end).unwrap_or_default();
        decompress_body(compression, body, self.body_bytes_max, &mut self.inflated)
            .map_err(|reason| FrameError::BodyDecompression { reason, version, stream })?;
        Ok(FoundEnvelope { place: EnvelopeBuffer::Inflated, start: 0, end: self.inflated.len(), ..found })
    }

    fn next_in_segments(
        &mut self,
        format: SegmentFormat,
        input: &mut BytesMut,
    ) -> Result<Option<FoundEnvelope>, FrameError> {
        loop {
            match self.payload {
                Payload::InInput { bytes: 0 } => {
                    input.advance(TRAILER_BYTES.min(input.len()));
                    self.payload = Payload::None;
                }
                Payload::InInput { bytes } => {
                    debug_assert!(
                        bytes <= input.len(),
                        "a payload is complete before its envelopes are read"
                    );
                    let (header, total) = self.envelope_in(input.get(..bytes).unwrap_or_default())?;
                    self.payload = Payload::InInput { bytes: bytes - total };
                    self.handed_out = total;
                    return Ok(Some(FoundEnvelope {
                        header,
                        place: EnvelopeBuffer::Input,
                        start: HEADER_BYTES,
                        end: total,
                    }));
                }
                Payload::Unpacked { position } if position == self.unpacked.len() => {
                    self.payload = Payload::None;
                }
                Payload::Unpacked { position } => {
                    // Taken out because reading the header borrows the decoder.
                    let unpacked = std::mem::take(&mut self.unpacked);
                    debug_assert!(position <= unpacked.len(), "the position lies in the payload");
                    let envelope = self.envelope_in(unpacked.get(position..).unwrap_or_default());
                    self.unpacked = unpacked;
                    let (header, total) = envelope?;
                    self.payload = Payload::Unpacked { position: position + total };
                    let (start, end) = (position + HEADER_BYTES, position + total);
                    return Ok(Some(FoundEnvelope { header, place: EnvelopeBuffer::Unpacked, start, end }));
                }
                Payload::None => match self.next_segment(format, input)? {
                    Segment::Incomplete => return Ok(None),
                    Segment::Opened => {}
                    Segment::Assembled(found) => return Ok(Some(found)),
                },
            }
        }
    }

    /// Returns the next envelope of a self-contained segment and its total length. A rejected envelope is skipped before
    /// its error is returned.
    fn envelope_in(&mut self, payload: &[u8]) -> Result<(Header, usize), FrameError> {
        match self.read_header(payload) {
            Ok(Some(header)) if HEADER_BYTES + header.body_bytes <= payload.len() => {
                Ok((header, HEADER_BYTES + header.body_bytes))
            }
            Ok(_) => Err(FrameError::EnvelopeCut),
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => {
                let total = std::mem::take(&mut self.refused_bytes);
                if total > payload.len() {
                    return Err(FrameError::EnvelopeCut);
                }
                match &mut self.payload {
                    Payload::InInput { bytes } => {
                        *bytes -= total;
                        self.handed_out = total;
                    }
                    Payload::Unpacked { position } => *position += total,
                    Payload::None => {}
                }
                Err(error)
            }
        }
    }

    /// Opens the segment at the start of the input.
    fn next_segment(&mut self, format: SegmentFormat, input: &mut BytesMut) -> Result<Segment, FrameError> {
        let Some(segment) = SegmentHeader::parse(format, input)? else { return Ok(Segment::Incomplete) };
        if segment.payload_bytes == 0 {
            return Err(FrameError::EmptySegment);
        }
        let payload_bytes = segment.uncompressed_bytes.unwrap_or(0).max(segment.payload_bytes);
        if let Some(limit) = self.segment_bytes_max.filter(|limit| payload_bytes > *limit) {
            return Err(FrameError::SegmentTooLarge { length: payload_bytes, limit });
        }
        let header_bytes = format.header_bytes();
        let Some((payload, rest)) =
            input.get(header_bytes..).and_then(|rest| rest.split_at_checked(segment.payload_bytes))
        else {
            return Ok(Segment::Incomplete);
        };
        let Some(trailer) = rest.first_chunk::<TRAILER_BYTES>() else { return Ok(Segment::Incomplete) };
        check_payload(payload, *trailer)?;

        let in_split = !self.assembled.is_empty() || self.refused_bytes > 0;
        if segment.self_contained && in_split {
            return Err(FrameError::SegmentInterleaved);
        }
        if segment.self_contained && segment.uncompressed_bytes.is_none() {
            self.payload = Payload::InInput { bytes: segment.payload_bytes };
            input.advance(header_bytes);
            return Ok(Segment::Opened);
        }
        let total = header_bytes + segment.payload_bytes + TRAILER_BYTES;
        if segment.self_contained {
            self.unpacked.clear();
            append_payload(segment, payload, &mut self.unpacked)?;
            self.payload = Payload::Unpacked { position: 0 };
            input.advance(total);
            return Ok(Segment::Opened);
        }
        append_payload(segment, payload, &mut self.assembled)?;
        input.advance(total);
        self.assemble()
    }

    /// Returns the split envelope if it is complete.
    fn assemble(&mut self) -> Result<Segment, FrameError> {
        if self.refused_bytes == 0 {
            let assembled = std::mem::take(&mut self.assembled);
            let header = self.read_header(&assembled);
            self.assembled = assembled;
            match header {
                Ok(Some(header)) => {
                    let end = HEADER_BYTES + header.body_bytes;
                    if self.assembled.len() > end {
                        return Err(FrameError::SplitEnvelopeOverrun);
                    }
                    self.awaited_bytes = 0;
                    if self.assembled.len() < end {
                        self.awaited_bytes = end;
                        return Ok(Segment::Opened);
                    }
                    self.assembled_done = true;
                    let found =
                        FoundEnvelope { header, place: EnvelopeBuffer::Assembled, start: HEADER_BYTES, end };
                    return Ok(Segment::Assembled(found));
                }
                Ok(None) => return Ok(Segment::Opened),
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    self.drop_refused()?;
                    return Err(error);
                }
            }
        }
        self.drop_refused()?;
        Ok(Segment::Opened)
    }

    /// Removes the received part of a rejected split envelope.
    fn drop_refused(&mut self) -> Result<(), FrameError> {
        let arrived = self.assembled.len();
        self.assembled.clear();
        self.awaited_bytes = 0;
        self.refused_bytes =
            self.refused_bytes.checked_sub(arrived).ok_or(FrameError::SplitEnvelopeOverrun)?;
        Ok(())
    }
}

/// Result of reading the next segment.
enum Segment {
    /// More bytes are needed.
    Incomplete,
    /// A segment was read; see `Decoder::payload`.
    Opened,
    /// It completed a split envelope.
    Assembled(FoundEnvelope),
}
