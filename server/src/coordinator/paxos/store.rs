//! The registers of partitions in the engine: one table beside all others, in which a partition's state has the token and the
//! key of the partition, so that it goes where the partition goes when ranges change owners.
//!
//! ```text
//! position := 0x02 | 0x01 | id of the partition's table (16 bytes)
//! columns:   1  promised            ballot
//!            2  promised to writes  ballot
//!            3  accepted            ballot | 0 (a mutation) or 1 (nothing) | origin | mutation
//!                                   ballot | 2: what was accepted up to this ballot is committed
//!            4  committed           ballot | origin | mutation
//! ```
//!
//! Invariants:
//! * A cell's timestamp is its ballot's microseconds and its value begins with the ballot, which encodes in the order of
//!   ballots: of two states the engine keeps the higher of each register, whatever order they are written in. A commit
//!   can therefore be noted without looking, and the states of two replicas merge.
//! * Whoever streams a range hands this table over *before* the tables it is about: state may be older than the data, never
//!   newer (a replica must not claim a commit whose data it has not got).
//! * The floors below which state was forgotten are rows of a partition that has the one token which data never has.

use std::collections::BTreeMap;

use helenus_engine::error::EngineError;
use helenus_engine::key::{self, REGULAR_END, REGULAR_START, REGULAR_TAG};
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{
    Cell, CellKind, LogPosition, MutationBuilder, RowBuilder, RowRef, Shard, TableId, TableOptions,
    TableStatistics,
};

use super::ballot::Ballot;
use super::message::PartitionName;
use super::state::{Accepted, Commit, Proposal, Registers};

/// The engine's id of the table.
pub const TABLE: TableId = TableId(*b"helenus-paxos---");

const PROMISED: u32 = 1;
const PROMISED_WRITE: u32 = 2;
const ACCEPTED: u32 = 3;
const COMMITTED: u32 = 4;

const MUTATION: u8 = 0;
const NOTHING: u8 = 1;
const RESOLVED: u8 = 2;

/// Before the table id in a position: components of positions begin with neither 0x00 nor 0xFF.
const TABLE_TAG: u8 = 1;
const LOW_BOUNDS_TOKEN: i64 = i64::MIN;
const LOW_BOUNDS_KEY: &[u8] = b"low bounds";

/// The settings of the table.
pub fn table_options() -> TableOptions {
    TableOptions::default()
}

/// Whether anything was ever stored about a transaction: false on a node that has always been alone.
pub fn has_state(shard: &Shard) -> bool {
    shard.statistics(TABLE).is_ok_and(|statistics| statistics != TableStatistics::default())
}

