//! Reading: a [`Scan`] merges the memtables and table files of one table over a range of full keys, forwards or backwards, and
//! stops when its budget is spent. A read of *versions*, for another node, also returns tombstones.

mod range_tombstone_sources;
mod request;
mod scan;
mod source;
mod versions;

pub(crate) use self::range_tombstone_sources::RangeTombstoneSource;
pub use self::request::{Budget, RowView, ScanRequest, Step};
pub use self::scan::Scan;
pub(crate) use self::scan::{BufferPool, ScanBuffers};
pub(crate) use self::source::{Bounds, Reach, Source, TableSource, TableSourceBuffers};
pub(crate) use self::versions::VersionScan;
pub use self::versions::{Purgeable, TRANSFER_TURN_BYTES, VersionLimit, VersionScanRequest, Versions};
pub use crate::cell::AddressBuf;
pub use helenus_rows::reconcile_answers;

pub use crate::reconcile::{MERGED_ROW_BYTES_MAX, RowPart};
