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
use helenus_views::computation::Values;

use crate::live_view::{LEVEL, LiveView};
use crate::state::SliceState;
use crate::unit::stored_unit;

/// Makes the rows of the view that come from a unit right.
pub async fn recompute(
    context: &Rc<ShardContext>,
    view: &LiveView,
    unit: &Values,
    slice: &SliceState,
) -> Result<()> {
    if is_denied(context, view, unit)? {
        return Ok(());
    }
    let lease = &slice.lease;
    let timestamp = lease.next_timestamp(context)?;
    let origins = view.origins(context, unit).await?;
    let wanted = match expected(context, view, unit, Some(timestamp)).await {
        Err(error) if is_of_values(&error) => {
            *slice.failed.borrow_mut().entry(view.table().id).or_default() += 1;
            context.metrics.view_rows_failed.increment();
            let table = view.table().full_name();
            tracing::warn!(view = table, %error, "a row is left out of a view: an expression fails on its values");
            None
        }
        expected => expected?,
    };
    context.metrics.view_rows_recomputed.increment();
    let write = |values: Values| (values, LEVEL, Some(timestamp));
    let origin = wanted.as_ref().map(|row| view.computation.origin_of(row));
    if let (Some(row), Some(origin)) = (wanted, &origin) {
        if !origins.contains(origin) {
            let (values, level, timestamp) = write(unit.iter().chain(origin).cloned().collect());
            view.put_origin.write(context, &values, level, timestamp).await?;
        }
        lease.check(context)?;
        let (values, level, timestamp) = write(row);
        view.put_row.write(context, &values, level, timestamp).await?;
    }
    if context.has_bug(PlantedBug::LeftViewRow) {
        return Ok(());
    }
    for gone in origins.iter().filter(|present| Some(*present) != origin.as_ref()) {
        lease.check(context)?;
        let (values, level, at) = write(view.computation.key_of(unit, gone)?);
        view.delete_row.write(context, &values, level, at).await?;
        let (values, level, at) = write(unit.iter().chain(gone).cloned().collect());
        view.delete_origin.write(context, &values, level, at).await?;
    }
    Ok(())
}

/// The row that the view should have of a unit, for who only compares.
pub async fn wanted(context: &Rc<ShardContext>, view: &LiveView, unit: &Values) -> Result<Option<Values>> {
    match expected(context, view, unit, None).await {
        Err(error) if is_of_values(&error) => Ok(None),
        expected => expected,
    }
}

/// The row that the view should have of a unit. With a timestamp, what is looked up is noted.
async fn expected(
    context: &Rc<ShardContext>,
    view: &LiveView,
    unit: &Values,
    timestamp: Option<i64>,
) -> Result<Option<Values>> {
    let Some(values) = view.unit(context, unit).await? else { return Ok(None) };
    let joined = match &view.computation.definition.joined {
        Some(_) => view.joined(context, unit, &values, timestamp).await?,
        None => None,
    };
    view.computation.row(Some(&values), joined.as_ref())
}

/// Whether the partition of the base table is on the denylist. It is not read then, and its rows of the view stay as they are.
fn is_denied(context: &Rc<ShardContext>, view: &LiveView, unit: &Values) -> Result<bool> {
    if !context.denies() {
        return Ok(false);
    }
    let (key, _) = stored_unit(view.base(), unit)?;
    Ok(denylist::check_transaction_read(context, view.base(), &key).is_err())
}

/// Whether an error comes from the values of a row, so that it would come again.
fn is_of_values(error: &RequestError) -> bool {
    matches!(error, RequestError::Invalid(_) | RequestError::Function { .. })
}
