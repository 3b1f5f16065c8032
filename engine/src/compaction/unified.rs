//! Unified compaction: levels by size. Each level has a scaling parameter W, between levelled and tiered.
//!
//! Level n holds tables from fanout^n to fanout^(n+1) times the flush size. For W >= 0 the fanout is 2 + W, and a level is merged
//! when it holds that many tables (tiered). For W < 0 the fanout is 2 - W, and a level is merged when it holds two tables
//! (levelled).

use super::choice::{Choice, TableSummary};

/// Cassandra's main options and defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unified {
    /// W by level. The last one applies to all further levels.
    pub scaling: Vec<i32>,
    /// Outputs are split at this size.
    pub target_table_bytes: u64,
    /// The lower bound of level 0, in bytes.
    pub flush_bytes: u64,
    pub max_inputs: usize,
}

impl Default for Unified {
    fn default() -> Self {
        Self { scaling: vec![2], target_table_bytes: 1 << 30, flush_bytes: 1 << 20, max_inputs: 32 }
    }
}

impl Unified {
    fn scaling_of(&self, level: usize) -> i32 {
        self.scaling.get(level).or(self.scaling.last()).copied().unwrap_or(2)
    }

    fn fanout(&self, level: usize) -> u64 {
        u64::from(2 + self.scaling_of(level).unsigned_abs())
    }

    fn threshold(&self, level: usize) -> usize {
        if self.scaling_of(level) >= 0 { self.fanout(level) as usize } else { 2 }
    }

    fn level_of(&self, size_bytes: u64) -> usize {
        let mut level = 0;
        let mut limit = self.flush_bytes.saturating_mul(self.fanout(0));
        while size_bytes >= limit {
            level += 1;
            limit = limit.saturating_mul(self.fanout(level));
            if limit == u64::MAX {
                break;
            }
        }
        level
    }

    /// The lowest level that holds enough tables. Tables that were split from one output count once.
    pub(crate) fn choose(&self, tables: &[TableSummary]) -> Option<Choice> {
        let mut levels: Vec<Vec<&TableSummary>> = Vec::new();
        for table in tables {
            let level = if table.size_bytes * 2 > self.target_table_bytes {
                continue;
            } else {
                self.level_of(table.size_bytes)
            };
            if levels.len() <= level {
                levels.resize(level + 1, Vec::new());
            }
            if let Some(of_level) = levels.get_mut(level) {
                of_level.push(table);
            }
        }
        levels.iter().enumerate().find(|(level, tables)| tables.len() >= self.threshold(*level)).map(
            |(_, tables)| Choice {
                inputs: tables.iter().take(self.max_inputs).map(|table| table.generation).collect(),
                output_level: 0,
                max_output_bytes: Some(self.target_table_bytes),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(sizes_mib: &[u64]) -> Vec<TableSummary> {
        let summary = |(generation, &size): (usize, &u64)| TableSummary {
            generation: generation as u64,
            size_bytes: size << 20,
            ..TableSummary::default()
        };
        sizes_mib.iter().enumerate().map(summary).collect()
    }

    #[test]
    fn a_tiered_level_waits_for_its_fanout() {
        let strategy = Unified::default();
        assert!(strategy.choose(&tables(&[1, 1, 2])).is_none());
        assert_eq!(strategy.choose(&tables(&[1, 1, 2, 3, 20])).unwrap().inputs, [0, 1, 2, 3]);
    }

    #[test]
    fn a_levelled_level_needs_two() {
        let strategy = Unified { scaling: vec![-2], ..Unified::default() };
        assert_eq!(strategy.choose(&tables(&[1, 20, 3])).unwrap().inputs, [0, 2]);
    }
}
