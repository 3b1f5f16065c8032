//! The CQL native protocol, versions 3, 4 and 5, as pure functions over byte buffers: no sockets, no clocks.
//!
//! A connection uses one [`Decoder`](decoder::Decoder) to turn what arrives into envelopes (in v5: out of segments),
//! [`decode_request`] to turn an envelope into a [`Request`] that borrows from it, the
//! functions of [`response`] and [`rows::RowsWriter`] to append answers to an output buffer, and, in v5,
//! [`segment::SegmentEncoder`] to pack those answers into as few segments as possible.
//!
//! Invariants of the whole module:
//! * nothing that arrives can cause a panic; every read is checked and fails with a typed error;
//! * a length that arrives is never trusted for an allocation: memory grows with the bytes received (and, for
//!   compressed data, with the largest ratio the compression can reach);
//! * what an encoder of [`client`] writes, the decoder here reads back identically, and the other way round.

pub mod client;
pub mod columns;
pub mod compression;
pub mod consistency;
pub mod decoder;
pub mod envelope;
pub mod error;
pub mod error_code;
pub mod event;
pub mod header;
pub mod request;
pub mod response;
pub mod rows;
pub mod segment;
pub mod type_codes;
pub mod version;
pub mod wire;

pub use columns::{ColumnSpec, ColumnsMetadata};
pub use compression::Compression;
pub use consistency::Consistency;
pub use decoder::{Decoder, Envelope, Role};
pub use envelope::Prefix;
pub use error::{DecodeError, FrameError};
pub use error_code::ErrorCode;
pub use event::{Event, EventType, SchemaChange, SchemaChangeKind, SchemaTarget};
pub use header::{Flags, HEADER_BYTES, Header, Opcode};
pub use request::{
    Batch, BatchKind, BatchQuery, Execute, Prepare, Query, QueryParameters, Request, Value, decode_request,
};
pub use response::{ErrorKind, ErrorResponse};
pub use rows::RowsWriter;
pub use version::ProtocolVersion;
