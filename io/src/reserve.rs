//! The room on a node's disk, as its shards share it: what is free, what is about to be written, and the reserve.
//!
//! * Writes of clients are refused while less than the reserve is free: what is in memory must still fit into files, and the
//!   metadata log, transactions and deletions of hints must go on. They are accepted again when an eighth more than that is free.
//! * Flushes and compactions claim the room for their output before they begin, so that all that run at once fit together. A flush
//!   may take all there is, also what compactions have claimed: writers wait for it, and a compaction can be repeated. A compaction
//!   leaves the reserve; once writes are refused, it leaves what memory needs, because it may be what frees room.
//!
//! Every number is a relaxed atomic: a reader needs each by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use thiserror::Error;

use super::disk::DiskRoom;

/// A reserve that is derived from other settings is at most this part of the disk.
const PART_OF_DISK: u64 = 10;

/// Why room was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoRoom {
    #[error("{free_bytes} bytes are free, and {reserve_bytes} are kept in reserve")]
    Reserve { free_bytes: u64, reserve_bytes: u64 },
    #[error(
        "{bytes} bytes would be written, but {free_bytes} are free, of which {claimed_bytes} are about to be used and \
         {left_bytes} are kept"
    )]
    Claim { bytes: u64, free_bytes: u64, claimed_bytes: u64, left_bytes: u64 },
}

/// How large the reserve is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveSize {
    /// This number of bytes. 0: no reserve.
    Bytes(u64),
    /// This number of bytes, but at most a tenth of the disk.
    AtMostATenth(u64),
}

/// The room on the disk of a node. Its shards share it.
#[derive(Debug)]
pub struct DiskReserve {
    size: ReserveSize,
    /// As measured last.
    free_bytes: AtomicU64,
    total_bytes: AtomicU64,
    /// Output of running flushes that is not written yet.
    flushed_bytes: AtomicU64,
    /// Output of running compactions that is not written yet.
    compacted_bytes: AtomicU64,
    /// Memory of the memtables of all shards.
    memtable_bytes: AtomicU64,
    is_reached: AtomicBool,
    refused_writes: AtomicU64,
}

impl DiskReserve {
    pub fn new(size: ReserveSize) -> Arc<Self> {
        Arc::new(Self {
            size,
            free_bytes: AtomicU64::new(u64::MAX),
            total_bytes: AtomicU64::new(u64::MAX),
            flushed_bytes: AtomicU64::new(0),
            compacted_bytes: AtomicU64::new(0),
            memtable_bytes: AtomicU64::new(0),
            is_reached: AtomicBool::new(false),
            refused_writes: AtomicU64::new(0),
        })
    }

    /// The room as measured last; `None` before the first time.
    pub fn room(&self) -> Option<DiskRoom> {
        let total_bytes = self.total_bytes.load(Relaxed);
        (total_bytes < u64::MAX).then(|| DiskRoom { free_bytes: self.free_bytes.load(Relaxed), total_bytes })
    }

    /// The reserve in bytes, of the disk as it was measured last.
    pub fn bytes(&self) -> u64 {
        match self.size {
            ReserveSize::Bytes(bytes) => bytes,
            ReserveSize::AtMostATenth(bytes) => bytes.min(self.total_bytes.load(Relaxed) / PART_OF_DISK),
        }
    }

    /// Whether writes are refused because less than the reserve is free.
    #[inline]
    pub fn is_reached(&self) -> bool {
        self.is_reached.load(Relaxed)
    }

    /// The number of writes that were refused for want of room.
    pub fn refused_writes(&self) -> u64 {
        self.refused_writes.load(Relaxed)
    }

    /// Memory of the memtables of all shards, as of the last measurement of each.
    pub fn memtable_bytes(&self) -> u64 {
        self.memtable_bytes.load(Relaxed)
    }

    /// Takes a measurement of the room.
    pub fn measured(&self, room: DiskRoom) {
        self.total_bytes.store(room.total_bytes.min(u64::MAX - 1), Relaxed);
        self.free_bytes.store(room.free_bytes, Relaxed);
        let reserve = self.bytes();
        let limit = if self.is_reached() { reserve + reserve / 8 } else { reserve };
        let is_reached = room.free_bytes < limit;
        if self.is_reached.swap(is_reached, Relaxed) == is_reached {
            return;
        }
        let DiskRoom { free_bytes, .. } = room;
        if is_reached {
            tracing::warn!(free_bytes, reserve_bytes = reserve, "the disk is full: writes are refused");
        } else {
            tracing::info!(
                free_bytes,
                reserve_bytes = reserve,
                "the disk has room again: writes are accepted"
            );
        }
    }

    /// Takes the change of a shard's memory since its last measurement.
    #[inline]
    pub fn memory_changed(&self, before: usize, now: usize) {
        // Wrapping: the sum over all shards is right again after the last of them.
        self.memtable_bytes.fetch_add((now as u64).wrapping_sub(before as u64), Relaxed);
    }

    /// Counts a write that was refused for want of room.
    pub fn note_refused_write(&self) {
        self.refused_writes.fetch_add(1, Relaxed);
    }

