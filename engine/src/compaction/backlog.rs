//! How far the compaction of a table is behind: the files that one read may have to look at, and that the strategy would merge if it had the
//! time. Files that a strategy leaves apart on purpose (levels, windows of time, too few of a size) are no backlog, however many they are.
//!
//! Invariant: a part of a merge that is taken as relief has files that all overlap at one token. So there are fewer at that token
//! afterwards, and relief comes to an end.

use super::choice::{Choice, Merge, Split, TableSummary};
use super::leveled::Leveled;
use super::overlap::{Section, most_overlapping, sections};
use super::strategy::{CompactionOptions, Strategy};

/// The files that relief merges at least: with fewer it would write the same rows too often.
const RELIEF_INPUTS_MIN: usize = 4;
/// How often its bytes may be exceeded for them. With larger files it would be a large compaction itself, and new files would wait for it.
const RELIEF_EXCESS_MAX: u64 = 4;

impl CompactionOptions {
    /// A merge that is worth while beside a large compaction, which may take hours: of the files of a merge that the strategy chooses the
    /// smallest ones, up to this size. `None`: none of them overlap, or they are too large.
    ///
    /// `choice`: that of the strategy for `tables`. Where level 0 would be merged into level 1, or cannot be because that is under way, the
    /// files of level 0 are merged among themselves.
    pub(crate) fn relief(
        &self,
        choice: Option<&Choice>,
        tables: &[TableSummary],
        bytes_max: u64,
    ) -> Option<Merge> {
        let merge = match choice {
            Some(Choice::Merge(merge)) if merge.output_level == 0 => Some(merge),
            Some(Choice::Drop { .. } | Choice::Move { .. }) => return None,
            Some(Choice::Merge(_)) | None => None,
        };
        let inputs: Vec<_> = match (merge, &self.strategy) {
            (Some(merge), _) => {
                tables.iter().filter(|table| merge.inputs.contains(&table.generation)).collect()
            }
            (None, Strategy::Leveled(_)) => {
                tables.iter().filter(|table| table.level == 0 && !table.is_busy).collect()
            }
            (None, _) => return None,
        };
        let most = sections(&inputs).into_iter().max_by_key(Section::len)?;
        let mut chosen: Vec<_> = most.into_iter().filter_map(|index| inputs.get(index).copied()).collect();
        chosen.sort_by_key(|table| (table.size_bytes, table.generation));
        let mut bytes = 0_u64;
        let fitting = chosen.iter().enumerate().take_while(|(index, table)| {
            bytes = bytes.saturating_add(table.size_bytes);
            let is_needed = *index < RELIEF_INPUTS_MIN && bytes <= RELIEF_EXCESS_MAX * bytes_max;
            bytes <= bytes_max || is_needed
        });
        let fitting = fitting.count();
        if fitting < RELIEF_INPUTS_MIN.min(chosen.len()).max(2) {
            return None;
        }
        chosen.truncate(fitting);
        let split = match (&self.strategy, merge) {
            (Strategy::Unified(strategy), _) => strategy.split(&chosen),
            (_, Some(merge)) => merge.split.clone(),
            (_, None) => Split::Never,
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
        due.iter().map(|group| most_overlapping(group)).max().unwrap_or(0)
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
        let chosen = Choice::Merge(merge.clone());
        let options = CompactionOptions::default();
        let relief = |choice: &Choice, tables: &[TableSummary], mib: u64| {
            options.relief(Some(choice), tables, mib << 20).map(|relief| relief.inputs)
        };
        assert_eq!(relief(&chosen, &tables, 61 + 62 + 63 + 64 + 65), Some(vec![39, 38, 37, 36, 35]));
        assert_eq!(
            relief(&chosen, &tables, 63),
            Some(vec![39, 38, 37, 36]),
            "fewer would be written too often"
        );
        assert_eq!(relief(&chosen, &tables, 10), None, "small files of all tables would wait for it");
        assert_eq!(relief(&chosen, &tables, 10_000).map(|inputs| inputs.len()), Some(40));
        // The smallest ones lie elsewhere: to merge them would leave as many files at each token.
        for (place, table) in (0..).zip(&mut tables[30..]) {
            (table.first_key, table.last_key) = (vec![0xF0 + place], vec![0xF0 + place]);
        }
        for table in &mut tables[..30] {
            table.last_key = vec![0xE0];
        }
        assert_eq!(relief(&chosen, &tables, 73), Some(vec![29, 28, 27, 26]));
        assert_eq!(relief(&chosen, &tables[30..], 10), None);
        let upwards = Choice::Merge(Merge { output_level: 1, ..merge });
        assert_eq!(relief(&upwards, &tables, 73), None);
        assert_eq!(options.relief(None, &tables, 73 << 20), None);
    }

    #[test]
    fn files_of_level_0_are_merged_among_themselves_where_level_1_would_take_long() {
        let options = CompactionOptions {
            strategy: Strategy::Leveled(Leveled::default()),
            ..CompactionOptions::default()
        };
        let mut tables: Vec<_> = (0..6).map(|number| table(number, 1, 0, 0)).collect();
        tables[0].is_busy = true;
        tables.push(table(7, 160, 1, 0));
        let merge = Merge { inputs: vec![1, 2, 3, 4, 5, 7], output_level: 1, split: Split::Never };
        for choice in [Some(Choice::Merge(merge)), None] {
            let relief = options.relief(choice.as_ref(), &tables, 10 << 20).unwrap();
            assert_eq!((relief.inputs, relief.output_level), (vec![1, 2, 3, 4, 5], 0));
        }
        let moved = Choice::Move { input: 7, level: 2 };
        assert_eq!(options.relief(Some(&moved), &tables, 10 << 20), None, "it takes no time");
    }
}
