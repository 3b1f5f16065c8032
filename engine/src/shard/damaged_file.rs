//! A file that could not be opened, and the keys that it may hold.

use std::path::PathBuf;

use crate::error::EngineError;
use crate::io::DiskError;
use crate::key::decode_token;
use crate::manifest::{ManifestFile, TokenSpan};
use crate::table::TableError;

/// A file that could not be opened.
#[derive(Debug, Clone)]
pub(super) struct DamagedFile {
    pub place: ManifestFile,
    pub path: PathBuf,
    pub reason: String,
}

/// Whether a file could not be opened because of the file itself, and not because the process lacks a resource.
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
pub(super) fn token_of(key: &[u8]) -> Option<i64> {
    key.first_chunk().map(|bytes| decode_token(*bytes))
}

/// The tokens of a range of full keys.
pub(super) fn span(start: &[u8], end: &[u8]) -> TokenSpan {
    let last = match token_of(end) {
        // The range ends before the first key of this token.
        Some(token) if end.len() == size_of::<i64>() => token.saturating_sub(1),
        Some(token) => token,
        None => i64::MAX,
    };
    TokenSpan { first: token_of(start).unwrap_or(i64::MIN), last }
}

impl DamagedFile {
    pub fn may_hold(&self, tokens: TokenSpan) -> bool {
        // The tokens of a file are unknown if it is from before the manifest kept tokens.
        self.place.tokens.is_none_or(|held| held.first <= tokens.last && tokens.first <= held.last)
    }

    #[cold]
    pub fn refusal(&self) -> EngineError {
        EngineError::DamagedFile { path: self.path.clone(), reason: self.reason.clone() }
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
