//! The repairs that operators have asked for and that have not ended, kept so that the node goes on with them after a restart.
//!
//! They are rows of the table of the [`super::history`]: the position has the time of their begin, the value the scope as JSON.

use std::rc::Rc;

use helenus_engine::key::REGULAR_TAG;
use helenus_engine::read::Budget;
use helenus_engine::{Deletion, EngineError};
use helenus_query::error::{RequestError, Result};

use super::history::TABLE;
use super::runs::RepairScope;
use crate::shard::context::ShardContext;
use crate::shard::private_table::PrivateRange;

const PARTITION: &[u8] = b"unfinished";
/// Unfinished repairs are few, and small.
const SCAN_BUDGET: Budget = Budget { bytes: 64 << 20, tombstones: 1_000_000 };

fn position(began_micros: i64) -> Vec<u8> {
    [&[REGULAR_TAG], began_micros.to_be_bytes().as_slice()].concat()
}

/// Keeps a repair. Call on the first shard.
pub async fn keep(context: &ShardContext, scope: &RepairScope, began_micros: i64) -> Result<()> {
    let value = serde_json::to_vec(scope).map_err(|error| RequestError::Server(error.to_string()))?;
    context.shard.admit_internal().await?;
    let mut change = TABLE.change(PARTITION);
    change.put(&position(began_micros), context.next_timestamp(), &value);
    let position = change.apply(&context.shard)?;
    Ok(context.shard.durable(position).await?)
}

/// Forgets a repair that has ended. Call on the first shard.
pub async fn forget(context: &ShardContext, began_micros: i64) -> Result<()> {
    context.shard.admit_internal().await?;
    let mut change = TABLE.change(PARTITION);
    let deletion =
        Deletion { timestamp: context.next_timestamp(), local_deletion_time: context.now_seconds() };
    change.delete(&position(began_micros), deletion);
    let position = change.apply(&context.shard)?;
    Ok(context.shard.durable(position).await?)
}

/// The repairs that are kept, the oldest first, with the times at which they began. Call on the first shard.
pub async fn load(context: &Rc<ShardContext>) -> Result<Vec<(RepairScope, i64)>> {
    let range = PrivateRange::partition(PARTITION);
    let read = || {
        let mut kept = Vec::new();
        let mut scan = TABLE.scan(&context.shard, &range, context.now_seconds(), SCAN_BUDGET)?;
        while let Some(row) = scan.next()? {
            let began = row.position.get(1..).and_then(|time| <[u8; 8]>::try_from(time).ok());
            if let (Some(began), Ok(scope)) = (began, serde_json::from_slice(row.value)) {
                kept.push((scope, i64::from_be_bytes(began)));
            } else {
                tracing::warn!("a repair that was not finished cannot be read; it is not gone on with");
            }
        }
        Ok::<_, EngineError>(kept)
    };
    Ok(context.shard.read_cold(read).await?)
}
