//! Leveled compaction. From level 1 on, the tables of a level do not overlap, and each level is `fanout` times larger than the
//! previous one.
//!
//! When level 0 has fallen far behind, its tables are first merged among themselves by size, so that reads need not look into
//! all of them (as in Cassandra).

use super::choice::{Choice, Merge, Split, TableSummary};
use super::size_tiered::{SizeTiered, is_mostly_overwritten};

const LEVEL_0_THRESHOLD: usize = 4;
const MAX_LEVEL_0_INPUTS: usize = 32;
const MAX_LEVEL: u32 = 8;

/// Cassandra's options and defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Leveled {
    pub table_bytes: u64,
    pub fanout: u64,
    /// A table that overlaps nothing in the next level goes there as it is.
    pub moves_single_tables: bool,
    /// For level 0 when it has fallen behind.
    pub within_level_0: SizeTiered,
}

impl Default for Leveled {
    fn default() -> Self {
        Self {
            table_bytes: 160 << 20,
            fanout: 10,
            moves_single_tables: true,
            within_level_0: SizeTiered::default(),
        }
    }
}

fn of_level<'a>(tables: &[&'a TableSummary], level: u32) -> Vec<&'a TableSummary> {
    tables.iter().copied().filter(|table| table.level == level).collect()
}

impl Leveled {
    /// The highest overfull level passes one table on to the next level, unless level 0 has fallen far behind. If no level is overfull,
    /// level 0 is merged into level 1.
    ///
    /// `all`: the tables that take part and those that are busy. No output may overlap a busy table of its level.
    pub(crate) fn choose(&self, tables: &[&TableSummary], all: &[TableSummary]) -> Option<Choice> {
        let mut level_0 = of_level(tables, 0);
        // First of all: the levels above would take long, and reads look at all tables of level 0 meanwhile.
        if level_0.len() > MAX_LEVEL_0_INPUTS
            && let Some(bucket) = self.within_level_0.choose_bucket(&level_0)
        {
            let inputs = bucket.iter().take(self.within_level_0.max_threshold);
            return Some(Choice::Merge(Merge {
                inputs: inputs.map(|table| table.generation).collect(),
                output_level: 0,
                split: Split::Never,
            }));
        }
        let highest = tables.iter().map(|table| table.level).max()?;
        for level in (1..=highest.min(MAX_LEVEL - 1)).rev() {
            let mut of_level = of_level(tables, level);
            let bytes: u64 = of_level.iter().map(|table| table.size_bytes).sum();
            let limit = self.table_bytes.saturating_mul(self.fanout.saturating_pow(level));
            if bytes > limit {
                // The oldest table. Outputs are newer, so that every table is chosen at some time.
                of_level.sort_by_key(|table| table.generation);
                let moved = of_level.iter().find_map(|&spilled| self.merge_up(&[spilled], all, level + 1));
                if moved.is_some() {
                    return moved;
                }
            }
        }
        level_0.sort_by_key(|table| table.generation);
        level_0.truncate(MAX_LEVEL_0_INPUTS);
        if level_0.len() >= LEVEL_0_THRESHOLD {
            return self.merge_up(&level_0, all, 1);
        }
        if is_mostly_overwritten(tables) {
            return self.merge_overwritten(tables, &level_0, all);
        }
        None
    }