    /// Why writes are refused when the reserve is reached.
    pub fn reason(&self) -> NoRoom {
        NoRoom::Reserve { free_bytes: self.free_bytes.load(Relaxed), reserve_bytes: self.bytes() }
    }

    /// Claims room for the output of a flush.
    pub fn claim_for_flush(self: &Arc<Self>, bytes: u64) -> Result<Claim, NoRoom> {
        self.check(bytes, self.flushed_bytes.load(Relaxed), 0)?;
        Ok(Claim::new(self, bytes, |reserve| &reserve.flushed_bytes))
    }

    /// Claims room for the output of a compaction.
    pub fn claim_for_compaction(self: &Arc<Self>, bytes: u64) -> Result<Claim, NoRoom> {
        let left = if self.is_reached() { self.memtable_bytes().min(self.bytes()) } else { self.bytes() };
        let claimed = self.flushed_bytes.load(Relaxed) + self.compacted_bytes.load(Relaxed);
        self.check(bytes, claimed, left)?;
        Ok(Claim::new(self, bytes, |reserve| &reserve.compacted_bytes))
    }

    /// Checks that `bytes` are free in addition to those that are claimed or kept.
    fn check(&self, bytes: u64, claimed_bytes: u64, left_bytes: u64) -> Result<(), NoRoom> {
        let free_bytes = self.free_bytes.load(Relaxed);
        let available = free_bytes.saturating_sub(claimed_bytes).saturating_sub(left_bytes);
        if bytes > available {
            return Err(NoRoom::Claim { bytes, free_bytes, claimed_bytes, left_bytes });
        }
        Ok(())
    }
}

/// Room that is about to be written to. What is left of it is given back on drop.
pub struct Claim {
    reserve: Arc<DiskReserve>,
    /// Where it is counted.
    claimed: fn(&DiskReserve) -> &AtomicU64,
    bytes: u64,
}

impl Claim {
    fn new(reserve: &Arc<DiskReserve>, bytes: u64, claimed: fn(&DiskReserve) -> &AtomicU64) -> Self {
        claimed(reserve).fetch_add(bytes, Relaxed);
        Self { reserve: Arc::clone(reserve), claimed, bytes }
    }

    /// Reduces the claim by bytes that are on the disk now: the next measurement counts them.
    pub fn written(&mut self, bytes: u64) {
        let written = bytes.min(self.bytes);
        self.bytes -= written;
        (self.claimed)(&self.reserve).fetch_sub(written, Relaxed);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        (self.claimed)(&self.reserve).fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(size: ReserveSize, free_bytes: u64, total_bytes: u64) -> Arc<DiskReserve> {
        let reserve = DiskReserve::new(size);
        assert_eq!(reserve.room(), None);
        reserve.measured(DiskRoom { free_bytes, total_bytes });
        reserve
    }

    #[test]
    fn a_derived_reserve_is_at_most_a_tenth_of_the_disk() {
        assert_eq!(measured(ReserveSize::AtMostATenth(50), 100, 400).bytes(), 40);
        assert_eq!(measured(ReserveSize::AtMostATenth(50), 100, 4000).bytes(), 50);
        assert_eq!(measured(ReserveSize::Bytes(50), 100, 400).bytes(), 50);
    }

    #[test]
    fn writes_are_accepted_again_when_an_eighth_more_is_free() {
        let reserve = measured(ReserveSize::Bytes(80), 80, 1000);
        let is_reached = |free_bytes| {
            reserve.measured(DiskRoom { free_bytes, total_bytes: 1000 });
            reserve.is_reached()
        };
        assert!(!is_reached(80) && is_reached(79) && is_reached(89) && !is_reached(90) && !is_reached(80));
        let none = measured(ReserveSize::Bytes(0), 0, 1000);
        assert!(!none.is_reached());
    }

    #[test]
    fn all_that_run_at_once_fit_together() {
        let reserve = measured(ReserveSize::Bytes(100), 1000, 5000);
        let mut compaction = reserve.claim_for_compaction(500).unwrap();
        assert!(reserve.claim_for_compaction(401).is_err(), "the reserve is left");
        let flush = reserve.claim_for_flush(800).unwrap();
        assert!(reserve.claim_for_flush(201).is_err() && reserve.claim_for_compaction(1).is_err());
        drop(flush);
        compaction.written(200);
        compaction.written(400);
        reserve.measured(DiskRoom { free_bytes: 500, total_bytes: 5000 });
        reserve.claim_for_compaction(400).unwrap();
        drop(compaction);
        assert!(matches!(reserve.claim_for_compaction(401), Err(NoRoom::Claim { .. })));
        reserve.claim_for_compaction(400).unwrap();
    }

    #[test]
    fn a_compaction_may_use_the_reserve_when_writes_are_refused() {
        let reserve = measured(ReserveSize::Bytes(100), 90, 5000);
        reserve.memory_changed(0, 50);
        reserve.memory_changed(30, 10);
        assert_eq!(reserve.memtable_bytes(), 30);
        assert!(reserve.claim_for_compaction(61).is_err());
        reserve.claim_for_compaction(60).unwrap();
    }
}
