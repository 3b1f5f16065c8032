//! The compaction settings of a table, and the choice they lead to.

use super::choice::{Choice, Merge, Situation, Split, TableSummary};
use super::expired::expired;
use super::leveled::Leveled;
use super::overlap::free_share;
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

/// Bytes of a table of keys that are written once, from which removals are merged with what they remove.
const ONCE_BYTES_MIN: u64 = 1 << 20;

/// When a single table is rewritten to purge its deletions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TombstoneOptions {
    /// False: never.
    pub enabled: bool,
    /// The least droppable share.
    pub threshold: f64,
    /// The least age of the table.
    pub interval_seconds: u32,
    /// Rewrite even if other tables overlap.
    pub unchecked: bool,
}

impl Default for TombstoneOptions {
    fn default() -> Self {
        Self { enabled: true, threshold: 0.2, interval_seconds: 86_400, unchecked: false }
    }
}

/// The compaction settings of a table. [`CompactionOptions::parse`] reads Cassandra's options.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionOptions {
    pub strategy: Strategy,
    /// False: no automatic compactions.
    pub enabled: bool,
    pub tombstones: TombstoneOptions,
    /// The least time between two searches for files whose contents have all expired, in seconds.
    pub expired_check_seconds: u32,
    /// Each compaction is logged at level info.
    pub logs_all: bool,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self {
            strategy: Strategy::SizeTiered(SizeTiered::default()),
            enabled: true,
            tombstones: TombstoneOptions::default(),
            expired_check_seconds: EXPIRED_CHECK_SECONDS,
            logs_all: false,
        }
    }
}

/// The default of [`CompactionOptions::expired_check_seconds`]. Cassandra's is ten times as long; the search costs little here.
pub(crate) const EXPIRED_CHECK_SECONDS: u32 = 60;

impl CompactionOptions {
    /// The next compaction, if one is worthwhile.
    pub fn choose(&self, situation: &Situation<'_>) -> Option<Choice> {
        if let Some(drop) = self.choose_expired(situation) {
            return Some(drop);
        }
        if !self.enabled {
            return None;
        }
        let idle: Vec<&TableSummary> = situation.tables.iter().filter(|table| !table.is_busy).collect();
        let merge = match &self.strategy {
            Strategy::SizeTiered(strategy) => strategy.choose(&idle),
            Strategy::TimeWindow(strategy) => strategy.choose(&idle),
            Strategy::Unified(strategy) => strategy.choose(&idle, situation.flush_bytes),
            Strategy::Leveled(strategy) => {
                let choice = strategy.choose(&idle, situation.tables);
                return choice.or_else(|| self.choose_by_tombstones(&idle, situation));
            }
        };
        let merge = merge.or_else(|| Self::choose_removals(&idle, situation));
        merge.map(Choice::Merge).or_else(|| self.choose_by_tombstones(&idle, situation))
    }

    /// A merge of all tables that are not busy, as an operator asks for it.
    pub fn choose_all(&self, tables: &[TableSummary]) -> Option<Merge> {
        let idle: Vec<&TableSummary> = tables.iter().filter(|table| !table.is_busy).collect();
        if idle.is_empty() {
            return None;
        }
        let (output_level, split) = match &self.strategy {
            Strategy::Unified(strategy) => (0, strategy.split(&idle)),
            // The outputs are the only tables of their level.
            Strategy::Leveled(strategy) if idle.len() == tables.len() => {
                (strategy.level_of(&idle), Split::Bytes(strategy.table_bytes))
            }
            _ => (0, Split::Never),
        };
        let inputs = idle.iter().map(|table| table.generation).collect();
        Some(Merge { inputs, output_level, split })
    }

    /// The removal of files whose contents have all expired, if there are any.
    pub fn choose_expired(&self, situation: &Situation<'_>) -> Option<Choice> {
        if !self.enabled || !situation.seeks_expired {
            return None;
        }
        Some(expired(situation)).filter(|inputs| !inputs.is_empty()).map(|inputs| Choice::Drop { inputs })
    }

