//! What a compaction strategy is given, and what it answers.

/// What a strategy knows of a table.
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
    /// 0 for flushed tables; given by leveled compaction.
    pub level: u32,
    /// Seconds since the epoch.
    pub created_seconds: u32,
    /// Estimated share of what is in the table that is deletions past their grace period.
    pub droppable_ratio: f64,
}

/// A compaction worth doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Generations.
    pub inputs: Vec<u64>,
    pub output_level: u32,
    /// Start another output at the first partition after this size.
    pub max_output_bytes: Option<u64>,
}
