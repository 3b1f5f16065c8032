//! Time-window compaction: only tables whose newest data falls into the same window are merged.

use std::collections::BTreeMap;

use super::choice::{Choice, TableSummary};
use super::size_tiered::SizeTiered;

/// The unit of a window's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Minutes,
    Hours,
    Days,
}

/// Cassandra's options and defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeWindow {
    pub unit: TimeUnit,
    pub size: i64,
    /// The strategy for the tables of the newest window.
    pub within: SizeTiered,
}

impl Default for TimeWindow {
    fn default() -> Self {
        Self { unit: TimeUnit::Days, size: 1, within: SizeTiered::default() }
    }
}

impl TimeWindow {
    fn window_of(&self, timestamp_micros: i64) -> i64 {
        let seconds: i64 = match self.unit {
            TimeUnit::Minutes => 60,
            TimeUnit::Hours => 3600,
            TimeUnit::Days => 86_400,
        };
        timestamp_micros.div_euclid(seconds.saturating_mul(self.size).saturating_mul(1_000_000).max(1))
    }

    /// Chooses by size in the newest window, and in older windows whenever there is more than one table.
    ///
    /// A table whose data has all expired is not chosen here. After its grace period, its droppable share makes
    /// [`CompactionOptions::choose`](super::CompactionOptions::choose) rewrite it alone, which leaves no output.
    pub(crate) fn choose(&self, tables: &[TableSummary]) -> Option<Choice> {
        let mut windows: BTreeMap<i64, Vec<TableSummary>> = BTreeMap::new();
        for table in tables {
            windows.entry(self.window_of(table.max_timestamp)).or_default().push(table.clone());
        }
        let newest = *windows.keys().next_back()?;
        windows.iter().rev().find_map(|(&window, tables)| {
            if window == newest {
                return self.within.choose(tables);
            }
            if tables.len() < 2 {
                return None;
            }
            let mut smallest: Vec<_> = tables.iter().collect();
            smallest.sort_by_key(|table| (table.size_bytes, table.generation));
            let inputs =
                smallest.iter().take(self.within.max_threshold).map(|table| table.generation).collect();
            Some(Choice { inputs, output_level: 0, max_output_bytes: None })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_not_mixed() {
        const DAY: i64 = 86_400_000_000;
        let table = |generation, day| TableSummary {
            generation,
            size_bytes: 1 << 20,
            max_timestamp: day * DAY + 5,
            ..TableSummary::default()
        };
        let strategy = TimeWindow::default();
        assert!(strategy.choose(&[table(1, 1), table(2, 2), table(3, 3), table(4, 3)]).is_none());
        let choice = strategy.choose(&[table(1, 1), table(2, 2), table(3, 2), table(4, 3)]).unwrap();
        assert_eq!(choice.inputs, [2, 3]);
        let newest: Vec<_> = (1..5).map(|generation| table(generation, 9)).collect();
        assert_eq!(strategy.choose(&newest).unwrap().inputs.len(), 4);
    }
}
