//! Recomputing a unit: its row of the view becomes what the base table says.
//!
//! Invariants:
//! * Only the holder of the slice does this, and one after the other for a unit.
//! * The values are read after the timestamp of the row is chosen, at a quorum: so of two rows with the same key the one with the newer values
//!   has the higher timestamp.
//! * What the table of origins does not have is not in the view. A unit's row is written after its origin is, and while the lease stands: so the
//!   next holder, which reads the origins later, finds every row that a unit may have.

use std::rc::Rc;

use helenus_execution::coordinator::denylist;
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::ShardContext;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::Table;
use helenus_views::computation::Values;

use crate::lease::Lease;
use crate::live_view::{LEVEL, LiveView};
use crate::state::{SliceState, ViewsState};
use crate::unit::stored_unit;

/// Makes the rows of the view that come from a unit right.
pub async fn recompute(
    context: &Rc<ShardContext>,
    view: &LiveView,
    unit: &Values,
    slice: &SliceState,
) -> Result<()> {
    if context.denies() && is_denied(context, view.base(), unit)? {
        return Ok(());
    }
    let lease = &slice.lease;
    let timestamp = lease.next_timestamp(context)?;
    let origins = match view.origins(context, unit).await {
        Err(error) if is_of_values(context, &error) => {
            note_failure(context, view, slice, &error);
            return Ok(());
        }
        origins => origins?,
    };
    let mut wanted = match expected(context, view, unit, Some(timestamp)).await {
        Err(error) if is_of_values(context, &error) => {
            note_failure(context, view, slice, &error);
            None
        }
        expected => match expected? {
            Expected::Row(row) => row,
            Expected::Denied => return Ok(()),
        },
    };
    context.metrics.view_rows_recomputed.increment();
    if let Some(row) = &wanted {
        match put(context, view, unit, row, &origins, lease, timestamp).await {
            Err(error) if is_of_values(context, &error) => {
                note_failure(context, view, slice, &error);
                wanted = None;
            }
            put => put?,
        }
    }
    if context.has_bug(PlantedBug::LeftViewRow) {
        return Ok(());
    }
    let origin = wanted.map(|row| view.computation.origin_of(&row));
    for gone in origins.iter().filter(|present| Some(*present) != origin.as_ref()) {
        lease.check(context)?;
        let key = view.computation.key_of(unit, gone)?;
        view.delete_row.write(context, &key, LEVEL, Some(timestamp)).await?;
        let whole: Values = unit.iter().chain(gone).cloned().collect();
        view.delete_origin.write(context, &whole, LEVEL, Some(timestamp)).await?;
    }
    Ok(())
}

/// Writes the row of a unit, once its origin is written and while the lease stands.
async fn put(
    context: &Rc<ShardContext>,
    view: &LiveView,
    unit: &Values,
    row: &Values,
    origins: &[Values],
    lease: &Lease,
    timestamp: i64,
) -> Result<()> {
    let origin = view.computation.origin_of(row);
    if !origins.contains(&origin) {
        let whole: Values = unit.iter().chain(&origin).cloned().collect();
        view.put_origin.write(context, &whole, LEVEL, Some(timestamp)).await?;
    }
    lease.check(context)?;
    view.put_row.write(context, row, LEVEL, Some(timestamp)).await?;
    Ok(())
}

/// Counts a unit that is left out: its values do not make a row, or not one that can be stored.
fn note_failure(context: &ShardContext, view: &LiveView, slice: &SliceState, error: &RequestError) {
    *slice.failed.borrow_mut().entry(view.build_id()).or_default() += 1;
    context.metrics.view_rows_failed.increment();
    let table = view.table().full_name();
    tracing::warn!(view = table, %error, "a row is left out of a view: its values do not make a row that can be stored");
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
