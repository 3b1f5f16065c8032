//! Searching by indexes: the keys of rows and partitions that may have accepted terms of all restrictions, in key order.
//!
//! An entry lies in the memtable or file that has the cell it comes from, and the cells of a row may lie in different ones. So a restriction has what it
//! has in any of them, and only then restrictions are compared with each other. A restriction on the key of a partition or on a static column has whole
//! partitions, and with them each of their rows that another one has.
//!
//! The restrictions are walked in turns to the next key that all of them may have. Those with few terms are walked in the order of keys
//! ([`super::ordered_keys`]); the keys of others are collected first ([`super::collected_keys`]). Which restrictions of a search are looked up at all is
//! decided by [`super::search_cost`]; whether a row fulfils the others is for its reader to decide.
//!
//! A search takes several turns, so that other requests of the shard are not held up. All turns walk the memtables and files that there were at the
//! first: they keep the terms that rows had then, whatever is flushed or merged.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::collected_keys::{CollectedKeys, Collection};
use super::index_entries::{IndexView, move_all, partition_of, static_row_around};
use super::ordered_keys::{Cover, OrderedKeys};
use super::search_cost::{COLLECTED_KEYS_MAX, Choice, ORDERED_CURSORS_MAX, Reach, choose};
use super::search_turn::TurnWork;
use super::state::Shard;
use super::table_state::TableState;
use crate::error::EngineError;
use crate::invariant::{BrokenInvariant, broken};
use crate::io::yield_now;
use crate::key::{PARTITION_END, STATIC_POSITION, behind};
use crate::mutation::TableId;
use crate::secondary_index::entry::{self, PARTITION, end_of_term, start_of_term};
use crate::secondary_index::{IndexId, IndexRestriction, IndexSearch, TermRange};
use crate::table::{TableError, TableReader};

/// The most bytes of found keys, but for the first.
const FOUND_BYTES_MAX: usize = 4 << 20;
/// Terms of a restriction, or blocks of an index file, that are looked at for an estimate.
const SAMPLES: usize = 64;

/// What a search is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchWorth {
    /// No index of it is complete.
    Incomplete,
    /// The range of terms matches so much of the table that a scan in key order is cheaper.
    Broad,
    Narrow,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundKeys {
    /// Full keys, ascending: of rows, and (with the position of the static row) of partitions, of which any row may be meant.
    pub keys: Vec<Vec<u8>>,
    /// Where the search goes on; `None`: these are all.
    pub resume: Option<Vec<u8>>,
}

/// Half-open ranges of entries, ascending and without overlaps.
type EntryRanges = Vec<(Vec<u8>, Vec<u8>)>;

/// The entries that a restriction accepts.
fn entry_ranges(terms: &TermRange) -> EntryRanges {
    match terms {
        TermRange::OneOf(terms) => {
            let starts: BTreeSet<_> = terms.iter().map(|term| start_of_term(term)).collect();
            starts.into_iter().map(|start| (start.clone(), end_of_term(&start))).collect()
        }
        TermRange::Between { lower, upper } => {
            let (start, end) = entry::between(lower, upper);
            if start < end { vec![(start, end)] } else { Vec::new() }
        }
    }
}

/// A restriction that is looked up.
struct Lookup {
    view: IndexView,
    /// Of an ordered walk each is that of a term.
    ranges: EntryRanges,
    walk: Walk,
}

enum Walk {
    Ordered,
    /// The keys that are collected at a time, those that are known, and a collection that is under way.
    Collected {
        keys_max: usize,
        known: Option<CollectedKeys>,
        collection: Option<Box<Collection>>,
    },
}

impl Lookup {
    fn new(table: &TableState, restriction: &IndexRestriction, keys_max: usize) -> Self {
        let view = table.index_view(restriction.index);
        let ranges = entry_ranges(&restriction.terms);
        let walk = if is_ordered(&restriction.terms, ranges.len(), view.source_count()) {
            Walk::Ordered
        } else {
            Walk::Collected { keys_max, known: None, collection: None }
        };
        Self { view, ranges, walk }
    }

    fn ordered(&self, shard: &Shard) -> Option<OrderedKeys> {
        let terms = self.ranges.iter().map(|(start, _)| (start.clone(), self.view.sources(shard)));
        matches!(self.walk, Walk::Ordered).then(|| OrderedKeys::new(terms))
    }

