//! Recomputing units: their rows of the view become what the base table says.
//!
//! Units of a pass are recomputed together, on the shard of this node that has their partitions of the base table: it reads what it has without asking
//! another one, and what is to be written is written together.
//!
//! Invariants:
//! * Only the holder of the slice does this, and one after the other for a unit.
//! * The values are read after the timestamp of the row is chosen, at a quorum: so of two rows with the same key the one with the newer values
//!   has the higher timestamp.
//! * What the table of origins does not have is not in the view. A unit's row is written after its origin is, and while the lease stands: so the
//!   next holder, which reads the origins later, finds every row that a unit may have. An origin goes after its row.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{LocalBoxFuture, join_all};
use futures::stream::{self, StreamExt};
use helenus_execution::coordinator::denylist;
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::modify::PartitionMutation;
use helenus_query::schema::catalog::Table;
use helenus_views::computation::Values;

use crate::internal_statement::write_together;
use crate::lease::Grant;
use crate::live_view::{LEVEL, LiveView};
use crate::state::{SliceState, ViewsState};
use crate::unit::stored_unit;

/// Units that are read at the same time.
const READ_AT_A_TIME: usize = 16;
/// A batch of writes to the view is sent when it has this many bytes, or when all of its units have been read.
const WRITTEN_TOGETHER_BYTES: usize = 256 * 1024;
/// Pause before a unit is read again that was refused for the number of requests.
const AFTER_REFUSAL: Duration = Duration::from_millis(100);

/// Makes the rows of the view right that come from these units, each of which is there once.
pub async fn recompute(
    context: &Rc<ShardContext>,
    view: &LiveView,
    units: Vec<Values>,
    slice: &SliceState,
) -> Result<()> {
    let mut by_owner: BTreeMap<usize, Vec<Values>> = BTreeMap::new();
    for unit in units {
        let (key, _) = stored_unit(view.base(), &unit)?;
        by_owner.entry(context.node.shard_of(key.token)).or_default().push(unit);
    }
    let mut jobs: Vec<LocalBoxFuture<'_, Result<u64>>> = Vec::with_capacity(by_owner.len());
    for (owner, units) in by_owner {
        let grant = slice.lease.grant(context, units.len())?;
        if owner == context.index {
            jobs.push(Box::pin(recompute_here(context, view, units, grant)));
            continue;
        }
        let build = view.build_id();
        jobs.push(Box::pin(async move {
            let job = move |context: Rc<ShardContext>| {
                let job: LocalBoxFuture<'static, _> = Box::pin(async move {
                    let view = ViewsState::of(&context).view(&context, build);
                    let unknown =
                        || RequestError::Server("a shard does not know a view that is recomputed".to_owned());
                    recompute_here(&context, &*view.ok_or_else(unknown)?, units, grant).await
                });
                job
            };
            context.run_on(owner, job).await?
        }));
    }
    // All of them end before the next units begin, also where one has failed: a unit is not recomputed twice at a time.
    for failed_units in join_all(jobs).await {
        *slice.failed.borrow_mut().entry(view.build_id()).or_default() += failed_units?;
    }
    Ok(())
}

/// What is to be written for some units, in the order in which it has to be there.
#[derive(Default)]
struct Changes {
    new_origins: Vec<PartitionMutation>,
    rows: Vec<PartitionMutation>,
    gone_rows: Vec<PartitionMutation>,
    gone_origins: Vec<PartitionMutation>,
    /// The values of a unit do not make a row.
    has_failed: bool,
    row_bytes: usize,
}

impl Changes {
    fn append(&mut self, other: Self) {
        self.row_bytes += other.rows.iter().map(|change| change.mutation.bytes().len()).sum::<usize>();
        self.new_origins.extend(other.new_origins);
        self.rows.extend(other.rows);
        self.gone_rows.extend(other.gone_rows);
        self.gone_origins.extend(other.gone_origins);
    }

    async fn write(self, context: &Rc<ShardContext>, grant: Grant) -> Result<()> {
        for mutations in [self.new_origins, self.rows, self.gone_rows, self.gone_origins] {
            grant.check(context)?;
            write_together(context, mutations, LEVEL).await?;
        }
        Ok(())
    }
}

/// Recomputes units on this shard. Returns how many have failed: their values do not make rows.
async fn recompute_here(
    context: &Rc<ShardContext>,
    view: &LiveView,
    units: Vec<Values>,
    grant: Grant,
) -> Result<u64> {
    let each = units.iter().zip(grant.first_timestamp..);
    let mut read = stream::iter(each)
        .map(|(unit, timestamp)| changes_of(context, view, unit, grant, timestamp))
        .buffer_unordered(READ_AT_A_TIME);
    // What removes rows of a partition with a cap reads which ones it has: one after the other.
    let row_bytes_max = if view.table().options.cap.is_some() { 0 } else { WRITTEN_TOGETHER_BYTES };
    let mut changes = Changes::default();
    let mut outcome = Ok(0);
    while let Some(of_unit) = read.next().await {
        let of_unit = match of_unit {
            Ok(of_unit) => of_unit,
            // What was recomputed is written in any case.
            Err(error) => {
                outcome = outcome.and(Err(error));
                continue;
            }
        };
        context.metrics.view_rows_recomputed.increment();
        outcome = outcome.map(|failed_units| failed_units + u64::from(of_unit.has_failed));
        changes.append(of_unit);
        if changes.row_bytes >= row_bytes_max {
            std::mem::take(&mut changes).write(context, grant).await?;
        }
    }
    changes.write(context, grant).await?;
    outcome
}

