//! RESULT Rows: a writer that streams cells into the output buffer.
//!
//! ```text
//! kind = 2 | flags | column count | [paging state] | [new metadata id] | [columns] | row count | cells
//! ```
//!
//! The paging state precedes the rows but is known only after them. If there is one, the rows are moved once to make
//! room for it.

use bytes::{BufMut, BytesMut};

use super::{
    columns::{ColumnsMetadata, metadata_flags},
    envelope::{EnvelopeWriter, Prefix, begin_result, insert, result_kind},
    version::ProtocolVersion,
    wire,
};

/// How the metadata of a result is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendMetadata<'a> {
    /// All of it.
    Full,
    /// None: the client has requested to skip it and knows the current metadata.
    Skip,
    /// All of it with a new id: the id sent by the client is outdated.
    Changed { new_id: &'a [u8] },
}

/// Writes RESULT Rows. Dropping it without [`finish`](Self::finish) removes the partial result from the buffer.
#[derive(Debug)]
pub struct RowsWriter<'o> {
    envelope: EnvelopeWriter<'o>,
    /// Offset of the metadata flags in the buffer.
    flags_at: usize,
    row_count_at: usize,
    flags: u32,
}

impl<'o> RowsWriter<'o> {
    /// Appends everything up to the first row.
    pub fn begin(
        out: &'o mut BytesMut,
        version: ProtocolVersion,
        stream: i16,
        columns: &ColumnsMetadata,
        send: SendMetadata<'_>,
    ) -> Self {
        let mut envelope = begin_result(out, version, stream, result_kind::ROWS);
        let body = envelope.body();
        let flags_at = body.len();
        let flags = match send {
            SendMetadata::Full => columns.flags(),
            SendMetadata::Skip => metadata_flags::NO_METADATA,
            SendMetadata::Changed { .. } => columns.flags() | metadata_flags::METADATA_CHANGED,
        };
        body.put_u32(flags);
        body.put_i32(columns.column_count());
        if let SendMetadata::Changed { new_id } = send {
            wire::put_short_bytes(body, new_id);
        }
        if send != SendMetadata::Skip {
            body.put_slice(columns.encoded());
        }
        let row_count_at = body.len();
        body.put_i32(0);
        Self { envelope, flags_at, row_count_at, flags }
    }

    /// Appends a cell: a value in wire format, or null.
    #[inline]
    pub fn write_value(&mut self, value: Option<&[u8]>) {
        wire::put_bytes(self.envelope.body(), value);
    }

    /// Appends a cell; `write` appends its value in wire format.
    pub fn write_value_with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let body = self.envelope.body();
        let length_at = body.len();
        body.put_i32(0);
        write(body);
        let length = body.len().saturating_sub(length_at + 4);
        debug_assert!(i32::try_from(length).is_ok(), "a value of 2 GiB");
        let length = length as u32;
        patch_u32(body, length_at, length);
    }

    /// Appends encoded cells.
    pub fn write_encoded(&mut self, cells: &[u8]) {
        self.envelope.body().extend_from_slice(cells);
    }

    /// Length of the body so far, to end a page by size.
    pub fn body_bytes(&self) -> usize {
        self.envelope.body_bytes()
    }

    /// Completes the envelope. A paging state means that there are more pages.
    pub fn finish(mut self, row_count: i32, paging_state: Option<&[u8]>, prefix: &Prefix<'_>) {
        let body = self.envelope.body();
        patch_u32(body, self.row_count_at, row_count as u32);
        if let Some(state) = paging_state {
            patch_u32(body, self.flags_at, self.flags | metadata_flags::HAS_MORE_PAGES);
            let mut field = BytesMut::with_capacity(4 + state.len());
            wire::put_bytes(&mut field, Some(state));
            // After the flags and the column count.
            insert(body, self.flags_at + 8, &field);
        }
        self.envelope.finish(prefix);
    }
}

fn patch_u32(body: &mut BytesMut, position: usize, number: u32) {
    if let Some(field) = body.get_mut(position..position + 4) {
        field.copy_from_slice(&number.to_be_bytes());
    }
}
