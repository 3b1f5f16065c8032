//! The registers of partitions in the engine: one table beside all others, in which the state of a partition has the
//! partition's token and key, so that it moves with the partition when ranges change owners.
//!
//! ```text
//! position := 0x02 | 0x01 | id of the partition's table (16 bytes)
//! columns:   1  promised            ballot
//!            2  promised to writes  ballot
//!            3  accepted            ballot | 0 (a mutation) or 1 (nothing) | origin | trail | mutation
//!                                   ballot | 2: what was accepted up to this ballot is committed
//!            4  committed           ballot | origin | trail | mutation
//!            5  low bound           ballot
//! trail   := bound in microseconds (8 bytes, big endian) | number (1 byte) | origins (ballots)
//! ```
//!
//! Invariants:
//! * A cell's timestamp is the microseconds of its ballot, and its value begins with the ballot, whose encoding sorts
//!   like ballots: of two states the engine keeps the higher of each register, in whatever order they are written. So
//!   a commit can be recorded without a read, and the states of two replicas merge.
//! * A node that streams a range sends this table *before* the tables that it describes: state may be older than the
//!   data, never newer (a replica must not claim a commit whose data it lacks).
//! * Forgotten state is deleted by a row deletion with the microseconds of the settled ballot. The low bound is one
//!   above, and expires.

use std::ops::RangeInclusive;

use helenus_engine::error::EngineError;
use helenus_engine::key::{self, REGULAR_TAG};
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{
    Cell, CellKind, Deletion, Dropped, Expiry, LogPosition, Mutation, MutationBuilder, MutationRef,
    Operation, RowBuilder, RowRef, Shard, TableId, TableOptions, TableStatistics,
};

use super::ballot::Ballot;
use super::message::PartitionName;
use super::state::{Accepted, Commit, Proposal, Registers, Trail};

/// The engine's id of the table.
pub const TABLE: TableId = TableId(*b"helenus-paxos---");

const PROMISED: u32 = 1;
const PROMISED_WRITE: u32 = 2;
const ACCEPTED: u32 = 3;
const COMMITTED: u32 = 4;
const LOW_BOUND: u32 = 5;

const MUTATION: u8 = 0;
const NOTHING: u8 = 1;
const RESOLVED: u8 = 2;

/// Precedes the table id in a position: components of positions begin with neither 0x00 nor 0xFF.
const TABLE_TAG: u8 = 1;

/// The registers of a partition without transactions.
const NOTHING_KNOWN: Registers = Registers {
    promised: None,
    promised_write: None,
    accepted: None,
    committed: None,
    low_bound_micros: i64::MIN,
};

/// The engine options of the table.
pub fn table_options() -> TableOptions {
    // A tombstone only has to delete state of this replica; the other replicas have settled theirs.
    TableOptions { gc_grace_seconds: 3_600, ..TableOptions::default() }
}

/// Whether any state of a transaction was ever stored: false on a node that has always been a single node.
pub fn has_state(shard: &Shard) -> bool {
    shard.statistics(TABLE).is_ok_and(|statistics| statistics != TableStatistics::default())
}

/// Removes the state of all partitions of these tables in the ranges, as if there had never been one. It leaves no tombstones: state
/// that comes with the ranges later may be older. What is still in memory stays: flush before. Only for ranges of which this node is
/// no replica.
pub async fn discard(
    shard: &Shard,
    tables: &[TableId],
    ranges: &[RangeInclusive<i64>],
) -> Result<Dropped, EngineError> {
    if tables.is_empty() || ranges.is_empty() || !has_state(shard) {
        return Ok(Dropped::default());
    }
    let positions = tables.iter().map(|table| position_of(table.0)).collect();
    shard.drop_rows_at(TABLE, ranges, positions).await
}

/// The reason why state could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the state of a partition's transactions is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Key(#[from] key::PartitionKeyTooLong),
}

/// The registers of a partition that a message has changed.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    Promise { is_write: bool },
    Accept,
}

fn position_of(table_id: [u8; 16]) -> Vec<u8> {
    let mut position = vec![REGULAR_TAG, TABLE_TAG];
    position.extend_from_slice(&table_id);
    position
}

/// Reads a partition's registers; they are empty for a partition without transactions.
pub fn load(shard: &Shard, name: &PartitionName) -> Result<Registers, StoreError> {
    let start = key::full_key(name.token, &name.key, &position_of(name.table_id))?;
    let end = key::behind(&start);
    let mut scan = shard.scan(&ScanRequest {
        table: TABLE,
        start: &start,
        end: &end,
        reversed: false,
        now_seconds: 0,
        budget: Budget::UNLIMITED,
    })?;
    match scan.next()? {
        Step::Row(view) => decode(view.row),
        Step::Exhausted | Step::End => Ok(NOTHING_KNOWN),
    }
}

