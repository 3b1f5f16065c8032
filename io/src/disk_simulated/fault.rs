//! The failures of a simulated disk: crashes and planted faults.

/// Bytes that a device writes atomically.
pub(super) const SECTOR_BYTES: usize = 512;

pub(super) const ERRNO_IO: i32 = 5;
pub(super) const ERRNO_NO_SPACE: i32 = 28;

/// Which un-synced data survives a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashStyle {
    /// Only the process died. The operating system keeps all data, but a later crash of another style may lose data that is not
    /// synced by then.
    KeepAll,
    /// Power loss: no un-synced data survives.
    LoseAll,
    /// Writes survive in order up to a random point. The write at that point survives up to a sector boundary.
    Prefix,
    /// Each sector of each un-synced write survives or not, independently.
    RandomSectors,
    /// As `Prefix`, but the last sector contains only a part of the new bytes.
    TornSector,
    /// As `RandomSectors`, but the sectors reach the disk in any order: where writes overlap, an earlier one may replace a later
    /// one.
    Unordered,
}

impl CrashStyle {
    /// Every style, for tests that try them all.
    pub const ALL: [Self; 6] =
        [Self::KeepAll, Self::LoseAll, Self::Prefix, Self::RandomSectors, Self::TornSector, Self::Unordered];
}

/// The fault of a planted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with EIO and changes nothing, except that a failed sync drops the dirty data.
    Error,
    /// The call fails with ENOSPC. A write writes a random part first.
    NoSpace,
    /// A write stops after a random part and fails with EIO. Other calls fail as with `Error`.
    ShortWrite,
}
