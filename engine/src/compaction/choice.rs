//! The input and the result of a compaction strategy.

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
}

/// A compaction that a strategy asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Generations.
    pub inputs: Vec<u64>,
    pub output_level: u32,
    /// A new output is begun at the first partition after this size.
    pub max_output_bytes: Option<u64>,
}
