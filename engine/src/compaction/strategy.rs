//! The compaction settings of a table, and the choice they lead to.

use super::choice::{Choice, TableSummary};
use super::leveled::Leveled;
use super::size_tiered::SizeTiered;
use super::time_window::TimeWindow;
use super::unified::Unified;

/// The compaction strategy of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    SizeTiered(SizeTiered),
    TimeWindow(TimeWindow),
    Leveled(Leveled),
    Unified(Unified),
}

/// When a single table is rewritten to purge its deletions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TombstoneOptions {
    /// The least droppable share.
    pub threshold: f64,
    /// The least age of the table.
    pub interval_seconds: u32,
    /// Rewrite even if other tables overlap.
    pub unchecked: bool,
}

impl Default for TombstoneOptions {
    fn default() -> Self {
        Self { threshold: 0.2, interval_seconds: 86_400, unchecked: false }
    }
}

/// The compaction settings of a table. [`CompactionOptions::parse`] reads Cassandra's options.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionOptions {
    pub strategy: Strategy,
    /// False: no automatic compactions.
    pub enabled: bool,
    pub tombstones: TombstoneOptions,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::SizeTiered(SizeTiered::default()),
            enabled: true,
            tombstones: TombstoneOptions::default(),
        }
    }
}

impl CompactionOptions {
    /// The next compaction, if one is worthwhile. `tables` are those that no compaction is reading.
    pub fn choose(&self, tables: &[TableSummary], now_seconds: u32) -> Option<Choice> {
        if !self.enabled {
            return None;
        }
        let choice = match &self.strategy {
            Strategy::SizeTiered(strategy) => strategy.choose(tables),
            Strategy::TimeWindow(strategy) => strategy.choose(tables),
            Strategy::Leveled(strategy) => strategy.choose(tables),
            Strategy::Unified(strategy) => strategy.choose(tables),
        };
        choice.or_else(|| self.choose_by_tombstones(tables, now_seconds))
    }

    fn choose_by_tombstones(&self, tables: &[TableSummary], now_seconds: u32) -> Option<Choice> {
        let options = self.tombstones;
        let overlapped = |table: &TableSummary| {
            tables.iter().any(|other| {
                other.generation != table.generation
                    && other.first_key <= table.last_key
                    && table.first_key <= other.last_key
                    && other.min_timestamp <= table.max_timestamp
            })
        };
        tables
            .iter()
            .filter(|table| table.droppable_ratio > options.threshold)
            .filter(|table| table.created_seconds.saturating_add(options.interval_seconds) <= now_seconds)
            .filter(|table| options.unchecked || !overlapped(table))
            .max_by(|left, right| left.droppable_ratio.total_cmp(&right.droppable_ratio))
            .map(|table| Choice {
                inputs: vec![table.generation],
                output_level: table.level,
                max_output_bytes: None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_old_deletions_is_rewritten_alone() {
        let options = CompactionOptions::default();
        let table = TableSummary { generation: 7, droppable_ratio: 0.5, ..TableSummary::default() };
        assert_eq!(options.choose(std::slice::from_ref(&table), 10), None);
        let choice = options.choose(std::slice::from_ref(&table), 86_400).unwrap();
        assert_eq!(choice.inputs, [7]);
        let other = TableSummary { generation: 8, ..TableSummary::default() };
        assert_eq!(options.choose(&[table, other], 86_400), None);
    }

    #[test]
    fn disabled_compaction_chooses_nothing() {
        let options = CompactionOptions { enabled: false, ..CompactionOptions::default() };
        let tables: Vec<_> =
            (0..8).map(|generation| TableSummary { generation, ..TableSummary::default() }).collect();
        assert_eq!(options.choose(&tables, 0), None);
    }
}
