//! What operators and clients are told of the indexes of table files.

use std::path::PathBuf;

use super::file_index::FileIndex;
use super::state::Shard;
use super::table_state::LiveFile;
use crate::error::EngineError;
use crate::key::KeyRef;
use crate::mutation::TableId;
use crate::secondary_index::IndexId;
use crate::secondary_index::entry::{PARTITION, term_of};

/// An index of one table file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexFileStatus {
    pub index: IndexId,
    /// The table file.
    pub path: PathBuf,
    /// Rows of the table file.
    pub rows: u64,
    /// Smallest and largest token of the table file.
    pub tokens: (i64, i64),
    /// Entries of the index: pairs of a term and of the row or partition that has it.
    pub entries: u64,
    /// Smallest and largest term; `None` without entries, and of vectors.
    pub terms: Option<(Vec<u8>, Vec<u8>)>,
    /// Bytes of the index's file.
    pub disk_bytes: u64,
    /// The version of the index's file.
    pub format_version: u32,
}

impl IndexFileStatus {
    /// `None`: the keys in the statistics of the files cannot be read.
    fn new(file: &LiveFile, index: &FileIndex) -> Option<Self> {
        let token = |key: &[u8]| KeyRef::parse(key).ok().map(|key| key.token);
        let statistics = file.reader.statistics();
        let entries = index.reader.statistics();
        let terms = match &index.content.first_term {
            None => None,
            Some(first) => Some((first.clone(), term_of(entries.max_key.get(PARTITION.len()..)?)?)),
        };
        Some(Self {
            index: index.id,
            path: file.reader.path().to_owned(),
            rows: statistics.rows,
            tokens: (token(&statistics.min_key)?, token(&statistics.max_key)?),
            // The first row says of which table file the index is.
            entries: entries.rows.saturating_sub(1 + u64::from(index.content.centroids)),
            terms,
            disk_bytes: index.reader.file_bytes(),
            format_version: index.reader.version(),
        })
    }
}

impl Shard {
    /// The indexes of a table's files, as far as they are made, in the order of indexes and paths.
    pub fn index_file_statuses(&self, table: TableId) -> Result<Vec<IndexFileStatus>, EngineError> {
        let table = self.table(table)?;
        let mut statuses = Vec::new();
        for file in table.files.borrow().iter() {
            let indexes = file.indexes.borrow();
            statuses.extend(indexes.iter().filter_map(|index| IndexFileStatus::new(file, index)));
        }
        statuses.sort_by(|a, b| (a.index, &a.path).cmp(&(b.index, &b.path)));
        Ok(statuses)
    }
}
