//! Reading versions of a shard's table; see [`crate::read::Versions`].

use std::rc::Rc;
use std::sync::Arc;

use super::scan::Unopened;
use super::state::Shard;
use super::table_state::shared_prefix_length;
use crate::error::EngineError;
use crate::read::{Purgeable, RangeTombstoneSource, VersionScan, VersionScanRequest, Versions};
use crate::reconcile::{Purge, Purpose};
use crate::table::ReadPattern;

impl Shard {
    /// Reads the versions of a range of full keys in one critical section: merged rows with their tombstones, and range tombstones.
    /// Equal contents give equal answers, whatever was flushed or compacted.
    pub fn scan_versions(&self, request: &VersionScanRequest<'_>) -> Result<Versions, EngineError> {
        self.scan_versions_with(request, Unopened::Refused)
    }

    /// As [`Shard::scan_versions`]. `unopened`: what it does about files that could not be opened.
    pub fn scan_versions_with(
        &self,
        request: &VersionScanRequest<'_>,
        unopened: Unopened,
    ) -> Result<Versions, EngineError> {
        let table = self.table(request.table)?;
        let purpose = match request.purgeable {
            Purgeable::Kept => Purpose::Keep,
            // The deletions of all sources are applied, so the data that they shadow is not in the answer.
            Purgeable::LeftOut => Purpose::Compact(table.purge(request.now_seconds)),
            Purgeable::LeftOutAfterGrace => {
                let purge = table.purge(request.now_seconds);
                let deleted_before_seconds = purge.deleted_before_seconds.max(purge.expired_before_seconds);
                Purpose::Compact(Purge { deleted_before_seconds, ..purge })
            }
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
        let scan = self.open_scan_with(&request.scan_request(), None, pattern, unopened)?;
        let versions = VersionScan::new(request, scan, range_tombstones, purpose, only).run();
        self.watch.check()?;
        versions.inspect_err(|error| self.disk_failures.note(error))
    }
}
