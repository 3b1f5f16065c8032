//! The rows of a partition that a search for its low mark reads.
//!
//! Invariants:
//! * They are several reads, between which others may write. So a search is worth something only if, after its last read, as many rows
//!   as the cap stand before the end that it has found, and the cap is still the same.
//! * A read of this node's rows takes no more than the budget of a turn at a time.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus_engine::key::{KeyRef, REGULAR_END, REGULAR_START};
use helenus_engine::read::{Budget, ScanRequest, Step};
use helenus_engine::{DecodeError, RowRef, TableId, transcode};
use helenus_query::error::{RequestError, Result};
use helenus_query::run::keys::Slice;
use helenus_query::schema::catalog::Table;
use helenus_query::schema::options::Cap;
use helenus_query::stored_key::PartitionKey;

use super::marks::MarkSearch;
use crate::coordinator::own_rows::slice_range;
use crate::coordinator::read::turn_budget;
use crate::coordinator::replica::read::{RangeRead, needs_others, read_range_part};
use crate::shard::context::ShardContext;
use crate::shard::receipt::{self, RowMeter};

/// The first evicted rows that are looked at for their timestamps, and the last ones: where a table is in the order of time, the newest
/// is the first or the last one.
const FIRST_EVICTED_ROWS: u64 = 64;
const LAST_EVICTED_ROWS: u64 = 8;
/// Bytes that are looked through for them: what marks have deleted may not be gone yet.
const EVICTED_BYTES_MAX: u64 = 16 << 10;

pub(super) fn malformed(error: DecodeError) -> RequestError {
    RequestError::Server(error.to_string())
}

/// A partition of a table with a cap, read at a level.
pub(super) struct FirstRows<'a> {
    pub context: &'a Rc<ShardContext>,
    pub table: &'a Arc<Table>,
    pub key: PartitionKey,
    pub level: Consistency,
    pub deadline: Duration,
}

/// A read of some rows.
struct Part {
    positions: Slice,
    reversed: bool,
    rows_max: u64,
    now_seconds: u32,
    /// Most bytes of rows that this node looks through.
    bytes_max: u64,
}

/// Rows of this node, by their positions, and where the read goes on.
type RowsHere = (Vec<(Vec<u8>, Vec<u8>)>, Option<Vec<u8>>);

