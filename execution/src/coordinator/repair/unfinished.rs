//! The repairs that operators have asked for and that have not ended, kept so that the node goes on with them after a restart.
//!
//! Each is a row ([`super::kept`]): its name has the time of its begin, the value is the scope as JSON.

use std::rc::Rc;

use helenus_query::error::{RequestError, Result};

use super::kept;
use super::runs::RepairScope;
use crate::shard::context::ShardContext;

const PARTITION: &[u8] = b"unfinished";

/// Keeps a repair. Call on the first shard.
pub async fn keep(context: &ShardContext, scope: &RepairScope, began_micros: i64) -> Result<()> {
    let value = serde_json::to_vec(scope).map_err(|error| RequestError::Server(error.to_string()))?;
    context.shard.admit_internal().await?;
    Ok(kept::set(context, PARTITION, &began_micros.to_be_bytes(), Some(&value)).await?)
}

/// Forgets a repair that has ended. Call on the first shard.
pub async fn forget(context: &ShardContext, began_micros: i64) -> Result<()> {
    context.shard.admit_internal().await?;
    Ok(kept::set(context, PARTITION, &began_micros.to_be_bytes(), None).await?)
}

/// The repairs that are kept, the oldest first, with the times at which they began. Call on the first shard.
pub async fn load(context: &Rc<ShardContext>) -> Result<Vec<(RepairScope, i64)>> {
    let mut unfinished = Vec::new();
    for (name, value) in kept::load(context, PARTITION).await? {
        let began = <[u8; 8]>::try_from(name.as_slice()).map(i64::from_be_bytes);
        if let (Ok(began_micros), Ok(scope)) = (began, serde_json::from_slice(&value)) {
            unfinished.push((scope, began_micros));
        } else {
            tracing::warn!("a repair that was not finished cannot be read; it is not gone on with");
        }
    }
    Ok(unfinished)
}
