//! What TRUNCATE does with the transaction state of a table, on one shard.
//!
//! 1. [`latest_micros`]: the members agree on a time that is not below any ballot that one of them has.
//! 2. They note it ([`super::late_commit`]): from then on nothing up to it is promised, accepted or applied anywhere.
//! 3. When a member has emptied the table, it forgets what is not above ([`forget`]), as if the partitions had been settled. A node
//!    that joins later streams no commit of before, so it need not know the time.

use std::rc::Rc;

use helenus_engine::TableId;
use helenus_query::error::{RequestError, Result};

use super::ballot::{Ballot, SerialScope};
use super::message::PartitionName;
use super::state::Registers;
use super::store::{self, StoreError};
use crate::shard::context::ShardContext;

/// Rows of state that are read in one turn.
const PART_ROWS: usize = 256;

/// The latest microseconds of any ballot of a table's transactions on this shard; `i64::MIN`: there is none.
pub async fn latest_micros(context: &Rc<ShardContext>, table: TableId) -> Result<i64> {
    let mut latest = i64::MIN;
    for_each_state(context, table, |_, registers| {
        latest = latest.max(registers.latest_micros());
        Ok(())
    })
    .await?;
    Ok(latest)
}

/// Forgets, durably, the transactions of a table up to this time: it was emptied, and all members know the time.
pub async fn forget(context: &Rc<ShardContext>, table: TableId, truncated_micros: i64) -> Result<()> {
    let mut last = None;
    for_each_state(context, table, |name, registers| {
        let settled = Ballot {
            micros: settled_micros(registers, truncated_micros),
            salt: 0,
            host_id: context.node.host_id,
            scope: SerialScope::Global,
        };
        let position =
            store::forget(&context.shard, name, &settled, context.now_seconds(), kept_seconds(context))?;
        context.note_append(position);
        last = Some(position);
        Ok(())
    })
    .await?;
    if let Some(position) = last {
        context.shard.durable(position).await?;
    }
    Ok(())
}

/// How long the low bound of forgotten state is kept.
pub fn kept_seconds(context: &ShardContext) -> u32 {
    2 * u32::try_from(context.node.config.transaction_state_idle_seconds).unwrap_or(u32::MAX / 2)
}

/// The time of the truncation, or the later ballot under which something of before was finished meanwhile: that ballot decided on nothing
/// else.
fn settled_micros(registers: &Registers, truncated_micros: i64) -> i64 {
    let committed = registers.committed.as_ref().map(|commit| (commit.origin, commit.ballot));
    let accepted = registers.accepted.as_ref().map(|accepted| (accepted.proposal.origin, accepted.ballot));
    let of_before =
        committed.into_iter().chain(accepted).filter(|(origin, _)| origin.micros <= truncated_micros);
    of_before.map(|(_, ballot)| ballot.micros).fold(truncated_micros, i64::max)
}

async fn for_each_state(
    context: &Rc<ShardContext>,
    table: TableId,
    mut job: impl FnMut(&PartitionName, &Registers) -> std::result::Result<(), StoreError>,
) -> Result<()> {
    let failed = |error: StoreError| RequestError::Server(error.to_string());
    if !store::has_state(&context.shard) {
        return Ok(());
    }
    let mut next = Some(Vec::new());
    while let Some(start) = next {
        let part = store::load_part(&context.shard, &start, PART_ROWS).map_err(failed)?;
        for (name, registers) in part.states.iter().filter(|(name, _)| name.table_id == table.0) {
            job(name, registers).map_err(failed)?;
        }
        next = part.resume;
        tokio::task::yield_now().await;
    }
    Ok(())
}
