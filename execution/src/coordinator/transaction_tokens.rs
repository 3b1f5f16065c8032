//! What a transaction with a token (`BEGIN TRANSACTION USING TOKEN …`) has done: remembered for 24 hours, so that a client that has lost the
//! answer can send the transaction again and gets the same answer, and nothing is done twice.
//!
//! A record is a row of one table beside all others, in a partition with the token and key of the transaction's own, so that it has the same
//! replicas and moves with them:
//!
//! ```text
//! position := 0x02 | 0x01 | id of the table (16 bytes) | the client's token (16 bytes)
//! value    := version u8 (1) | digest (16 bytes) | 0 (nothing was returned)
//!                                               | 1 | number of rows u32 big endian | rows as they are sent
//! ```
//!
//! Invariants:
//! * A record is a companion of the mutation that the transaction proposes, also where that changes nothing: so it is agreed on, committed,
//!   finished by others and handed on with what was done, or not at all. It is read with the promises, or in the turn that decides.
//! * It says what was agreed on. That stays true, whatever becomes of the rows: a truncation leaves records as they are.
//! * It is never changed nor deleted. It expires 24 hours after the time of its ballot; an older record of the same token has expired by then.

use helenus_engine::key::REGULAR_TAG;
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{
    Cell, CellKind, Expiry, Mutation, MutationBuilder, RowBuilder, RowRef, TableId, TableOptions,
};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::term::BindValue;
use helenus_query::plan::transaction::TransactionPlan;
use helenus_query::run::modify::WriteContext;
use helenus_query::run::select::ResultPage;
use helenus_query::statement::Prepared;
use helenus_query::stored_key::PartitionKey;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Outcome;
use super::own_rows::row_range;
use crate::shard::context::ShardContext;

/// The engine's id of the table.
pub const TABLE: TableId = TableId(*b"helenus-tokens--");

/// How long a token is remembered.
const REMEMBERED_SECONDS: u32 = 24 * 60 * 60;
/// The largest answer of a transaction with a token: it is kept for as long.
const ANSWER_BYTES_MAX: usize = 64 << 10;

const COLUMN: u32 = 1;
const VERSION: u8 = 1;
/// Precedes the table id in a position: components of positions begin with neither 0x00 nor 0xFF.
const TABLE_TAG: u8 = 1;
const NOTHING: u8 = 0;
const ROWS: u8 = 1;

/// The engine options of the table. What expires hides nothing older, so nothing need be kept of it.
pub fn table_options() -> TableOptions {
    TableOptions { gc_grace_seconds: 0, ..TableOptions::default() }
}

/// A client's token with what it stands for.
#[derive(Debug, Clone)]
pub struct TransactionToken {
    id: [u8; 16],
    table: TableId,
    /// Of the statement and its values.
    digest: [u8; 16],
}

impl TransactionToken {
    /// The token of a transaction with the client's values.
    pub fn new(id: [u8; 16], statement: &Prepared<TransactionPlan>, values: &[BindValue<'_>]) -> Self {
        let table = statement.plan.table.engine_id();
        Self { id, table, digest: digest(statement, table, values) }
    }

    fn position(&self) -> Vec<u8> {
        [&[REGULAR_TAG, TABLE_TAG][..], &self.table.0, &self.id].concat()
    }

    /// The half-open range of full keys of its record in [`TABLE`].
    pub fn range(&self, key: &PartitionKey) -> Result<(Vec<u8>, Vec<u8>)> {
        row_range(key, &self.position())
    }

    /// What the record says, if it has not expired.
    pub fn remembered(&self, row: RowRef<'_>, now_seconds: u32) -> Result<Option<Outcome>> {
        let is_there = |cell: &Cell<'_>| match cell.kind {
            CellKind::Expiring(expiry) => cell.column == COLUMN && !expiry.is_expired(now_seconds),
            CellKind::Live | CellKind::Tombstone { .. } | CellKind::Counter => false,
        };
        let Some(cell) = row.cells().find(is_there) else { return Ok(None) };
        let damaged = || RequestError::Server("the record of a transaction's token is damaged".to_owned());
        let (digest, answer) = decode(cell.value).ok_or_else(damaged)?;
        if digest != self.digest {
            return Err(RequestError::invalid(format!(
                "Token {} was used by another transaction within the last 24 hours: with another text, other values or other columns in its answer",
                Uuid::from_bytes(self.id)
            )));
        }
        Ok(Some(answer))
    }

