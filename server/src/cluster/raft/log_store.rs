//! The metadata log on disk: an engine table of the first shard, so that an entry is as durable as any write.
//!
//! All rows are in one partition, which no client ever reads:
//!
//! ```text
//! position                                   value
//! 'e' | index (u64) | part (u32)             number of parts (u32) | a part of the entry (JSON)
//! 'h'                                        the last entry that was purged (JSON)
//! 'v'                                        the vote (JSON)
//! ```
//!
//! Invariants:
//! * Each write uses the number after that of the write before it as the timestamp of all its cells and deletions. So
//!   entries that are written where others were truncated are not hidden by the truncation, whatever the clock shows.
//!   The next start finds the highest number again: a write that only deletes also writes the head row.
//! * Acknowledged writes are on disk, in every sync mode of the commit log.
//! * Entries are also in memory (the log is short: it is purged after each snapshot), and only memory is read.
//! * An entry with missing parts was never acknowledged: a crash has cut the log inside of it, and it is dropped. A crash cuts off the
//!   end only. Entries that are missing elsewhere (before the first one, or with complete ones behind them) are lost, which is an
//!   error.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::rc::Rc;

use helenus_engine::commit_log::LogPosition;
use helenus_engine::error::EngineError;
use helenus_engine::io::Clock;
use helenus_engine::key::REGULAR_TAG;
use helenus_engine::read::Budget;
use helenus_engine::{Deletion, Shard, TableId, TableOptions};
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};

use super::types::{Entry, LogId, MetadataTypes, Vote};
use helenus_execution::shard::private_table::{PrivateRange, PrivateTable};

/// The table of the metadata log.
pub const TABLE: PrivateTable = PrivateTable(TableId(*b"helenus-metadata"));

/// The engine options of the table.
pub fn table_options() -> TableOptions {
    // Only this shard writes the table, in order, so nothing can bring back data that a tombstone hides.
    TableOptions { gc_grace_seconds: 0, ..TableOptions::default() }
}

/// The position of a row and the value of its one cell.
type PositionedValue = (Vec<u8>, Vec<u8>);
const PARTITION: &[u8] = b"log";
/// Size of a part of an entry, in bytes. A part fits into a mutation however small the segments of the commit log
/// are.
const PART_BYTES: usize = 16 << 10;

const ENTRY: u8 = b'e';
const HEAD: u8 = b'h';
const VOTE: u8 = b'v';

/// The log of this node. Clones share it.
#[derive(Clone)]
pub struct LogStore {
    shard: Rc<Shard>,
    clock: Rc<dyn Clock>,
    log: Rc<RefCell<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    entries: BTreeMap<u64, Entry>,
    vote: Option<Vote>,
    purged: Option<LogId>,
    /// Number of the last write.
    number: i64,
    /// The highest index with any part on disk, as found at the start.
    last_found: Option<u64>,
    /// The reason why a write failed. After that the content on disk is unknown, and nothing is read from here.
    failure: Option<String>,
}

/// The content of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogExtent {
    /// The last entry that was purged.
    pub purged: Option<LogId>,
    /// There are neither entries nor a vote.
    pub is_empty: bool,
}

/// An entry that is being assembled from its parts.
#[derive(Debug, Default)]
struct Parts {
    index: u64,
    expected: u32,
    found: u32,
    bytes: Vec<u8>,
}

impl LogStore {
    /// Reads the log of a shard whose engine has the [`TABLE`].
    pub async fn open(shard: Rc<Shard>, clock: Rc<dyn Clock>) -> Result<Self, io::Error> {
        let mut log = Log::default();
        {
            let mut parts = Parts::default();
            let rows = PrivateRange::partition(PARTITION);
            let scan = TABLE.scan(&shard, &rows, clock.now_seconds(), Budget::UNLIMITED);
            let mut scan = scan.map_err(failed)?;
            while let Some(row) = scan.next().map_err(failed)? {
                log.number = log.number.max(row.timestamp);
                log.take(row.position, row.value, &mut parts)?;
            }
        }
        let cut_off = log.check_entries()?;
        let purged = log.purged;
        let store = Self { shard, clock, log: Rc::new(RefCell::new(log)) };
        if let Some(first) = cut_off {
            // Its parts must not be mixed with those of a later entry.
            store.delete_entries(entry_position(first), vec![REGULAR_TAG, ENTRY + 1], purged, |_| {}).await?;
        }
        Ok(store)
    }