    /// The tables of level 0, when there are enough of them. On the other levels tables do not overlap.
    pub(crate) fn due<'a>(tables: &[&'a TableSummary]) -> Vec<&'a TableSummary> {
        let level_0 = of_level(tables, 0);
        if level_0.len() >= LEVEL_0_THRESHOLD { level_0 } else { Vec::new() }
    }

    /// The lowest level, from 1 on, that has room for all these tables.
    pub(crate) fn level_of(&self, tables: &[&TableSummary]) -> u32 {
        let bytes: u64 = tables.iter().map(|table| table.size_bytes).sum();
        let has_room =
            |level: &u32| bytes <= self.table_bytes.saturating_mul(self.fanout.saturating_pow(*level));
        (1..MAX_LEVEL).find(has_room).unwrap_or(MAX_LEVEL)
    }

    /// Merges what hides the most: level 0 into level 1, or the lowest level with tables into the next.
    fn merge_overwritten(
        &self,
        tables: &[&TableSummary],
        level_0: &[&TableSummary],
        all: &[TableSummary],
    ) -> Option<Choice> {
        if !level_0.is_empty() {
            return self.merge_up(level_0, all, 1);
        }
        let highest = tables.iter().map(|table| table.level).max()?;
        let lowest = tables.iter().map(|table| table.level).min().filter(|lowest| *lowest < highest)?;
        self.merge_up(&of_level(tables, lowest), all, lowest + 1)
    }

    /// Merges tables with those of the next level that lie between their first and their last key. `None` if one of these is busy.
    fn merge_up(&self, from: &[&TableSummary], all: &[TableSummary], output_level: u32) -> Option<Choice> {
        // An output may reach over a gap between two inputs, so the whole range counts.
        let range = TableSummary {
            first_key: from.iter().map(|table| &table.first_key).min()?.clone(),
            last_key: from.iter().map(|table| &table.last_key).max()?.clone(),
            ..TableSummary::default()
        };
        let met: Vec<_> =
            all.iter().filter(|table| table.level == output_level && table.overlaps(&range)).collect();
        if met.iter().any(|table| table.is_busy) {
            return None;
        }
        if let [single] = from
            && met.is_empty()
            && single.level > 0
            && self.moves_single_tables
        {
            return Some(Choice::Move { input: single.generation, level: output_level });
        }
        let inputs = from.iter().copied().chain(met).map(|table| table.generation).collect();
        Some(Choice::Merge(Merge { inputs, output_level, split: Split::Bytes(self.table_bytes) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(generation: u64, level: u32, keys: [u8; 2]) -> TableSummary {
        TableSummary {
            generation,
            level,
            size_bytes: 160 << 20,
            first_key: vec![keys[0]],
            last_key: vec![keys[1]],
            ..TableSummary::default()
        }
    }

    fn choose(tables: &[TableSummary]) -> Option<Choice> {
        let idle: Vec<_> = tables.iter().filter(|table| !table.is_busy).collect();
        Leveled::default().choose(&idle, tables)
    }

    fn merged(tables: &[TableSummary]) -> (Vec<u64>, u32) {
        match choose(tables) {
            Some(Choice::Merge(merge)) => (merge.inputs, merge.output_level),
            other => panic!("no merge: {other:?}"),
        }
    }

    #[test]
    fn level_0_is_merged_with_what_lies_within_its_range() {
        let mut tables: Vec<_> = (1..4).map(|generation| table(generation, 0, [0, 9])).collect();
        assert_eq!(choose(&tables), None);
        tables.extend([table(4, 0, [15, 18]), table(5, 1, [8, 10]), table(6, 1, [12, 13])]);
        tables.push(table(7, 1, [19, 30]));
        assert_eq!(merged(&tables), (vec![1, 2, 3, 4, 5, 6], 1));
        tables[5].is_busy = true;
        assert_eq!(choose(&tables), None);
    }

    #[test]
    fn an_overfull_level_spills_its_oldest_table() {
        let mut tables: Vec<_> = (0..11).map(|index| table(10 + index, 1, [index as u8 * 2; 2])).collect();
        tables.extend([table(50, 2, [0, 0]), table(51, 2, [1, 1])]);
        assert_eq!(merged(&tables), (vec![10, 50], 2));
        tables.remove(11);
        assert_eq!(choose(&tables), Some(Choice::Move { input: 10, level: 2 }));
    }

    #[test]
    fn a_level_0_that_is_far_behind_comes_before_overfull_levels() {
        let mut tables: Vec<_> = (0..11).map(|index| table(10 + index, 1, [index as u8 * 2; 2])).collect();
        tables.extend((100..132).map(|generation| table(generation, 0, [0, 30])));
        assert_eq!(choose(&tables), Some(Choice::Move { input: 10, level: 2 }));
        tables.push(table(132, 0, [0, 30]));
        let (inputs, level) = merged(&tables);
        assert_eq!((inputs.len(), level), (32, 0));
        assert!(inputs.iter().all(|generation| *generation >= 100), "{inputs:?}");
    }
}
