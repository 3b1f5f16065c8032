//! The request of a scan, and its results.

use crate::codec::DecodeError;
use crate::key::KeyRef;
use crate::mutation::TableId;
use crate::row::RowRef;

/// The work that a scan may do before it pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of rows read. All versions of a row count, and small rows as if they were a bit larger.
    pub bytes: u64,
    /// Deleted and expired rows and cells read.
    pub tombstones: u64,
}

impl Budget {
    /// No limit, for ranges that are known to be small.
    pub const UNLIMITED: Self = Self { bytes: u64::MAX, tombstones: u64::MAX };
}

/// The request of a scan.
#[derive(Debug, Clone, Copy)]
pub struct ScanRequest<'a> {
    pub table: TableId,
    /// The first full key (or any prefix of one).
    pub start: &'a [u8],
    /// Behind the last full key.
    pub end: &'a [u8],
    /// Whether rows are returned from the last to the first.
    pub reversed: bool,
    /// Seconds since the epoch; decides what has expired.
    pub now_seconds: u32,
    pub budget: Budget,
}

/// A visible row: deletions are applied and expired cells removed, and it has a liveness or a live cell. For a projected scan
/// ([`crate::Shard::scan_columns`]) this holds for the projected columns only.
#[derive(Debug, Clone, Copy)]
pub struct RowView<'a> {
    /// The full key.
    pub key: &'a [u8],
    pub token: i64,
    pub partition_key: &'a [u8],
    pub position: &'a [u8],
    pub row: RowRef<'a>,
    /// The time of the read, in seconds since the epoch.
    pub now_seconds: u32,
}

impl<'a> RowView<'a> {
    #[inline]
    pub(super) fn new(key: &'a [u8], row: RowRef<'a>, now_seconds: u32) -> Result<Self, DecodeError> {
        let KeyRef { token, partition_key, position } = KeyRef::parse(key)?;
        Ok(Self { key, token, partition_key, position, row, now_seconds })
    }
}

/// The result of a step of a scan.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    Row(RowView<'a>),
    /// The budget is spent. [`super::Scan::resume_bound`] is the start of the next scan.
    Exhausted,
    /// There are no more rows in the range.
    End,
}