    pub fn extent(&self) -> LogExtent {
        let log = self.log.borrow();
        LogExtent { purged: log.purged, is_empty: log.entries.is_empty() && log.vote.is_none() }
    }

    /// Deletes the rows of entries from one position up to another.
    async fn delete_entries(
        &self,
        start: Vec<u8>,
        end: Vec<u8>,
        purged: Option<LogId>,
        change: impl FnOnce(&mut Log),
    ) -> Result<(), io::Error> {
        // Without a row beside it the deletion would leave no trace of its number.
        let head = (vec![REGULAR_TAG, HEAD], serde_json::to_vec(&purged)?);
        self.write(vec![head], Some((start, end)), change).await
    }

    /// Writes rows and deletions with the next number, and waits until they are on disk. `change` is applied in
    /// memory in the same turn as the (last) write.
    async fn write(
        &self,
        rows: Vec<PositionedValue>,
        deleted: Option<(Vec<u8>, Vec<u8>)>,
        change: impl FnOnce(&mut Log),
    ) -> Result<(), io::Error> {
        let written = async {
            // Writes of this log are small, and wait on a full disk. An error would end this node's participation in the log for good.
            self.shard.admit_essential().await.map_err(failed)?;
            match self.write_in_turn(rows, deleted.as_ref(), change)? {
                Some(position) => self.shard.on_disk(position).await.map_err(failed),
                None => Ok(()),
            }
        };
        let written = written.await;
        if let Err(error) = &written {
            self.log.borrow_mut().failure.get_or_insert_with(|| error.to_string());
        }
        written
    }

    /// The part of [`Self::write`] that happens in one turn. Returns the position that must be on disk.
    fn write_in_turn(
        &self,
        rows: Vec<PositionedValue>,
        deleted: Option<&(Vec<u8>, Vec<u8>)>,
        change: impl FnOnce(&mut Log),
    ) -> Result<Option<LogPosition>, io::Error> {
        let mut log = self.log.borrow_mut();
        log.number += 1;
        let timestamp = log.number;
        let mut part = TABLE.change(PARTITION);
        if let Some((start, end)) = deleted {
            let local_deletion_time = self.clock.now_seconds();
            part.delete_range(start, end, Deletion { timestamp, local_deletion_time });
        }
        let mut bytes = 0;
        let mut last: Option<LogPosition> = None;
        for (position, value) in rows {
            if bytes > 0 && bytes + value.len() > PART_BYTES {
                let full = std::mem::replace(&mut part, TABLE.change(PARTITION));
                last = Some(full.apply(&self.shard).map_err(failed)?);
                bytes = 0;
            }
            bytes += value.len();
            part.put(&position, timestamp, &value);
        }
        if !part.is_empty() {
            last = Some(part.apply(&self.shard).map_err(failed)?);
        }
        change(&mut log);
        Ok(last)
    }
}