    /// What the restriction says of a bound. `None`: its keys are collected from there on in the next turns.
    fn cover(
        &mut self,
        ordered: Option<&mut OrderedKeys>,
        bound: &[u8],
        end: &[u8],
        work: &mut TurnWork,
    ) -> Result<Option<Cover>, EngineError> {
        match (&mut self.walk, ordered) {
            (Walk::Ordered, Some(keys)) => keys.cover(bound, work).map(Some),
            (Walk::Collected { keys_max, known, collection }, None) => {
                let cover = known.as_ref().and_then(|known| cover_of(known, bound));
                if cover.is_none() {
                    let ranges = self.ranges.clone();
                    *collection = Some(Box::new(Collection::new(ranges, bound, end, *keys_max)));
                }
                Ok(cover)
            }
            _ => Err(broken!("what is walked in order has ordered keys, and nothing else").into()),
        }
    }

    /// A turn of a collection that is under way. False: there is none.
    fn collect_for_a_turn(&mut self, shard: &Shard, work: &mut TurnWork) -> Result<bool, EngineError> {
        let Walk::Collected { known, collection, .. } = &mut self.walk else { return Ok(false) };
        let Some(under_way) = collection else { return Ok(false) };
        if let ControlFlow::Break(keys) = under_way.turn(&mut self.view.sources(shard), work)? {
            *known = Some(keys);
            *collection = None;
        }
        Ok(true)
    }
}

/// What collected keys say of a bound. `None`: nothing.
fn cover_of(known: &CollectedKeys, bound: &[u8]) -> Option<Cover> {
    if !known.knows(bound) {
        return None;
    }
    if static_row_around(bound).is_some_and(|partition| known.contains(&partition)) {
        return Some(Cover::Partition);
    }
    Some(match known.first_from(bound) {
        None => Cover::Nothing,
        Some(key) if key == bound => Cover::Row,
        Some(key) => Cover::Behind(key.to_vec()),
    })
}

fn is_ordered(terms: &TermRange, count: usize, sources: usize) -> bool {
    matches!(terms, TermRange::OneOf(_)) && count.saturating_mul(sources) <= ORDERED_CURSORS_MAX
}

/// The state of a search between its turns.
struct Search {
    lookups: Vec<Lookup>,
    /// Where it goes on, and where it ends: bounds of full keys.
    at: Vec<u8>,
    end: Vec<u8>,
    keys_max: usize,
    found: FoundKeys,
    found_bytes: usize,
    work: TurnWork,
}

impl Search {
    fn new(
        table: &TableState,
        restrictions: &[&IndexRestriction],
        (start, end): (&[u8], &[u8]),
        keys_max: usize,
        collected_max: usize,
    ) -> Self {
        let lookups = restrictions.iter().map(|restriction| Lookup::new(table, restriction, collected_max));
        Self {
            lookups: lookups.collect(),
            at: start.to_vec(),
            end: end.to_vec(),
            keys_max: keys_max.max(1),
            found: FoundKeys::default(),
            found_bytes: 0,
            work: TurnWork::default(),
        }
    }

    /// Goes on for one turn. Stops at an error, from where the next call goes on.
    fn turn(&mut self, shard: &Shard) -> Result<ControlFlow<()>, EngineError> {
        for lookup in &mut self.lookups {
            if lookup.collect_for_a_turn(shard, &mut self.work)? {
                return Ok(ControlFlow::Continue(()));
            }
        }
        self.leap(shard)
    }

