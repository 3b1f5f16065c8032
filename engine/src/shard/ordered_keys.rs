//! The keys of a restriction with few terms, in their order: the entries of each term in each memtable and file are walked side by side.
//!
//! A restriction has a row if it has an entry for the row, or for the whole partition of the row: the memtable or file that has the one may lack the
//! other, so both are looked for in all of them.

use super::index_entries::{EntrySource, move_all, partition_of};
use super::search_turn::TurnWork;
use crate::error::EngineError;
use crate::key::{STATIC_POSITION, prefix_length};
use crate::table::TableError;

/// What a restriction says of a bound of full keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cover {
    /// It has the whole partition that the bound lies within.
    Partition,
    /// It has the row whose key the bound is.
    Row,
    /// What it has next is here or behind.
    Behind(Vec<u8>),
    /// It has nothing from there on.
    Nothing,
}

/// A cursor over the entries of one term in one source.
struct TermCursor {
    source: EntrySource,
    /// What all entries of the term begin with.
    term: Vec<u8>,
    is_placed: bool,
}

impl TermCursor {
    /// The full key of the entry; `None` behind the last.
    fn key(&self) -> Option<&[u8]> {
        self.source.entry()?.strip_prefix(self.term.as_slice())
    }

    /// Moves forwards to the first key at or behind a bound. Returns the work.
    fn go_to(&mut self, bound: &[u8]) -> Result<u64, TableError> {
        if !self.is_placed {
            self.is_placed = true;
            return self.source.seek(&[&self.term, bound].concat());
        }
        match self.key() {
            Some(key) if key < bound => self.source.go_to(&[&self.term, bound].concat()),
            _ => Ok(0),
        }
    }
}

/// A walk over the keys of a restriction. It goes forwards only.
pub(super) struct OrderedKeys {
    cursors: Vec<TermCursor>,
    /// The prefix of the partition of the last bound, and whether the restriction has all of it.
    partition: Vec<u8>,
    has_partition: bool,
}

impl OrderedKeys {
    /// The walk over entries that begin with these starts of terms, each with cursors of its own.
    pub fn new(terms: impl Iterator<Item = (Vec<u8>, Vec<EntrySource>)>) -> Self {
        let of_term = |(term, sources): (Vec<u8>, Vec<EntrySource>)| {
            sources.into_iter().map(move |source| TermCursor { source, term: term.clone(), is_placed: false })
        };
        Self { cursors: terms.flat_map(of_term).collect(), partition: Vec::new(), has_partition: false }
    }

    /// What the restriction has at a bound, which never goes backwards. Adds to the work.
    pub fn cover(&mut self, bound: &[u8], work: &mut TurnWork) -> Result<Cover, EngineError> {
        if let Some(prefix) = partition_of(bound) {
            if self.partition != prefix {
                let whole = [prefix, STATIC_POSITION].concat();
                work.add_units(self.go_to(&whole)?);
                self.has_partition = self.first()? == Some(&whole);
                // Only now: what was not cached is looked for again.
                self.partition.clear();
                self.partition.extend_from_slice(prefix);
            }
            if self.has_partition {
                return Ok(Cover::Partition);
            }
        }
        work.add_units(self.go_to(bound)? + 1);
        Ok(match self.first()? {
            None => Cover::Nothing,
            Some(key) if key == bound => Cover::Row,
            Some(key) => Cover::Behind(key.to_vec()),
        })
    }

    /// Moves all cursors to a bound, also after a miss, so that what they miss is fetched at once.
    pub fn go_to(&mut self, bound: &[u8]) -> Result<u64, TableError> {
        move_all(&mut self.cursors, |cursor| cursor.go_to(bound))
    }

    fn first(&self) -> Result<Option<&[u8]>, EngineError> {
        let keyed = self.cursors.iter().filter_map(|cursor| Some((cursor.key()?, cursor)));
        let Some((key, cursor)) = keyed.min_by_key(|(key, _)| *key) else { return Ok(None) };
        if prefix_length(key).is_none() {
            return Err(cursor.source.malformed());
        }
        Ok(Some(key))
    }
}
