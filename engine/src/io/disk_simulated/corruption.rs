//! Read corruption: reads that return flipped bits.
//!
//! A read of a whole file and a mapping are corrupt or not as a whole, when they are made. A live mapping can be made corrupt
//! later too ([`super::SimulatedDisk::flip_mapped_bit`]), as if its pages had been dropped and read again.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::io::disk::Mapped;
use crate::io::random::SplitMix64;

/// What becomes of a flipped bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Only this read is wrong: the file on the disk is intact.
    Transient,
    /// The file itself has changed. It stays so until the bytes are written anew.
    Persistent,
}

/// Which reads return flipped bits.
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
    /// The bits that the next read of a file flips; none if it is correct.
    pub(super) fn draw(&self, path: &Path, file_bytes: usize, random: &mut SplitMix64) -> Vec<u64> {
        let is_concerned = path.to_string_lossy().contains(&self.path_contains);
        if !is_concerned || file_bytes == 0 || !random.chance(self.reads_per_mille, 1000) {
            return Vec::new();
        }
        let count = 1 + random.below(self.bits_max);
        (0..count).map(|_| random.below(file_bytes as u64 * 8)).collect()
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

/// A mapped file. It can show another version of the bytes for a while.
#[derive(Debug)]
pub(super) struct MemoryMapping {
    bytes: Vec<u8>,
    /// Whether `bytes` are not the contents of the file.
    pub(super) is_born_corrupt: bool,
    /// Set once, because readers may hold a reference to it.
    corrupt: OnceLock<Vec<u8>>,
    is_corrupt: AtomicBool,
}

impl MemoryMapping {
    pub(super) fn new(bytes: Vec<u8>, is_born_corrupt: bool) -> Arc<Self> {
        let is_corrupt = AtomicBool::new(false);
        Arc::new(Self { bytes, is_born_corrupt, corrupt: OnceLock::new(), is_corrupt })
    }

    /// Shows the bytes with one flipped bit from now on. False if there is no such bit, or another one was flipped before.
    pub(super) fn flip(&self, bit: u64) -> bool {
        let mut bytes = self.bytes.clone();
        flip(&mut bytes, &[bit]);
        let is_flipped = bytes != self.bytes && self.corrupt.set(bytes).is_ok();
        if is_flipped {
            self.is_corrupt.store(true, Ordering::Release);
        }
        is_flipped
    }

    /// Shows the correct bytes again.
    pub(super) fn restore(&self) {
        self.is_corrupt.store(false, Ordering::Release);
    }
}

impl Mapped for MemoryMapping {
    fn bytes(&self) -> &[u8] {
        let is_corrupt = self.is_corrupt.load(Ordering::Acquire);
        self.corrupt.get().filter(|_| is_corrupt).unwrap_or(&self.bytes)
    }
}
