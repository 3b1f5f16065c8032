//! Unified compaction: levels by density, each with a scaling parameter W between levelled and tiered.
//!
//! The density of a table is its size divided by the part of the token space that it covers, so that a table has the same
//! density as the parts into which it is cut. Level 0 begins at 0 and ends at the fanout times a little less than the size of a
//! flush; each further level ends at its fanout times the end of the one before. For W >= 0 the fanout is 2 + W, for W < 0 it is
//! 2 - W. A level is compacted where as many tables overlap as its threshold says: 2 + W for W > 0 (tiered), else two (levelled).
//!
//! Outputs are cut at fixed tokens: into `base_shards` parts, and into twice, four times … as many the denser they are, so that they
//! come close to the target size. A boundary of few parts is one of more parts too, so tables of different levels do not
//! overlap needlessly.
//!
//! Departures from Cassandra: a flush writes one table, which the first compaction cuts; and tables are also compacted when most
//! of their bytes have been overwritten, whatever their levels.

use super::choice::{Merge, Split, TableSummary};
use super::overlap::{OverlapInclusion, Section, buckets, sections, span};
use super::size_tiered::is_mostly_overwritten;

/// The most levels: the last one takes all denser tables.
const LEVELS_MAX: usize = 32;
/// The greatest number by which the base number of parts is multiplied, as a power of two.
const SPLIT_SHIFT_MAX: u32 = 20;
/// The least size of a flush, in bytes, from which levels are reckoned.
const FLUSH_BYTES_MIN: u64 = 1 << 20;

/// Cassandra's options and defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Unified {
    /// W by level. The last one applies to all further levels.
    pub scaling: Vec<i32>,
    pub target_table_bytes: u64,
    /// Outputs are not cut below the base number of parts if that makes them smaller than this. 0: no bound.
    pub min_table_bytes: u64,
    /// The part of the growth of the data that goes into larger tables instead of more tables, from 0 to 1.
    pub table_growth: f64,
    pub base_shards: u32,
    /// The size of a flush. `None`: as observed.
    pub flush_bytes: Option<u64>,
    pub max_inputs: usize,
    pub inclusion: OverlapInclusion,
}

impl Default for Unified {
    fn default() -> Self {
        Self {
            scaling: vec![2],
            target_table_bytes: 1 << 30,
            min_table_bytes: 100 << 20,
            table_growth: 0.333,
            base_shards: 4,
            flush_bytes: None,
            max_inputs: usize::MAX,
            inclusion: OverlapInclusion::Transitive,
        }
    }
}

struct Level<'a> {
    number: usize,
    tables: Vec<&'a TableSummary>,
}

/// A place of a level where a compaction is due.
struct Due {
    level: usize,
    /// The most tables that overlap at one point.
    overlap: usize,
    sections: Vec<Section>,
}

fn density(table: &TableSummary) -> f64 {
    table.size_bytes as f64 / span(&table.first_key, &table.last_key)
}

/// The greatest power of two that is at most `number`, but at least 1.
fn power_of_two_below(number: f64) -> u32 {
    // A float to integer cast saturates.
    1 << ((number as u32) | 1).ilog2()
}

impl Unified {
    fn scaling_of(&self, level: usize) -> i32 {
        self.scaling.get(level).or(self.scaling.last()).copied().unwrap_or(2)
    }

    fn fanout(&self, level: usize) -> usize {
        2_usize.saturating_add(self.scaling_of(level).unsigned_abs() as usize)
    }

    fn threshold(&self, level: usize) -> usize {
        if self.scaling_of(level) > 0 { self.fanout(level) } else { 2 }
    }

