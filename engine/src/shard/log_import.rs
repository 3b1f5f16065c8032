//! Import of archived logs: the records of chosen tables and times become sources of an import, a segment at a time.
//!
//! Invariants:
//! * A mutation is taken whole or not at all: by its newest timestamp, deletions included.
//! * The segments of one log are read in their order, without a gap.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;

use super::import::{ImportSource, Rows};
use super::state::Shard;
use crate::commit_log::{ArchiveReader, ArchivedLog, ArchivedSegment, LogPosition};
use crate::error::EngineError;
use crate::invariant::broken;
use crate::io::{JobKind, run_in_background};
use crate::memtable::{Memtable, SharedMemtable};
use crate::mutation::{MutationRef, TableId, WRITE_BYTES_MAX};

/// The memtables of a part take at most this and the last record.
const PART_BYTES: usize = 32 << 20;

/// The records that are wanted of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSelection {
    pub tables: BTreeSet<TableId>,
    /// Of a mutation's newest timestamp, in microseconds.
    pub timestamps: RangeInclusive<i64>,
    /// Whether the records are counted alone, and no sources made of them.
    pub only_counts: bool,
}

/// An archived log that is being read.
pub struct LogImport {
    segments: VecDeque<ArchivedSegment>,
    /// The records of the segment that was read last and that are not taken yet, in order.
    records: VecDeque<(LogPosition, Bytes)>,
    /// Lent to the job that reads; `None` after an error.
    reader: Option<ArchiveReader>,
}

/// A part of a log.
#[derive(Debug, Default)]
pub struct LogPart {
    /// Of each table in the order of the log.
    pub sources: Vec<(TableId, ImportSource)>,
    pub mutation_counts: BTreeMap<TableId, u64>,
    /// Other tables that the part has records of.
    pub others: BTreeSet<TableId>,
    /// Whether it is the last part of a segment.
    pub ends_segment: bool,
}

/// The memtables of records, and what was left out.
#[derive(Default)]
struct Selected {
    memtables: BTreeMap<TableId, Vec<Memtable>>,
    mutation_counts: BTreeMap<TableId, u64>,
    others: BTreeSet<TableId>,
}

impl Shard {
    /// Ends the log's present segment and returns when the archive has all of them. Without an archive it does nothing.
    pub async fn archive_log(&self) -> Result<(), EngineError> {
        Ok(self.log.archive_all().await?)
    }

    /// Complete segments of the log that wait for their copies in the archive.
    pub fn unarchived_log_segments(&self) -> usize {
        self.log.unarchived_segments()
    }

    /// The archived logs at and below `root`, by path.
    pub async fn find_archived_logs(&self, root: &Path) -> Result<Vec<ArchivedLog>, EngineError> {
        let found = self.files_below(root).await?.into_iter().filter_map(|(directory, names)| {
            let mut segments: Vec<_> = names.iter().filter_map(|name| ArchivedSegment::parse(name)).collect();
            segments.sort_unstable();
            (!segments.is_empty()).then_some(ArchivedLog { directory, segments })
        });
        Ok(found.collect())
    }

    /// Begins to read an archived log. An error if one of its segments is missing or there twice.
    pub fn open_archived_log(&self, log: &ArchivedLog) -> Result<LogImport, EngineError> {
        let reader = ArchiveReader::new(log)?;
        Ok(LogImport {
            segments: log.segments.iter().cloned().collect(),
            records: VecDeque::new(),
            reader: Some(reader),
        })
    }

    /// Reads the next part of a log, away from the shard's thread; `None` behind the last one. It must not be called again after an error.
    pub async fn next_of_log(
        &self,
        log: &mut LogImport,
        selection: &LogSelection,
    ) -> Result<Option<LogPart>, EngineError> {
        self.check_open()?;
        let segment = if log.records.is_empty() { log.segments.pop_front() } else { None };
        if segment.is_none() && log.records.is_empty() {
            return Ok(None);
        }
        let reader = log.reader.take();
        let mut reader = reader.ok_or_else(|| broken!("a log is not read on after an error"))?;
        let (selection, mut records) = (selection.clone(), std::mem::take(&mut log.records));
        let read = run_in_background(&*self.environment.background, JobKind::Short, move |context| {
            Box::pin(async move {
                if let Some(segment) = segment {
                    let bytes = context.disk.read(&reader.path(&segment)).await?;
                    records = reader.read(&segment, &bytes)?.into();
                }
                let selected = select(&mut records, &selection)?;
                let frozen = selected.memtables.into_iter().flat_map(|(table, memtables)| {
                    memtables.into_iter().map(move |memtable| {
                        let shared = SharedMemtable::from(memtable);
                        // The shard's thread does not sort it later.
                        shared.freeze().settle_order();
                        (table, shared)
                    })
                });
                let frozen: Vec<_> = frozen.collect();
                Ok::<_, EngineError>((reader, records, frozen, selected.mutation_counts, selected.others))
            })
        });
        let (reader, records, frozen, mutation_counts, others) = read.await??;
        (log.reader, log.records) = (Some(reader), records);
        let source = |(table, memtable)| (table, ImportSource(Rows::Log(Rc::new(memtable))));
        Ok(Some(LogPart {
            sources: frozen.into_iter().map(source).collect(),
            mutation_counts,
            others,
            ends_segment: log.records.is_empty(),
        }))
    }
}

/// Takes records until their memtables are large.
fn select(
    records: &mut VecDeque<(LogPosition, Bytes)>,
    selection: &LogSelection,
) -> Result<Selected, EngineError> {
    let mut selected = Selected::default();
    let mut bytes = 0;
    while bytes < PART_BYTES
        && let Some((_, record)) = records.pop_front()
    {
        for part in MutationRef::parse(&record).map_err(EngineError::Mutation)?.parts() {
            let mutation = part.map_err(EngineError::Mutation)?;
            if !selection.tables.contains(&mutation.table) {
                selected.others.insert(mutation.table);
                continue;
            }
            let valid = mutation.validate().map_err(EngineError::Mutation)?;
            let newest = valid.timestamps().newest();
            if !newest.is_some_and(|newest| selection.timestamps.contains(&newest)) {
                continue;
            }
            *selected.mutation_counts.entry(mutation.table).or_default() += 1;
            if selection.only_counts {
                continue;
            }
            let memtables = selected.memtables.entry(mutation.table).or_default();
            let has_room = |memtable: &Memtable| !memtable.outgrows(&valid, WRITE_BYTES_MAX);
            bytes += if let Some(memtable) = memtables.last_mut().filter(|memtable| has_room(memtable)) {
                memtable.apply::<false>(&valid, None)?
            } else {
                let mut memtable = Memtable::default();
                let grown = memtable.apply::<false>(&valid, None)?;
                memtables.push(memtable);
                grown
            };
        }
    }
    Ok(selected)
}
