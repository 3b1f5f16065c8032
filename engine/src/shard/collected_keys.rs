//! The keys of a restriction with many terms: all terms are visited, and the least keys are kept, up to a maximum.
//!
//! Of each term only the entries within the wanted keys are visited: the walk jumps to the first of them, and from the last one to the next term.
//! It takes several turns, in each of which it goes on behind the last entry of the one before.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use super::index_entries::{EntrySource, move_all, static_row_around};
use super::search_turn::TurnWork;
use crate::error::EngineError;
use crate::invariant::{BrokenInvariant, broken};
use crate::key::{self, STATIC_POSITION};
use crate::merge::KWayMerge;
use crate::secondary_index::entry::{self, end_of_term};

/// The most bytes of collected keys, but for the first.
const COLLECTED_BYTES_MAX: usize = 4 << 20;

/// All keys of a restriction from a key on, up to `next`.
#[derive(Debug, Default)]
pub(super) struct CollectedKeys {
    keys: BTreeSet<Vec<u8>>,
    bytes: usize,
    /// The least key that was given up for want of room: all that come behind it have to be collected again. `None`: these are all.
    next: Option<Vec<u8>>,
}

impl CollectedKeys {
    /// Whether it says of a key if the restriction has it.
    pub fn knows(&self, key: &[u8]) -> bool {
        self.next.as_deref().is_none_or(|next| key < next)
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    /// The first key at or behind a bound that is known. It is the first that is not known, if there are no others.
    pub fn first_from(&self, bound: &[u8]) -> Option<&[u8]> {
        let known = self.keys.range::<[u8], _>((Bound::Included(bound), Bound::Unbounded)).next();
        known.or(self.next.as_ref()).map(Vec::as_slice)
    }

    /// Keeps a key if it is among the least.
    fn keep(&mut self, key: &[u8], keys_max: usize) -> Result<(), BrokenInvariant> {
        if self.keys.insert(key.to_vec()) {
            self.bytes += key.len();
        }
        while self.keys.len() > keys_max || (self.bytes > COLLECTED_BYTES_MAX && self.keys.len() > 1) {
            let last = self.keys.pop_last().ok_or_else(|| broken!("what is too much is not empty"))?;
            self.bytes -= last.len();
            self.next = Some(last);
        }
        Ok(())
    }
}

/// The state of a collection between its turns.
#[derive(Debug)]
pub(super) struct Collection {
    /// The half-open ranges of entries to visit, in order.
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of the range that is visited, and where it goes on.
    range: usize,
    at: Vec<u8>,
    /// The full keys that are wanted.
    start: Vec<u8>,
    end: Vec<u8>,
    /// The key of the partition of `start`, if that lies within the partition.
    start_partition: Option<Vec<u8>>,
    keys_max: usize,
    found: CollectedKeys,
}

impl Collection {
    pub fn new(ranges: Vec<(Vec<u8>, Vec<u8>)>, start: &[u8], end: &[u8], keys_max: usize) -> Self {
        Self {
            at: ranges.first().map(|(first, _)| first.clone()).unwrap_or_default(),
            ranges,
            range: 0,
            start: start.to_vec(),
            end: end.to_vec(),
            start_partition: static_row_around(start),
            keys_max: keys_max.max(1),
            found: CollectedKeys::default(),
        }
    }

    /// The least key that can be wanted.
    fn floor(&self) -> &[u8] {
        self.start_partition.as_deref().unwrap_or(&self.start)
    }

    /// Visits entries for one turn. Stops at an error, from where the next call goes on.
    pub fn turn(
        &mut self,
        sources: &mut [EntrySource],
        work: &mut TurnWork,
    ) -> Result<ControlFlow<CollectedKeys>, EngineError> {
        let mut merge = KWayMerge::new(false);
        work.add_units(move_all(sources, |source| source.seek(&self.at))?);
        loop {
            if !self.step(sources, &mut merge, work)? {
                return Ok(ControlFlow::Break(std::mem::take(&mut self.found)));
            }
            if work.ends() {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Visits an entry. False: all have been visited.
    fn step(
        &mut self,
        sources: &mut [EntrySource],
        merge: &mut KWayMerge,
        work: &mut TurnWork,
    ) -> Result<bool, EngineError> {
        let Some((_, range_end)) = self.ranges.get(self.range) else { return Ok(false) };
        let first = if merge.select(sources.iter().map(EntrySource::entry)) {
            let first = merge.first().and_then(|first| sources.get(first));
            let entry = first.and_then(|source| Some((source, source.entry()?)));
            Some(entry.ok_or_else(|| broken!("an entry comes from a source"))?)
        } else {
            None
        };
        let Some((source, entry)) = first.filter(|(_, entry)| *entry < range_end.as_slice()) else {
            self.range += 1;
            let Some((start, _)) = self.ranges.get(self.range) else { return Ok(false) };
            self.at.clone_from(start);
            work.add_units(move_all(sources, |source| source.seek(&self.at))?);
            return Ok(true);
        };
        work.add_visit(entry.len());
        let parts = entry::split(entry).and_then(|(term, key)| Some((term, key, key::prefix_length(key)?)));
        let Some((term, key, prefix_length)) = parts else { return Err(source.malformed()) };
        let is_partition = key.get(prefix_length..) == Some(STATIC_POSITION);
        let floor = if is_partition { self.floor() } else { &self.start };
        // What was given up, and everything behind it, is for the next collection.
        let ceiling = self.found.next.as_deref().unwrap_or(&self.end);
        if key < floor || key >= ceiling {
            // To the wanted keys of the term, or behind it.
            self.at = if key >= ceiling {
                end_of_term(term)
            } else if key < self.floor() {
                [term, self.floor()].concat()
            } else {
                [term, &self.start].concat()
            };
            let at = self.at.as_slice();
            work.add_units(move_all(sources, |source| {
                let is_behind = source.entry().is_some_and(|entry| entry < at);
                if is_behind { source.go_to(at) } else { Ok(0) }
            })?);
            return Ok(true);
        }
        self.at.clear();
        self.at.extend_from_slice(entry);
        self.at.push(0);
        self.found.keep(key, self.keys_max)?;
        for &current in merge.current() {
            let source = sources.get_mut(current as usize);
            source.ok_or_else(|| broken!("the sources of an entry are there"))?.advance()?;
        }
        Ok(true)
    }
}