    /// The levels with their tables.
    fn levels<'a>(&self, tables: &[&'a TableSummary], flush_bytes: u64) -> Vec<Level<'a>> {
        let flush_bytes = self.flush_bytes.unwrap_or(flush_bytes).max(FLUSH_BYTES_MIN) as f64;
        // A flush may be a little smaller than usual and still belongs to its level. A merge of one less than the fanout stays
        // below the next.
        let mut end = flush_bytes * (1.0 - 0.9 / self.fanout(0) as f64);
        let mut levels: Vec<Level<'a>> = Vec::new();
        let mut by_density = tables.to_vec();
        by_density.sort_by(|left, right| density(left).total_cmp(&density(right)));
        let mut left = by_density.into_iter().peekable();
        while left.peek().is_some() {
            let number = levels.len();
            end = (end * self.fanout(number) as f64).floor();
            let mut level = Level { number, tables: Vec::new() };
            let is_last = number + 1 == LEVELS_MAX;
            while let Some(table) = left.next_if(|table| is_last || density(table) < end) {
                level.tables.push(table);
            }
            levels.push(level);
        }
        levels
    }

    /// The compaction of the level where most tables overlap; of several such levels, the lowest.
    pub(crate) fn choose(&self, tables: &[&TableSummary], flush_bytes: u64) -> Option<Merge> {
        let levels = self.levels(tables, flush_bytes);
        let mut chosen: Option<(Due, &Level<'_>)> = None;
        for level in &levels {
            if let Some(due) = self.due(level)
                && chosen.as_ref().is_none_or(|(best, _)| due.overlap > best.overlap)
            {
                chosen = Some((due, level));
            }
        }
        let inputs = match chosen {
            Some((due, level)) => self.inputs(&due, level),
            None => Self::overwritten(tables, &levels)?,
        };
        Some(Merge { split: self.split(&inputs), output_level: 0, inputs: generations(&inputs) })
    }

    /// The tables of all places where a compaction is due.
    pub(crate) fn due_tables<'a>(
        &self,
        tables: &[&'a TableSummary],
        flush_bytes: u64,
    ) -> Vec<&'a TableSummary> {
        let mut due = Vec::new();
        for level in self.levels(tables, flush_bytes) {
            let threshold = self.threshold(level.number);
            let sections = sections(&level.tables).into_iter().filter(|section| section.len() >= threshold);
            let indexes: Section = sections.flatten().collect();
            due.extend(indexes.into_iter().filter_map(|index| level.tables.get(index).copied()));
        }
        due
    }

    /// The first place of a level where the most tables overlap, if their number reaches the threshold.
    fn due(&self, level: &Level<'_>) -> Option<Due> {
        let sections = sections(&level.tables);
        let overlap = sections.iter().map(Section::len).max()?;
        let threshold = self.threshold(level.number);
        if overlap < threshold {
            return None;
        }
        let buckets = buckets(&sections, threshold, self.inclusion);
        let most =
            buckets.into_iter().find(|bucket| bucket.iter().any(|section| section.len() == overlap))?;
        Some(Due { level: level.number, overlap, sections: most.into_iter().cloned().collect() })
    }

    /// The tables that are compacted. If compaction keeps up, these are all. If it is late, these are the oldest, in the number
    /// that makes a table of the level that they would have reached by then.
    fn inputs<'a>(&self, due: &Due, level: &Level<'a>) -> Vec<&'a TableSummary> {
        let fanout = self.fanout(due.level);
        let max_inputs = self.max_inputs.max(fanout);
        let limit = if due.overlap <= fanout {
            usize::MAX
        } else if due.overlap <= fanout.saturating_mul(self.fanout(due.level + 1)) || max_inputs == fanout {
            max_inputs
        } else {
            self.late_inputs(due, max_inputs)
        };
        let mut indexes: Vec<usize> =
            due.sections.iter().flatten().copied().collect::<Section>().into_iter().collect();
        indexes.sort_by_key(|&index| {
            level.tables.get(index).map(|table| (table.max_timestamp, table.generation))
        });
        let mut taken = vec![0_usize; due.sections.len()];
        let mut inputs = Vec::new();
        for index in indexes {
            let mut is_full = false;
            for (count, _) in
                taken.iter_mut().zip(&due.sections).filter(|(_, section)| section.contains(&index))
            {
                *count += 1;
                is_full |= *count > limit;
            }
            if is_full {
                break;
            }
            inputs.extend(level.tables.get(index).copied());
        }
        inputs
    }

    fn late_inputs(&self, due: &Due, max_inputs: usize) -> usize {
        let limit = max_inputs.min(due.overlap);
        let mut count = self.fanout(due.level);
        let mut above = due.level + 1;
        loop {
            let next = count.saturating_mul(self.fanout(above));
            if next > limit {
                break;
            }
            (count, above) = (next, above + 1);
        }
        if self.scaling_of(due.level) < 0 { count * (limit / count).max(1) } else { count }
    }

    /// The tables of a part of the token space most of whose bytes have been overwritten. Flushed tables reach over all parts: they
    /// take part only where they make up half of all bytes.
    fn overwritten<'a>(tables: &[&'a TableSummary], levels: &[Level<'a>]) -> Option<Vec<&'a TableSummary>> {
        let bytes = |tables: &[&TableSummary]| tables.iter().map(|table| table.size_bytes).sum::<u64>();
        let flushed = levels.first().map_or(0, |level| bytes(&level.tables));
        let considered: Vec<&'a TableSummary> = if flushed >= bytes(tables) / 2 {
            tables.to_vec()
        } else {
            levels.iter().skip(1).flat_map(|level| level.tables.iter().copied()).collect()
        };
        let sections = sections(&considered);
        let groups = buckets(&sections, 2, OverlapInclusion::Transitive).into_iter().map(|bucket| {
            let indexes: Section = bucket.into_iter().flatten().copied().collect();
            indexes.into_iter().filter_map(|index| considered.get(index).copied()).collect::<Vec<_>>()
        });
        groups.filter(|group| is_mostly_overwritten(group)).max_by_key(|group| bytes(group))
    }

    /// Where the outputs of a merge of these tables end.
    pub(crate) fn split(&self, inputs: &[&TableSummary]) -> Split {
        let first = inputs.iter().map(|table| table.first_key.as_slice()).min().unwrap_or_default();
        let last = inputs.iter().map(|table| table.last_key.as_slice()).max().unwrap_or_default();
        let bytes: u64 = inputs.iter().map(|table| table.size_bytes).sum();
        match self.parts(bytes as f64 / span(first, last)) {
            1 => Split::Never,
            parts => Split::Parts(parts),
        }
    }

    /// Into how many parts the token space is cut for outputs of this density.
    fn parts(&self, density: f64) -> u32 {
        let base = self.base_shards.max(1);
        if self.min_table_bytes > 0 {
            let count = density / self.min_table_bytes as f64;
            if count < f64::from(base) {
                // The greatest power of two that divides the base, so that boundaries stay boundaries.
                return power_of_two_below(count).min(base & base.wrapping_neg());
            }
        }
        let target = self.target_table_bytes as f64;
        let count = density / (target * f64::from(base));
        let exponent = count.log2() * (1.0 - self.table_growth) + 0.5;
        // Not a number where nothing is dense: then it is the base.
        let shift = if exponent >= 1.0 { (exponent as u32).min(SPLIT_SHIFT_MAX) } else { 0 };
        base.saturating_mul(1 << shift)
    }
}

