//! The index of a table file, which is open.

use std::cell::Cell;
use std::sync::Arc;

use crate::secondary_index::IndexId;
use crate::secondary_index::build::IndexContent;
use crate::table::TableReader;

/// The index of a table file.
#[derive(Debug, Clone)]
pub(super) struct FileIndex {
    pub id: IndexId,
    pub reader: Arc<TableReader>,
    pub content: IndexContent,
    /// It is to be made anew, and is searched until then.
    pub is_outdated: Cell<bool>,
}

impl FileIndex {
    pub fn new(id: IndexId, reader: Arc<TableReader>, content: IndexContent) -> Self {
        Self { id, reader, content, is_outdated: Cell::new(false) }
    }
}