    /// A merge of all files of a table whose keys are written once, when a quarter of its rows are removals: they go together with
    /// what they remove.
    fn choose_removals(idle: &[&TableSummary], situation: &Situation<'_>) -> Option<Merge> {
        let sum = |part: fn(&TableSummary) -> u64| idle.iter().map(|table| part(table)).sum::<u64>();
        let is_due = situation.writes_once
            && idle.len() >= 2
            && sum(|table| table.size_bytes) >= ONCE_BYTES_MIN
            && sum(|table| table.tombstones) >= sum(|table| table.rows) / 4;
        is_due.then(|| Merge {
            inputs: idle.iter().map(|table| table.generation).collect(),
            output_level: 0,
            split: Split::Never,
        })
    }

    /// A rewrite of the largest table with enough deletions past their grace period, as in Cassandra.
    fn choose_by_tombstones(&self, idle: &[&TableSummary], situation: &Situation<'_>) -> Option<Choice> {
        let options = self.tombstones;
        if !options.enabled {
            return None;
        }
        let is_old = |table: &TableSummary| {
            table.created_seconds.saturating_add(options.interval_seconds) <= situation.now_seconds
        };
        // Where another table overlaps and is not newer throughout, deletions may have to stay. They are counted out with the
        // tokens of the overlap.
        let droppable_ratio = |table: &TableSummary| {
            let in_the_way = |other: &&TableSummary| {
                other.generation != table.generation
                    && other.min_timestamp <= table.max_timestamp
                    && other.overlaps(table)
            };
            let free = if options.unchecked {
                1.0
            } else {
                free_share(table, situation.tables.iter().filter(in_the_way))
            };
            table.droppable_ratio * free
        };
        idle.iter()
            .filter(|table| is_old(table) && table.droppable_ratio > options.threshold)
            .filter(|table| droppable_ratio(table) > options.threshold)
            .max_by_key(|table| (table.size_bytes, table.generation))
            .map(|table| {
                Choice::Merge(Merge {
                    inputs: vec![table.generation],
                    output_level: table.level,
                    split: Split::Never,
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(options: &CompactionOptions, tables: &[TableSummary], now_seconds: u32) -> Option<Choice> {
        options.choose(&Situation { tables, now_seconds, seeks_expired: true, ..Situation::default() })
    }

    #[test]
    fn a_table_of_old_deletions_is_rewritten_alone() {
        let options = CompactionOptions::default();
        let table = TableSummary { generation: 7, droppable_ratio: 0.5, ..TableSummary::default() };
        assert_eq!(choose(&options, std::slice::from_ref(&table), 10), None);
        let choice = choose(&options, std::slice::from_ref(&table), 86_400).unwrap();
        assert_eq!(choice.inputs(), [7]);
        let other = TableSummary { generation: 8, ..TableSummary::default() };
        assert_eq!(choose(&options, &[table, other], 86_400), None);
    }

    #[test]
    fn deletions_outside_of_an_overlap_count() {
        let options = CompactionOptions::default();
        let table = TableSummary {
            generation: 7,
            droppable_ratio: 0.5,
            first_key: vec![0],
            last_key: vec![200],
            ..TableSummary::default()
        };
        let other = |last: u8| TableSummary {
            generation: 8,
            first_key: vec![0],
            last_key: vec![last],
            ..TableSummary::default()
        };
        assert_eq!(choose(&options, &[table.clone(), other(150)], 86_400), None);
        assert_eq!(choose(&options, &[table, other(100)], 86_400).unwrap().inputs(), [7]);
    }

    #[test]
    fn disabled_compaction_chooses_nothing() {
        let options = CompactionOptions { enabled: false, ..CompactionOptions::default() };
        let tables: Vec<_> =
            (0..8).map(|generation| TableSummary { generation, ..TableSummary::default() }).collect();
        assert_eq!(choose(&options, &tables, 0), None);
    }
}
