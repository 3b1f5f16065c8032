//! Rows that expire: what was written with a time to live is recomputed when it is over, since nothing is written then.
//!
//! A timer is a row of `system_distributed.view_timers`, which names a row of a followed table and the second in which a value of it has expired.
//! It is written before the position behind its entry is stored, so it is not lost. Timers of an hour are a partition; they expire a day after
//! they were due.

use std::collections::BTreeSet;
use std::rc::Rc;

use cql_lite::types::codec::{elements, encode_elements};
use cql_lite::types::timeuuid;
use futures::stream::{self, StreamExt, TryStreamExt};
use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::MAX_TTL_SECONDS;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::PartitionKey;
use helenus_views::computation::Values;

use crate::changes::{Changed, Entry};
use crate::internal_statement::InternalStatement;
use crate::live_view::{LEVEL, page};

const SECONDS_PER_HOUR: i64 = 3_600;
/// Timers are kept for so long after they were due: a holder of the slice may be missing meanwhile.
const KEPT_SECONDS: i64 = 86_400;
const MICROS_PER_SECOND: i64 = 1_000_000;
/// Timers that are written at the same time.
const WRITTEN_AT_A_TIME: usize = 16;

/// The statements about timers. They belong to one shard.
#[derive(Debug)]
pub struct TimerStatements {
    write: InternalStatement,
    read: InternalStatement,
}

impl Default for TimerStatements {
    fn default() -> Self {
        Self {
            write: InternalStatement::new(
                "INSERT INTO system_distributed.view_timers (table_id, slice, hour, due, partition_key, clustering) VALUES (?, ?, ?, ?, ?, ?) USING TTL ?",
            ),
            read: InternalStatement::new(
                "SELECT partition_key, clustering FROM system_distributed.view_timers \
                 WHERE table_id = ? AND slice = ? AND hour = ? AND due >= ? AND due <= ?",
            ),
        }
    }
}

/// Sets timers for the rows of entries that expire.
pub async fn set(
    context: &Rc<ShardContext>,
    statements: &TimerStatements,
    followed: &Table,
    slice: Slice,
    entries: &[&Entry],
) -> Result<()> {
    let mut timers = BTreeSet::new();
    for entry in entries {
        if let (Some(ttl_seconds), Changed::Row { key, clustering }) = (entry.ttl_seconds, &entry.changed) {
            let written = timeuuid::unix_micros(&entry.time).div_euclid(MICROS_PER_SECOND);
            // The second in which it was written may not have been over.
            let due = written.saturating_add(i64::from(ttl_seconds)).saturating_add(2);
            timers.insert((due, key.bytes.clone(), clustering.clone()));
        }
    }
    write(context, statements, followed, slice, timers).await
}

/// A second, and the partition key and the clustering columns of a row.
pub type Timer = (i64, Vec<u8>, Values);

/// Sets timers.
pub async fn write(
    context: &Rc<ShardContext>,
    statements: &TimerStatements,
    followed: &Table,
    slice: Slice,
    timers: BTreeSet<Timer>,
) -> Result<()> {
    let now = i64::from(context.now_seconds());
    let (table, slice) = key_of(followed, slice);
    let written = timers.into_iter().map(|(due, partition_key, clustering)| {
        let kept = due.saturating_sub(now).max(0).saturating_add(KEPT_SECONDS);
        let kept = i32::try_from(kept).unwrap_or(i32::MAX).min(MAX_TTL_SECONDS);
        let clustering = clustering.into_iter().flatten().collect::<Vec<_>>();
        let values = [
            table.clone(),
            slice.clone(),
            Some(due.div_euclid(SECONDS_PER_HOUR).to_be_bytes().to_vec()),
            Some(due.to_be_bytes().to_vec()),
            Some(partition_key),
            Some(encode_elements(clustering.iter().map(Vec::as_slice))),
            Some(kept.to_be_bytes().to_vec()),
        ];
        async move {
            match statements.write.write(context, &values, LEVEL, None).await {
                // The key is too long for a timer, or the time is beyond what can be stored.
                Err(RequestError::Invalid(reason)) => {
                    tracing::warn!(
                        table = followed.full_name(),
                        reason,
                        "a row of a table with views stays in them when it expires"
                    );
                    Ok(())
                }
                written => written.map(drop),
            }
        }
    });
    stream::iter(written).buffer_unordered(WRITTEN_AT_A_TIME).try_collect::<()>().await
}

/// Gives the rows whose timers are due in these seconds, both included, page by page.
pub async fn due(
    context: &Rc<ShardContext>,
    statements: &TimerStatements,
    followed: &Table,
    slice: Slice,
    seconds: (i64, i64),
    mut each: impl AsyncFnMut(Vec<Changed>) -> Result<()>,
) -> Result<()> {
    let (from, to) = seconds;
    let (table, slice) = key_of(followed, slice);
    let damaged = || RequestError::Server("system_distributed.view_timers has a damaged row".to_owned());
    let changed = |row: Values| {
        let [Some(partition_key), Some(clustering)] = &row[..] else { return Err(damaged()) };
        let values = elements(clustering).map_err(|_| damaged())?;
        let values = values.map(|value| value.map(|value| Some(value.to_vec())).map_err(|_| damaged()));
        let key = PartitionKey::of(followed.partitioner(), partition_key.clone());
        Ok(Changed::Row { key, clustering: values.collect::<Result<_>>()? })
    };
    let oldest_hour = (i64::from(context.now_seconds()) - KEPT_SECONDS).div_euclid(SECONDS_PER_HOUR);
    for hour in from.div_euclid(SECONDS_PER_HOUR).max(oldest_hour)..=to.div_euclid(SECONDS_PER_HOUR) {
        let number = |number: i64| Some(number.to_be_bytes().to_vec());
        let values = vec![table.clone(), slice.clone(), number(hour), number(from), number(to)];
        let mut next = None;
        loop {
            let (rows, more) = page(context, &statements.read, &values, next).await?;
            if !rows.is_empty() {
                each(rows.into_iter().map(changed).collect::<Result<_>>()?).await?;
            }
            match more {
                Some(more) => next = Some(more),
                None => break,
            }
        }
    }
    Ok(())
}

fn key_of(followed: &Table, slice: Slice) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    (Some(followed.id.as_bytes().to_vec()), Some(i32::from(slice.0).to_be_bytes().to_vec()))
}