    /// Moves all restrictions to the next key that all of them have, again and again.
    fn leap(&mut self, shard: &Shard) -> Result<ControlFlow<()>, EngineError> {
        let mut ordered: Vec<Option<OrderedKeys>> =
            self.lookups.iter().map(|lookup| lookup.ordered(shard)).collect();
        let first = static_row_around(&self.at).unwrap_or_else(|| self.at.clone());
        let go = |keys: &mut Option<OrderedKeys>| keys.as_mut().map_or(Ok(0), |keys| keys.go_to(&first));
        self.work.add_units(move_all(&mut ordered, go)?);
        'next: loop {
            if self.at >= self.end {
                return Ok(ControlFlow::Break(()));
            }
            self.work.add_visit(self.at.len());
            let mut is_row = false;
            for (lookup, ordered) in self.lookups.iter_mut().zip(&mut ordered) {
                let cover = lookup.cover(ordered.as_mut(), &self.at, &self.end, &mut self.work)?;
                let Some(cover) = cover else { return Ok(ControlFlow::Continue(())) };
                match cover {
                    Cover::Partition => {}
                    Cover::Row => is_row = true,
                    Cover::Behind(key) => {
                        self.at = key;
                        if self.work.ends() {
                            return Ok(ControlFlow::Continue(()));
                        }
                        continue 'next;
                    }
                    Cover::Nothing => return Ok(ControlFlow::Break(())),
                }
            }
            let partition = partition_of(&self.at).filter(|_| !is_row);
            let (key, next) = match partition {
                Some(prefix) => ([prefix, STATIC_POSITION].concat(), [prefix, PARTITION_END].concat()),
                None => (self.at.clone(), behind(&self.at)),
            };
            if !self.keep(key) {
                return Ok(ControlFlow::Break(()));
            }
            self.at = next;
            if self.work.ends() {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Takes a found key. False: there is no more room, and the search ends before it.
    fn keep(&mut self, key: Vec<u8>) -> bool {
        let fits = self.found.keys.len() < self.keys_max
            && (self.found.keys.is_empty() || self.found_bytes + key.len() <= FOUND_BYTES_MAX);
        if fits {
            self.found_bytes += key.len();
            self.found.keys.push(key);
        } else {
            self.found.resume = Some(key);
        }
        fits
    }

    /// The file of an index that has to be made again because of this error.
    fn file_of(&self, error: &TableError) -> Option<&Arc<TableReader>> {
        self.lookups.iter().find_map(|lookup| lookup.view.file_of(error))
    }
}

impl TableState {
    /// What is known of a restriction without reading anything.
    fn reach(&self, restriction: &IndexRestriction) -> Reach {
        let index = restriction.index;
        let ranges = entry_ranges(&restriction.terms);
        let step = ranges.len() / SAMPLES + 1;
        let sampled = || ranges.iter().step_by(step).map(|(start, end)| (start.as_slice(), end.as_slice()));
        // Those of a list of terms are known.
        let estimates_terms = matches!(restriction.terms, TermRange::Between { .. });
        let (mut sources, mut entries, mut terms) = (0, 0, 0);
        self.for_each_memtable(|memtable| {
            memtable.read(|memtable| {
                sources += u64::from(!memtable.is_empty());
                for (start, end) in sampled() {
                    let in_memtable = memtable.estimate_of_index(index, start, end);
                    entries += in_memtable;
                    if estimates_terms {
                        terms += memtable.estimate_terms_of_index(index, start, end, in_memtable);
                    }
                }
            });
        });
        for reader in self.files.borrow().iter().filter_map(|file| file.index(index)) {
            sources += 1;
            for (start, end) in sampled() {
                let [start, end] = [start, end].map(|bound| [&PARTITION, bound].concat());
                let Some(blocks) = reader.blocks_between(&start, &end) else { continue };
                let in_file = reader.estimate_rows(&blocks);
                entries += in_file;
                if estimates_terms {
                    terms += estimate_terms(&reader, blocks, in_file);
                }
            }
        }
        let is_ordered = is_ordered(&restriction.terms, ranges.len(), self.index_source_count(index));
        let terms = if estimates_terms { terms } else { ranges.len() as u64 };
        Reach { entries: entries.saturating_mul(step as u64), terms, sources, is_ordered }
    }

    /// The restrictions of a search whose indexes are complete, and how they are looked up best. `None`: no index is.
    fn plan_search<'s>(
        &self,
        search: &'s IndexSearch,
    ) -> Result<Option<(Vec<&'s IndexRestriction>, Choice)>, BrokenInvariant> {
        let complete: Vec<_> =
            search.restrictions.iter().filter(|it| self.is_index_complete(it.index)).collect();
        let reaches: Vec<Reach> = complete.iter().map(|restriction| self.reach(restriction)).collect();
        let Some(choice) = choose(&reaches, self.statistics().row_versions) else { return Ok(None) };
        let chosen = |number: &usize| {
            complete.get(*number).copied().ok_or_else(|| broken!("a search looks up its own restrictions"))
        };
        let looked_up = choice.looked_up.iter().map(chosen).collect::<Result<_, _>>()?;
        Ok(Some((looked_up, choice)))
    }
}

/// Estimates the number of distinct terms in some blocks of an index file. `entries`: the estimated entries of these. Counted are the distinct terms
/// among sampled block separators; if no two separators share a term, each entry counts as a term.
fn estimate_terms(reader: &Arc<TableReader>, blocks: Range<usize>, entries: u64) -> u64 {
    let separators = reader.sample_separators(blocks, SAMPLES);
    let term = |separator: &[u8]| {
        let (term, _) = entry::split(separator.get(PARTITION.len()..)?)?;
        Some(term.to_vec())
    };
    let terms: Vec<_> = separators.iter().map(|separator| term(separator)).collect();
    // One that ends within its term begins a new one.
    let same =
        terms.iter().zip(terms.iter().skip(1)).filter(|(term, next)| next.is_some() && term == next).count();
    if same == 0 { entries } else { (terms.len() - same) as u64 }
}

impl Shard {
    /// What a search is worth, judged by the rows of this shard.
    pub fn judge_search(&self, table: TableId, search: &IndexSearch) -> Result<SearchWorth, EngineError> {
        Ok(match self.table(table)?.plan_search(search)? {
            None => SearchWorth::Incomplete,
            Some((_, choice)) if choice.prefers_scan => SearchWorth::Broad,
            Some(_) => SearchWorth::Narrow,
        })
    }