/// Decodes registers from their row.
fn decode(row: RowRef<'_>) -> Result<Registers, StoreError> {
    let mut registers = NOTHING_KNOWN;
    for cell in row.cells() {
        // A low bound that has expired loses its value when its file is rewritten.
        if cell.column == LOW_BOUND && cell.value.is_empty() {
            continue;
        }
        let (ballot, rest) = Ballot::decode(cell.value).ok_or(StoreError::Damaged("a ballot"))?;
        match cell.column {
            PROMISED => registers.promised = Some(ballot),
            PROMISED_WRITE => registers.promised_write = Some(ballot),
            ACCEPTED => registers.accepted = decode_accepted(ballot, rest)?,
            COMMITTED => {
                let (origin, rest) = Ballot::decode(rest).ok_or(StoreError::Damaged("a commit"))?;
                let (trail, mutation) = decode_trail(rest).ok_or(StoreError::Damaged("a commit"))?;
                registers.committed = Some(Commit { ballot, origin, mutation: mutation.to_vec(), trail });
            }
            LOW_BOUND => registers.low_bound_micros = ballot.micros,
            // Possibly a promise of a newer program: it must not be passed over.
            _ => return Err(StoreError::Damaged("an unknown register")),
        }
    }
    Ok(registers)
}

fn decode_accepted(ballot: Ballot, rest: &[u8]) -> Result<Option<Accepted>, StoreError> {
    let (&kind, rest) = rest.split_first().ok_or(StoreError::Damaged("a proposal"))?;
    if kind == RESOLVED {
        return Ok(None);
    }
    let (origin, rest) = Ballot::decode(rest).ok_or(StoreError::Damaged("a proposal"))?;
    let (trail, mutation) = decode_trail(rest).ok_or(StoreError::Damaged("a proposal"))?;
    let mutation = match kind {
        MUTATION => Some(mutation.to_vec()),
        NOTHING => None,
        _ => return Err(StoreError::Damaged("a kind of proposal")),
    };
    Ok(Some(Accepted { ballot, proposal: Proposal { origin, mutation, trail } }))
}

const _: () = assert!(Trail::MAX <= u8::MAX as usize, "the number of origins is stored in one byte");

fn encode_trail(trail: &Trail, out: &mut Vec<u8>) {
    out.extend_from_slice(&trail.complete_above_micros.to_be_bytes());
    // More may come in a message of another node; the rest is unknown then.
    let origins = trail.origins.get(..Trail::MAX).unwrap_or(&trail.origins);
    out.push(origins.len() as u8);
    for origin in origins {
        origin.encode(out);
    }
}

fn decode_trail(bytes: &[u8]) -> Option<(Trail, &[u8])> {
    let (micros, rest) = bytes.split_first_chunk::<8>()?;
    let (&count, mut rest) = rest.split_first()?;
    let mut trail = Trail { origins: Vec::new(), complete_above_micros: i64::from_be_bytes(*micros) };
    for _ in 0..count {
        let (origin, after) = Ballot::decode(rest)?;
        trail.origins.push(origin);
        rest = after;
    }
    Some((trail, rest))
}

/// Writes the changed registers. Buffered: they are durable when the log is synced up to the position.
pub fn save(
    shard: &Shard,
    name: &PartitionName,
    registers: &Registers,
    change: Change,
) -> Result<LogPosition, StoreError> {
    let mut row = RowBuilder::new();
    let mut value = Vec::new();
    match change {
        Change::Promise { is_write } => {
            if let Some(ballot) = &registers.promised {
                ballot.encode(&mut value);
                put(&mut row, PROMISED, ballot, &value);
                if is_write {
                    put(&mut row, PROMISED_WRITE, ballot, &value);
                }
            }
        }
        Change::Accept => {
            if let Some(Accepted { ballot, proposal }) = &registers.accepted {
                ballot.encode(&mut value);
                value.push(if proposal.mutation.is_some() { MUTATION } else { NOTHING });
                proposal.origin.encode(&mut value);
                encode_trail(&proposal.trail, &mut value);
                value.extend_from_slice(proposal.mutation.as_deref().unwrap_or_default());
                put(&mut row, ACCEPTED, ballot, &value);
            }
        }
    }
    write(shard, name, &mut row)
}

/// Records a commit, without a read.
pub fn save_commit(shard: &Shard, name: &PartitionName, commit: &Commit) -> Result<LogPosition, StoreError> {
    let mut row = RowBuilder::new();
    let mut resolved = Vec::new();
    commit.ballot.encode(&mut resolved);
    let mut committed = resolved.clone();
    resolved.push(RESOLVED);
    commit.origin.encode(&mut committed);
    encode_trail(&commit.trail, &mut committed);
    committed.extend_from_slice(&commit.mutation);
    put(&mut row, ACCEPTED, &commit.ballot, &resolved);
    put(&mut row, COMMITTED, &commit.ballot, &committed);
    write(shard, name, &mut row)
}

