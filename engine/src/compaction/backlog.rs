//! How far the compaction of a table is behind: the files that one read may have to look at, and that the strategy would merge if it had the
//! time. Files that a strategy leaves apart on purpose (levels, windows of time, too few of a size) are no backlog, however many they are.
//!
//! Invariant: a part of a merge that is taken as relief has files that all overlap at one token. So there are fewer at that token
//! afterwards, and relief comes to an end.

use super::choice::{Merge, TableSummary};
use super::leveled::Leveled;
use super::overlap::{Section, sections};
use super::strategy::{CompactionOptions, Strategy};

/// The files that relief merges at least, whatever their size: with fewer it would write the same rows too often.
const RELIEF_INPUTS_MIN: usize = 4;

impl CompactionOptions {
    /// A merge that is worth while beside a large compaction, which may take hours: of the files of `merge` the smallest ones, up to this
    /// size. `None`: none of them overlap, or the merge ends on a level where tables must not.
    pub(crate) fn relief(&self, merge: &Merge, tables: &[TableSummary], bytes_max: u64) -> Option<Merge> {
        if merge.output_level > 0 {
            return None;
        }
        let inputs: Vec<_> = tables.iter().filter(|table| merge.inputs.contains(&table.generation)).collect();
        let most = sections(&inputs).into_iter().max_by_key(Section::len)?;
        let mut chosen: Vec<_> = most.into_iter().filter_map(|index| inputs.get(index).copied()).collect();
        chosen.sort_by_key(|table| (table.size_bytes, table.generation));
        let sizes = chosen.iter().scan(0_u64, |bytes, table| {
            *bytes = bytes.saturating_add(table.size_bytes);
            Some(*bytes)
        });
        let fitting = sizes.take_while(|bytes| *bytes <= bytes_max).count();
        chosen.truncate(fitting.max(RELIEF_INPUTS_MIN));
        if chosen.len() < 2 {
            return None;
        }
        let split = match &self.strategy {
            Strategy::Unified(strategy) => strategy.split(&chosen),
            _ => merge.split.clone(),
        };
        Some(Merge { inputs: chosen.iter().map(|table| table.generation).collect(), output_level: 0, split })
    }

    /// The most files that overlap at one token and wait for a merge. `tables`: those that may be merged, now or when a merge under way has ended.
    pub(crate) fn backlog(&self, tables: &[&TableSummary], flush_bytes: u64) -> usize {
        if !self.enabled {
            return 0;
        }
        let due = match &self.strategy {
            Strategy::SizeTiered(strategy) => vec![strategy.due(tables)],
            // Late writes to many windows do not add up: each window takes two files or a few.
            Strategy::TimeWindow(strategy) => strategy.due(tables),
            Strategy::Leveled(_) => vec![Leveled::due(tables)],
            Strategy::Unified(strategy) => vec![strategy.due_tables(tables, flush_bytes)],
        };
        due.iter().flat_map(|group| sections(group)).map(|section| section.len()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SizeTiered, Split, TimeWindow, Unified};
    use super::*;

    const DAY_MICROS: i64 = 86_400_000_000;

    fn table(generation: u64, size_mib: u64, level: u32, day: i64) -> TableSummary {
        TableSummary {
            generation,
            size_bytes: size_mib << 20,
            level,
            max_timestamp: day * DAY_MICROS,
            first_key: vec![0],
            last_key: vec![0xFF; 9],
            ..TableSummary::default()
        }
    }

    fn backlog(strategy: Strategy, tables: &[TableSummary]) -> usize {
        let options = CompactionOptions { strategy, ..CompactionOptions::default() };
        options.backlog(&tables.iter().collect::<Vec<_>>(), 0)
    }

    #[test]
    fn files_that_are_to_stay_apart_do_not_count() {
        let sizes = [1, 1, 1, 100, 100, 100, 900, 8000];
        let tiers: Vec<_> = (0..).zip(sizes).map(|(number, size)| table(number, size, 0, 0)).collect();
        assert_eq!(backlog(Strategy::SizeTiered(SizeTiered::default()), &tiers), 0);
        let days: Vec<_> = (0..300).map(|day| table(day, 10, 0, day as i64)).collect();
        assert_eq!(backlog(Strategy::TimeWindow(TimeWindow::default()), &days), 0);
        let levels: Vec<_> = (0..9).map(|level| table(u64::from(level), 160, level, 0)).collect();
        assert_eq!(backlog(Strategy::Leveled(Leveled::default()), &levels), 0);
        let dense: Vec<_> =
            (0..6).map(|number| table(number, [1, 1, 1, 20, 20, 20][number as usize], 0, 0)).collect();
        assert_eq!(backlog(Strategy::Unified(Unified::default()), &dense), 0);
    }

    #[test]
    fn what_waits_for_a_merge_counts_under_every_strategy() {
        let mut flushed: Vec<_> = (0..50).map(|number| table(number, 1, 0, 7)).collect();
        for strategy in [
            Strategy::SizeTiered(SizeTiered::default()),
            Strategy::TimeWindow(TimeWindow::default()),
            Strategy::Leveled(Leveled::default()),
            Strategy::Unified(Unified::default()),
        ] {
            assert_eq!(backlog(strategy, &flushed), 50);
        }
        let disabled = CompactionOptions { enabled: false, ..CompactionOptions::default() };
        assert_eq!(disabled.backlog(&flushed.iter().collect::<Vec<_>>(), 0), 0);
        // A read looks at those that overlap.
        for table in &mut flushed[..20] {
            table.first_key = vec![1];
            table.last_key = vec![2];
        }
        for table in &mut flushed[20..] {
            table.first_key = vec![3];
        }
        assert_eq!(backlog(Strategy::SizeTiered(SizeTiered::default()), &flushed), 30);
    }

    #[test]
    fn relief_takes_the_smallest_files_that_overlap() {
        let mut tables: Vec<_> = (0..40).map(|number| table(number, 100 - number, 0, 0)).collect();
        let merge = Merge { inputs: (0..40).collect(), output_level: 0, split: Split::Never };
        let options = CompactionOptions::default();
        let relief = |merge: &Merge, tables: &[TableSummary], mib: u64| {
            options.relief(merge, tables, mib << 20).map(|relief| relief.inputs)
        };
        assert_eq!(relief(&merge, &tables, 61 + 62 + 63 + 64 + 65), Some(vec![39, 38, 37, 36, 35]));
        assert_eq!(
            relief(&merge, &tables, 10),
            Some(vec![39, 38, 37, 36]),
            "fewer would be written too often"
        );
        assert_eq!(relief(&merge, &tables, 10_000).map(|inputs| inputs.len()), Some(40));
        // The smallest ones lie elsewhere: to merge them would leave as many files at each token.
        for (place, table) in (0..).zip(&mut tables[30..]) {
            (table.first_key, table.last_key) = (vec![0xF0 + place], vec![0xF0 + place]);
        }
        for table in &mut tables[..30] {
            table.last_key = vec![0xE0];
        }
        assert_eq!(relief(&merge, &tables, 10), Some(vec![29, 28, 27, 26]));
        assert_eq!(relief(&merge, &tables[30..], 10), None);
        let upwards = Merge { output_level: 1, ..merge };
        assert_eq!(relief(&upwards, &tables, 10), None);
    }
}
