//! Leveled compaction. From level 1 on, the tables of a level do not overlap, and each level is `fanout` times larger than the
//! previous one.

use super::choice::{Choice, TableSummary};

const LEVEL_0_THRESHOLD: usize = 4;
const MAX_LEVEL_0_INPUTS: usize = 32;
const MAX_LEVEL: u32 = 8;

/// Cassandra's options and defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leveled {
    pub table_bytes: u64,
    pub fanout: u64,
}

impl Default for Leveled {
    fn default() -> Self {
        Self { table_bytes: 160 << 20, fanout: 10 }
    }
}

fn overlaps(left: &TableSummary, right: &TableSummary) -> bool {
    left.first_key <= right.last_key && right.first_key <= left.last_key
}

impl Leveled {
    /// The highest overfull level passes one table on to the next level. If no level is overfull, level 0 is merged into level 1.
    pub(crate) fn choose(&self, tables: &[TableSummary]) -> Option<Choice> {
        let highest = tables.iter().map(|table| table.level).max()?;
        for level in (1..=highest.min(MAX_LEVEL - 1)).rev() {
            let of_level: Vec<_> = tables.iter().filter(|table| table.level == level).collect();
            let bytes: u64 = of_level.iter().map(|table| table.size_bytes).sum();
            let limit = self.table_bytes.saturating_mul(self.fanout.saturating_pow(level));
            if bytes > limit {
                // The oldest table. Outputs are newer, so that every table is chosen at some time.
                let spilled = of_level.into_iter().min_by_key(|table| table.generation)?;
                return Some(self.merge_up(&[spilled], tables, level + 1));
            }
        }
        let mut level_0: Vec<_> = tables.iter().filter(|table| table.level == 0).collect();
        if level_0.len() < LEVEL_0_THRESHOLD {
            return None;
        }
        level_0.sort_by_key(|table| table.generation);
        level_0.truncate(MAX_LEVEL_0_INPUTS);
        Some(self.merge_up(&level_0, tables, 1))
    }

    fn merge_up(&self, from: &[&TableSummary], tables: &[TableSummary], output_level: u32) -> Choice {
        let mut inputs: Vec<u64> = from.iter().map(|table| table.generation).collect();
        inputs.extend(
            tables
                .iter()
                .filter(|table| table.level == output_level)
                .filter(|table| from.iter().any(|spilled| overlaps(spilled, table)))
                .map(|table| table.generation),
        );
        Choice { inputs, output_level, max_output_bytes: Some(self.table_bytes) }
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

    #[test]
    fn level_0_is_merged_with_what_it_overlaps() {
        let mut tables: Vec<_> = (1..4).map(|generation| table(generation, 0, [0, 9])).collect();
        assert_eq!(Leveled::default().choose(&tables), None);
        tables.extend([table(4, 0, [0, 9]), table(5, 1, [8, 20]), table(6, 1, [21, 30])]);
        let choice = Leveled::default().choose(&tables).unwrap();
        assert_eq!((choice.inputs, choice.output_level), (vec![1, 2, 3, 4, 5], 1));
    }

    #[test]
    fn an_overfull_level_spills_its_oldest_table() {
        let mut tables: Vec<_> = (0..11).map(|index| table(10 + index, 1, [index as u8 * 2; 2])).collect();
        tables.extend([table(50, 2, [0, 0]), table(51, 2, [1, 1])]);
        let choice = Leveled::default().choose(&tables).unwrap();
        assert_eq!((choice.inputs, choice.output_level), (vec![10, 50], 2));
    }
}