    /// The search of these that is the least work, judged by the rows of this shard; the first one, if no index is complete here.
    pub fn cheapest_search(
        &self,
        table: TableId,
        searches: Vec<IndexSearch>,
    ) -> Result<IndexSearch, EngineError> {
        let table = self.table(table)?;
        let mut searches = searches.into_iter();
        let mut cheapest = searches.next().ok_or_else(|| broken!("there is a search to choose"))?;
        if searches.len() == 0 {
            return Ok(cheapest);
        }
        let work_of = |search: &IndexSearch| -> Result<u64, BrokenInvariant> {
            Ok(table.plan_search(search)?.map_or(u64::MAX, |(_, choice)| choice.work))
        };
        let mut least = work_of(&cheapest)?;
        for search in searches {
            let work = work_of(&search)?;
            if work < least {
                (least, cheapest) = (work, search);
            }
        }
        Ok(cheapest)
    }

    /// The files of these indexes on this shard that a search in a range of full keys may ask.
    pub fn index_file_count(
        &self,
        table: TableId,
        indexes: &[IndexId],
        (start, end): (&[u8], &[u8]),
    ) -> Result<usize, EngineError> {
        let table = self.table(table)?;
        let files = table.files.borrow();
        let in_range = files.iter().filter(|file| file.reader.statistics().may_overlap(start, end));
        Ok(in_range.map(|file| indexes.iter().filter(|index| file.index(**index).is_some()).count()).sum())
    }

    /// The keys within `[start, end)` of rows and partitions that may have accepted terms: the first `keys_max` in key order. What is found is a
    /// candidate; see [`FoundKeys`]. [`EngineError::IndexIncomplete`]: no index is built yet, or one is being made again. Ends with
    /// [`EngineError::SearchTooLong`] if it takes longer than `until`, on the monotonic clock.
    pub async fn find_keys(
        &self,
        id: TableId,
        search: &IndexSearch,
        start: &[u8],
        end: &[u8],
        keys_max: usize,
        until: Duration,
    ) -> Result<FoundKeys, EngineError> {
        let table = self.table(id)?;
        self.watch.check()?;
        if start >= end {
            return Ok(FoundKeys::default());
        }
        let restrictions = match search.restrictions.as_slice() {
            [only] => table.is_index_complete(only.index).then(|| vec![only]),
            _ => table.plan_search(search)?.map(|(restrictions, _)| restrictions),
        };
        let Some(restrictions) = restrictions else {
            return Err(EngineError::IndexIncomplete { table: id });
        };
        // One alone needs no more keys than are asked for, and the next.
        let collected_max =
            if restrictions.len() == 1 { keys_max.saturating_add(1) } else { COLLECTED_KEYS_MAX };
        // All turns see the same: a row whose term changes meanwhile is found by the one that it had, or by the new one.
        let search = Search::new(&table, &restrictions, (start, end), keys_max, collected_max);
        self.run_search(&table, search, until).await
    }

    /// Searches by restrictions whose indexes are complete.
    async fn run_search(
        &self,
        table: &Rc<TableState>,
        mut search: Search,
        until: Duration,
    ) -> Result<FoundKeys, EngineError> {
        let start = search.at.clone();
        loop {
            let turn = || {
                self.check_open()?;
                // Rows of a file that cannot be read would not be missed.
                table.check_readable(&start, &search.end)?;
                search.turn(self)
            };
            match self.read_cold(turn).await {
                Ok(ControlFlow::Break(())) => return Ok(search.found),
                Ok(ControlFlow::Continue(())) => {}
                Err(EngineError::Table(error)) => {
                    let Some(reader) = search.file_of(&error) else { return Err(error.into()) };
                    self.give_up_index(table, reader, &error).await;
                    return Err(EngineError::IndexIncomplete { table: table.id });
                }
                Err(error) => return Err(error),
            }
            if self.environment.clock.monotonic() >= until {
                return Err(EngineError::SearchTooLong { table: table.id });
            }
            yield_now().await;
        }
    }

    /// As [`Shard::find_keys`], but looks up all restrictions, whatever they cost. `collected_max`: the most keys that are collected of one at a time.
    #[cfg(test)]
    pub(super) async fn find_by_all(
        &self,
        id: TableId,
        restrictions: &[IndexRestriction],
        range: (&[u8], &[u8]),
        keys_max: usize,
        collected_max: usize,
    ) -> Result<FoundKeys, EngineError> {
        let table = self.table(id)?;
        let restrictions: Vec<_> = restrictions.iter().collect();
        let search = Search::new(&table, &restrictions, range, keys_max, collected_max);
        self.run_search(&table, search, Duration::MAX).await
    }
}