fn put(row: &mut RowBuilder, column: u32, ballot: &Ballot, value: &[u8]) {
    row.cell(Cell { column, path: &[], timestamp: ballot.micros, kind: CellKind::Live, value });
}

fn write(shard: &Shard, name: &PartitionName, row: &mut RowBuilder) -> Result<LogPosition, StoreError> {
    let mut builder = MutationBuilder::new(TABLE, name.token, &name.key)?;
    builder.row(&position_of(name.table_id), row);
    let mutation = builder.build();
    let view = mutation.view().map_err(EngineError::Mutation)?;
    Ok(shard.apply(&view)?)
}

/// Forgets state that is not above a ballot settled by all replicas, and keeps only that bound, for `kept_seconds`.
pub fn forget(
    shard: &Shard,
    name: &PartitionName,
    settled: &Ballot,
    now_seconds: u32,
    kept_seconds: u32,
) -> Result<LogPosition, StoreError> {
    let mut row = RowBuilder::new();
    row.set_deletion(Deletion { timestamp: settled.micros, local_deletion_time: now_seconds });
    let mut value = Vec::new();
    settled.encode(&mut value);
    let expiry = Expiry { ttl: kept_seconds, expires_at: now_seconds.saturating_add(kept_seconds) };
    let timestamp = settled.micros.saturating_add(1);
    row.cell(Cell {
        column: LOW_BOUND,
        path: &[],
        timestamp,
        kind: CellKind::Expiring(expiry),
        value: &value,
    });
    write(shard, name, &mut row)
}

/// Removes the state of a table that was dropped.
pub fn remove(shard: &Shard, name: &PartitionName, now_seconds: u32) -> Result<LogPosition, StoreError> {
    let mut row = RowBuilder::new();
    row.set_deletion(Deletion { timestamp: i64::MAX - 1, local_deletion_time: now_seconds });
    write(shard, name, &mut row)
}

/// A part of the table, in its order.
pub struct Part {
    pub states: Vec<(PartitionName, Registers)>,
    /// Where the next part begins; `None`: this is the last one.
    pub resume: Option<Vec<u8>>,
}

/// The budget of one part.
const PART_BUDGET: Budget = Budget { bytes: 4 << 20, tombstones: 10_000 };

/// Reads a part of the table from this full key on, of at most `rows` rows.
pub fn load_part(shard: &Shard, start: &[u8], rows: usize) -> Result<Part, StoreError> {
    let mut scan = shard.scan(&ScanRequest {
        table: TABLE,
        start,
        end: &[0xFF; 9],
        reversed: false,
        now_seconds: 0,
        budget: PART_BUDGET,
    })?;
    let mut states = Vec::new();
    loop {
        let view = match scan.next()? {
            Step::Row(view) if states.len() >= rows => {
                return Ok(Part { states, resume: Some(view.key.to_vec()) });
            }
            Step::Row(view) => view,
            Step::Exhausted => return Ok(Part { states, resume: scan.resume_bound()? }),
            Step::End => return Ok(Part { states, resume: None }),
        };
        let table_id = table_of(view.position).ok_or(StoreError::Damaged("the position of a state"))?;
        let name = PartitionName { table_id, token: view.token, key: view.partition_key.to_vec() };
        states.push((name, decode(view.row)?));
    }
}

/// The table that a state belongs to.
pub fn table_of(position: &[u8]) -> Option<[u8; 16]> {
    position.strip_prefix(&[REGULAR_TAG, TABLE_TAG])?.try_into().ok()
}

/// The agreed mutations of the partitions of which this mutation of [`TABLE`] has just brought state from another replica, each with its
/// origin. The state says that this replica knows the commits: it must have what they wrote, too.
pub fn known_commits(
    shard: &Shard,
    streamed: &MutationRef<'_>,
) -> Result<Vec<(Ballot, Mutation)>, StoreError> {
    let mut commits = Vec::new();
    for operation in streamed.operations() {
        let Ok(Operation::Row { position, .. }) = operation else { continue };
        let table_id = table_of(position).ok_or(StoreError::Damaged("the position of a state"))?;
        let key = streamed.partition_key.to_vec();
        let registers = load(shard, &PartitionName { table_id, token: streamed.token, key })?;
        if let Some(commit) = registers.committed {
            let mutation = Mutation::from_bytes(commit.mutation.into());
            let mutation = mutation.map_err(|_| StoreError::Damaged("the mutation of a commit"))?;
            commits.push((commit.origin, mutation));
        }
    }
    Ok(commits)
}