impl Log {
    fn take(&mut self, position: &[u8], value: &[u8], parts: &mut Parts) -> Result<(), io::Error> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the metadata log is damaged");
        match position {
            [REGULAR_TAG, HEAD] => self.purged = serde_json::from_slice(value)?,
            [REGULAR_TAG, VOTE] => self.vote = Some(serde_json::from_slice(value)?),
            [REGULAR_TAG, ENTRY, rest @ ..] => {
                let (index, part) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
                let index = u64::from_be_bytes(*index);
                self.last_found = Some(index);
                let part = u32::from_be_bytes(part.try_into().map_err(|_| damaged())?);
                let (expected, bytes) = value.split_first_chunk::<4>().ok_or_else(damaged)?;
                if part == 0 {
                    *parts = Parts { index, expected: u32::from_be_bytes(*expected), ..Parts::default() };
                }
                if (parts.index, parts.found) != (index, part) {
                    return Ok(());
                }
                parts.found += 1;
                parts.bytes.extend_from_slice(bytes);
                if parts.found == parts.expected {
                    self.entries.insert(index, serde_json::from_slice(&parts.bytes)?);
                }
            }
            _ => return Err(damaged()),
        }
        Ok(())
    }

    /// Checks that no entry is missing. Returns the index of the entry of which a crash has kept only a part.
    fn check_entries(&self) -> Result<Option<u64>, io::Error> {
        let begin = self.purged.as_ref().map_or(0, |purged| purged.index() + 1);
        let mut next = begin;
        for index in self.entries.keys() {
            if *index != next {
                return Err(lost(next, *index));
            }
            next += 1;
        }
        match self.last_found {
            Some(last) if last > next => Err(lost(next, last)),
            found => Ok(found.filter(|last| *last == next)),
        }
    }
}

fn lost(first: u64, found: u64) -> io::Error {
    let message =
        format!("the metadata log has lost entries: number {first} is missing, and number {found} is there");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn failed(error: EngineError) -> io::Error {
    io::Error::other(error)
}

/// The position at which the rows of an entry begin.
fn entry_position(index: u64) -> Vec<u8> {
    let mut position = vec![REGULAR_TAG, ENTRY];
    position.extend_from_slice(&index.to_be_bytes());
    position
}

/// The rows of an entry.
fn entry_rows(entry: &Entry) -> Result<Vec<PositionedValue>, io::Error> {
    let bytes = serde_json::to_vec(entry)?;
    let parts = bytes.chunks(PART_BYTES);
    let count = (parts.len() as u32).to_be_bytes();
    let row = |(part, bytes): (usize, &[u8])| {
        let mut position = entry_position(entry.index());
        position.extend_from_slice(&(part as u32).to_be_bytes());
        (position, [&count, bytes].concat())
    };
    Ok(parts.enumerate().map(row).collect())
}

impl RaftLogReader<MetadataTypes> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let log = self.log.borrow();
        if let Some(failure) = &log.failure {
            return Err(io::Error::other(format!(
                "the metadata log cannot be read after a failed write: {failure}"
            )));
        }
        let wanted = log.entries.iter().filter(|(index, _)| range.contains(index));
        Ok(wanted.map(|(_, entry)| entry.clone()).collect())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.log.borrow().vote)
    }
}

impl RaftLogStorage<MetadataTypes> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<MetadataTypes>, io::Error> {
        let log = self.log.borrow();
        let last = log.entries.values().next_back().map(RaftEntry::log_id);
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: last.or(log.purged) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let row = (vec![REGULAR_TAG, VOTE], serde_json::to_vec(vote)?);
        self.write(vec![row], None, |log| log.vote = Some(*vote)).await
    }

    async fn append<I: IntoIterator<Item = Entry>>(
        &mut self,
        entries: I,
        callback: IOFlushed<MetadataTypes>,
    ) -> Result<(), io::Error> {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let mut rows = Vec::with_capacity(entries.len());
        for entry in &entries {
            rows.extend(entry_rows(entry)?);
        }
        let appended = self.write(rows, None, |log| {
            log.entries.extend(entries.into_iter().map(|entry| (entry.index(), entry)));
        });
        callback.io_completed(appended.await);
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let first_gone = last.map_or(0, |last| last.index() + 1);
        let purged = self.log.borrow().purged;
        let end = vec![REGULAR_TAG, ENTRY + 1];
        self.delete_entries(entry_position(first_gone), end, purged, |log| {
            log.entries.split_off(&first_gone);
        })
        .await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let first_kept = log_id.index() + 1;
        let start = vec![REGULAR_TAG, ENTRY];
        self.delete_entries(start, entry_position(first_kept), Some(log_id), |log| {
            log.entries = log.entries.split_off(&first_kept);
            log.purged = Some(log_id);
        })
        .await
    }
}

#[cfg(test)]
mod tests;
