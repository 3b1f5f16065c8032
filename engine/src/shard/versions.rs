//! Reading versions of a shard's table; see [`crate::read::Versions`].

use std::rc::Rc;
use std::sync::Arc;

use super::state::Shard;
use super::table_state::shared_prefix_length;
use crate::error::EngineError;
use crate::read::{RangeTombstoneSource, VersionScan, VersionScanRequest, Versions};
use crate::reconcile::{Purge, Purpose};
use crate::table::ReadPattern;

impl Shard {
    /// Reads the versions of a range of full keys in one critical section: merged rows with their tombstones, and range tombstones.
    /// Equal contents give equal answers, whatever was flushed or compacted.
    pub fn scan_versions(&self, request: &VersionScanRequest<'_>) -> Result<Versions, EngineError> {
        let table = self.table(request.table)?;
        let purpose = if request.keeps_purgeable {
            Purpose::Keep
        } else {
            Purpose::Compact(Purge {
                now_seconds: request.now_seconds,
                deleted_before_seconds: request
                    .now_seconds
                    .saturating_sub(table.options.borrow().gc_grace_seconds),
                // The deletions of all sources are applied, so the data that they shadow is not in the answer.
                max_purgeable_timestamp: i64::MAX,
            })
        };
        let only =
            shared_prefix_length(request.start, request.end).and_then(|length| request.start.get(..length));
        let mut range_tombstones = Vec::new();
        table.for_each_memtable(|memtable| {
            if memtable.read(crate::memtable::Memtable::has_range_tombstones) {
                range_tombstones.push(RangeTombstoneSource::Memtable(Rc::clone(memtable)));
            }
        });
        for file in table.files.borrow().iter() {
            let reader = &file.reader;
            if !reader.range_tombstones().is_empty()
                && reader.statistics().may_overlap(request.start, request.end)
            {
                range_tombstones.push(RangeTombstoneSource::Table(Arc::clone(reader)));
            }
        }
        let pattern = if request.is_long { ReadPattern::LongRange } else { ReadPattern::Rows };
        let scan = self.open_scan(&request.scan_request(), None, pattern)?;
        let versions = VersionScan::new(request, scan, range_tombstones, purpose, only).run();
        self.watch.check()?;
        versions.inspect_err(|error| self.disk_failures.note(error))
    }
}