impl FirstRows<'_> {
    /// The cap of the table as this node knows it now. `None`: the table is gone.
    pub fn cap_now(&self) -> Option<Cap> {
        let catalog = self.context.catalog_view();
        catalog.table(self.table.engine_id())?.options.cap.clone()
    }

    /// Searches the marks. `None`: rows were removed, or the cap was changed, while it read.
    pub async fn search(&self, cap: Cap) -> Result<Option<MarkSearch>> {
        let now_micros = self.context.clock.now_micros();
        let mut search = MarkSearch::new(cap.clone(), now_micros);
        self.take_kept(&mut search, REGULAR_END).await?;
        let Some(start) = search.end().map(<[u8]>::to_vec) else {
            return Ok(Some(search).filter(|_| self.cap_now() == Some(cap)));
        };
        for (reversed, rows_max) in [(false, FIRST_EVICTED_ROWS), (true, LAST_EVICTED_ROWS)] {
            let part = Part {
                positions: Slice { start: start.clone(), end: REGULAR_END.to_vec() },
                reversed,
                rows_max,
                now_seconds: search.now_seconds(),
                bytes_max: EVICTED_BYTES_MAX,
            };
            let resume =
                self.read(part, |position, row| search.evicted(position, row).map(|()| true)).await?;
            if resume.is_none() || search.is_newest_evicted_first() {
                break;
            }
        }
        let mut again = MarkSearch::new(cap.clone(), now_micros);
        self.take_kept(&mut again, &start).await?;
        let is_valid = again.end().is_some() && self.cap_now() == Some(cap);
        Ok(Some(search).filter(|_| is_valid))
    }

    /// Gives a search the first rows of the partition, as many as it wants of those before a position.
    async fn take_kept(&self, search: &mut MarkSearch, end: &[u8]) -> Result<()> {
        let mut from = Some(REGULAR_START.to_vec());
        while let Some(start) = from.take() {
            let part = Part {
                positions: Slice { start, end: end.to_vec() },
                reversed: false,
                rows_max: search.wanted_rows(),
                now_seconds: search.now_seconds(),
                bytes_max: u64::MAX,
            };
            let mut is_found = false;
            let resume = self
                .read(part, |position, row| {
                    is_found = is_found || !search.row(position, row)?;
                    Ok(!is_found)
                })
                .await?;
            from = resume.filter(|_| !is_found);
        }
        Ok(())
    }

    /// Passes rows to a function until it returns false. Returns the position from which there may be more; `None`: there are none.
    async fn read(
        &self,
        part: Part,
        mut take: impl FnMut(&[u8], RowRef<'_>) -> Result<bool, DecodeError>,
    ) -> Result<Option<Vec<u8>>> {
        receipt::check()?;
        let is_elsewhere = || Some(vec![self.key.token]);
        let resume = if needs_others(self.context, self.table, self.level, is_elsewhere) {
            let (start, end) = slice_range(&self.key, &part.positions)?;
            let read = RangeRead {
                table: self.table,
                start,
                end,
                reversed: part.reversed,
                now_seconds: part.now_seconds,
                live_rows: part.rows_max,
                consistency: self.level,
                deadline: self.deadline,
                bypasses_cache: false,
            };
            let found = read_range_part(self.context, &read).await?;
            for row in found.rows.iter() {
                if !take(row.position, row.row).map_err(malformed)? {
                    break;
                }
            }
            found.resume
        } else {
            let (rows, resume) = self.read_here(part).await?;
            for (position, row) in &rows {
                if !take(position, RowRef::new(row, 0)).map_err(malformed)? {
                    break;
                }
            }
            resume
        };
        let bound = resume.as_deref().map(KeyRef::parse).transpose().map_err(malformed)?;
        Ok(bound.map(|bound| bound.position.to_vec()))
    }

    /// Reads rows of the shard of this node that owns the partition.
    async fn read_here(&self, part: Part) -> Result<RowsHere> {
        let (table, key) = (self.table.engine_id(), self.key.clone());
        let read = move |context: Rc<ShardContext>| {
            let read = async move {
                let mark = receipt::mark();
                let in_turn = || {
                    receipt::set_back(&mark);
                    read_in_turn(&context, table, &key, &part)
                };
                let read = context.shard.read_cold(in_turn).await?;
                if read.1.is_some() {
                    tokio::task::yield_now().await;
                }
                Ok::<RowsHere, RequestError>(read)
            };
            Box::pin(read) as futures::future::LocalBoxFuture<'static, _>
        };
        self.context.run_on(self.context.node.shard_of(self.key.token), read).await?
    }
}

fn read_in_turn(context: &ShardContext, table: TableId, key: &PartitionKey, part: &Part) -> Result<RowsHere> {
    let (start, end) = slice_range(key, &part.positions)?;
    let budget = turn_budget(context);
    let budget = Budget { bytes: budget.bytes.min(part.bytes_max), ..budget };
    let &Part { reversed, now_seconds, .. } = part;
    let request = ScanRequest { table, start: &start, end: &end, reversed, now_seconds, budget };
    let mut scan = context.shard.scan(&request)?;
    receipt::count_range(1);
    let mut meter = RowMeter::begin();
    let mut rows = Vec::new();
    loop {
        match scan.next()? {
            Step::Row(view) => {
                meter.add(view.partition_key, view.position, view.row, None);
                let mut row = Vec::new();
                transcode(view.row, 0, &mut row).map_err(malformed)?;
                rows.push((view.position.to_vec(), row));
            }
            Step::Exhausted => return Ok((rows, scan.resume_bound()?)),
            Step::End => return Ok((rows, None)),
        }
        if rows.len() as u64 >= part.rows_max {
            return Ok((rows, scan.resume_bound()?));
        }
    }
}