/// What is to be written for a unit. Where the base table has a limit of requests, it waits until the unit is let in.
async fn changes_of(
    context: &Rc<ShardContext>,
    view: &LiveView,
    unit: &Values,
    grant: Grant,
    timestamp: i64,
) -> Result<Changes> {
    if context.denies() && is_denied(context, view.base(), unit)? {
        return Ok(Changes::default());
    }
    loop {
        match read_changes(context, view, unit, timestamp).await {
            Err(RequestError::RateLimited { .. }) => {
                context.clock.sleep(AFTER_REFUSAL).await;
                grant.check(context)?;
            }
            done => return done,
        }
    }
}

async fn read_changes(
    context: &Rc<ShardContext>,
    view: &LiveView,
    unit: &Values,
    timestamp: i64,
) -> Result<Changes> {
    let mut changes = Changes::default();
    let origins = match view.origins(context, unit).await {
        Ok(origins) => origins,
        Err(error) => {
            leave_out(context, view, error, &mut changes)?;
            return Ok(changes);
        }
    };
    let mut origin = None;
    match expected(context, view, unit, Some(timestamp)).await {
        Ok(Expected::Denied) => return Ok(changes),
        Ok(Expected::Row(None)) => {}
        Ok(Expected::Row(Some(row))) => match put_of(context, view, unit, &row, &origins, timestamp) {
            Ok((new_origins, rows)) => {
                (changes.new_origins, changes.rows) = (new_origins, rows);
                origin = Some(view.computation.origin_of(&row));
            }
            Err(error) => leave_out(context, view, error, &mut changes)?,
        },
        Err(error) => leave_out(context, view, error, &mut changes)?,
    }
    if context.has_bug(PlantedBug::LeftViewRow) {
        return Ok(changes);
    }
    for gone in origins.iter().filter(|present| Some(*present) != origin.as_ref()) {
        let key = view.computation.key_of(unit, gone)?;
        changes.gone_rows.extend(view.delete_row.mutations(context, &key, LEVEL, timestamp)?);
        let whole: Values = unit.iter().chain(gone).cloned().collect();
        changes.gone_origins.extend(view.delete_origin.mutations(context, &whole, LEVEL, timestamp)?);
    }
    Ok(changes)
}

/// The mutations of a unit's origin, if it is new, and of its row.
fn put_of(
    context: &Rc<ShardContext>,
    view: &LiveView,
    unit: &Values,
    row: &Values,
    origins: &[Values],
    timestamp: i64,
) -> Result<(Vec<PartitionMutation>, Vec<PartitionMutation>)> {
    let origin = view.computation.origin_of(row);
    let mut new_origin = Vec::new();
    if !origins.contains(&origin) {
        let whole: Values = unit.iter().chain(&origin).cloned().collect();
        new_origin = view.put_origin.mutations(context, &whole, LEVEL, timestamp)?;
    }
    Ok((new_origin, view.put_row.mutations(context, row, LEVEL, timestamp)?))
}

/// Counts a unit that is left out: its values do not make a row, or not one that can be stored. Other errors are returned.
fn leave_out(
    context: &ShardContext,
    view: &LiveView,
    error: RequestError,
    changes: &mut Changes,
) -> Result<()> {
    if !is_of_values(context, &error) {
        return Err(error);
    }
    changes.has_failed = true;
    context.metrics.view_rows_failed.increment();
    let table = view.table().full_name();
    tracing::warn!(view = table, %error, "a row is left out of a view: its values do not make a row that can be stored");
    Ok(())
}

/// The row that the view should have of a unit, for who only compares.
pub async fn wanted(context: &Rc<ShardContext>, view: &LiveView, unit: &Values) -> Result<Option<Values>> {
    match expected(context, view, unit, None).await {
        Err(error) if is_of_values(context, &error) => Ok(None),
        expected => match expected? {
            Expected::Row(row) => Ok(row),
            Expected::Denied => Ok(None),
        },
    }
}

/// What the view should have of a unit.
enum Expected {
    Row(Option<Values>),
    /// What has to be looked up is on the denylist.
    Denied,
}

/// The row that the view should have of a unit. With a timestamp, what is looked up is noted.
async fn expected(
    context: &Rc<ShardContext>,
    view: &LiveView,
    unit: &Values,
    timestamp: Option<i64>,
) -> Result<Expected> {
    let Some(values) = view.unit(context, unit).await? else { return Ok(Expected::Row(None)) };
    let joined = match &view.computation.definition.joined {
        Some(joined) => {
            if let Some(key) = view.computation.joined_key(&values)
                && context.denies()
                && is_denied(context, &joined.table, &key)?
            {
                return Ok(Expected::Denied);
            }
            view.joined(context, unit, &values, timestamp).await?
        }
        None => None,
    };
    view.computation.row(Some(&values), joined.as_ref()).map(Expected::Row)
}

/// Whether the partition of a row, or of a unit, is on the denylist. It is not read then, and what the view has of it stays as it is.
fn is_denied(context: &Rc<ShardContext>, table: &Table, key: &Values) -> Result<bool> {
    let (key, _) = stored_unit(table, key)?;
    Ok(denylist::check_transaction_read(context, table, &key).is_err())
}

/// Whether an error comes from the values of a row, so that it would come again. One of a statement that does not fit the tables any more does
/// not: the view is taken anew then.
fn is_of_values(context: &ShardContext, error: &RequestError) -> bool {
    matches!(error, RequestError::Invalid(_) | RequestError::Function { .. })
        && ViewsState::of(context).is_current(context)
}