fn generations(tables: &[&TableSummary]) -> Vec<u64> {
    let mut generations: Vec<u64> = tables.iter().map(|table| table.generation).collect();
    generations.sort_unstable();
    generations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(sizes_mib: &[u64]) -> Vec<TableSummary> {
        let summary = |(generation, &size): (usize, &u64)| TableSummary {
            generation: generation as u64,
            size_bytes: size << 20,
            first_key: vec![0],
            last_key: vec![0xFF; 9],
            ..TableSummary::default()
        };
        sizes_mib.iter().enumerate().map(summary).collect()
    }

    fn chosen(strategy: &Unified, sizes_mib: &[u64]) -> Option<Vec<u64>> {
        let tables = tables(sizes_mib);
        strategy.choose(&tables.iter().collect::<Vec<_>>(), 0).map(|merge| merge.inputs)
    }

    #[test]
    fn a_tiered_level_waits_for_its_fanout() {
        let strategy = Unified::default();
        assert_eq!(chosen(&strategy, &[1, 1, 2]), None);
        assert_eq!(chosen(&strategy, &[1, 1, 2, 3, 20]), Some(vec![0, 1, 2, 3]));
    }

    #[test]
    fn a_levelled_level_needs_two() {
        let strategy = Unified { scaling: vec![-2], ..Unified::default() };
        assert_eq!(chosen(&strategy, &[1, 20, 3]), Some(vec![0, 2]));
    }

    #[test]
    fn late_compactions_take_as_many_tables_as_reach_a_level() {
        let ones = vec![1; 55];
        let tiered = chosen(&Unified::default(), &ones).unwrap();
        assert_eq!(tiered, (0..16).collect::<Vec<_>>());
        let levelled = Unified { scaling: vec![-2], ..Unified::default() };
        assert_eq!(chosen(&levelled, &ones).unwrap().len(), 48);
        let bounded = Unified { max_inputs: 6, ..Unified::default() };
        assert_eq!(chosen(&bounded, &ones).unwrap().len(), 4);
        assert_eq!(chosen(&bounded, &[1; 15]).unwrap().len(), 6);
    }

    #[test]
    fn parts_follow_density_target_and_growth() {
        const GIB: f64 = 1_073_741_824.0;
        let fixed = Unified { min_table_bytes: 0, table_growth: 0.0, ..Unified::default() };
        assert_eq!(fixed.parts(GIB / 100.0), 4);
        assert_eq!(fixed.parts(5.0 * GIB), 4);
        assert_eq!(fixed.parts(6.0 * GIB), 8);
        assert_eq!(fixed.parts(1024.0 * GIB), 1024);
        let growing = Unified { table_growth: 0.5, ..fixed.clone() };
        assert_eq!(growing.parts(1024.0 * GIB), 64);
        assert_eq!(Unified { table_growth: 1.0, ..fixed.clone() }.parts(1024.0 * GIB), 4);
        let bounded = Unified { min_table_bytes: 100 << 20, ..fixed.clone() };
        assert_eq!(bounded.parts(GIB / 100.0), 1);
        assert_eq!(bounded.parts(0.25 * GIB), 2);
        assert_eq!(bounded.parts(0.5 * GIB), 4);
        assert_eq!(Unified { base_shards: 6, ..bounded }.parts(0.5 * GIB), 2);
        assert_eq!(fixed.parts(f64::MAX), 4 << 20);
        assert_eq!(fixed.parts(0.0), 4);
    }
}