    /// What this shard remembers, in this turn.
    pub fn remembered_here(&self, context: &ShardContext, key: &PartitionKey) -> Result<Option<Outcome>> {
        let (start, end) = self.range(key)?;
        let now_seconds = context.now_seconds();
        let request = ScanRequest {
            table: TABLE,
            start: &start,
            end: &end,
            reversed: false,
            now_seconds,
            budget: Budget::UNLIMITED,
        };
        match context.shard.scan(&request)?.next()? {
            Step::Row(view) => self.remembered(view.row, now_seconds),
            Step::Exhausted | Step::End => Ok(None),
        }
    }

    /// The mutation of a transaction with the record of its answer. `change`: what it changes, if anything.
    pub fn with_record(
        &self,
        change: Option<&Mutation>,
        key: &PartitionKey,
        answer: &Outcome,
        write: &WriteContext,
    ) -> Result<Mutation> {
        let failed = |error: &dyn std::fmt::Display| RequestError::Server(error.to_string());
        let emptied = || MutationBuilder::new(self.table, key.token, &key.bytes).map(MutationBuilder::build);
        let head = match change {
            Some(change) => change.clone(),
            None => emptied().map_err(|error| failed(&error))?,
        };
        let record = self.record(key, answer, write)?;
        let whole = Mutation::with_companions(&head, &[record]).map_err(|error| failed(&error))?;
        let (bytes, limit) = (whole.bytes().len(), write.mutation_bytes_max);
        if bytes > limit {
            return Err(RequestError::invalid(format!(
                "The changes of a transaction with a token and its answer take {bytes} bytes, and may take {limit}"
            )));
        }
        Ok(whole)
    }

    fn record(&self, key: &PartitionKey, answer: &Outcome, write: &WriteContext) -> Result<Mutation> {
        let value = encode(&self.digest, answer)?;
        let seconds = u32::try_from(write.now_micros / 1_000_000).unwrap_or(u32::MAX);
        let expiry =
            Expiry { ttl: REMEMBERED_SECONDS, expires_at: seconds.saturating_add(REMEMBERED_SECONDS) };
        let mut row = RowBuilder::new();
        row.cell(Cell {
            column: COLUMN,
            path: &[],
            timestamp: write.timestamp,
            kind: CellKind::Expiring(expiry),
            value: &value,
        });
        let mut builder = MutationBuilder::new(TABLE, key.token, &key.bytes)
            .map_err(|error| RequestError::invalid(error.to_string()))?;
        builder.row(&self.position(), &mut row);
        Ok(builder.build())
    }
}

