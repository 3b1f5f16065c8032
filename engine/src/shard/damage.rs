//! Files that the manifest names and that could not be opened: missing, damaged, or unreadable.
//!
//! Invariants:
//! * The manifest goes on naming such a file, so no start forgets it. It goes only when its table is truncated or dropped, or when an
//!   operator gives its rows up ([`Shard::examine`](super::state::Shard::examine)).
//! * Each minute it is tried again to open it: a backup may have put it back, or the medium recovers.
//! * A read of keys that the file may hold is an error that names it, and never has fewer rows.
//! * While a table has such a file its compactions purge nothing: a deletion outlives what the file may hold.

use std::path::Path;
use std::sync::Arc;

use super::damaged_file::{DamagedFile, span, token_of};
use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use super::write_pressure::Change;
use crate::error::EngineError;
use crate::manifest::{ManifestFile, TokenSpan};
use crate::table::{TableError, TableReader};

impl TableState {
    /// Whether any file of the table could not be opened.
    #[inline]
    pub fn has_damage(&self) -> bool {
        !self.damaged.borrow().is_empty()
    }

    /// Refuses a read of the full keys `[start, end)` if a file that could not be opened may hold some of them.
    #[inline]
    pub fn check_readable(&self, start: &[u8], end: &[u8]) -> Result<(), EngineError> {
        if self.has_damage() && start < end { self.check_spans(span(start, end)) } else { Ok(()) }
    }

    /// As [`TableState::check_readable`] for one full key.
    #[inline]
    pub fn check_key_readable(&self, key: &[u8]) -> Result<(), EngineError> {
        if !self.has_damage() {
            return Ok(());
        }
        let token = token_of(key);
        self.check_spans(TokenSpan { first: token.unwrap_or(i64::MIN), last: token.unwrap_or(i64::MAX) })
    }

    /// As [`TableState::check_readable`] for tokens.
    #[cold]
    pub fn check_spans(&self, tokens: TokenSpan) -> Result<(), EngineError> {
        match self.damaged.borrow().iter().find(|file| file.may_hold(tokens)) {
            Some(file) => Err(file.refusal()),
            None => Ok(()),
        }
    }

    /// Serves a file that could not be opened before; nothing happens if it is not damaged any more, or was given up.
    pub fn take_into_use(&self, file: &DamagedFile, reader: Arc<TableReader>) -> bool {
        let generation = file.place.generation;
        let count = self.damaged.borrow().len();
        self.damaged.borrow_mut().retain(|damaged| damaged.place.generation != generation);
        if self.damaged.borrow().len() == count {
            return false;
        }
        self.add_file(LiveFile::new(file.place, reader, None));
        tracing::warn!(table = %self.id, path = %file.path.display(), "a damaged table file can be read, and is in use again");
        true
    }

    /// Takes a file of the manifest that could not be opened.
    pub fn add_damaged(&self, place: ManifestFile, path: &Path, reason: &TableError) {
        let file = DamagedFile { place, path: path.to_path_buf(), reason: reason.to_string() };
        self.damaged.borrow_mut().push(file);
    }
}

impl Shard {
    /// Serves a file that could not be opened before. False: it is not damaged any more, or is gone. Nobody takes it out of the manifest
    /// meanwhile: it would be served without being in it.
    pub(super) async fn use_damaged(
        &self,
        table: &TableState,
        file: &DamagedFile,
        reader: Arc<TableReader>,
    ) -> bool {
        let _manifest = self.manifest.lock().await;
        let is_used = table.take_into_use(file, reader);
        if is_used {
            self.signals.indexes_wanted.notify_one();
        }
        is_used
    }

    /// Opens what can be opened again.
    pub(super) async fn reopen_damaged(&self) {
        for table in self.all_tables() {
            let damaged: Vec<DamagedFile> = table.damaged.borrow().clone();
            for file in damaged {
                let (disk, generation) = (&*self.environment.disk, file.place.generation);
                // As a whole at first: read in parts, it would seem to be sound while nobody looks at the damaged part.
                let opened = match TableReader::open_file(disk, &file.path, generation).await {
                    Ok(_) => {
                        TableReader::open_file_within(disk, &file.path, generation, &table.resident).await
                    }
                    Err(error) => Err(error),
                };
                let Ok(reader) = opened else { continue };
                if self.use_damaged(&table, &file, reader).await {
                    self.look_at_backlog(&table, Change::Other);
                }
            }
        }
    }
}
