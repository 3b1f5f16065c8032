//! The input and the result of a compaction strategy.

use std::sync::Arc;

use super::key_sample::KeySample;

/// The data of a table that strategies use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TableSummary {
    pub generation: u64,
    pub size_bytes: u64,
    /// Microseconds.
    pub min_timestamp: i64,
    /// Microseconds.
    pub max_timestamp: i64,
    /// Full keys.
    pub first_key: Vec<u8>,
    pub last_key: Vec<u8>,
    /// 0 for flushed tables. Leveled compaction assigns the others.
    pub level: u32,
    /// Seconds since the epoch.
    pub created_seconds: u32,
    /// The estimated share of the table's contents that consists of deletions past their grace period.
    pub droppable_ratio: f64,
    /// The second from which all contents may be purged, if nothing outside the table is older. `None`: never.
    pub purgeable_from_seconds: Option<u32>,
    pub rows: u64,
    pub tombstones: u64,
    /// `None`: unknown, as for a table that was written before the last start.
    pub sample: Option<Arc<KeySample>>,
    /// A compaction is reading the table, or it must be left alone. It is not chosen, but its contents count.
    pub is_busy: bool,
}

impl TableSummary {
    /// Whether the ranges of keys have a key in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.first_key <= other.last_key && other.first_key <= self.last_key
    }
}

/// All that a choice depends on, besides the options.
#[derive(Debug, Clone, Copy, Default)]
pub struct Situation<'a> {
    /// All files of the table.
    pub tables: &'a [TableSummary],
    /// Seconds since the epoch.
    pub now_seconds: u32,
    /// The oldest timestamp in any memtable of the table, in microseconds.
    pub memtable_min_timestamp: Option<i64>,
    /// The usual size of a flushed file. 0: not known.
    pub flush_bytes: u64,
    /// Whether files whose contents have all expired are looked for.
    pub seeks_expired: bool,
    /// A key of the table is written once and removed once: a removal ends with what it removes.
    pub writes_once: bool,
}

/// Where a new output is begun. An output always ends with a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Split {
    /// Nowhere: there is one output.
    #[default]
    Never,
    /// At the first partition after this size.
    Bytes(u64),
    /// At the first partition of each of these parts of the token space. All parts have the same length.
    Parts(u32),
}

/// Files that are merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merge {
    /// Generations.
    pub inputs: Vec<u64>,
    pub output_level: u32,
    pub split: Split,
}

/// A compaction that a strategy asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// These files are deleted unread: everything in them may be purged.
    Drop {
        inputs: Vec<u64>,
    },
    /// This file goes to another level as it is.
    Move {
        input: u64,
        level: u32,
    },
    Merge(Merge),
}

impl Choice {
    /// The generations of the files concerned.
    pub fn inputs(&self) -> &[u64] {
        match self {
            Self::Drop { inputs } => inputs,
            Self::Move { input, .. } => std::slice::from_ref(input),
            Self::Merge(merge) => &merge.inputs,
        }
    }
}
