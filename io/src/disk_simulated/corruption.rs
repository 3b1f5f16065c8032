//! Read corruption: reads that return flipped bits, or that the medium refuses.

use std::path::Path;

use crate::random::SplitMix64;

/// The lifetime of a flipped bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Only this read is wrong: the file on the disk is intact.
    Transient,
    /// The file itself has changed. It stays so until the bytes are written anew.
    Persistent,
}

/// Which reads return flipped bits. A read of a whole file and a read of a part of a file are one read each.
#[derive(Debug, Clone)]
pub struct ReadCorruption {
    /// Only files whose path contains this text. Every path contains the empty text.
    pub path_contains: String,
    /// Chance of a read, in thousandths.
    pub reads_per_mille: u64,
    /// A corrupt read has one to this many flipped bits.
    pub bits_max: u64,
    pub persistence: Persistence,
}

impl ReadCorruption {
    /// The bits that the next read of `bytes` bytes of a file flips; none if it is correct.
    pub(super) fn draw(&self, path: &Path, bytes: usize, random: &mut SplitMix64) -> Vec<u64> {
        let is_concerned = path.to_string_lossy().contains(&self.path_contains);
        if !is_concerned || bytes == 0 || !random.chance(self.reads_per_mille, 1000) {
            return Vec::new();
        }
        let count = 1 + random.below(self.bits_max);
        (0..count).map(|_| random.below(bytes as u64 * 8)).collect()
    }
}

/// Flips bits. Those behind the end are left out.
pub(super) fn flip(bytes: &mut [u8], bits: &[u64]) {
    for bit in bits {
        if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// Sectors that the medium cannot read.
#[derive(Debug, Clone)]
pub(super) struct BadMedium {
    pub(super) path_contains: String,
}

impl BadMedium {
    pub(super) fn concerns(&self, path: &Path) -> bool {
        path.to_string_lossy().contains(&self.path_contains)
    }
}
