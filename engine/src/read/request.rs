//! What a scan is asked, and what it answers.

use crate::codec::DecodeError;
use crate::key::KeyRef;
use crate::mutation::TableId;
use crate::row::RowRef;

/// How much work a scan may do before it pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of rows read, all their versions counted.
    pub bytes: u64,
    /// Deleted and expired rows and cells passed.
    pub tombstones: u64,
}

impl Budget {
    /// No limit at all: for ranges that are known to be small.
    pub const UNLIMITED: Self = Self { bytes: u64::MAX, tombstones: u64::MAX };
}

/// What to read.
#[derive(Debug, Clone, Copy)]
pub struct ScanRequest<'a> {
    pub table: TableId,
    /// The first full key (or any prefix of one).
    pub start: &'a [u8],
    /// Behind the last full key.
    pub end: &'a [u8],
    /// From the last row to the first.
    pub reversed: bool,
    /// Seconds since the epoch; decides what has expired.
    pub now_seconds: u32,
    pub budget: Budget,
}

/// A row as a reader sees it: deletions applied, expired cells gone. It has a liveness or a live cell. Of a scan that wants some
/// columns only ([`crate::Shard::scan_columns`]), this is so of these.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    /// The full key.
    pub key: &'a [u8],
    pub token: i64,
    pub partition_key: &'a [u8],
    pub position: &'a [u8],
    pub row: RowRef<'a>,
    /// The second at which the row is seen.
    pub now_seconds: u32,
}

impl<'a> RowView<'a> {
    #[inline]
    pub(super) fn new(key: &'a [u8], row: RowRef<'a>, now_seconds: u32) -> Result<Self, DecodeError> {
        let KeyRef { token, partition_key, position } = KeyRef::parse(key)?;
        Ok(Self { key, token, partition_key, position, row, now_seconds })
    }
}

/// What a scan came to.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    Row(RowView<'a>),
    /// The budget is spent; [`super::Scan::resume_bound`] says where another scan goes on.
    Exhausted,
    /// There are no more rows in the range.
    End,
}
