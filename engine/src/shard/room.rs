//! Measures the room on the disk: once a second, and before anything large is written. Budgets that shards lend each other are looked at as often.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use super::state::{Shard, Signals};
use crate::error::EngineError;
use crate::io::{Claim, DiskReserve};

/// Time between two measurements.
const ROOM_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// The least bytes of a table file besides the rows of its memtable.
const FILE_OVERHEAD_BYTES: u64 = 4 << 10;

impl Shard {
    /// The room on the disk, which the shards of a node share.
    pub fn reserve(&self) -> &Arc<DiskReserve> {
        &self.options.reserve
    }

    /// Whether the commit log waits for room on the disk.
    pub fn log_lacks_room(&self) -> bool {
        self.log.lacks_room()
    }

    /// Remembers the failure of the disk that work on data files has met.
    #[cold]
    pub(super) fn note_disk_failure(&self, error: &EngineError) {
        self.disk_failures.note(error);
        self.directories.note_failure(error, self.environment.clock.monotonic());
    }

    /// Measures the room on the disk.
    pub(super) async fn measure_room(&self) {
        let reserve = self.reserve();
        let memtable_bytes = self.memory.used_bytes();
        reserve.memory_changed(self.measured_memtable_bytes.replace(memtable_bytes), memtable_bytes);
        match self.directories.room(&self.environment).await {
            Ok(room) => reserve.measured(room),
            // The last measurement stays.
            Err(error) => tracing::debug!(%error, "the room on the disk could not be measured"),
        }
        self.log.set_room_is_scarce(reserve.is_reached());
    }

    /// The error for a write that is refused for want of room.
    #[cold]
    pub(super) fn refuse_write(&self, reason: &dyn std::fmt::Display) -> EngineError {
        self.reserve().note_refused_write();
        EngineError::NoRoom(reason.to_string())
    }

    /// Claims room to flush memtables of `memtable_bytes` in total to `files` SSTables.
    pub(super) async fn room_for_flush(
        &self,
        memtable_bytes: usize,
        files: usize,
    ) -> Result<Claim, EngineError> {
        self.measure_room().await;
        let overhead_bytes = FILE_OVERHEAD_BYTES * files as u64;
        Ok(self.reserve().claim_for_flush(memtable_bytes as u64 + overhead_bytes)?)
    }

    /// Claims room for the output of a compaction whose inputs have this size: it may be as large as they are. When there is room
    /// again, the compaction task is woken.
    pub(super) async fn room_for_compaction(&self, input_bytes: u64) -> Result<Claim, EngineError> {
        self.measure_room().await;
        let claim = self.reserve().claim_for_compaction(input_bytes);
        self.compaction_lacks_room.set(claim.is_err());
        Ok(claim?)
    }
}

/// The task that measures the room on the disk, and gives back what is borrowed. It ends with its shard.
pub(super) async fn keep_measuring(shard: Weak<Shard>, signals: Rc<Signals>) {
    loop {
        let Some(shard) = shard.upgrade() else { return };
        let free_before = shard.reserve().room().map(|room| room.free_bytes);
        shard.measure_room().await;
        shard.give_back();
        let free = shard.reserve().room().map(|room| room.free_bytes);
        if shard.log_lacks_room() {
            // A flush releases segments of the log, which are then reused.
            signals.flush_wanted.notify_one();
        }
        if free > free_before && shard.compaction_lacks_room.take() {
            signals.want_compaction();
        }
        let clock = Rc::clone(&shard.environment.clock);
        drop(shard);
        clock.sleep(ROOM_CHECK_PERIOD).await;
    }
}
