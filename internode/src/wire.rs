//! The two ends of a link's socket: frames that wait to be written, and bytes that were read.
//!
//! Invariants: all waiting frames leave in as few writes as the socket allows (small frames are gathered, large
//! payloads are written without a copy); memory for reading grows only as bytes arrive; an idle link holds no large
//! buffer.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use helenus_tls::stream::Stream;

use super::frame::{self, Decoder, Frame, FrameError, FrameKind, HEADER_BYTES};

/// Payloads of at least this size are not copied next to others.
const LARGE_PAYLOAD_BYTES: usize = 16 << 10;
/// Most slices in one write.
const SLICES_PER_WRITE: usize = 32;
/// Buffer size for one read.
const READ_BYTES: usize = 64 << 10;
/// Free space below which the buffer is extended before a read.
const READ_BYTES_MIN: usize = 8 << 10;
/// Buffers that were larger than this are freed once they are empty.
const RETAINED_BYTES: usize = 1 << 20;

/// Frames that wait to be written.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Frames before `tail`.
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl Outbox {
    pub fn push(&mut self, kind: FrameKind, call_id: u64, deadline_ms: u32, payload: Bytes) {
        let header = frame::header(kind, call_id, deadline_ms, &payload);
        self.bytes += HEADER_BYTES + payload.len();
        self.tail.extend_from_slice(&header);
        if payload.len() < LARGE_PAYLOAD_BYTES {
            self.tail.extend_from_slice(&payload);
        } else {
            self.chunks.push_back(self.tail.split().freeze());
            self.chunks.push_back(payload);
        }
    }

    /// Bytes that wait to be written.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Writes as much as the socket accepts. Returns the number of bytes.
    pub fn flush(&mut self, stream: &Stream) -> io::Result<usize> {
        let mut total = 0;
        while self.bytes > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
            let waiting = self.chunks.iter().map(|chunk| &chunk[..]).chain(std::iter::once(&self.tail[..]));
            let mut used = 0;
            for (slice, bytes) in slices.iter_mut().zip(waiting) {
                *slice = IoSlice::new(bytes);
                used += 1;
            }
            match stream.try_write_vectored(&slices[..used]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    total += written;
                    self.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.bytes == 0 && self.tail.capacity() > RETAINED_BYTES {
            self.tail = BytesMut::new();
        }
        Ok(total)
    }

    fn advance(&mut self, written: usize) {
        self.bytes -= written;
        let mut rest = written;
        while let Some(first) = self.chunks.front_mut() {
            if rest < first.len() {
                first.advance(rest);
                return;
            }
            rest -= first.len();
            self.chunks.pop_front();
        }
        self.tail.advance(rest);
    }
}

/// Bytes that were read and not yet decoded.
#[derive(Debug)]
pub struct Inbox {
    input: BytesMut,
    decoder: Decoder,
}

impl Inbox {
    pub fn new(payload_bytes_max: u32) -> Self {
        Self { input: BytesMut::new(), decoder: Decoder::new(payload_bytes_max) }
    }

    /// Reads the available bytes; `None`: nothing at the moment, `Some(0)`: the other side has closed the connection.
    pub fn read(&mut self, stream: &Stream) -> io::Result<Option<usize>> {
        if self.input.is_empty() && self.input.capacity() > RETAINED_BYTES {
            self.input = BytesMut::new();
        }
        if self.input.capacity() - self.input.len() < READ_BYTES_MIN {
            self.input.reserve(READ_BYTES);
        }
        match stream.try_read_buf(&mut self.input) {
            Ok(read) => Ok(Some(read)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The next complete frame.
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        self.decoder.next(&mut self.input)
    }
}