/// Tells a transaction from others: its text, its table, the columns that it returns, and its values.
fn digest(statement: &Prepared<TransactionPlan>, table: TableId, values: &[BindValue<'_>]) -> [u8; 16] {
    let mut digest = Sha256::new();
    let mut add = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    add(statement.text.as_bytes());
    add(&table.0);
    add(&statement.metadata_id);
    for value in values {
        match value {
            BindValue::Null => add(&[0]),
            BindValue::Unset => add(&[1]),
            BindValue::Bytes(bytes) => {
                add(&[2]);
                add(bytes);
            }
        }
    }
    let mut first = [0; 16];
    first.copy_from_slice(&digest.finalize()[..16]);
    first
}

fn encode(digest: &[u8; 16], answer: &Outcome) -> Result<Vec<u8>> {
    let mut value = vec![VERSION];
    value.extend_from_slice(digest);
    match answer {
        Outcome::Void => value.push(NOTHING),
        Outcome::Rows(ResultPage { rows, row_count, paging_state: None, .. }) => {
            if rows.len() > ANSWER_BYTES_MAX {
                return Err(RequestError::invalid(format!(
                    "The answer of a transaction with a token may take {ANSWER_BYTES_MAX} bytes: this one takes {}",
                    rows.len()
                )));
            }
            value.push(ROWS);
            // Each row takes several bytes.
            value.extend_from_slice(&u32::try_from(*row_count).unwrap_or(u32::MAX).to_be_bytes());
            value.extend_from_slice(rows);
        }
        other => {
            debug_assert!(false, "a transaction answers with rows of one page or with nothing: {other:?}");
            return Err(RequestError::Server(
                "the answer of a transaction with a token cannot be kept".to_owned(),
            ));
        }
    }
    Ok(value)
}

fn decode(value: &[u8]) -> Option<([u8; 16], Outcome)> {
    let rest = value.strip_prefix(&[VERSION])?;
    let (digest, rest) = rest.split_first_chunk::<16>()?;
    let answer = match rest.split_first()? {
        (&NOTHING, []) => Outcome::Void,
        (&ROWS, rest) => {
            let (row_count, rows) = rest.split_first_chunk::<4>()?;
            let row_count = u32::from_be_bytes(*row_count) as usize;
            Outcome::Rows(ResultPage { rows: rows.to_vec(), row_count, ..ResultPage::default() })
        }
        _ => return None,
    };
    Some((*digest, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(digest: u8) -> TransactionToken {
        TransactionToken { id: [7; 16], table: TableId([9; 16]), digest: [digest; 16] }
    }

    fn key() -> PartitionKey {
        PartitionKey { token: -5, bytes: b"key".to_vec() }
    }

    fn write(mutation_bytes_max: usize) -> WriteContext {
        WriteContext {
            timestamp: 1_700_000_000_000_001,
            now_seconds: 1,
            now_micros: 1_700_000_000_000_001,
            is_exact: true,
            counter_id: [0; 16],
            mutation_bytes_max,
        }
    }

    /// What the record in a mutation says at a time.
    fn told(whole: &Mutation, token: &TransactionToken, now_seconds: u32) -> Result<Option<Outcome>> {
        let view = whole.view().unwrap();
        let records: Vec<_> = view.companions().map(std::result::Result::unwrap).collect();
        let [view] = records[..] else { panic!("one record, not {}", records.len()) };
        assert_eq!((view.table, view.token, view.partition_key), (TABLE, -5, &b"key"[..]));
        let Some(Ok(helenus_engine::Operation::Row { position, row })) = view.operations().next() else {
            panic!("a record is a row");
        };
        assert_eq!(position, token.position());
        token.remembered(row, now_seconds)
    }

    fn rows(bytes: usize) -> Outcome {
        Outcome::Rows(ResultPage { rows: vec![1; bytes], row_count: 3, ..ResultPage::default() })
    }

    #[test]
    fn an_answer_is_remembered_for_24_hours() {
        let (token, begun) = (token(1), 1_700_000_000);
        let whole = token.with_record(None, &key(), &rows(5), &write(1 << 20)).unwrap();
        let view = whole.view().unwrap();
        assert_eq!((view.table, view.operations().count()), (TableId([9; 16]), 0));
        for now in [begun, begun + REMEMBERED_SECONDS - 1] {
            let Some(Outcome::Rows(page)) = told(&whole, &token, now).unwrap() else { panic!("rows") };
            assert_eq!((page.rows, page.row_count), (vec![1; 5], 3));
        }
        assert!(told(&whole, &token, begun + REMEMBERED_SECONDS).unwrap().is_none());
        let whole = token.with_record(None, &key(), &Outcome::Void, &write(1 << 20)).unwrap();
        assert!(matches!(told(&whole, &token, begun).unwrap(), Some(Outcome::Void)));
    }

    #[test]
    fn another_transaction_with_the_token_is_refused() {
        let whole = token(1).with_record(None, &key(), &Outcome::Void, &write(1 << 20)).unwrap();
        let refused = told(&whole, &token(2), 1_700_000_000).unwrap_err().to_string();
        assert!(refused.contains("07070707-0707-0707-0707-070707070707 was used by another"), "{refused}");
    }

    #[test]
    fn what_is_too_large_to_be_remembered_is_refused() {
        let token = token(1);
        assert!(token.with_record(None, &key(), &rows(ANSWER_BYTES_MAX), &write(1 << 20)).is_ok());
        for (bytes, limit) in [(ANSWER_BYTES_MAX + 1, 1 << 20), (1_000, 1_000)] {
            assert!(token.with_record(None, &key(), &rows(bytes), &write(limit)).is_err());
        }
    }

    #[test]
    fn golden_bytes() {
        let mut expected = vec![1];
        expected.extend_from_slice(&[1; 16]);
        assert_eq!(encode(&[1; 16], &Outcome::Void).unwrap(), [&expected[..], &[0]].concat());
        let answer = encode(&[1; 16], &rows(2)).unwrap();
        assert_eq!(answer, [&expected[..], &[1, 0, 0, 0, 3, 1, 1]].concat());
        for length in 0..=expected.len() {
            assert!(decode(&answer[..length]).is_none());
        }
        expected[0] = 2;
        assert!(decode(&[&expected[..], &[0]].concat()).is_none());
        assert_eq!(token(1).position(), [&[2, 1][..], &[9; 16], &[7; 16]].concat());
    }
}
