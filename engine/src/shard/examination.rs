//! What an examination of table files does and has found, and how far it is.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mutation::TableId;

/// The treatment of damaged files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Examination {
    /// Nothing: they are only reported.
    Verify,
    /// Those that can be read again are put into use.
    Scrub,
    /// As [`Examination::Scrub`], and rows that cannot be read are given up.
    ScrubAndGiveUp,
}

/// The result of an examination for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOutcome {
    /// It is damaged, and stays as it is.
    Damaged,
    /// It could not be opened before, and is in use again.
    Mended,
    /// Its rows are in a new file, except those of `lost_blocks`.
    Salvaged { rows: u64, lost_blocks: u64 },
    /// All its rows were given up.
    GivenUp,
}

/// A file that was or is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFinding {
    pub table: TableId,
    pub path: PathBuf,
    /// Why it cannot be read; empty for one that can be read again.
    pub reason: String,
    pub outcome: FileOutcome,
}

/// The progress of the last examination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExaminationProgress {
    pub is_running: bool,
    pub files: u64,
    pub files_done: u64,
    pub bytes: u64,
    pub bytes_done: u64,
    pub findings: Vec<FileFinding>,
}

/// The state of the last examination.
#[derive(Debug, Default)]
pub(super) struct ExaminationState {
    pub progress: RefCell<ExaminationProgress>,
    /// Counted on the thread that reads.
    pub read_bytes: Arc<AtomicU64>,
}

impl ExaminationState {
    pub fn begin(&self, files: u64, bytes: u64) {
        self.read_bytes.store(0, Ordering::Relaxed);
        self.progress.replace(ExaminationProgress {
            is_running: true,
            files,
            bytes,
            ..ExaminationProgress::default()
        });
    }

    pub fn note_file(&self, finding: Option<FileFinding>) {
        let mut progress = self.progress.borrow_mut();
        progress.files_done += 1;
        progress.findings.extend(finding);
    }
}