/// Why a state could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("the state of a partition's transactions is damaged: {0}")]
    Damaged(&'static str),
    #[error(transparent)]
    Key(#[from] key::PartitionKeyTooLong),
}

/// Of one partition: which registers a change has touched.
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

/// Reads a partition's registers; those of a partition without transactions are empty.
pub fn load(shard: &Shard, name: &PartitionName, low_bound_micros: i64) -> Result<Registers, StoreError> {
    let start = key::full_key(name.token, &name.key, &position_of(name.table_id))?;
    let mut end = start.clone();
    end.push(0);
    let mut scan = shard.scan(&ScanRequest {
        table: TABLE,
        start: &start,
        end: &end,
        reversed: false,
        now_seconds: 0,
        budget: Budget::UNLIMITED,
    })?;
    match scan.next()? {
        Step::Row(view) => decode(view.row, low_bound_micros),
        Step::Exhausted | Step::End => Ok(Registers { low_bound_micros, ..Registers::default() }),
    }
}

/// Registers from the row that keeps them.
pub fn decode(row: RowRef<'_>, low_bound_micros: i64) -> Result<Registers, StoreError> {
    let mut registers = Registers { low_bound_micros, ..Registers::default() };
    for cell in row.cells() {
        let (ballot, rest) = Ballot::decode(cell.value).ok_or(StoreError::Damaged("a ballot"))?;
        match cell.column {
            PROMISED => registers.promised = Some(ballot),
            PROMISED_WRITE => registers.promised_write = Some(ballot),
            ACCEPTED => registers.accepted = decode_accepted(ballot, rest)?,
            COMMITTED => {
                let (origin, mutation) = Ballot::decode(rest).ok_or(StoreError::Damaged("a commit"))?;
                registers.committed = Some(Commit { ballot, origin, mutation: mutation.to_vec() });
            }
            _ => {}
        }
    }
    Ok(registers)
}

fn decode_accepted(ballot: Ballot, rest: &[u8]) -> Result<Option<Accepted>, StoreError> {
    let (&kind, rest) = rest.split_first().ok_or(StoreError::Damaged("a proposal"))?;
    if kind == RESOLVED {
        return Ok(None);
    }
    let (origin, mutation) = Ballot::decode(rest).ok_or(StoreError::Damaged("a proposal"))?;
    let mutation = match kind {
        MUTATION => Some(mutation.to_vec()),
        NOTHING => None,
        _ => return Err(StoreError::Damaged("a kind of proposal")),
    };
    Ok(Some(Accepted { ballot, proposal: Proposal { origin, mutation } }))
}

/// Writes what a change has made of the registers. Buffered: it holds when the log is synced up to the position.
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
                value.extend_from_slice(proposal.mutation.as_deref().unwrap_or_default());
                put(&mut row, ACCEPTED, ballot, &value);
            }
        }
    }
    write(shard, name, &mut row)
}

/// Notes a commit, without looking at what is there.
pub fn save_commit(shard: &Shard, name: &PartitionName, commit: &Commit) -> Result<LogPosition, StoreError> {
    let mut row = RowBuilder::new();
    let mut resolved = Vec::new();
    commit.ballot.encode(&mut resolved);
    let mut committed = resolved.clone();
    resolved.push(RESOLVED);
    commit.origin.encode(&mut committed);
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
    apply(shard, builder)
}

fn apply(shard: &Shard, builder: MutationBuilder) -> Result<LogPosition, StoreError> {
    let mutation = builder.build();
    let view = mutation.view().map_err(EngineError::Mutation)?;
    Ok(shard.apply(&view)?)
}

/// The floors, by table, as this shard has noted them.
pub fn load_low_bounds(shard: &Shard) -> Result<BTreeMap<[u8; 16], i64>, StoreError> {
    let mut scan = shard.scan(&ScanRequest {
        table: TABLE,
        start: &key::full_key(LOW_BOUNDS_TOKEN, LOW_BOUNDS_KEY, REGULAR_START)?,
        end: &key::full_key(LOW_BOUNDS_TOKEN, LOW_BOUNDS_KEY, REGULAR_END)?,
        reversed: false,
        now_seconds: 0,
        budget: Budget::UNLIMITED,
    })?;
    let mut bounds = BTreeMap::new();
    while let Step::Row(view) = scan.next()? {
        let id = table_of(view.position).ok_or(StoreError::Damaged("the position of a low bound"))?;
        let micros = view.row.cells().map(|cell| cell.timestamp).max();
        bounds.insert(id, micros.unwrap_or(i64::MIN));
    }
    Ok(bounds)
}

/// Notes a floor: what is not above it is refused from now on.
pub fn save_low_bound(shard: &Shard, table_id: [u8; 16], micros: i64) -> Result<LogPosition, StoreError> {
    let mut row = RowBuilder::new();
    row.cell(Cell { column: 1, path: &[], timestamp: micros, kind: CellKind::Live, value: &[] });
    let mut builder = MutationBuilder::new(TABLE, LOW_BOUNDS_TOKEN, LOW_BOUNDS_KEY)?;
    builder.row(&position_of(table_id), &mut row);
    apply(shard, builder)
}

/// The table that a state is about.
pub fn table_of(position: &[u8]) -> Option<[u8; 16]> {
    position.strip_prefix(&[REGULAR_TAG, TABLE_TAG])?.try_into().ok()
}
