//! Time-window compaction: only tables whose newest data falls into the same window are merged.

use std::collections::BTreeMap;

use super::choice::{Merge, Split, TableSummary};
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
    /// Ticks of the timestamps that clients write.
    pub ticks_per_second: i64,
    /// The strategy for the tables of the newest window.
    pub within: SizeTiered,
}

impl Default for TimeWindow {
    fn default() -> Self {
        Self { unit: TimeUnit::Days, size: 1, ticks_per_second: 1_000_000, within: SizeTiered::default() }
    }
}

impl TimeWindow {
    fn window_of(&self, timestamp: i64) -> i64 {
        let seconds: i64 = match self.unit {
            TimeUnit::Minutes => 60,
            TimeUnit::Hours => 3600,
            TimeUnit::Days => 86_400,
        };
        timestamp.div_euclid(seconds.saturating_mul(self.size).saturating_mul(self.ticks_per_second).max(1))
    }

    /// The tables of each window that wait for a merge.
    pub(crate) fn due<'a>(&self, tables: &[&'a TableSummary]) -> Vec<Vec<&'a TableSummary>> {
        let windows = self.windows(tables);
        let newest = windows.keys().next_back().copied();
        let due = windows.into_iter().map(|(window, tables)| match tables.len() {
            _ if Some(window) == newest => self.within.due(&tables),
            0 | 1 => Vec::new(),
            _ => tables,
        });
        due.collect()
    }

    fn windows<'a>(&self, tables: &[&'a TableSummary]) -> BTreeMap<i64, Vec<&'a TableSummary>> {
        let mut windows: BTreeMap<i64, Vec<&TableSummary>> = BTreeMap::new();
        for &table in tables {
            windows.entry(self.window_of(table.max_timestamp)).or_default().push(table);
        }
        windows
    }

    /// Chooses by size in the newest window, and in older windows whenever there is more than one table.
    pub(crate) fn choose(&self, tables: &[&TableSummary]) -> Option<Merge> {
        let windows = self.windows(tables);
        let newest = *windows.keys().next_back()?;
        windows.iter().rev().find_map(|(&window, tables)| {
            if window == newest {
                return self.within.choose(tables);
            }
            if tables.len() < 2 {
                return None;
            }
            let mut smallest = tables.clone();
            smallest.sort_by_key(|table| (table.size_bytes, table.generation));
            let inputs =
                smallest.iter().take(self.within.max_threshold).map(|table| table.generation).collect();
            Some(Merge { inputs, output_level: 0, split: Split::Never })
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
        let choose = |tables: &[TableSummary]| strategy.choose(&tables.iter().collect::<Vec<_>>());
        assert!(choose(&[table(1, 1), table(2, 2), table(3, 3), table(4, 3)]).is_none());
        let choice = choose(&[table(1, 1), table(2, 2), table(3, 2), table(4, 3)]).unwrap();
        assert_eq!(choice.inputs, [2, 3]);
        let newest: Vec<_> = (1..5).map(|generation| table(generation, 9)).collect();
        assert_eq!(choose(&newest).unwrap().inputs.len(), 4);
    }
}
