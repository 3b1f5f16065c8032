//! The CQL native protocol, versions 3, 4 and 5, as pure functions over byte buffers: no sockets, no clocks.
//!
//! A connection uses one [`Decoder`] to split the bytes received into envelopes, [`decode_request`] to
//! decode an envelope into a [`Request`] that borrows from it, the functions of [`response`] and [`rows::RowsWriter`] to
//! append responses to an output buffer, and, in v5, [`segment::SegmentEncoder`] to pack responses into segments.
//!
//! Invariants of the whole module:
//! * no received bytes cause a panic: every read is bounds-checked and fails with a typed error;
//! * a received length is never trusted for an allocation: memory grows with the bytes received (and, for compressed
//!   data, with the best possible compression ratio);
//! * decoding inverts encoding, for the encoders of [`client`] and of the server.

pub mod client;
pub(crate) mod columns;
pub mod compression;
pub(crate) mod consistency;
pub(crate) mod decoder;
pub mod envelope;
pub mod error;
pub(crate) mod error_code;
pub(crate) mod event;
pub mod header;
pub mod request;
pub mod response;
pub mod rows;
pub mod sasl_plain;
pub mod segment;
pub mod type_codes;
pub(crate) mod version;
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
