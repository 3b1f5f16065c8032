//! Memory maps of immutable files: the one `unsafe` block of the engine's input and output.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::disk::{Mapped, Mapping};

struct FileMapping(memmap2::Mmap);

impl Mapped for FileMapping {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn prefetch(&self, offset: usize, length: usize) {
        let length = length.min(self.0.len().saturating_sub(offset));
        if length > 0 {
            // Without the hint, readers only wait longer.
            let _ = self.0.advise_range(memmap2::Advice::WillNeed, offset, length);
        }
    }
}

/// An empty file cannot be mapped; it reads as an empty slice.
struct Empty;

impl Mapped for Empty {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// Maps `file`, which must be complete: it is never written to or truncated again.
pub(super) fn map_file(file: &File) -> io::Result<Mapping> {
    if file.metadata()?.len() == 0 {
        return Ok(Arc::new(Empty));
    }
    // SAFETY: the mapping is read-only and private to this process. The engine maps only finished tables: it never
    // writes to or truncates a file after its first mapping (tables are replaced by new files and then unlinked,
    // which keeps mapped pages alive), and the data directory is locked against a second process. Readers treat the
    // bytes as untrusted (checksums and bounds checks), so even outside interference cannot break memory safety
    // short of truncation by another program, which ends in SIGBUS, not in undefined reads.
    #[allow(unsafe_code, reason = "mapping a file is inherently unsafe; see the argument above")]
    let mapping = unsafe { memmap2::Mmap::map(file)? };
    Ok(Arc::new(FileMapping(mapping)))
}
