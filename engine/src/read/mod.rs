//! Reading: a [`Scan`] merges the memtables and table files of one table over a range of full keys, forwards or
//! backwards, and stops when it has done enough work. A reader of *versions* (another node) gets tombstones too.

mod difference;
pub mod reconcile_answers;
mod request;
mod scan;
mod source;
mod span_sources;
mod versions;

pub use self::request::{Budget, RowView, ScanRequest, Step};
pub(crate) use self::scan::BufferPool;
pub use self::scan::Scan;
pub(crate) use self::source::{Bounds, Reach, Source, TableSource, TableSourceBuffers};
pub(crate) use self::span_sources::SpanSource;
pub(crate) use self::versions::VersionScan;
pub use self::versions::{VersionLimit, VersionScanRequest, Versions};
