//! What goes wrong on a simulated disk: planted faults, and crashes.

/// Bytes that a device writes as one.
pub(super) const SECTOR_BYTES: usize = 512;

pub(super) const ERRNO_IO: i32 = 5;
pub(super) const ERRNO_NO_SPACE: i32 = 28;

/// What survives a crash of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashStyle {
    /// Only the process died: the operating system still has everything, synced or not; a later crash of another style
    /// may lose what is not synced by then.
    KeepAll,
    /// Power was lost and nothing un-synced survives.
    LoseAll,
    /// Writes survive in order up to a random point; the one at that point up to a whole sector.
    Prefix,
    /// Each sector of each un-synced write survives or not, independently.
    RandomSectors,
    /// As `Prefix`, but the last sector itself holds a part of the new bytes only.
    TornSector,
}

impl CrashStyle {
    /// Every style, for tests that try them all.
    pub const ALL: [Self; 5] =
        [Self::KeepAll, Self::LoseAll, Self::Prefix, Self::RandomSectors, Self::TornSector];
}

/// What goes wrong at a planted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with EIO and changes nothing, except that a failed sync drops the dirty data.
    Error,
    /// The call fails with ENOSPC; a write has written a random part first.
    NoSpace,
    /// A write stops after a random part and fails with EIO; other calls fail as with `Error`.
    ShortWrite,
}
