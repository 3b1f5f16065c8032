//! Files that the manifest names and that could not be opened: missing, damaged, or unreadable.
//!
//! Invariants:
//! * The manifest goes on naming such a file, so no start forgets it. It goes only when its table is truncated or dropped, or when an
//!   operator gives its rows up ([`Shard::examine`](super::state::Shard::examine)).
//! * Each minute it is tried again to open it: a backup may have put it back, or the medium recovers.
//! * A read of keys that the file may hold is an error that names it, and never has fewer rows.
//! * While a table has such a file its compactions purge nothing: a deletion outlives what the file may hold.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::state::Shard;
use super::table_state::{LiveFile, TableState};
use crate::error::EngineError;
use crate::io::DiskError;
use crate::key::decode_token;
use crate::manifest::{ManifestFile, TokenSpan};
use crate::table::{TableError, TableReader};

/// A file that could not be opened.
#[derive(Debug, Clone)]
pub(super) struct DamagedFile {
    pub place: ManifestFile,
    pub path: PathBuf,
    pub reason: String,
}

/// Whether an error of an opening says that the file itself is no good, and not that the process lacks something.
pub(super) fn is_damage(error: &TableError) -> bool {
    match error {
        TableError::Damaged { .. } => true,
        TableError::Disk(error) => is_lost(error),
        _ => false,
    }
}

fn is_lost(error: &DiskError) -> bool {
    error.kind() == std::io::ErrorKind::NotFound || error.is_of_medium()
}

/// The token that a full key, or the start of one, begins with; `None`: it is shorter than a token.
fn token_of(key: &[u8]) -> Option<i64> {
    key.first_chunk().map(|bytes| decode_token(*bytes))
}

/// The tokens of a range of full keys.
fn span(start: &[u8], end: &[u8]) -> TokenSpan {
    let last = match token_of(end) {
        // The range ends before the first key of this token.
        Some(token) if end.len() == size_of::<i64>() => token.saturating_sub(1),
        Some(token) => token,
        None => i64::MAX,
    };
    TokenSpan { first: token_of(start).unwrap_or(i64::MIN), last }
}

impl DamagedFile {
    fn may_hold(&self, tokens: TokenSpan) -> bool {
        // Of a file from before the manifest kept tokens nothing is known.
        self.place.tokens.is_none_or(|held| held.first <= tokens.last && tokens.first <= held.last)
    }

    #[cold]
    fn refusal(&self) -> EngineError {
        EngineError::DamagedFile { path: self.path.clone(), reason: self.reason.clone() }
    }
}

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
    /// Opens what can be opened again.
    pub(super) async fn reopen_damaged(&self) {
        for table in self.all_tables() {
            let damaged: Vec<DamagedFile> = table.damaged.borrow().clone();
            for file in damaged {
                let opened =
                    TableReader::open_file(&*self.environment.disk, &file.path, file.place.generation).await;
                if let Ok(reader) = opened {
                    table.take_into_use(&file, reader);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{encode_token, full_key};

    #[test]
    fn ranges_of_keys_have_tokens() {
        let both = |span: TokenSpan| (span.first, span.last);
        assert_eq!(both(span(&[], &[0xFF])), (i64::MIN, i64::MAX));
        assert_eq!(both(span(&encode_token(5), &encode_token(9))), (5, 8));
        let key = full_key(5, b"key", b"position").unwrap();
        assert_eq!(both(span(&key, &full_key(5, b"key", b"q").unwrap())), (5, 5));
        assert_eq!(both(span(&encode_token(i64::MIN), &encode_token(i64::MIN))), (i64::MIN, i64::MIN));
    }

    #[test]
    fn a_file_is_asked_by_its_tokens() {
        let file = |tokens| DamagedFile {
            place: ManifestFile { generation: 1, level: 0, created_seconds: 0, directory: 0, tokens },
            path: PathBuf::new(),
            reason: String::new(),
        };
        let at = |token| TokenSpan { first: token, last: token };
        let known = file(Some(TokenSpan { first: -2, last: 7 }));
        assert!(known.may_hold(at(-2)) && known.may_hold(at(7)));
        assert!(!known.may_hold(at(-3)) && !known.may_hold(at(8)));
        assert!(file(None).may_hold(at(i64::MAX)));
    }
}
