//! What a log still has: a consumer that has fallen behind that gets an error, never a silent gap.
//!
//! Only a read that says where it begins can miss something that it counts on. One without a first `cdc$time` gets what there is.

use cql_lite::types::{CqlType, literal, timeuuid};
use helenus_query::error::{RequestError, Result};
use helenus_query::plan::select::SelectPlan;
use helenus_query::plan::term::Bindings;
use helenus_query::run::keys::clustering_slices;
use helenus_query::stored_key::decode_clustering;
use uuid::Uuid;

use crate::shard::context::ShardContext;

/// Refuses a read of a log that begins before what the log still has.
pub fn check(context: &ShardContext, plan: &SelectPlan, bindings: &Bindings<'_>) -> Result<()> {
    let Some(history) = plan.table.options.feed_history else { return Ok(()) };
    let Some(kept_from) = history.kept_from_micros(context.clock.now_micros()) else { return Ok(()) };
    match first_micros(plan, bindings)? {
        Some(first) if first < kept_from => {
            let text = |micros: i64| {
                let milliseconds = micros.div_euclid(1_000).to_be_bytes();
                literal::to_text(&CqlType::Timestamp, &milliseconds)
            };
            Err(RequestError::invalid(format!(
                "The change feed {} has what was written since {}; the read begins before, at {}: what lies between is gone (option ttl)",
                plan.table.full_name(),
                text(kept_from),
                text(first),
            )))
        }
        _ => Ok(()),
    }
}

/// The first `cdc$time` of a read, in microseconds; `None`: it does not say it, or reads nothing.
fn first_micros(plan: &SelectPlan, bindings: &Bindings<'_>) -> Result<Option<i64>> {
    let slices = clustering_slices(&plan.restrictions.clustering, &plan.table, bindings)?;
    let Some(mut rest) = slices.first().and_then(|slice| slice.start.get(1..)) else { return Ok(None) };
    let mut time = Vec::new();
    if !decode_clustering(&CqlType::Timeuuid, &mut rest, false, &mut time)? {
        return Ok(None);
    }
    Ok(Uuid::from_slice(&time).ok().map(|time| timeuuid::unix_micros(&time)))
}
