//! The table of hints.

use helenus_engine::TableId;
use helenus_query::error::{RequestError, Result};

use crate::shard::context::ShardContext;
use crate::shard::private_table::{PrivateChange, PrivateTable};

/// The engine's id of the hints table.
pub const TABLE: PrivateTable = PrivateTable(TableId(*b"helenus-hints---"));

/// The error of a row that cannot be read.
pub(super) fn damaged(what: &str) -> RequestError {
    RequestError::Server(format!("the stored hints are damaged: {what} cannot be read"))
}

/// Applies a change, and returns when it is on the disk.
pub(super) async fn write_durably(context: &ShardContext, change: PrivateChange) -> Result<()> {
    let written = change.apply(&context.shard)?;
    context.note_append(written);
    Ok(context.shard.durable(written).await?)
}
